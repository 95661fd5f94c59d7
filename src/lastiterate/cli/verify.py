"""`lastiterate verify`: recompute what a certificate claims, trusting nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import print_json, print_text


def verify(
    certificate: Annotated[Path, typer.Argument(help="The certificate, a JSON file.")],
    as_json: AsJson = False,
) -> None:
    """Recompute a certificate in independent arithmetic; exit code 3 if a claim fails."""
    import lastiterate
    from lastiterate.certificate import MalformedCertificateError, UnreadableCertificateError
    from lastiterate.errors import CertificateError

    try:
        result = lastiterate.verify(certificate)
    except CertificateError as error:
        nothing_to_check = isinstance(error, UnreadableCertificateError)
        if nothing_to_check and not isinstance(error, MalformedCertificateError):
            raise  # no such file, or no certificate at all: bad input
        if as_json:
            print_json("verify", {"verified": False, "reason": str(error)})
        typer.echo(f"lastiterate: not verified: {error}", err=True)
        raise typer.Exit(3) from None
    found = result.certificate
    if as_json:
        print_json(
            "verify",
            {
                "verified": True,
                "epsilon": result.epsilon,
                "delta": result.delta,
                "theorem": found.theorem,
                "adjacency": found.adjacency,
                "dataset": found.dataset,
                "release": found.release,
                "assumptions": list(found.assumptions),
                "not_covered": list(found.not_covered),
                "sha256": found.sha256,
            },
        )
        return
    print_text(str(result))
    print_text(str(found))
