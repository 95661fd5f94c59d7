"""`lastiterate revoke`: a signed note that a certificate is no longer to be relied on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.new_file import Force, refuse_taken, write_new
from lastiterate.cli.output import print_json, print_text


def revoke(
    certificate: Annotated[Path, typer.Argument(help="The certificate.", show_default=False)],
    key: Annotated[Path, typer.Option(help="The private key that signed it.", show_default=False)],
    reason: Annotated[str, typer.Option(help="A sentence for whoever meets the note.")] = "",
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the note goes.")] = Path(
        "revoked.json"
    ),
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a signed note for `verify --revoked`: its signer no longer stands by a certificate."""
    from lastiterate.certificate import Certificate
    from lastiterate.certificate import revoke as note

    refuse_taken([output], force)
    found = Certificate.load(certificate)
    write_new(output, note(found, key, reason), force)
    if as_json:
        print_json("revoke", {"file": str(output), "revoked": found.sha256, "reason": reason})
        return
    print_text(f"Written to {output}: {found.sha256} is revoked for whoever checks with it:")
    print_text(f"lastiterate verify {certificate} --trusted-key ... --revoked {output}")
