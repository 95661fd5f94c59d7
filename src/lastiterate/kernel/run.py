"""The described run, read from a certificate, and what a theorem needs of each step, in balls.

The update of step k is  theta <- prox_project(theta - eta_k (sum of gradients / divisor + l2 theta)
+ nu_k N(0, I)).  Per step: ``c`` (Lipschitz constant), ``g`` (modulus), ``s`` (step sensitivity:
what the record of the unit adds to the distance of two runs, rounding included), ``drift`` (what
rounding adds without the record) and ``nu`` (noise). Every list has one entry where all steps are
``alike``.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, Union

from lastiterate.kernel.balls import Ball, arb, require, upper
from lastiterate.kernel.document import (
    LARGEST_WHOLE,
    Table,
    doubles,
    fields,
    flag,
    number,
    numbers,
    well_formed,
    whole,
    word,
)

MOST_STEPS = 10**7  # that are walked one by one
_TINY = 2.0**-64  # a pull that 1 minus it in 128 bits cannot hide
SIZED = ("cyclic", "shuffled", "reshuffled", "random-allocation", "without-replacement")
IN_EPOCHS = ("full", *SIZED[:4])
HIDDEN = (*SIZED[1:], "poisson")  # batches are random and secret
FIXED_SIZE = ("full", "cyclic", "shuffled", "reshuffled", "without-replacement")
REPEATED = ("full", "cyclic", "shuffled")  # every epoch has the same batches
Values = Union[float, "array[float]"]  # of all steps, or one for each


@dataclass(frozen=True)
class Loss:
    """What is known of the loss of one record; ``regularization`` is the data-free L2 term."""

    kind: str
    smoothness: float | None
    strong_convexity: float
    regularization: float
    exponent: float | None
    provenance: str
    origin: Table | None

    @property
    def convex(self) -> bool:
        """Whether each record's loss is convex."""
        return self.kind == "convex"


@dataclass(frozen=True)
class Unit:
    """Whom the certificate is for.

    ``records`` records, at most ``per_batch`` in a batch, used from ``first_step`` on and before
    ``last_step``, with gradients up to ``gradient_norm``.
    """

    records: int = 1
    per_batch: int | None = None
    first_step: int = 0
    last_step: int | None = None
    gradient_norm: float | None = None

    @property
    def timed(self) -> bool:
        """Whether some steps do not use the records."""
        return self.first_step > 0 or self.last_step is not None


@dataclass(frozen=True)
class Arithmetic:
    """Multiples of ``grid`` in so many coordinates; mean gradients are off by ``error``."""

    grid: float
    error: float
    coordinates: int


@dataclass(frozen=True)
class Proximal:
    """The data-free map after every update, with the fields of its kind."""

    kind: str
    values: Table

    @property
    def rounds(self) -> bool:
        """Whether it leaves the grid and is rounded to it again."""
        return self.kind in ("group-lasso", "simplex")

    @property
    def constrains(self) -> bool:
        """Whether it projects on a bounded set of its own."""
        return self.kind in ("box", "simplex")


@dataclass(frozen=True)
class Modulus:
    """g(z) = min(factor z, slope z + min(constant z^exponent, cap)) for z > 0, g(0) = 0."""

    slope: Ball
    factor: Ball | None
    constant: Ball | None
    exponent: Ball
    cap: Ball | None

    def __call__(self, z: Ball) -> Ball:
        """g at an upper bound of the distance."""
        z = upper(z)
        if not z > 0:
            return arb(0)
        least = arb.pos_inf() if self.factor is None else upper(self.factor * z)
        if self.constant is not None:
            least = least.min(upper(self.slope * z + self.constant * z**self.exponent))
        if self.cap is not None:
            least = least.min(upper(self.slope * z + self.cap))
        return least


