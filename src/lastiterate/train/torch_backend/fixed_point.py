"""Sums of gradients in whole numbers: exact in any order, on any device.

**What is computed.** Features are rounded once, **towards zero**, to whole numbers of a unit that
is fixed by the run's public bounds, and cut off at the largest one: the data set is then that one,
row by row, and its norms only shrink. In an update every parameter becomes a whole number of its
unit; scores are sums of products of whole numbers, rounded once to 32 bits; slopes are computed in
double precision from those (`slopes`), by +, −, ×, ÷ alone, and rounded to whole numbers; and
their products with the features are added. No sum of floats has more than one term per record that
depends on an order: a computed sum *is* the sum of one term per record, each a function of that
record and of the parameters, on a processor and on a GPU, bit for bit.

**Statement.** For features with rows no longer than R, parameters within a ball, and every record,
the computed slope ŝ (C numbers) is near the slope s at the exact scores of the same parameters:

    ‖ŝ − s‖ ≤ ε = λ·δ + f + √(C+3)/(2·scale),    δ = R·√d·unit(parameters)/2 + unit(scores)/2,

λ the slope's Lipschitz constant from the largest score to Euclidean length, f what the double
precision rounds. So the computed sum of m gradients is within m·R·ε + (what turning whole numbers
to doubles rounds) of the exact one, and every term is within R·ε of one of length K: both are
covered by `Arithmetic.error`, for accounting by composition and by hidden states alike.

Proof: docs/theory/arithmetic.md, "Sums in whole numbers".
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from lastiterate.description import Arithmetic, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses.rounding import root_up, up
from lastiterate.train.summation import gamma
from lastiterate.train.torch_backend.kernels import Head

MOST_ROWS = 1 << 16  # that are added in 32 bits
MOST_COLUMNS = 1 << 15
GROUP = 32  # classes whose weights are added together
SLOPE_TOP = 127 << 24  # the largest slope in its unit: four signed bytes hold it
SCORE_TOP = 2**31 - 1
_ENOUGH = Fraction(1, 32)  # of a record's share: what rounding parameters may cost
_SPARE = 1 + Fraction(1, 2**20)  # room for what a projection rounds
_FEW = 24  # roundings from whole numbers to an update
_HALF = 20  # bits of a parameter that meet features at once, where products are doubles
_EXPONENTS = 300  # of units, either way: far from where doubles end


@dataclass(frozen=True)
class Units:
    """What whole numbers of a run stand for; ``feature`` is a power of two.

    Attributes:
        bits: of a feature, 8 or 16.
        feature, parameter, score: how much one unit is.
        pieces: how many signed bytes a parameter has.
        shift: score = feature·parameter·2^shift.
        slope: how many units make a slope of 1.
        total: how much one unit of feature·slope is.
        limit: no slope is larger.
        largest: no parameter in the ball is larger.
        entry: no feature is larger.
    """

    bits: int
    feature: float
    parameter: float
    pieces: int
    shift: int
    score: float
    slope: float
    total: float
    limit: float
    largest: float
    entry: float

    @property
    def top(self) -> int:
        """The largest feature in its unit: 127, or what two signed bytes hold."""
        return 127 if self.bits == 8 else 127 * 256 + 127


def units_of(
    head: Head,
    columns: int,
    *,
    bits: int,
    entry: float,
    feature_bound: float,
    records: int,
    farthest: float,
    longest: float,
) -> Units:
    """Units for a run, from public numbers alone.

    Args:
        head: the loss.
        columns: features of a record.
        bits: of a feature, 8 or 16.
        entry: features are cut off here.
        feature_bound: no row is longer.
        records: in a batch, at most.
        farthest: no parameter is larger.
        longest: the parameters of no output are longer.
    """
    if columns > MOST_COLUMNS:
        raise UnsupportedError(
            f"products='exact' adds up to {MOST_COLUMNS} features in 32 bits, not {columns}: "
            "pass products='double'."
        )
    R, entry_bound = Fraction(feature_bound), Fraction(min(entry, feature_bound))
    feature = _power(entry_bound) - (bits - 1)
    largest = Fraction(farthest) * _SPARE
    limit = _limit(head)
    if not 2.0**-_EXPONENTS <= limit <= 2.0**_EXPONENTS:
        raise UnsupportedError(
            f"products='exact' needs slopes of a loss that are bounded and not all zero, and those "
            f"of this one go up to {limit:g}: clip the margin, or pass products='double'."
        )
    for pieces in (4, 5):
        parameter = Fraction(up(largest / (127 * 256 ** (pieces - 1))))
        moved = _moved(R, columns, parameter)
        if moved * records * _lipschitz(head) <= _ENOUGH * Fraction(limit):
            break
    # Scores in the finest unit of which 31 bits hold them all.
    bound = R * Fraction(longest) * _SPARE + 2 * moved
    product = parameter * Fraction(2) ** feature
    shift = max(0, _power(bound / (SCORE_TOP - 1) / product))
    most = R / Fraction(2) ** feature * Fraction(root_up(Fraction(columns))) * largest / parameter
    exponents = (feature, _power(product), _power(product) + shift)
    if max(map(abs, exponents)) > 2 * _EXPONENTS or most > 2**61:
        raise UnsupportedError(
            f"products='exact' has no units for features up to {float(R):g} (entries up to "
            f"{float(entry_bound):g}) and parameters up to {float(largest):g}: rescale the "
            "features, take a smaller radius, or pass products='double'."
        )
    return Units(
        bits=bits,
        feature=2.0**feature,
        parameter=float(parameter),
        pieces=pieces,
        shift=shift,
        score=float(product * 2**shift),  # exactly: a double times a power of two
        slope=SLOPE_TOP / limit,
        total=2.0**feature / (SLOPE_TOP / limit),
        limit=limit,
        largest=up(largest),
        entry=up(entry_bound),
    )


def _power(exact: Fraction) -> int:
    """The least k with exact <= 2^k.

    >>> _power(Fraction(1)), _power(Fraction(5)), _power(Fraction(1, 5))
    (0, 3, -2)
    """
    k = exact.numerator.bit_length() - exact.denominator.bit_length() - 1
    while Fraction(2) ** k < exact:
        k += 1
    return k


def _moved(R: Fraction, columns: int, parameter: Fraction) -> Fraction:
    """By how much rounding parameters moves a score: half a unit, and a quotient's last bits."""
    return R * Fraction(root_up(Fraction(columns))) * parameter / 2 * (1 + Fraction(1, 2**10))


