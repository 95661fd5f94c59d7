"""The collection of data sets: pieces that need no package of the benchmarks' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks import held_out


def _table() -> tuple[pd.DataFrame, Any]:
    table = pd.DataFrame(
        {"euros": [5.0, 1e4, np.nan, 7.0], "word": ["a", None, "b", "a"], "same": [3, 3, 3, 3]}
    )
    return table, pd.Series(["no", "yes", "no", "yes"])


def test_columns_stay_as_they_are_and_scaled_ones_are_in_0_1() -> None:
    task = held_out.Task("tiny", "binary", _table)
    X, y = task.table()
    assert X.tolist() == [[5.0, 1, 0, 3], [1e4, 0, 1, 3], [7.0, 1, 0, 3]]  # a hole is a word
    assert y.tolist() == [0, 1, 1]
    scaled = np.vstack(task.split()[:2])
    assert scaled.min() == 0
    assert scaled.max() == 1


def test_a_table_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LASTITERATE_HELD_OUT", str(tmp_path / "tables"))
    first = held_out.Task("tiny", "binary", _table).table()
    again = held_out.Task("tiny", "binary", lambda: pytest.fail("read again")).table()
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))


def test_nothing_is_in_both_halves() -> None:
    names = [task.name for task in (*held_out.SETTING, *held_out.JUDGED)]
    assert len(set(names)) == len(names)


def test_defaults_are_scored_on_raw_columns() -> None:
    task = next(task for task in held_out.SETTING if task.name == "breast cancer")
    X, _, y, _ = task.raw()
    assert X.max() > 100
    score = held_out.scored(task, lambda n, seed: held_out.ours(task, 4.0, n, seed), seeds=1)
    assert score >= max(np.mean(y), 1 - np.mean(y)) - 0.1
