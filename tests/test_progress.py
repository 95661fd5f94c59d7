"""The line of progress: quiet where nobody watches, ended when the work stops."""

from __future__ import annotations

import sys

import pytest

from lastiterate import progress
from lastiterate.progress import Progress, shown


def test_quiet_without_a_terminal(capfd):
    assert list(shown("steps", 3, 9)) == list(range(3, 9))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("show", [None, False])
def test_quiet_on_a_terminal_for_short_work_or_on_request(show, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert list(shown("steps", 0, 9, show)) == list(range(9))
    assert capsys.readouterr() == ("", "")


def test_long_work_on_a_terminal_is_shown(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    list(shown("steps", 0, 9))
    assert "steps: 9/9" in capsys.readouterr().err


def test_a_line_is_drawn_on_stderr_when_asked_for(capsys):
    assert list(shown("noisy descent", 2, 5, True)) == [2, 3, 4]
    out, err = capsys.readouterr()
    assert out == ""
    assert "noisy descent: 5/5" in err
    assert err.endswith("\n")


def test_an_interrupted_line_is_ended(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_PAUSE", -1.0)
    steps = shown("steps", 0, 5, True)
    next(steps)
    next(steps)
    steps.close()
    err = capsys.readouterr().err
    assert "steps: 1/5" in err
    assert err.endswith("\n")


def test_what_was_done_before_does_not_count_as_speed():
    bar = Progress("models", 50, 100, show=False)
    assert bar.line(1.0) == "models: 50/100, 0/s, inf s left "
    bar.add(10)
    assert bar.line(2.0) == "models: 60/100, 5/s, 8 s left "


def test_nothing_to_do(capsys):
    assert list(shown("steps", 5, 5, True)) == []
    assert capsys.readouterr() == ("", "")
