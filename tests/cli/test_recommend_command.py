"""The command `lastiterate recommend`."""

from __future__ import annotations

import json

import pytest

from lastiterate import Training
from lastiterate.cli.main import run

ARGUMENTS = [
    "recommend",
    "--records",
    "5000",
    "--dimension",
    "20",
    "--epsilon",
    "1",
    "--epochs",
    "2",
]


def test_table(capsys):
    with pytest.raises(SystemExit) as end:
        run(ARGUMENTS)
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "equalised last epoch" in " ".join(out.split())
    assert "Run:" in out


def test_json_can_be_read_back(capsys):
    with pytest.raises(SystemExit) as end:
        run([*ARGUMENTS, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert end.value.code == 0
    risks = [a["risk"] for a in answer["alternatives"]]
    assert risks == sorted(risks)
    assert Training.from_dict(answer["alternatives"][0]["training"]).records == 5000


def test_bad_input(capsys):
    with pytest.raises(SystemExit) as end:
        run([*ARGUMENTS[:-1], "0"])
    assert end.value.code == 2
    assert "epochs" in capsys.readouterr().err
