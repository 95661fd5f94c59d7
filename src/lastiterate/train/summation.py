"""Sums of gradients whose sensitivity is proved before the run.

**Statement.** S = Σ g_i over m records, computed in float64 by any order of additions, fused or
not, in which no term passes more than h roundings (additions, products, the division by the batch
size, the multiplication with the step size). Then

    ‖computed − S‖ ≤ γ_h·Σ‖g_i‖ + underflow,    γ_h = h·u/(1 − h·u),    u = 2⁻⁵³.

*Proof.* Every computed entry is Σ_i g_ij·Π(1 + δ) with at most h factors, |δ| ≤ u, so it is off by
at most γ_h·Σ_i|g_ij| (Higham, Accuracy and Stability, section 4.2; the order only decides which
factors a term meets). The vector of the Σ_i|g_ij| is no longer than Σ_i‖g_i‖, as the norm of a sum
of vectors |g_i| is at most the sum of their norms. A product that underflows, or is flushed to
zero, is off by at most 2⁻¹⁰²² more. ∎

**What is charged.** The g_i here are the terms as the machine has them: each a function of one
record and of the parameters, in both worlds the same one. They are no longer than K(1 + ρ), ρ
being what norms and slopes round (`overshoot`). Replacing one of them moves S by at most the
sensitivity times 1 + ρ, so two computed sums of neighbouring data sets differ by at most

    sensitivity + 2·E,    E = K·(ρ + γ_h·m·(1 + ρ)) + m·√entries·2⁻¹⁰²².

E over the nominal divisor is part of `Arithmetic.error`.

**The map.** Guarantees for hidden states compare the computed mean gradient with the exact one:
what scores and slopes round is in `Arithmetic.error` too (`score_error`; docs/theory/arithmetic.md,
"The error of the map"). What adding noise would round, `grid` avoids.

**How h stays small.** All engines add blocks: no block has more than `MOST_ROWS` rows, and none but
the last fewer than `least_rows`. So whatever a library does inside a block, and however many cores
there are, a term meets at most min(m, MOST_ROWS) additions in its block and one per block.
"""

from __future__ import annotations

import math
from fractions import Fraction

from lastiterate.description import Arithmetic, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses import BallSoftmax, LinearLoss, Softmax
from lastiterate.losses.rounding import root_up, up

MOST_ROWS = 1 << 16  # of a block: what a library does inside one is its own affair
CALLABLE_OVERSHOOT = 2.0**-30  # of gradients that somebody else computed and keeps short
_BLOCK = 1 << 22  # bytes of a block that stay near, at the least
_UNIT = Fraction(1, 2**53)
_FEW = 16  # product, division by the batch size, step size, and a few to spare


def gamma(roundings: int) -> Fraction:
    """γ_h = h·u/(1 − h·u).

    >>> float(gamma(1)) == 2.0**-53 / (1 - 2.0**-53)
    True
    """
    lost = roundings * _UNIT
    if lost >= 1:
        raise UnsupportedError(
            f"{roundings} additions in a row have no bound in double precision: take smaller "
            "batches."
        )
    return lost / (1 - lost)


