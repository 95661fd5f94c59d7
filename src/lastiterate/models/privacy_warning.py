"""The warning for choices that spend privacy without anybody counting it."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from sklearn.base import BaseEstimator

from lastiterate.errors import PrivacyWarning as PrivacyWarning
from lastiterate.models.stateless import CONTAINERS, Step, steps_of

_HARMLESS = ("sklearn.base", "sklearn.pipeline", "sklearn.utils")
"""Modules that hand one fit through. Of everything else in scikit-learn that fits, it is expected
that it fits several times or chooses by what it sees."""


def warn_if_selected() -> tuple[Step, ...]:
    """Warn when something else is fitting: a search, an ensemble, a calibration, a selection.

    Returns the steps of the pipeline that may learn, by the settings they have now, each with the
    name of its class in place of itself: a model must not carry what they learnt.

    Nothing tells an estimator who fits it, so the callers are looked at: scikit-learn's own, and
    whatever else is an estimator itself. A pipeline fits once, but its other steps must not learn.
    """
    frame, container, selecting = sys._getframe(2), None, ""
    while frame is not None and not selecting:
        caller = frame.f_locals.get("self")
        if type(caller) in CONTAINERS:
            container = caller
        else:
            selecting = _selecting(frame.f_globals.get("__name__", ""), caller)
        frame = frame.f_back  # type: ignore[assignment]
    steps = () if container is None else steps_of(container)
    learning = tuple(
        each._replace(step=type(each.step).__name__) for each in steps if each.objection
    )
    for each in learning:
        warnings.warn(
            f"The step {each.path!r} ({each.step}) of the pipeline is not "
            f"covered by the model's certificate_: {each.objection}. certificate_of(pipeline) "
            "refuses it and says what to use instead.",
            PrivacyWarning,
            stacklevel=3,
        )
    if selecting:
        warnings.warn(
            "This fit is one of several on the same records, or its result is chosen or changed "
            f"by them: it is made by {selecting}. Every fit spends its own epsilon, and choosing, "
            "calibrating or weighting by private records spends more; certificate_ covers one fit "
            "alone. Use lastiterate.models.tune, which accounts for a selection, or select on "
            "public data; compose the certificates of several fits.",
            PrivacyWarning,
            stacklevel=3,
        )
    return learning


def _selecting(module: str, caller: Any) -> str:
    """Who is fitting, in words, if it is neither harmless nor ours."""
    parts = module.split(".")
    if parts[0] == "sklearn":
        return "" if ".".join(parts[:2]) in _HARMLESS else module
    ours = any(base.__module__.split(".")[0] == "lastiterate" for base in type(caller).__mro__)
    return type(caller).__name__ if isinstance(caller, BaseEstimator) and not ours else ""
