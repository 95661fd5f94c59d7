"""`lastiterate certify`: seal what a described run guarantees, checked before it is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.cli.described import Described
from lastiterate.cli.description_flags import AsJson, describes_a_run
from lastiterate.cli.new_file import Force, refuse_taken, write_new
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
    key: Annotated[
        Path | None, typer.Option(help="Sign it with this private key (lastiterate keygen).")
    ] = None,
    detached: Annotated[
        bool, typer.Option("--detached", help="Put the signature into a file of its own, .sig.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a certificate of the run's privacy, after an independent check accepted it."""
    import lastiterate

    if described.step_size_cancels:
        raise LastIterateError(
            "A certificate names the run, and a run has a step size (--step-size), also where it "
            "changes no number."
        )
    if detached and key is None:
        raise LastIterateError("--detached needs --key: without a key there is no signature.")
    beside = Path(f"{output}.sig")
    refuse_taken([output, beside] if detached else [output], force)
    certificate = lastiterate.certify(
        described.training,
        described.loss,
        described.delta,
        dataset=dataset,
        releases=described.releases,
        unit=described.unit,
        nonce=nonce,
    )
    if key is not None:
        certificate = certificate.sign(key)
    if detached:
        write_new(output, certificate.unsigned().to_json(), force)
        write_new(beside, certificate.envelope(), force)
    else:
        write_new(output, certificate.to_json(), force)
    if as_json:
        keys = ("epsilon", "delta", "mu", "curve", "adjacency", "dataset", "sha256")
        answer = {key: certificate.content[key] for key in keys}
        answer |= {
            "provenance": certificate.provenances,
            "declared": list(certificate.declarations),
        }
        signers = [one["keyid"] for one in certificate.signatures]
        where = {"file": str(output), "signature": str(beside) if detached else None}
        print_json(
            "certify", {**where, "signed_by": signers, "theorem": certificate.theorem, **answer}
        )
    else:
        print_text(str(certificate))
        print_text(f"Written to {output}; check it with: lastiterate verify {output}")
        for one in certificate.signatures:
            print_text(f"Signed with the key {one['keyid']}{f', in {beside}' if detached else ''}.")
