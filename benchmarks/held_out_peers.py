"""Other private methods on the data sets of `held_out`, each tuned on the test score.

    PYTHONPATH=src:. python -m benchmarks.held_out_peers [--jobs=2] [PEER or NAME ...]

`objective` (perturbation, with the tight accounting of Redberg, Koskela and Wang 2023), `adassp`
(Wang 2018, its three Gaussian releases composed exactly), `boosting` (the DP explainable boosting
machines of interpret-core) and `diffprivlib` (pure epsilon; needs scikit-learn < 1.8, so an
environment of its own). DP-SGD is in `benchmarks/gpu/held_out_sgd.py`. All of them are told the
ends of the columns and of the target, which ours are not. For every data set and epsilon the best
of the settings is picked on the mean test score of three splits; what counts is its mean over
further runs with other noise.
"""

from __future__ import annotations

import itertools
import math
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import norm
from sklearn.metrics import r2_score

from benchmarks import held_out
from lastiterate.curves import gaussian

SPLITS, AGAIN = 3, 2
Array = np.ndarray


class Case:
    """One split: columns in [-1, 1] and a 1, targets of regressions in [-1, 1]."""

    def __init__(self, task: held_out.Task, seed: int) -> None:
        X, X_new, self.y, self.y_new = task.split(seed)
        self.kind, self.delta = task.kind, held_out.delta_for(len(X))
        self.X, self.X_new = (np.hstack([2 * x - 1, np.ones((len(x), 1))]) for x in (X, X_new))
        if task.kind == "numbers":
            low, high = task.table()[1].min(), task.table()[1].max()
            self.y, self.y_new = (2 * (y - low) / (high - low) - 1 for y in (self.y, self.y_new))

    def rows(self, share: float) -> tuple[Array, float]:
        """Rows shortened to a length, in units of it, and the length: a share of the usual one."""
        lengths = np.linalg.norm(self.X, axis=1)
        bound = share * math.sqrt(float((lengths**2).mean()))
        return self.X / np.maximum(lengths, bound)[:, None], bound

    def score(self, w: Array) -> float:
        """Of linear scores on the test records."""
        found = self.X_new @ w
        if self.kind == "numbers":
            return float(r2_score(self.y_new, found))
        return float(np.mean((found > 0) == (self.y_new > 0.5)))


def objective(case: Case, epsilon: float, setting: Any, seed: int) -> float | None:
    """Logistic loss of the sum, an L2 term and a random linear term, solved by Newton's method."""
    share, l2 = setting
    sigma = _objective_noise(epsilon, case.delta, l2)
    if case.kind != "binary" or sigma is None:
        return None
    X, bound = case.rows(share)
    sign = np.where(case.y > 0.5, 1.0, -1.0)
    linear = sigma * np.random.default_rng(seed).standard_normal(X.shape[1])
    w = np.zeros(X.shape[1])
    for _ in range(30):
        p = expit(-sign * (X @ w))
        gradient = X.T @ (-sign * p) + l2 * w + linear
        hessian = (X.T * (p * (1 - p))) @ X + l2 * np.eye(len(w))
        move = np.linalg.solve(hessian, gradient)
        w -= move / max(1.0, float(np.linalg.norm(move)) / 10)
        if np.linalg.norm(gradient) < 1e-6:
            break
    return case.score(w / bound)


def _objective_noise(epsilon: float, delta: float, l2: float) -> float | None:
    """The least noise by Theorem 3.1 there, for slopes at most 1 and curvature at most 1/4."""
    if l2 <= 0.25:
        return None
    left = epsilon + math.log1p(-0.25 / l2)

    def excess(log: float) -> float:
        mu = math.exp(-log)
        over = left - mu**2 / 2
        at = left if over >= 0 else mu**2 / 2
        stick = norm.cdf(mu / 2 - at / mu) - math.exp(at) * norm.cdf(-mu / 2 - at / mu)
        found = 2 * stick if over >= 0 else -math.expm1(over) + math.exp(over) * 2 * stick
        return math.log(max(found, 1e-300)) - math.log(delta)

    if left <= 0 or excess(10.0) > 0:
        return None
    return math.exp(brentq(excess, -2.0, 10.0, xtol=1e-4))


def adassp(case: Case, epsilon: float, setting: Any, seed: int) -> float | None:
    """Noisy second moments, and as much ridge as their noise asks for."""
    if case.kind != "numbers":
        return None
    share, ridge = setting
    X, bound = case.rows(share)
    d, rng = X.shape[1], np.random.default_rng(seed)
    sigma = math.sqrt(3) / gaussian.mu(epsilon, case.delta)
    upper = np.triu(sigma * rng.standard_normal((d, d)))
    moments = X.T @ X + upper + np.triu(upper, 1).T
    smallest = np.linalg.eigvalsh(X.T @ X)[0] + sigma * rng.standard_normal()
    enough = ridge * sigma * math.sqrt(d * math.log(2 * d**2 / 0.05))
    l2 = max(0.0, enough - max(0.0, smallest - sigma * math.sqrt(math.log(6 / case.delta))))
    cross = X.T @ case.y + sigma * rng.standard_normal(d)
    return case.score(np.linalg.lstsq(moments + l2 * np.eye(d), cross)[0] / bound)


