"""How much cyclic SGLD leaks between its first steps and convergence.

Heller & Fetaya's counterexample (2022, section IV): Bayesian linear regression on n equal records,
one of which may be half as long. SGLD with batches of one record has, at the end of every epoch, a
Gaussian law on the one dataset and a mixture of n Gaussians on the other, both in closed form.
The posterior may be as private as desired while these laws are arbitrarily far apart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp, ndtr, ndtri
from scipy.stats import binom

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.description.fields import number

if TYPE_CHECKING:
    pass

Floats = NDArray[np.float64]

SUMMED = 4096
"""Up to this many records the mixture is summed term by term; beyond, by quadrature."""
CHUNK = 1 << 18
STEEP = 4.0
"""Quadrature is used while the components change by at most a factor e^STEEP over an epoch."""
ROUNDING = 2e-13
"""Relative error of the closed forms in floating point; subtracted from every lower bound."""


@dataclass(frozen=True)
class EpochLaws:
    """The two laws at the ends of epochs 1..k of cyclic SGLD with step size e/A^2.

    On equal records (x_high, slope * x_high):  N(mean, deviation^2).
    When the record used r-th has x^2 = ratio * x_high^2 instead: N(mean - gap_r, variance_r),
    gap_r = common_gap + order_gap * s_r,  variance_r = common_variance + order_variance * s_r^2,
    s_r = lam^(n-r), r uniform in 1..n.  A = prior_precision + n x_high^2 noise_precision,
    lam = 1 - e/(2A). Every quantity is a sum of nonnegative terms.
    """

    records: int
    log_lam: float
    mean: Floats
    deviation: Floats
    common_gap: Floats
    order_gap: Floats
    common_variance: Floats
    order_variance: Floats

    def positions(self) -> tuple[Floats, Floats]:
        """Nodes s and weights so that sum(weights * f(s)) is the average of f(s_r) over r.

        Few records: all of them. Many: 64 Gauss-Legendre nodes in u = (n-r)/n, and the values and
        slopes at both ends, which turn the integral into the sum (Euler-Maclaurin to O(1/n^4)).
        """
        n = self.records
        if n <= SUMMED or -n * self.log_lam > STEEP:
            return np.exp(self.log_lam * np.arange(n, dtype=np.float64)), np.full(n, 1.0 / n)
        nodes, weights = np.polynomial.legendre.leggauss(64)
        h = 1.0 / n
        u = np.concatenate(((nodes + 1) / 2, [0.0, 1.0, h, -h, 1 - h, 1 + h]))
        w = np.concatenate((weights / 2, h / 24 * np.array([12.0, -12.0, -1.0, 1.0, -1.0, 1.0])))
        return np.exp(self.log_lam * n * u), w

    def standardised(self, threshold: Floats, position: Floats) -> Floats:
        """(t - mean_r) / deviation_r for t = mean + threshold * deviation; last axis: position."""
        shift = (threshold * self._column(self.deviation, threshold))[..., None]
        gap = self._column(self.common_gap, threshold)[..., None]
        order = self._column(self.order_gap, threshold)[..., None]
        variance = (
            self._column(self.common_variance, threshold)[..., None]
            + self._column(self.order_variance, threshold)[..., None] * position**2
        )
        return np.asarray((shift + gap + order * position) / np.sqrt(variance))

    def log_tail(self, threshold: Floats) -> Floats:
        """ln P(theta' > mean + threshold * deviation) under the mixture; first axis: epoch."""
        return self._average(threshold, lambda z: np.asarray(log_ndtr(-z)))

    def log_chernoff(self) -> Floats:
        """ln of Heller & Fetaya 2022, Lemma IV.5's bound on P(theta' > mean): the average of
        exp(-gap^2/(2 var)).
        """
        return self._average(np.zeros(self.mean.shape), lambda z: np.asarray(-0.5 * z * z))

    def log_worst_tail(self, threshold: Floats) -> Floats:
        """An upper bound on ``log_tail`` from one component: least gap, worst variance."""
        last = np.exp(self.log_lam * (self.records - 1))
        numerator = (
            threshold * self._column(self.deviation, threshold)
            + self._column(self.common_gap, threshold)
            + self._column(self.order_gap, threshold) * last
        )
        spread = np.where(numerator >= 0, 1.0, last**2)
        variance = (
            self._column(self.common_variance, threshold)
            + self._column(self.order_variance, threshold) * spread
        )
        return np.asarray(log_ndtr(-numerator / np.sqrt(variance)))

    def _average(self, threshold: Floats, log_value: Callable[[Floats], Floats]) -> Floats:
        position, weight = self.positions()
        size = max(1, CHUNK // max(1, threshold.size))
        parts = [
            logsumexp(
                log_value(self.standardised(threshold, position[i : i + size])),
                b=weight[i : i + size],
                axis=-1,
            )
            for i in range(0, position.size, size)
        ]
        return np.asarray(logsumexp(np.stack(parts), axis=0))

    @staticmethod
    def _column(values: Floats, like: Floats) -> Floats:
        return values.reshape(values.shape + (1,) * (like.ndim - 1))


def epoch_laws(
    records: int,
    prior_precision: float,
    noise_precision: float,
    x_high: float,
    slope: float,
    epochs: int,
    step_scale: float = 2.0,
    ratio: float = 0.25,
) -> EpochLaws:
    """The closed forms, which replace Heller & Fetaya 2022, Lemmas A.2-A.4 (whose noises must be
    fresh each epoch).

    Proof: a step multiplies the deviation from the fixed point M = slope n x^2 beta / A by lam and
    the odd step by lam' > lam, after which the gap gains (lam' - lam)(slope - mean); summing the
    geometric series over epochs gives the expressions below. Valid for 0 < step_scale < 2A.
    """
    n, k = float(records), np.arange(1, epochs + 1, dtype=np.float64)
    pull = n * x_high**2 * noise_precision
    A = prior_precision + pull
    half = step_scale / (2 * A)
    log_lam = float(np.log1p(-half))
    wider = half * (1 - ratio) * pull / A  # lam' - lam
    relief = float(np.log1p(wider / (1 - half)))  # ln(lam' / lam)
    log_epoch = n * log_lam + relief  # ln c3: an epoch of the other dataset
    stationary = 1 / (A - step_scale / 4)
    fixed = slope * (pull / A)

    kept = np.exp(k * n * log_lam)
    kept_other = np.exp(2 * k * log_epoch)
    fresh = -np.expm1(2 * k * n * log_lam)
    fresh_other = -np.expm1(2 * k * log_epoch)
    return EpochLaws(
        records=records,
        log_lam=log_lam,
        mean=-fixed * np.expm1(k * n * log_lam),
        deviation=np.sqrt(kept**2 / prior_precision + stationary * fresh),
        common_gap=fixed * kept * np.expm1(k * relief),
        order_gap=wider
        * (slope * prior_precision / A)
        * (np.expm1(k * log_epoch) / np.expm1(log_epoch)),
        common_variance=kept_other / prior_precision + stationary * fresh_other,
        order_variance=stationary
        * fresh_other
        * (wider * (2 * (1 - half) + wider))
        / -np.expm1(2 * log_epoch),
    )


@dataclass(frozen=True)
class InterimPrivacy:
    """Lower bounds on the epsilon of cyclic SGLD, one entry per epoch.

    ``chernoff``: Heller & Fetaya's own bound (threshold at the mean, Chernoff on each component).
    ``exact``: best threshold, exact mixture. ``certificate``: best threshold, one worst component,
    O(1) arithmetic per threshold. Each says: after this epoch, releasing the iterate is not
    (epsilon, delta)-differentially private for any smaller epsilon.

    Attributes:
        epoch: numbers from 1.
        delta: of every epsilon.
        chernoff, exact, certificate: lower bounds on epsilon, by epoch.
        laws: what they were computed from.
    """

    epoch: NDArray[np.int64]
    delta: float
    chernoff: Floats
    exact: Floats
    certificate: Floats
    laws: EpochLaws

    @property
    def peak(self) -> int:
        """The epoch that leaks most."""
        return int(self.epoch[int(np.argmax(self.exact))])

    def __str__(self) -> str:
        at = f"delta = {printed(self.delta)}"
        lines = [f"SGLD between start and convergence, {at} (lower bounds)"]
        lines.append(f"{'epoch':>6} {'chernoff':>12} {'exact':>12} {'certificate':>12}")
        lines += [
            f"{e:>6d} {printed_down(a):>12} {printed_down(b):>12} {printed_down(c):>12}"
            for e, a, b, c in zip(
                self.epoch, self.chernoff, self.exact, self.certificate, strict=True
            )
        ]
        return "\n".join(lines)


def interim_privacy(
    records: int,
    prior_precision: float,
    noise_precision: float,
    x_high: float,
    slope: float,
    epochs: int,
    delta: float,
    step_scale: float = 2.0,
    *,
    ratio: float = 0.25,
) -> InterimPrivacy:
    """Lower bounds on epsilon of cyclic SGLD at the end of every epoch (Heller & Fetaya 2022,
    section IV).

    Statement: for any threshold t, (epsilon, delta) holds only if P(theta > t) <= e^epsilon
    P(theta' > t) + delta, so epsilon >= ln(P(theta > t) - delta) - ln P(theta' > t).
    Assumptions: none beyond the model (theta ~ N(0, 1/prior_precision), y ~ N(theta x,
    1/noise_precision)), one record per step in a hidden fixed order, step size step_scale / A^2.
    Reference: Heller & Fetaya 2022, Theorem IV.1 and Figure 1. Status: sound; the closed forms
    replace A.2-A.9, and Figure 1 is not what its caption's parameters give.

    Args:
        records: n.
        prior_precision: of the Gaussian prior on theta.
        noise_precision: of y given x.
        x_high: length of every record.
        slope: y/x of every record.
        epochs: how many.
        delta: the probability with which epsilon may fail.
        step_scale: the step size times A^2.
        ratio: x^2 of the record that differs, over x_high^2.

    >>> result = interim_privacy(17_864_389, 2, 1, 1.8, 17_864_389**1.145578, 30, 1e-3)
    >>> result.peak, round(float(result.chernoff[24]), 1), round(float(result.exact[24]), 1)
    (25, 3686.6, 3951.7)
    """
    number("records", records, at_least=1)
    number("epochs", epochs, at_least=1)
    number("prior_precision", prior_precision, above=0)
    number("noise_precision", noise_precision, above=0)
    number("x_high", x_high, above=0)
    number("slope", slope, above=0)
    number("delta", delta, at_least=0, below=1)
    number("ratio", ratio, at_least=0, below=1)
    top = 2 * (prior_precision + records * x_high**2 * noise_precision)
    number("step_scale", step_scale, above=0, below=top)
    laws = epoch_laws(
        records, prior_precision, noise_precision, x_high, slope, epochs, step_scale, ratio
    )
    with np.errstate(divide="ignore"):
        at_mean = np.log(max(0.5 - delta, 0.0))
    return InterimPrivacy(
        epoch=np.arange(1, epochs + 1),
        delta=delta,
        chernoff=_down(at_mean - laws.log_chernoff()),
        exact=_down(_best_threshold(laws, laws.log_tail, delta)),
        certificate=_down(_best_threshold(laws, laws.log_worst_tail, delta)),
        laws=laws,
    )


def interim_resampled(
    problem: tuple[int, float, float, float, float],
    epochs: int,
    delta: float,
    batch: int = 1,
    step_scale: float = 2.0,
    ratio: float = 0.25,
) -> Floats:
    """Lower bounds on epsilon of SGLD whose batches are drawn with replacement, by epoch.

    Statement: every step draws ``batch`` records, each uniform; an epoch is n/batch steps. Let w =
    lam' - lam, T the steps, sigma the deviation on equal records. If the odd record is drawn N
    times, the mean is lower by at least N g, g = (w/batch) slope lam^(T-1), and the deviation
    between sigma and sigma (1 + w/(batch lam))^N. So with t = mean - z sigma

        epsilon >= ln(E Phi((N g/sigma - z)/(1 + w/(batch lam))^N) - delta) - ln Phi(-z),

    N ~ Binomial(batch T, 1/n), where a negative numerator is not divided.
    Proof: an odd draw changes the update theta -> lam theta + rho by (w/batch)(theta - slope). As
    0 <= mean <= slope its gap is at least (w/batch)(slope - mean) with the mean of equal records,
    lam^(T-j) of it is left after T - j steps, and (slope - mean after j - 1 steps) lam^(T-j) >=
    slope lam^(T-1). Every factor of the variance lies between lam^2 and lam^2 (1 + m w/(batch
    lam))^2 with m draws at that step. The order of the data sets is the other one than in
    `interim_privacy`: an unseen record, probability (1 - 1/n)^(batch T), leaves no trace.
    Status: sound; extends Heller & Fetaya 2022, section IV, whose analysis is of cyclic batches.

    Args:
        problem: n, prior precision, noise precision, x_high and slope, as in `interim_privacy`.
        epochs: how many.
        delta: the probability with which epsilon may fail.
        batch: records per step.
        step_scale: the step size times A^2.
        ratio: x^2 of the record that differs, over x_high^2.

    >>> n = 17_864_389
    >>> bound = interim_resampled((n, 2, 1, 1.8, n**1.145578), epochs=26, delta=1e-3)
    >>> bool(bound[24] > 100)
    True
    """
    records, prior, noise, x_high, slope = problem
    laws = epoch_laws(records, prior, noise, x_high, slope, epochs, step_scale, ratio)
    pull = records * x_high**2 * noise
    lam = float(np.exp(laws.log_lam))
    gain = step_scale / 2 * (1 - ratio) * pull / (prior + pull) ** 2 / batch  # w/batch
    steps = np.arange(1, epochs + 1) * (records // batch)
    kept = np.exp(laws.log_lam * steps)
    stationary = 1 / (prior + pull - step_scale / 4)
    sigma = np.sqrt(kept**2 / prior - stationary * np.expm1(2 * laws.log_lam * steps))
    count = np.arange(200)
    bounds = []
    for k in range(epochs):
        size = gain * slope * kept[k] / lam / sigma[k]
        z = (size * np.arange(1, 60)[:, None] - np.linspace(-2.0, 6.0, 17)).ravel()
        ahead = size * count - z[:, None]
        ahead = np.where(ahead > 0, ahead / (1 + gain / lam) ** count, ahead)
        mass = ndtr(ahead) @ binom.pmf(count, batch * steps[k], 1 / records) - delta
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.where(mass > 0, np.log(np.maximum(mass, 0)), -np.inf) - log_ndtr(-z)
        bounds.append(float(np.max(found)))
    return _down(np.array(bounds))


def _best_threshold(laws: EpochLaws, log_tail: Callable[[Floats], Floats], delta: float) -> Floats:
    """max over z of ln(Q(z) - delta) - log_tail(z), every epoch at once.

    Any z is valid, so the search may be heuristic: a coarse grid, then three zooms.
    """
    end = min(float(-ndtri(delta)) if delta > 0 else 37.0, 37.0)
    start = min(-6.0, end - 6.0)
    z = np.broadcast_to(np.linspace(start, end, 26)[:-1], (laws.mean.size, 25))
    best = np.full(laws.mean.size, -np.inf)
    width = (end - start) / 25
    for _ in range(4):
        with np.errstate(divide="ignore", invalid="ignore"):
            mass = ndtr(-z) - delta
            value = np.where(mass > 0, np.log(np.maximum(mass, 0)), -np.inf) - log_tail(z)
        where = np.argmax(value, axis=1)
        rows = np.arange(value.shape[0])
        best = np.maximum(best, value[rows, where])
        centre = z[rows, where]
        z = np.minimum(centre[:, None] + width * np.linspace(-1, 1, 13), end)
        width /= 6
    return best


def _down(values: Floats) -> Floats:
    return np.maximum(values - ROUNDING * (1 + np.abs(values)), 0.0)
