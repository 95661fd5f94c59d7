"""The bar: quiet where nobody watches, gone when the run stops, never a dependency."""

from __future__ import annotations

import builtins

import pytest

from lastiterate.train import progress
from lastiterate.train.progress import shown


def test_quiet_without_a_terminal(capfd):
    assert list(shown(3, 9)) == list(range(3, 9))
    assert capfd.readouterr() == ("", "")


def test_a_bar_is_drawn_on_stderr_when_asked_for(capfd, monkeypatch):
    pytest.importorskip("rich")
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    monkeypatch.setattr(progress, "_PAUSE", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert list(shown(0, 5, True)) == list(range(5))
    out, err = capfd.readouterr()
    assert out == ""
    assert "noisy descent" in err
    assert "5/5" in err


def test_an_interrupted_bar_is_closed(monkeypatch):
    rich_progress = pytest.importorskip("rich.progress")
    stopped = []
    original = rich_progress.Progress.stop
    monkeypatch.setattr(
        rich_progress.Progress, "stop", lambda self: (stopped.append(True), original(self))
    )
    monkeypatch.setattr(progress, "_PATIENCE", -1.0)
    steps = shown(0, 5, True)
    next(steps)
    steps.close()
    assert stopped


def test_without_rich_there_is_no_bar(monkeypatch, capfd):
    real = builtins.__import__

    def missing(name, *rest):
        if name.startswith("rich"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert list(shown(0, 4, True)) == list(range(4))
    assert capfd.readouterr() == ("", "")
