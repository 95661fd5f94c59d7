"""The comparison of bounds at delta = n^-1.5, to the digits printed in our theory notes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import ndtri

from lastiterate.curves import gaussian as gdp
from lastiterate.generalization import GeneralizationBound, quoted
from lastiterate.generalization.expectation import second_moment
from lastiterate.generalization.high_probability import gaussian, j_star, monitor, posterior_gap
from lastiterate.generalization.privacy import read_privacy

# n, epsilon, Thm 1, NS, DFH, BNS, Thm 1* .05, J* .05, J* two-sided, |E gen|, E|gen| GDP, GDP .05
TABLE = """
1e4 .01 - - - - .079 .070 .105(5e-4) .0050 .0062 .088
1e4 .05 - - - .90(2e-5) .116 .107 .173(7e-5) .025 .0107 .096
1e4 .1 .90(3e-5) V - V .161 .152 .258(3e-5) .050 .0166 .113
1e4 .5 V V V - .449 .440 V .245 .063 .268
1e4 1 V V V - .676 .668 V .462 .119 .429
1e5 .01 - - - - .033 .029 .048(2e-5) .0050 .0026 .030
1e5 .05 .45(2e-6) .65(5e-6) x .90(6e-7) .071 .067 .111(2e-6) .025 .0067 .042
1e5 .1 .90(9e-7) V x V .117 .113 .196(9e-7) .050 .0120 .061
1e5 .5 V V V - .412 .408 V .245 .053 .209
1e5 1 V V V - .647 .644 V .462 .102 .363
1e6 .01 .09(5e-7) .13(1e-6) - .18(1e-7) .018 .016 .026(5e-7) .0050 .0014 .011
1e6 .05 .45(7e-8) .65(1e-7) x .90(2e-8) .056 .055 .088(7e-8) .025 .0052 .025
1e6 .1 .90(3e-8) V x V .103 .101 .174(3e-8) .050 .0100 .044
1e6 .5 V V V - .400 .398 V .245 .047 .181
1e6 1 V V V - .637 .636 V .462 .091 .324
1e7 .01 .09(2e-8) .13(3e-8) x .18(3e-9) .0125 .0119 .018(2e-8) .0050 .0010 .0056
1e7 .05 .45(2e-9) .65(5e-9) x .90(6e-10) .051 .051 .080(2e-9) .025 .0046 .020
1e7 .1 .90(9e-10) V .40(.7) V .098 .097 .166(9e-10) .050 .0089 .037
1e7 .5 V V V - .396 .395 V .245 .042 .164
1e7 1 V V V - .634 .633 V .462 .083 .298
"""
ROWS = [line.split() for line in TABLE.strip().splitlines()]


def agrees(value: float, printed: str) -> bool:
    """Whether ``value`` rounds to the digits printed (ties either way)."""
    mantissa, _, power = printed.partition("e")
    digits = len(mantissa.partition(".")[2])
    return abs(value - float(printed)) <= 0.5000001 * 10.0 ** (int(power or 0) - digits)


def minimised(value: float, printed: str) -> bool:
    """As ``agrees``, or a better minimum: less than one unit of the last digit below the print.

    Five cells need it: Thm 1* at (1e4, .5), (1e6, .1), (1e7, .5) and the Gaussian column at
    (1e5, .01), (1e7, .5); the print rounds up where a finer search ends just below the half.
    """
    unit = 10.0 ** -len(printed.partition(".")[2])
    return agrees(value, printed) or 0 < float(printed) - value < unit


def cell(bound: GeneralizationBound, printed: str) -> bool:
    if not bound.hypotheses_met:
        return printed == "-"
    if bound.value >= 1:
        return printed == "V"
    if bound.failure >= 1:
        return printed == "x"
    value, _, failure = printed.partition("(")
    return agrees(bound.value, value) and agrees(bound.failure, failure.rstrip(")"))


def notes_gaussian(mu: float, records: float, failure: float) -> float:
    """The Gaussian bound as in the notes: one threshold A for both tails of the virtual noise.

    failure = b + g + g/c with g the chance of either tail, value = gap(b) + 2A + c.
    """

    def value(parameters: np.ndarray) -> float:
        extra, c = math.exp(parameters[0]), math.exp(min(parameters[1], 0.0))
        share = failure / (1 + math.exp(-parameters[2]))
        g = share / (1 + 1 / c)
        width = -float(ndtri(g / 2)) / (records * extra)
        gap = posterior_gap(np.array(math.hypot(mu, extra)), np.array(failure - share))
        return float(gap) + 2 * width + c

    options = {"xatol": 1e-7, "fatol": 1e-9, "maxiter": 2000}
    starts = [(a, b, -2.0) for a in (-6.0, -3.0) for b in (-6.0, -3.0)]
    return min(minimize(value, s, method="Nelder-Mead", options=options).fun for s in starts)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"n={row[0]},eps={row[1]}")
def test_row(row: list[str]) -> None:
    records, epsilon = int(float(row[0])), float(row[1])
    delta = records**-1.5
    theirs = quoted.he_wang_tao(epsilon, delta, records)
    assert cell(theirs, row[2])
    assert cell(quoted.nissim_stemmer(epsilon, delta, records), row[3])
    assert cell(quoted.dwork(epsilon, delta, records), row[4])
    assert cell(quoted.bassily(epsilon, delta, records), row[5])
    assert minimised(monitor(epsilon, delta, records, 0.05), row[6])
    assert minimised(j_star(epsilon, delta, records, 0.05), row[7])

    at = math.exp(-epsilon) * delta / epsilon * math.log(2 / epsilon)
    both = j_star(epsilon, delta, records, at / 2)
    if row[8] == "V":
        assert both > 0.9999  # 1 - e^-E + d: approaches 1, says nothing
    else:
        value, _, failure = row[8].rstrip(")").partition("(")
        assert minimised(both, value)
        assert agrees(at, failure)
    assert agrees(read_privacy((epsilon, delta), None).total_variation, row[9])

    mu = gdp.mu(epsilon, delta)
    assert agrees(math.sqrt(second_moment(mu * mu / 2, records)), row[10])
    in_notes = notes_gaussian(mu, records, 0.05)
    assert minimised(in_notes, row[11])
    # two thresholds instead of one: never larger, and by less than 15 %
    assert 0.85 * in_notes < gaussian(mu, records, 0.05) <= in_notes * (1 + 1e-6)
