"""`lastiterate verify`: recompute what a certificate claims, trusting nobody."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._internal.progress import Working
from lastiterate.cli.confined import limit
from lastiterate.cli.description_flags import AsJson, Megabytes, Revoked, Seconds, TrustedKeys
from lastiterate.cli.output import escaped, print_json, print_text, say_warning
from lastiterate.errors import CertificateError, LastIterateError

if TYPE_CHECKING:
    from lastiterate.description import PrivacyUnit


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(help="The certificate, a JSON file; or the folder of a run or of a chain."),
    ],
    trusted_key: TrustedKeys = None,
    signature: Annotated[
        Path | None,
        typer.Option(help="A detached signature (default: CERTIFICATE.sig, where it exists)."),
    ] = None,
    revoked: Revoked = None,
    seconds: Seconds = 8,
    megabytes: Megabytes = 800,
    as_json: AsJson = False,
) -> None:
    """Recompute a certificate in independent arithmetic; exit code 3 if a claim fails."""
    import lastiterate
    from lastiterate.certificate import MalformedCertificateError, UnreadableCertificateError
    from lastiterate.certificate.certificate import weakness
    from lastiterate.certificate.filed import CERTIFICATE, applying, check_filed
    from lastiterate.verifier.balls import need_balls

    need_balls()  # a missing package is no verdict
    limit(seconds, megabytes)
    if (signature is not None or revoked) and not trusted_key:
        which = "--revoked" if signature is None else "--signature"
        raise LastIterateError(f"{which} needs --trusted-key: a key to check it with.")
    try:
        folder = certificate if certificate.is_dir() else None
        if folder is not None and _is_chain(folder):
            _verify_chain(folder, trusted_key or None, signature, revoked or (), as_json)
            return
        with Working("verification"):
            result = lastiterate.verify(
                certificate if folder is None else folder / CERTIFICATE,
                trusted_keys=trusted_key or None,
                signature=signature,
                revoked=revoked or (),
            )
            declared = folder is not None and check_filed(result.certificate, folder)
    except CertificateError as error:
        nothing_to_check = isinstance(error, UnreadableCertificateError)
        if nothing_to_check and not isinstance(error, MalformedCertificateError):
            raise  # no such file, or no certificate at all: bad input
        if as_json:
            print_json("verify", {"verified": False, "reason": str(error)})
        typer.echo(f"lastiterate: not verified: {escaped(str(error))}", err=True)
        raise typer.Exit(3) from None
    found = result.certificate
    caveats = applying(found, public_classes=declared)
    weak = weakness(found)
    if weak is not None:
        say_warning(weak)
    if as_json:
        print_json(
            "verify",
            {
                "verified": True,
                "epsilon": result.epsilon,
                "delta": result.delta,
                "unit": _unit(found.unit),
                "warning": weak,
                "theory": found.of_real_numbers,
                "theorem": found.theorem,
                "adjacency": found.adjacency,
                "dataset": found.dataset,
                "release": found.release,
                "assumptions": list(found.assumptions),
                "declared": list(found.declarations),
                "not_covered": list(caveats),
                "sha256": found.sha256,
                "signed": bool(result.signed_by),
                "signed_by": list(result.signed_by),
            },
        )
        return
    print_text(str(result))
    if found.unit.default:  # else the certificate says it
        print_text(f"For {found.unit}.")
    print_text(found.summary(caveats))
    if folder is not None:
        print_text("The other files of the folder are those that it speaks of.")
    if not result.signed_by:
        print_text(_unsigned(bool(found.signatures)))


def _verify_chain(
    folder: Path,
    keys: list[Path] | None,
    signature: Path | None,
    revoked: Iterable[Path],
    as_json: bool,
) -> None:
    """Every link of a chain, its order, and what it spent."""
    from lastiterate import CertificateChain
    from lastiterate.certificate.certificate import weakness

    if signature is not None:
        raise LastIterateError("--signature is for one certificate: each link carries its own.")
    chain = CertificateChain(folder)
    with Working("verification"):
        checked = chain.verify(trusted_keys=keys, revoked=revoked)
    weak = list(dict.fromkeys(text for link in checked.links if (text := weakness(link))))
    for text in weak:
        say_warning(text)
    if not as_json:
        print_text(str(checked))
        print_text(str(chain))
        if not checked.signed_by:
            print_text(_unsigned(bool(chain.terms.signatures)))
        return
    links = [
        {"epsilon": link.epsilon, "delta": link.delta, "mu": mu, "sha256": link.sha256}
        for link, mu in zip(checked.links, checked.mus, strict=True)
    ]
    print_json(
        "verify",
        {
            "verified": True,
            "lifetime_budget": chain.lifetime_budget.to_dict(),
            "unit": None if checked.unit is None else _unit(checked.unit),
            "warning": " ".join(weak) or None,
            "theory": False,  # such a link is refused
            "signed": bool(checked.signed_by),
            "signed_by": list(checked.signed_by),
            "links": links,
        },
    )


def _is_chain(folder: Path) -> bool:
    """Whether the folder holds a chain and not a run; one that could be both is refused."""
    from lastiterate.certificate.chain import TERMS
    from lastiterate.certificate.filed import ABOUT, CERTIFICATE

    terms, run = (
        (folder / TERMS).exists(),
        [n for n in (ABOUT, CERTIFICATE) if (folder / n).exists()],
    )
    if terms and run:
        raise LastIterateError(
            f"{folder} holds {TERMS} of a chain and {run[0]} of a run. Name the certificate to "
            "verify it, or move the files that do not belong there away."
        )
    if run == [ABOUT]:
        raise CertificateError(f"{folder} holds no {CERTIFICATE}: nothing is promised of this run.")
    if not (terms or run):
        raise LastIterateError(
            f"{folder} holds neither a run ({CERTIFICATE}) nor a chain ({TERMS})."
        )
    return terms


def _unit(unit: PrivacyUnit) -> dict[str, Any]:
    """Whom the numbers are for, in words and in numbers."""
    return {"text": str(unit), **dataclasses.asdict(unit)}


def _unsigned(carries_one: bool) -> str:
    if carries_one:
        return "It carries a signature that was not checked: give --trusted-key to check it."
    return "It is sealed, not signed: the numbers hold for the run it describes, whoever wrote it."