def _limit(head: Head) -> float:
    """The largest slope of this loss."""
    natural = {"softmax": head.cap, "logistic": head.cap, "smoothed hinge": 1.0}
    return min(natural.get(head.kind, head.width), head.margin)


def _lipschitz(head: Head) -> Fraction:
    """How far slopes move, in Euclidean length, where no score moves by more than 1."""
    if head.kind == "softmax":
        return Fraction(1)
    sharpest = {"logistic": Fraction(1, 4), "smoothed hinge": 1 / Fraction(head.width)}
    return sharpest.get(head.kind, Fraction(1)) * Fraction(root_up(Fraction(head.outputs)))


def slope_error(head: Head, units: Units, columns: int, feature_bound: float) -> Fraction:
    """ε: how far a computed slope is from that at the exact scores."""
    over = 1 + 4 * gamma(columns + 8)  # rows are known to be short up to that
    R = Fraction(feature_bound) * over
    delta = _moved(R, columns, Fraction(units.parameter)) + Fraction(units.score) / 2
    C, limit = head.outputs, Fraction(units.limit)
    if head.kind == "softmax":
        weights = C * Fraction(2) ** (1 - weight_bits(C))
        computed = (Fraction(2) ** -34 + weights) * (1 + 2 / Fraction(head.cap))
    else:
        computed = Fraction(2) ** -34 * limit * Fraction(root_up(Fraction(C)))
    rounded = (
        Fraction(root_up(Fraction(C + 3))) * limit / (2 * SLOPE_TOP) * (1 + Fraction(2) ** -40)
    )
    return _lipschitz(head) * delta + computed + rounded


def fixed_arithmetic(
    training: Training,
    head: Head,
    units: Units,
    columns: int,
    feature_bound: float,
    ranks: int = 1,
) -> Arithmetic:
    """How far the computed mean gradient can be from the exact one, and its terms from K.

    The last line is what turning whole numbers into doubles, dividing and multiplying round: a
    sum of digits is at most four times the product of the largest slope and feature.
    """
    batches, records = training.batches, training.records
    count = batches.largest(records)
    over = 4 * gamma(columns + 8)
    R, K = Fraction(feature_bound) * (1 + over), Fraction(training.gradient_norm)
    error = count * R * slope_error(head, units, columns, feature_bound) + K * over
    error += 2 * over * count * K  # longer rows turn faster
    entries = Fraction(root_up(Fraction(columns * head.outputs)))
    error += gamma(_FEW + ranks) * 4 * count * Fraction(units.limit * units.entry) * entries
    error += gamma(_FEW + ranks) * count * K
    divisor = batches.exact_divisor(records)
    return Arithmetic(error=up(error / divisor))


