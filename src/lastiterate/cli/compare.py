"""`lastiterate compare`: every bound for the same run, and the theorems that do not apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.output import (
    number,
    print_json,
    print_standing,
    print_table,
    print_text,
    standing,
)

if TYPE_CHECKING:
    from lastiterate.accounting import Row


@describes_a_run
def compare(
    described: Described,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the theorems that do not apply, and why.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Every applicable sound bound, tightest first."""
    import lastiterate

    found = lastiterate.compare(
        described.training,
        described.loss,
        described.delta,
        releases=described.releases,
        unit=described.unit,
    )
    if as_json:
        print_json(
            "compare",
            {
                **standing(found.provenance),
                "delta": found.delta,
                "bounds": [_entry(row) for row in found.rows],
                "other_algorithms": [_entry(row) for row in found.other_algorithms],
                "inapplicable": [
                    {
                        "key": row.theorem.key,
                        "theorem": row.theorem.name,
                        "reason": row.reason,
                    }
                    for row in found.inapplicable
                ],
                **described.to_dict(),
            },
        )
        return
    print_standing(found.provenance)
    rows: list[tuple[str, str, str, str]] = [
        (number(r.epsilon), r.theorem.name, r.theorem.status, "") for r in found.rows
    ]
    rows += [(number(r.epsilon), "not this run", "", r.reason) for r in found.other_algorithms]
    others = [("-", r.theorem.name, r.theorem.status, r.reason) for r in found.inapplicable]
    rows += others if everything else []
    columns = ("epsilon", "theorem", "status", "remark")
    print_table(
        f"epsilon at delta = {printed(found.delta)}, {described.training.adjacency} adjacency",
        columns,
        rows,
    )
    if others and not everything:
        print_text(f"{len(others)} more theorems do not apply to this run: --all says why.")


def _entry(row: Row) -> dict[str, Any]:
    return {
        "epsilon": row.epsilon,
        "key": row.theorem.key,
        "theorem": row.theorem.name,
        "reference": row.theorem.reference,
        "status": row.theorem.status,
        "remark": row.reason,
    }
