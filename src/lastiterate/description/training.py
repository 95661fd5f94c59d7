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
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.formatting import printed
from lastiterate.description.arithmetic import Arithmetic, Exactness, read_arithmetic
from lastiterate.description.batches import (
    SCHEMES,
    Batches,
    FullBatch,
    read_batches,
)
from lastiterate.description.correlation import read_correlation
from lastiterate.description.portable import Portable
from lastiterate.description.proximal import Proximal, read_proximal
from lastiterate.description.release import Release, TailAverage, read_release
from lastiterate.description.schedule import Schedule, equalising
from lastiterate.description.validation import known_fields, number, one_of, whole
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

Array = NDArray[np.float64]
Adjacency = Literal["replace", "zero-out"]
Clipping = Literal["none", "gradient", "margin"]
PerStep = float | Iterable[float] | Schedule


class _FromGradientNorm(float):
    """A sensitivity nobody gave: it follows gradient_norm and adjacency when they are replaced."""


class _Declared(float):
    """A sensitivity somebody gave, with the gradient_norm and adjacency it was given for.

    It vouches for nothing else: with another bound or other neighbours it is dropped.
    """

    basis: tuple[float, str]

    @classmethod
    def beside(cls, value: float, basis: tuple[float, str]) -> _Declared:
        """The value, to be read together with ``basis``."""
        declared = cls(value)
        declared.basis = basis
        return declared


