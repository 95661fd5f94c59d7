"""`lastiterate predict`: what a run's model says about the rows of a table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.confined import readable
from lastiterate.cli.description_flags import AsJson, Megabytes, Seconds
from lastiterate.cli.new_file import Force, refuse_taken, write_new
from lastiterate.cli.output import escaped, print_json, print_text
from lastiterate.cli.train import TABLE


def predict(
    run: Annotated[Path, typer.Argument(help="The folder of the run.", show_default=False)],
    table: Annotated[Path, typer.Argument(help=TABLE, show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .csv or .parquet file; otherwise CSV is printed."),
    ] = None,
    force: Force = False,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Predict the class of every row, with probabilities, or its number; in the table's order.

    Columns may stand in another order, and those that are no features are ignored. Nothing in the
    folder runs, and one whose files do not belong together is refused.
    """
    from lastiterate.models.predictions import Predictions, check_kind
    from lastiterate.models.table import check_file

    kind = "csv" if output is None else output.suffix[1:].lower()
    check_kind(kind)
    if output is not None:
        refuse_taken([output], force)
    check_file(table)
    if run.is_dir() and (code := readable(seconds, megabytes, run)):
        raise typer.Exit(code)
    found = Predictions.of(run, table, kind)
    if output is not None:
        write_new(output, found.content(), force)
    if as_json:
        told = {"run": str(run), "rows": len(found), "columns": list(found.columns)}
        print_json("predict", {**told, "output": None if output is None else str(output)})
    elif output is None:
        text = found.content().decode("utf-8")
        print(escaped(text) if sys.stdout.isatty() else text, end="")
    else:
        print_text(f"{len(found):,} predictions in {output}.")
