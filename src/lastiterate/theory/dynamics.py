"""What the updates of a run do to the distance of two runs: c, s and nu of every step.

Step k maps two runs at distance z to distance at most g_k(z) + s_k before its noise ν_k. The
table, with η the step size, λ and β the strong convexity and smoothness the step sees (the
data-free L2 term included), K the gradient norm:

- convex, no clipping at work or the margin clipped:  g(z) = c z, c = max(|1 − ηλ|, |1 − ηβ|);
  a clipped margin keeps convexity and smoothness, but only the L2 term keeps its curvature;
- convex, gradients clipped:  clipping destroys non-expansiveness. For r the L2 coefficient and b
  the smoothness of the data part, c = (1 − ηr)·(1 − ηb/(4(1 − ηr)))^(−1/2) (docs/theory);
- smooth, not convex:  c = |1 − ηr| + ηb (clipping is harmless);
- Hoelder gradient (L, p):  g(z) = |1 − ηr| z + ηL z^p;
- whatever the loss:  g(z) <= |1 − ηr| z + 2ηK for z > 0, because no two gradients differ by more.

Without a bound K on the gradients (a Langevin description has only their sensitivity) the terms
2ηK are infinite, and a loss of unknown modulus has none. All values are rounded up. Batches of
random size have their own rule (`poisson.batch_contraction`).

`Steps` holds the values: one number for all steps or one per step. A number is kept as a view that
takes no memory, so that 10^12 equal steps are as small as one, and a segment of them is a slice.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from lastiterate.description import Loss, Training
from lastiterate.description.fields import integer
from lastiterate.errors import DescriptionError
from lastiterate.theory.modulus import Modulus

Array = npt.NDArray[np.float64]
PerStep = float | Sequence[float] | Array


def alike(*values: Array) -> bool:
    """Whether each of these was given as one number for all steps."""
    return all(each.strides == (0,) for each in values)


def once(values: Array) -> Array:
    """The values, a number that stands for all steps only once."""
    return values[:1] if alike(values) else values


@dataclass(frozen=True, eq=False)
class Steps:
    """``count`` updates, by what they do to the distance of two runs; slices are segments of them.

    Args:
        c: the Lipschitz constant of each update; infinite if none is known.
        s: the step sensitivity, what the differing record adds where it is used.
        nu: the noise.
        count: how many steps there are.
        rounding_drift: what rounding adds to the distance of two runs in steps without the record.
        reach: no update adds more than this to a distance (2 eta K with gradients up to K).
        gap: what an update adds to a distance where that is not the sensitivity it is charged for.

    >>> steps = Steps(0.9, [3.0, 2.0, 1.0], 1.0, 3)
    >>> steps[1:].s.tolist(), steps[1:].c.tolist(), steps.constant
    ([2.0, 1.0], [0.9, 0.9], False)
    >>> Steps(0.9, 1.0, 1.0, 10**12)[10**6 :].count
    999999000000
    """

    c: Array
    s: Array
    nu: Array
    count: int
    rounding_drift: Array
    reach: Array
    gap: Array
    moduli: tuple[Modulus, ...]

    def __init__(
        self,
        c: PerStep,
        s: PerStep,
        nu: PerStep,
        count: int,
        *,
        rounding_drift: PerStep = 0.0,
        reach: PerStep = math.inf,
        gap: PerStep | None = None,
    ) -> None:
        given = {"c": c, "s": s, "nu": nu, "rounding_drift": rounding_drift, "reach": reach}
        given["gap"] = s if gap is None else gap
        count = integer("count", count, at_least=0)
        object.__setattr__(self, "count", count)
        object.__setattr__(self, "moduli", ())
        for name, value in given.items():
            object.__setattr__(self, name, _of_every_step(name, value, count))

    @property
    def constant(self) -> bool:
        """Whether every step is the same by construction: closed forms then apply."""
        return alike(self.c, self.s, self.nu, self.rounding_drift, self.reach, self.gap)

    @property
    def one(self) -> tuple[float, float, float]:
        """c, s and nu of the first step: of every step, where they are constant."""
        return float(self.c[0]), float(self.s[0]), float(self.nu[0])

    def __getitem__(self, segment: slice) -> Steps:
        kept = {name: value[segment] for name, value in self._values().items()}
        parts = [modulus.part(segment) for modulus in self.moduli]
        return Steps(**kept, count=len(range(self.count)[segment])).under(*parts)

    def under(self, *moduli: Modulus) -> Steps:
        """The same steps, of updates that have these moduli; all hold, and the first is least."""
        found = Steps(**self._values(), count=self.count)
        object.__setattr__(found, "moduli", moduli)
        return found

    def replace(self, **changes: PerStep) -> Steps:
        """The same steps with other values; a new s is also a new gap unless one is given."""
        if "s" in changes:
            changes = {"gap": changes["s"], **changes}
        return Steps(**{**self._values(), **changes}, count=self.count).under(*self.moduli)

    @property
    def rows(self) -> Array:
        """The least modulus (c, h, p, e, cap) of every step; c z if none is given."""
        if self.moduli:
            return self.moduli[0].rows(self.count)
        values = (self.c, 0.0, 1.0, 0.0, math.inf)
        return np.stack([np.broadcast_to(value, self.count) for value in values])

    def _values(self) -> dict[str, Array]:
        other = ("count", "moduli")
        return {name: value for name, value in vars(self).items() if name not in other}


def _of_every_step(name: str, value: PerStep, count: int) -> Array:
    array = np.asarray(value, dtype=np.float64).view()
    array.flags.writeable = False
    if array.ndim == 0:
        array = np.broadcast_to(array, (count,))
    if array.shape != (count,):
        why = "every step needs its own"
        raise DescriptionError(f"{name} of the steps", array.shape, f"{count} numbers", why)
    if not np.all(once(array) >= 0):
        why = "a privacy bound from anything else would mean nothing"
        raise DescriptionError(f"{name} of the steps", value, "at least 0 at every step", why)
    return array


# --- from the description ---------------------------------------------------------------------

ROUNDING = 1 + 2**-50  # a few rounding errors of the expressions below
OUT_OF_RANGE = "its updates expand beyond the range of doubles"
_STEEPEST = 1e300  # a larger Lipschitz constant says nothing that a double can hold
_SMALLEST_SQUARE = 1e-290
_BLOCK = 1 << 14  # doubles whose intermediate results stay in the cache
_SPLIT = 2.0**27 + 1  # halves the digits of a double


def contraction(etas: Array, loss: Loss, clipping: str) -> Array | None:
    """The Lipschitz constant of each update, rounded up; None if no linear bound is known."""
    if loss.kind == "unknown" or (loss.kind == "holder" and loss.exponent != 1):
        return None
    out = np.empty(len(etas))
    for first in range(0, len(etas), _BLOCK):
        part = slice(first, first + _BLOCK)
        out[part] = _contraction(etas[part], loss, clipping)
    return out


def _contraction(etas: Array, loss: Loss, clipping: str) -> Array:
    smoothness, l2 = loss.smoothness or 0.0, loss.regularization
    shrink = _uncancelled(np.abs(1 - etas * l2), etas, l2)
    bend = _times(etas, smoothness)
    expanding = (shrink + bend) * ROUNDING
    if not loss.convex:
        return expanding
    if clipping == "gradient":
        shrink = np.where(etas * l2 < 1, shrink, 0.0)  # on the line both are tiny: `expanding` wins
        return np.minimum(expanding, _clipped_convex(shrink, bend))
    own = loss.strong_convexity if clipping == "none" else 0.0
    slowest = _uncancelled(np.abs(1 - etas * (l2 + own)), etas, l2, own)
    fastest = _uncancelled(np.abs(1 - etas * l2 - bend), etas, l2, smoothness)
    c = np.maximum(slowest, fastest) * ROUNDING
    # In exact arithmetic 0 <= ηλ <= ηβ < 2 gives c <= 1; rounding up must not cross that line.
    capped: Array = np.where(etas * l2 + bend < 2, np.minimum(c, 1.0), c)
    return capped


def _uncancelled(found: Array, etas: Array, *curvatures: float) -> Array:
    """|1 − η·(their sum)|, from error-free transformations where doubles cancel.

    1 − 0.1·10 is 0 in doubles and not in truth: two runs are then scaled, and nothing is forgotten.
    """
    small = np.flatnonzero(found < 0.5)
    if len(small):
        total = sum(map(Fraction, curvatures), Fraction(0))
        found[small] = distance_to_one(etas[small], total)
    return found


def distance_to_one(etas: Array, total: Fraction) -> Array:
    """|1 − ηt| where ηt lies between 1/4 and 2, low by at most the factor ROUNDING.

    t = high + low, ηhigh = p + e and 1 − p − e = r + q exactly (Dekker 1971). Only a t of more than
    53 bits has ``low``; what it contributes is rounded, and a bound of its error is added.

    >>> distance_to_one(np.array([0.1, 0.125]), Fraction(10)).tolist()  # 0.1 is a little more
    [5.551115123125783e-17, 0.25]
    """
    exponent = total.numerator.bit_length() - total.denominator.bit_length()
    scaled = total / Fraction(2) ** exponent  # between 1/2 and 2: nothing over- or underflows
    high = float(scaled)
    low = float(scaled - Fraction(high))
    eta = np.ldexp(etas, exponent)
    p, e = two_product(eta, high)
    r, first = two_sum(1.0, -p)
    r, second = two_sum(r, -e)
    rest = eta * low
    value = np.abs(r + (first + second - rest))
    if low:
        value += 2.0**-50 * (np.abs(first) + np.abs(second) + np.abs(rest))
    return np.asarray(value)


def two_sum(a: Array | float, b: Array) -> tuple[Array, Array]:
    """a + b rounded, and what rounding took away, exactly (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def two_product(a: Array, b: float) -> tuple[Array, Array]:
    """ab rounded, and what rounding took away, exactly if no part of it underflows (Dekker)."""
    product = a * b
    spread = a * _SPLIT
    a_high = spread - (spread - a)
    b_high = b * _SPLIT - (b * _SPLIT - b)
    a_low, b_low = a - a_high, b - b_high
    lost = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, lost


def _clipped_convex(shrink: Array, bend: Array) -> Array:
    """(1 − ηr)·(1 − ηb/(4(1 − ηr)))^(−1/2) where it is defined, else infinity."""
    share = np.divide(bend, 4 * shrink, out=np.full(len(bend), np.inf), where=shrink > 0)
    inside = 1 - share * ROUNDING  # what is left may cancel, and is rounded down
    root = np.sqrt(np.maximum(np.where(share > 0.5, inside - 2**-50, inside), 0.0))
    c: Array = np.divide(shrink * ROUNDING, root, out=np.full(len(bend), np.inf), where=root > 0)
    return c


def reach(etas: Array, training: Training) -> Array:
    """2ηK: how far gradients alone drive two runs apart, rounded up; infinite without K."""
    return _times(etas, 2 * training.gradient_norm) * ROUNDING


def no_modulus(training: Training, loss: Loss) -> str | None:
    """Why nothing bounds how far a step drives two runs apart, or None."""
    rough = loss.kind == "unknown" or loss.smoothness in (None, math.inf)
    if rough and math.isinf(training.gradient_norm):
        return (
            "the loss has no known smoothness and the run no gradient_norm (a sensitivity bounds "
            "a difference, not the gradients): nothing bounds how far a step drives two runs "
            "apart; give gradient_norm, or a smoothness"
        )
    return None


def crowded(loss: Loss, crowding: float) -> Loss:
    """The loss that a batch of random size has, with at most so many times the nominal records.

    An empty batch has no curvature at all.
    """
    smoothness = loss.smoothness
    if smoothness is not None:
        smoothness *= crowding * ROUNDING
    return dataclasses.replace(loss, smoothness=smoothness, strong_convexity=0.0)


def modulus(
    etas: Array,
    training: Training,
    loss: Loss,
    clipping: str | None = None,
    crowding: float = 1.0,
) -> Modulus | None:
    """The modulus of each step: the smaller of what the loss and what its gradients allow.

    None if a step has none (see `no_modulus`), or one beyond the range of doubles. ``clipping``
    is the run's unless it is given; ``crowding``: see `crowded`.
    """
    if crowding != 1.0:
        loss = crowded(loss, crowding)
    slope, cap = shrinkage(etas, loss), reach(etas, training) * (crowding * ROUNDING)
    if loss.kind == "holder" and loss.exponent != 1:
        c, h = slope, _times(etas, loss.smoothness or 0.0) * ROUNDING
        power = np.full(len(etas), 0.0 if loss.exponent is None else loss.exponent)
    else:
        linear = contraction(etas, loss, clipping or training.clipping)
        c = np.full(len(etas), np.inf) if linear is None else linear
        h, power = np.zeros(len(etas)), np.ones(len(etas))
    rough = ~(np.maximum(c, h) <= _STEEPEST)
    if np.any(rough & np.isinf(cap)) or np.any(slope > _STEEPEST):
        return None
    c, h = np.where(rough, slope, c), np.where(rough, cap, h)
    return Modulus(c=c, h=h, p=np.where(rough, 0.0, power), e=slope, cap=cap)


def implied_moduli(
    etas: Array, training: Training, loss: Loss, crowding: float = 1.0
) -> Iterator[Modulus]:
    """The modulus of each step, and those of the weaker descriptions that the given one implies.

    A search that is not exact takes the best of all: knowing more never costs more.
    """
    weaker = [(loss, training.clipping)]
    if loss.convex:
        weaker.append((loss, "gradient"))
        weaker.append((dataclasses.replace(loss, kind="nonconvex", strong_convexity=0.0), "none"))
    weaker.append((Loss.unknown(regularization=loss.regularization), "none"))
    seen: list[Array] = []
    for known, clipping in weaker:
        shape = modulus(etas, training, known, clipping, crowding)
        if shape is None:
            continue
        rows = shape.rows(len(etas))
        if not any(np.array_equal(rows, other) for other in seen):
            seen.append(rows)
            yield shape


def shrinkage(etas: Array, loss: Loss) -> Array:
    """|1 − ηr|: what the data-free L2 term alone does to a distance, rounded up."""
    l2 = loss.regularization
    return np.asarray(_uncancelled(np.abs(1 - etas * l2), etas, l2) * ROUNDING)


def _times(etas: Array, constant: float) -> Array:
    """ηx with 0·inf = 0: a step of size zero does not move, however rough the loss."""
    with np.errstate(over="ignore"):
        return np.multiply(etas, constant, out=np.zeros(len(etas)), where=etas > 0)


def displacement(etas: Array, each: float | Array, training: Training) -> Array:
    """η·each, and what rounding to a grid adds at every step, rounded up.

    Whatever drives two runs apart goes through here: the grid is charged in this one place.
    """
    with np.errstate(over="ignore"):  # beyond all doubles: infinite
        apart = etas * each * ROUNDING
        return (apart + training.grid_rounding) * ROUNDING if training.grid_rounding else apart


def step_sensitivities(etas: Array, training: Training, change: float | None = None) -> Array:
    """s: what the differing record adds at a step whose batch holds it, rounded up.

    The record changes the sum of the batch's gradients by ``change``, its sensitivity if None.
    """
    change = training.sensitivity if change is None else change
    return displacement(etas, training.impulse_of(change), training)


def rounding_drifts(etas: Array, training: Training) -> Array:
    """What rounding may move two runs apart at a step whose batch does not hold the record.

    Both compute the same sum, but at different parameters, and each may be off by its own error
    and is rounded to the grid by itself.
    """
    arithmetic = training.arithmetic
    return displacement(etas, 0.0 if isinstance(arithmetic, str) else arithmetic.charge, training)


def squared_ratio(s: Array, nu: Array) -> Array:
    """(s/ν)², with 0/0 = 0 (nothing to hide) and s/0 = inf; constant views stay views.

    What would underflow is lifted: an impulse that is there never counts as none.
    """
    if len(s) > 1 and alike(s, nu):
        return np.broadcast_to(squared_ratio(s[:1], nu[:1]), s.shape)
    with np.errstate(over="ignore", under="ignore"):
        ratio = np.divide(s, nu, out=np.where(s > 0, np.inf, 0.0), where=nu > 0)
        return np.where(s > 0, np.maximum(ratio * ratio, _SMALLEST_SQUARE), 0.0)


def at_once(s: Array, nu: Array) -> float:
    """√Σ(s/ν)²: mu of paying for every step when it comes, rounded up."""
    costs = squared_ratio(s, nu)
    total = float(costs[0]) * len(costs) if len(costs) and alike(costs) else float(costs.sum())
    return math.sqrt(total) * (1 + 1e-12)


def counted(columns: Array) -> tuple[Array, npt.NDArray[np.int64]]:
    """The different columns, and how many there are of each; equal neighbours cost no sorting.

    >>> counted(np.array([[2.0, 2.0, 1.0, 2.0]]))
    (array([[1., 2.]]), array([1, 3]))
    """
    new = np.concatenate([[True], np.any(columns[:, 1:] != columns[:, :-1], axis=0)])
    starts = np.flatnonzero(new[: columns.shape[1]])
    lengths = np.diff(np.append(starts, columns.shape[1]))
    kinds, kind = np.unique(columns[:, starts], axis=1, return_inverse=True)
    return kinds, np.bincount(kind.ravel(), lengths, kinds.shape[1]).astype(np.int64)


def weighted_sum(weights: Array, values: Array) -> float:
    """The sum of the products (without BLAS, whose threads cost more than they give here)."""
    return float(np.einsum("i,i->", weights, values))


def reachable(etas: Array, loss: Loss, clipping: str) -> tuple[Array, Array]:
    """The multipliers c' ≥ 0 of linear updates x ↦ c'x + const that the declared class contains.

    Linear losses are in every class that allows curvature 0; quadratic ones fill the rest up to
    the smoothness. Rounded inwards, because lower references must stay inside the class.
    """
    floor = loss.strong_convexity if loss.convex and clipping == "none" else 0.0
    top = 1 - etas * (loss.regularization + floor)
    ceiling = 0.0 if loss.kind == "unknown" else (loss.smoothness or 0.0)
    if clipping != "none" or loss.kind == "holder":
        ceiling = floor = 0.0  # curvature would meet the clip or break the Hoelder bound
    bend = _times(etas, ceiling)
    low = np.maximum(1 - etas * loss.regularization - bend, 0.0) * ROUNDING
    high = np.maximum(top, 0.0) / ROUNDING
    return np.minimum(low, high), high
