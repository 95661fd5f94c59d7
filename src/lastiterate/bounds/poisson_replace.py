"""Poisson batches with one record replaced by another: two mixtures with the same coin.

The record enters a batch by one coin in both worlds, so a step compares (1-q) N(0) + q N(h) with
(1-q) N(0) + q N(h'), two gradients of bounded length. The two gradients are worst when they are
opposite, in any dimension; the proof is in docs/theory/poisson.md. This file works on numbers:
Lipschitz constants c, lengths s of a gradient, how far two are apart (gap), noises nu.
"""

from __future__ import annotations

from lastiterate.bounds import absorption
from lastiterate.bounds.absorption import PairOf
from lastiterate.bounds.steps import Steps
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import ROUNDING, OpposedPair
from lastiterate.errors import DescriptionError


def pair_of(rate: float) -> PairOf:
    """The pair of a step with gradients of a given length that also absorbs a payment.

    *Statement.* As in `plain`, f_k and f_k + h_k c_k-Lipschitz for every realised batch (so that
    every batch map under one data set is) and |h_k - h'_k| <= gap_k. For any horizon tau, z_tau >=
    min(D_tau, diameter) with D_{t+1} = c D_t + gap, a_t >= 0 with z_{t+1} = c_t z_t - a_t >= 0 and
    z_T = 0: the run is dominated, in both orders, by the composition over t >= tau of
    (1-q) N(a_t) + q N(s_t + a_t) against (1-q) N(0) + q N(-s_t), in units of the noise.

    Proof: docs/theory/poisson.md. Status: sound.

    >>> run = Steps(0.99, 1.0, 1.0, 1000, gap=2.0)
    >>> absorption.best(pair_of(0.01), run, delta=1e-6).tail < 1000
    True
    """
    if not 0.0 < rate <= 1.0:
        raise DescriptionError("rate", rate, "above 0 and at most 1", "it is a probability")

    def pair(length: float, pay: float) -> OpposedPair:
        return OpposedPair(rate, pay, (length + pay) * (1 + (ROUNDING if pay else 0.0)), length)

    return pair


def plain(steps: Steps, rate: float) -> LossDistribution:
    """Plain composition, all iterates published.

    *Statement.* X_{k+1} = f_k(X_k) + xi_k h_k(X_k) + N(0, nu_k^2 I) with xi_k ~ Bernoulli(rate),
    X' the same with h'_k; |h_k|, |h'_k| <= s. The run is dominated, in both orders, by the
    composition of (1-q) N(0) + q N(s/nu) against (1-q) N(0) + q N(-s/nu), on the line.

    *Proof idea.* H_gamma is E((1-q)(1-gamma) + q L_h - gamma q L_h')_+ under N(0, I), with
    lognormal likelihood ratios L whose laws depend on the lengths alone. A convex function of a
    sum is largest when the summands q L_h and -gamma q L_h' are comonotone, which opposite
    gradients make them, and it grows with each length. Status: sound.

    >>> round(plain(Steps(1.0, 1.0, 1.0, 1000), rate=0.01).epsilon(1e-6), 3)
    3.214
    """
    return absorption.plain(pair_of(rate), steps)
