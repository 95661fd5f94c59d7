"""The grid that a run's parameters live on, so that nobody reads records out of low bits.

**Statement.** Parameters are whole multiples of g, a power of two that is fixed by public numbers.
One update is

    θ ← project(box(θ − R(inc) + g·N)),    inc = η·(Σ gradients/divisor + regularization·θ),

R rounds to the nearest multiple of g, N = round((ν/g)·Z) with Z ideal Gaussians (`noise.rounded`),
box clips every coordinate to public bounds, and project is the projection on the ball, truncated
towards its centre to the grid. All of it but inc is exact in doubles. With an error of the computed
mean gradient of at most e, this is the described run, in which every step drives two runs farther
apart by at most 2ηe + 4g√d more than theirs in real numbers: `Arithmetic.charge` and `slip`.
A proximal step comes before the projection, and may cost 2g√d more (`proximal`).

*Proof.* Theorem A (docs/theory/arithmetic.md) is about X' = R(P[R(m) + R(νZ)]) and charges
2ηe + 2g√d, and g√d more where the projection is rounded again. As θ is on the grid, R(θ − inc) and
θ − R(inc) are the same up to ties, which any fixed way may break. It remains to show that the rest
is worth no more than one more g√d, and that the sums are exact.

*Exact sums.* |θ| ≤ 2⁵¹g. θ − R(inc) is exact if it is at most 2⁵³g; if not, it is beyond 2⁵²g in
doubles too (they are monotone), where it is clipped (to a box, and boxes are projections). Adding
g·N then is exact up to 2⁵³g; beyond, it is outside the box of at most 2⁵¹g that clips it. So the
result is that of real numbers, whatever N is. θ − centre is exact as well.

*What is rounded besides.* Let u = 2⁻⁵³. Products and sums with the regularization round by at most
3u·η·l2·|θ| in every coordinate, and the box has η·l2·box ≤ 2⁴⁹g: 3g/16, twice that for two runs, so
at most (3/8)·g√d. In the projection (`projection`) lengths are off by δ = (√d + 8)u relatively and
points by 4δ·radius, with radius ≤ 2⁴⁶g: (√d + 8)g/32, twice that for two runs: at most (9/16)·g√d.
Together (15/16)·g√d. ∎

**The choice of g.** Fine enough to be cheap, 2⁻²⁴/√d of the smallest impulse, and 2⁻¹² of the noise
where that is next to none; coarse enough for doubles to be exact. A description that already has a
grid keeps it if that is coarse enough: whoever calibrates noise does so for a grid, and that one is
used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Arithmetic, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses.rounding import root_up, up
from lastiterate.train.summation import charged

Parameters = NDArray[np.float64]

FINE = 2.0**-24  # of the smallest impulse, over √d
BOX = 2.0**51  # multiples of the grid that a coordinate may have
INTERIM = 2.0**52  # ... between the map and the noise
_SMOOTH = 2.0**-12  # of the smallest noise: a coarser grid would be seen in what is released
_RADIUS = 2.0**-46
_SCALE = 2.0**-41  # of the largest noise: what the sampler draws at
_WALK = 2.0**-46  # of what the noise adds up to: the box is 32 deviations away
_SMALLEST, _LARGEST = 2.0**-900, 2.0**200
_LEAST_BOX = 2.0**20  # multiples of the grid


@dataclass(frozen=True)
class Grid:
    """Its spacing, the box that coordinates are clipped to, and how long parameters can be.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=100, steps=10, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> grid = Grid.of(run, np.zeros(4), radius=math.inf, l2=0.0)
    >>> math.log2(grid.spacing)  # an impulse of 0.01, over √4
    -32.0
    """

    spacing: float
    box: float
    longest: float

    @classmethod
    def of(cls, training: Training, start: Parameters, radius: float, l2: float) -> Grid | None:
        """The grid of a run; None without noise, or if nothing says how far the run can get."""
        furthest = reach(training, start, radius, l2)
        loudest = float(_each(training.noises).max(initial=0.0))
        if not loudest or math.isinf(furthest):
            return None
        steep = 4 * l2 * float(_each(training.step_sizes).max())
        narrow = 2.0 ** max(0, math.ceil(math.log2(steep))) if steep > 0 else 1.0
        walk = _WALK * narrow * loudest * math.sqrt(training.steps)
        held = _RADIUS * radius if math.isfinite(radius) else 0.0
        if training.proximal is not None:
            longest = float(_each(training.step_sizes).max())
            held = max(held, _RADIUS * training.proximal.scale(longest))
        far = 2 * narrow / BOX * furthest
        # The finest for which the proof holds, and the box is beyond what the run does.
        least = max(held, far, walk, _SCALE * loudest, _SMALLEST)
        span = max(4 * furthest, 64 * loudest * math.sqrt(training.steps))
        spacing = told if (told := _told(training)) >= least else _power(training, start, least)
        if not spacing <= _LARGEST:
            raise UnsupportedError(
                f"Parameters of up to {furthest:.3g} and noise of up to {loudest:.3g} are too "
                "large for doubles to add exactly: take another unit for the features or the "
                "labels."
            )
        box = min(spacing * BOX / narrow, max(2 * _below(span), _LEAST_BOX * spacing))
        return cls(spacing, box, _longest(start, radius, box))

    def on(self, start: Parameters) -> Parameters:
        """The nearest point of the grid; a zero has no sign."""
        near: Parameters = np.rint(start / self.spacing) * self.spacing + 0.0
        return near

    def arithmetic(self, engine: Arithmetic, size: int, per_length: float) -> Arithmetic:
        """What a run on this grid says about itself.

        With the error of this engine's sums, and ``per_length`` more (`summation.score_error`) for
        every unit of length that parameters can have.
        """
        error = up(Fraction(engine.error) + Fraction(per_length) * Fraction(self.longest))
        return Arithmetic(grid=self.spacing, error=error, coordinates=size)


def on_its_grid(
    training: Training,
    engine: Arithmetic | None,
    start: Parameters,
    l2: float,
    with_noise: Callable[[Training], Training],
    per_length: float = 0.0,
) -> Training:
    """A run whose noise pays for the grid that it will run on.

    The grid is chosen for noise of the size of an impulse, where the description has none yet; if
    ``with_noise`` finds that much more is needed, it is asked again on a coarser grid.

    Args:
        training: the description up to its noise.
        engine: how far sums can be off; None if nothing bounds it.
        start, l2: of the run.
        with_noise: puts as much noise into a description as is needed.
        per_length: what its scores round (`summation.score_error`).
    """
    run, radius = training, training.radius
    if not _each(run.noises).any():
        largest = float(_each(run.step_sizes).max(initial=0.0))
        run = run.replace(noise=run.impulse * largest)
    try:
        grid = Grid.of(run, start, radius, l2)
    except UnsupportedError:  # of a guess; the run may need less noise, or none
        grid = None
    told: Training | None = None
    while True:
        needed = engine
        if grid is not None and engine is not None:
            needed = grid.arithmetic(engine, start.size, per_length)
        # Never less than before: noise that is found to a tolerance must not end in a circle.
        wanted = charged(training if told is None else told, needed)
        if told == wanted:
            return run
        told = wanted
        run = with_noise(told)
        grid = Grid.of(run, start, radius, l2)


def reach(training: Training, start: Parameters, radius: float, l2: float) -> float:
    """How far from zero a coordinate can get without noise.

    Every update moves it by at most η·K·(largest batch/divisor); regularization pulls it back
    before it is farther out than K·(largest batch/divisor)/l2 (if η·l2 ≤ 1). A penalty's proximal
    step puts nothing farther out; a constraint's puts it within its bounds.
    """
    first = float(np.abs(start).max(initial=0.0))
    batches, records = training.batches, training.records
    pushed = training.gradient_norm * batches.largest(records) / batches.divisor(records)
    sizes = _each(training.step_sizes)
    total = float(sizes.sum()) * (training.steps / max(sizes.size, 1))
    furthest = first + pushed * total if total else first
    once = pushed * float(sizes.max(initial=0.0))
    if l2 > 0:
        furthest = min(furthest, max(first, pushed / l2) + once)
    if training.proximal is not None and training.proximal.constrains:
        furthest = max(first, training.proximal.reach) + once
    return min(furthest, first + radius)


def _each(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """One of equal numbers: a run of 10⁸ steps has its step size once."""
    return values[:1] if values.strides == (0,) else values


def _told(training: Training) -> float:
    told = training.arithmetic
    return told.grid if isinstance(told, Arithmetic) else 0.0


def _power(training: Training, start: Parameters, least: float) -> float:
    """The power of two at or below FINE/√d of the smallest impulse, or just above ``least``."""
    sizes, noises = _each(training.step_sizes), _each(training.noises)
    smallest = float(sizes[sizes > 0].min(initial=math.inf))
    impulse = smallest * training.sensitivity / training.batches.divisor(training.records)
    fine = FINE / math.sqrt(max(start.size, 1)) * impulse if math.isfinite(impulse) else 0.0
    smooth = _SMOOTH * float(noises[noises > 0].min())
    wanted = max(min(fine, smooth), 2 * least)
    return _below(wanted)


def _below(value: float) -> float:
    """The power of two at or below a positive number."""
    return math.ldexp(0.5, math.frexp(value)[1]) if math.isfinite(value) else math.inf


def _longest(start: Parameters, radius: float, box: float) -> float:
    """No parameters of the run are longer: those of the ball, or the corner of the box."""
    size = Fraction(start.size)
    if math.isinf(radius):
        return up(Fraction(root_up(size)) * Fraction(box))
    first = float(np.abs(start).max(initial=0.0))
    return up(2 * Fraction(root_up(size)) * Fraction(first) + Fraction(radius))


def room(size: int) -> float:
    """δ = (√d + 8)·2⁻⁵³: how far the computed length of a vector is off, relatively.

    Squares are added in blocks of √d and blocks one after another: a square meets 2√d + 1
    roundings, its root half of that, and its own.
    """
    return (math.sqrt(size) + 8) * 2.0**-53


def block(size: int) -> int:
    """Numbers that are added up at once."""
    return math.isqrt(size) + 1


def length(n: Parameters) -> float:
    """The length of a vector of whole numbers, 2δ longer than computed: it is never short."""
    n = n.ravel()
    blocks = np.add.reduceat(n * n, np.arange(0, n.size, block(n.size))) if n.size else n
    return math.sqrt(float(blocks.sum())) * (1 + 2 * room(n.size))


def projection(offset: Parameters, radius: float, spacing: float) -> Parameters | None:
    """The nearest point of the ball, truncated towards its centre to the grid; None: it is inside.

    In multiples of the spacing, where nothing overflows or underflows. What is returned is inside
    the ball, because `length` is never short.

    >>> projection(np.array([3.0, 4.0]), 1.0, 0.25).tolist(), projection(np.zeros(2), 1.0, 0.25)
    ([0.5, 0.75], None)
    """
    n = offset / spacing
    long, limit = length(n), radius / spacing
    if long <= limit:
        return None
    return np.trunc(n * (limit / long)) * spacing
