"""`lastiterate unlearn`: deletes records from a run's folder, and says what that means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.confined import readable
from lastiterate.cli.description_flags import AsJson, Megabytes, Seconds
from lastiterate.cli.output import print_json, print_text


def unlearn(
    run: Annotated[Path, typer.Argument(help="The folder of the run.", show_default=False)],
    records: Annotated[
        Path,
        typer.Option(
            help="A CSV with one column of the table: all records with these values.",
            show_default=False,
        ),
    ],
    epsilon: Annotated[
        float, typer.Option(help="What must hold for the erased.", show_default=False)
    ],
    delta: Annotated[
        float, typer.Option(help="Probability that epsilon fails.", show_default=False)
    ],
    table: Annotated[
        Path,
        typer.Option(help="The records as they were trained on.", show_default=False),
    ],
    key: Annotated[
        Path | None, typer.Option(help="Sign the certificate with this private key.")
    ] = None,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Delete records from a run: its folder gets the new model, its certificate and its report.

    By noisy steps on what remains, where every update saw all records. The report has the
    alternatives beside it: to do nothing, and to start again.
    """
    from lastiterate.certificate.signatures import private_key
    from lastiterate.models.erased import erase
    from lastiterate.models.table import read_table

    if run.is_dir() and (code := readable(seconds, megabytes, run)):
        raise typer.Exit(code)
    done = erase(
        run,
        read_table(records),
        epsilon=epsilon,
        delta=delta,
        table=table,
        signer=None if key is None else private_key(key),
    )
    if as_json:
        plan, proved = done.plan, None if done.certificate is None else done.certificate.epsilon
        beside = {"nothing": plan.nothing, "start_again": plan.restart.steps}
        facts = {"deleted": done.deleted, "records": plan.training.records, "steps": plan.steps}
        told = {"epsilon": proved, "delta": delta, "remains": list(done.remains)}
        print_json("unlearn", {"run": str(run), **facts, **beside, **told})
        return
    print_text((run / "report.md").read_text(encoding="utf-8"))
    print_text("What remains on disk (beside copies, logs and backups that nobody here knows of):")
    for line in done.remains:
        print_text(f"- {line}")
