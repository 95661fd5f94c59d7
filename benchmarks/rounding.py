"""What everything that is rounded costs an estimator: its epsilon against that of real numbers.

Sums, scores, slopes and the grid, at sizes where it once cost up to a half. No data is needed: what
is charged depends on public numbers alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from lastiterate import account
from lastiterate.models import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSoftmaxRegression,
)
from lastiterate.train.summation import linear_arithmetic, score_error

GOAL = 1e-3
SIZES = (
    ("Adult", PrivateLogisticRegression, 32_561, 105, 2),
    ("Census-Income", PrivateLogisticRegression, 199_523, 400, 2),
    ("MNIST", PrivateSoftmaxRegression, 60_000, 785, 10),
    ("many records", PrivateLogisticRegression, 10**6, 101, 2),
    ("many records and features", PrivateLogisticRegression, 10**6, 1001, 2),
    ("sparse text", PrivateLogisticRegression, 20_000, 30_001, 2),
    ("ten million records", PrivateLogisticRegression, 10**7, 101, 2),
    ("many records", PrivateSoftmaxRegression, 10**6, 101, 10),
    ("many records", PrivateLinearSVC, 10**6, 101, 2),
    ("many records", PrivateRidge, 10**6, 101, 0),
    ("many records", PrivateHuberRegressor, 10**6, 101, 0),
)


def cost(kind: Any, records: int, columns: int, classes: int, epsilon: float) -> float:
    """How much larger epsilon is than in real numbers with the same noise, relatively."""
    delta = 0.1 / records
    model = kind(epsilon=epsilon, delta=delta)
    model.classes_, model.delta_ = np.arange(classes), delta
    objective = model._objective()
    size = columns * objective.outputs()
    chosen = model._choose(objective, records, dimension=size)
    engine = linear_arithmetic(chosen.training, objective, columns)
    scores = score_error(chosen.training, objective, columns, 1.0)
    model._pay(chosen, engine, np.zeros(size), model._calibrated, scores)
    paid, loss = model.training_, chosen.loss
    real = account(paid.replace(arithmetic="exact"), loss).epsilon(delta)
    return account(paid, loss).epsilon(delta) / real - 1


def rows() -> list[dict[str, Any]]:
    """Every size, at three epsilons."""
    found = []
    for name, kind, records, columns, classes in SIZES:
        for epsilon in (0.1, 1.0, 8.0):
            paid = cost(kind, records, columns, classes, epsilon)
            what = f"{name}: {kind.__name__}, {records:,} x {columns:,}, eps {epsilon:g}"
            row = {"name": what, "goal": f"<= {GOAL:g}", "measured": paid, "ok": paid <= GOAL}
            found.append(row)
    return found
