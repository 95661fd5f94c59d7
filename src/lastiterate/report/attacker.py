"""What the best attacker can achieve: a verified guarantee in the words of a privacy officer.

Under (epsilon, delta) a test that accuses wrongly with probability a is right with probability at
most min(e^epsilon·a + delta, 1 − e^(−epsilon)·(1 − delta − a)); under mu-GDP at most
1 − Phi(Phi^-1(1 − a) − mu) (Kairouz, Oh, Viswanath 2015; Dong, Roth, Su 2022). Rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from lastiterate.certificate import Certificate
from lastiterate.certificate.verification import check
from lastiterate.curves import gaussian
from lastiterate.verifier.balls import precision

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.25)
_SLACK = 1e-14  # relative: some roundings of exp, product and sum


_TANGENTS = 32  # pairs asked of the verifier; more would move the table by less than it prints


def proved_pairs(certificate: Certificate) -> tuple[tuple[float, float], ...]:
    """Pairs (delta, epsilon) that the certificate's witness proves, from epsilon = 0 upwards.

    A certificate lists small deltas only, which say little about tests that accuse often. The
    verifier proves delta at any epsilon, by the same arithmetic.

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> pairs = proved_pairs(certify(run, Loss(smoothness=1.0), delta=1e-5))
    >>> pairs[0][1], pairs[0][0] < 0.03
    (0.0, True)
    """
    epsilons = [certificate.epsilon * k / _TANGENTS for k in range(_TANGENTS)]
    with precision():
        judge = check(certificate).judge(certificate.delta)
        proved = [math.nextafter(float(judge.delta(epsilon)), 1.0) for epsilon in epsilons]
    return (
        *zip(proved, epsilons, strict=True),
        (certificate.delta, certificate.epsilon),
        *certificate.curve,
    )


def detection_rate(
    false_alarms: float, claims: Iterable[tuple[float, float]], mu: float | None = None
) -> float:
    """The largest share of used records that any test finds, at this rate of false alarms.

    Args:
        false_alarms: the share of unused records that the test takes for used ones.
        claims: pairs (delta, epsilon) that all hold.
        mu: of Gaussian differential privacy, if that holds too.

    >>> detection_rate(0.01, [(0.0, 0.0)]) < 0.010001
    True
    >>> detection_rate(0.01, [(1e-5, 50.0)])
    1.0
    """
    best = 1.0
    for delta, epsilon in claims:
        if epsilon < 700:  # beyond, e^epsilon overflows and promises nothing anyway
            above = math.exp(epsilon) * false_alarms + delta
            below = 1 - math.exp(-epsilon) * (1 - delta - false_alarms)
            best = min(best, above * (1 + _SLACK), below + _SLACK)
    if mu is not None:
        best = min(best, 1 - float(gaussian.tradeoff(mu, false_alarms)) + _SLACK)
    return min(1.0, best)
