"""The exact privacy of one sample from a Bayesian linear-regression posterior.

The posteriors of neighbouring datasets are two Gaussians with different variances. In one dimension
the worst pair over the whole bounded domain is found by branch and bound, so that epsilon and RDP
are certified from above and attained from below. Heller and Fetaya's Lemma A.1 (corrected) stands
beside it; in d dimensions a sound bound goes through the dataset without the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from lastiterate._internal.formatting import printed
from lastiterate.curves.bracket import halved
from lastiterate.description.fields import number, one_of, warn_of_large_delta
from lastiterate.errors import AssumptionError, DescriptionError, TargetError
from lastiterate.published.heller_fetaya import lemma_a1_value
from lastiterate.sampling.gaussian_pair import UNIT, hockey_stick, renyi

Floats = NDArray[np.float64]
Adjacency = Literal["replace", "zero-out", "either"]

CELLS = 60_000
"""Cells that one branch-and-bound round may look at before it settles for a looser target."""
UP = 1 + 1e-12
"""Covers the rounding of the few products behind a distance or an excess variance."""


@dataclass(frozen=True)
class Cells:
    """Boxes of (z, a, a'): the others' sum of x^2, and the record's x^2 in the two datasets."""

    low: Floats  # shape (cells, 3)
    high: Floats

    def split(self) -> Cells:
        """Halve every cell along the side with the largest ratio of its ends."""
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(self.high > self.low, np.log(self.high / self.low), 0.0)
        side = np.argmax(length, axis=1)
        rows = np.arange(len(side))
        middle = (self.low[rows, side] + self.high[rows, side]) / 2
        low, high = self.low.copy(), self.high.copy()
        low[rows, side] = middle
        high[rows, side] = middle
        return Cells(np.concatenate((self.low, low)), np.concatenate((high, self.high)))

    def keep(self, chosen: NDArray[np.bool_]) -> Cells:
        return Cells(self.low[chosen], self.high[chosen])

    def middle(self) -> Cells:
        point = (self.low + self.high) / 2
        return Cells(point, point)


@dataclass(frozen=True)
class PosteriorPrivacy:
    """What one posterior sample reveals about one record.

    Arguments are those of `posterior_privacy`; ``tolerance`` says how closely the worst pair of
    datasets is searched.
    """

    records: int
    prior_precision: float
    noise_precision: float
    x_low: float
    x_high: float
    slope: float
    deviation: float
    adjacency: Adjacency = "replace"
    tolerance: float = 1e-4

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon certified at ``delta``, over the whole domain (rounded up)."""
        number("delta", delta, above=0, below=1)
        warn_of_large_delta(delta, self.records)
        witness = self._corners()
        tolerance = self.tolerance
        while True:
            attained = self._attained_epsilon(delta, witness)
            candidate = attained * (1 + tolerance) + tolerance * 1e-6
            outcome = self._certify(partial(self._delta, epsilon=candidate), delta)
            if outcome is None:
                return candidate
            if isinstance(outcome, Cells):  # an interior point is worse than every corner
                witness = Cells(
                    np.concatenate((witness.low, outcome.low)),
                    np.concatenate((witness.high, outcome.high)),
                )
            else:
                tolerance *= 4  # too many cells: settle for a looser, still certified value

    def delta(self, epsilon: float) -> float:
        """The smallest delta certified at ``epsilon`` >= 0 (rounded up)."""
        number("epsilon", epsilon, at_least=0, infinite=True)
        return min(1.0, self._supremum(lambda cells: self._delta(cells, epsilon)))

    def rdp(self, order: float) -> float:
        """The Renyi divergence of ``order`` > 1, certified over the domain (may be inf)."""
        _check_order(order)
        return self._supremum(lambda cells: self._renyi(cells, order))

    def attained(self, delta: float) -> float:
        """The epsilon of the worst pair of datasets at the corners of the domain (a lower bound).

        Corners were the worst in every search so far, but only :meth:`epsilon` is certified.
        """
        return self._attained_epsilon(delta, self._corners())

    def lemma(self, order: float) -> float:
        """Heller & Fetaya 2022, Lemma A.1, corrected: an upper bound on the Renyi divergence of
        ``order``.

        Statement: for order > 1 and n > 1 + 10 order x_high^2/x_low^2, one posterior sample is
        (order, value)-RDP, for a replaced and for an absent record.
        Assumptions: |y/x - slope| <= deviation <= slope (or y >= 0, which Heller & Fetaya assume).
        Status: corrected; the paper divides the 10 by noise_precision, which is false for
        noise_precision > 1. Proof of the corrected condition: with g = beta(a'-a)/P it gives
        (order-1) g <= 1/10, so v >= 0.9, and |mean difference| <= beta (2 x_high^2 beta z dev +
        (alpha x_high^2 + beta x_high^4)(slope + dev)) / (P P'); expanding the square and using
        P >= beta n x_low^2 for a present record and alpha beta x_low^2 <= alpha beta x_high^2 for
        an absent one gives the last three terms; the logarithms give the first two.
        """
        _check_order(order)
        ratio = self.x_high**2 / self.x_low**2
        needed = 1 + 10 * order * ratio
        if not self.records > needed:
            raise AssumptionError(
                f"Lemma A.1 needs more than 1 + 10 order x_high^2/x_low^2 = {needed:g} records, "
                f"and there are {self.records}: below that the divergence may be infinite. "
                "Use rdp(order), which needs no such condition, or a smaller order."
            )
        if self.deviation > self.slope:
            raise AssumptionError(
                f"Lemma A.1 needs deviation <= slope, not {self.deviation:g} > {self.slope:g}: "
                "slopes of both signs move the posterior further. Use rdp(order)."
            )
        domain = (
            *(self.records, self.prior_precision, self.noise_precision),
            *(self.x_low, self.x_high, self.slope, self.deviation),
        )
        return UP * lemma_a1_value(order, domain)

    # -- the pair of posteriors as a function of (z, a, a') ---------------------------------

    def _domain(self) -> Cells:
        """One box for a replaced record; two when it is absent from either dataset."""
        others = (self.records - 1) * self.x_low**2, (self.records - 1) * self.x_high**2
        one = self.x_low**2, self.x_high**2
        absent = 0.0, 0.0
        boxes = []
        if self.adjacency in ("replace", "either"):
            boxes.append((others, one, one))  # symmetric: covers both orders of the pair
        if self.adjacency in ("zero-out", "either"):
            boxes += [(others, one, absent), (others, absent, one)]
        sides = np.array(boxes, dtype=np.float64)
        return Cells(sides[:, :, 0], sides[:, :, 1])

    def _corners(self) -> Cells:
        domain = self._domain()
        pick = np.array(np.meshgrid([0, 1], [0, 1], [0, 1])).reshape(3, -1).T[:, None, :]
        points = np.where(pick == 0, domain.low, domain.high).reshape(-1, 3)
        return Cells(points, points)

    def _pair(self, cells: Cells) -> tuple[Floats, Floats, Floats]:
        """Upper distance, and least and greatest excess variance, of the pair over each cell.

        mean - mean' = beta N / (P P'), N affine in the three slopes involved, so the worst are
        at the ends: |N| = |slope| alpha |a - a'| + deviation (2 z beta max(a, a') + alpha (a + a')
        + 2 beta a a'). In units of the second standard deviation: beta |N| / (P sqrt(P')).
        variance/variance' - 1 = beta (a' - a) / P.
        """
        alpha, beta = self.prior_precision, self.noise_precision
        (z0, a0, b0), (z1, a1, b1) = cells.low.T, cells.high.T
        least, greatest = alpha + beta * (z0 + a0), alpha + beta * (z1 + a1)
        top = abs(self.slope) * alpha * np.maximum(np.maximum(a1 - b0, b1 - a0), 0.0)
        top = top + self.deviation * (
            2 * z1 * beta * np.maximum(a1, b1) + alpha * (a1 + b1) + 2 * beta * a1 * b1
        )
        distance = beta * top / (least * np.sqrt(alpha + beta * (z0 + b0)))
        up, down = beta * (b1 - a0), beta * (b0 - a1)
        excess_high = np.where(up >= 0, up / least, up / greatest)
        excess_low = np.where(down >= 0, down / greatest, down / least)
        wiggle = UP - 1
        # on wide cells the first bound may fall below -1; the ratio of precisions never does
        ratio = (alpha + beta * (z0 + b0)) / greatest
        return (
            distance * UP,
            np.maximum(excess_low - wiggle * np.abs(excess_low), ratio * (1 - 1e-15) - 1),
            excess_high + wiggle * np.abs(excess_high),
        )

    def _delta(self, cells: Cells, epsilon: float) -> Floats:
        """An upper bound on the hockey-stick divergence over each cell; exact on a point.

        N(d, s^2) <= k N(d, s1^2) pointwise for s0 <= s <= s1 and k = s1/s0, and the divergence
        grows with |d|, so sup <= k H_{epsilon - ln k}(d1, s1).
        """
        distance, low, high = self._pair(cells)
        log_k = 0.5 * np.log1p((high - low) / (1 + low)) * UP
        return np.exp(log_k) * hockey_stick(distance, high, epsilon - log_k)

    def _renyi(self, cells: Cells, order: float) -> Floats:
        """An upper bound on the Renyi divergence over each cell; exact on a point.

        The logarithms are convex-shaped in the variance with minimum at equality, so their
        maximum is at an end; the distance term is largest at the largest variance.
        """
        distance, low, high = self._pair(cells)
        logs = np.maximum(renyi(0.0, low, order), renyi(0.0, high, order))
        room = 1 - (order - 1) * high
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = 0.5 * order * distance**2 / (room - 8 * UNIT)
        return np.asarray(np.where(room > 16 * UNIT, logs + shift, np.inf) * UP)

    # -- search ------------------------------------------------------------------------------

    def _attained_epsilon(self, delta: float, points: Cells) -> float:
        def excess(epsilon: float) -> float:
            return float(np.max(self._delta(points, epsilon))) - delta

        if excess(0.0) <= 0:
            return 0.0
        top = 1.0
        while excess(top) > 0:
            top *= 2
            if top > 1e12:
                raise TargetError(
                    f"delta = {printed(delta)} needs an epsilon beyond 1e12 on this domain: "
                    "add records, or narrow the deviation"
                )
        return float(brentq(excess, 0.0, top, xtol=1e-13, rtol=1e-12))

    def _certify(
        self, bound: Callable[[Cells], Floats], target: float
    ) -> Cells | Literal["unsettled"] | None:
        """None if ``bound`` <= target is proved everywhere, else a counterexample or a shrug."""
        cells, seen = self._domain(), 0
        while len(cells.low):
            seen += len(cells.low)
            if seen > CELLS:
                return "unsettled"
            cells = cells.keep(bound(cells) > target)
            if len(cells.low):
                centre = cells.middle()
                worse = bound(centre) > target
                if worse.any():
                    return centre.keep(worse)
                cells = cells.split()
        return None

    def _supremum(self, bound: Callable[[Cells], Floats]) -> float:
        """The largest value over the domain, from above, within the tolerance when it settles."""
        attained = float(np.max(bound(self._corners())))
        if math.isinf(attained):
            return math.inf
        cells, seen, settled = self._domain(), 0, 0.0
        while True:
            values = bound(cells)
            seen += len(values)
            attained = max(attained, float(np.max(bound(cells.middle()))))
            goal = attained * (1 + self.tolerance) + 1e-300
            settled = max(settled, goal)
            open_ = values > goal
            if not open_.any():
                return settled
            if seen > CELLS:
                return max(settled, float(np.max(values)))
            cells = cells.keep(open_).split()


def posterior_privacy(
    records: int,
    prior_precision: float,
    noise_precision: float,
    x_low: float,
    x_high: float,
    slope: float,
    deviation: float,
    *,
    adjacency: Adjacency = "replace",
) -> PosteriorPrivacy:
    """The privacy of one sample of theta given n records of y = theta x + noise.

    Prior theta ~ N(0, 1/prior_precision), noise ~ N(0, 1/noise_precision); the domain is
    x_low <= x <= x_high and |y/x - slope| <= deviation.

    Args:
        records: n.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        x_low, x_high: every record has x between them.
        slope, deviation: every record has y/x within ``deviation`` of ``slope``.
        adjacency: "replace" one record, "zero-out" (absent from one of the datasets), or "either".

    >>> domain = (17_864_389, 2, 1, 0.9, 1.8, 17_864_389**1.01, 17_864_389**0.1)
    >>> p = posterior_privacy(*domain)
    >>> round(p.epsilon(1e-3), 4), round(posterior_privacy(*domain, adjacency="either")
    ...     .epsilon(1e-3), 4)
    (0.0104, 0.0113)
    """
    number("records", records, at_least=1)
    number("prior_precision", prior_precision, above=0)
    number("noise_precision", noise_precision, above=0)
    if not 0 < x_low <= x_high < math.inf:
        raise DescriptionError(
            "x_low, x_high", (x_low, x_high), "0 < x_low <= x_high", "x must be bounded away from 0"
        )
    number("slope", slope)
    number("deviation", deviation, at_least=0)
    one_of("adjacency", adjacency, ("replace", "zero-out", "either"))
    return PosteriorPrivacy(
        records, prior_precision, noise_precision, x_low, x_high, slope, deviation, adjacency
    )


def posterior_records(
    epsilon: float,
    delta: float,
    prior_precision: float,
    noise_precision: float,
    x_low: float,
    x_high: float,
    slope_exponent: float,
    deviation_exponent: float,
) -> int:
    """The n of Heller & Fetaya 2022, Claim D.28, corrected: with that many records a sample is
    (epsilon, delta)-DP.

    The domain grows with n: slope = n^slope_exponent, deviation = n^deviation_exponent.
    Corrected: Lemma A.1's condition n > 1 + 10 order x_high^2/x_low^2 without noise_precision in
    the denominator (also in terms four and five), and the exponent 1/(2 - g1 - g2) of term four.

    Args:
        epsilon, delta: the privacy that one sample shall have.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        x_low, x_high: every record has x between them.
        slope_exponent, deviation_exponent: how the domain grows with n.

    >>> posterior_records(0.5, 1e-3, 2, 1, 0.9, 1.8, 1.01, 0.1)
    347914
    """
    g1, g2 = deviation_exponent, slope_exponent
    number("deviation_exponent", g1, above=0, below=0.5)
    number("slope_exponent", g2, above=g1, below=1.5)
    number("epsilon", epsilon, above=0)
    number("delta", delta, above=0, below=1)
    alpha, beta, low, high = prior_precision, noise_precision, x_low**2, x_high**2
    order = 1 + 2 * math.log(1 / delta) / epsilon
    condition = 1 + 10 * order * high / low
    crowd = 1 + condition ** (g1 - g2)  # (c + n^g1) / c at the smallest n allowed
    mixed = 16 * order / epsilon * high**2 * (alpha + high * beta) / (0.9 * low**2)
    square = 4 * order / epsilon * (high * (alpha + high * beta)) ** 2 / (0.9 * low**3 * beta)
    n: float = max(
        math.nextafter(condition, math.inf),
        1 + high / low * 8 / epsilon,
        1 + order * high / low * (1 + 8 * (order - 1) / epsilon),
        (16 * order * beta * high**2 / (0.9 * epsilon * low)) ** (1 / (1 - 2 * g1)),
        (mixed * crowd) ** (1 / (2 - g1 - g2)),
        (square * crowd**2) ** (1 / (3 - 2 * g2)),
    )
    return math.ceil(n)


@dataclass(frozen=True)
class LinearPosteriorPrivacy:
    """One posterior sample of d-dimensional Bayesian linear regression.

    Arguments are those of `linear_posterior_privacy`.
    """

    records: int
    prior_precision: float
    noise_precision: float
    row_bound: float
    residual_bound: float
    slope_norm: float
    least_eigenvalue: float
    adjacency: Literal["replace", "zero-out"]

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon this bound proves at ``delta`` (rounded up)."""
        number("delta", delta, above=0, below=1)
        warn_of_large_delta(delta, self.records)
        if self.delta(0.0) <= delta:
            return 0.0
        top = 1.0
        while self.delta(top) > delta:
            top *= 2
            if top > 1e6:
                return math.inf
        return halved(lambda e: self.delta(e) <= delta, good=top, bad=0.0, tolerance=1e-6)

    def delta(self, epsilon: float) -> float:
        """The smallest delta this bound proves at ``epsilon`` (rounded up).

        Replacing is leaving out and putting in: P <= e^s P0 + d(s) and P0 <= e^t P' + d(t) give
        delta(s + t) <= d(s) + e^s d(t); the split is searched, and every split is valid.
        """
        if self.adjacency == "zero-out":
            return self._absent(epsilon)

        def split(share: float) -> float:
            s = share * epsilon
            log_rest = s + math.log(max(self._absent(epsilon - s), 1e-300))
            return self._absent(s) + math.exp(min(log_rest, 0.0))

        best = minimize_scalar(
            split, bounds=(0.2, 0.8), method="bounded", options={"maxiter": 10}
        ).fun
        return min(1.0, float(best) * UP)

    def rdp(self, order: float) -> float:
        """Renyi divergence; a replaced record by the weak triangle inequality (Mironov 2017)."""
        _check_order(order)
        if self.adjacency == "zero-out":
            return self._absent_renyi(order)
        first = self._absent_renyi(2 * order)
        second = self._absent_renyi(2 * order - 1)
        return UP * ((order - 0.5) / (order - 1) * first + second)

    def _leverages(self) -> tuple[Floats, Floats]:
        """Ends of cells covering every leverage s = |P0^(-1/2) x|^2 a row can have."""
        floor = self.prior_precision + self.noise_precision * self.least_eigenvalue
        # finest near the largest leverage, where the worst pair usually is
        edges = (1 - np.linspace(1.0, 0.0, 257) ** 2) * self.row_bound**2 / floor
        return edges[:-1], edges[1:]

    def _pairs(self) -> tuple[tuple[Floats, Floats, Floats], tuple[Floats, Floats, Floats]]:
        """(distance, least excess, greatest excess), record present first, then absent first."""
        beta = self.noise_precision
        floor = self.prior_precision + beta * self.least_eigenvalue
        low, high = self._leverages()
        memory = math.sqrt(beta * (self.records - 1)) * self.residual_bound
        memory += self.prior_precision * self.slope_norm / math.sqrt(floor)
        reach = UP * beta * np.sqrt(high) * (self.residual_bound + np.sqrt(high) * memory)
        # present: N(m, 1/(1+beta s)) against N(0, 1), |m| <= reach/(1+beta s)
        present = (
            reach / (1 + beta * low),
            -beta * high / (1 + beta * high),
            -beta * low / (1 + beta * low),
        )
        # absent: N(0, 1) against N(m, 1/(1+beta s)), in units of the second deviation
        absent = reach / np.sqrt(1 + beta * low), beta * low, beta * high
        return present, absent

    def _absent(self, epsilon: float) -> float:
        worst = 0.0
        for distance, low, high in self._pairs():
            log_k = 0.5 * UP * np.log1p((high - low) / (1 + low))
            values = np.exp(log_k) * hockey_stick(distance, high, epsilon - log_k)
            worst = max(worst, float(np.max(values)))
        return min(1.0, worst * UP)

    def _absent_renyi(self, order: float) -> float:
        worst = 0.0
        for distance, low, high in self._pairs():
            room = 1 - (order - 1) * high
            if np.any(room <= 16 * UNIT):
                return math.inf
            logs = np.maximum(renyi(0.0, low, order), renyi(0.0, high, order))
            worst = max(worst, float(np.max(logs + 0.5 * order * distance**2 / (room - 8 * UNIT))))
        return worst * UP


