"""`lastiterate unlearn`: a run's folder forgets records, and says what that means."""

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
    ledger: Annotated[
        Path | None, typer.Option(help="The folder of train --ledger, if there is one.")
    ] = None,
    ledger_key: Annotated[Path | None, typer.Option(help="The file of train --ledger-key.")] = None,
    table: Annotated[
        Path | None, typer.Option(help="The records; a ledger knows where they were.")
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Steps without noise on what remains, afterwards.", min=0)
    ] = 0,
    wait: Annotated[
        float | None,
        typer.Option(help="Seconds until the answer leaves; default: twice what training took."),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Sign the certificate with this private key.")
    ] = None,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Forget records of a run: its folder gets the new model, its certificate and its report.

    With the ledger that it was trained with, by one perturbation; without one, where every update
    saw all records, by noisy steps on what remains.
    """
    from lastiterate.certificate.signatures import private_key
    from lastiterate.errors import DescriptionError
    from lastiterate.models.erased import erase
    from lastiterate.models.erased import ledger_key as read_key
    from lastiterate.models.table import read_table

    if (ledger is None) != (ledger_key is None):
        why = "a ledger is encrypted under a key that lies elsewhere"
        missing = "ledger" if ledger is None else "ledger_key"
        raise DescriptionError(missing, None, "given with the other one", why)
    if run.is_dir() and (code := readable(seconds, megabytes, run)):
        raise typer.Exit(code)
    done = erase(
        run,
        read_table(records),
        epsilon=epsilon,
        delta=delta,
        state=ledger,
        key=None if ledger_key is None else read_key(ledger_key),
        table=table,
        steps=steps,
        wait=wait,
        signer=None if key is None else private_key(key),
    )
    if as_json:
        facts = {"deleted": done.deleted, "records": done.records, "models": done.models}
        proved = None if done.certificate is None else done.certificate.epsilon
        told = {"epsilon": proved, "delta": delta, "remains": list(done.remains)}
        print_json("unlearn", {"run": str(run), **facts, **told})
        return
    print_text((run / "report.md").read_text(encoding="utf-8"))
    print_text("What remains on disk (beside copies, logs and backups that nobody here knows of):")
    for line in done.remains:
        print_text(f"- {line}")
