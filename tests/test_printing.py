"""Every printed guarantee goes through a function of `_internal.formatting` that rounds up."""

from __future__ import annotations

import ast
import re
from decimal import Decimal
from itertools import pairwise

import pytest
from architecture import PACKAGE, modules
from hypothesis import example, given
from hypothesis import strategies as st

from lastiterate._internal.formatting import printed, printed_down

GUARANTEES = re.compile(r"(?<![a-z])(epsilons?|deltas?|mus?)(?![a-z])", re.IGNORECASE)
TO_NEAREST = re.compile(r"[gfe%]$")
# What stands right before a number that somebody may rely on.
SAID = re.compile(r"\b(epsilon'?|delta|mu|at most)( =| <=| of| used)? $", re.IGNORECASE)
HOVER = re.compile(
    r"(?:epsilon|delta|mu|at least|at most) %\{[xy]:[^}]*\}"
    r"|^%\{x[^}]*\}: %\{y:[^}]*\}$"  # whatever is drawn
)
# Files that may round to nearest, and why: nothing in them is a guarantee of this library.
ECHOES = {
    "description/lifetime_budget.py": "the limits that an argument must keep to",
}


def nearest(source: str) -> list[str]:
    """Epsilons, deltas and mus that are rounded to nearest, in f-strings and hover texts."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            for before, value in pairwise(node.values):
                if isinstance(before, ast.Constant) and SAID.search(before.value):
                    found += to_nearest(value)
        if isinstance(node, ast.FormattedValue) and GUARANTEES.search(ast.unparse(node.value)):
            found += to_nearest(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += HOVER.findall(node.value)
    return list(dict.fromkeys(found))


def to_nearest(value: ast.expr) -> list[str]:
    """The value and its format, if that rounds to nearest."""
    if not isinstance(value, ast.FormattedValue) or value.format_spec is None:
        return []
    what, how = ast.unparse(value.value), ast.unparse(value.format_spec)[2:-1]  # without f''
    return [f"{what}:{how}"] if "printed" not in what and TO_NEAREST.search(how) else []


def test_the_search_finds_what_it_looks_for() -> None:
    assert nearest('f"{guarantee.epsilon(delta):.4g} {x:.3f} {delta:.3f} {printed(mu):>9}"') == [
        "guarantee.epsilon(delta):.4g",
        "delta:.3f",
    ]
    assert nearest('"%{x:,} steps: epsilon %{y:.4g}"') == ["epsilon %{y:.4g}"]
    assert nearest('"%{x:.4g}: %{y:.4g}"') == ["%{x:.4g}: %{y:.4g}"]
    assert nearest('f"epsilon = {target:g}, at most {x:.3f} of {y:g}"') == ["target:g", "x:.3f"]


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_no_guarantee_is_printed_to_nearest(path) -> None:
    found = nearest(path.read_text(encoding="utf-8"))
    if path.relative_to(PACKAGE).as_posix() in ECHOES:
        assert found, "nothing to exempt any more: take the file off the list"
    else:
        assert found == []


positive = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)


@given(positive, st.integers(1, 8))
@example(5e-324, 2)
@example(1.7976931348623157e308, 2)
def test_rounded_away_from_promising_more(value: float, digits: int) -> None:
    above, below = Decimal(printed(value, digits)), Decimal(printed_down(value, digits))
    exact = Decimal(repr(value))
    assert below <= exact <= above
    if 1e-300 <= value <= 1e300:
        assert above - below <= exact * Decimal(10) ** (1 - digits) * 2
