"""From scores of models of both worlds to a result.

Scores are split: the first part fits the attack and chooses the threshold, the second is counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate.audit.choosing import best_threshold
from lastiterate.audit.methods import clopper_pearson, credible, gdp
from lastiterate.audit.result import AuditResult, Look, MethodName
from lastiterate.description.fields import integer, number, one_of
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]

CHOOSING = 0.2
"""Share of the models that choose the threshold."""

_METHODS = ("clopper-pearson", "gdp", "credible")


class Attack(Protocol):
    """Learns from features of models of both worlds to give one score."""

    def fit(self, inside: Array, outside: Array) -> Callable[[Array], Array]:
        """A function from features (models, k) to scores (models,)."""


def audit_scores(
    inside: ArrayLike,
    outside: ArrayLike,
    *,
    delta: float = 1e-5,
    confidence: float = 0.95,
    method: str = "clopper-pearson",
    attack: Attack | None = None,
    choosing: float = CHOOSING,
    searched: int = 1,
) -> AuditResult:
    """The result of an audit whose models are already scored.

    Args:
        inside, outside: scores of models trained with and without the record, one row per model:
            (models,), or (models, looks) when each was observed several times (epochs). With
            ``attack`` the last axis holds features: (models, features) or
            (models, looks, features). Models must be independent of each other.
        delta: of the epsilon that is bounded.
        confidence: joint, over both rates and all looks.
        method: "clopper-pearson"; "gdp" (under a Gaussian hypothesis); "credible" (Bayesian, no
            confidence bound).
        attack: turns features into a score; fitted on the choosing part.
        choosing: share of the models that fit the attack and choose the threshold.
        searched: how many audits the caller chooses the best of (attacks, deltas, records); the
            error is divided by it.

    >>> rng = np.random.default_rng(0)
    >>> found = audit_scores(rng.normal(2, 1, 5000), rng.normal(0, 1, 5000), method="gdp")
    >>> 1.8 < found.mu_lower < 2.0
    True
    """
    delta, confidence = _probabilities(delta, confidence)
    name: Any = one_of("method", method, _METHODS)
    share = number("choosing", choosing, above=0.0, at_most=0.9)
    searched = integer("searched", searched)
    features = attack is not None
    a, b = _scores("inside", inside, features), _scores("outside", outside, features)
    if a.shape[1:] != b.shape[1:]:
        found = f"scores of shapes {a.shape} and {b.shape}"
        allowed = "of the same shape apart from the number of models"
        why = "both worlds are observed in the same way"
        raise DescriptionError("inside, outside", found, allowed, why)
    if not features and all(np.ptp(np.append(a[:, k], b[:, k])) == 0 for k in range(a.shape[1])):
        found = f"{a[0, 0]:g} for every model of both worlds"
        allowed = "able to differ"
        why = "a constant score tells no worlds apart: check that score looks at the record"
        raise DescriptionError("scores", found, allowed, why)
    cut_a, cut_b = _cut("inside", len(a), share), _cut("outside", len(b), share)
    error = (1 - confidence) / (searched * a.shape[1])
    looks = []
    for k in range(a.shape[1]):
        i, o = a[:, k], b[:, k]
        if attack is not None:
            judge = attack.fit(i[:cut_a], o[:cut_b])
            i, o = np.asarray(judge(i), float), np.asarray(judge(o), float)
        looks.append(_look(i, o, cut_a, cut_b, delta, error, name))
    return AuditResult(name, delta, confidence, tuple(looks), len(a) + len(b), searched)


def _look(
    inside: Array,
    outside: Array,
    cut_a: int,
    cut_b: int,
    delta: float,
    error: float,
    method: MethodName,
) -> Look:
    """Choose on the first part, count on the second."""
    n, m = len(inside) - cut_a, len(outside) - cut_b
    goal = "mu" if method == "gdp" else "epsilon"
    test = best_threshold(inside[:cut_a], outside[:cut_b], (n, m), delta, error / 2, goal)
    misses = n - int(np.count_nonzero(test.says_inside(inside[cut_a:])))
    alarms = int(np.count_nonzero(test.says_inside(outside[cut_b:])))
    fnr = [float(f(misses, n, error / 2)) for f in _BOUNDS]
    fpr = [float(f(alarms, m, error / 2)) for f in _BOUNDS]
    mu = gdp.mu_below(fpr[1], fnr[1])
    if method == "gdp":
        epsilon = gdp.epsilon_of(mu, delta)
    elif method == "credible":
        epsilon = credible.epsilon_credible(alarms, m, misses, n, delta, error)
    else:
        epsilon = clopper_pearson.epsilon_below(fpr[1], fnr[1], delta)
    return Look(
        epsilon,
        mu,
        test.threshold,
        test.direction,
        alarms,
        m,
        misses,
        n,
        (fpr[0], fpr[1]),
        (fnr[0], fnr[1]),
    )


_BOUNDS = (clopper_pearson.rate_below, clopper_pearson.rate_above)


def _probabilities(delta: float, confidence: float) -> tuple[float, float]:
    delta = number("delta", delta, above=0, below=1)
    return delta, number("confidence", confidence, above=0, below=1)


def _scores(world: str, given: ArrayLike, features: bool) -> Array:
    """As (models, looks) or (models, looks, features), checked."""
    scores = np.asarray(given, float)
    if scores.size == 0 or scores.ndim == 0:
        why = "an error rate is measured in each world; without one of them nothing is refuted"
        raise DescriptionError(f"{world} models", 0, "at least 2", why)
    broken = int(np.count_nonzero(np.isnan(scores).reshape(len(scores), -1).any(axis=1)))
    if broken:
        found = f"NaN for {broken} of {len(scores)} {world} models"
        allowed = "numbers"
        why = "dropping such models would bias the rates; find out why training or scoring failed"
        raise DescriptionError("scores", found, allowed, why)
    most = 3 if features else 2
    if scores.ndim > most or scores.ndim < most - 1:
        shapes = "(models, [looks,] features)" if features else "(models,) or (models, looks)"
        raise DescriptionError(
            "scores", f"of shape {scores.shape}", shapes, "one row belongs to one model"
        )
    return scores if scores.ndim == most else scores[:, None]


def _cut(world: str, models: int, share: float) -> int:
    """How many models of a world choose; at least one chooses and one is counted."""
    if models < 2:
        raise DescriptionError(
            f"{world} models", models, "at least 2", "one part chooses the test, the other counts"
        )
    return min(max(1, round(share * models)), models - 1)
