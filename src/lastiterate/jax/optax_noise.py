"""The described noise as a gradient transformation of Optax, for loops of your own.

It adds in the floats of the updates, whose low bits can tell of single records, and nobody compares
the loop with the description: such a run is an experiment. `lastiterate.jax.noisy_descent` runs the
description itself and can be certified.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.experimental import io_callback
from jax.flatten_util import ravel_pytree
from numpy.typing import NDArray

from lastiterate.description import Training
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.noise import source
from lastiterate.noise.seeded import Seed


class NoiseState(NamedTuple):
    """How many updates were made."""

    count: Any


def described_noise(training: Training, *, random_state: Seed = None) -> Any:
    """Adds the noise of update k of a description to update k; the last link of a chain.

    Gaussians come from this library's secure source (a seed makes an experiment that can be
    repeated), also inside of ``jax.jit``. An update after the last described one raises.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=10, steps=1, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy = optax.chain(optax.sgd(0.5), described_noise(run))
    >>> updates, state = noisy.update(jnp.ones(3), noisy.init(jnp.zeros(3)))
    >>> updates.shape
    (3,)
    """
    if training.correlation is not None:
        raise UnsupportedError(
            "Correlated noise takes back what it added before, which this transformation does not "
            "remember: use lastiterate.train.noisy_descent."
        )
    noises = np.broadcast_to(np.asarray(training.noises, dtype=np.float64), training.steps)
    drawn = source(random_state)

    def draw(count: Any, like: NDArray[Any]) -> NDArray[Any]:
        if not int(count) < training.steps:
            raise AssumptionError(
                f"The description has {training.steps} updates, and this would be one more: its "
                "guarantee does not speak of it. Describe the whole run."
            )
        added: NDArray[Any] = noises[int(count)] * drawn.normal(like.size)
        return added.astype(like.dtype)

    def init(parameters: Any) -> NoiseState:
        return NoiseState(jnp.zeros((), jnp.int32))

    def update(updates: Any, state: NoiseState, parameters: Any = None) -> tuple[Any, NoiseState]:
        flat, unravel = ravel_pytree(updates)
        shape = jax.ShapeDtypeStruct(flat.shape, flat.dtype)
        added = io_callback(draw, shape, state.count, flat)
        return unravel(flat + added), NoiseState(state.count + 1)

    return optax.GradientTransformation(init, update)
