"""Two worlds whose hidden labels are coupled: a sum of Gaussian profiles at shifted epsilons.

Both worlds draw a hidden label.  Given label i in one and label j in the other, the release is
mu_ij-GDP.  For masses p_ij whose sum over j is at least the probability of label i, and masses q_ij
whose sum over i is at most the probability of label j,

    delta(epsilon) <= sum_ij p_ij delta_{mu_ij}(epsilon + log(q_ij / p_ij)).

*Proof.* P <= sum p_ij P_i and Q >= sum q_ij Q_j, so P - e^eps Q <= sum (p_ij P_i - e^eps q_ij Q_j);
the positive part is subadditive.  With p = q on the diagonal this is joint convexity.  QED
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lastiterate.curves import gaussian
from lastiterate.curves.base import Curve
from lastiterate.curves.bracket import safe_end
from lastiterate.curves.gaussian import ULP, check_nonnegative, check_probability
from lastiterate.curves.mixture import Mixture, sum_up

Floats = NDArray[np.float64]


def signed_delta(mus: Floats, epsilons: Floats) -> Floats:
    """delta_mu(epsilon) for any sign of epsilon, rounded up.

    delta_mu(-x) = 1 - e^(-x) + e^(-x) delta_mu(x), because both orders of a Gaussian pair agree.
    """
    size = np.abs(epsilons)
    positive = gaussian.delta(mus, size)
    shrink = np.exp(-size)
    mirrored = -np.expm1(-size) + shrink * positive
    return np.where(epsilons >= 0, positive, np.minimum(mirrored * (1 + 8 * ULP), 1.0))


@dataclass(frozen=True, eq=False)
class LabelCoupling:
    """Masses ``p`` and ``q`` of pairs of labels, and ``mus`` of the releases given each pair."""

    mus: Floats
    p: Floats
    q: Floats

    def delta(self, epsilon: float) -> float:
        """sum p delta_mu(epsilon + log(q/p)), rounded up."""
        lost = (self.q <= 0) | ~np.isfinite(self.mus)  # nothing of the other world is set against p
        total = float(self.p[lost].sum()) * (1 + self.p.size * ULP)
        mus, p, q = (values[~lost] for values in (self.mus, self.p, self.q))
        shift = np.log(q) - np.log(p)
        scale = abs(epsilon) + np.abs(np.log(q)) + np.abs(np.log(p))
        shifted = epsilon + shift - 8 * ULP * scale  # a smaller epsilon has a larger delta
        terms = p * signed_delta(mus, shifted) * (1 + 4 * ULP)
        return min((total + sum_up(terms)) * (1 + 4 * ULP), 1.0)


@dataclass(frozen=True, eq=False)
class CoupledLabels(Curve):
    """The smaller of the average over labels and of couplings, one for each order of the pair."""

    average: Mixture
    couplings: Sequence[LabelCoupling]

    def delta(self, epsilon: float) -> float:
        """The smaller of the average and the worst order of the couplings."""
        check_nonnegative("epsilon", epsilon)
        coupled = max(each.delta(epsilon) for each in self.couplings)
        return min(self.average.delta(epsilon), coupled)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon with delta(epsilon) <= ``delta``, rounded up."""
        check_probability("delta", delta)
        safe = self.average.epsilon(delta)
        if safe == 0 or delta == 0 or math.isinf(safe):
            return safe

        def excess(epsilon: float) -> float:
            return math.log(max(max(c.delta(epsilon) for c in self.couplings), 1e-320) / delta)

        if not excess(safe) <= 0:
            return safe
        if excess(0.0) <= 0:
            return 0.0
        return safe_end(excess, safe=safe, unsafe=0.0)

    def rdp(self, order: float) -> float:
        """The Renyi divergence of the average; couplings are used for delta alone."""
        return self.average.rdp(order)
