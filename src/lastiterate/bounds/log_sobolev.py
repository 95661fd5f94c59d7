"""Y: log-Sobolev contraction for full-batch noisy gradient descent (Theorem D.6)."""

from __future__ import annotations

import math

from lastiterate.bounds.langevin_diffusion import strongly_convex_objection, unit
from lastiterate.bounds.ledger import Bound, Run, Theorem
from lastiterate.curves.renyi import linear
from lastiterate.description import FullBatch

_UP = 1 + 1e-12


class LogSobolev(Theorem):
    """Ye & Shokri 2022, Theorem D.6 as printed."""

    key = "ye-shokri-2022-d6"
    name = "Ye & Shokri 2022, Theorem D.6"
    reference = "Ye & Shokri 2022, Theorem D.6"
    statement = (
        "lambda-strongly convex, beta-smooth, eta <= 2/(lambda+beta), eta lambda <= 1: "
        "R_alpha <= alpha (s^2/nu^2) sum_{k=1..T} (1 - eta lambda/2)^k."
    )
    dominated_by = ("taut-string",)
    schemes = (FullBatch,)
    assumptions = ("full batch", "strongly convex, smooth, no gradient clipping")

    def objection(self, run: Run) -> str | None:
        reason = strongly_convex_objection(run)
        if reason is not None:
            return reason
        eta = float(run.etas[0])
        if eta * (run.curvature + run.roughness) > 2:
            return "it needs step_size <= 2/(strong convexity + smoothness of the step)"
        if eta * run.curvature > 1:
            return "it needs step_size <= 1/(strong convexity of the step)"
        return None

    def decay(self, run: Run) -> float:
        """x, where 1 − x multiplies the divergence in one step."""
        return float(run.etas[0]) * run.curvature / 2

    def prove(self, run: Run) -> Bound:
        x = self.decay(run)
        shrunk = run.training.steps * math.log1p(-x) if x < 1 else -math.inf
        geometric = (1 - x) * -math.expm1(shrunk) / x  # sum over k of (1 - x)^k
        return Bound(self, linear(2 * unit(run) * geometric * _UP))


class SharperLogSobolev(LogSobolev):
    """Ye & Shokri 2022, Theorem D.6 with line (124) kept."""

    key = "ye-shokri-2022-d6-sharper"
    name = "Ye & Shokri 2022, Theorem D.6, sharper"
    reference = "Ye & Shokri 2022, proof of Theorem D.6, line (124)"
    status = "corrected"
    statement = "As Theorem D.6 with (1 + (1 - eta lambda)^2)/2 in place of 1 - eta lambda/2."
    correction = "Line (125) of the proof gives away a factor of up to 2; this keeps line (124)."

    def decay(self, run: Run) -> float:
        h = float(run.etas[0]) * run.curvature
        return h - h * h / 2
