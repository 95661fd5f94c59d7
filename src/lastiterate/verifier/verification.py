"""Checking a certificate without trusting whoever wrote it.

The file is read with bounds on its size, depth and content; its hash and its words are checked;
then every claimed number is recomputed from the description and the witness in ball arithmetic.
Nothing of the accountant's fast path is used.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.errors import CertificateError, DescriptionError, LastIterateError
from lastiterate.kernel.assumptions import sentences
from lastiterate.kernel.balls import KernelError, MalformedError
from lastiterate.kernel.run import read_run
from lastiterate.verifier.authenticity import (
    Key,
    check_not_revoked,
    payload,
    read_envelope,
    trusted_signers,
)
from lastiterate.verifier.balls import need_balls, precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.document import Document, fingerprint, parameters_hash
from lastiterate.verifier.joint import composed_profile
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import (
    AuthenticityError,
    ClaimError,
    MalformedCertificateError,
    TamperedCertificateError,
)
from lastiterate.verifier.steps import Case
from lastiterate.verifier.witness import unpack
from lastiterate.verifier.words import good_nonce, named, theorem_words

MOST_CLAIMS = 16  # each one takes up to a few seconds
THEORY = "theory: it speaks of real numbers, and covers no model that a machine computed"
_MOST_LETTERS = 300  # of somebody else's error message


@dataclass(frozen=True)
class Verification:
    """A certificate whose every claim was recomputed and holds."""

    certificate: Document
    epsilon: float
    delta: float
    signed_by: tuple[str, ...] = ()  # the trusted keys that signed it; empty if none was asked for

    def __str__(self) -> str:
        by = f", signed by the trusted key {', '.join(self.signed_by)}" if self.signed_by else ""
        theory = f"\nIt is {THEORY}." if self.certificate.of_real_numbers else ""
        return f"verified: epsilon <= {self.epsilon!r} at delta = {self.delta!r}{by}{theory}"


def verify(
    certificate: str | os.PathLike[str] | Document,
    *,
    parameters: Any = None,
    trusted_keys: Iterable[Key] | None = None,
    signature: str | os.PathLike[str] | None = None,
    revoked: Iterable[str | os.PathLike[str]] = (),
) -> Verification:
    """Recompute what a certificate claims; raise a `CertificateError` that says what fails.

    Args:
        certificate: the file, or one that was loaded already.
        parameters: a model; it must then be the one that the certificate is bound to, and a
            certificate that speaks of real numbers is refused.
        trusted_keys: Ed25519 public keys (PEM files, or keys of `cryptography`); one of them must
            then have signed the certificate. Without them nothing is said about who wrote it.
        signature: a detached signature; by default the certificate's own, or the file of the same
            name with .sig at its end.
        revoked: notes about certificates that their signers no longer stand by
            (`lastiterate revoke`), each signed by a trusted key.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lastiterate import FullBatch, certify, verify
    >>> run = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "run.json"
    ...     certify(run, Loss(smoothness=1.0), delta=1e-5).save(path)
    ...     str(verify(path)).startswith("verified: epsilon <= 0.2")
    True
    """
    need_balls()
    trusted_keys = None if trusted_keys is None else list(trusted_keys)
    beside = None if isinstance(certificate, Document) else Path(f"{os.fspath(certificate)}.sig")
    if not isinstance(certificate, Document):
        with _refusing():
            certificate = Document.load(certificate)
    signers: tuple[str, ...] = ()
    if trusted_keys is not None:
        if signature is None and not certificate.signatures and beside and beside.exists():
            signature = beside
        detached = () if signature is None else read_envelope(signature, certificate)
        given = (*certificate.signatures, *detached)
        signers = trusted_signers(payload(certificate), trusted_keys, given)
        for note in revoked:
            check_not_revoked(certificate, note, trusted_keys)
    elif signature is not None or any(True for _ in revoked):
        raise AuthenticityError(
            "A signature says nothing without a key to check it with: give the trusted keys too."
        )
    if parameters is not None:
        own = parameters_hash(parameters)
        with _refusing():
            _check_parameters(certificate, own)
    recomputed(certificate)
    return Verification(certificate, certificate.epsilon, certificate.delta, signers)


def recomputed(certificate: Document) -> Profile:
    """What the certificate proves, after its hash and every claim were compared with it."""
    with precision(), _refusing():
        if fingerprint(certificate.content) != certificate.sha256:
            raise TamperedCertificateError("The certificate does not match its own SHA-256.")
        profile = _profile(certificate)
        _check_claims(certificate, profile)
    return profile


@contextmanager
def _refusing() -> Iterator[None]:
    """Whatever goes wrong inside is a reason to refuse, never a traceback.

    The file is a stranger's: a number, a name or a type that no run has may break the arithmetic
    anywhere, and what cannot be recomputed is not verified.
    """
    try:
        yield
    except CertificateError:
        raise
    except LastIterateError as error:
        raise ClaimError(f"What the certificate says cannot be: {error}") from None
    except MemoryError:
        raise ClaimError(
            "Recomputing what the certificate claims takes more memory than there is."
        ) from None
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise MalformedCertificateError(
            f"The claims of the certificate cannot be recomputed ({said[:_MOST_LETTERS]})."
        ) from None


def check(certificate: Document) -> Profile:
    """The profile of a certificate that was verified; its own claims are not recomputed here."""
    with _refusing():
        return _profile(certificate)


def _profile(certificate: Document) -> Profile:
    if certificate.content["kind"] == "composition":
        parts = certificate.parts
        profiles = []
        for part in parts:
            if part.content["kind"] != "run":
                raise MalformedCertificateError("A composition lists runs, not compositions.")
            if fingerprint(part.content) != part.sha256:
                raise TamperedCertificateError("A part of the composition was changed.")
            profiles.append(_check_run(part))
            _check_claims(part, profiles[-1])  # reports print the numbers of the parts too
        return composed_profile(certificate, profiles)
    return _check_run(certificate)


def _check_run(certificate: Document) -> Profile:
    content = certificate.content
    try:
        training = Training.from_dict(unpack(content["training"]))
        loss = Loss.from_dict(unpack(content["loss"]))
        unit = PrivacyUnit.from_dict(unpack(content.get("unit", {})))
        unit.check(training)
    except DescriptionError as error:
        raise MalformedCertificateError(
            f"The certificate describes a run that cannot be: {error}"
        ) from None
    releases = tuple(content["releases"])
    _check_releases(training, releases)
    _check_unit(certificate, unit)
    _check_words(certificate, training.batches.hidden)
    try:
        return CHECKS[certificate.theorem_key](
            Case(training, loss, releases, unit), unpack(content["witness"])
        )
    except CertificateError as error:
        raise ClaimError(f"The witness proves nothing: {error}.") from None
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise MalformedCertificateError(
            f"The witness of the certificate is malformed: {error!r}."
        ) from None


def _check_releases(training: Training, releases: tuple[Any, ...]) -> None:
    good = all(
        isinstance(step, int) and not isinstance(step, bool) and 1 <= step < training.steps
        for step in releases
    )
    if not good or list(releases) != sorted(set(releases)):
        raise MalformedCertificateError("The released checkpoints are not steps of the run.")


def _check_unit(certificate: Document, unit: PrivacyUnit) -> None:
    """The unit is said in one way, and the theorem speaks of such a person."""
    said = certificate.content.get("unit")
    if said is not None and (unit.default or said != unit.to_dict()):
        raise MalformedCertificateError("The unit of the certificate is not in its short form.")
    unknown = sorted(unit.differs - named(certificate.theorem_key).covers)
    if unknown:
        raise ClaimError(
            f"The theorem of the certificate says nothing about {unit}: no check of it covers "
            f"the unit's {', '.join(unknown)}."
        )


def _check_words(certificate: Document, hidden: bool) -> None:
    """Everything the certificate says in words must follow from its description."""
    content, theorem = certificate.content, named(certificate.theorem_key)
    try:
        expected = sentences(read_run(content), theorem.hidden_state, content.get("link"))
    except MalformedError as error:
        raise MalformedCertificateError(
            f"The certificate describes a run that cannot be: {error}."
        ) from None
    except KernelError as error:
        raise ClaimError(str(error)) from None
    expected["theorem"] = theorem_words(certificate.theorem_key)
    expected["nonce"] = content["nonce"] if hidden else None
    if hidden and not good_nonce(content["nonce"]):
        raise ClaimError(
            "The certificate does not name its hidden batches by a nonce of 16 to 128 characters, "
            "so nobody can tell which runs share them."
        )
    for field, value in expected.items():
        if content[field] != value:
            raise ClaimError(
                f"The field {field!r} of the certificate does not follow from its description (a "
                f"certificate of library version {content['library']!r:.40} may need that version)."
            )


def _check_claims(certificate: Document, profile: Profile) -> None:
    claims = [(certificate.delta, certificate.epsilon), *certificate.curve]
    if len(claims) > MOST_CLAIMS:
        raise ClaimError(f"The certificate makes more than {MOST_CLAIMS} claims.")
    if not all(0 < delta <= 1 for delta, _ in claims):
        raise ClaimError("A claimed delta is not a probability above 0.")
    judge = profile.judge(certificate.delta)
    for delta, epsilon in claims:
        found = judge.delta(epsilon, sufficient=delta)
        if not found <= delta:
            rounded_up = math.nextafter(float(found), 1.0)
            raise ClaimError(
                f"The claim epsilon = {epsilon!r} at delta = {delta!r} does not hold: what the "
                f"certificate proves at this epsilon is delta <= {rounded_up!r}."
            )
    link = certificate.link
    if link is not None and (profile.worst is None or not link.mu >= profile.worst):
        raise ClaimError(
            f"The claim that this link of a chain costs mu = {link.mu!r}, whatever is hidden in "
            f"it, does not hold: what the certificate proves is {profile.worst!r}."
        )
    if certificate.mu is not None:
        proved = profile.mu
        if proved is None or certificate.mu < proved:
            raise ClaimError(
                f"The claim mu = {certificate.mu!r} does not hold: what the certificate proves is "
                f"{'no single Gaussian' if proved is None else f'mu = {proved!r}'}."
            )


def _check_parameters(certificate: Document, given: str) -> None:
    runs = certificate.parts or (certificate,)  # a joint one is bound to what each run released
    bound = {run.content.get("parameters") for run in runs} - {None}
    if not bound:
        raise TamperedCertificateError("The certificate is not bound to any model.")
    if certificate.of_real_numbers:
        raise ClaimError(
            f"The certificate is {THEORY}: the low bits of doubles that noise was added to tell of "
            "single records. Train again; the trainer's description says what it rounds."
        )
    if given not in bound:
        raise TamperedCertificateError(
            "The model is not the one that was certified: its parameters have another hash."
        )
