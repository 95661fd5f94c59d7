"""The linear classifier of Heller & Fetaya 2022, section V, which reads features of a model.

It is fitted on the choosing part of the models; the audit counts its errors on the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearClassifier:
    """Logistic regression on standardised features; its margin is the score.

    >>> rng = np.random.default_rng(0)
    >>> judge = LinearClassifier().fit(rng.normal(1, 1, (50, 4)), rng.normal(0, 1, (50, 4)))
    >>> bool(judge(np.ones((1, 4))) > judge(np.zeros((1, 4))))
    True
    """

    strength: float = 1.0  # of the data against the penalty |weights|²/2

    def fit(self, inside: Array, outside: Array) -> Callable[[Array], Array]:
        """Learn from the features of models of both worlds."""
        both = np.concatenate([inside, outside])
        mean, spread = both.mean(axis=0), both.std(axis=0)
        spread = np.where(spread > 0, spread, 1.0)
        X = (both - mean) / spread
        signs = np.repeat([1.0, -1.0], [len(inside), len(outside)])

        def objective(w: Array) -> tuple[float, Array]:
            margins = signs * (X @ w[:-1] + w[-1])
            pull = -self.strength * signs * expit(-margins)
            value = self.strength * np.logaddexp(0, -margins).sum() + w[:-1] @ w[:-1] / 2
            return value, np.append(X.T @ pull + w[:-1], pull.sum())

        fitted = minimize(objective, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B").x
        weights, offset = fitted[:-1], fitted[-1]

        def judge(features: Array) -> Array:
            return np.asarray((features - mean) / spread @ weights + offset)

        return judge
