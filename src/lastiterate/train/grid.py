"""The grid that a run's parameters live on, so that nobody reads records out of low bits.

**Statement.** Parameters are whole multiples of g, a power of two that is fixed by public numbers.
One update is

    θ ← project(box(θ − R(inc) + g·N)),    inc = η·(Σ gradients/divisor + regularization·θ),

R rounds to the nearest multiple of g, N = round((ν/g)·Z) with Z ideal Gaussians (`noise.rounded`),
box clips every coordinate to public bounds, and project is the projection on a ball around the
start, truncated towards its centre to the grid: the described one, or one that is so wide that it
practically never acts (`reach`). All of it but inc is exact in doubles. With an error of the
computed mean gradient of at most e, this is the described run, in which every step drives two runs
farther apart by at most 2ηe + 4g√d more than theirs in real numbers: `charge` and `grid_rounding`
(`Arithmetic`).
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
at most (3/8)·g√d. In the projection (`projection`) lengths are off by δ (`room`) relatively and
points by 4δ·radius, and the radius is at most g√d/(16δ): g√d/4, twice that for two runs: ½·g√d.
Together (7/8)·g√d. ∎

**The choice of g.** Fine enough to be cheap, 2⁻²⁴/√d of the smallest impulse, and 2⁻¹² of the noise
where that is next to none; coarse enough for doubles to be exact. A description that already has a
grid keeps it if that is coarse enough: whoever calibrates noise does so for a grid, and that one is
used.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Arithmetic, Loss, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses.rounding import root_up, up
from lastiterate.train.reach import below, each, learnt_ball, own_ball, steepest
from lastiterate.train.summation import charged

Parameters = NDArray[np.float64]

FINE = 2.0**-24  # of the smallest impulse, over √d
BOX = 2.0**51  # multiples of the grid that a coordinate may have
INTERIM = 2.0**52  # ... between the map and the noise
_SMOOTH = 2.0**-12  # of the smallest noise: a coarser grid would be seen in what is released
_SCALE = 2.0**-41  # of the largest noise: what the sampler draws at
_PROXIMAL = 2.0**-46  # of what a proximal step computes in floats
_SMALLEST, _LARGEST = 2.0**-900, 2.0**200
_LEAST_BALL = 2.0**20  # multiples of the grid


@dataclass(frozen=True)
class Grid:
    """Its spacing, where its run stays, and how long parameters and mean gradients can be.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=100, steps=10, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> grid = Grid.of(run, np.zeros(4), radius=math.inf, l2=0.0)
    >>> math.log2(grid.spacing)  # an impulse of 0.01, over √4
    -32.0
    >>> grid.ball
    16.0
    """

    spacing: float
    box: float
    ball: float
    own: bool  # whether the ball is the grid's, and not a described one
    longest: float
    steepest: float

    @classmethod
    def of(cls, training: Training, start: Parameters, radius: float, l2: float) -> Grid | None:
        """The grid of a run; None without noise, or if nothing says how far the run can get."""
        loudest = float(each(training.noises).max(initial=0.0))
        ball = own_ball(training, start, l2) if math.isinf(radius) else radius
        if not loudest or math.isinf(ball):
            return None
        first, size = float(np.abs(start).max(initial=0.0)), max(start.size, 1)
        steep = 4 * l2 * float(each(training.step_sizes).max())
        narrow = 2.0 ** max(0, math.ceil(math.log2(steep))) if steep > 0 else 1.0
        # The finest for which the proof holds, and the box is beyond the ball.
        held = 16 * room(size) / math.sqrt(size) * ball
        if training.proximal is not None:
            longest_step = float(each(training.step_sizes).max())
            held = max(held, _PROXIMAL * training.proximal.scale(longest_step))
        least = max(held, 2 * narrow / BOX * (first + ball), _SCALE * loudest, _SMALLEST)
        spacing = told if (told := _told(training)) >= least else _power(training, start, least)
        if not spacing <= _LARGEST:
            raise UnsupportedError(
                f"Parameters of up to {first + ball:.3g} and noise of up to {loudest:.3g} are too "
                "large for doubles to add exactly: take another unit for the features or the "
                "labels."
            )
        if own := math.isinf(radius):
            ball = max(ball, _LEAST_BALL * spacing)
        box, longest = spacing * BOX / narrow, _longest(start, ball)
        return cls(spacing, box, ball, own, longest, steepest(training))

    def on(self, start: Parameters) -> Parameters:
        """The nearest point of the grid; a zero has no sign."""
        near: Parameters = np.rint(start / self.spacing) * self.spacing + 0.0
        return near

    def left(self, offset: Parameters) -> bool:
        """Whether a run that got so far is at the end of the grid's own ball: it diverged."""
        if not self.own:
            return False
        truncated = math.sqrt(offset.size) * self.spacing / self.ball
        return not float(np.linalg.norm(offset / self.ball)) + truncated < 1 - 2.0**-20

    def arithmetic(self, engine: Arithmetic, size: int, per_length: float) -> Arithmetic:
        """What a run on this grid says about itself.

        With the error of this engine's sums, and ``per_length`` more (`summation.score_error`) for
        every unit of length that parameters can have; no more than twice the longest mean gradient,
        as the exact one and the computed one are both no longer.
        """
        scores = Fraction(per_length) * Fraction(self.longest)
        if math.isfinite(self.steepest):
            scores = min(scores, 2 * Fraction(self.steepest))
        error = up(Fraction(engine.error) + scores)
        return Arithmetic(grid=self.spacing, error=error, coordinates=size)