@dataclass(frozen=True)
class Run:
    """A run with its loss, released checkpoints and unit; `read_run` checks and makes one."""

    records: int
    steps: int
    step_size: Values = field(repr=False)
    noise: Values = field(repr=False)
    gradient_norm: float
    batches: Table
    diameter: float
    adjacency: str
    clipping: str
    sensitivity: float
    window: int  # of the released last iterates
    averages: bool  # whether their average is released
    schedule: str | None
    final_noise: float
    momentum: float
    arithmetic: Arithmetic | None
    proximal: Proximal | None
    correlation: tuple[float, ...] | None
    loss: Loss
    releases: tuple[int, ...] = ()
    unit: Unit = Unit()
    empty: Unit = Unit()  # whose places are empty at steps that do not use them

    @property
    def scheme(self) -> str:
        """The name of the batches."""
        return str(self.batches["scheme"])

    @property
    def size(self) -> int:
        """Nominal batch size; all records of full batches and of Poisson batches, at most."""
        return int(self.batches.get("size", self.records))

    @property
    def rate(self) -> float | None:
        """The probability of a Poisson batch."""
        return self.batches.get("rate")

    @property
    def largest_batch(self) -> int:
        """The most records that one batch can hold."""
        return self.size if self.scheme in FIXED_SIZE else self.records

    @property
    def batches_per_epoch(self) -> int | None:
        """Steps of one pass over the data; None where batches are drawn anew at every step."""
        if self.scheme not in IN_EPOCHS:
            return None
        return 1 if self.scheme == "full" else self.records // self.size

    @property
    def constant(self) -> bool:
        """Whether all steps have one step size and one noise."""
        single = not (isinstance(self.step_size, array) or isinstance(self.noise, array))
        return single and self.schedule is None and self.final_noise == 1

    @property
    def alike(self) -> bool:
        """Whether all steps are identical, for the unit too."""
        return self.constant and not self.unit.timed

    @property
    def end(self) -> int:
        """Where the hidden steps end and the released window begins."""
        return max(self.steps - self.window + 1, 0)

    @property
    def segments(self) -> list[tuple[int, int]]:
        """Segments of hidden steps, each between two known points."""
        cuts = sorted({0, self.end, *(t for t in self.releases if 0 < t < self.end)})
        return list(pairwise(cuts))

    @property
    def single_point(self) -> bool:
        """Whether projection leaves a single point."""
        constrains = self.proximal is not None and self.proximal.constrains
        return self.diameter == 0 and not constrains

    @property
    def idle(self) -> bool:
        """Whether nothing ever moves two runs apart."""
        return bool(self.impulse == 0 and self.grid_rounding == 0)

    @property
    def drifting(self) -> bool:
        """Whether rounding moves two runs apart at steps that do not use the record."""
        return bool(self.rounding != 0 or self.grid_rounding != 0)

    def in_a_batch(self, unit: Unit) -> int:
        """The most records of the unit in one batch."""
        most = unit.records if unit.per_batch is None else unit.per_batch
        return min(most, self.largest_batch)

    def for_unit(self, unit: Unit) -> Run:
        """The run for another unit; places of this one stay empty where they are."""
        return replace(self, unit=unit, empty=self.unit)

    def _indices(self, first: int, last: int) -> range:
        require(self.alike or last - first <= MOST_STEPS, f"more than {MOST_STEPS:,} steps")
        return range(first, min(last, first + 1) if self.alike else last)

    def step_sizes(self, first: int, last: int) -> list[Ball]:
        """eta of the steps first, ..., last - 1."""
        steps = self._indices(first, last)
        if isinstance(self.step_size, array):
            return [arb(self.step_size[k]) for k in steps]
        ball, start = arb(self.step_size), self.steps
        if self.schedule == "equalised":  # the doubles of the trainer: same operations
            batches = self.batches_per_epoch or 1
            start = self.steps - batches
            scale = [math.sqrt(i / batches) for i in range(batches, 0, -1)]
        return [ball if k < start else arb(self.step_size * scale[k - start]) for k in steps]

    def nu(self, first: int, last: int) -> list[Ball]:
        """Standard deviations of the noise."""
        steps = self._indices(first, last)
        many = isinstance(self.noise, array)
        same = None if many else arb(self.noise)
        found = [arb(self.noise[k]) if many else same for k in steps]  # type: ignore[index]
        if self.final_noise != 1 and steps and steps[-1] == self.steps - 1:
            final = self.noise[-1] if isinstance(self.noise, array) else self.noise
            found[-1] = arb(final * math.sqrt(self.final_noise))
        return found

    @cached_property
    def divisor(self) -> Ball:
        """What the sum of a batch is divided by: nominal, never the realised count."""
        return arb(self.size) if self.rate is None else arb(self.rate) * self.records

    @cached_property
    def rounding(self) -> Ball:
        """What computed sums add to the distance of two runs, per unit of step size."""
        return arb(0) if self.arithmetic is None else 2 * arb(self.arithmetic.error)

    @cached_property
    def grid_rounding(self) -> Ball:
        """What rounding to the grid adds at every step: 4 g sqrt(d), or 6 with a rounded prox."""
        if self.arithmetic is None or not self.arithmetic.grid:
            return arb(0)
        times = 6 if self.proximal is not None and self.proximal.rounds else 4
        return times * arb(self.arithmetic.grid) * arb(self.arithmetic.coordinates).sqrt()

    @cached_property
    def impulse(self) -> Ball:
        """What one record of the unit adds per unit of step size, rounding included.

        In full batches: what all records of the unit add.
        """
        change = arb(self.sensitivity)
        if self.unit.gradient_norm is not None:
            ends = 2 if self.adjacency == "replace" else 1
            change = change.min(ends * arb(self.unit.gradient_norm))
        if self.scheme == "full":
            change *= self.unit.records
        if self.single_point:
            change = arb(0)
        return change / self.divisor + self.rounding

    def moves(self, each: Ball, first: int, last: int) -> list[Ball]:
        """eta ``each`` and the rounding to the grid."""
        return [eta * each + self.grid_rounding for eta in self.step_sizes(first, last)]

    def s(self, first: int, last: int) -> list[Ball]:
        """Step sensitivities; steps before the unit joins or after it leaves only round."""
        used = self.moves(self.impulse, first, last)
        if not self.unit.timed:
            return used
        unused = self.drift(first, last)
        stop = self.steps if self.unit.last_step is None else self.unit.last_step
        return [
            used[k - first] if self.unit.first_step <= k < stop else unused[k - first]
            for k in range(first, last)
        ]

    def drift(self, first: int, last: int) -> list[Ball]:
        """What rounding adds at steps that do not use the record."""
        return self.moves(self.rounding, first, last)

    def apart(self, eta: Ball) -> Ball:
        """2 eta K: how far gradients alone move two runs apart in a step; infinite without K."""
        if math.isinf(self.gradient_norm):
            return arb(0) if eta == 0 else arb.pos_inf()
        return 2 * eta * arb(self.gradient_norm)

    @cached_property
    def curvature(self) -> Ball:
        """Strong convexity of a batch in which places of a timed unit may be empty."""
        value, empty = arb(self.loss.strong_convexity), Fraction(0)
        for unit in (self.empty, self.unit):
            gone = self.in_a_batch(unit) if unit.timed else 0
            empty = Fraction(max(self.size - gone, 0), self.size)
            value = value * empty.numerator / empty.denominator
        return value

    def c(self, first: int, last: int, crowding: Ball | None = None) -> list[Ball] | None:
        """Lipschitz constants of the updates; None if unknown.

        ``crowding``: a batch of random size has between 0 and this many times the smoothness.
        """
        fixed = crowding is not None or self.scheme in FIXED_SIZE
        require(fixed, "its batches have random sizes")
        loss = self.loss
        if loss.kind == "unknown" or (loss.kind == "holder" and loss.exponent != 1):
            return None
        if loss.smoothness is None or math.isinf(loss.smoothness):
            return None
        smooth, l2 = arb(loss.smoothness), arb(loss.regularization)
        smooth = smooth if crowding is None else smooth * crowding
        etas = self.step_sizes(first, last)
        if not loss.convex:
            return [abs(1 - eta * l2) + eta * smooth for eta in etas]
        if self.clipping == "gradient":
            return [_clipped(_one_minus(eta * l2), eta * smooth) for eta in etas]
        low = l2 + self.curvature if self.clipping == "none" and crowding is None else l2
        found = []
        for eta in etas:
            fast, slow = 1 - eta * (l2 + smooth), _one_minus(eta * low)
            found.append(slow if fast >= 0 else abs(slow).max(abs(fast)))
        return found

    def g(
        self, first: int, last: int, crowding: Ball | None = None
    ) -> Sequence[Callable[[Ball], Ball]]:
        """The modulus of each step, of batches of at most ``crowding`` times the nominal size."""
        loss, linear = self.loss, self.c(first, last, crowding)
        times = arb(1) if crowding is None else crowding
        bounded = math.isfinite(self.gradient_norm)
        holder = loss.kind == "holder" and loss.smoothness not in (None, math.inf)
        require(bounded or holder or linear is not None, "nothing bounds the updates")
        l2, exponent = arb(loss.regularization), arb(1 if loss.exponent is None else loss.exponent)
        return [
            Modulus(
                abs(1 - eta * l2),
                None if linear is None else linear[k],
                times * eta * arb(loss.smoothness) if holder else None,
                exponent,
                times * self.apart(eta) if bounded else None,
            )
            for k, eta in enumerate(self.step_sizes(first, last))
        ]


