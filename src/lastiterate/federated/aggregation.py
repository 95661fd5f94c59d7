"""What the server does with the answers of one round: bound each, sum, add noise, divide.

Nothing that a client sends may cost privacy or stop the round. An answer that is not a model of the
right shapes with finite numbers is dropped, a long one is clipped, and the divisor never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import DescriptionError
from lastiterate.federated.federation import Federation
from lastiterate.noise import Source
from lastiterate.train.grid import INTERIM
from lastiterate.train.norms import UNIT, lengths, norm_room

Vector = NDArray[np.float64]

BOX = 2.0**50  # multiples of the grid that a parameter may have


class BoundedUpdate(NamedTuple):
    """An update that may be summed, and whether the client had sent a longer one."""

    vector: Vector
    clipped: bool


class UnusableUpdateError(Exception):
    """An answer that is dropped; the message says why."""


def flat(arrays: Mapping[str, NDArray[Any]]) -> Vector:
    """All parameters in one vector of doubles."""
    parts = [np.asarray(array, dtype=np.float64).ravel() for array in arrays.values()]
    return np.concatenate(parts) if parts else np.zeros(0)


def shaped(vector: Vector, like: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The vector cut into arrays of the names, shapes and types of ``like``."""
    arrays, start = {}, 0
    for name, array in like.items():
        part = vector[start : start + array.size].reshape(array.shape)
        limit = float(np.finfo(array.dtype).max)
        arrays[name] = np.clip(part, -limit, limit).astype(array.dtype)
        start += array.size
    return arrays


def bounded(
    answer: Mapping[str, NDArray[Any]],
    model: Mapping[str, NDArray[Any]],
    clip: float,
    shrink: float = 1.0,
) -> BoundedUpdate:
    """The update answer − shrink·model, no longer than ``clip``, or an `UnusableUpdateError`.

    >>> model = {"w": np.zeros(2)}
    >>> bounded({"w": np.array([3e300, 4e300])}, model, clip=5.0)
    BoundedUpdate(vector=array([3., 4.]), clipped=True)
    """
    if list(answer) != list(model):
        raise UnusableUpdateError("its arrays are not those of the model")
    for name, array in model.items():
        if answer[name].shape != array.shape:
            raise UnusableUpdateError(f"{name} has another shape than the model's")
        if answer[name].dtype.kind not in "fiu":
            raise UnusableUpdateError(f"{name} does not hold numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        update = flat(answer) - shrink * flat(model)
    if not np.all(np.isfinite(update)):
        raise UnusableUpdateError("it holds numbers that are not finite")
    # The largest entry is divided out first, so that no square overflows or underflows; the
    # length is rounded up and the limit down, as the promise is about exact norms.
    largest = float(np.max(np.abs(update), initial=0.0))
    if largest == 0.0:
        return BoundedUpdate(update, clipped=False)
    direction = update / largest
    length = float(lengths(direction[None])[0])
    limit = clip * (1 - 16 * UNIT)
    if largest > limit / length:
        longer = largest > clip * (1 + norm_room(update.size)) / length
        return BoundedUpdate(direction * (limit / length), clipped=longer)
    return BoundedUpdate(update, clipped=False)


def next_model(
    model: Mapping[str, NDArray[Any]],
    updates: Iterable[Vector],
    federation: Federation,
    source: Source,
) -> dict[str, NDArray[Any]]:
    """θ + server_step·(sum + noise)/sampled − decay·θ, in the model's own names and types.

    **Statement.** With noise, the model is computed on the grid gZ, g = `Federation.spacing`:

        θ ← cast(box(R(box((1 − decay)·θ) + step·sum) + g·N)),

    R rounds to the nearest multiple of g, N = round((ν/g)·Z) with Z ideal Gaussians, box clips to
    ±2⁵⁰g, cast gives the model its type. That is the described round, in which every step drives
    two models farther apart by at most 2·`rounding` + 4g√parameters more than in real numbers; for
    types shorter than a double only given the model before the round (which clients see).

    *Proof.* As R(m) is on the grid, R(m) + R(νZ) = R(R(m) + νZ): Theorem A of
    docs/theory/arithmetic.md with F = cast ∘ box ∘ R. Its sums are exact: R(m) is clipped to 2⁵²g
    and N is below 2⁵², or the result outside of the box. Rounding the map and the noise is worth
    g√d each. What θ's share of the map rounds (the factor, the product, the sum: 3 units of at
    most 2⁵⁰g) is at most g/2 in a coordinate, for two models g√d; the updates' share is in
    `rounding`, but for what shrink·θ rounds in every update: g/8 in a coordinate, as the server
    step is at most 1 where shrink is not 1, for two models g√d/4. Boxes are projections. A double
    holds multiples of g up to 2⁵³g, so its cast is exact. Given the same model before the round,
    any cast is post-processing. ∎

    Updates are added up before there is noise: what their sum rounds is then bounded by their
    lengths alone (`Federation.rounding`).
    """
    theta, step = flat(model), federation.server_step / federation.sampled
    total = np.zeros(theta.size)
    for update in updates:
        total += update
    kept = (1.0 - federation.decay) * theta
    grid = federation.spacing(theta.size) if theta.size else 0.0
    if not grid:
        return shaped(kept + step * total, model)
    box = BOX * grid
    if not np.all(np.abs(theta) <= box):  # only a start can be so: it is public
        why = "doubles must add noise exactly"
        largest = float(np.max(np.abs(theta)))
        raise DescriptionError("arrays", f"numbers up to {largest:g}", f"within {box:g}", why)
    moved = (np.clip(kept, -box, box) + step * total) / grid
    moved = np.rint(np.clip(moved, -INTERIM, INTERIM, out=moved))
    moved += source.rounded_normal(federation.model_noise / grid, theta.size)
    return shaped(np.clip(moved * grid, -box, box) + 0.0, model)
