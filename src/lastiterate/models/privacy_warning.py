"""The warning for choices that spend privacy without anybody counting it."""

from __future__ import annotations

import sys
import warnings


class PrivacyWarning(UserWarning):
    """Something costs privacy that the certificate does not cover."""


def warn_if_selected() -> None:
    """Warn when scikit-learn's model selection is fitting: several fits on the same records.

    Nothing tells an estimator who fits it, so the callers are looked at.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("sklearn.model_selection"):
            warnings.warn(
                "This fit is one of several on the same records (cross-validation or a search). "
                "Every fit spends its own epsilon, and choosing by scores on private records "
                "spends more; certificate_ covers one fit alone. Use lastiterate.models.tune, "
                "which accounts for the selection, or select on public data.",
                PrivacyWarning,
                stacklevel=3,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]
