"""The loop: projected noisy gradient descent, exactly as described, on arrays of either backend.

    θ ← project(θ − η_k·(Σ_{i in batch k} g_i(θ)/divisor + regularization·θ) + ν_k·N(0, I))

with the batch scheme, the nominal divisor, the step sizes η, the noises ν, the clipping of the
per-record gradients g_i and the projection of the `Training`, before which its proximal step comes,
if there is one. With momentum m the noisy update u_k
moves a velocity, v ← m·v + u_k, and that the parameters, θ ← project(θ − v). Nothing but what it
releases leaves. Noise is added on a grid (`grid`), which every update that has any lives on.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.progress import shown
from lastiterate.description import Arithmetic, Loss, Training
from lastiterate.description.batches import Rows, RowStream, check_drawn_by
from lastiterate.errors import UnsupportedError
from lastiterate.noise import Source, unpredictable
from lastiterate.train.grid import INTERIM, Grid, Parameters, length, projection
from lastiterate.train.keeping import Keeping, fingerprint
from lastiterate.train.people import People
from lastiterate.train.proximal import fits, proximal_step
from lastiterate.train.result import Descent, concluded, continued, released, shares
from lastiterate.train.settings import Settings

_CORRELATED = (
    "Noise that later steps take back is added in plain doubles, whose last bits may tell: its "
    "guarantee is that of real numbers. Leave correlation out for a run that can be certified."
)
Array = Any  # NumPy's or PyTorch's: the rule adds and multiplies, whoever does it


class Total(Protocol):
    """What an update asks of gradients."""

    def total(self, parameters: Array, rows: Rows) -> Array:
        """The sum of the (clipped) gradients of the records in ``rows``; float64."""


class Gradients(Total, Protocol):
    """What a run asks of gradients."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of the parameters; None: whatever the start has."""

    @property
    def loss(self) -> Loss | None:
        """What is proved about the loss; None if nobody said."""

    @property
    def objection(self) -> str:
        """Why their sums have no proved error; empty if they have one."""

    @property
    def per_length(self) -> float:
        """How much more they can be off for every unit of the parameters' length."""

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far their sums of so many numbers can be off; None if that has no bound."""

    def content(self) -> Iterable[NDArray[Any]]:
        """Labels and records in their order, as far as they are known."""


class Backend:
    """Whose arrays the loop computes with: here NumPy's."""

    def put(self, values: Parameters) -> Array:
        """A copy where the run computes."""
        return values.copy()

    def taken(self, values: Array) -> Parameters:
        """A copy in host memory that later updates do not change."""
        copied: Parameters = values.copy()
        return copied

    def normal(self, source: Source, shape: tuple[int, ...]) -> Array:
        """Standard Gaussians of this source."""
        return source.normal(shape)

    def rounded_normal(self, source: Source, scale: float, shape: tuple[int, ...]) -> Array:
        """Whole numbers of this source with the law of round(scale·Z)."""
        return source.rounded_normal(scale, shape)

    def rounded(self, values: Array, spacing: float) -> Array:
        """The nearest multiples of a power of two; changes ``values``."""
        values *= 1 / spacing
        np.rint(values, out=values)
        values *= spacing
        return values

    def boxed(self, values: Array, bound: float) -> Array:
        """Every coordinate clipped to ±bound; changes ``values``."""
        return np.clip(values, -bound, bound, out=values)

    def projected(self, theta: Array, centre: Array, radius: float, spacing: float = 0.0) -> Array:
        """The point of the ball around ``centre`` that is nearest to ``theta``.

        With a spacing on its grid, and inside the ball (`grid.projection`).
        """
        if math.isinf(radius):
            return theta
        offset = theta - centre
        if spacing:
            inside = projection(offset, radius, spacing)
            return theta if inside is None else centre + inside
        length = float(np.linalg.norm(offset))
        return theta if length <= radius else centre + offset * (radius / length)

    def length(self, values: Array) -> Any:
        """Of a vector, never short."""
        return length(values)

    def running(self) -> AbstractContextManager[Any]:
        """What holds during the updates."""
        return np.errstate(over="ignore", invalid="ignore")  # divergence is reported at the end

    def quicker(self, updates: Updates) -> Callable[[int], None] | None:
        """The same updates by a faster way, if there is one."""
        return None


