"""Shifted interpolation for full batches: the taut string, as a theorem of the ledger.

The numerics live in `taut_string` (linear moduli), `constant_steps` (closed forms) and `modulus`
(Hoelder and bounded gradients); this room applies them to a run and to its releases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import FullBatch
from lastiterate.theorems import dynamics, taut_string
from lastiterate.theorems.constant_steps import constant, constant_restart
from lastiterate.theorems.dynamics import squared_ratio
from lastiterate.theorems.ledger import Bound, Run, Theorem
from lastiterate.theorems.modulus import taut_path

_SEARCHED = 2000  # steps that the search over concave moduli looks back


class ShiftedInterpolation(Theorem):
    """Theorem SI with its exact optimum."""

    name = "Shifted interpolation"
    reference = "Bok, Su, Altschuler 2024; exact optimum and tightness: docs/theory"
    statement = (
        "Let g_k be the modulus of the k-th update, s_k the record's impulse, nu_k the noise. For "
        "all shifts a with z_0 = 0 (or z_tau = diameter), z_{k+1} = g_k(z_k) + s_k - a_{k+1} >= 0 "
        "and z_T = 0, the last iterate is mu-GDP with mu^2 = sum (a_{k+1}/nu_k)^2. The cheapest "
        "shifts are a taut string. Released checkpoints: mu^2 adds over the stretches between "
        "them; a window of released last iterates adds its own updates."
    )
    assumptions = ("full batch", "updates have a known modulus of continuity")

    def objection(self, run: Run) -> str | None:
        if not isinstance(run.training.batches, FullBatch):
            return "it is applied to full batches here; other batches have their own entries"
        if math.isinf(run.training.diameter) and not _regular(run):
            return (
                "without smoothness and without a bounded domain a step can forget nothing, so "
                "hiding the intermediate iterates does not help"
            )
        return None if _regular(run) else dynamics.no_modulus(run.training, run.loss)

    def prove(self, run: Run) -> Bound:
        stretches = [_stretch(run, first, last) for first, last in run.segments]
        window = run.training.steps - run.window + 1
        costs = squared_ratio(run.over_steps(run.impulses)[window:], run.training.noises[window:])
        squares = [mu * mu for mu, _ in stretches] + [float(costs.sum())]
        witness = {"stretches": [witness for _, witness in stretches]}
        return Bound(self, Gaussian(math.sqrt(math.fsum(squares)) * (1 + 1e-12)), witness)


def _regular(run: Run) -> bool:
    return run.contraction is not None and bool(np.all(np.isfinite(run.contraction)))


def _stretch(run: Run, first: int, last: int) -> tuple[float, dict[str, Any]]:
    """mu and witness of the hidden steps first..last, started from a common point."""
    training = run.training
    if last == first:
        return 0.0, {"kind": "empty", "first": first, "last": last}
    place: dict[str, Any] = {"first": first, "last": last}
    if not _regular(run):
        path = modulus_path(run, first, last)
        published = _published(run, first, last)
        if published <= path.mu:
            return published, {"kind": "published", **place}
        place |= {"skipped": last - first - len(path.shifts)}
        place |= {"restart": path.restart, "start": path.start, "shifts": path.shifts}
        return path.mu, {"kind": "modulus", **place}
    assert run.contraction is not None
    if training.constant:
        c, s, nu = float(run.contraction[0]), float(run.impulses[0]), float(training.noises[0])
        common = constant(c, s, nu, last - first)
        restarted = constant_restart(c, s, nu, last - first, training.diameter)
        kind = "constant" if common <= restarted else "constant-restart"
        return min(common, restarted), {"kind": kind, **place}
    stretch = slice(first, last)
    string = taut_string.best(
        run.over_steps(run.contraction)[stretch],
        run.over_steps(run.impulses)[stretch],
        training.noises[stretch],
        training.diameter,
    )
    place |= {"restart": string.restart, "start": string.start, "shifts": string.shifts}
    return string.mu, {"kind": "shifts", **place}


def modulus_path(run: Run, first: int, last: int) -> taut_string.TautString:
    """The cheapest shifts for Hoelder or merely bounded gradients.

    Of a long stretch only the last steps are searched, from the diameter: a first impulse beyond
    the diameter keeps the search from starting at a common point that is not there.
    """
    skipped = max(last - first - _SEARCHED, 0)
    stretch = slice(first + skipped, last)
    impulses = run.over_steps(run.impulses)[stretch].copy()
    if skipped:
        impulses[0] = 2 * run.training.diameter
    etas = run.etas if run.training.constant else run.etas[stretch]
    shape = dynamics.modulus(etas, run.training, run.loss)
    return taut_path(shape, impulses, run.training.noises[stretch], run.training.diameter)


def _published(run: Run, first: int, last: int) -> float:
    """mu of publishing every iterate of the stretch."""
    costs = squared_ratio(run.over_steps(run.impulses)[first:last], run.training.noises[first:last])
    total = float(costs[0]) * len(costs) if run.training.constant else float(costs.sum())
    return math.sqrt(total) * (1 + 1e-12)
