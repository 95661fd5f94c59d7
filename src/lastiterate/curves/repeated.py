"""The same mechanism several times on the same data, each time with randomness of its own.

One Gaussian: mu^2 adds. An average over a hidden label: the labels are drawn afresh each time, so
averages are composed. Privacy-loss distributions are convolved, Renyi divergences add.
"""

from __future__ import annotations

import math
from fractions import Fraction

from lastiterate.curves.base import Curve
from lastiterate.curves.coupled_labels import CoupledLabels
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.renyi import Renyi
from lastiterate.curves.searched import Searched
from lastiterate.curves.with_failure import WithFailure
from lastiterate.errors import UnsupportedError

_MOST = 4096  # components of an average of Gaussians; beyond it the worst one is charged


def repeated(curve: Curve, times: int) -> Curve:
    """A bound for ``times`` independent runs of a mechanism that ``curve`` bounds.

    >>> repeated(Gaussian(0.5), 4).mu >= 1.0
    True
    """
    if times == 1:
        return curve
    if isinstance(curve, Gaussian):
        return Gaussian(_root_times(curve.mu, times))
    if isinstance(curve, CoupledLabels):  # masses are chosen for one run: the average composes
        return repeated(curve.average, times)
    if isinstance(curve, Mixture):
        return _repeated_mixture(curve, times)
    if isinstance(curve, LossDistribution):
        return curve.self_compose(times)
    if isinstance(curve, Renyi):
        once = curve.bound
        return Renyi(lambda order: times * once(order) * (1 + 1e-15), curve.orders)
    if isinstance(curve, WithFailure):
        # All of them hold except with probability at most times · failure.
        return WithFailure(repeated(curve.curve, times), times * curve.failure * (1 + 1e-15))
    if isinstance(curve, Searched):
        return Searched(lambda delta: repeated(curve.at(delta), times))
    raise UnsupportedError(
        f"A {type(curve).__name__} curve cannot be composed with itself: release one run, or "
        "account for a description that gives one Gaussian."
    )


def _repeated_mixture(curve: Mixture, times: int) -> Curve:
    joint = curve
    for _ in range(times - 1):
        if joint.mus.size * curve.mus.size > _MOST:
            return Gaussian(_root_times(float(curve.mus[-1]), times))
        joint = joint.compose(curve)
    return joint


def _root_times(mu: float, times: int) -> float:
    """The root of times · mu², not below it."""
    if mu == 0 or math.isinf(mu):
        return mu
    found = math.sqrt(times) * mu
    while Fraction(found) ** 2 < times * Fraction(mu) ** 2:
        found = math.nextafter(found, math.inf)
    return found
