"""Epsilon against the clean steps after a deletion.

A clean step is the same in both worlds, so it is a post-processing of the model before it: whatever
was proved there still holds. Between two computed points the line keeps the larger value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.accounting import account
from lastiterate.description import Exposure, Loss, Training
from lastiterate.description.validation import number, whole
from lastiterate.errors import UnsupportedError
from lastiterate.guarantee import REFERENCE_DELTA
from lastiterate.printing import printed
from lastiterate.report.figures.growth import stopped
from lastiterate.report.style import STEP_BEHIND, blank, log_axis, marked, pens

_POINTS = 16


def forgetting(
    training: Training,
    loss: Loss,
    exposure: Exposure,
    delta: float = REFERENCE_DELTA,
    *,
    target: float | None = None,
    points: int = _POINTS,
) -> Any:
    """Epsilon for records that left, after each number of clean steps.

    Args:
        training: the whole run, its clean steps included.
        loss: what is known about the loss.
        exposure: the deleted records; ``left`` is the step of the deletion.
        delta: the probability with which epsilon may fail.
        target: an epsilon that the clean steps are to reach, drawn as a level line.
        points: numbers of clean steps that are computed.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=894, step_size=0.5, noise=0.01, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> gone = Exposure(records=20, left=500)
    >>> forgetting(run, Loss(smoothness=1.0, regularization=0.02), gone).layout.title.text
    '394 clean steps bring epsilon from 157.1 to 0.9965'
    """
    why = "it is the probability with which the epsilon may fail"
    delta = number("delta", delta, why, above=0, at_most=1)
    points = whole("points", points, "a line needs points")
    if exposure.left is None or exposure.left > training.steps:
        raise UnsupportedError(
            "Nobody left this run before its end: Exposure(left=) is the step of the deletion, and "
            "the steps after it are clean."
        )
    special = training.schedule, training.correlation, training.release, training.final_noise
    if special != (None, None, "last", 1.0):
        raise UnsupportedError(
            "The last steps of this run are special, so it cannot be stopped earlier: list its "
            "step sizes and noises, and release its last iterate (UnlearningPlan.continued does)."
        )
    most = training.steps - exposure.left
    some = np.geomspace(1, most + 1, points) - 1 if most else np.zeros(1)
    clean = np.unique(some.round()).astype(int).tolist()
    runs = [stopped(training, exposure.left + steps) for steps in clean]
    proved = [account(run, loss, exposure=exposure) for run in runs]
    values = np.minimum.accumulate([each.epsilon(delta) for each in proved]).tolist()
    figure = blank("", "clean steps after the deletion", f"epsilon at delta = {printed(delta)}")
    pen = next(pens())
    figure.add_scatter(
        x=clean,
        y=values,
        name="for the deleted records",
        mode="lines+markers",
        line={**pen.line, "shape": STEP_BEHIND},
        marker=pen.markers(),
        customdata=[printed(value) for value in values],
        hovertemplate="%{x:,} clean steps: epsilon %{customdata}",
    )
    if target is not None:
        figure.add_hline(y=target, line_dash="dot", annotation_text=f"asked: {printed(target)}")
    drawn = [value for value in [*values, target] if value is not None and 0 < value < math.inf]
    if min(drawn, default=1.0) < 0.1 * max(drawn, default=1.0):
        figure.update_yaxes(log_axis(drawn))
    start, end = printed(values[0]), printed(values[-1])
    title = f"{most:,} clean steps bring epsilon from {start} to {end}"
    figure.update_layout(title_text=title if most else f"epsilon = {start} without a clean step")
    return marked(figure, proved[-1].provenance)
