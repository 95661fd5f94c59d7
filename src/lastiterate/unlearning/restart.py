"""What starting again would cost: the alternative that every plan stands beside.

A restart does not depend on the deleted records at all. Whether it is also the better model after
the same work is predicted on a quadratic (`plan.risk`); no guarantee rests on that.
"""

from __future__ import annotations

from dataclasses import dataclass

from numpy.typing import ArrayLike

from lastiterate.accounting.risk import assumed, predicted_risk
from lastiterate.description import Loss, Training
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.unlearning.going_on import base, going_on

_AS_WELL = 1.01


@dataclass(frozen=True)
class Restart:
    """Starting again on what remains.

    The risks are expected excess risks on the quadratic model after ``work`` steps; None where it
    says nothing.

    Attributes:
        steps: of the whole run.
        work: the clean steps that it is compared with.
        risk: of a restart with the run's noise.
        clean_risk: of the clean steps.
    """

    steps: int
    work: int | None
    risk: float | None = None
    clean_risk: float | None = None

    @property
    def better(self) -> bool:
        """Whether it takes no more steps, or ends as well (1 %) as the plan after as many."""
        if self.work is None or self.work >= self.steps:
            return self.work != 0
        if not self.work or self.risk is None or self.clean_risk is None:
            return False
        return self.risk <= _AS_WELL * self.clean_risk

    def __str__(self) -> str:
        whole = f"{self.steps:,} steps for the same run on what remains, exact"
        if self.risk is None or not self.work:
            return whole
        return f"{whole}; stopped after {self.work:,}: predicted risk {self.risk:.4g}"


def restart(
    training: Training,
    loss: Loss,
    work: int | None,
    noise: float,
    spectrum: ArrayLike | None,
    start: ArrayLike,
) -> Restart:
    """The restart beside a plan of ``work`` clean steps."""
    if not work:
        return Restart(training.steps, work)
    eta, own = base(training)
    again = training.replace(
        steps=work, step_size=eta, noise=own, schedule=None, final_noise=1.0, correlation=None
    )
    try:
        values = assumed(loss, spectrum)
        risks = [
            predicted_risk(run, loss, values, start).total
            for run in (again, going_on(training, work, noise))
        ]
    except (AssumptionError, UnsupportedError):
        return Restart(training.steps, work)
    return Restart(training.steps, work, *risks)
