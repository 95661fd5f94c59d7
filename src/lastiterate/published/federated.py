"""Federated averaging as printed in He, Wang & Tao 2020, Theorem 8: refuted, for study only.

He, Wang & Tao 2020, Algorithm 2 averages tau clipped updates (clip L) of N clients and adds N(0,
L^2 sigma^2 I) to the average, so that mu = 2/(tau sigma) if one client is replaced and 1/(tau
sigma) if its update becomes zero. The theorem loses a factor in that step, samples by a rule that
holds for small epsilon only, and composes by a false theorem. No guarantee rests on the printed
forms.
"""

from __future__ import annotations

import math

from lastiterate.composition import Pair
from lastiterate.description.validation import number, one_of
from lastiterate.published.sgld import composed_as_printed


def theorem_8_gaussian(
    sampled: int, sigma: float, step_delta: float, *, reading: str = "printed"
) -> Pair:
    """He, Wang & Tao's (eps~, delta) of one round without sampling. REFUTED for replaced clients.

    ``reading``: "printed", eps~ = 4 (sigma/tau) sqrt(ln(1/delta) + 1/tau^2) / (2 sigma^2), or
    "outside", with 1/tau^2 outside the root as in the paper's Theorem 7. Correct would be
    (4 sqrt 2 (sigma/tau) sqrt(ln(1/delta)) + 4/tau^2) / (2 sigma^2). For a client whose update
    becomes zero "outside" is sound (2 > sqrt 2), "printed" is not.

    >>> from lastiterate.curves import gaussian
    >>> claim = theorem_8_gaussian(1, 1.0, 1e-5)
    >>> float(f"{gaussian.delta(2.0, claim.epsilon):.2g}")  # the truth, where 1e-5 is said
    0.0022
    """
    _check(sampled, sampled, sigma, 1, step_delta)
    one_of("reading", reading, ("printed", "outside"), "the formula is printed once, meant once")
    log = math.log(1 / step_delta)
    if reading == "printed":
        top = 4 * sigma / sampled * math.sqrt(log + 1 / sampled**2)
    else:
        top = 4 * sigma / sampled * math.sqrt(log) + 1 / sampled**2
    return Pair(top / (2 * sigma**2), step_delta)


def theorem_8_step(
    clients: int, sampled: int, sigma: float, step_delta: float, *, reading: str = "printed"
) -> Pair:
    """He, Wang & Tao's (2 q eps~, q delta) of one round with sampling. REFUTED.

    >>> from lastiterate.federated import account_federated
    >>> claim = theorem_8_step(1000, 10, 0.1, 1e-5)
    >>> truth = account_federated(1000, 10, 1, clip=1.0, noise_multiplier=1.0)
    >>> truth.delta(claim.epsilon) > 100 * claim.delta
    True
    """
    _check(clients, sampled, sigma, 1, step_delta)
    rate = sampled / clients
    whole = theorem_8_gaussian(sampled, sigma, step_delta, reading=reading)
    return Pair(2 * rate * whole.epsilon, rate * step_delta)


def theorem_8(
    clients: int,
    sampled: int,
    sigma: float,
    rounds: int,
    step_delta: float,
    slack: float,
    *,
    reading: str = "printed",
) -> Pair:
    """He, Wang & Tao 2020, Theorem 8 with its slack delta~ given and eq. (15)'s epsilon read as
    eps~. REFUTED.

    Its closed form for delta~ is that of Theorem 7 (`published.sgld.theorem_7_slack`) and shares
    its errors.

    >>> from lastiterate.federated import account_federated
    >>> claim = theorem_8(1000, 1, 0.7, 10_000, 1e-5, 1e-6)
    >>> truth = account_federated(1000, 1, 10_000, clip=1.0, noise_multiplier=0.7)
    >>> round(claim.epsilon, 2), round(truth.epsilon(claim.delta), 2)
    (12.67, 20.49)
    """
    _check(clients, sampled, sigma, rounds, step_delta)
    number("slack", slack, "it is the delta paid for composing", above=0, below=1)
    step = theorem_8_step(clients, sampled, sigma, step_delta, reading=reading)
    return composed_as_printed(step, rounds, slack)


def _check(clients: int, sampled: int, sigma: float, rounds: int, step_delta: float) -> None:
    number("sampled", sampled, "a round draws clients", at_least=1, at_most=clients)
    number("sigma", sigma, "it scales the noise", above=0)
    number("rounds", rounds, "each round costs privacy", at_least=1)
    number("delta", step_delta, "it is a probability", above=0, below=1)
