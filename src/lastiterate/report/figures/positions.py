"""Where a record sits in the epoch, and what that costs it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.bounds.ledger import Run
from lastiterate.bounds.ordered_batches import HiddenPosition, WorstPosition, position_mus
from lastiterate.curves import gaussian
from lastiterate.description import Loss, Training
from lastiterate.errors import UnsupportedError
from lastiterate.guarantee import REFERENCE_DELTA, weakest_voucher
from lastiterate.printing import printed
from lastiterate.report.style import BELOW, blank, marked, pens

Floats = NDArray[np.float64]

_POINTS = 400


def positions(training: Training, loss: Loss, delta: float = REFERENCE_DELTA) -> Any:
    """mu of a record against its batch in the epoch (cyclic or shuffled batches).

    Cyclic batches are charged the worst position; shuffled ones the average of the curves (never
    of mu) over all positions, read at ``delta``.

    >>> from lastiterate import Shuffled
    >>> run = Training(records=100, steps=30, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=Shuffled(10))
    >>> positions(run, Loss(smoothness=1.0)).layout.title.text
    'Batch 10 leaks most, mu = 0.2191; batch 1 least, 0.1096'
    """
    if training.batches.full or not training.batches.repeated:
        raise UnsupportedError(
            f"A record has no fixed position in {training.batches.name} batches. Cyclic and "
            "Shuffled batches have one."
        )
    run = Run(training, loss)
    hidden = training.batches.hidden
    reason = (HiddenPosition() if hidden else WorstPosition()).obstacle(run)
    if reason is not None:
        raise UnsupportedError(f"There is no mu for each position to draw: {reason}.")
    mus = position_mus(run)
    if not np.all(np.isfinite(mus)):
        raise UnsupportedError("Without noise every position leaks everything: mu is infinite.")
    keep = np.unique(np.linspace(0, len(mus) - 1, _POINTS).round().astype(int))
    own, line = (pen for pen, _ in zip(pens(), range(2), strict=False))
    figure = blank(
        _finding(mus),
        f"batch that holds the record (1 to {len(mus):,}, in the order of the epoch)",
        "mu of that record",
        legend=BELOW,
    )
    figure.add_scatter(
        x=keep + 1,
        y=mus[keep],
        name="a record in this batch",
        line=own.line,
        mode="lines+markers" if len(keep) == len(mus) else "markers",  # nothing is known between
        marker=own.markers(40),
        customdata=[printed(mu) for mu in mus[keep]],
        hovertemplate="batch %{x:,}: mu %{customdata}",
    )
    level, name = _charged(run, float(mus.max()), delta if hidden else None)
    figure.add_scatter(
        x=[1, len(mus)],
        y=[level, level],
        name=name,
        mode="lines",
        line=line.line,
        hovertemplate=f"mu {printed(level)}",
    )
    figure.update_xaxes(range=[1 - 0.02 * len(mus), 1.02 * len(mus) + 1])
    figure.update_yaxes(range=[0, 1.08 * max(float(mus.max()), level)])
    return marked(figure, weakest_voucher(training, loss, (True,)))


def _finding(mus: Floats) -> str:
    low, high = float(mus.min()), float(mus.max())
    if high <= low * (1 + 1e-6):
        return f"Every position leaks the same: mu = {printed(high)}"
    return (
        f"Batch {int(np.argmax(mus)) + 1:,} leaks most, mu = {printed(high)}; "
        f"batch {int(np.argmin(mus)) + 1:,} least, {printed(low)}"
    )


def _charged(run: Run, worst: float, delta: float | None) -> tuple[float, str]:
    """What the run is charged, as a mu: the worst one, or the average of the curves at delta."""
    if delta is None:
        return worst, "charged: the worst position"
    epsilon = HiddenPosition().prove(run).curve.epsilon(delta)
    level = gaussian.mu(epsilon, delta)
    return level, f"charged: the average of the curves (at delta = {printed(delta)})"
