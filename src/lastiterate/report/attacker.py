"""What the best attacker can achieve: a verified guarantee in the words of a privacy officer.

Under (epsilon, delta) a test that accuses wrongly with probability a is right with probability at
most min(e^epsilon·a + delta, 1 − e^(−epsilon)·(1 − delta − a)); under mu-GDP at most
1 − Phi(Phi^-1(1 − a) − mu) (Kairouz, Oh, Viswanath 2015; Dong, Roth, Su 2022). A whole curve
delta(epsilon) allows the least of these lines over all epsilon, and no less. Rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial

from lastiterate.certificate import Certificate
from lastiterate.curves import gaussian
from lastiterate.verifier.balls import precision
from lastiterate.verifier.verification import check

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.1, 0.25)
_SLACK = 1e-14  # relative: some roundings of exp, product and sum

_NEAR = 0.004  # how close in epsilon to the best line: within a factor e^0.004 of the best rate
_ALL_BUT = 0.005  # a rate within this of 1 is as good as 1
_GOLDEN = (math.sqrt(5) - 1) / 2
_Line = Callable[[float, float, float], float]


def proved_pairs(certificate: Certificate) -> tuple[tuple[float, float], ...]:
    """Pairs (delta, epsilon) that the certificate's witness proves: those that decide the table.

    A certificate lists small deltas only, which say little about tests that accuse often. The
    verifier proves delta at any epsilon, by the same arithmetic.

    >>> from lastiterate import FullBatch, Loss, Training, certify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> pairs = proved_pairs(certify(run, Loss(smoothness=1.0), delta=1e-5))
    >>> min(delta for delta, epsilon in pairs if epsilon == 0.0) < 0.03
    True
    """
    with precision():
        judge = check(certificate).judge(certificate.delta)

        def delta(epsilon: float) -> float:
            return math.nextafter(float(judge.delta(epsilon)), 2.0)

        found = deciding_pairs(delta, FALSE_ALARMS)
    return (*found, (certificate.delta, certificate.epsilon), *certificate.curve)


def deciding_pairs(
    delta: Callable[[float], float], rates: Iterable[float]
) -> tuple[tuple[float, float], ...]:
    """Pairs (delta, epsilon) of a whole curve that say nearly all it says about tests.

    With x = e^epsilon both lines, x·a + delta and 1 − (1 − delta − a)/x, fall and then rise, as
    delta is convex in x. A search that ends within h above the best epsilon is within a factor
    e^h of the best rate: the first line grows at most so fast, and the second one decides only
    where a + rate ≥ 1, so that 1 − rate ≤ rate. Every pair that is looked at holds, so a search
    that goes astray costs tightness and nothing else.

    >>> from lastiterate.curves.gaussian import Gaussian
    >>> pairs = deciding_pairs(Gaussian(1.0).delta, [0.01])
    >>> 0.0923 < detection_rate(0.01, pairs) < 0.0925  # 1 - Phi(2.326 - 1) = 0.09236
    True
    """
    known: dict[float, float] = {}

    def at(epsilon: float) -> float:
        if epsilon not in known:
            known[epsilon] = delta(epsilon)
        return known[epsilon]

    for rate in rates:
        # Beyond log(1/rate) the first line lies above 1.
        _least(partial(_at, _first, rate, at), -math.log(rate))
        best = min(_first(rate, at(epsilon), epsilon) for epsilon in known)
        if rate + best >= 1:  # where 1 - e^-epsilon exceeds the best rate, so does the second line
            end = -math.log(max(1 - best, _ALL_BUT))
            _least(partial(_at, _second, rate, at), end)
    return tuple((found, epsilon) for epsilon, found in sorted(known.items()))


def _least(value: Callable[[float], float], end: float) -> None:
    """Look at points of [0, end] that close in on the least value, by golden section.

    The points are what is wanted: the caller keeps them.
    """
    low, high = 0.0, max(end, 0.0)
    value(low), value(high)
    near, far = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_near, at_far = value(near), value(far)
    while high - low > _NEAR:
        if at_near <= at_far:
            high, far, at_far = far, near, at_near
            near = high - _GOLDEN * (high - low)
            at_near = value(near)
        else:
            low, near, at_near = near, far, at_far
            far = low + _GOLDEN * (high - low)
            at_far = value(far)
    value(high)


def _at(line: _Line, rate: float, delta: Callable[[float], float], epsilon: float) -> float:
    return line(rate, delta(epsilon), epsilon)


def _first(rate: float, delta: float, epsilon: float) -> float:
    return (math.exp(epsilon) * rate + delta) * (1 + _SLACK)


def _second(rate: float, delta: float, epsilon: float) -> float:
    return 1 - math.exp(-epsilon) * (1 - delta - rate) + _SLACK


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
            pair = false_alarms, delta, epsilon
            best = min(best, _first(*pair), _second(*pair))
    if mu is not None:
        best = min(best, 1 - float(gaussian.tradeoff(mu, false_alarms)) + _SLACK)
    return min(1.0, best)
