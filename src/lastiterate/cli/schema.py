"""`lastiterate schema`: a schema to fill in, from the names and types of a table's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.new_file import Force, refuse_taken, write_new
from lastiterate.cli.output import print_json
from lastiterate.cli.train import TABLE


def schema(
    table: Annotated[Path, typer.Argument(help=TABLE, show_default=False)],
    target: Annotated[
        str | None, typer.Option(help="The column to predict.", show_default=False)
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The TOML file; otherwise it is printed."),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a schema to fill in: names and stored types alone, nothing read off the records.

    Ranges and categories are for you to say, from what is publicly known; `lastiterate train`
    refuses a schema that still has a "?".
    """
    from lastiterate.models.template import template

    if output is not None:
        refuse_taken([output], force)
    text = template(table, target)
    if output is not None:
        write_new(output, text, force)
    if as_json:
        print_json("schema", {"output": None if output is None else str(output), "schema": text})
    elif output is None:
        print(text, end="")  # control characters in names are spelled out
    else:
        print(f'Fill in every "?" of {output}, then: lastiterate train ... --schema {output}')
