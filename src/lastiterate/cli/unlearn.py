"""`lastiterate unlearn`: a run's folder forgets records, and says what that means."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
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
    ledger: Annotated[Path, typer.Option(help="The folder of train --ledger.", show_default=False)],
    ledger_key: Annotated[
        Path, typer.Option(help="The file of train --ledger-key.", show_default=False)
    ],
    table: Annotated[
        Path | None, typer.Option(help="The records, if they lie elsewhere now.")
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
    as_json: AsJson = False,
) -> None:
    """Forget records of a run that was trained with a ledger; its folder gets the new model."""
    from lastiterate.certificate.signatures import private_key
    from lastiterate.models.erased import erase
    from lastiterate.models.erased import ledger_key as read_key
    from lastiterate.models.table import read_table

    signer = None if key is None else private_key(key)
    forgotten, remains = erase(
        run,
        ledger,
        read_key(ledger_key),
        read_table(records),
        epsilon=epsilon,
        delta=delta,
        table=table,
        steps=steps,
        wait=wait,
        signer=signer,
    )
    if as_json:
        facts = {"run": str(run), "deleted": forgotten.deleted, "records": forgotten.records}
        proved = {
            "models": forgotten.models,
            "mu": forgotten.mu,
            "epsilon": None if forgotten.experiment else forgotten.curve.epsilon(delta),
            "delta": delta,
        }
        print_json("unlearn", {**facts, **proved, "remains": list(remains)})
        return
    print_text((run / "report.md").read_text(encoding="utf-8"))
    print_text("What remains on disk (beside copies, logs and backups that nobody here knows of):")
    for line in remains:
        print_text(f"- {line}")
