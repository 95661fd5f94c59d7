"""What rests on an estimate is no guarantee, and says so wherever a number is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastiterate import FullBatch, Loss, Training, account, calibrate, compare, plateau
from lastiterate.cli.main import run as command
from lastiterate.report import (
    comparison_bars,
    epsilon_growth,
    privacy_curve,
    taut_string,
    tradeoff,
)
from lastiterate.report.render import svg

RUN = Training(
    records=50,
    steps=20,
    step_size=0.1,
    noise=0.5,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)
ESTIMATED = Loss(1.0, 0.5, provenance="estimated")
DECLARED = Loss(1.0, 0.5)
WORDS = "NOT A GUARANTEE"


def test_bare_numbers_warn() -> None:
    questions: list[Callable[[Loss], Any]] = [
        lambda loss: plateau(RUN, loss, 1e-5),
        lambda loss: calibrate(RUN, loss, 1.0, 1e-5),
        lambda loss: calibrate(RUN, loss, 1.0, 1e-5, find="records"),
        lambda loss: calibrate(RUN, loss, 1.0, 1e-5, schedule="optimal"),
    ]
    for ask in questions:
        with pytest.warns(UserWarning, match=WORDS):
            ask(ESTIMATED)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=WORDS)
            ask(DECLARED)


def test_composition_rests_on_the_estimate_too() -> None:
    loss = Loss.unknown(provenance="estimated")
    guarantee = account(RUN, loss)
    assert not guarantee.theorem.hidden_state  # composition
    assert guarantee.provenance == "estimated"
    assert str(guarantee).startswith(WORDS)
    # Clipping enforces the norm, and composition needs nothing else.
    assert account(RUN.replace(clipping="gradient"), loss).provenance == "proved"


def test_tables_say_it_first() -> None:
    assert str(compare(RUN, ESTIMATED)).startswith(WORDS)
    assert compare(RUN, ESTIMATED).provenance == "estimated"
    assert WORDS not in str(compare(RUN, DECLARED))


def test_figures_say_it() -> None:
    def drawn(loss: Loss) -> list[Any]:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=WORDS)
            guarantee, comparison = account(RUN, loss), compare(RUN, loss)
            figures = [privacy_curve(guarantee), tradeoff(guarantee), comparison_bars(comparison)]
            return [*figures, epsilon_growth(RUN, loss), taut_string(RUN, loss)]

    for figure in drawn(ESTIMATED):
        assert figure.title.startswith(WORDS)
        assert WORDS in " ".join(svg(figure, "f").split())  # in the text alternative too
    for figure in drawn(DECLARED):
        assert WORDS not in figure.title


@pytest.mark.parametrize("name", ["account", "compare", "plateau", "calibrate"])
def test_commands_say_it(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for loss in (ESTIMATED, DECLARED):
        file = tmp_path / "run.toml"
        file.write_text(f"[training]\n{RUN.to_toml()}\n[loss]\n{loss.to_toml()}")
        for extra in ([], ["--json"]):
            with pytest.raises(SystemExit) as left:
                command([name, str(file), *extra])
            assert left.value.code == 0
            printed = capsys.readouterr().out
            if extra:
                found = json.loads(printed)
                assert found.get("guarantee") is (loss is DECLARED)
                assert found["provenance"] == loss.provenance
            else:
                assert (WORDS in printed) is (loss is ESTIMATED)
