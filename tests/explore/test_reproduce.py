"""The Python runs, the TOML parses, and both give the epsilon of the page."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest
from explorer_answers import shown_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import Loss, Training, account
from lastiterate.cli.described import combine
from lastiterate.explore.fields import DEFAULTS
from lastiterate.explore.pool import Pool
from lastiterate.explore.presets import PRESETS
from lastiterate.explore.reading import Description, read
from lastiterate.report.recipe import python_recipe, toml_recipe


def printed_by(program: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue()


def told(description: Description) -> tuple[Training, Loss, float]:
    return description.training, description.loss, description.delta


def written(description: Description, folder: Path) -> Path:
    path = folder / "run.toml"
    recipe = toml_recipe(*told(description), unit=description.unit)
    path.write_text(recipe, encoding="utf-8")
    return path


CASES = {
    **{name: preset.values for name, preset in PRESETS.items() if name != "heller-fetaya"},
    "poisson": {"batches": "poisson", "adjacency": "zero-out", "clipping": "gradient"},
    "reshuffled": {"batches": "reshuffled", "length": "2", "size": "12000"},
    "without replacement": {"batches": "without-replacement", "unit": "steps", "length": "9"},
    "tail": {"release": "tail", "window": "5", "batches": "full"},
    "holder": {
        "batches": "full",
        "loss": "holder",
        "diameter": "1",
        "unit": "steps",
        "length": "60",
    },
    "nonconvex": {"loss": "nonconvex", "batches": "full", "diameter": "0.001"},
    "unknown": {"loss": "unknown", "delta": "1e-9"},
    "any smoothness": {"smoothness": "inf", "batches": "full"},
    "a person": {"batches": "cyclic", "person_records": "7", "per_batch": "2"},
    "somebody late, early and quiet": {"first_step": "100", "last_step": "1500", "own_norm": "0.5"},
}


@pytest.mark.parametrize("name", CASES)
def test_page_python_and_toml_agree(name: str, pool: Pool, tmp_path: Path) -> None:
    state = DEFAULTS | CASES[name]
    description = read(state).description
    assert description is not None
    whom = description.unit
    epsilon = float(printed_by(python_recipe(*told(description), unit=whom)))
    described = combine(written(description, tmp_path), {})
    assert described.unit == whom
    again = account(described.training, described.loss, unit=whom).epsilon(described.delta)
    assert epsilon == again == shown_epsilon(pool, state)


_positive = st.floats(1e-8, 1e6)
_states = st.fixed_dictionaries(
    {
        "records": st.integers(10, 10**9).map(str),
        "unit": st.just("steps"),
        "length": st.integers(0, 10**6).map(str),
        "step_size": _positive.map(repr),
        "noise": _positive.map(repr),
        "gradient_norm": _positive.map(repr),
        "clipping": st.sampled_from(["none", "gradient", "margin"]),
        "batches": st.sampled_from(["full", "cyclic", "shuffled", "reshuffled"]),
        "size": st.integers(1, 10).map(str),
        "diameter": st.just("") | _positive.map(repr),
        "loss": st.sampled_from(["convex", "nonconvex", "holder", "unknown"]),
        "smoothness": _positive.map(repr),
        "regularization": _positive.map(repr),
        "exponent": st.floats(0, 1).map(repr),
        "delta": st.floats(1e-12, 0.49).map(repr),
    }
)


@settings(max_examples=200)
@given(_states)
def test_programs_and_files_describe_the_same_run(state: dict[str, str]) -> None:
    description = read(DEFAULTS | state).description
    if description is None:
        return
    scope: dict[str, object] = {}
    exec(python_recipe(*told(description)).rsplit("print(", 1)[0], scope)
    assert scope["training"] == description.training
    assert scope["loss"] == description.loss


@settings(max_examples=50)
@given(_states)
def test_files_describe_the_same_run(state: dict[str, str]) -> None:
    import tempfile

    description = read(DEFAULTS | state).description
    if description is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        described = combine(written(description, Path(folder)), {})
    assert described.training == description.training
    assert described.loss == description.loss
    assert described.delta == description.delta
