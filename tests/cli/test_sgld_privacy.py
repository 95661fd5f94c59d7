"""`lastiterate sgld-privacy` prints the hump and the flat line."""

from __future__ import annotations

import json

import pytest

from lastiterate.cli.main import run


def call(arguments, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["lastiterate", "sgld-privacy", *arguments])
    try:
        code = run()
    except SystemExit as stop:
        code = stop.code
    return code or 0, capsys.readouterr()


def test_hump_over_a_flat_line(monkeypatch, capsys):
    code, out = call(["--json", "--epochs", "30"], monkeypatch, capsys)
    answer = json.loads(out.out)
    assert code == 0
    assert answer["peak_epoch"] == 25
    assert answer["epsilon_lower_exact"][24] == pytest.approx(3951.7, abs=0.1)
    assert answer["posterior_epsilon_upper"] < 0.06


def test_table(monkeypatch, capsys):
    code, out = call(["--epochs", "3"], monkeypatch, capsys)
    assert code == 0
    assert "posterior sample" in out.out


def test_bad_input_names_the_field(monkeypatch, capsys):
    code, out = call(["--delta", "2"], monkeypatch, capsys)
    assert code == 2
    assert "delta" in out.err
    assert "Traceback" not in out.err
