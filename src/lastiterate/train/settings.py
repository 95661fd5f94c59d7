"""What a run is told beside its description, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError
from lastiterate.noise import Source, source
from lastiterate.noise.seeded import Seed
from lastiterate.train.checkpoint import Checkpoint, usable
from lastiterate.train.grid import Parameters
from lastiterate.train.people import WHOSE, People, both_or_none
from lastiterate.train.result import Descent
from lastiterate.verifier.document import parameters_hash

Products = Literal["double", "exact", "exact8"]
RowRule = Literal["check", "shorten", "rescale"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Settings:
    """The arguments of every run, with their defaults; `noisy_descent` says what each one means."""

    labels: Any = None
    regularization: float = 0.0
    start: ArrayLike | None = None
    feature_bound: float | None = None
    noise: Source | None = None
    random_state: Seed = None
    radius: float | None = None
    progress: bool | None = None
    checkpoint: Checkpoint | None = None
    device: Any = None
    products: Products = "double"
    rows: RowRule = "check"
    entry_bound: float | None = None
    groups: Any = None
    max_records_per_group: int | None = None
    per_batch: int | None = None
    continue_from: Any = None
    weights: ArrayLike | None = None
    # The hash of the released model that it goes on from, and whether that was an experiment's.
    started: tuple[str | None, bool] = field(default=(None, False), init=False)

    def __post_init__(self) -> None:
        if self.continue_from is not None:
            self._go_on(self.continue_from)
        if self.noise is not None and self.random_state is not None:
            given, why = self.random_state, "one run has one source of randomness"
            raise DescriptionError("random_state", given, "absent when noise is given", why)
        if self.noise is not None and not callable(getattr(self.noise, "normal", None)):
            why = "every update draws its noise there"
            raise DescriptionError("noise", self.noise, "a source with a method normal", why)
        l2 = number("regularization", self.regularization, at_least=0.0)
        object.__setattr__(self, "regularization", l2)
        usable(self.checkpoint)
        both_or_none(self.groups, self.max_records_per_group)
        if self.per_batch is not None and self.groups is None:
            allowed = "absent without groups"
            raise DescriptionError("per_batch", self.per_batch, allowed, WHOSE)

    def people(self, training: Training) -> People | None:
        """Who owns the records; None if every record counts for itself."""
        if self.groups is None:
            return None
        return People.of(self.groups, training, self.max_records_per_group, self.per_batch)

    def source(self) -> Source:
        """The run's source of randomness: as given, or seeded, or the secure one."""
        return source(self.random_state) if self.noise is None else self.noise

    def centre(self, shape: tuple[int, ...] | None) -> Parameters:
        """Where a run starts, which is the centre of its projection; zero by default."""
        if self.start is None:
            if shape is None:
                why = "a gradient function does not say how many parameters there are"
                raise DescriptionError("start", None, "given with a gradient function", why)
            return np.zeros(shape)
        given = np.asarray(self.start)
        if given.dtype.kind not in "biuf":
            why = "a run starts from real numbers"
            raise DescriptionError("start", f"of type {given.dtype}", "an array of numbers", why)
        centre = given.astype(np.float64)
        if shape is not None and centre.shape != shape:
            why = "there is one parameter per feature and output"
            raise DescriptionError("start", f"of shape {centre.shape}", f"of shape {shape}", why)
        if not np.isfinite(centre).all():
            why = "a run starts somewhere"
            raise DescriptionError("start", "not finite", "finite numbers", why)
        return centre

    def _go_on(self, source: Any) -> None:
        """Start from what was released; looked at once, as a chain may grow meanwhile."""
        if self.start is not None:
            why = "a run starts at one point"
            raise DescriptionError("start", "given", "absent with continue_from", why)
        model = _released(source)
        if model is not None:
            object.__setattr__(self, "start", model)
            experiment = isinstance(source, Descent) and source.experiment
            object.__setattr__(self, "started", (parameters_hash(model), experiment))

    def ball(self, training: Training) -> float:
        """The radius that parameters are projected on: half of the diameter, or less."""
        half = training.radius
        if self.radius is None:
            return half
        return number("radius", self.radius, at_least=0.0, at_most=half, infinite=True)


def _released(source: Any) -> Any:
    """The model that a run or a chain released last; None of a chain that has no link yet."""
    if not isinstance(source, Descent):
        from lastiterate.certificate import CertificateChain

        if not isinstance(source, CertificateChain):
            found, allowed = (
                type(source).__name__,
                "what noisy_descent returned, or a CertificateChain",
            )
            why = "only a model that was released may depend on other people's data"
            raise DescriptionError("continue_from", found, allowed, why)
    model = source.parameters
    if isinstance(model, dict):
        named, allowed = sorted(model), "a chain of models that are one array"
        why = "estimators go on by fit_stream(continue_from=)"
        raise DescriptionError("continue_from", f"of {named}", allowed, why)
    return model


P = ParamSpec("P")
R = TypeVar("R")


def taking(model: Callable[P, R]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Declares that a function of ``**settings`` takes what another one takes.

    >>> def one(a, *, b=2): ...
    >>> inspect.signature(taking(one)(lambda a, **settings: None))
    <Signature (a, *, b=2)>
    """

    def declared(function: Callable[..., R]) -> Callable[P, R]:
        function.__signature__ = inspect.signature(model)  # type: ignore[attr-defined]
        return function

    return declared
