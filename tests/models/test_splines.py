"""Splines over declared ranges: short rows, whatever the values; nothing learnt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate.errors import DescriptionError
from lastiterate.models import SplineFeatures


@given(
    st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 12), st.integers(0, 5), st.booleans()
)
@settings(max_examples=80, deadline=None)
def test_rows_are_no_longer_than_one(
    seed: int, columns: int, pieces: int, degree: int, sparse: bool
) -> None:
    rng = np.random.default_rng(seed)
    low = rng.normal(size=columns) * 10.0 ** rng.integers(-3, 4)
    high = low + 10.0 ** rng.uniform(-3, 3, columns)
    ends = np.stack([low, high, (low + high) / 2, low - 1e9, high + 1e9, np.full(columns, 1e300)])
    X = np.vstack([ends, rng.uniform(low, high, (20, columns)), rng.normal(size=(5, columns))])
    made = SplineFeatures(low, high, pieces=pieces, degree=degree, sparse_output=sparse)
    rows = made.fit_transform(X)
    rows = rows.toarray() if sparse else rows
    assert rows.shape == (len(X), columns * (pieces + degree))
    assert (rows >= 0).all()
    # Exactly: every column's splines add up to 1 before all are divided by the root.
    each = rows.reshape(len(X), columns, -1).sum(axis=2) * np.sqrt(columns)
    assert each == pytest.approx(1.0, abs=1e-11)
    squares = [sum(int(v * 2.0**200) ** 2 for v in row) for row in rows.tolist()]
    assert max(squares) <= 2**400
    if degree == 0 or pieces == 1:
        return
    assert np.linalg.norm(rows[0]) > 0.3  # and not much shorter than they need be


def test_hats_by_hand() -> None:
    made = SplineFeatures([0.0, -1.0], [4.0, 1.0], pieces=2).fit(np.zeros((1, 2)))
    rows = made.transform([[1.0, 1.0], [2.0, -0.5]]) * np.sqrt(2)
    expected = [[0.5, 0.5, 0, 0, 0, 1], [0, 1, 0, 0.5, 0.5, 0]]
    np.testing.assert_allclose(rows, expected, atol=1e-11)
    assert list(made.get_feature_names_out(["a", "b"])[:2]) == ["a_sp_0", "a_sp_1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"low": 1.0},
        {"low": np.nan},
        {"high": np.inf},
        {"low": [0.0, 0.0, 0.0]},
        {"low": "a"},
        {"pieces": 0},
        {"pieces": 2.5},
        {"degree": -1},
        {"low": 1e16, "high": 1e16 + 4, "pieces": 100},
        {"high": 1e-310},
        {"low": -8e307, "high": 8e307, "degree": 3},
    ],
)
def test_what_is_no_range_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError):
        SplineFeatures(**{"low": 0.0, **wrong}).fit(np.zeros((3, 2)))
