"""Where other people's tools meet this library: trainers, trackers of runs, cards of models.

Importing this package imports none of them; using a name imports the one that it is for.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from lastiterate._internal.lazy import loaded_on_use

if TYPE_CHECKING:
    from lastiterate.frameworks.cards import model_card
    from lastiterate.frameworks.checked_claims import guarantee_metrics
    from lastiterate.frameworks.lightning_callback import LightningPrivateHead
    from lastiterate.frameworks.mlflow_run import log_guarantee
    from lastiterate.frameworks.transformers_callback import TransformersPrivateHead

_HOME = {
    "LightningPrivateHead": "lastiterate.frameworks.lightning_callback",
    "TransformersPrivateHead": "lastiterate.frameworks.transformers_callback",
    "guarantee_metrics": "lastiterate.frameworks.checked_claims",
    "log_guarantee": "lastiterate.frameworks.mlflow_run",
    "model_card": "lastiterate.frameworks.cards",
}

__all__ = [
    "LightningPrivateHead",
    "TransformersPrivateHead",
    "guarantee_metrics",
    "log_guarantee",
    "model_card",
]

_NEEDED = {
    "LightningPrivateHead": "lightning",
    "TransformersPrivateHead": "transformers",
    "log_guarantee": "mlflow",
}
# What cannot be imported here is no part of ``from lastiterate.frameworks import *``.
__all__[:] = [n for n in __all__ if n not in _NEEDED or find_spec(_NEEDED[n]) is not None]

_EXTRAS = {name: name for name in ("lightning", "transformers", "mlflow", "torch")}
__getattr__ = loaded_on_use(__name__, _HOME, _EXTRAS)
