"""Every printed guarantee goes through one function that rounds up (`lastiterate.printing`)."""

from __future__ import annotations

import ast
import re
from decimal import Decimal

import pytest
from architecture import PACKAGE, modules
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.printing import printed, printed_down

GUARANTEES = re.compile(r"(?<![a-z])(epsilons?|deltas?|mus?)(?![a-z])", re.IGNORECASE)
TO_NEAREST = re.compile(r"[gfe%]$")
# Rooms that echo what the user asked for in messages, or study published claims: no guarantees.
ECHOES = {
    "audit/power.py",
    "plan/calibration.py",
    "certificate/joint.py",
    "cli/compose.py",
    "cli/description_flags.py",
    "cli/recommend.py",
    "curves/mixture.py",
    "models/choose.py",
    "models/tune.py",
    "published/composition.py",
    "published/federated.py",
    "published/sgld.py",
    "plan/recommendation.py",
    "report/figures/recommendation.py",
    "report/violated_region.py",
    "sampling/posterior.py",
    "sampling/propose_test_sample.py",
    "plan/optimal.py",
}


def nearest(source: str) -> list[str]:
    """Epsilons, deltas and mus that are rounded to nearest, in f-strings and hover texts."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
            what, how = ast.unparse(node.value), ast.unparse(node.format_spec).strip("f'\"")
            if GUARANTEES.search(what) and "printed" not in what and TO_NEAREST.search(how):
                found.append(f"{what}:{how}")
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            hover = re.findall(r"(?:epsilon|delta|mu|at least|at most) %\{[xy]:[^}]*\}", node.value)
            found += hover
    return found


def test_the_search_finds_what_it_looks_for() -> None:
    assert nearest('f"{guarantee.epsilon(delta):.4g} {x:.3f} {delta:g} {printed(mu):>9}"') == [
        "guarantee.epsilon(delta):.4g",
        "delta:g",
    ]
    assert nearest('"%{x:,} steps: epsilon %{y:.4g}"') == ["epsilon %{y:.4g}"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_guarantee_is_printed_to_nearest(path) -> None:
    if str(path.relative_to(PACKAGE)) not in ECHOES:
        assert nearest(path.read_text(encoding="utf-8")) == []


positive = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)


@given(positive, st.integers(1, 8))
def test_rounded_away_from_promising_more(value: float, digits: int) -> None:
    above, below = Decimal(printed(value, digits)), Decimal(printed_down(value, digits))
    exact = Decimal(repr(value))
    assert below <= exact <= above
    if 1e-300 <= value <= 1e300:
        assert above - below <= exact * Decimal(10) ** (1 - digits) * 2