@dataclass(frozen=True)
class Training(Portable):
    """A noisy gradient descent, described once for accounting, training and auditing.

    Args:
        records: n, the number of records.
        steps: T, the number of updates (not epochs).
        step_size: η, a number or one per step.
        noise: ν, the standard deviation of the Gaussian added to the *parameters* in one update;
            a number or one per step.
        gradient_norm: K, no per-record gradient is longer; infinity if nothing bounds them, which
            takes a ``sensitivity`` and leaves out the theorems that need K.
        batches: how each update picks its records.
        diameter: of the convex set that parameters are projected on after each update.
        adjacency: "replace" (one record replaced by another) or "zero-out" (its gradient
            replaced by 0).
        clipping: how gradient_norm is enforced: "none" (the loss itself guarantees it),
            "gradient" (per-record clipping) or "margin" (the scalar margin derivative is clipped).
        sensitivity: how much one record can change the sum of a batch's gradients; 2K ("replace")
            or K ("zero-out") unless a smaller value is declared. Nobody but the user vouches for a
            smaller one, and every guarantee that rests on it says so.
        release: "last", or `TailAverage`.
        schedule: "equalised" shrinks the last epoch's steps so that every position of the epoch
            costs the same; step_size is then the base value and the noise keeps its base value.
        final_noise: factor on the *variance* of the last step's noise. The record that is read
            last has nothing after it to hide behind; a burst of noise there repairs it.
        momentum: m of the velocity v ← m·v + (noisy update), θ ← project(θ − v), as in Opacus and
            torch; 0 is plain descent. Such a run is accounted by composition only: what is hidden
            is the pair (θ, v), and its update does not bring two runs closer.
        arithmetic: "exact" (real numbers, as in theory), or an `Arithmetic` that says how far the
            computed updates can be from them; trainers fill it in.
        proximal: what follows every update: `L1`, `GroupLasso`, `Box` or `Simplex`, at no price
            (`description.proximal`). The last two take the place of the ball around the start that
            a diameter stands for.
        correlation: coefficients (1, l_1, l_2, …) of noise that later steps take back in part
            (DP-FTRL; `description.correlation`): step k adds noise·(ξ_k + l_1 ξ_{k−1} + …). It
            takes constant steps and constant noise.

    >>> from lastiterate import Shuffled
    >>> run = Training(records=60_000, steps=2_000, step_size=0.05, noise=0.0005,
    ...                gradient_norm=5.0, batches=Shuffled(size=1500))
    >>> run.sensitivity, run.epochs
    (10.0, 50.0)
    """

    records: int
    steps: int
    step_size: float | Schedule
    noise: float | Schedule
    gradient_norm: float
    batches: Batches
    diameter: float = math.inf
    adjacency: Adjacency = "replace"
    clipping: Clipping = "none"
    sensitivity: float = _FromGradientNorm("nan")
    release: Release = "last"
    schedule: Literal["equalised"] | None = None
    final_noise: float = 1.0
    momentum: float = 0.0
    arithmetic: Exactness = "exact"
    proximal: Proximal | None = None
    correlation: tuple[float, ...] | None = None

    def __init__(
        self,
        records: int,
        steps: int,
        step_size: PerStep,
        noise: PerStep,
        gradient_norm: float,
        batches: Batches,
        diameter: float = math.inf,
        adjacency: str = "replace",
        clipping: str = "none",
        sensitivity: float | None = None,
        release: Release = "last",
        schedule: str | None = None,
        final_noise: float = 1.0,
        momentum: float = 0.0,
        arithmetic: Exactness = "exact",
        proximal: Proximal | None = None,
        correlation: Iterable[float] | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "records", whole("records", records, "a guarantee for nobody protects nobody"))
        put(self, "steps", whole("steps", steps, "it counts the updates", at_least=0))
        put(self, "step_size", self._per_step("step_size", step_size))
        put(self, "noise", self._per_step("noise", noise))
        put(self, "gradient_norm", _gradient_norm(gradient_norm, sensitivity, clipping))
        _scheme(batches).check(self.records)
        put(self, "batches", batches)
        why = "two runs can never be farther apart"
        put(self, "diameter", number("diameter", diameter, why, at_least=0, infinite=True))
        why = "a guarantee must say which datasets count as neighbours"
        put(self, "adjacency", one_of("adjacency", adjacency, ("replace", "zero-out"), why))
        why = "clipping changes how far an update can drive two runs apart"
        put(self, "clipping", one_of("clipping", clipping, ("none", "gradient", "margin"), why))
        put(self, "sensitivity", self._sensitivity(sensitivity))
        if release != "last" and not isinstance(release, TailAverage):
            why = "a guarantee covers exactly what is released"
            raise DescriptionError("release", release, "'last' or TailAverage(window)", why)
        if isinstance(release, TailAverage) and release.window > max(self.steps, 1):
            allowed = f"at most the number of steps, {self.steps}"
            why = "only iterates of the run can be averaged"
            raise DescriptionError("release.window", release.window, allowed, why)
        put(self, "release", release)
        put(self, "schedule", self._schedule(schedule))
        why = "it multiplies the variance of the last step's noise"
        put(self, "final_noise", number("final_noise", final_noise, why, above=0))
        why = "it says how much of the last movement is kept"
        put(self, "momentum", number("momentum", momentum, why, at_least=0, at_most=1))
        put(self, "arithmetic", read_arithmetic(arithmetic))
        put(self, "proximal", None if proximal is None else read_proximal(proximal))
        if self.proximal is not None and self.momentum:
            why = "a velocity would carry parameters away from what the proximal step made of them"
            raise DescriptionError("momentum", momentum, "0 with a proximal step", why)
        put(self, "correlation", None if correlation is None else read_correlation(correlation))
        if self.correlation is not None and (self.momentum or not self.constant):
            why = "the theorems for correlated noise know equal steps, and no velocity"
            allowed = "None unless step size and noise are constant, without momentum"
            raise DescriptionError("correlation", "given", allowed, why)

    def _per_step(self, field: str, value: PerStep) -> float | Schedule:
        given = _one_or_many(field, value)
        if isinstance(given, Schedule) and len(given) != self.steps:
            allowed = f"one number or a list of exactly steps = {self.steps} values"
            why = "each step has its own value"
            raise DescriptionError(field, f"a list of {len(given)} values", allowed, why)
        return given

    def _sensitivity(self, given: float | None) -> float:
        natural, basis = self.implied_sensitivity, (self.gradient_norm, self.adjacency)
        if isinstance(given, _Declared) and given.basis != basis:
            if math.isinf(natural):
                why = (
                    f"{given:g} was declared for gradient_norm = {given.basis[0]:g} and adjacency "
                    f"= {given.basis[1]!r}, and nothing else says what one record can do here"
                )
                raise DescriptionError("sensitivity", None, "given anew", why)
            given = None
        if given is None or isinstance(given, _FromGradientNorm):
            return _FromGradientNorm(natural)
        why = (
            f"gradients no longer than gradient_norm differ by at most that under {self.adjacency}"
        )
        value = number("sensitivity", given, why, at_least=0.0, at_most=natural)
        return _FromGradientNorm(natural) if value == natural else _Declared.beside(value, basis)

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
        return float(self.sensitivity) if isinstance(self.sensitivity, _Declared) else None

    def needs_gradient_norm(self, purpose: str) -> float:
        """K, or an error that says why ``purpose`` cannot do without it."""
        if math.isinf(self.gradient_norm):
            raise AssumptionError(
                f"This description has no gradient_norm, and {purpose} needs one: a sensitivity "
                "bounds how much one record changes the sum of gradients, not how long a gradient "
                "is. Give gradient_norm = K, if no record's gradient is longer than K."
            )
        return self.gradient_norm

    def needs_plain_updates(self, purpose: str) -> None:
        """Raise if ``purpose`` knows no proximal step or correlated noise."""
        if self.correlation is not None:
            raise UnsupportedError(
                f"{purpose} knows no correlated noise, and this description has it. Use "
                "noisy_descent, or leave correlation out."
            )
        if self.proximal is not None:
            raise UnsupportedError(
                f"{purpose} knows no proximal step, and this description has {self.proximal}. Use "
                "noisy_descent, or leave proximal out."
            )

    def _schedule(self, name: str | None) -> str | None:
        if name is None:
            return None
        one_of("schedule", name, ("equalised",), "a named schedule fixes every step size")
        if isinstance(self.step_size, Schedule):
            allowed = "one base value when schedule is given"
            why = "the schedule decides the step sizes"
            raise DescriptionError("step_size", self.step_size, allowed, why)
        per_epoch = self.batches.per_epoch(self.records)
        if per_epoch is None:
            allowed = "absent, or used with batches that pass over the data in epochs"
            why = "only such batches have a last epoch to equalise"
            raise DescriptionError("schedule", name, allowed, why)
        if self.steps % per_epoch:
            allowed = f"a multiple of the {per_epoch} batches of an epoch"
            why = "the equalising last epoch must be whole"
            raise DescriptionError("steps", self.steps, allowed, why)
        return name

    @classmethod
    def langevin(
        cls,
        *,
        records: int,
        steps: int,
        step_size: PerStep,
        sigma: float,
        gradient_sensitivity: float,
        gradient_norm: float | None = None,
        batches: Batches | None = None,
        **others: Any,
    ) -> Self:
        """Noise of variance 2·step_size·sigma², as in Langevin diffusion.

        ``gradient_sensitivity`` is S_g: how much one record changes the sum of gradients. Where a
        record is replaced that is a difference of two gradients, which may both be long: the run
        has no gradient_norm unless one is given. Where a record's gradient is zeroed the difference
        is that gradient, and no gradient is longer than S_g.

        Args:
            records, steps, step_size, batches: as in `Training`; full batches by default.
            sigma: scale of the noise.
            gradient_sensitivity: S_g, of the sum of gradients.
            gradient_norm: a bound on each gradient, if one is known.
            others: any other field of `Training`.

        >>> run = Training.langevin(records=10, steps=5, step_size=0.02, sigma=3.0,
        ...                         gradient_sensitivity=4.0)
        >>> round(run.noise, 3), run.gradient_norm
        (0.6, inf)
        """
        sigma = number("sigma", sigma, "it scales the noise", at_least=0)
        change = number(
            "gradient_sensitivity",
            gradient_sensitivity,
            "it bounds the change that one record makes",
            at_least=0,
        )
        if "sensitivity" in others:
            why = "gradient_sensitivity already says how much one record changes the sum"
            raise DescriptionError("sensitivity", others["sensitivity"], "absent", why)
        if gradient_norm is None:
            gradient_norm = change if others.get("adjacency") == "zero-out" else math.inf
        etas = _one_or_many("step_size", step_size)
        noise: PerStep
        if isinstance(etas, Schedule):
            noise = np.sqrt(2 * etas.values) * sigma
        else:
            noise = math.sqrt(2 * etas) * sigma
        return cls(
            records=records,
            steps=steps,
            step_size=etas,
            noise=noise,
            gradient_norm=gradient_norm,
            batches=batches or FullBatch(),
            sensitivity=change,
            **others,
        )

    @classmethod
    def dp_sgd(
        cls,
        *,
        records: int,
        steps: int,
        step_size: PerStep,
        noise_multiplier: float,
        clip: float,
        batches: Batches,
        **others: Any,
    ) -> Self:
        """DP-SGD as Opacus counts: noise step_size·noise_multiplier·clip/batch, gradients clipped.

        Args:
            records, steps, step_size, batches: as in `Training`.
            noise_multiplier: standard deviation of the noise on the summed gradients, over
                ``clip``.
            clip: length that every gradient is clipped to.
            others: any other field of `Training`.

        >>> from lastiterate import Poisson
        >>> run = Training.dp_sgd(records=1000, steps=10, step_size=0.5, noise_multiplier=1.1,
        ...                       clip=1.0, batches=Poisson(rate=0.1))
        >>> round(run.noise, 6), run.adjacency, run.clipping
        (0.0055, 'zero-out', 'gradient')
        """
        multiplier = number("noise_multiplier", noise_multiplier, "it scales the noise", at_least=0)
        clip = number("clip", clip, "it bounds each record's gradient", at_least=0)
        records = whole("records", records, "a guarantee for nobody protects nobody")
        scale = multiplier * clip / _scheme(batches).divisor(records)
        etas = _one_or_many("step_size", step_size)
        noise = etas.values * scale if isinstance(etas, Schedule) else etas * scale
        settings = {"adjacency": "zero-out", "clipping": "gradient", **others}
        return cls(
            records=records,
            steps=steps,
            step_size=etas,
            noise=noise,
            gradient_norm=clip,
            batches=batches,
            **settings,
        )

    # --- what the steps see -------------------------------------------------------------------

    @property
    def batches_per_epoch(self) -> int | None:
        """Updates in one pass over the data; None for batches that are drawn afresh each time."""
        return self.batches.per_epoch(self.records)

    @property
    def epochs(self) -> float:
        """Passes over the data (in expectation where batches are drawn at random)."""
        per_epoch = self.batches_per_epoch or self.records / self.batches.divisor(self.records)
        return self.steps / per_epoch

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
        """What one record adds to the distance of two runs per unit of step size (see `slip`).

        >>> run = Training(records=10, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), arithmetic=Arithmetic(error=1e-3))
        >>> run.replace(arithmetic="exact").impulse, round(run.impulse, 6)
        (0.2, 0.202)
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
    def slip(self) -> float:
        """What rounding to a grid adds to the distance of two runs at every step, used or not.

        >>> run = Training(records=10, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), arithmetic=Arithmetic(grid=2.0**-10))
        >>> run.slip == 2.0**-8, run.replace(arithmetic="exact").slip
        (True, 0.0)
        """
        if not isinstance(self.arithmetic, Arithmetic) or not self.arithmetic.slip:
            return 0.0
        slip = self.arithmetic.slip
        if self.proximal is not None and self.proximal.rounds:  # 6 g√d: it is rounded once more
            return math.nextafter(1.5 * slip, math.inf)
        return slip

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
        told = self.arithmetic
        if isinstance(told, str):
            return True
        return float(self.noises.max(initial=0.0)) > told.grid * 2.0**42

    # --- as a value ---------------------------------------------------------------------------

    def replace(self, **changes: Any) -> Self:
        """The same description with some fields changed (and validated again).

        A sensitivity that followed from gradient_norm and adjacency follows them again. One that
        was declared holds for the bound and the neighbours it was declared for: with another
        gradient_norm or adjacency it goes back to what these imply, unless it is given anew.

        >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
        ...                batches=FullBatch(), sensitivity=0.5)
        >>> run.replace(steps=2).sensitivity, run.replace(adjacency="zero-out").sensitivity
        (0.5, 1.0)
        """
        if isinstance(changes.get("sensitivity"), _Declared):
            changes["sensitivity"] = float(changes["sensitivity"])  # given anew, for these fields
        return dataclasses.replace(self, **changes)

    def scale_noise(self, factor: float) -> Self:
        """The same run with every noise multiplied."""
        noise = self.noise
        scaled = noise.scaled(factor) if isinstance(noise, Schedule) else noise * factor
        return self.replace(noise=scaled)

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; defaults are left out."""
        table: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, _FromGradientNorm) or value == field.default:
                continue
            if isinstance(value, Schedule):
                value = value.values.tolist()
            elif isinstance(value, (TailAverage, Arithmetic, Proximal)):
                value = value.to_dict()
            elif field.name == "correlation":
                value = list(value)
            elif field.name == "batches":
                value = {"scheme": value.name, **dataclasses.asdict(value)}
            table[field.name] = value
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote.

        >>> Training.from_dict({"records": 9, "steps": 1, "step_size": 1, "noise": 1,
        ...                     "gradient_norm": 1, "batches": {"scheme": "full"}}).epochs
        1.0
        """
        fields = known_fields("training", table, {f.name for f in dataclasses.fields(cls)})
        for field in dataclasses.fields(cls):
            if field.name == "gradient_norm" and "sensitivity" in fields:
                fields.setdefault("gradient_norm", math.inf)
            if field.default is dataclasses.MISSING and field.name not in fields:
                why = "a description without it says nothing about privacy"
                raise DescriptionError(f"training.{field.name}", None, "given", why)
        fields["batches"] = read_batches(fields["batches"])
        fields["release"] = read_release(fields.get("release", "last"))
        return cls(**fields)

    def __str__(self) -> str:
        batches = self.batches
        how = batches.name if batches.full else f"{batches}"
        parts = [f"{self.steps:,} steps over {self.records:,} records ({how})"]
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
            largest = float(self.step_sizes.max(initial=0.0)) * self.arithmetic.charge + self.slip
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


def _one_or_many(field: str, value: PerStep) -> float | Schedule:
    """A number, or one per step (read once: a generator can be given)."""
    if isinstance(value, Schedule):
        return value
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        return Schedule(field, value)
    return number(field, value, "every update uses it", at_least=0)


def _scheme(batches: Batches) -> Batches:
    if type(batches) not in SCHEMES.values():  # a child could draw other batches
        raise DescriptionError(
            "batches",
            batches,
            "one of FullBatch(), Cyclic(size), Shuffled(size), "
            "Reshuffled(size), RandomAllocation(size), Poisson(rate), WithoutReplacement(size)",
            "the privacy of a run depends on how its batches are drawn",
        )
    return batches


def _gradient_norm(value: float, sensitivity: float | None, clipping: str) -> float:
    """K; infinity only where something else says what one record can do."""
    why = "it bounds what one record can do to an update"
    K = number("gradient_norm", value, why, at_least=0, infinite=True)
    if math.isfinite(K):
        return K
    if sensitivity is None or isinstance(sensitivity, _FromGradientNorm):
        allowed = "a finite number at least 0, or infinite with a finite sensitivity"
        raise DescriptionError("gradient_norm", value, allowed, why)
    if clipping != "none":
        why = f"clipping={clipping!r} shortens gradients to it"
        raise DescriptionError("gradient_norm", value, "a finite number", why)
    return K
