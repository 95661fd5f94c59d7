"""The slow, obvious computation: the textbook formulas in ball arithmetic, 500 bits and more.

An ``arb`` is an interval that certainly contains the exact value, so ``<=`` below is a proof.
"""

from __future__ import annotations

from collections.abc import Iterable

from flint import arb, ctx

ctx.prec = 500


def upper_tail(x: arb) -> arb:
    return (x / arb(2).sqrt()).erfc() / 2


def gaussian_delta(mu: float | arb, epsilon: float | arb) -> arb:
    """Phi(-a) - e^epsilon Phi(-b), with as many bits as its subtraction needs."""
    shift, loss = arb(mu), arb(epsilon)
    if loss / shift > 1e5:
        return log_gaussian_delta(mu, epsilon).exp()
    for bits in (500, 1000, 4000, 16000):
        with ctx.workprec(bits):
            ratio = loss / shift
            value = upper_tail(ratio - shift / 2) - loss.exp() * upper_tail(ratio + shift / 2)
        if value.rel_accuracy_bits() > 150:
            return value
    raise ArithmeticError(f"no proof at mu={mu}, epsilon={epsilon}")


def log_gaussian_delta(mu: float | arb, epsilon: float | arb) -> arb:
    """Its logarithm, also where the two terms are too small for the formula.

    For x = a/sqrt2, y = b/sqrt2 > 0: 1/(t^2 + 3/2) < -sqrt(pi) erfcx'(t) < 1/t^2, so
    erfcx(x) - erfcx(y) lies between (y - x)/(sqrt(pi) (y^2 + 3/2)) and (y - x)/(sqrt(pi) x y).
    """
    ratio = arb(epsilon) / arb(mu)
    if not ratio > 1e5:
        return gaussian_delta(mu, epsilon).log()
    a, b = ratio - arb(mu) / 2, ratio + arb(mu) / 2
    front = arb(mu) / (2 * arb.pi()).sqrt()
    low, high = front / (b * b + 3), front / (a * b)
    return low.log().union(high.log()) - a * a / 2


def mixture_delta(mus: Iterable[float], weights: Iterable[float], epsilon: float) -> arb:
    pairs = list(zip(mus, weights, strict=True))
    total = sum((arb(w) for _, w in pairs), arb(0))
    return sum((arb(w) * gaussian_delta(mu, epsilon) for mu, w in pairs), arb(0)) / total


def excess(value: float, truth: arb) -> float:
    """(value - truth)/truth of a probability or a divergence, once proved not to be negative."""
    assert truth <= arb(value) or (value == 1 and abs(truth - 1) < 1e-100), (value, truth)
    return float((arb(value) - truth) / truth)
