"""Noisy descent on a pytree: JAX computes gradients of single records, the engine does the rest.

A gradient is a function of its record, in whatever precision JAX computes it. It is clipped (or
checked) and summed in double precision, and noise is added on a grid, as for every run of this
library: so the run can be certified.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from lastiterate import train
from lastiterate.description import Training
from lastiterate.description.batches import check_drawn_by
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.noise import Source
from lastiterate.noise.seeded import Seed
from lastiterate.train import Checkpoint, Descent
from lastiterate.train.record_places import chunk_size, placed

_AT_ONCE = 1 << 24  # numbers in the gradients that are held at once


class Trained(NamedTuple):
    """The pytree, in the types that it started with, and what ran."""

    parameters: Any
    descent: Descent


def noisy_descent(
    loss: Callable[..., Any],
    data: Any,
    training: Training,
    *,
    start: Any,
    regularization: float = 0.0,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
    groups: Any = None,
    max_records_per_group: int | None = None,
    per_batch: int | None = None,
) -> Trained:
    """Train a pytree with noisy gradients, exactly as described.

    Args:
        loss: (parameters, *record) -> the loss of one record, in JAX.
        data: a tuple of arrays (or of pytrees of them) with one entry per record: what ``loss``
            takes after the parameters.
        training: what to run; clipping is "gradient", or "none" where no gradient is longer.
        start: the parameters to start from, any pytree of floats; they must not depend on the data.
        regularization, noise, random_state, radius, progress: as in
            `lastiterate.train.noisy_descent`.
        checkpoint, groups, max_records_per_group, per_batch: as there.

    Returns the parameters as a pytree, and the `Descent`: its ``loss`` is None, as nobody here
    vouches for a function, so ``descent.certificate(delta, loss=...)`` takes what you know.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> def logistic(w, x, y):
    ...     return jnp.logaddexp(0.0, -y * (x @ w["weight"]))
    >>> X, y = np.eye(2), np.array([1.0, -1.0])
    >>> found, _ = noisy_descent(logistic, (X, y), run, start={"weight": jnp.zeros(2)},
    ...                          regularization=0.1)
    >>> np.asarray(found["weight"]).round(3)
    array([ 1.177, -1.177], dtype=float32)
    """
    flat, unravel = _vector(start)
    check_drawn_by("Training with JAX", training.batches)
    gradients = _RecordGradients(loss, _records(data, training.records), training, flat, unravel)
    with np.errstate(over="ignore", invalid="ignore"):  # constants of a loss, while it is compiled
        gradients.check_independence(flat)
    done = train.noisy_descent(
        gradients,
        None,
        training,
        start=np.asarray(flat, dtype=np.float64),
        regularization=regularization,
        noise=noise,
        random_state=random_state,
        radius=radius,
        progress=progress,
        checkpoint=checkpoint,
        groups=groups,
        max_records_per_group=max_records_per_group,
        per_batch=per_batch,
    )
    return Trained(unravel(jnp.asarray(done.parameters, dtype=flat.dtype)), done)


class _RecordGradients:
    """One gradient per record, as rows, in the type of the parameters.

    Each is, to the last bit, a function of its record (`train.record_places`): the compiled
    function always has chunks of one size, in which a record has one place.
    """

    def __init__(
        self, loss: Callable[..., Any], records: Any, training: Training, flat: Any, unravel: Any
    ) -> None:
        self._records, self._kind, self._size = records, flat.dtype, int(flat.size)
        one = jax.grad(lambda vector, record: loss(unravel(vector), *record))
        self._each = jax.jit(jax.vmap(one, in_axes=(None, 0)))
        self._chunk = chunk_size(training, max(1, _AT_ONCE // max(self._size, 1)))

    def __call__(self, parameters: NDArray[np.float64], index: NDArray[np.int64]) -> NDArray[Any]:
        vector = jnp.asarray(parameters, dtype=self._kind)
        found = np.empty((len(index), self._size), dtype=self._kind)
        for at, places, chunk in placed(index, self._chunk):
            rows = jax.tree_util.tree_map(lambda values, some=chunk: values[some], self._records)
            found[at] = np.asarray(self._each(vector, rows))[places]
        return found

    def check_independence(self, vector: Any) -> None:
        """Raise unless a gradient is the same whoever shares its chunk.

        The records are made up from shapes and types, so that a refusal tells nothing of private
        ones (whole numbers are 0 or 1; JAX reads no table outside of its range).
        """
        size, source = self._chunk, np.random.default_rng(0)

        def made_up(values: NDArray[Any]) -> NDArray[Any]:
            shape = (size, *values.shape[1:])
            if values.dtype.kind in "biu":
                return source.integers(0, 2, shape).astype(values.dtype)
            return source.random(shape).astype(values.dtype)

        def bits(records: Any) -> NDArray[np.uint8]:
            found = np.ascontiguousarray(self._each(vector, records))
            return found.view(np.uint8).reshape(size, -1)

        here, there = (jax.tree_util.tree_map(made_up, self._records) for _ in range(2))
        first = bits(here)
        for parity in (0, 1):
            same = np.arange(size) % 2 == parity
            mixed = jax.tree_util.tree_map(
                lambda a, b, same=same: np.where(same.reshape(-1, *[1] * (a.ndim - 1)), a, b),
                here,
                there,
            )
            if not np.array_equal(bits(mixed)[same], first[same]):
                raise UnsupportedError(_COMPANIONS)
        if not np.array_equal(bits(here), first):
            raise UnsupportedError(_COMPANIONS)

    def content(self) -> list[NDArray[Any]]:
        """The records in their order: a checkpoint goes on with these and no others."""
        leaves: list[NDArray[Any]] = jax.tree_util.tree_leaves(self._records)
        return leaves


_COMPANIONS = (
    "The gradient of a record is not the same, to the last bit, in every batch: the loss draws "
    "random numbers, or its kernels are not deterministic. Other records must not change what a "
    "record contributes. Make the loss a function of its record (on a GPU set XLA_FLAGS="
    "--xla_gpu_deterministic_ops=true)."
)


def _vector(start: Any) -> tuple[Any, Callable[[Any], Any]]:
    """The parameters as one vector, and back; all of one type of floats."""
    kinds = {np.asarray(leaf).dtype for leaf in jax.tree_util.tree_leaves(start)}
    if len(kinds) != 1 or not jnp.issubdtype(next(iter(kinds)), jnp.floating):
        found, allowed = sorted(map(str, kinds)), "a pytree of floats of one type"
        why = "gradients are taken in all of its numbers, and only there"
        raise DescriptionError("start", found, allowed, why)
    vector, back = ravel_pytree(start)
    return vector, back


def _records(data: Any, records: int) -> Any:
    """The arrays of the data, each with one entry per record."""
    if not isinstance(data, tuple):
        allowed = "a tuple of what the loss takes after the parameters"
        why = "each record's loss is a function of its own entries"
        raise DescriptionError("data", type(data).__name__, allowed, why)
    arrays = jax.tree_util.tree_map(np.asarray, data)
    lengths = {len(leaf) if leaf.ndim else 0 for leaf in jax.tree_util.tree_leaves(arrays)}
    if lengths != {records}:
        allowed = f"training.records = {records} entries in every array"
        raise DescriptionError(
            "data", sorted(lengths), allowed, "what is certified must be what runs"
        )
    return arrays
