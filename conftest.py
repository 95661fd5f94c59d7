"""Examples of rooms whose framework is not installed here; `make test-integrations` runs them."""

from __future__ import annotations

from importlib.util import find_spec

_NEEDED = {
    "frameworks/lightning_callback.py": "lightning",
    "frameworks/mlflow_run.py": "mlflow",
    "frameworks/transformers_callback.py": "transformers",
    "jax/optax_noise.py": "optax",
    "jax/pytrees.py": "jax",
}
collect_ignore = [
    f"src/lastiterate/{module}" for module, needed in _NEEDED.items() if find_spec(needed) is None
]
