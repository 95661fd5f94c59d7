"""`lastiterate plateau`: the step after which more training costs no more privacy."""

from __future__ import annotations

import math

from lastiterate._internal.formatting import printed
from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.output import number, print_json, print_standing, print_text, standing
from lastiterate.errors import LastIterateError


@describes_a_run
def plateau(described: Described, as_json: AsJson = False) -> None:
    """The step after which epsilon no longer grows (within 1 %), if there is one."""
    import lastiterate

    if described.releases:
        raise LastIterateError(
            "--releases has no meaning for plateau, which asks about the last iterate of a run "
            "that goes on: leave it out."
        )
    training, loss, delta = described.training, described.loss, described.delta
    step = lastiterate.plateau(training, loss, delta, unit=described.unit)
    settled = training if step is None else training.replace(steps=step)
    guarantee = lastiterate.account(settled, loss, unit=described.unit)
    epsilon = guarantee.epsilon(delta)
    if as_json:
        limit = None if step is None else epsilon
        answer = {"plateau": step, "epsilon_there": limit, "delta": delta}
        print_json("plateau", {**answer, **standing(guarantee.provenance), **described.to_dict()})
        return
    print_standing(guarantee.provenance)
    if step is None and not math.isfinite(epsilon):
        print_text(
            f"No plateau: no finite epsilon holds at delta = {printed(delta)}. A step that uses a "
            "record needs noise."
        )
    elif step is None:
        print_text(
            f"No plateau found: epsilon keeps growing with the steps ({number(epsilon)} after "
            f"{training.steps:,} steps, delta = {printed(delta)}, {training.adjacency})."
        )
    else:
        print_text(
            f"After step {step:,} epsilon grows by less than 1 % for ever: it is "
            f"{number(epsilon)} there (delta = {printed(delta)}, {training.adjacency})."
        )