def least_rows(columns: int, outputs: int = 1) -> int:
    """Rows that every block has, the last one excepted."""
    return min(MOST_ROWS, max(1, _BLOCK // (8 * (columns + outputs))))


def roundings(records: int, columns: int, outputs: int = 1, ranks: int = 1) -> int:
    """How many roundings a term meets at most on its way into the update.

    Blocks may be cut twice, by what is read at once and by what is multiplied at once.
    """
    blocks = -(-records // least_rows(columns, outputs))
    return min(records, MOST_ROWS) + 2 * blocks + ranks + _FEW


def overshoot(columns: int, objective: LinearLoss) -> Fraction:
    """ρ: how far a term x ⊗ slope can be from a gradient that is at most K long, relatively to K.

    Rows may look longer than R by `norms.norm_room`, 4(columns + 8) units: gradients are as much
    longer, and turn faster by twice as much. Factors that shorten are off by less than as much
    again; a softmax slope is off by one unit per class, which a cap on it divides by the cap; a
    product with a weight is one more.
    """
    if isinstance(objective, BallSoftmax):
        slope = gamma(math.ceil(objective.slope_roundings()))
    else:
        cap = Fraction(min(float(getattr(objective, "cap", 1.0)), 1.0))
        slope = 4 * gamma(objective.outputs() + 8) / cap
    return 12 * gamma(columns + 8) + slope + gamma(1)


def sum_error(
    records: int, gradient_norm: float, roundings: int, entries: int, over: Fraction | float = 0
) -> float:
    """E: the computed sum of so many gradients moves by at most its sensitivity + 2·E.

    >>> E = sum_error(10**6, 1.0, roundings(10**6, columns=100), entries=100)
    >>> E < 1e-5  # of one record's share
    True
    """
    rho, K = Fraction(over), Fraction(gradient_norm)
    rounded = K * (rho + gamma(roundings) * records * (1 + rho))
    return up(rounded + records * Fraction(root_up(Fraction(entries))) / 2**1022)


def arithmetic_of_sums(
    training: Training, h: int, entries: int, over: Fraction | float = 0
) -> Arithmetic | None:
    """What the trainer says about itself: E per unit of step size; None if nothing bounds it."""
    if math.isinf(training.gradient_norm):
        return None
    batches, records = training.batches, training.records
    count = batches.largest(records)
    error = sum_error(count, training.gradient_norm, h, entries, over)
    divisor = batches.exact_divisor(records)
    return Arithmetic(error=up(Fraction(error) / divisor))


def linear_arithmetic(
    training: Training,
    objective: LinearLoss,
    columns: int,
    ranks: int = 1,
    feature_bound: float | None = None,
) -> Arithmetic | None:
    """Of a linear model whose products and sums are all in double precision.

    A softmax slope rounds as 1 does, however short it is: where it is shortened to less than it
    can be long by itself, that counts (with a bound on the rows; without one there is no map).

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> run = Training(records=1000, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> linear_arithmetic(run, Logistic(), columns=20).error * 1000 < 1e-9
    True
    """
    outputs, count = objective.outputs(), training.batches.largest(training.records)
    h, over = roundings(count, columns, outputs, ranks), overshoot(columns, objective)
    sums = arithmetic_of_sums(training, h, columns * outputs, over)
    if sums is None:
        return None
    longest = training.gradient_norm
    if feature_bound is not None and isinstance(objective, Softmax):
        longest = max(longest, objective.gradient_norm(feature_bound))
    slopes = Fraction(longest) * over * _ratio(training)
    return Arithmetic(error=up(Fraction(sums.error) + slopes))


def whole_arithmetic(training: Training, objective: LinearLoss, columns: int) -> Arithmetic | None:
    """Of sums in whole numbers (`whole_sums`): no addition rounds, and slopes a little more.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> run = Training(records=10**6, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> whole_arithmetic(run, Logistic(), 20).error < linear_arithmetic(run, Logistic(), 20).error
    True
    """
    outputs = objective.outputs()
    over = overshoot(columns, objective) + 4 * gamma(outputs + 8)
    sums = arithmetic_of_sums(training, 2 * _FEW, columns * outputs, over)
    if sums is None:
        return None
    slopes = Fraction(training.gradient_norm) * over * _ratio(training)
    return Arithmetic(error=up(Fraction(sums.error) + slopes))


def score_error(
    training: Training, objective: LinearLoss, columns: int, feature_bound: float | None
) -> float:
    """What scores round moves the mean gradient by, per unit of the parameters' length.

    Nothing is needed where the rows, or the curvature of the loss, have no bound: theorems then
    count on the length of gradients alone, and computed ones are as short.

    >>> from lastiterate import FullBatch
    >>> from lastiterate.losses import Logistic
    >>> run = Training(records=1000, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> score_error(run, Logistic(), columns=20, feature_bound=1.0) < 1e-15
    True
    """
    if feature_bound is None or math.isinf(objective.smoothness(feature_bound)):
        return 0.0
    turning = Fraction(objective.smoothness(feature_bound))
    return up(turning * gamma(columns + 8) * _ratio(training))


def _ratio(training: Training) -> Fraction:
    """The largest batch over the nominal divisor."""
    batches, records = training.batches, training.records
    count = Fraction(batches.largest(records))
    return count / batches.exact_divisor(records)


def gradient_arithmetic(
    training: Training, entries: int, over: float = 0.0, chunk: int = MOST_ROWS
) -> Arithmetic | None:
    """Of per-record gradients that exist one by one, added in blocks in double precision.

    ``chunk``: so many exist at once; what they add up to is one more block.
    """
    count = training.batches.largest(training.records)
    h = roundings(count, entries) - (-count // chunk)
    return arithmetic_of_sums(training, h, entries, over)


def charged(training: Training, engine: Arithmetic | None) -> Training:
    """The description with at least what the engine says: what is certified is what was computed.

    On the engine's grid; a larger error, or more coordinates, that was told is kept.
    """
    if engine is None:
        return training
    told = training.arithmetic
    if isinstance(told, Arithmetic):
        error, size = max(told.error, engine.error), max(told.coordinates, engine.coordinates)
        engine = Arithmetic(grid=engine.grid, error=error, coordinates=size)
    return training if told == engine else training.replace(arithmetic=engine)
