"""What every run is told beside its description, checked: randomness, start and ball."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError
from lastiterate.noise import Source, source
from lastiterate.noise.seeded import Seed
from lastiterate.train.result import Parameters


def generator_of(noise: Source | None, random_state: Seed) -> Source:
    """The run's source of randomness: as given, or seeded, or the secure one."""
    if noise is None:
        return source(random_state)
    if random_state is not None:
        why = "one run has one source of randomness"
        raise DescriptionError("random_state", random_state, "absent when noise is given", why)
    return noise


def centre_of(start: ArrayLike | None, shape: tuple[int, ...] | None) -> Parameters:
    """Where a run starts, which is the centre of its projection; zero by default."""
    if start is None:
        if shape is None:
            why = "a gradient function does not say how many parameters there are"
            raise DescriptionError("start", None, "given with a gradient function", why)
        return np.zeros(shape)
    centre = np.array(start, dtype=np.float64)
    if shape is not None and centre.shape != shape:
        why = "there is one parameter per feature and output"
        raise DescriptionError("start", f"of shape {centre.shape}", f"of shape {shape}", why)
    if not np.isfinite(centre).all():
        why = "a run starts somewhere"
        raise DescriptionError("start", "not finite", "finite numbers", why)
    return centre


def radius_of(radius: float | None, training: Training) -> float:
    """Of the ball that parameters are projected on: half of the diameter, or less."""
    if radius is None:
        return training.diameter / 2
    why = "the guarantee counts on the diameter of the set that parameters are projected on"
    half = training.diameter / 2
    return number("radius", radius, why, at_least=0.0, at_most=half, infinite=True)
