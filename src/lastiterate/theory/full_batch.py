"""Full batches: the path theorem without coins (Theorem U, case 1).

The numerics are in `taut_string` (linear moduli, equal steps in closed form) and `modulus` (Hoelder
and bounded gradients); this module applies them to a run and to the segments between its releases.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import FullBatch
from lastiterate.theory import dynamics, taut_string
from lastiterate.theory.dynamics import squared_ratio
from lastiterate.theory.modulus import best_path
from lastiterate.theory.registry import ANY_UPDATE, PRESENCE, Proof, Theorem
from lastiterate.theory.replay import root_sum_squares_up
from lastiterate.theory.run import Run
from lastiterate.theory.taut_string import constant, constant_restart

SEARCHED = 2000  # steps that the search over concave moduli looks back


def full_batch_bound(run: Run) -> Proof:
    """The cheapest path of every segment between releases; exact for Lipschitz updates."""
    segments = [_segment(run, first, last) for first, last in run.segments]
    window = run.steps[run.hidden_steps :]
    costs = squared_ratio(window.s, window.nu)
    parts = np.array([mu for mu, _ in segments] + [math.sqrt(float(costs.sum()))])
    witness = {"stretches": [witness for _, witness in segments]}
    return Proof(Gaussian(root_sum_squares_up(parts) * (1 + 1e-12)), witness)


def modulus_limits(run: Run) -> str | None:
    """What keeps the updates from having a modulus that lets them forget, or None."""
    if run.regular:
        return None
    if math.isinf(run.training.diameter):
        return (
            "without smoothness and without a bounded domain a step can forget nothing, so "
            "hiding the intermediate iterates does not help"
        )
    if dynamics.modulus(run.etas, run.training, run.curving) is None:
        return dynamics.no_modulus(run.training, run.curving) or dynamics.OUT_OF_RANGE
    return None


def _segment(run: Run, first: int, last: int) -> tuple[float, dict[str, Any]]:
    """mu and witness of the hidden steps first..last, started from a common point."""
    place: dict[str, Any] = {"first": first, "last": last}
    if last == first:
        return 0.0, {"kind": "empty", **place}
    found = [_lipschitz(run, first, last, place)] if run.regular else []
    if not found or run.capped:
        steps = run.steps[first:last]
        found += [(dynamics.at_once(steps.s, steps.nu), {"kind": "published", **place})]
        if dynamics.modulus(run.etas, run.training, run.curving) is None:
            return min(found, key=lambda bound: bound[0])
        path, skipped = modulus_path(run, first, last)
        walk = {"skipped": skipped, "restart": path.restart, "start": path.start}
        found += [(path.mu, {"kind": "modulus", **place, **walk, "shifts": path.shifts})]
    return min(found, key=lambda bound: bound[0])


def _lipschitz(
    run: Run, first: int, last: int, place: dict[str, Any]
) -> tuple[float, dict[str, Any]]:
    """The exact optimum for updates with Lipschitz constants."""
    steps, diameter = run.steps[first:last], run.training.diameter
    if steps.constant:
        common = constant(*steps.one, steps.count)
        restarted = constant_restart(*steps.one, steps.count, diameter)
        kind = "constant" if common <= restarted else "constant-restart"
        return min(common, restarted), {"kind": kind, **place}
    string = taut_string.best(steps.c, steps.s, steps.nu, diameter)
    walk = {"restart": string.restart, "start": string.start, "shifts": string.shifts}
    return string.mu, {"kind": "shifts", **place, **walk}


def modulus_path(run: Run, first: int, last: int) -> tuple[taut_string.TautString, int]:
    """The cheapest shifts found under concave moduli, and how many steps were not looked at.

    Of a long segment only the last `SEARCHED` steps are searched. What happened before them is
    unknown, so the two runs may be as far apart as the domain is wide: the search starts from
    z = diameter before its first step, and the distance after that step is g(diameter) + s.
    """
    skipped = max(last - first - SEARCHED, 0)
    part = slice(first + skipped, last)
    steps, etas = run.steps[part], run.etas if run.constant else run.etas[part]
    shapes = dynamics.implied_moduli(etas, run.training, run.curving)
    diameter, common_start = run.training.diameter, skipped == 0
    return best_path(shapes, steps.s, steps.nu, diameter, common_start=common_start), skipped


FULL_BATCH = Theorem(
    key="taut-string",
    name="Shifted interpolation (Bok, Su & Altschuler 2024)",
    reference="Bok, Su & Altschuler 2024; exact optimum and tightness: docs/theory",
    statement=(
        "Let g_k be the modulus of the k-th update, s_k the record's sensitivity, nu_k the noise. "
        "For all shifts a with z_0 = 0 (or z_tau = diameter), z_{k+1} = g_k(z_k) + s_k - a_{k+1} "
        ">= 0 and z_T = 0, the last iterate is mu-GDP with mu^2 = sum (a_{k+1}/nu_k)^2. The "
        "cheapest shifts are a taut string. Released checkpoints: mu^2 adds over the segments "
        "between them; a window of released last iterates adds its own updates."
    ),
    schemes=(FullBatch,),
    bound=full_batch_bound,
    limits=modulus_limits,
    supports=ANY_UPDATE | PRESENCE | {"releases", "records"},
    assumptions=("full batch", "updates have a known modulus of continuity"),
)
