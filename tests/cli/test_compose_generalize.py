"""`lastiterate compose` and `lastiterate generalize`: numbers in, bounds out."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.cli.main import run
from lastiterate.composition import optimal
from lastiterate.generalization import generalization


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]):
    def answer(line: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as leaving:
            run(shlex.split(line))
        out, err = capsys.readouterr()
        return leaving.value.code or 0, out, err

    return answer


def test_compose_headline(ask) -> None:
    line = "compose --epsilon 1 --delta 1e-5 --rounds 1000 --total-delta 0.01 --json"
    code, out, _ = ask(line)
    answer = json.loads(out)
    assert code == 0
    assert answer["epsilon"] == optimal(1.0, 1e-5, 1000).epsilon(0.01)
    assert answer["round"] == {"epsilon": 1.0, "delta": 1e-5, "rounds": 1000}


def test_compose_compares_with_sound_forms_only(ask) -> None:
    _, out, _ = ask("compose --epsilon 0.1 --rounds 100 --total-delta 1e-6 --json")
    answer = json.loads(out)
    assert answer["epsilon"] == optimal(0.1, 0.0, 100).epsilon(1e-6)
    assert len(answer["compared"]) == 3
    for row in answer["compared"]:
        assert row["epsilon"] > answer["epsilon"]
        assert row["delta"] == 1e-6


def test_compose_for_people(ask) -> None:
    code, out, _ = ask("compose --epsilon 0.1 --rounds 100 --total-delta 1e-6")
    assert code == 0
    assert "4.775" in out  # 4.7746..., rounded up
    assert "optimal" in out


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("compose --epsilon 1 --rounds 3", "--total-delta"),
        ("compose --epsilon -1 --rounds 3 --total-delta 0.1", "epsilon"),
        ("compose --epsilon 1 --rounds 0 --total-delta 0.1", "rounds"),
        ("compose --rounds 3 --total-delta 0.1", "--epsilon"),
        ("generalize --epsilon 1 --delta 1e-6", "--records"),
        ("generalize --epsilon 1 --delta 1e-6 --records 0", "records"),
        ("generalize --epsilon 1 --delta 1e-6 --records 9 --confidence 1", "confidence"),
        ("generalize --epsilon 1 --delta 1e-6 --records 9 --adjacency add", "adjacency"),
    ],
)
def test_bad_input_is_explained(ask, line, word) -> None:
    code, out, err = ask(line)
    assert (code, out) == (2, "")
    assert word in err
    assert "Traceback" not in err


def test_generalize_numbers(ask) -> None:
    line = "generalize --epsilon 0.1 --delta 1e-6 --records 10000 --json"
    _, out, _ = ask(line)
    answer, found = json.loads(out), generalization((0.1, 1e-6), 10_000)
    assert answer["high_probability"] == found.high_probability
    assert answer["expected"] == found.expected
    assert answer["best_gap"] == "J*"
    assert len(answer["bounds"]) == len(found.bounds)
    _, out, _ = ask(line.replace("--json", "--adjacency zero-out --json"))
    assert json.loads(out)["high_probability"] > answer["high_probability"]


def test_generalize_for_people(ask) -> None:
    code, out, _ = ask("generalize --epsilon 0.1 --delta 1e-6 --records 10000")
    assert code == 0
    assert "vacuous" in out


def test_generalize_a_run(ask, tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        "[training]\nadjacency = 'replace'\n"
        "records = 5000\nsteps = 200\nstep_size = 0.1\nnoise = 0.05\n"
        'gradient_norm = 2.0\nbatches = { scheme = "full" }\n[loss]\nsmoothness = 1.0\n'
    )
    _, out, _ = ask(f"generalize {path} --json")
    run_ = Training(
        records=5000,
        steps=200,
        step_size=0.1,
        noise=0.05,
        gradient_norm=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    found = generalization(account(run_, Loss(smoothness=1.0)))
    assert json.loads(out)["high_probability"] == found.high_probability
    code, _, err = ask(f"generalize {path} --epsilon 1")
    assert code == 2
    assert "not both" in err
