"""What a run is told beside its description, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.noise import Source, source
from lastiterate.noise.seeded import Seed
from lastiterate.train.checkpoint import Checkpoint, usable
from lastiterate.train.grid import Parameters
from lastiterate.train.people import WHOSE, People, both_or_none

Products = Literal["double", "exact", "exact8", "split", "fast"]
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
    per_person: int | None = None
    per_batch: int | None = None

    def __post_init__(self) -> None:
        if self.noise is not None and self.random_state is not None:
            given, why = self.random_state, "one run has one source of randomness"
            raise DescriptionError("random_state", given, "absent when noise is given", why)
        if self.noise is not None and not callable(getattr(self.noise, "normal", None)):
            why = "every update draws its noise there"
            raise DescriptionError("noise", self.noise, "a source with a method normal", why)
        why = "it shrinks every update"
        l2 = number("regularization", self.regularization, why, at_least=0.0)
        object.__setattr__(self, "regularization", l2)
        usable(self.checkpoint)
        both_or_none(self.groups, self.per_person)
        if self.per_batch is not None and self.groups is None:
            allowed = "absent without groups"
            raise DescriptionError("per_batch", self.per_batch, allowed, WHOSE)

    def people(self, training: Training) -> People | None:
        """Who owns the records; None if every record counts for itself."""
        if self.groups is None:
            return None
        return People.of(self.groups, training, self.per_person, self.per_batch)

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

    def ball(self, training: Training) -> float:
        """The radius that parameters are projected on: half of the diameter, or less."""
        half = training.radius
        if self.radius is None:
            return half
        why = "the guarantee counts on the diameter of the set that parameters are projected on"
        return number("radius", self.radius, why, at_least=0.0, at_most=half, infinite=True)


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
