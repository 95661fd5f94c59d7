"""Our curves as dp-accounting's privacy-loss distributions, and nothing else.

People compose a training run with other mechanisms (histograms, releases of statistics) that
dp-accounting describes. A curve is handed over as the pessimistic distribution whose hockey-stick
divergences connect the dots of ours. dp-accounting is the extra ``interchange``: our own curves do
not need it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.curves.base import Curve
from lastiterate.curves.searched import Searched
from lastiterate.errors import DescriptionError, MissingExtraError, UnsupportedError

_KNOTS = 1_000  # where a curve is asked, at most: they add 2e-5 to the variance of the loss
_TAIL = 1e-18  # the delta where the knots end; what is beyond counts as an infinite loss
_LONGEST = 1 << 24  # losses that one distribution may tell apart
_SEARCHED = (1e-3, 1e-6, 1e-10)  # deltas whose proofs stand for a curve that searches for each
_UNITS = 2.0**-50  # four units of rounding


def to_dp_accounting(*curves: Curve, interval: float = 1e-4) -> Any:
    """A ``dp_accounting`` PrivacyLossDistribution at least as pessimistic as these curves.

    Several curves bound the same mechanism: the smallest value holds at every epsilon. Losses are
    multiples of ``interval``, which has to be that of the distributions it is composed with (1e-4
    is dp-accounting's own). Its two orders are alike, as our curves hold in both.

    Why it is never below: the true divergence is a convex function of e^epsilon. So it lies below
    the largest convex function under the values at the knots, and that is the divergence of a
    distribution on the knots (Doroshenko et al. 2022); its masses are rounded up.

    >>> from lastiterate.curves.gaussian import Gaussian
    >>> handed_over = to_dp_accounting(Gaussian(1.0))
    >>> two = handed_over.compose(handed_over)
    >>> 0 <= two.get_epsilon_for_delta(1e-5) - Gaussian(2**0.5).epsilon(1e-5) < 0.01
    True
    """
    try:
        from dp_accounting.pld import pld_pmf, privacy_loss_distribution
    except ModuleNotFoundError as missing:
        what = "Handing a guarantee over to dp-accounting"
        raise MissingExtraError(what, missing.name, "interchange") from None

    if not 0.0 < interval < math.inf:
        raise DescriptionError("interval", interval, "above 0", "losses are told apart by it")
    members = _members(curves)
    reach = min(member.epsilon(_TAIL) for member in members)
    if math.isinf(reach):  # something always goes wrong with a probability that no loss explains
        floor = min(member.delta(_LONGEST / 2 * interval) for member in members)
        reach = min(member.epsilon(min(floor * (1 + 1e-3), 1.0)) for member in members)
    if 2 * reach / interval > _LONGEST:
        raise UnsupportedError(
            f"Losses up to {reach:.3g} in steps of {interval:g} are more than {_LONGEST} values, "
            f"too many to add up. Give interval={4 * reach / _LONGEST:.1g} or more, here and to "
            "what it is composed with."
        )
    stride = max(math.ceil(reach / interval / _KNOTS), 1)
    top = stride * (math.ceil(reach / (interval * stride)) + 1)
    ahead = np.arange(0, top + 1, stride)
    positive = np.array([min(m.delta(float(interval * k)) for m in members) for k in ahead])
    # δ at −ε follows from the other order: 1 − e^(−ε)(1 − δ(ε)).
    behind = 1 - np.exp(-interval * ahead[:0:-1]) * (1 - positive[:0:-1]) + _UNITS
    deltas = np.minimum.accumulate(np.minimum(np.concatenate([behind, positive]), 1.0))
    places, masses = _masses(np.concatenate([-ahead[:0:-1], ahead]), deltas, interval)
    dense = np.zeros(2 * top + 1)
    dense[places + top] = masses
    return privacy_loss_distribution.PrivacyLossDistribution(
        pld_pmf.DensePLDPmf(interval, -top, dense, float(deltas[-1]), True)
    )


def _members(curves: tuple[Curve, ...]) -> list[Curve]:
    """The best curve at each of a few deltas, quick to ask: what a search finds there holds at all.

    >>> from lastiterate.curves.gaussian import Gaussian
    >>> [member.mu for member in _members((Gaussian(2.0), Gaussian(1.0), Gaussian(3.0)))]
    [1.0]
    """
    best: list[Curve] = []
    for delta in _SEARCHED:
        found = [curve.at(delta) if isinstance(curve, Searched) else curve for curve in curves]
        best.append(min(found, key=lambda member: member.epsilon(delta)))
    return list({id(member): member for member in best}.values())


def _masses(knots: Any, deltas: Any, interval: float) -> tuple[Any, Any]:
    """Where the largest convex function below the values bends, and the masses it has there.

    With v = e^epsilon the mass at a knot is v times the change of slope, so that a knot without a
    positive one lies on or above the line of its neighbours, and goes.
    """
    epsilons = [-math.inf, *(interval * knots).tolist()]
    values = [1.0, *deltas.tolist()]

    def sides(a: int, b: int, c: int) -> tuple[float, float]:
        left = (values[b] - values[a]) / math.expm1(epsilons[a] - epsilons[b])
        return left, (values[c] - values[b]) / math.expm1(epsilons[c] - epsilons[b])

    kept = [0]
    for k in range(1, len(values)):
        while len(kept) > 1 and sum(sides(kept[-2], kept[-1], k)) <= 0.0:
            kept.pop()
        kept.append(k)
    both = [sides(a, b, c) for a, b, c in zip(kept, kept[1:], kept[2:], strict=False)]
    last = (values[kept[-1]] - values[kept[-2]]) / math.expm1(
        epsilons[kept[-2]] - epsilons[kept[-1]]
    )
    both.append((last, 0.0))
    masses = [max(left + right, 0.0) + _UNITS * (left - right) for left, right in both]
    return knots[np.array(kept[1:]) - 1], np.array(masses)