@dataclass(frozen=True)
class Run:
    """A description, and all that its updates need beside gradients."""

    training: Training
    l2: float
    centre: Parameters
    ball: float
    source: Source
    batches: RowStream
    keeping: Keeping
    progress: bool | None
    grid: Grid | None
    people: People | None
    started: tuple[str | None, bool] = (None, False)

    @classmethod
    def of(
        cls,
        objective: Any,
        training: Training,
        told: Settings,
        gradients: Gradients,
        rows: Callable[[Source], RowStream] | None = None,
    ) -> Run:
        """As it was described and told; ``objective`` is what a checkpoint remembers of it.

        ``rows``: the batches, where records are put in order and not their numbers.
        """
        source, l2 = told.source(), told.regularization
        centre, ball = told.centre(gradients.shape), told.ball(training)
        if training.correlation is not None and told.checkpoint is not None:
            raise UnsupportedError(
                "A checkpoint does not hold the noise that later steps take back: run correlated "
                "noise without a checkpoint."
            )
        # No sum of correlated ideal Gaussians is rounded exactly here: see `_CORRELATED`.
        grid = None if training.correlation is not None else Grid.of(training, centre, ball, l2)
        if grid is not None:
            centre = grid.on(centre)
            ball = grid.ball
        spacing = 0.0 if grid is None else grid.spacing
        if training.proximal is not None:
            fits(training.proximal, centre.shape, training.diameter, spacing)
        people = told.people(training)
        if rows is not None:
            check_drawn_by("Training on records outside of memory", training.batches)
        batches = training.batches.rows(training.records, source) if rows is None else rows(source)
        digested = told.checkpoint is not None
        content: Iterable[NDArray[Any]] = gradients.content() if digested else ()
        if people is not None:
            batches, content = people.rows(training, source), chain(content, people.content())
        run = fingerprint(objective, training, l2, ball, centre, spacing, content)
        keeping = Keeping(told.checkpoint, run, batches, source, bool(gradients.objection))
        ways = source, batches, keeping, told.progress
        return cls(training, l2, centre, ball, *ways, grid, people, told.started)

    def descended(self, gradients: Gradients, backend: Backend) -> Descent:
        """Run it, and say what ran."""
        if type(backend) is not Backend:
            check_drawn_by("Training with PyTorch", self.training.batches)
        final = descend(self, gradients, Draws(self, backend), backend)
        return self.told(final, gradients)

    def told(self, final: Parameters, gradients: Gradients) -> Descent:
        """What ran, with what it released."""
        ran = concluded(
            final,
            self.training,
            gradients.loss,
            self.batches.nonce,
            gradients.arithmetic(self.centre.size),
            self.grid,
            gradients.per_length,
            regularization=self.l2,
            coarse=gradients.objection or (_CORRELATED if self.training.correlation else ""),
            secure=unpredictable(self.source),
            marked=self.keeping.experiment,
        )
        done = continued(ran, *self.started)
        if self.people is None:
            return done
        return dataclasses.replace(done, unit=self.people.unit, above=self.people.above)


class Drawing(Protocol):
    """What an update asks of randomness: first its batch, then its noise."""

    def rows(self) -> Rows:
        """The next batch."""

    def noise(self, update: int) -> Array | None:
        """What is added in an update, a point of the run's grid; None if it has no noise."""


class Draws:
    """The batches and the noise of a run, asked for one after another."""

    def __init__(self, run: Run, backend: Backend) -> None:
        self._run, self._backend, self._noises = run, backend, run.training.noises
        self._before: list[Array] = []  # noise that later steps take back, the newest first

    def rows(self) -> Rows:
        """The next batch."""
        return next(self._run.batches)

    def noise(self, update: int) -> Array | None:
        """What is added in an update, a point of the run's grid; None if it has no noise."""
        nu, grid, shape = float(self._noises[update]), self._run.grid, self._run.centre.shape
        if nu == 0:
            return None
        if grid is None:
            drawn = nu * self._backend.normal(self._run.source, shape)
            return self._correlated(drawn, self._run.training.correlation)
        drawn = self._backend.rounded_normal(self._run.source, nu / grid.spacing, shape)
        drawn *= grid.spacing
        return drawn

    def _correlated(self, drawn: Array, coefficients: tuple[float, ...] | None) -> Array:
        """ξ_k + l_1 ξ_{k−1} + …: what is drawn now, less what is taken back."""
        if coefficients is None:
            return drawn
        total = drawn * 1.0
        for back, before in zip(coefficients[1:], self._before, strict=False):
            total = total + back * before
        self._before = [drawn, *self._before][: len(coefficients) - 1]
        return total


