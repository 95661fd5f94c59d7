"""Bounds on the gap of a single run, at a chosen probability of failure.

All are one-sided and hold in either direction (exchange the loss for one minus the loss); a
two-sided statement pays the failure twice. Every inner parameter is valid, so the minimisation
over them needs no care: a poor search gives a larger bound, never a false one.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

_UP = 1 + 1e-12
_HOPELESS = 50.0  # 1 - e^-epsilon is 1 there


def j_star(epsilon: float, delta: float, records: int, failure: float) -> float:
    """P(gap > value) <= failure with value = 2A + 1 - e^-E + d, minimised over epsilon2, delta2.

    E = epsilon + epsilon2, d = e^-E (delta + delta2)/failure,
    A = ln(1 + (e^epsilon2 - 1)/(2 delta2))/(n epsilon2).
    Proof: for an (E, D)-private output h and f(h) = E[Rhat | h] - R(h), the event H = {f > a} and
    the test 1_H loss give E[1_H Rhat] <= e^E E[1_H R] + D: a P(H) <= (1 - e^-E) P(H) + e^-E D.
    Apply it to (h, Rhat + Laplace noise truncated at A), which is (E, delta + delta2)-private and
    never computed: given it, Rhat is known up to 2A.
    Reference: after Jung, Ligett, Neel, Roth, Sharifi-Malvajerdi, Shenfeld (2020). Status: sound.

    >>> round(j_star(0.1, 1e-6, 10_000, 0.05), 3)
    0.152
    """
    if epsilon > _HOPELESS or failure <= 0.0:
        return math.inf
    log_extra = np.linspace(-18.0, 3.0, 400)
    for _ in range(3):
        value = _j_star_at(np.exp(log_extra), epsilon, delta, records, failure)
        best = int(np.argmin(value))
        ends = max(best - 1, 0), min(best + 1, log_extra.size - 1)
        log_extra = np.linspace(log_extra[ends[0]], log_extra[ends[1]], 400)
    return float(value[best]) * _UP


def _j_star_at(
    extra: NDArray[np.float64], epsilon: float, delta: float, records: int, failure: float
) -> NDArray[np.float64]:
    kept = np.exp(-(epsilon + extra))
    half = np.expm1(extra) / 2.0
    # delta2 where the derivative vanishes: delta2^2 + half delta2 = 2 half failure/(n extra kept)
    product = 2.0 * half * failure / (records * extra * kept)
    spare = 2.0 * product / (half + np.sqrt(half * half + 4.0 * product))
    width = np.log1p(half / spare) / (records * extra)
    value = 2.0 * width - np.expm1(-(epsilon + extra)) + kept * (delta + spare) / failure
    return np.asarray(value, dtype=np.float64)


def monitor(epsilon: float, delta: float, records: int, failure: float) -> float:
    """P(gap > value) <= failure with value = w + (m + f)/(1 - f), minimised over k, epsilon2, w.

    m = 1 - e^-(epsilon+epsilon2) (1 - k delta), f = (1 - failure)^k + (k-1) e^(-epsilon2 n w) < 1.
    Proof: if the gap exceeded value more often, run k fresh copies and pick one with weight
    e^(epsilon2 n gap); the pick is (epsilon + epsilon2, delta)-private, has a gap above value - w
    with probability over 1 - f, and contradicts He, Wang & Tao 2020, Theorem 2.
    Reference: He, Wang & Tao 2020, Theorem 1, repaired: any n, epsilon, delta. Status: sound.

    >>> round(monitor(0.1, 1e-6, 10_000, 0.05), 3)
    0.161
    """
    if epsilon > _HOPELESS or failure <= 0.0:
        return math.inf
    most = math.log(60.0 / -math.log1p(-failure)) if failure < 1.0 else 1.0
    spans = [(0.0, max(1.0, most)), (-16.0, 2.0), (0.0, 5.0)]
    answer = math.inf
    for _ in range(6):
        axes = [np.exp(np.linspace(*span, 25)) for span in spans]
        k = np.maximum(1.0, np.round(axes[0]))[:, None, None]
        extra, exponent = axes[1][None, :, None], axes[2][None, None, :]
        missed = (1.0 - failure) ** k + (k - 1.0) * np.exp(-exponent)
        kept = np.exp(-(epsilon + extra))
        mean = 1.0 - kept + kept * k * delta
        room = np.where(missed < 1.0, 1.0 - missed, np.nan)
        value = exponent / (records * extra) + (mean + missed) / room
        if np.all(np.isnan(value)):
            break
        place = np.unravel_index(int(np.nanargmin(value)), value.shape)
        answer = min(answer, float(value[place]))
        centres = [math.log(axis[i]) for axis, i in zip(axes, place, strict=True)]
        spans = [
            (max(0.0, c - w / 8) if i == 0 else c - w / 8, c + w / 8)
            for i, (c, w) in enumerate(zip(centres, (b - a for a, b in spans), strict=True))
        ]
    return answer * _UP


def gaussian(mu: float, records: int, failure: float) -> float:
    """P(gap > value) <= failure for a mu-GDP output, by the trade-off curve.

    value = gap(b) + (z1 + z2)/(n mu2) + c at failure = b + g1 + g2/c, where gap(b) is the largest
    of (x - Phi(Phi^-1(x) - mu'))/b over x <= b, mu'^2 = mu^2 + mu2^2, and z_i = -Phi^-1(g_i).
    Proof: as for ``j_star``, with E[1_H R] >= Phi(Phi^-1(E[1_H Rhat]) - mu') in place of the pair,
    and a virtual answer a = Rhat + N(0, 1/(n mu2)^2). Except with probability g1, Rhat <= a + z1 s
    (s = 1/(n mu2)). The posterior chance that the noise exceeds z2 s has mean g2, so it is at most
    c except with probability g2/c, and then E[Rhat | h, a] >= a - z2 s - c.
    Needs a genuine mu-GDP guarantee, not a pair. Status: sound.

    >>> round(gaussian(0.01, 10_000, 0.05), 3)
    0.083
    """
    if not mu < 40.0 or failure <= 0.0:
        return math.inf
    spans = [(-12.0, 1.0), (-14.0, -0.01), (-12.0, -0.01)]
    answer = math.inf
    for _ in range(7):
        axes = [np.exp(np.linspace(*span, 21)) for span in spans]
        extra, c = axes[0][:, None, None], axes[1][None, :, None]
        share = failure * axes[2][None, None, :]
        quantiles = -ndtri(share / 2.0) - ndtri(c * share / 2.0)
        value = posterior_gap(np.hypot(mu, extra), failure - share)
        value = value + quantiles / (records * extra) + c
        place = np.unravel_index(int(np.argmin(value)), value.shape)
        answer = min(answer, float(value[place]))
        centres = [math.log(axis[i]) for axis, i in zip(axes, place, strict=True)]
        spans = [
            (m - (b - a) / 6, min(m + (b - a) / 6, top))
            for m, (a, b), top in zip(centres, spans, (5.0, -1e-3, -1e-3), strict=True)
        ]
    return answer * _UP


def posterior_gap(mu: NDArray[np.float64], failure: NDArray[np.float64]) -> NDArray[np.float64]:
    """max over x <= failure of (x - Phi(Phi^-1(x) - mu))/failure; the peak is at Phi(mu/2)."""
    x = np.minimum(failure, ndtr(mu / 2.0))
    gap = x - ndtr(ndtri(x) - mu) + 1e-14 * x
    return np.asarray(gap / failure, dtype=np.float64)
