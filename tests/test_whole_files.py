"""Files are whole or not there, whoever fails in between."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys

import pytest

from lastiterate._internal.atomic_write import write_whole


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "certificate.json"
    write_whole(path, b"old")

    def interrupted(*_):
        raise KeyboardInterrupt

    for moment in ("fsync", "chmod", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, moment, interrupted)
            with pytest.raises(KeyboardInterrupt):
                write_whole(path, b"new")
        assert path.read_bytes() == b"old"
        assert os.listdir(tmp_path) == ["certificate.json"]


def test_a_name_that_is_taken_can_be_left_alone(tmp_path):
    path = tmp_path / "key"
    write_whole(path, b"first", mode=0o600, replace=False)
    with pytest.raises(FileExistsError):
        write_whole(path, b"second", mode=0o644, replace=False)
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["key"]


def test_a_link_is_replaced_and_its_target_stays(tmp_path):
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_bytes(b"somebody else's")
    link.symlink_to(target)
    write_whole(link, b"ours")
    assert (target.read_bytes(), link.read_bytes()) == (b"somebody else's", b"ours")
    assert not link.is_symlink()


def test_a_folder_that_is_missing_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "missing" / "file", b"")


KILLED = """
import os, signal, sys
from pathlib import Path
from lastiterate._internal.atomic_write import write_whole
os.fsync = lambda handle: (print(os.listdir(sys.argv[1]), flush=True), sys.stdin.readline())
write_whole(Path(sys.argv[1]) / "state", b"half")
"""


@pytest.mark.skipif(os.name == "nt", reason="no such locks there")
def test_what_a_killed_writer_left_goes_with_the_next_write(tmp_path):
    """But not what a living one is about to name."""
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as dying, subprocess.Popen(command, **pipes) as slow:
        for process in (dying, slow):
            assert "state.writing-" in process.stdout.readline()
        dying.send_signal(signal.SIGKILL)
        dying.wait()
        assert len(os.listdir(tmp_path)) == 2
        bystander = tmp_path / ".state.writing"
        bystander.write_bytes(b"not ours")
        write_whole(tmp_path / "state", b"whole")
        assert len(os.listdir(tmp_path)) == 3  # the bystander, the file, and the living one's
        slow.communicate("\n\n")
        assert slow.returncode == 0
    assert sorted(os.listdir(tmp_path)) == [".state.writing", "state"]
    assert (tmp_path / "state").read_bytes() == b"half"