def linear_posterior_privacy(
    records: int,
    prior_precision: float,
    noise_precision: float,
    row_bound: float,
    residual_bound: float,
    *,
    slope_norm: float = 0.0,
    least_eigenvalue: float = 0.0,
    adjacency: Literal["replace", "zero-out"] = "replace",
) -> LinearPosteriorPrivacy:
    """An upper bound on the privacy of one sample from a d-dimensional linear-Gaussian posterior.

    Prior theta ~ N(0, I/prior_precision), y ~ N(theta.x, 1/noise_precision). Domain: |x| <=
    row_bound and |y - slope.x| <= residual_bound for a public slope with |slope| <= slope_norm
    (0: |y| <= residual_bound). ``least_eigenvalue``: a public lower bound on the least eigenvalue
    of X'X without any one record; 0 assumes nothing.

    Proof: let P0 be the precision without the record and v = P0^(-1/2) x. In coordinates where
    that posterior is N(0, I), the record moves it to N(beta v t/(1+beta|v|^2), (I+beta vv')^-1),
    which differs along v only: one dimension, whatever d. |t| <= residual_bound + |v| G with
    G = sqrt(beta (n-1)) residual_bound + alpha slope_norm / sqrt(alpha + beta least_eigenvalue),
    because |P0^(-1/2) sqrt(beta) X'e| <= |e|. A replaced record is left out, then put in.

    Args:
        records: n.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        row_bound: no record has a longer x.
        residual_bound: no record is further from the public slope.
        slope_norm: length of that slope.
        least_eigenvalue: of X'X without any one record, a public lower bound.
        adjacency: "replace" or "zero-out".

    >>> bound = linear_posterior_privacy(1000, 1.0, 0.01, 1.0, 1.0, least_eigenvalue=50.0)
    >>> round(bound.epsilon(1e-5), 2)
    0.27
    """
    number("records", records, at_least=1)
    number("prior_precision", prior_precision, above=0)
    number("noise_precision", noise_precision, above=0)
    number("row_bound", row_bound, above=0)
    number("residual_bound", residual_bound, at_least=0)
    number("slope_norm", slope_norm, at_least=0)
    number("least_eigenvalue", least_eigenvalue, at_least=0)
    one_of("adjacency", adjacency, ("replace", "zero-out"))
    return LinearPosteriorPrivacy(
        records,
        prior_precision,
        noise_precision,
        row_bound,
        residual_bound,
        slope_norm,
        least_eigenvalue,
        adjacency,
    )


def _check_order(order: float) -> None:
    number("order", order, above=1)
