"""Batches drawn without replacement at every step, one record replaced: the corrected theorem.

Chien & Li 2025, Theorem 3.12 takes a divergence in the wrong direction. In the corrected statement
one pair pays for the step's own batch, by subsampling, and for what earlier steps left over,
without splitting the noise. This file works on numbers: Lipschitz constants c, impulses s and
noises nu of the steps.
"""

from __future__ import annotations

from lastiterate.bounds import absorption
from lastiterate.bounds.absorption import PairOf
from lastiterate.bounds.steps import Steps
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, ReplacedPair
from lastiterate.errors import DescriptionError


def pair_of(rate: float) -> PairOf:
    """The pair of a step with a given impulse that also absorbs a payment.

    *Statement.* Batches of b of n records, drawn afresh at every step; q = b/n, s = 2 eta K / b,
    every mini-batch map c-Lipschitz. For any horizon tau, z_tau >= min(D_tau, diameter), payments
    a_t >= 0 with z_{t+1} = c z_t - a_t >= 0 and z_T = 0: the run is dominated in both orders by
    the composition over t >= tau of the pairs with profile, for gamma >= 1,
    min over t <= gamma of (1-q) delta_a(log t) + q delta_{a+s}(log((gamma - (1-q) t)/q)), the
    lengths a and s in units of the noise. With a = 0 that is q delta_s(log(1 + (gamma - 1)/q)).

    *Reference.* Corrects Chien & Li 2025, Theorem 3.12, whose divergence has the wrong
    direction and whose proof conditions in the wrong order; the noise is not split any more.
    Status: corrected. Proof: docs/theory/without-replacement.md.

    >>> found = absorption.best(pair_of(0.1), Steps(0.9, 1.0, 1.0, 200), delta=1e-5)
    >>> found.tail < 200 and found.curve.epsilon(1e-5) < 5.0
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a share of the data")

    def pair(impulse: float, pay: float) -> ReplacedPair:
        return ReplacedPair(rate, (impulse + pay) * (1 + ROUNDING), pay)

    return pair


def plain(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition, all iterates published."""
    return absorption.plain(pair_of(rate), steps)