class Updates:
    """The updates of a run, one after another, and where it is."""

    def __init__(self, run: Run, gradients: Total, draws: Drawing, backend: Backend) -> None:
        self.run, self.gradients, self.draws, self._backend = run, gradients, draws, backend
        training = run.training
        self.divisor = training.batches.divisor(training.records)
        self._etas, self._nus = training.step_sizes, training.noises
        self.window, self._counts = shares(training)
        kept, nowhere = run.keeping.resume(), np.zeros_like(run.centre)
        self.done = 0 if kept is None else kept.step
        self.centre = backend.put(run.centre)
        self.theta = backend.put(run.centre if kept is None else kept.parameters)
        self.tail = backend.put(nowhere if kept is None else kept.tail)
        velocity = nowhere if kept is None or kept.velocity is None else kept.velocity
        self.velocity = backend.put(velocity) if training.momentum else None

    def moved(self, rows: Rows, eta: Any, noise: Array | None) -> Array:
        """The parameters after an update with this noise, before the projection."""
        grid, backend = self.run.grid, self._backend
        step = self._step(rows, eta)
        if grid is None:
            moved = self.theta - step
            return moved if noise is None else moved + noise
        moved = backend.boxed(self.theta - step, INTERIM * grid.spacing)
        if noise is not None:
            moved += noise
        return backend.boxed(moved, grid.box)

    def _step(self, rows: Rows, eta: Any) -> Array:
        """η times the mean gradient and the regularization, on the grid."""
        mean = self.gradients.total(self.theta, rows) / self.divisor
        step = eta * (mean + self.run.l2 * self.theta if self.run.l2 else mean)
        grid = self.run.grid
        return step if grid is None else self._backend.rounded(step, grid.spacing)

    def _proximal(self, theta: Array, eta: float) -> Array:
        """What the description lets follow an update."""
        step, grid = self.run.training.proximal, self.run.grid
        assert step is not None
        spacing = 0.0 if grid is None else grid.spacing
        return proximal_step(step, theta, eta, spacing, self._backend.length)

    def projected(self, theta: Array) -> Array:
        """The nearest parameters that the description allows."""
        spacing = 0.0 if self.run.grid is None else self.run.grid.spacing
        return self._backend.projected(theta, self.centre, self.run.ball, spacing)

    def update(self, k: int) -> None:
        """Update number k; asked for one after another."""
        rows, noise, eta = self.draws.rows(), self.draws.noise(k), float(self._etas[k])
        if self.velocity is None:
            moved = self.moved(rows, eta, noise)
            if self.run.training.proximal is not None:
                moved = self._proximal(moved, eta)
            self.theta = self.projected(moved)
        else:
            self._carry(self.velocity, self._noisy(rows, eta, noise))
        if self._counts[k]:
            self.tail = self.tail + float(self._counts[k]) * self.theta

    def _noisy(self, rows: Rows, eta: float, noise: Array | None) -> Array:
        """The noisy update u_k: what runs with momentum are accounted as if they published it."""
        step, grid = self._step(rows, eta), self.run.grid
        if grid is None:
            return step if noise is None else step - noise
        bound = INTERIM * grid.spacing
        step = self._backend.boxed(step, bound)
        return step if noise is None else self._backend.boxed(step - noise, bound)

    def _carry(self, velocity: Array, noisy: Array) -> None:
        """Momentum: the rest of the update is computed from noisy updates, on any numbers."""
        self.velocity = self.run.training.momentum * velocity + noisy
        self.theta = self.projected(self.theta - self.velocity)


def descend(run: Run, gradients: Total, draws: Drawing, backend: Backend) -> Parameters:
    """All updates; returns what the description releases."""
    with run.keeping.held():
        return _descend(run, gradients, draws, backend)


def _descend(run: Run, gradients: Total, draws: Drawing, backend: Backend) -> Parameters:
    updates, steps = Updates(run, gradients, draws, backend), run.training.steps
    with backend.running():
        update = backend.quicker(updates) or updates.update
        for k in shown("noisy descent", updates.done, steps, run.progress):
            update(k)
            if run.keeping.due(k + 1, run.training):
                carried = None if updates.velocity is None else backend.taken(updates.velocity)
                theta, tail = backend.taken(updates.theta), backend.taken(updates.tail)
                run.keeping.save(k + 1, theta, tail, carried)
        return ended(updates, backend)


def ended(updates: Updates, backend: Backend) -> Parameters:
    """What the description releases, after the last update; raises if the run diverged."""
    run, steps = updates.run, updates.run.training.steps
    final = backend.taken(updates.tail / updates.window if steps else updates.theta)
    last = backend.taken(updates.theta)
    if run.training.proximal is not None and run.training.release != "last" and steps:
        # An average of sparse iterates is not sparse: it gets a step of its own, post-processing.
        eta = float(run.training.step_sizes[-1])
        final = proximal_step(run.training.proximal, final, eta, 0.0, length)
    grid = None if run.training.momentum else run.grid
    final = released(final, run.training, grid is not None and grid.left(last - run.centre))
    run.keeping.end()
    return final