def _one_minus(pull: Ball) -> Ball:
    """1 - pull, or 1 where no ball could tell it from that."""
    return arb(1) if pull >= 0 and pull < _TINY else 1 - pull


def _clipped(shrink: Ball, bend: Ball) -> Ball:
    """Convex with clipped gradients: the smaller of its own and the non-convex constant."""
    plain = abs(shrink) + bend
    if not shrink > 0:
        return plain
    inside = 1 - bend / (4 * shrink)
    return plain.min(shrink * inside.rsqrt()) if inside > 0 else plain


# --- reading --------------------------------------------------------------------------------------

_REQUIRED = ("records", "steps", "step_size", "noise", "batches", "adjacency")
_OPTIONAL = (
    *("gradient_norm", "diameter", "clipping", "sensitivity", "release", "schedule"),
    *("final_noise", "momentum", "arithmetic", "proximal", "correlation"),
)
_UNIT = ("records", "per_batch", "first_step", "last_step", "gradient_norm")
_BATCHES = {
    "full": ((), ()),
    "poisson": (("rate",), ()),
    "random-allocation": (("size",), ("same_every_epoch",)),
}
_PROXIMAL = {
    "l1": (("weight",), ("spared",)),
    "group-lasso": (("weight",), ("sizes", "spared")),
    "box": (("low", "high"), ()),
    "simplex": ((), ("total",)),
}


