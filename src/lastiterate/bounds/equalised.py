"""The equalising last epoch: every position of a convex run pays the same.

The record that is read last has the fewest noisy steps after it. Shrinking the last epoch's steps
by sqrt((B-j)/B), at unchanged noise, makes its cost that of every other position, so one Gaussian
covers a known order, a shuffled one, and a single pass over the data.
"""

from __future__ import annotations

import math

from lastiterate.bounds.positions import UNIT
from lastiterate.errors import DescriptionError


def equalised_mu(ratio: float, batches: int, epochs: int) -> float:
    """mu of the last iterate with an equalised last epoch; ``ratio`` = s/nu of the base step.

    Statement: c_k <= 1, B batches in the same order in each of E whole epochs, constant noise nu,
    impulse s, times sqrt((B-j)/B) at step j of the last epoch. Then the last iterate is mu-GDP
    with mu^2 = (s/nu)^2 E/B, for a record at any position, known or hidden. Not for an order that
    is reshuffled: B = E = 2, s = 3 nu, eps = 12 has delta 3.53e-3, above this 3.12e-3.
    Proof: the last impulse of a record at position j has B-j noisy steps left and costs
    (s^2 (B-j)/B)/((B-j) nu^2) = s^2/(B nu^2); each earlier one is spread over the B steps up to
    the next, s^2/(B nu^2). With c <= 1 the same payments more than suffice.
    Reference: this library (docs/theory). Status: sound; the taut string attains it at c = 1.
    The noise must keep its base value while the step shrinks, and B must be known in advance.

    >>> equalised_mu(1 / 0.134, batches=1000, epochs=1)  # doctest: +ELLIPSIS
    0.23599...
    """
    if epochs < 1:
        raise DescriptionError(
            "epochs", epochs, "a whole number of at least 1", "the last epoch is the one equalised"
        )
    if batches < 1:
        raise DescriptionError(
            "batches", batches, "a whole number of at least 1", "an epoch has at least one batch"
        )
    return ratio * math.sqrt(epochs / batches) * (1 + 8 * UNIT)
