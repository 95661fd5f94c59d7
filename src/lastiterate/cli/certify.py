"""`lastiterate certify`: sign what a described run guarantees, checked before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.output import print_json, print_text
from lastiterate.errors import LastIterateError


@describes_a_run
def certify(
    described: Described,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Where the certificate goes.")
    ] = Path("certificate.json"),
    dataset: Annotated[
        str, typer.Option(help="A label of the data; never a hash of its content.")
    ] = "",
    nonce: Annotated[
        str | None, typer.Option(help="Names a hidden partition that runs share.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a certificate of the run's privacy, after an independent check accepted it."""
    import lastiterate

    certificate = lastiterate.certify(
        described.training,
        described.loss,
        described.delta,
        dataset=dataset,
        releases=described.releases,
        nonce=nonce,
    )
    try:
        certificate.save(output)
    except OSError as error:
        raise LastIterateError(f"{output} cannot be written: {error.strerror}.") from None
    if as_json:
        keys = ("epsilon", "delta", "mu", "curve", "adjacency", "dataset", "sha256")
        answer = {key: certificate.content[key] for key in keys}
        print_json("certify", {"file": str(output), "theorem": certificate.theorem, **answer})
    else:
        print_text(str(certificate))
        print_text(f"Written to {output}; check it with: lastiterate verify {output}")
