"""What the README promises beyond its code blocks (those run in tests/docs)."""

from __future__ import annotations

import importlib.util
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
    built = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = built.split("| package |")[1].split("\n\n")[0]
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

    long = Training(
        records=60_000,
        steps=8_000,
        step_size=0.05,
        noise=1e-4,
        gradient_norm=1.0,
        batches=Shuffled(1500),
        adjacency="replace",
    )
    loss = Loss(smoothness=0.25, regularization=0.002)
    assert account(long, loss).epsilon(1e-5) == pytest.approx(6.88, abs=5e-3)
    cyclic = long.replace(batches=Cyclic(1500))
    assert account(cyclic, Loss.unknown()).epsilon(1e-5) == pytest.approx(83.8, abs=0.05)
    first = cyclic.replace(steps=2_000)
    assert account(first, Loss.unknown()).epsilon(1e-5) == pytest.approx(30.5, abs=0.05)
    full = Training(
        records=100,
        steps=1000,
        step_size=0.1,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    nothing = account(full, Loss.unknown()).epsilon(1e-5)
    for loss in (Loss(smoothness=1.0), Loss.nonconvex(smoothness=1.0)):
        assert account(full, loss).epsilon(1e-5) == pytest.approx(nothing, rel=1e-9)
        assert plateau(full, loss, 1e-5) is None


def test_one_pass_of_small_batches() -> None:
    """Noise multipliers 0.134 and 0.70 of the table."""
    from lastiterate import Loss, Poisson, Shuffled, Training, calibrate

    def multiplier(batches: Shuffled | Poisson, loss: Loss, **more: str) -> float:
        run = Training.dp_sgd(
            records=60_000,
            steps=1_000,
            step_size=1.0,
            noise_multiplier=1.0,
            clip=1.0,
            batches=batches,
            clipping="none",
            **more,
        )
        return calibrate(run, loss, 1.0, 1e-6).noise * 60  # type: ignore[union-attr,operator]

    ours = multiplier(Shuffled(60), Loss(smoothness=0.25), schedule="equalised")
    assert ours == pytest.approx(0.134, abs=5e-4)
    assert multiplier(Poisson(1e-3), Loss.unknown()) == pytest.approx(0.70, abs=5e-3)


def test_the_picture_is_what_its_script_draws() -> None:
    """Light and dark, computed again; every number on it is rounded to the safe side."""
    path = ROOT / "examples" / "readme_figure.py"
    script = importlib.util.module_from_spec(
        spec := importlib.util.spec_from_file_location("readme_figure", path)  # type: ignore
    )
    spec.loader.exec_module(script)  # type: ignore[union-attr]
    numbers = script.lines()
    for theme in script.THEMES:
        drawn = ROOT / "docs" / "figures" / f"epsilon-{theme}.svg"
        assert drawn.read_text(encoding="utf-8") == script.svg(theme, numbers)
        assert f"docs/figures/{drawn.name}" in README
    said = re.search(r"charged ([\d.]+), the last iterate ([\d.]+), .* suffers ([\d.]+)", README)
    assert said is not None
    composition, last, lower = map(float, said.groups())
    assert 0 <= composition - numbers["composition"][-1][1] <= 0.1
    assert 0 <= last - numbers["last"][-1][1] <= 0.1
    assert 0 <= numbers["lower"][-1][1] - lower <= 0.1


def test_it_is_short_and_says_first_what_it_is() -> None:
    assert len(README.splitlines()) <= 140
    first = README.split("\n\n")[1]
    assert "Differential privacy" in first
    assert "e^epsilon" in first
    assert README.index("pip install") < README.index("```python")


def test_false_claims_are_counted_right() -> None:
    from lastiterate import theorems

    errata = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    table = errata.split("| claim |")[1].split("\n\n")[0]
    assert len(table.splitlines()) - 2 == 7
    false = errata.split("## False statements")[1].split("\n## ")[0]
    others = false.count("\n### ") - 7
    assert f"Seven of their privacy theorems and {others} other statements are false" in README
    assert f"Seven privacy theorems, each with the smallest counterexample; {others} other" in false
    assert sum(theorem.status == "refuted" for theorem in theorems()) == 7
