"""The equalising last epoch: every position of a convex run pays the same.

The record that is read last has the fewest noisy steps after it. Shrinking the last epoch's steps
by sqrt((B-j)/B), at unchanged noise, makes its cost that of every other position, so one Gaussian
covers a known order, a shuffled one, and a single pass over the data. A result of this library that
the taut string contains: it attains it at c = 1 and is never larger.
"""

from __future__ import annotations

import math

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Cyclic, FullBatch, Shuffled
from lastiterate.errors import DescriptionError
from lastiterate.published.setting import theorem
from lastiterate.theory.dynamics import squared_ratio
from lastiterate.theory.positions import UNIT
from lastiterate.theory.registry import ADJACENCIES, Proof, Theorem
from lastiterate.theory.run import Run


def equalised_mu(ratio: float, batches: int, epochs: int) -> float:
    """mu of the last iterate with an equalised last epoch; ``ratio`` = s/nu of the base step.

    Statement: c_k <= 1, B batches in the same order in each of E whole epochs, constant noise nu,
    sensitivity s, times sqrt((B-j)/B) at step j of the last epoch. Then the last iterate is mu-GDP
    with mu^2 = (s/nu)^2 E/B, for a record at any position, known or hidden. Not for an order that
    is reshuffled: B = E = 2, s = 3 nu, eps = 12 has delta 3.53e-3, above this 3.12e-3.
    Proof: the last use of a record at position j has B-j noisy steps left and costs
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


def equalised_last_epoch(run: Run) -> Proof:
    """`equalised_mu` of a run."""
    # The largest sensitivity is that of a full step; the last epoch only shrinks it.
    s, nu = run.step_sensitivities[:1], run.training.noises[:1]
    ratio = math.sqrt(float(squared_ratio(s, nu)[0])) * (1 + 1e-15)
    return Proof(Gaussian(equalised_mu(ratio, run.batches, run.training.steps // run.batches)))


def _limits(run: Run) -> str | None:
    training = run.training
    if training.schedule != "equalised" or not isinstance(training.noise, float):
        return "it needs schedule='equalised' and a constant noise"
    if training.final_noise < 1:
        return "the last step has less noise than the others"
    return None


ROWS: tuple[Theorem, ...] = (
    theorem(
        "equalised-last-epoch",
        schemes=(FullBatch, Cyclic, Shuffled),
        bound=equalised_last_epoch,
        limits=_limits,
        supports=ADJACENCIES | {"schedules"},
    ),
)
