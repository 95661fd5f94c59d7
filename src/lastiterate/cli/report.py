"""`lastiterate report`: one HTML page about a run, to be read, printed, signed and filed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate._internal.progress import Working
from lastiterate.cli.confined import limit
from lastiterate.cli.description_flags import AsJson, Megabytes, Revoked, Seconds, TrustedKeys
from lastiterate.cli.output import escaped, print_json, print_text


def report(
    run: Annotated[
        Path,
        typer.Argument(
            help="A folder written by `lastiterate train`, or a certificate.", show_default=False
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The page; an older one is replaced.")
    ] = Path("report.html"),
    summary: Annotated[
        bool, typer.Option("--summary", help="One page to print and sign, without figures.")
    ] = False,
    trusted_key: TrustedKeys = None,
    revoked: Revoked = None,
    seconds: Seconds = 60,
    megabytes: Megabytes = 1600,
    as_json: AsJson = False,
) -> None:
    """Write a run's page: guarantee, verification, figures, assumptions; exit code 3 if refused.

    The certificate is recomputed. The result of an audit is shown if it lies in the folder as
    audit.json (lastiterate audit ... --json > FOLDER/audit.json).
    """
    from lastiterate.errors import LastIterateError, UnsupportedError

    if revoked and not trusted_key:
        raise LastIterateError("--revoked needs --trusted-key: a key to check it with.")
    try:
        from lastiterate.report.page import Report, check_target
    except ModuleNotFoundError as missing:
        what = f"A report needs {missing.name}, which is not installed."
        raise UnsupportedError(f'{what} Run: pip install "lastiterate[report]"') from None

    check_target(output)
    limit(seconds, megabytes)
    with Working("report"):
        page = Report.of(run, trusted_keys=trusted_key or None, revoked=revoked or ())
        page.save(output, summary=summary)
    certificate = page.folder.certificate
    if as_json:
        print_json(
            "report",
            {
                "out": str(output),
                "status": page.status,
                "reason": page.folder.reason,
                "contradicted": page.folder.audited is not None
                and page.folder.audited.contradicted,
                "signed_by": list(page.folder.signed_by),
                "epsilon": None if certificate is None else certificate.epsilon,
                "delta": None if certificate is None else certificate.delta,
                "figures": [] if summary else [figure.name for figure in page.figures.drawn],
                "not_drawn": {} if summary else dict(page.figures.missing),
            },
        )
    else:
        signed = f", signed by the trusted key {', '.join(page.folder.signed_by)}"
        status = page.status.upper() + (signed if page.folder.signed_by else "")
        print_text(f"{status}. The report is {output}.")
    if page.failed:
        why = page.folder.reason or "an audit contradicts the certificate."
        typer.echo(f"lastiterate: {escaped(why)}", err=True)
        raise typer.Exit(3)
