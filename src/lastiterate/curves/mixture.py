"""An average of Gaussian curves: what a hidden random position of the record buys.

If a hidden label j is drawn with probability w_j and the release is mu_j-GDP given j, the release
is at most the average of the profiles: delta(epsilon) = sum_j w_j delta_j(epsilon), by joint
convexity. Deltas are averaged, never mu and never epsilon.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lastiterate._internal.formatting import printed
from lastiterate.curves import gaussian
from lastiterate.curves.base import Curve
from lastiterate.curves.bracket import safe_end
from lastiterate.curves.gaussian import ULP, check_nonnegative, check_order, check_probability
from lastiterate.errors import DescriptionError


def sum_up(terms: NDArray[np.float64]) -> float:
    """The sum of terms >= 0, rounded up.

    In about sqrt(n) blocks of sqrt(n) terms: each term goes through at most 2 sqrt(n) additions,
    whatever the order within a block, so the relative error is at most that many roundings.
    """
    side = math.isqrt(terms.size) + 1
    blocks = np.zeros(side * side)
    blocks[: terms.size] = terms
    return float(blocks.reshape(side, side).sum(axis=1).sum()) * (1 + 2 * side * ULP)


def _log_sum(logarithms: NDArray[np.float64]) -> float:
    """log(sum(exp(logarithms))), rounded up.

    Error of a term: its own rounding, its shift by the largest one, exp. Terms more than 745 below
    the largest vanish: less than 5e-324 each.
    """
    top = float(np.max(logarithms))
    if math.isinf(top):
        return top
    total = sum_up(np.exp(logarithms - top))
    return top + math.log(total) + ULP * (4 * abs(top) + 4000)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Mixture(Curve):
    """The average of the curves of ``mus``-GDP with ``weights`` (equal ones if not given).

    The weights must add up to one, or a little more where a law was rounded up. Weights that add
    up to less would lose mass, and with it privacy loss: within 1e-9 they are scaled up to one,
    beyond that refused; mass that was really left out belongs on ``mu = inf``. Equal mus are
    merged.

    >>> curve = Mixture([0.5, 1.0, 2.0])
    >>> curve.delta(1.0) >= sum(gaussian.delta(mu, 1.0) for mu in (0.5, 1.0, 2.0)) / 3
    True
    >>> Mixture([0.5, math.inf], weights=[0.75, 0.25]).delta(1e4) >= 0.25
    True
    """

    mus: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __init__(self, mus: ArrayLike, weights: ArrayLike | None = None) -> None:
        given = np.atleast_1d(np.asarray(mus, float))
        check_nonnegative("mus", given)
        if given.ndim != 1 or given.size == 0:
            raise DescriptionError("mus", mus, "a list of numbers", "one curve per position")
        values, places = np.unique(given, return_inverse=True)
        if weights is None:
            merged = np.bincount(places) / given.size
        else:
            shares = np.asarray(weights, float)
            if shares.shape != given.shape or not np.all(shares >= 0):
                raise DescriptionError("weights", weights, "one share >= 0 per mu", "they average")
            total = math.fsum(shares)
            if not -1e-9 <= total - 1 <= 0.01:  # upward rounding of a law may exceed one
                raise DescriptionError(
                    "total of weights", total, "1", "missing mass would hide privacy loss"
                )
            merged = np.bincount(places, weights=shares) / min(total, 1.0)
        kept = merged > 0
        shares = merged[kept] * (1 + (np.bincount(places)[kept] + 4) * ULP)  # one per addition
        for name, array in (("mus", values[kept]), ("weights", shares)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        least, most = printed(self.mus[0], 6), printed(self.mus[-1], 6)
        return f"Mixture({self.mus.size} Gaussians, mu {least} to {most})"

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Mixture)
            and np.array_equal(self.mus, other.mus)
            and np.array_equal(self.weights, other.weights)
        )

    def __hash__(self) -> int:
        return hash((self.mus.tobytes(), self.weights.tobytes()))

    @property
    def mu(self) -> float | None:
        """The one mu if all are equal, else None."""
        return float(self.mus[0]) if self.mus.size == 1 else None

    def log_delta(self, epsilon: float) -> float:
        """Logarithm of an upper bound on delta(epsilon)."""
        check_nonnegative("epsilon", epsilon)
        logs = gaussian.log_delta(self.mus, float(epsilon)) + np.log(self.weights)
        return min(_log_sum(logs), 0.0)

    def delta(self, epsilon: float) -> float:
        """sum_j w_j delta_j(epsilon), rounded up."""
        return float(gaussian.exp_up(self.log_delta(epsilon)))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 with delta(epsilon) <= ``delta``, rounded up; may be inf."""
        check_probability("delta", delta)
        if delta >= 1:
            return 0.0
        target = float(gaussian.log_down(delta))

        def excess(point: float) -> float:
            return self.log_delta(point) - target

        if self.log_delta(0.0) <= target:
            return 0.0
        # The worst component alone, with what the hopeless ones leave of delta, is not better.
        finite = self.mus[np.isfinite(self.mus)]
        left = delta - float(self.weights[np.isinf(self.mus)].sum())
        if delta == 0 or left <= 0 or finite.size == 0:
            return math.inf
        worst, growth = float(finite[-1]), 1e-9
        above = gaussian.epsilon(worst, left)
        while above < math.inf and excess(above) > 0:  # the average was rounded once more
            above, growth = above * (1 + growth) + 1e-3 * growth * worst, 4 * growth
        return math.inf if above == math.inf else safe_end(excess, safe=above, unsafe=0.0)

    def rdp(self, order: float) -> float:
        """log(sum_j w_j exp(order (order - 1) mu_j^2/2)) / (order - 1), rounded up; may be inf."""
        check_order(order)
        if self.mus[-1] == 0:
            return 0.0
        if math.isinf(order) or math.isinf(self.mus[-1]):
            return math.inf
        with np.errstate(over="ignore"):
            exponents = (order * self.mus) * ((order - 1) * self.mus) * (0.5 + 4 * ULP)
        exponents = np.maximum(exponents, 1e-300)  # from here on nothing underflows
        if exponents[-1] == math.inf:
            return math.inf
        if exponents[-1] < 1:  # subtract the one that the weights add up to
            total = sum_up(self.weights * np.expm1(exponents))
            logarithm = math.log1p(total * (1 + 8 * ULP))
        else:
            logarithm = _log_sum(exponents + np.log(self.weights))
        return math.nextafter(logarithm / (order - 1) * (1 + 8 * ULP), math.inf)

    def compose(self, other: gaussian.Gaussian | Mixture) -> Mixture:
        """Both releases together, when their hidden labels are drawn independently of each other.

        Runs that share the label (checkpoints of one shuffled run) must not be composed so: there
        mu_j^2 adds for each j, and the average is taken once.
        """
        theirs = other if isinstance(other, Mixture) else Mixture([other.mu])
        with np.errstate(over="ignore"):
            mus = np.hypot.outer(self.mus, theirs.mus) * (1 + 4 * ULP)
        mus = np.where(self.mus[:, None] == 0, theirs.mus, mus)
        mus = np.where(theirs.mus == 0, self.mus[:, None], mus)
        shares = np.multiply.outer(self.weights, theirs.weights)
        return Mixture(mus.ravel(), shares.ravel())
