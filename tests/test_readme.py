"""What the README promises beyond its code blocks (those run in tests/docs)."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import lastiterate
from lastiterate.cli.main import run

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "line",
    [
        line.removeprefix("$ lastiterate ")
        for block in blocks(README, "console")
        for line in block.splitlines()
    ],
)
def test_commands_run(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        run([*shlex.split(line), "--json"])
    assert exit_.value.code == 0
    assert json.loads(capsys.readouterr().out)["command"] == line.split()[0]


def test_rooms_of_the_table_exist() -> None:
    table = README.split("| package |")[1].split("\n\n")[0]
    rooms = [
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    ]
    package = Path(lastiterate.__file__).parent
    assert len(rooms) > 10
    for room in rooms:
        assert (package / room).is_dir() or (package / f"{room}.py").exists(), room


def test_the_numbers_of_the_table_of_situations() -> None:
    """What the README promises for shuffled runs, one pass and the plateau."""
    from lastiterate import Cyclic, FullBatch, Loss, Shuffled, Training, account, plateau

    long = Training(60_000, 8_000, 0.05, 1e-4, 1.0, Shuffled(1500))
    loss = Loss(smoothness=0.25, regularization=0.002)
    assert account(long, loss).epsilon(1e-5) == pytest.approx(6.88, abs=5e-3)
    cyclic = long.replace(batches=Cyclic(1500))
    assert account(cyclic, Loss.unknown()).epsilon(1e-5) == pytest.approx(83.8, abs=0.05)
    first = cyclic.replace(steps=2_000)
    assert account(first, Loss.unknown()).epsilon(1e-5) == pytest.approx(30.5, abs=0.05)
    full = Training(100, 1000, 0.1, 1.0, 1.0, FullBatch())
    nothing = account(full, Loss.unknown()).epsilon(1e-5)
    for loss in (Loss(smoothness=1.0), Loss.nonconvex(smoothness=1.0)):
        assert account(full, loss).epsilon(1e-5) == pytest.approx(nothing, rel=1e-9)
        assert plateau(full, loss, 1e-5) is None