def read_run(content: Table) -> Run:
    """The run of a certificate's ``training``, ``loss``, ``releases`` and ``unit``."""
    table = fields(content["training"], "training", _REQUIRED, _OPTIONAL)
    records = whole(table["records"], "records", 1)
    steps = whole(table["steps"], "steps")
    batches = _read_batches(table["batches"], records)
    adjacency = word(table["adjacency"], "adjacency", ("replace", "zero-out"))
    clipping = word(table.get("clipping", "none"), "clipping", ("none", "gradient", "margin"))
    well_formed({"gradient_norm", "sensitivity"} & set(table), "nothing bounds the gradients")
    norm = number(table.get("gradient_norm", "inf"), "gradient_norm", infinite=True)
    implied = norm * (2.0 if adjacency == "replace" else 1.0)
    sensitivity = number(table.get("sensitivity", implied), "sensitivity", 0.0, implied)
    well_formed(math.isfinite(norm) or clipping == "none", "clipping needs a gradient_norm")
    window, averages = _read_release(table.get("release", "last"), steps)
    run = Run(
        records=records,
        steps=steps,
        step_size=_per_step(table["step_size"], "step_size", steps),
        noise=_per_step(table["noise"], "noise", steps),
        gradient_norm=norm,
        batches=batches,
        diameter=number(table.get("diameter", "inf"), "diameter", infinite=True),
        adjacency=adjacency,
        clipping=clipping,
        sensitivity=sensitivity,
        window=window,
        averages=averages,
        schedule=_maybe(table, "schedule", lambda x: word(x, "schedule", ("equalised",))),
        final_noise=number(table.get("final_noise", 1.0), "final_noise", 5e-324),
        momentum=number(table.get("momentum", 0.0), "momentum", 0.0, 1.0),
        arithmetic=_read_arithmetic(table.get("arithmetic", "exact")),
        proximal=_maybe(table, "proximal", _read_proximal),
        correlation=_maybe(table, "correlation", _read_correlation),
        loss=_read_loss(content["loss"]),
    )
    if run.schedule is not None:
        epoch = run.batches_per_epoch
        whole_epochs = epoch is not None and steps % epoch == 0
        well_formed(whole_epochs and not isinstance(run.step_size, array), "the schedule")
    well_formed(run.proximal is None or run.momentum == 0, "a proximal step with momentum")
    plain = run.momentum == 0 and run.constant
    well_formed(run.correlation is None or plain, "correlated noise of other steps")
    releases = content["releases"]
    well_formed(isinstance(releases, list), "releases is not a list")
    released = tuple(whole(step, "releases", 1, steps - 1) for step in releases)
    well_formed(all(a < b for a, b in pairwise(released)), "releases are not in order")
    unit = _read_unit(content["unit"], run) if "unit" in content else Unit()
    return replace(run, releases=released, unit=unit)


