"""What a loss and a description together ask of data: one label per record, and short rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.description.fields import number
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses.base import Array, LinearLoss


def targets_of(objective: LinearLoss, labels: ArrayLike | None, records: int, dtype: Any) -> Array:
    """The labels as the loss wants them, one per record."""
    if labels is None:
        why = "a loss compares scores with labels"
        raise DescriptionError("labels", None, "one label per record", why)
    y = objective.targets(labels)
    if len(y) != records:
        why = "every record has one label"
        raise DescriptionError("labels", f"{len(y)} labels", f"{records} labels", why)
    return y.astype(dtype, copy=False) if y.dtype.kind == "f" else y


def weights_of(weights: ArrayLike, records: int) -> Array:
    """Numbers of [0, 1], one per record: with them every bound on a gradient still holds."""
    found = np.asarray(weights)
    right = found.dtype.kind in "biuf" and found.shape == (records,)
    if not right or not ((found >= 0) & (found <= 1)).all():
        why = "gradients times such a number are no longer, and larger ones might be"
        what = f"of shape {found.shape} and type {found.dtype}" if not right else "others in places"
        raise DescriptionError("weights", what, "one number of [0, 1] per record", why)
    return found.astype(np.float64)


def feature_bound_of(
    objective: LinearLoss, training: Training, feature_bound: float | None
) -> float | None:
    """R: given, or the largest one for which the loss keeps its gradients short enough."""
    K, clipping = training.needs_gradient_norm("training"), training.clipping
    if feature_bound is None:
        if clipping == "gradient":
            return None  # nothing bounds the rows, so nothing bounds the smoothness
        if clipping == "margin" and objective.clipping == "none":
            why = "the margin derivative is clipped at gradient_norm / feature_bound"
            raise DescriptionError("feature_bound", None, "given with clipping='margin'", why)
        R = K / objective.gradient_norm(1.0)
        while objective.gradient_norm(R) > K:
            R = float(np.nextafter(R, 0.0))
        return R
    R = number("feature_bound", feature_bound, above=0.0)
    if clipping == "none" and objective.gradient_norm(R) > K:
        raise AssumptionError(
            f"{type(objective).__name__} with features of norm up to {R:g} has gradients of norm "
            f"up to {objective.gradient_norm(R):g}, above gradient_norm = {K:g}: the noise would "
            "be too small. Use objective.gradient_norm(feature_bound), or clip."
        )
    return R
