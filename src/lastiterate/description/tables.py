"""Descriptions from plain tables, as files, flags and forms give them.

One reader for the command line and the page: three ways to say how much noise is added, two to say
how long the run is, and the fields that each kind of batch and of loss has.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from lastiterate.description.batches import SCHEMES, read_batches
from lastiterate.description.epochs import steps_of_epochs
from lastiterate.description.release import read_release
from lastiterate.description.training import Training
from lastiterate.description.validation import known_fields, whole

# Noise, and how long a gradient is. The third way knows how much one record changes a sum, and may
# be told a gradient_norm besides.
NOISE_STYLES = (
    ("noise", "gradient_norm"),
    ("noise_multiplier", "clip"),
    ("sigma", "gradient_sensitivity"),
)
BATCH_FIELDS: Mapping[str, frozenset[str]] = {
    name: frozenset({"full": (), "poisson": ("rate",)}.get(name, ("size",))) for name in SCHEMES
}
LOSS_FIELDS: Mapping[str, frozenset[str]] = {
    "convex": frozenset({"smoothness", "strong_convexity"}),
    "nonconvex": frozenset({"smoothness"}),
    "holder": frozenset({"smoothness", "exponent"}),
    "unknown": frozenset(),
}


def read_training(table: Mapping[str, Any]) -> Training:
    """A Training from a table in any of the three conventions, with steps or epochs.

    >>> read_training({"records": 100, "epochs": 2, "step_size": 1.0, "noise_multiplier": 2.0,
    ...                "clip": 1.0, "batches": {"scheme": "shuffled", "size": 10}}).steps
    20
    """
    fields = dict(table)
    fields["records"] = whole("records", fields["records"], "a guarantee for nobody helps nobody")
    fields["batches"] = read_batches(fields["batches"])
    if "epochs" in fields:
        fields["steps"] = steps_of_epochs(
            fields.pop("epochs"), fields["batches"], fields["records"]
        )
    if "noise_multiplier" in fields:
        return _convention(Training.dp_sgd, fields, NOISE_STYLES[1])
    if "sigma" in fields:
        return _convention(Training.langevin, fields, (*NOISE_STYLES[2], "gradient_norm"))
    return Training.from_dict(fields)


def _convention(
    constructor: Callable[..., Training], fields: dict[str, Any], own: tuple[str, ...]
) -> Training:
    """Check the names of the fields as `Training.from_dict` would, then build."""
    names = (set(inspect.signature(Training).parameters) - {"noise", "gradient_norm"}) | set(own)
    fields = known_fields("training", fields, names)
    fields["release"] = read_release(fields.get("release", "last"))
    return constructor(**fields)
