"""Help that says what was written, hints at misspelt fields, completion, the user's delta."""

from __future__ import annotations

import os
import re
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import pytest
import typer
from patience import HANG_SECONDS
from typer.testing import CliRunner

import lastiterate
from lastiterate import Loss, Poisson, Shuffled, Training
from lastiterate.cli.application import COMMANDS
from lastiterate.cli.described import combine
from lastiterate.cli.help_texts import plain_help
from lastiterate.cli.main import run
from lastiterate.errors import DescriptionError, LastIterateError

COMMAND = str(Path(sysconfig.get_path("scripts")) / "lastiterate")
NETWORK = ["--records", "6000", "--steps", "50", "--noise-multiplier", "1", "--clip", "1"]
NETWORK += ["--batches", "poisson", "--rate", "0.01", "--loss", "unknown"]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        run(arguments)
    assert isinstance(left.value.code, int)
    captured = capsys.readouterr()
    return left.value.code, captured.out + captured.err


def letters(text: str) -> str:
    """Without the frame and the line ends that a terminal puts between."""
    return re.sub(r"[\s│╭╮╰╯─]", "", text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_help_says_every_word_that_was_written(
    command: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    name = command.__name__.replace("_", "-")
    code, shown = said(capsys, name, "--help")
    assert code == 0
    for hint in get_type_hints(command, include_extras=True).values():
        if written := getattr(getattr(hint, "__metadata__", [None])[0], "help", None):
            assert letters(written) in letters(shown), written
    assert letters(command.__doc__ or "nothing written") in letters(shown)


def test_brackets_of_help_are_not_markup() -> None:
    def command(
        x: Annotated[str, typer.Argument(help='pip install "lastiterate[cli]" for [training]')],
    ) -> None:
        """Reads [loss] and
        goes on.

        Then [bold]this[/bold].
        """

    app = typer.Typer()
    app.command(cls=plain_help(command))(command)
    shown = letters(CliRunner().invoke(app, ["--help"]).output)
    for written in ('pip install "lastiterate[cli]" for [training]', "Reads [loss] and goes on."):
        assert letters(written) in shown
    assert "[bold]this[/bold]" in shown


@pytest.mark.parametrize(
    ("table", "field", "meant"),
    [
        ("training", "step_sise", "step_size"),
        ("training", "nois_multiplier", "noise_multiplier"),
        ("training", "epoch", "epochs"),
        ("loss", "smoothnes", "smoothness"),
    ],
)
def test_misspelt_fields_are_named_before_what_is_missing(
    table: str, field: str, meant: str, tmp_path: Path
) -> None:
    file = tmp_path / "run.toml"
    file.write_text(f"[{table}]\n{field} = 1\n")
    with pytest.raises(DescriptionError, match=rf"{table}\.{field} must .*did you mean {meant}\?"):
        combine(file, {})
    file.write_text(f"[{table}]\nzzzz = 1\n")
    with pytest.raises(DescriptionError, match=r"known field .*fields: "):
        combine(file, {})


def test_completion_knows_commands_and_flags() -> None:
    def complete(words: str, place: int) -> list[str]:
        asked = {"_LASTITERATE_COMPLETE": "complete_bash", "COMP_WORDS": words}
        env = {**os.environ, **asked, "COMP_CWORD": str(place)}
        found = subprocess.run(
            [COMMAND], env=env, capture_output=True, text=True, timeout=HANG_SECONDS
        )
        return found.stdout.split()

    assert complete("lastiterate acc", 1) == ["account"]
    assert "--noise-multiplier" in complete("lastiterate account --noi", 2)


def test_the_paragraph_is_at_the_delta_that_was_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, shown = said(capsys, "account", *NETWORK, "--delta", "3e-8")
    assert code == 0
    assert set(re.findall(r"delta = (\S+?)[.,]?\s", shown)) == {"3e-08"}
    guarantee = lastiterate.account(
        Training.dp_sgd(
            records=6000,
            steps=50,
            step_size=1.0,
            noise_multiplier=1.0,
            clip=1.0,
            batches=Poisson(0.01),
        ),
        Loss.unknown(),
    )
    assert str(guarantee) == guarantee.words(1e-5, 1e-6)


def test_words_name_the_theorem_and_assumptions_of_their_delta() -> None:
    run = Training.dp_sgd(
        records=1000, steps=300, step_size=1.0, noise_multiplier=1.0, clip=1.0, batches=Shuffled(10)
    )
    guarantee = lastiterate.account(run, Loss(smoothness=0.25))
    for delta in (1e-9, 1e-5, 0.3):
        assert guarantee.best_at(delta).theorem.name in guarantee.words(delta)


def test_compare_hides_what_does_not_apply_unless_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = said(capsys, "compare", *NETWORK)[1]
    long = said(capsys, "compare", *NETWORK, "--all")[1]
    assert "Hidden position" not in short
    assert "--all says why" in short
    assert "Hidden position" in long
    assert "--all says why" not in long


@pytest.mark.parametrize("batches", ["poisson", "shuffled", "full", "without-replacement"])
def test_the_step_size_cancels_where_it_need_not_be_given(batches: str) -> None:
    flags: dict[str, Any] = {"records": 600, "steps": 30, "noise_multiplier": 2.0, "clip": 1.5}
    flags |= {"loss": "unknown", "batches": batches}
    flags |= {"poisson": {"rate": 0.1}, "full": {}}.get(batches, {"batch_size": 60})
    free = combine(None, flags)
    assert free.step_size_cancels
    for size in 10.0 ** np.random.default_rng(1).uniform(-6, 4, 5):
        fixed = combine(None, {**flags, "step_size": float(size)})
        assert not fixed.step_size_cancels
        found = [lastiterate.account(x.training, x.loss).epsilon(1e-5) for x in (free, fixed)]
        assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize(
    "more",
    [
        {"diameter": 1.0},
        {"regularization": 0.1},
        {"schedule": "equalised"},
        {"sensitivity": 0.1},
        {"loss": "convex", "smoothness": 1.0},
        {"tail_average": 5},
    ],
)
def test_a_step_size_that_counts_is_asked_for(more: dict[str, Any]) -> None:
    flags = {"records": 600, "steps": 30, "noise_multiplier": 2.0, "clip": 1.5, "loss": "unknown"}
    with pytest.raises(LastIterateError, match="--step-size"):
        combine(None, {**flags, "batches": "full", **more})


def test_a_certificate_names_its_step_size(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "certificate.json"
    code, shown = said(capsys, "certify", *NETWORK, "--output", str(target))
    assert code == 2
    assert "--step-size" in shown
    assert not target.exists()
