"""What meets JAX: descent on pytrees by this library's engine, and its noise for Optax.

Importing this package does not import JAX; using one of its names does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

if TYPE_CHECKING:
    from lastiterate.jax.optax_noise import described_noise
    from lastiterate.jax.pytrees import noisy_descent

_HOME = {
    "described_noise": "lastiterate.jax.optax_noise",
    "noisy_descent": "lastiterate.jax.pytrees",
}

__all__ = ["described_noise", "noisy_descent"]

__getattr__ = loaded_on_use(__name__, _HOME, {"jax": "jax", "optax": "jax"})
