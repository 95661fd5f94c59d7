"""`lastiterate account`: the tightest sound guarantee for a run, and where it comes from."""

from __future__ import annotations

from lastiterate._internal.formatting import printed, printed_down
from lastiterate._internal.progress import Working
from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.output import (
    number,
    print_json,
    print_standing,
    print_table,
    print_text,
    standing,
    theorem_entry,
)


@describes_a_run
def account(described: Described, as_json: AsJson = False) -> None:
    """The tightest sound guarantee for what the run releases."""
    import lastiterate

    training, loss, delta = described.training, described.loss, described.delta
    guarantee = lastiterate.account(
        training, loss, releases=described.releases, unit=described.unit
    )
    with Working("accounting"):
        epsilon, lower, best = (
            guarantee.epsilon(delta),
            guarantee.lower(delta),
            guarantee.best_at(delta),
        )
    if as_json:
        from lastiterate.description.assumptions import not_covered

        print_json(
            "account",
            {
                "epsilon": epsilon,
                "delta": delta,
                "mu": guarantee.mu,
                "lower": lower,
                "theorem": theorem_entry(best.theorem),
                "note": best.note,
                **standing(guarantee.provenance),
                "assumptions": [vars(assumption) for assumption in guarantee.assumptions],
                "not_covered": list(not_covered(training)),
                **described.to_dict(),
            },
        )
        return
    print_standing(guarantee.provenance)
    print_table(
        f"Privacy of the released model, {training.adjacency} adjacency",
        ("epsilon", "delta", "mu", "some loss really suffers", "theorem"),
        [
            (
                number(epsilon),
                f"{printed(delta)}",
                number(guarantee.mu),
                printed_down(lower),
                f"{best.theorem.name} ({best.theorem.status})",
            )
        ],
    )
    if described.step_size_cancels:
        print_text("The step size cancels, and none was given: the run is shown with step size 1.")
    print_text(guarantee.words(delta))
