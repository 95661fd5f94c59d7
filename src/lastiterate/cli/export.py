"""`lastiterate export`: a run's model as an ONNX graph or as plain JSON weights."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.confined import readable
from lastiterate.cli.description_flags import AsJson, Megabytes, Seconds
from lastiterate.cli.new_file import Force, refuse_taken, write_new
from lastiterate.cli.output import print_json, print_text


def export(
    run: Annotated[Path, typer.Argument(help="The folder of the run.", show_default=False)],
    output: Annotated[
        Path, typer.Argument(help="The new file, .onnx or .json.", show_default=False)
    ],
    force: Force = False,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Write a run's model for other programs: encoding and weights, with what it cost.

    The file carries epsilon, delta and the certificate's digest; it proves nothing by itself, so
    hand on certificate.json beside it.
    """
    from lastiterate.models.exported import check_kind, exported
    from lastiterate.models.saved import TableModel

    kind = output.suffix[1:].lower()
    check_kind(kind)
    refuse_taken([output], force, "the output")
    if run.is_dir() and (code := readable(seconds, megabytes, run)):
        raise typer.Exit(code)
    trained = TableModel.load(run)
    write_new(output, exported(trained, kind), force, "the output")
    certificate = trained.model.certificate_
    if as_json:
        told = {
            "output": str(output),
            "epsilon": None if certificate is None else certificate.epsilon,
            "delta": None if certificate is None else certificate.delta,
            "certificate": None if certificate is None else certificate.sha256,
        }
        print_json("export", told)
    else:
        print_text(f"The model of {run} is in {output}.")
