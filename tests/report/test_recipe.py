"""What a page tells people to type gives the number again."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import numpy as np
import pytest

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
    account,
)
from lastiterate.cli.main import run as command
from lastiterate.report.recipe import python_recipe, toml_recipe, writable

BASE = Training(
    records=100,
    steps=20,
    step_size=0.3,
    noise=0.2,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)
CONVEX = Loss(smoothness=1.0, regularization=0.1)
RUNS = {
    "full": (BASE, CONVEX, ()),
    "diameter": (BASE.replace(diameter=3.0), Loss.nonconvex(smoothness=0.7), ()),
    "schedule": (BASE.replace(step_size=np.linspace(0.1, 0.3, 20)), CONVEX, ()),
    "checkpoints": (BASE, CONVEX, (5, 10)),
    "grid": (BASE.replace(arithmetic=Arithmetic(2.0**-20, 1e-9, 784)), CONVEX, ()),
    "tail": (BASE.replace(release=TailAverage(4)), CONVEX, ()),
    "cyclic": (BASE.replace(batches=Cyclic(10), final_noise=2.0), CONVEX, ()),
    "shuffled": (BASE.replace(batches=Shuffled(10), schedule="equalised"), CONVEX, ()),
    "reshuffled": (BASE.replace(batches=Reshuffled(25)), CONVEX, ()),
    "poisson": (BASE.replace(batches=Poisson(0.1), adjacency="zero-out"), Loss.unknown(), ()),
    "drawn": (BASE.replace(batches=WithoutReplacement(10)), CONVEX, ()),
    "holder": (BASE.replace(diameter=2.0), Loss.holder(constant=1.0, exponent=0.5), ()),
    "proved": (BASE.replace(clipping="gradient"), Loss(smoothness=1.0, provenance="proved"), ()),
}


@pytest.mark.parametrize("name", RUNS)
def test_python_gives_the_number(name: str) -> None:
    training, loss, releases = RUNS[name]
    expected = account(training, loss, releases=releases).epsilon(1e-5)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(python_recipe(training, loss, 1e-5, releases=releases), {})
    assert float(printed.getvalue()) == expected


@pytest.mark.parametrize("name", RUNS)
def test_toml_gives_the_number(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training, loss, releases = RUNS[name]
    expected = account(training, loss, releases=releases).epsilon(1e-5)
    path = tmp_path / "run.toml"
    path.write_text(toml_recipe(training, loss, 1e-5, releases=releases))
    with pytest.raises(SystemExit) as left:
        command(["account", str(path), "--json"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == expected


def test_a_long_schedule_is_not_written_out() -> None:
    assert writable(BASE)
    assert not writable(BASE.replace(steps=1000, noise=np.full(1000, 0.1)))