def boosting(case: Case, epsilon: float, setting: Any, seed: int) -> float | None:
    """Private boosted machines; more than two classes are not offered."""
    from interpret import privacy

    if case.kind == "classes":
        return None
    rounds, rate, leaves, bins = setting
    told: dict[str, Any] = dict(
        epsilon=epsilon,
        delta=case.delta,
        random_state=seed,
        max_rounds=rounds,
        learning_rate=rate,
        max_leaves=leaves,
        max_bins=bins,
        n_jobs=1,
        feature_types=["continuous"] * (case.X.shape[1] - 1),
        privacy_bounds={i: (-1.0, 1.0) for i in range(case.X.shape[1] - 1)},
    )
    model: Any = privacy.DPExplainableBoostingClassifier
    if case.kind == "numbers":
        model = privacy.DPExplainableBoostingRegressor
        told |= {"privacy_target_min": -1.0, "privacy_target_max": 1.0}
    fitted = model(**told).fit(case.X[:, :-1], case.y)
    return float(fitted.score(case.X_new[:, :-1], case.y_new))


def diffprivlib(case: Case, epsilon: float, setting: Any, seed: int) -> float | None:
    """Its logistic regression, naive Bayes and random forests, or its linear regression."""
    from diffprivlib import models

    name, *more = setting
    X, X_new, ends = case.X[:, :-1], case.X_new[:, :-1], (-1.0, 1.0)
    told: dict[str, Any] = {"epsilon": epsilon, "random_state": seed}
    if (name == "LinearRegression") != (case.kind == "numbers"):
        return None
    if name == "LinearRegression":
        told |= {"bounds_X": ends, "bounds_y": ends}
    elif name == "LogisticRegression":
        told |= {"C": more[0], "data_norm": more[1] * math.sqrt(float((X**2).sum(1).mean()))}
    else:
        told["bounds"] = ends
        if name == "RandomForestClassifier":
            told |= {"n_estimators": more[0], "max_depth": more[1], "classes": np.unique(case.y)}
    return float(getattr(models, name)(**told).fit(X, case.y).score(X_new, case.y_new))


PEERS: dict[str, tuple[Callable[..., float | None], list[Any]]] = {
    "objective": (
        objective,
        list(itertools.product((0.5, 1.0), (0.3, 0.5, 1.0, 3.0, 10.0, 30.0, 100.0))),
    ),
    "adassp": (adassp, list(itertools.product((0.5, 1.0, 2.0), (0.03, 0.1, 0.3, 1.0, 3.0)))),
    "boosting": (
        boosting,
        [
            (rounds, rate, 3, bins)
            for rounds, rate in ((20, 0.05), (20, 0.2), (100, 0.05), (100, 0.2), (300, 0.05))
            for bins in (8, 32)
        ],
    ),
    "diffprivlib": (
        diffprivlib,
        [
            *itertools.product(("LogisticRegression",), (0.01, 0.1, 1.0, 10.0), (0.5, 1.0)),
            *itertools.product(("RandomForestClassifier",), (5, 20), (4, 8)),
            ("GaussianNB",),
            ("LinearRegression",),
        ],
    ),
}


def tuned(task: held_out.Task, name: str, epsilon: float) -> dict[str, Any] | None:
    """The score of the best setting, and the setting; none where the method is not offered."""
    warnings.simplefilter("ignore")
    peer, settings = PEERS[name]
    cases = [Case(task, seed) for seed in range(SPLITS)]

    def mean(setting: Any, seeds: range) -> float:
        scores = [
            peer(case, epsilon, setting, 100 * split + seed)
            for split, case in enumerate(cases)
            for seed in seeds
        ]
        return float(np.mean([-math.inf if score is None else score for score in scores]))

    tried = {setting: mean(setting, range(1)) for setting in settings}
    best = max(tried, key=lambda each: tried[each])
    if tried[best] == -math.inf:
        return None
    return {"score": round(mean(best, range(1, 1 + AGAIN)), 5), "setting": best}


def main(*wanted: str) -> None:
    """The named peers, or all, on the named data sets, or all of both halves; saved as it comes."""
    jobs = [int(word.removeprefix("--jobs=")) for word in wanted if word.startswith("--jobs=")]
    names = [word for word in wanted if word in PEERS] or list(PEERS)
    every = (*held_out.JUDGED, *held_out.SETTING)
    tasks = [task for task in every if task.name in wanted] or every
    work = list(itertools.product(tasks, names, held_out.EPSILONS))
    results = Parallel(n_jobs=(jobs or [1])[0], return_as="generator")(
        delayed(tuned)(*each) for each in work
    )
    for (task, name, epsilon), result in zip(work, results, strict=True):
        if result is not None:
            held_out.keep({task.name: {name: {f"{epsilon:g}": result}}})


if __name__ == "__main__":
    from benchmarks.held_out_peers import main as importable  # for the workers

    importable(*sys.argv[1:])
