"""`lastiterate generalize`: what a privacy guarantee says about unseen data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import number, print_json, print_table, print_text, warn_of
from lastiterate.description.fields import checked_delta
from lastiterate.errors import LastIterateError


def generalize(
    file: Annotated[
        Path | None,
        typer.Argument(help="A TOML file that describes a run, instead of the numbers."),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Epsilon of the guarantee.")] = None,
    delta: Annotated[float | None, typer.Option(help="Delta of the guarantee.")] = None,
    records: Annotated[int | None, typer.Option(help="Number of independent records.")] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(help="What epsilon protects: replace | zero-out.", show_default="replace"),
    ] = None,
    confidence: Annotated[
        float, typer.Option(help="Probability with which the bound on one run shall hold.")
    ] = 0.95,
    as_json: AsJson = False,
) -> None:
    """How much worse than on its training data a private model can be on unseen data."""
    from lastiterate.generalization import generalization

    numbers = (epsilon, delta, records, adjacency)
    if file is not None:
        if any(value is not None for value in numbers):
            raise LastIterateError(
                "Give a file or the numbers (--epsilon, --delta, --records, --adjacency), not "
                "both: the file's run has numbers of its own."
            )
        import lastiterate
        from lastiterate.cli.described import combine

        described = combine(file, {})
        guarantee = lastiterate.account(
            described.training, described.loss, releases=described.releases
        )
        found = generalization(guarantee, confidence=confidence)
    elif epsilon is None or delta is None or records is None:
        raise LastIterateError(
            "Give --epsilon, --delta and --records, or a TOML file that describes a run: a bound "
            "on unseen data needs the privacy and the number of records."
        )
    else:
        if delta != 0.0:
            checked_delta(delta)
        warn_of(delta, records)
        found = generalization((epsilon, delta), records, confidence, adjacency=adjacency)
    if as_json:
        best = {"gap": found.best, "expected_gap": found.best_expected}
        answer = {
            "records": found.records,
            "confidence": confidence,
            "high_probability": found.high_probability,
            "expected": found.expected,
            "estimated": found.estimated,
            **{f"best_{name}": bound.name for name, bound in best.items()},
            "bounds": [{**vars(bound), "vacuous": bound.vacuous} for bound in found.bounds],
        }
        print_json("generalize", answer)
        return
    print_table(
        f"Training risk against population risk, {found.records:,} records",
        ("bound", "of", "value", "fails with", "status"),
        [
            (
                f"{bound.name} ({bound.reference})",
                bound.bounds,
                "-" if bound.unmet else "vacuous" if bound.vacuous else number(bound.value),
                f"{bound.failure:.2g}" if bound.failure else "-",
                "; ".join(bound.unmet) or bound.status,
            )
            for bound in found.bounds
        ],
    )
    print_text(str(found).split("\n  ")[0])