def _maybe(table: Table, name: str, read: Callable[[Any], Any]) -> Any:
    return read(table[name]) if name in table else None


def _per_step(value: Any, name: str, steps: int) -> Values:
    if isinstance(value, list | dict):
        well_formed(steps > 0, f"{name} is a list for no steps")
        return numbers(value, name, steps)
    return number(value, name)


def _read_batches(value: Any, records: int) -> Table:
    well_formed(isinstance(value, dict) and "scheme" in value, "batches have no scheme")
    scheme = word(value["scheme"], "batches.scheme", ("full", "poisson", *SIZED))
    required, optional = _BATCHES.get(scheme, (("size",), ()))
    table = fields(value, "batches", ("scheme", *required), optional)
    if "size" in table:
        whole(table["size"], "batches.size", 1, records)
    if "rate" in table:
        number(table["rate"], "batches.rate", 5e-324, 1.0)
    if "same_every_epoch" in table:
        flag(table["same_every_epoch"], "batches.same_every_epoch")
    return table


def _read_release(value: Any, steps: int) -> tuple[int, bool]:
    if value == "last":
        return 1, False
    table = fields(value, "release", ("tail_average",), ("decay",))
    if "decay" in table:
        number(table["decay"], "release.decay", 0.0, 1.0)
    return whole(table["tail_average"], "release", 1, max(steps, 1)), True


def _read_arithmetic(value: Any) -> Arithmetic | None:
    if value == "exact":
        return None
    table = fields(value, "arithmetic", (), ("grid", "error", "coordinates"))
    grid = number(table.get("grid", 0.0), "arithmetic.grid", 0.0, 2.0**200)
    well_formed(not grid or math.frexp(grid)[0] == 0.5, "arithmetic.grid is no power of two")
    error = number(table.get("error", 0.0), "arithmetic.error")
    return Arithmetic(grid, error, whole(table.get("coordinates", 1), "arithmetic.coordinates", 1))


