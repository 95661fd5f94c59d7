"""Output perturbation: on a bounded domain the last update alone hides everything before it."""

from __future__ import annotations

import math

import numpy as np

from lastiterate.bounds import dynamics
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Cyclic, FullBatch, Reshuffled, Shuffled


class OutputPerturbation(Theorem):
    """One step from anywhere on the domain."""

    key = "output-perturbation"
    name = "Output perturbation (Chien & Li 2025, corrected)"
    reference = "Gaussian mechanism with the diameter; Chien & Li 2025, Figure 1 and appendix A.13"
    status = "corrected"
    statement = (
        "On a convex domain of diameter D the last iterate is mu-GDP with "
        "mu = (g(D) + s)/nu, g the modulus of the last update, s and nu its impulse and noise."
    )
    correction = (
        "Printed with D alone. The gradient step moves first and may leave the domain: two runs "
        "at opposite ends are g(D) + s apart before the noise, and the probability of the end "
        "points tells them apart better than D/nu allows."
    )
    dominated_by = ("taut-string", "worst-position", "hidden-position")
    schemes = (FullBatch, Cyclic, Shuffled, Reshuffled)
    assumptions = ("parameters are projected on a bounded convex set",)
    rounding = True  # the last step alone, charged as if it used the record

    def objection(self, run: Run) -> str | None:
        if math.isinf(run.training.diameter):
            return "the domain is unbounded (diameter = inf)"
        if not run.last_only:
            return "more than the last iterate is released"
        if dynamics.modulus(run.etas[-1:], run.training, run.loss) is None:
            return dynamics.no_modulus(run.training, run.loss) or dynamics.OUT_OF_RANGE
        return None

    def prove(self, run: Run) -> Bound:
        training = run.training
        last = run.etas[-1:]
        shape = dynamics.modulus(last, training, run.loss)
        assert shape is not None
        spread = float(shape(training.diameter)[0]) * dynamics.ROUNDING
        impulse = float(dynamics.impulses(last, training)[0])
        gap = np.array([spread + impulse])
        square = float(dynamics.squared_ratio(gap, training.noises[-1:])[0])
        return Bound(self, Gaussian(math.sqrt(square) * (1 + 1e-12)))