def to_units(rows: Tensor, factors: Tensor | None, units: Units) -> Tensor:
    """Features as whole numbers of their unit, rounded towards zero; int8 or int16.

    >>> units = Units(8, 2.0**-7, 1.0, 4, 0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    >>> to_units(torch.tensor([[0.5, -0.999, 1.0]]), None, units).tolist()
    [[64, -127, 127]]
    """
    wide = rows.double()
    if factors is not None:
        wide = wide * factors[:, None]
    whole = torch.trunc(wide / units.feature).clamp_(-units.top, units.top)
    return whole.to(torch.int8 if units.bits == 8 else torch.int16)


def parameters_in_units(theta: Tensor, units: Units) -> Tensor:
    """Parameters as the nearest whole numbers of their unit; int64."""
    return rounded(theta.clamp(-units.largest, units.largest) * (1 / units.parameter)).long()


def gradient_sum(X: Tensor, y: Tensor, theta: Tensor, head: Head, units: Units) -> Tensor:
    """Σ of the gradients of these records, in double precision; what every kernel must equal.

    Args:
        X: features in their unit (`to_units`), (records, columns).
        y: one float64 per record.
        theta: (columns, outputs), float64.
        head, units: the run's.
    """
    whole = parameters_in_units(theta, units)
    shape = (2, *theta.shape)
    total = torch.zeros(shape, dtype=torch.int64, device=X.device)
    length = min(MOST_ROWS, max(64, (1 << 19) // (X.shape[1] + head.outputs)))
    for first in range(0, len(X), length):
        block = X[first : first + length].double()
        slope = slopes(scores(block, whole, units), y[first : first + length], head, units)
        total += weighted(block, slope)
    return in_doubles(total, units)


def scores(block: Tensor, whole: Tensor, units: Units) -> Tensor:
    """The scores of some rows, rounded to whole numbers of their unit, int32."""
    low = whole.remainder(1 << _HALF)
    high = (whole - low) >> _HALF
    exact = ((block @ high.double()).long() << _HALF) + (block @ low.double()).long()
    if units.shift:
        exact = (exact + (1 << (units.shift - 1))) >> units.shift
    return exact.clamp_(-SCORE_TOP, SCORE_TOP).int()


def slopes(scores: Tensor, y: Tensor, head: Head, units: Units) -> Tensor:
    """From scores to slopes, whole numbers of either's unit, int32.

    Additions, products and quotients of doubles in an order that is written down, and sums of
    whole numbers: every IEEE 754 machine returns these very bits. (PyTorch multiplies by the
    reciprocal where a tensor is divided by a number, so that none is.)
    """
    target = y[:, None].double()
    hit = target == torch.arange(head.outputs, device=y.device)
    if head.kind == "softmax":
        return _softmax_slopes(scores.long(), hit, head.cap, units)
    value = scores.double() * units.score
    if head.one_vs_rest:
        target = torch.where(hit, 1.0, -1.0).double()
    slope = _slope_of_one(value, target, head).clamp(-units.limit, units.limit)
    return rounded(slope * units.slope).int()


def _softmax_slopes(scores: Tensor, hit: Tensor, cap: float, units: Units) -> Tensor:
    """cap/max(cap, 1 − p_y)·(p − e_y), p = w/T in whole numbers w of 2^−q and their sum T.

    That is a·w − a·T·e_y with a = cap/max(T − w_y, cap·T), either product rounded by itself.
    """
    top = scores.amax(1, keepdim=True)
    weights = _weights(top - scores, weight_bits(scores.shape[1]), units)
    total = _total(scores, top, units)
    own = torch.where(hit, weights, 0.0).sum(1, keepdim=True)
    each = (1.0 / torch.maximum(total - own, total * cap)) * (cap * units.slope)
    return (rounded(weights * each) - torch.where(hit, rounded(each * total), 0.0)).int()


def _total(scores: Tensor, top: Tensor, units: Units) -> Tensor:
    """T: `GROUP` classes are added relative to the largest of them, and brought to the largest.

    So every group can be added where its scores are computed, before the largest is known.
    """
    total, bits = torch.zeros_like(top, dtype=torch.float64), weight_bits(scores.shape[1])
    for first in range(0, scores.shape[1], GROUP):
        group = scores[:, first : first + GROUP]
        largest = group.amax(1, keepdim=True)
        inside = _weights(largest - group, bits, units).sum(1, keepdim=True)
        total += rounded(inside * _falls(top - largest, units))
    return total


def farthest_below(units: Units) -> int:
    """From this many units below the largest score on, a class has no weight."""
    return min(2**32 - 1, int(FARTHEST / units.score))


def weight_bits(outputs: int) -> int:
    """q: so many bits after the point that the sum of all weights is exact in a double."""
    return min(48, 52 - outputs.bit_length())


def _weights(below: Tensor, bits: int, units: Units) -> Tensor:
    return rounded(_falls(below, units) * 2.0**bits)


def _falls(below: Tensor, units: Units) -> Tensor:
    """exp(−·) of so many units."""
    near = below.clamp(max=farthest_below(units)).double()
    return two_minus(near * (units.score * LOG2_E))


def _slope_of_one(value: Tensor, target: Tensor, head: Head) -> Tensor:
    """Of losses of one score, or of one for every output."""
    if head.kind == "error":
        return (value - target).clamp(-head.width, head.width)
    margin = value * target
    if head.kind == "logistic":
        small = exp_minus(margin.abs().clamp(max=FARTHEST))
        pull = torch.where(margin >= 0, small, 1.0) / (small + 1.0)
        return -target * pull.clamp(max=head.cap)
    short = 1.0 - margin
    if head.kind == "smoothed hinge":
        return -target * (short * (1 / head.width)).clamp(0.0, 1.0)
    return -target * short.clamp(0.0, head.width)


MAGIC = 1.5 * 2.0**52  # doubles around it are one apart: adding it rounds to whole numbers
LOG2_E = 1.4426950408889634
POWER = (  # 2^f for |f| ≤ 1/2 within 2^−39.7: coefficients of f⁸, f⁷, ..., 1
    1.334418095993795e-06,
    1.531420903803661e-05,
    0.000154030982978597,
    0.0013333434158352689,
    0.009618129558824302,
    0.05550410959227876,
    0.24022650694742637,
    0.6931471805412329,
    1.0,
)
FARTHEST = 64.0  # exp(−64) < 2^−92


def rounded(values: Tensor) -> Tensor:
    """The nearest whole numbers, of values below 2^51."""
    return (values + MAGIC) - MAGIC


def exp_minus(t: Tensor) -> Tensor:
    """exp(−t) for 0 ≤ t ≤ 64, within 2⁻³⁸ relatively.

    >>> t = torch.tensor([0.0, 1.0, 20.5], dtype=torch.float64)
    >>> bool(((exp_minus(t) / torch.exp(-t) - 1).abs() < 2**-38).all())
    True
    """
    return two_minus(t * LOG2_E)


def two_minus(z: Tensor) -> Tensor:
    """2^−z for 0 ≤ z ≤ 93, within 2⁻³⁹ relatively; 1 at 0.

    z = k − f with whole k and |f| ≤ 1/2, exactly: 2^−z = 2^−k·2^f, and the polynomial `POWER` is
    off by less than 2^−39.7; what its sixteen operations round is below 2⁻⁴⁸. Three roundings of
    z = t·log₂e, at most 93, are worth less than 2⁻⁴⁴.
    """
    k = rounded(z)
    f = k - z
    power = f * POWER[0] + POWER[1]
    for coefficient in POWER[2:]:
        power = power * f + coefficient
    return power * ((1023 - k.long()) << 52).view(torch.float64)


def weighted(block: Tensor, slope: Tensor) -> Tensor:
    """Σ feature·slope in two halves of the slopes' bits, int64: (2, columns, outputs)."""
    low = ((slope.long() + 0x8080) & 0xFFFF) - 0x8080
    high = (slope.long() - low) >> 16
    return torch.stack([(block.T @ half.double()).long() for half in (high, low)])


def in_doubles(total: Tensor, units: Units) -> Tensor:
    """What the two halves of a sum stand for."""
    high, low = total.double()
    value: Tensor = (high * 65536.0 + low) * units.total
    return value
