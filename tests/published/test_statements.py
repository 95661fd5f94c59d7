"""Every row of the papers has a call that evaluates, or a reason; references lead somewhere."""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from lastiterate.published import PAPERS, Statement, statements

ROOT = Path(__file__).parents[2]
ROWS = [row for paper in PAPERS for row in statements(paper)]
NAMES = [f"{row.paper}: {row.number}" for row in ROWS]
each_row = pytest.mark.parametrize("row", ROWS, ids=NAMES)


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs/generate"))
    import papers

    yield papers
    sys.modules.pop("papers", None)


def numbers(value: object) -> list[float]:
    """All numbers in what a call gave."""
    if isinstance(value, int | float | np.number):
        return [float(value)]
    if isinstance(value, np.ndarray):
        return [float(x) for x in value.ravel()]
    parts = value.values() if isinstance(value, dict) else getattr(value, "__dict__", None)
    if isinstance(value, tuple | list):
        parts = value
    elif isinstance(parts, dict):
        parts = parts.values()
    return [x for part in parts or () for x in numbers(part)]


def test_numbers_are_unique():
    assert len(set(NAMES)) == len(NAMES)


@each_row
def test_a_row_has_a_call_or_a_reason(row: Statement):
    assert row.statement
    assert row.call or row.reason
    assert row.status in ("sound", "corrected", "refuted", "not computable")
    if row.status != "sound":
        assert row.reason
    if row.status == "refuted":
        assert row.replacement
        assert row.test
    if row.call:
        assert row.test
    if row.status == "not computable":
        assert not row.call


@each_row
def test_the_call_of_a_row_evaluates(papers, row: Statement):
    if papers.draws(row):
        assert callable(papers.resolve(row.call))
        return
    value, other = papers.evaluate(row)
    if row.call:
        found = numbers(value)
        assert found
        assert not any(math.isnan(x) for x in found)
    if row.status == "refuted" and other is not None:
        assert papers.shown(value) != papers.shown(other)


@each_row
def test_the_test_of_a_row_exists(row: Statement):
    if row.test:
        path, _, name = row.test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_the_page_lists_every_row(papers):
    text = papers.page({row: ("", "") for row in ROWS})
    for row in ROWS:
        assert f"| {papers.plain(row.number)} | {row.status} |" in text
