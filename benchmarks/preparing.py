"""Where the rules of the estimators come from: the setting half of `held_out`, and nothing else.

Raw columns, up to 3,000 training records, one split. For every task and epsilon: columns as they
are (and the targets' true range), the default, ranges that are declared, and the default with one
constant changed. A rule is right if its constant would be chosen on the *other* data sets, for
whichever is left out: `by_leaving_out` says what is lost by a choice made so.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.held_out import SETTING, Task, available, delta_for
from lastiterate.models import PrivateLogisticRegression, PrivateRidge, PrivateSoftmaxRegression
from lastiterate.models.choose import BALL, CAP, L2, RESIDUAL

EPSILONS = (0.5, 1.0, 4.0)
MOST = 3_000  # training records: the machine that sets rules has two cores
DEFAULT = "default"
CHANGES: dict[str, dict[str, float]] = {
    "columns as they are": {},
    "declared ranges": {},
    "without whitening": {},
    "without bends": {},
    "learning time / 2": {"LEARNING": 1.25},
    "learning time x 2": {"LEARNING": 5.0},
    "learning time x 4": {"LEARNING": 10.0},
    "L2 / 10": {"L2": L2 / 10},
    "L2 x 10": {"L2": L2 * 10},
    "pull x 2/3": {"CAP": CAP * 2 / 3, "BALL": BALL * 2 / 3, "RESIDUAL": RESIDUAL * 2 / 3},
    "pull x 4/3": {"CAP": CAP * 4 / 3, "BALL": BALL * 4 / 3, "RESIDUAL": RESIDUAL * 4 / 3},
}
_HOMES = {"CAP": "choose", "BALL": "softmax", "RESIDUAL": "regressor"}


def fitted(task: Task, X: Any, y: Any, epsilon: float, change: str) -> Any:
    """The estimator of the task, with one thing changed, on these records."""
    kinds = {"numbers": PrivateRidge, "classes": PrivateSoftmaxRegression}
    kind: Any = kinds.get(task.kind, PrivateLogisticRegression)
    model = kind(epsilon, delta_for(len(y)), random_state=0)
    if change in ("columns as they are", "declared ranges"):
        low, high = X.min(axis=0), X.max(axis=0)
        model.set_params(feature_range=(low, np.where(high > low, high, low + 1)))
        if task.kind == "numbers":
            model.set_params(target_range=(float(y.min()), float(y.max())))
    if change == "without whitening":
        model.set_params(prepare="scale")
    if change == "without bends":
        model.set_params(curved=False)
    if change == "columns as they are":
        model.set_params(prepare=None, feature_range=None)
    patches = []
    for name, value in CHANGES.get(change, {}).items():
        home = _HOMES.get(name, "choose")
        patches.append(patch(f"lastiterate.models.{home}.{name}", value))
    for each in patches:
        each.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(X, y)
    finally:
        for each in patches:
            each.stop()


def scores() -> Iterator[tuple[str, float, dict[str, float]]]:
    """Task, epsilon, and the score of every change on its test records."""
    for task in SETTING:
        X, X_new, y, y_new = task.raw()
        X, y = X[:MOST], y[:MOST]
        for epsilon in EPSILONS:
            found = {
                change: float(fitted(task, X, y, epsilon, change).score(X_new, y_new))
                for change in (DEFAULT, *CHANGES)
            }
            yield task.name, epsilon, found


def by_leaving_out(table: list[tuple[str, float, dict[str, float]]]) -> float:
    """What the default gains, on average, over choosing on all data sets but the one at hand."""
    gains = []
    able = [change for change in (DEFAULT, *CHANGES) if change not in list(CHANGES)[:2]]
    for name, _, found in table:
        others = [each for other, _, each in table if other != name]
        best = max(able, key=lambda change: np.mean([each[change] for each in others]))
        gains.append(found[DEFAULT] - found[best])
    return float(np.mean(gains))


def rows() -> list[dict[str, Any]]:
    """What is measured, as a table."""
    if not available():
        print("preparing: pip install the packages that benchmarks/held_out.py names")
        return []
    return told_of(list(scores()))


def told_of(table: list[tuple[str, float, dict[str, float]]]) -> list[dict[str, Any]]:
    """Every task at every epsilon; then how each change does on average, and the choice."""
    told = []
    for name, epsilon, found in table:
        others = ", ".join(f"{change} {score:.3f}" for change, score in found.items())
        told.append(_row(f"{name}, epsilon {epsilon:g}", others, round(found[DEFAULT], 4)))
    for change in CHANGES:
        mean = float(np.mean([found[change] - found[DEFAULT] for _, _, found in table]))
        told.append(_row(f"{change}, minus the default", "mean of the above", round(mean, 4)))
    told.append(_row("chosen by leaving one out", "default minus it", by_leaving_out(table)))
    return told


def _row(name: str, goal: str, measured: float) -> dict[str, Any]:
    return {"name": name, "goal": goal, "measured": measured, "ok": None}
