"""The line of progress: quiet where nobody watches, ended when the work stops."""

from __future__ import annotations

import sys
import threading
import time

import pytest

from lastiterate._internal import progress
from lastiterate._internal.progress import Progress, Working, shown


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


class Terminal:
    """A stand-in for a person at a terminal, who keeps what was drawn."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return True

    def write(self, text):
        self.text += text

    def flush(self):
        pass


def watched(monkeypatch):
    """Called in the test itself: before its call pytest puts its own stream in the place."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setattr(progress, "_PATIENCE", 0.01)
    monkeypatch.setattr(progress, "_TICK", 0.01)
    return found


def drawn(terminal, what):
    """Wait until the line is there; a busy machine may take its time."""
    for _ in range(1000):
        if what in terminal.text:
            return True
        time.sleep(0.01)
    return False


def test_seconds_are_counted_of_work_whose_end_nobody_knows(monkeypatch):
    terminal = watched(monkeypatch)
    with Working("calibration"), Working("certification"):
        assert drawn(terminal, "\rcalibration: 0 s ")
    assert "certification" not in terminal.text  # the outer job speaks
    assert terminal.text.endswith("\n")
    with pytest.raises(ZeroDivisionError), Working("plan"):
        _ = 1 / (not drawn(terminal, "plan"))
    assert progress._counting is False


def test_seconds_give_way_to_a_bar(monkeypatch):
    terminal = watched(monkeypatch)
    with Working("fit"):
        bar = Progress("steps", 0, 10, show=True)
        bar.add(10)
        time.sleep(0.05)
        before = terminal.text
        time.sleep(0.05)
        assert terminal.text == before
        bar.close()
        assert drawn(terminal, "\rfit")
    assert progress._bars == 0


def test_nobody_counts_beside_the_main_thread_or_without_a_terminal(monkeypatch):
    terminal = watched(monkeypatch)

    def job():
        with Working("in a server's thread"):
            time.sleep(0.05)

    thread = threading.Thread(target=job)
    thread.start()
    thread.join()
    assert terminal.text == ""
    monkeypatch.setattr(terminal, "isatty", lambda: False)
    job()
    assert terminal.text == ""


def test_what_may_take_long_counts_seconds(monkeypatch):
    from lastiterate import Loss, Shuffled, Training, compare

    terminal = watched(monkeypatch)
    run = Training(
        records=60_000,
        steps=20_000,
        step_size=0.05,
        noise=5e-4,
        gradient_norm=1.0,
        batches=Shuffled(1500),
        adjacency="replace",
    )
    compare(run, Loss(smoothness=0.25, regularization=0.002))
    assert "\rcomparison: " in terminal.text
