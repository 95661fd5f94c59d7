"""Files made to hang, crash or fool the verifier: refused in words, soon, in little memory."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_files import KEPT, Bomb, hostile_files, kept, mutated, put, resealed
from patience import HANG_SECONDS

from lastiterate import Certificate, CertificateError, verify
from lastiterate.cli.output import escaped
from lastiterate.verifier.document import fingerprint

PROGRAM = [sys.executable, "-c", "from lastiterate.cli.main import run; run()"]
QUICK = [  # certificates that are recomputed in milliseconds
    "cyclic",
    "cyclic-holder",
    "full-batch",
    "full-batch-holder",
    "full-batch-released",
    "full-batch-schedule-bounded",
    "poisson-composition",
    "shuffled",
    "shuffled-equalised",
    "shuffled-people-late",
    "without-replacement-composition",
]


MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
with open(sys.argv[1], "w") as file:
    print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=file)
sys.exit(code)
"""


def command(folder: Path, *arguments: Any) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """The program as a user starts it; its CPU seconds and largest megabytes.

    It is started by a small process: a child counts the memory of whoever started it as its own.
    """
    started = [sys.executable, "-S", "-c", MEASURED, str(folder / "used"), *PROGRAM]
    said = subprocess.run(
        [*started, *(str(a) for a in arguments)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    seconds, megabytes = map(float, (folder / "used").read_text().split())
    return said, seconds, megabytes


def test_every_hostile_file_is_refused_in_words(tmp_path: Path) -> None:
    """The largest ones are made smaller here; the command gets them as they are, below."""
    path = tmp_path / "c.json"
    names = []
    for name, content in hostile_files(most=300_000):
        path.write_bytes(content)
        start = time.process_time()
        with pytest.raises(CertificateError) as refusal, np.errstate(all="ignore"):
            verify(path)
        assert time.process_time() - start < 10, name
        assert 10 < len(str(refusal.value)) < 2000, name
        names.append(name)
    assert len(names) == len(set(names)) >= 110


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    with (tmp_path / "vast").open("wb") as file:
        file.truncate(10**13)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", "endless", "vast", "loop", "nowhere"):
        with pytest.raises(CertificateError):
            verify(tmp_path / name)


@pytest.mark.slow
def test_the_command_refuses_every_hostile_file(tmp_path: Path) -> None:
    """Ten seconds and a gigabyte, in a process of its own, with exit code and reason."""
    path = tmp_path / "c.json"
    for name, content in hostile_files():
        path.write_bytes(content)
        said, seconds, megabytes = command(tmp_path, "verify", path)
        assert said.returncode in (2, 3), name
        assert said.stderr.startswith("lastiterate: "), name
        assert "Traceback" not in said.stderr, name
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", said.stderr + said.stdout), name
        assert "verified:" not in said.stdout, name
        assert seconds < 10, name
        assert megabytes < 1000, name


@pytest.mark.parametrize(
    ("name", "flags"), [("memory", ()), ("time", ("--seconds=1", "--megabytes=4000"))]
)
def test_limits_end_in_a_refusal(name: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    content = put(kept("full-batch"), "training.step_size", Bomb(40_000_000))
    (tmp_path / "c.json").write_bytes(resealed(content))
    said, seconds, megabytes = command(tmp_path, "verify", tmp_path / "c.json", *flags, "--json")
    assert said.returncode == 3
    assert json.loads(said.stdout)["verified"] is False
    assert "lastiterate: not verified: " in said.stderr
    assert "Traceback" not in said.stderr
    assert seconds < 10
    if name == "memory":
        assert megabytes < 1000
        assert "memory" in said.stderr


# A run's folder is read by the same function for both commands: one of them is enough here.
FOLDERS = (pytest.param("audit a folder", marks=pytest.mark.slow), "unlearn")


@pytest.mark.parametrize("name", ["compose", "audit", *FOLDERS])
def test_other_commands_read_strangers_files_within_limits(name: str, tmp_path: Path) -> None:
    """Before: they read them without any, and took what the file asked for."""
    bomb = put(kept("full-batch"), "training.step_size", Bomb(40_000_000))
    path, run = tmp_path / "c.json", tmp_path / "run"
    path.write_bytes(resealed(bomb))
    if name == "compose":
        arguments = ["compose", path, path, "--output", tmp_path / "both.json"]
    elif name == "audit":
        path.write_bytes(resealed(put(kept("full-batch"), "unit", Bomb(40_000_000))))
        (tmp_path / "m.py").write_text("def train(dataset, seed):\n    return 0.0\n")
        arguments = ["audit", f"{tmp_path / 'm.py'}:train", "--models=20", "--certificate", path]
    else:
        hostile_run(run, bomb)
        arguments = ["audit", run, "--data", run.parent / "data.csv"]
        if name == "unlearn":
            arguments = ["unlearn", run, "--records", run.parent / "data.csv"]
            arguments += ["--table", run.parent / "data.csv", "--epsilon=1", "--delta=1e-4"]
    files = sorted(tmp_path.rglob("*"))
    said, _, megabytes = command(tmp_path, *arguments, "--megabytes=300", "--seconds=20")
    if name == "compose":  # memory may end while it is read, or while it is recomputed
        assert said.returncode in (2, 3), said
    else:
        assert said.returncode == 3, said
        assert said.stderr.startswith("lastiterate: not read: ")
    assert "memory" in said.stderr
    assert said.stdout == ""
    assert megabytes < 1000
    assert sorted(path for path in tmp_path.rglob("*") if path.name != "used") == files


def hostile_run(folder: Path, bomb: dict[str, Any]) -> None:
    """A trained model whose certificate was replaced by one that is bound to it, and vast."""
    from lastiterate.cli.main import run

    data = folder.parent / "data.csv"
    data.write_text("age,label\n" + "".join(f"{k % 90},{'ab'[k % 2]}\n" for k in range(200)))
    flags = ["--target=label", "--epsilon=1", "--delta=1e-4", "--numeric=age=0:100"]
    flags += ["--classes=a,b", "--prepare=none", f"--out={folder}"]
    with pytest.raises(SystemExit) as left:
        run(["train", str(data), *flags])
    assert left.value.code == 0
    own = Certificate.load(folder / "certificate.json").content
    part = json.loads(resealed({**bomb, "parameters": own["parameters"]}))
    joint = {**kept("composition"), "parts": [part], "about": own["about"]}
    (folder / "certificate.json").write_bytes(resealed(joint))


def test_a_crash_of_the_reader_is_a_refusal(tmp_path: Path) -> None:
    """A process that dies under a file, whatever of, confirms nothing."""
    program = (
        "import sys, subprocess, lastiterate.cli.confined as c\n"
        "started = subprocess.Popen\n"
        "c.subprocess.Popen = lambda a: started([sys.executable, '-c', "
        "'import os; os.abort()'])\n"
        "sys.exit(c.confined(['verify', 'c.json']))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert said.returncode == 3
    assert "not verified" in said.stderr
    assert "broke the program" in said.stderr


def test_modules_that_lie_beside_a_file_are_not_imported(tmp_path: Path) -> None:
    """`python -m` would look for modules where the user stands: in the stranger's folder."""
    (tmp_path / "c.json").write_bytes(resealed(kept("full-batch")))
    for name in ("numpy", "json", "typer", "flint", "lastiterate"):
        (tmp_path / f"{name}.py").write_text("open('owned', 'w').close()")
    program = [PROGRAM[0], "-P", *PROGRAM[1:], "verify", "c.json"]
    said = subprocess.run(
        program, cwd=tmp_path, capture_output=True, text=True, timeout=HANG_SECONDS
    )
    assert said.returncode == 0, said.stderr
    assert said.stdout.startswith("verified: ")
    assert not (tmp_path / "owned").exists()


# --- the terminal ---------------------------------------------------------------------------------

ERASE = "\x1b[2K\rverified: epsilon <= 0.001\x1b[8m\u202e\x9b2K\u2028"


@pytest.mark.parametrize("place", ["library", "kind", "theorem.key", "adjacency", "x\x1b"])
def test_no_control_character_reaches_the_terminal(place: str, tmp_path: Path, capsys: Any) -> None:
    """Before: ANSI codes in a certificate overwrote "not verified" by "verified"."""
    from lastiterate.cli.main import run

    (tmp_path / "c.json").write_bytes(resealed(put(kept("shuffled"), place, ERASE)))
    with pytest.raises(SystemExit) as left:
        run(["verify", str(tmp_path / "c.json")])
    said = capsys.readouterr()
    assert left.value.code == 3
    assert said.err.startswith("lastiterate: not verified: ")
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", said.err + said.out)
    assert len(said.err.splitlines()) == 1


def test_labels_of_true_certificates_are_spelled_out(tmp_path: Path, capsys: Any) -> None:
    from lastiterate.cli.main import run

    path = tmp_path / f"c{ERASE[:8]}.json"  # a name that the shell passes on is no better
    content = put(kept("shuffled"), "dataset", ERASE)
    path.write_bytes(resealed(put(content, "nonce", ERASE)))
    for arguments in (["verify", str(path)], ["verify", str(path) + "x"]):
        with pytest.raises(SystemExit):
            run(arguments)
        said = capsys.readouterr()
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\u2028]", said.err + said.out)


def test_what_is_escaped_and_what_is_not() -> None:
    assert escaped("ε ≤ 1\n\tδ – “x”") == "ε ≤ 1\n\tδ – “x”"
    assert escaped("\r\b\x7f\x9b\u200b\ud800") == "\\r\\x08\\x7f\\x9b\\u200b\\ud800"


# --- witnesses ------------------------------------------------------------------------------------


def tampered(seed: int, names: list[str], times: int) -> dict[str, int]:
    """Tampered witnesses; with the claim as it was, and with a tenth less than it was."""
    rng = random.Random(seed)
    counts = {"refused": 0, "accepted": 0}
    for _ in range(times):
        content = kept(rng.choice(names))
        runs = content.get("parts", [content])
        run = rng.choice(runs)
        run["witness"] = mutated(rng, run["witness"])
        run["sha256"] = fingerprint(run)
        less = rng.random() < 0.5
        if less:
            content |= {"epsilon": 0.9 * content["epsilon"], "mu": None, "curve": []}
        content["sha256"] = fingerprint(content)
        try:
            with np.errstate(all="ignore"):
                verify(Certificate(content))
        except CertificateError:
            counts["refused"] += 1
        else:
            assert not less, (content["theorem"], run["witness"])
            counts["accepted"] += 1
    return counts


def test_tampered_witnesses_prove_nothing_and_crash_nothing() -> None:
    counts = tampered(0, QUICK, 300)
    assert counts["refused"] > 150


WITH_WITNESS = [
    path.stem
    for path in sorted(KEPT.glob("*.json"))
    if any(run.get("witness") for run in kept(path.stem).get("parts", [kept(path.stem)]))
]


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(20))
def test_ten_thousand_tampered_witnesses(seed: int) -> None:
    counts = tampered(seed, WITH_WITNESS, 500)
    assert counts["refused"] > 250
