"""`lastiterate keygen`: a key pair to sign certificates with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.description_flags import AsJson
from lastiterate.cli.output import print_json, print_text


def keygen(
    private: Annotated[
        Path, typer.Argument(help="The new file of the private key, such as signer.pem.")
    ],
    public: Annotated[
        Path | None,
        typer.Option(help="The new file of the public key (default: the same name, .pub)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make an Ed25519 key pair for `certify --key` and `verify --trusted-key`."""
    from lastiterate.certificate import make_key

    known = private.with_suffix(".pub") if public is None else public
    name = make_key(private, known)
    if as_json:
        print_json("keygen", {"keyid": name, "private": str(private), "public": str(known)})
        return
    print_text(f"Key {name}.")
    print_text(
        f"{private}: the private key. Only you can read it; whoever gets it can sign in your name."
    )
    print_text(f"{known}: the public key. Give it to whoever checks, over a channel they trust.")
