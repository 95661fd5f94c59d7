"""`lastiterate theorems`: the registry of what is proved, corrected and refuted."""

from __future__ import annotations

from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import print_json, print_table, print_text, theorem_entry
from lastiterate.errors import LastIterateError


def theorems(
    name: Annotated[
        str | None, typer.Argument(help="Show in full the entries whose key or name contains this.")
    ] = None,
    status: Annotated[
        str | None, typer.Option(help="Only entries that are sound, corrected or refuted.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The registry: every theorem with its reference, status, statement and corrections."""
    from lastiterate.accounting import theorems as registry

    if status not in (None, "sound", "corrected", "refuted"):
        raise LastIterateError(f"--status is {status!r}, but must be sound, corrected or refuted.")
    wanted = (name or "").casefold()
    found = [
        theorem
        for theorem in registry()
        if wanted in f"{theorem.key} {theorem.name}".casefold() and status in (None, theorem.status)
    ]
    if not found:
        raise LastIterateError(
            f"No theorem is named like {name!r} with that status. "
            "Run `lastiterate theorems` for the whole list."
        )
    if as_json:
        print_json("theorems", {"theorems": [theorem_entry(theorem) for theorem in found]})
    elif name is None:
        rows = [(t.name, t.status, t.key) for t in found]
        print_table("Theorems", ("theorem", "status", "key"), rows)
    else:
        for theorem in found:
            print_text(f"{theorem.name} ({theorem.status})", style="bold")
            print_text(f"Key: {theorem.key}")
            print_text(f"Reference: {theorem.reference}")
            print_text(f"Statement: {theorem.statement}")
            if theorem.assumptions:
                print_text("Assumes: " + "; ".join(theorem.assumptions))
            if theorem.correction:
                print_text(f"Corrected: {theorem.correction}")
            print_text("")