def _read_proximal(value: Any) -> Proximal:
    well_formed(isinstance(value, dict) and "kind" in value, "proximal has no kind")
    kind = word(value["kind"], "proximal.kind", tuple(_PROXIMAL))
    table = fields(value, "proximal", ("kind", *_PROXIMAL[kind][0]), _PROXIMAL[kind][1])
    if "weight" in table:
        number(table["weight"], "proximal.weight")
    if "spared" in table:
        whole(table["spared"], "proximal.spared")
    if "sizes" in table:
        sizes = doubles(table["sizes"], "proximal.sizes")
        well_formed(all(1 <= x <= LARGEST_WHOLE for x in sizes), "proximal.sizes")
        table = {**table, "sizes": sizes}
    if kind == "box":
        low = number(table["low"], "proximal.low", -math.inf)
        well_formed(number(table["high"], "proximal.high", -math.inf) > low, "proximal.high")
    if "total" in table:
        number(table["total"], "proximal.total", 5e-324)
    return Proximal(kind, table)


def _read_correlation(value: Any) -> tuple[float, ...]:
    """(1, l_1, l_2, ...) with l_d <= 0 and a sum of at least 0: noise is taken back in part."""
    found = doubles(value, "correlation")
    good = len(found) > 1 and found[0] == 1 and all(-1 <= x <= 0 for x in found[1:])
    well_formed(good and found[-1] != 0, "correlation takes back noise in another way")
    well_formed(sum(map(Fraction, found)) >= 0, "correlation takes back more than there was")
    return tuple(found)


def _read_loss(value: Any) -> Loss:
    optional = ("smoothness", "strong_convexity", "regularization", "kind", "exponent", "origin")
    table = fields(value, "loss", ("provenance",), optional)
    kind = word(table.get("kind", "convex"), "kind", ("convex", "nonconvex", "holder", "unknown"))
    well_formed(("smoothness" in table) == (kind != "unknown"), "smoothness of the loss")
    well_formed(("exponent" in table) == (kind == "holder"), "exponent of the loss")
    smooth = _maybe(table, "smoothness", lambda x: number(x, "smoothness", infinite=True))
    strong = number(table.get("strong_convexity", 0.0), "strong_convexity")
    well_formed(strong == 0 or (kind == "convex" and strong <= smooth), "strong_convexity")
    return Loss(
        kind,
        smooth,
        strong,
        number(table.get("regularization", 0.0), "regularization"),
        _maybe(table, "exponent", lambda x: number(x, "exponent", 0.0, 1.0)),
        word(table["provenance"], "provenance", ("proved", "declared", "estimated")),
        table.get("origin"),
    )


def _read_unit(value: Any, run: Run) -> Unit:
    """The unit in its short form: no field has the value that it has when it is absent."""
    table = fields(value, "unit", (), _UNIT)
    well_formed(table, "the unit is not in its short form")
    records = whole(table.get("records", 2), "unit.records", 2, run.records)
    records = records if "records" in table else 1
    norm = _maybe(
        table, "gradient_norm", lambda x: number(x, "unit.gradient_norm", 0.0, run.gradient_norm)
    )
    first = whole(table.get("first_step", 1), "unit.first_step", 1, run.steps)
    first = first if "first_step" in table else 0
    last = _maybe(table, "last_step", lambda x: whole(x, "unit.last_step", first, run.steps))
    most = _maybe(table, "per_batch", lambda x: whole(x, "unit.per_batch", 1, records - 1))
    if most is not None:
        spread = run.scheme in ("cyclic", "shuffled", "reshuffled")
        slots = most * (run.batches_per_epoch or 0)
        well_formed(spread and records <= slots, "unit.per_batch does not fit the batches")
    return Unit(records, most, first, last, norm)