def on_its_grid(
    training: Training,
    engine: Arithmetic | Callable[[float], Arithmetic | None] | None,
    start: Parameters,
    loss: Loss,
    with_noise: Callable[[Training], Training],
    per_length: float = 0.0,
    height: float = math.inf,
) -> tuple[Training, float]:
    """A run whose noise pays for the grid that it will run on, and the radius to project it on.

    The grid is chosen for noise of the size of an impulse, where the description has none yet; if
    ``with_noise`` finds that much more is needed, it is asked again on a coarser grid.

    Args:
        training: the description up to its noise.
        engine: how far sums can be off, or a function of the radius that says it; None if nothing
            bounds it.
        start, loss: of the run.
        with_noise: puts as much noise into a description as is needed.
        per_length: what its scores round (`summation.score_error`).
        height: no record's loss is larger where all parameters are 0.
    """

    def grid_of(run: Training) -> tuple[Grid | None, float]:
        radius = min(run.radius, learnt_ball(run, loss, height, start))
        return Grid.of(run, start, radius, loss.regularization), radius

    run = training
    if not each(run.noises).any():
        largest = float(each(run.step_sizes).max(initial=0.0))
        run = run.replace(noise=run.impulse * largest)
    try:
        grid, radius = grid_of(run)
    except UnsupportedError:  # of a guess; the run may need less noise, or none
        grid, radius = None, math.inf
    told: Training | None = None
    while True:
        needed = engine(radius) if callable(engine) else engine
        if grid is not None and needed is not None:
            needed = grid.arithmetic(needed, start.size, per_length)
        # Never less than before: noise that is found to a tolerance must not end in a circle.
        wanted = charged(training if told is None else told, needed)
        if told == wanted:
            return run, radius
        told = wanted
        run = with_noise(told)
        grid, radius = grid_of(run)


def _told(training: Training) -> float:
    told = training.arithmetic
    return told.grid if isinstance(told, Arithmetic) else 0.0


def _power(training: Training, start: Parameters, least: float) -> float:
    """The power of two at or below FINE/√d of the smallest impulse, or just above ``least``."""
    sizes, noises = each(training.step_sizes), each(training.noises)
    smallest = float(sizes[sizes > 0].min(initial=math.inf))
    impulse = smallest * training.sensitivity / training.batches.divisor(training.records)
    fine = FINE / math.sqrt(max(start.size, 1)) * impulse if math.isfinite(impulse) else 0.0
    smooth = _SMOOTH * float(noises[noises > 0].min())
    wanted = max(min(fine, smooth), 2 * least)
    return below(wanted)


def _longest(start: Parameters, ball: float) -> float:
    """No parameters of the run are longer; a start that is rounded to the grid at most doubles."""
    first = float(np.abs(start).max(initial=0.0))
    return up(2 * Fraction(root_up(Fraction(start.size))) * Fraction(first) + Fraction(ball))


def room(size: int) -> float:
    """δ: how far the computed length of a vector is off, relatively.

    With blocks of b a square meets 3b − 2 roundings, the length half of that, and its own.
    """
    return (1.5 * block(size) + 6) * 2.0**-53


def block(size: int) -> int:
    """Numbers that are added up at once, in three rounds: b³ ≥ d."""
    return next(b for b in itertools.count(int(size ** (1 / 3))) if b**3 >= size)


def length(n: Parameters) -> float:
    """The length of a vector of whole numbers, 2δ longer than computed: it is never short."""
    n = n.ravel()
    blocks = n * n
    for _ in range(2 if n.size else 0):
        blocks = np.add.reduceat(blocks, np.arange(0, blocks.size, block(n.size)))
    return math.sqrt(float(blocks.sum())) * (1 + 2 * room(n.size))


def projection(offset: Parameters, radius: float, spacing: float) -> Parameters | None:
    """The nearest point of the ball, truncated towards its centre to the grid; None: it is inside.

    In multiples of the spacing, where nothing overflows or underflows. What is returned is inside
    the ball, because `length` is never short.

    >>> projection(np.array([3.0, 4.0]), 1.0, 0.25).tolist(), projection(np.zeros(2), 1.0, 0.25)
    ([0.5, 0.75], None)
    """
    n, limit = offset / spacing, radius / spacing
    if float(np.vdot(n, n)) <= limit * limit / 2:  # in whatever order that was added up
        return None
    long = length(n)
    if long <= limit:
        return None
    return np.trunc(n * (limit / long)) * spacing
