"""One immutable description of a run.

The same `Training` feeds the accountant, the trainer, the auditor and the report, so that what is
certified is what ran. The update it describes is

    θ ← project(θ − step_size·(sum of the batch's gradients / batch size + data-free terms)
                  + noise·N(0, I))

with the nominal batch size as divisor, never the realised one. With momentum the noisy update is
added to a velocity first, and the velocity moves the parameters. A proximal step comes before the
projection.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.formatting import printed
from lastiterate.description.arithmetic import Arithmetic, Exactness, read_arithmetic
from lastiterate.description.batches import RUN, Batches, FullBatch, read_batches
from lastiterate.description.correlation import read_correlation
from lastiterate.description.fields import (
    Row,
    Stored,
    above,
    at_least,
    check_fields,
    check_rules,
    choice,
    documented,
    field_,
    integer,
    integer_from,
    known_fields,
    number,
    rows,
)
from lastiterate.description.proximal import Proximal, read_proximal
from lastiterate.description.release import Release, read_release
from lastiterate.description.schedule import Schedule, equalising, per_step
from lastiterate.description.serialization import Serializable
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

Array = NDArray[np.float64]
Adjacency = Literal["replace", "zero-out"]
Clipping = Literal["none", "gradient", "margin"]
PerStep = float | Iterable[float] | Schedule


_OR_INFINITE = at_least(0, infinite=True)
_ADJACENCY = choice("zero-out", "replace")


def _norm_and_adjacency(field: str, value: Any) -> tuple[float, str]:
    norm, adjacency = value
    return number(field, norm, infinite=True), _ADJACENCY(field, adjacency)


NOISE = "Noise and gradients"
# Two conventions of the literature, of `Training.dp_sgd` and `Training.langevin`.
DP_SGD = {
    "noise_multiplier": Row(at_least(0), "DP-SGD: noise = step size * this * clip / batch.", NOISE),
    "clip": Row(at_least(0), "DP-SGD: clipping norm of a gradient.", NOISE),
}
LANGEVIN = {
    "sigma": Row(at_least(0), "Langevin: noise variance = 2 * step size * sigma^2.", NOISE),
    "gradient_sensitivity": Row(
        at_least(0), "Langevin: change of the summed gradients by one record.", NOISE
    ),
}
# Three ways to say how much noise is added and how much one record can do.
NOISE_STYLES = (("noise", "gradient_norm"), tuple(DP_SGD), tuple(LANGEVIN))


@documented
@dataclass(frozen=True, kw_only=True)
class Training(Serializable):
    """One run of noisy gradient descent.

    ``steps`` or ``epochs`` says how long it is, ``gradient_norm`` or ``sensitivity`` how much one
    record can change a sum of gradients. Without a ``gradient_norm`` the theorems that need one do
    not apply.

    >>> from lastiterate import Shuffled
    >>> run = Training(records=60_000, steps=2_000, step_size=0.05, noise=0.0005,
    ...                gradient_norm=5.0, batches=Shuffled(size=1500))
    >>> run.sensitivity, run.epochs
    (5.0, 50.0)
    """

    table_name = "training"

    records: int = field_(integer, "Number of records.", RUN)
    steps: Stored[int, int | None] = field_(
        integer_from(0), "Number of updates (not epochs).", RUN, default=None
    )
    epochs: Stored[float, float | None] = field_(
        at_least(0), "Passes over the data, instead of steps.", RUN, default=None, derived=True
    )
    step_size: Stored[float | Schedule, PerStep] = field_(
        per_step, "Step size; a number, or one per step (in a file).", RUN
    )
    noise: Stored[float | Schedule, PerStep] = field_(
        per_step, "Standard deviation of the noise added to the parameters in one update.", NOISE
    )
    gradient_norm: float = field_(
        _OR_INFINITE, "No record's gradient is longer.", NOISE, default=math.inf, always=True
    )
    batches: Batches = field_(read_batches, "How each update picks its records.")
    diameter: float = field_(
        _OR_INFINITE, "Diameter of the set that parameters are projected on.", RUN, default=math.inf
    )
    adjacency: Stored[Adjacency, str] = field_(
        _ADJACENCY,
        "One record's gradient is zeroed out, or the record replaced.",
        NOISE,
        default="zero-out",
        required=True,
    )
    clipping: Stored[Clipping, str] = field_(
        choice("none", "gradient", "margin"), "How the norm is enforced.", NOISE, default="none"
    )
    sensitivity: Stored[float, float | None] = field_(
        at_least(0), "A smaller change of the sum of gradients.", NOISE, default=None
    )
    release: Release = field_(read_release, "The last iterate or a TailAverage.", default="last")
    schedule: Stored[Literal["equalised"] | None, str | None] = field_(
        choice("equalised"),
        "equalised: the last epoch's steps shrink.",
        RUN,
        default=None,
        options=("optimal",),
    )
    final_noise: float = field_(
        above(0),
        "Factor on the variance of the last step's noise.",
        NOISE,
        default=1.0,
        options=("best",),
    )
    momentum: float = field_(
        at_least(0, at_most=1), "Of the velocity; accounted by composition only.", RUN, default=0.0
    )
    arithmetic: Exactness = field_(
        read_arithmetic, "Rounding that trainers report, or exact real numbers.", default="exact"
    )
    proximal: Proximal | None = field_(
        read_proximal, "L1, GroupLasso, Box or Simplex after every update.", default=None
    )
    correlation: Stored[tuple[float, ...] | None, Iterable[float] | None] = field_(
        read_correlation, "Coefficients (1, l_1, ...) of correlated noise (DP-FTRL).", default=None
    )
    sensitivity_basis: tuple[float, str] | None = field_(
        _norm_and_adjacency, "What the sensitivity is stated for.", default=None, derived=True
    )

    def __post_init__(self) -> None:
        check_fields(self)
        put = object.__setattr__
        put(self, "batches", self.batches.of(self.records))
        put(self, "steps", self._steps())
        put(self, "epochs", self._epochs(self.steps))
        put(self, "sensitivity", self._sensitivity())
        put(self, "sensitivity_basis", (self.gradient_norm, self.adjacency))
        self.check_combinations()

    def check_combinations(self) -> None:
        """Raise a DescriptionError if fields contradict each other."""
        T, per_epoch = self.steps, self.batches_per_epoch
        named, correlated = self.schedule is not None, self.correlation is not None
        etas, noises = _length(self.step_size), _length(self.noise)
        window = getattr(self.release, "window", 0)
        clipped = self.clipping != "none" and math.isinf(self.gradient_norm)
        changing = self.momentum > 0 or not self.constant
        rules = [
            (etas not in (None, T), "step_size", f"a number or a list of {T} values"),
            (noises not in (None, T), "noise", f"a number or a list of {T} values"),
            (window > max(T, 1), "release.window", f"<= steps = {T}"),
            (clipped, "gradient_norm", f"finite with clipping={self.clipping!r}"),
            (named and etas is not None, "step_size", "one number if schedule is given"),
            (named and per_epoch is None, "schedule", "None for batches without epochs"),
            (
                named and T % (per_epoch or 1) != 0,
                "steps",
                f"a multiple of the {per_epoch} batches of an epoch if schedule is given",
            ),
            (self.proximal is not None and self.momentum > 0, "momentum", "0 with proximal"),
            (
                correlated and changing,
                "correlation",
                "None unless step_size and noise are constant and momentum is 0",
            ),
        ]
        check_rules(self, rules)

    def _steps(self) -> int:
        """The number of steps, given or from epochs."""
        steps, epochs = self.steps, self.epochs
        if epochs is None and steps is None:
            raise DescriptionError("steps", None, "an integer >= 0 unless epochs is given")
        if steps is None:
            return self.batches.steps(epochs, self.records)
        if epochs is not None and epochs != self._epochs(steps):
            raise DescriptionError("epochs", epochs, f"left out where steps={steps} is given")
        return steps

    def _epochs(self, steps: int) -> float:
        """Passes over the data (in expectation where batches are drawn at random)."""
        per_epoch = self.batches_per_epoch or self.records / self.batches.divisor(self.records)
        return steps / per_epoch

    def _sensitivity(self) -> float:
        """The declared sensitivity, if it is stated for this norm and adjacency, or the implied."""
        implied, basis = self.implied_sensitivity, self.sensitivity_basis
        stated = basis is None or basis == (self.gradient_norm, self.adjacency)
        if self.sensitivity is None or not stated:
            if math.isinf(implied):
                raise DescriptionError("gradient_norm", math.inf, "finite, or sensitivity given")
            return implied
        allowed = f"<= {implied:g}, which gradient_norm and adjacency={self.adjacency!r} imply"
        check_rules(self, [(self.sensitivity > implied, "sensitivity", allowed)])
        return self.sensitivity

    @property
    def implied_sensitivity(self) -> float:
        """What gradient_norm and adjacency imply by themselves: 2K or K (infinity without K)."""
        return self.gradient_norm * (2.0 if self.adjacency == "replace" else 1.0)

    @property
    def declared_sensitivity(self) -> float | None:
        """A sensitivity below what gradient_norm and adjacency imply; None if it is implied.

        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), sensitivity=0.5)
        >>> run.declared_sensitivity, run.replace(sensitivity=None).declared_sensitivity
        (0.5, None)
        """
        return self.sensitivity if self.sensitivity < self.implied_sensitivity else None

    def needs_gradient_norm(self, purpose: str) -> float:
        """Return K; raises if there is none, which ``purpose`` needs."""
        if math.isinf(self.gradient_norm):
            raise AssumptionError(
                f"This description has no gradient_norm, and {purpose} needs one: a sensitivity "
                "bounds how much one record changes the sum of gradients, not how long a gradient "
                "is. Give gradient_norm = K, if no record's gradient is longer than K."
            )
        return self.gradient_norm

    def needs_plain_updates(self, purpose: str) -> None:
        """Raise if ``purpose`` does not support the proximal step or the correlated noise."""
        if self.correlation is not None:
            raise UnsupportedError(
                f"{purpose} does not support correlated noise. Use noisy_descent, or leave it out."
            )
        if self.proximal is not None:
            raise UnsupportedError(
                f"{purpose} does not support {self.proximal}. Use noisy_descent, or leave it out."
            )

    @classmethod
    def langevin(
        cls,
        *,
        records: int,
        step_size: PerStep,
        sigma: float,
        gradient_sensitivity: float,
        gradient_norm: float | None = None,
        batches: Batches | None = None,
        steps: int | None = None,
        epochs: float | None = None,
        diameter: float = math.inf,
        adjacency: str = "zero-out",
        clipping: str = "none",
        release: Release = "last",
        schedule: str | None = None,
        final_noise: float = 1.0,
        momentum: float = 0.0,
        arithmetic: Exactness = "exact",
        proximal: Proximal | None = None,
        correlation: Iterable[float] | None = None,
    ) -> Self:
        """Return a run with noise of variance 2·step_size·sigma², as in Langevin diffusion.

        Arguments are those of `Training`, but for ``sigma``, ``gradient_sensitivity`` and the
        default of full batches.
        ``gradient_sensitivity`` is S_g: how much one record changes the sum of gradients. Where a
        record is replaced that is a difference of two gradients, which may both be long: the run
        has no gradient_norm unless one is given. Where a record's gradient is zeroed the difference
        is that gradient, and no gradient is longer than S_g.

        >>> run = Training.langevin(records=10, steps=5, step_size=0.02, sigma=3.0,
        ...                         gradient_sensitivity=4.0)
        >>> round(run.noise, 3), run.gradient_norm
        (0.6, 4.0)
        """
        fields = _own_fields(locals())
        sigma = LANGEVIN["sigma"].check("sigma", sigma)
        check = LANGEVIN["gradient_sensitivity"].check
        change = check("gradient_sensitivity", gradient_sensitivity)
        fields["gradient_norm"] = gradient_norm
        if gradient_norm is None:
            fields["gradient_norm"] = change if adjacency == "zero-out" else math.inf
        fields["batches"] = FullBatch() if batches is None else batches
        eta = fields["step_size"] = per_step("step_size", step_size)
        root = np.sqrt(2 * eta.values) if isinstance(eta, Schedule) else math.sqrt(2 * eta)
        return cls(**fields, noise=root * sigma, sensitivity=change)

    @classmethod
    def dp_sgd(
        cls,
        *,
        records: int,
        step_size: PerStep,
        noise_multiplier: float,
        clip: float,
        batches: Batches,
        steps: int | None = None,
        epochs: float | None = None,
        diameter: float = math.inf,
        adjacency: str = "zero-out",
        clipping: str = "gradient",
        sensitivity: float | None = None,
        release: Release = "last",
        schedule: str | None = None,
        final_noise: float = 1.0,
        momentum: float = 0.0,
        arithmetic: Exactness = "exact",
        proximal: Proximal | None = None,
        correlation: Iterable[float] | None = None,
    ) -> Self:
        """Return a run of DP-SGD as Opacus counts: gradients clipped, adjacency "zero-out".

        Arguments are those of `Training`, but for ``noise_multiplier`` (the standard deviation of
        the noise on the summed gradients, over ``clip``) and ``clip``: the noise is
        step_size·noise_multiplier·clip/batch.

        >>> from lastiterate import Poisson
        >>> run = Training.dp_sgd(records=1000, steps=10, step_size=0.5, noise_multiplier=1.1,
        ...                       clip=1.0, batches=Poisson(batch_size=100))
        >>> round(run.noise, 6), run.adjacency, run.clipping
        (0.0055, 'zero-out', 'gradient')
        """
        fields = _own_fields(locals())
        multiplier = DP_SGD["noise_multiplier"].check("noise_multiplier", noise_multiplier)
        clip = DP_SGD["clip"].check("clip", clip)
        divisor = read_batches("batches", batches).divisor(integer("records", records))
        scale = multiplier * clip / divisor
        eta = fields["step_size"] = per_step("step_size", step_size)
        noise = eta.values * scale if isinstance(eta, Schedule) else eta * scale
        return cls(**fields, noise=noise, gradient_norm=clip)

    # --- what the steps see -------------------------------------------------------------------

    @property
    def batches_per_epoch(self) -> int | None:
        """Updates in one pass over the data; None for batches that are drawn afresh each time."""
        return self.batches.per_epoch(self.records)

    @property
    def dropped_records(self) -> int:
        """Records that an epoch leaves out because the batch size does not divide their number."""
        return self.batches.dropped(self.records)

    @property
    def constant(self) -> bool:
        """Whether every step has the same step size and the same noise."""
        single = not (isinstance(self.step_size, Schedule) or isinstance(self.noise, Schedule))
        return single and self.schedule is None and self.final_noise == 1

    @property
    def step_sizes(self) -> Array:
        """η of every step (a view that takes no memory when constant)."""
        if isinstance(self.step_size, Schedule):
            return self.step_size.values
        if self.schedule == "equalised":
            batches = self.batches_per_epoch or 1
            sizes = np.full(self.steps, self.step_size)
            if self.steps:
                sizes[-batches:] *= equalising(batches)
            return sizes
        return np.broadcast_to(np.float64(self.step_size), (self.steps,))

    @property
    def noises(self) -> Array:
        """ν of every step (a view that takes no memory when constant)."""
        if isinstance(self.noise, Schedule):
            noises = self.noise.values
        else:
            noises = np.broadcast_to(np.float64(self.noise), (self.steps,))
        if self.final_noise != 1 and self.steps:
            noises = noises.copy()
            noises[-1] *= math.sqrt(self.final_noise)
        return noises

    @property
    def impulse(self) -> float:
        """What one record adds to the distance of two runs per unit of step size.

        >>> run = Training(records=10, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), arithmetic=Arithmetic(error=1e-3))
        >>> run.replace(arithmetic="exact").impulse, round(run.impulse, 6)
        (0.1, 0.102)
        """
        return self.impulse_of(self.sensitivity)

    def impulse_of(self, change: float) -> float:
        """The same if a batch's sum changes by ``change``: change/divisor + 2·error, rounded up."""
        if self.single_point:
            change = 0.0
        impulse = change / self.batches.divisor(self.records)
        if self.arithmetic == "exact" or not self.arithmetic.error:
            if change > 0 and impulse < 2.0**-1000:  # a quotient without its last bits
                return math.nextafter(impulse, math.inf)
            return impulse  # whoever multiplies it with a step size rounds up
        return math.nextafter((impulse + self.arithmetic.charge) * (1 + 2**-50), math.inf)

    @property
    def grid_rounding(self) -> float:
        """What rounding to a grid adds to the distance of two runs at every step, used or not.

        >>> run = Training(records=10, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), arithmetic=Arithmetic(grid=2.0**-10))
        >>> run.grid_rounding == 2.0**-8, run.replace(arithmetic="exact").grid_rounding
        (True, 0.0)
        """
        if not isinstance(self.arithmetic, Arithmetic) or not self.arithmetic.grid_rounding:
            return 0.0
        rounding = self.arithmetic.grid_rounding
        if self.proximal is not None and self.proximal.rounds:  # 6 g√d: it is rounded once more
            return math.nextafter(1.5 * rounding, math.inf)
        return rounding

    @property
    def radius(self) -> float:
        """Of the ball around the start that parameters are projected on: half of the diameter.

        Infinite where a proximal step keeps them in a set of its own.
        """
        own = self.proximal is not None and self.proximal.constrains
        return math.inf if own else self.diameter / 2

    @property
    def single_point(self) -> bool:
        """Whether projection leaves a single point, which shows nothing of any record.

        >>> Training(records=10, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...          batches=FullBatch(), diameter=0.0).single_point
        True
        """
        own = self.proximal is not None and self.proximal.constrains
        return self.diameter == 0 and not own

    @property
    def of_real_numbers(self) -> bool:
        """Whether it speaks of real numbers, or of plain doubles that noise is added to.

        That is theory: no model that a machine computed is certified by it. Nor by a grid finer
        than 2⁻⁴² of the noise, which no trainer draws: all doubles lie on the finest ones.
        """
        arithmetic = self.arithmetic
        if isinstance(arithmetic, str):
            return True
        return float(self.noises.max(initial=0.0)) > arithmetic.grid * 2.0**42

    # --- as a value ---------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
        """The same description with some fields changed (and validated again).

        A sensitivity that followed from gradient_norm and adjacency follows them again. One that
        was declared holds for the bound and the neighbours it was declared for: with another
        gradient_norm or adjacency it goes back to what these imply, unless it is given anew.

        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), sensitivity=0.5)
        >>> run.replace(steps=2).sensitivity, run.replace(adjacency="replace").sensitivity
        (0.5, 2.0)
        """
        if "sensitivity" in changes:
            changes.setdefault("sensitivity_basis", None)
        if "epochs" in changes:
            changes.setdefault("steps", None)
        changes.setdefault("epochs", None)
        return dataclasses.replace(self, **changes)

    def scale_noise(self, factor: float) -> Self:
        """The same run with every noise multiplied."""
        noise = self.noise
        scaled = noise.scaled(factor) if isinstance(noise, Schedule) else noise * factor
        return self.replace(noise=scaled)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; defaults and a sensitivity that is implied are left out."""
        table = super().to_dict()
        if self.declared_sensitivity is None:
            del table["sensitivity"]
        return table

    def __str__(self) -> str:
        batches = self.batches
        how = batches.name if batches.full else f"{batches}"
        parts = [f"{self.steps:,} steps over {self.records:,} records ({how}), {self.adjacency}"]
        parts.append(f"step size {self.step_size}, noise {self.noise}")
        parts.append(self._gradients())
        if self.schedule:
            parts.append(f"{self.schedule} last epoch")
        if self.final_noise != 1:
            parts.append(f"variance of the last step's noise times {self.final_noise:g}")
        if self.momentum:
            parts.append(f"momentum {self.momentum:g}")
        if self.correlation is not None:
            parts.append(f"of the noise {len(self.correlation) - 1:,} later steps take some back")
        if self.proximal is not None:
            parts.append(f"after every update {self.proximal}")
        if math.isfinite(self.diameter):
            parts.append(f"projected on a set of diameter {self.diameter:g}")
        if self.dropped_records:
            parts.append(f"{self.dropped_records} records dropped in every epoch")
        if isinstance(self.arithmetic, Arithmetic):
            largest = (
                float(self.step_sizes.max(initial=0.0)) * self.arithmetic.charge
                + self.grid_rounding
            )
            parts.append(f"arithmetic: adds {largest * (1 + 2**-50):.3g} to every impulse")
        return "; ".join(parts)

    def _gradients(self) -> str:
        norm, moved = printed(self.gradient_norm, 6), printed(self.sensitivity, 6)
        by = {"none": "by the loss itself", "gradient": "each clipped", "margin": "margins clipped"}
        bounded = f"gradients of norm at most {norm} ({by[self.clipping]})"
        if self.declared_sensitivity is None:
            return bounded
        change = f"one record changes their sum by at most {moved} (declared)"
        if math.isinf(self.gradient_norm):
            return f"gradients of unbounded norm; {change}"
        return f"{bounded}; {change}"


def _length(value: float | Schedule) -> int | None:
    return len(value) if isinstance(value, Schedule) else None


def _own_fields(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a constructor that are fields of `Training`."""
    return {name: arguments[name] for name in rows(Training) if name in arguments}


def read_training(table: Mapping[str, Any]) -> Training:
    """Return a Training from a table in the fields of its class, of `dp_sgd` or of `langevin`.

    >>> read_training({"records": 100, "epochs": 2, "step_size": 1.0, "noise_multiplier": 2.0,
    ...                "clip": 1.0, "batches": {"scheme": "shuffled", "size": 10}}).steps
    20
    """
    make: Callable[..., Training] = Training
    if "noise_multiplier" in table:
        make = Training.dp_sgd
    elif "sigma" in table:
        make = Training.langevin
    parameters = inspect.signature(make).parameters
    fields = known_fields("training", table, set(parameters) - {"sensitivity_basis"})
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in fields:
            raise DescriptionError(f"training.{name}", None, "given")
    return make(**fields)
