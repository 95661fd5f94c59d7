"""Full batches: the path theorem without coins (Theorem U, case 1).

The numerics are in `taut_string` (linear moduli, equal steps in closed form) and `modulus` (Hoelder
and bounded gradients); this module applies them to a run and to the segments between its releases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import FullBatch
from lastiterate.theory import dynamics, taut_string
from lastiterate.theory.dynamics import squared_ratio
from lastiterate.theory.modulus import best_path
from lastiterate.theory.path_witness import (
    DistancePath,
    LazyWitness,
    paths_table,
    public_path,
    string_path,
    walked_modulus,
)
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
    paths = [path for _, path in segments if path is not None]

    def witness() -> dict[str, Any]:
        moduli = [path.string is not None for path in paths]
        found = paths_table([path.found() for path in paths])
        return {"families": [{"moduli": moduli, "paths": found}]}

    return Proof(Gaussian(root_sum_squares_up(parts) * (1 + 1e-12)), LazyWitness(witness))


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


def _segment(run: Run, first: int, last: int) -> tuple[float, _SegmentPath | None]:
    """mu and the path of the hidden steps first..last, started from a common point."""
    if last == first:
        return 0.0, None
    steps = run.steps[first:last]
    found = list[tuple[float, _SegmentPath]]()
    if run.regular:
        found.append((_lipschitz(steps, run.training.diameter), _SegmentPath(run, first, last)))
    if not found or run.capped:
        public = _SegmentPath(run, first, last, public=True)
        found.append((dynamics.at_once(steps.s, steps.nu), public))
        if dynamics.modulus(run.etas, run.training, run.curving) is not None:
            string, skipped = modulus_path(run, first, last)
            found.append((string.mu, _SegmentPath(run, first + skipped, last, string=string)))
    return min(found, key=lambda bound: bound[0])


@dataclass(frozen=True)
class _SegmentPath:
    """The path of a segment: its taut string, a searched one, or z = 0 throughout."""

    run: Run
    first: int
    last: int
    string: taut_string.TautString | None = None
    public: bool = False

    def found(self) -> DistancePath:
        """The distances, at every step where they were searched."""
        run, first, last = self.run, self.first, self.last
        steps = run.steps[first:last]
        if self.public:
            return public_path(first, last, equal=steps.constant)
        if self.string is None:
            return string_path(steps, first, run.training.diameter)
        etas = run.etas if run.constant else run.etas[first:last]
        modulus = dynamics.modulus(etas, run.training, run.curving)
        assert modulus is not None
        return walked_modulus(modulus, steps.s, steps.nu, self.string, first)


def _lipschitz(steps: dynamics.Steps, diameter: float) -> float:
    """The exact optimum for updates with Lipschitz constants."""
    if steps.constant:
        common = constant(*steps.one, steps.count)
        return min(common, constant_restart(*steps.one, steps.count, diameter))
    return taut_string.best(steps.c, steps.s, steps.nu, diameter).mu


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
