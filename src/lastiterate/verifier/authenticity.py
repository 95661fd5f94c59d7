"""Who vouches for a certificate: Ed25519 signatures over an in-toto statement.

A seal (the SHA-256 inside a certificate) shows that the file is in one piece; anybody can make
one. A signature shows that the holder of a key vouches for it. What is signed is the
pre-authentication encoding of DSSE v1, PAE(payload type, payload), where the payload is an in-toto
Statement v1: its predicate is the certificate without its signatures, its subjects are the
certificate and the model that it is bound to. The bytes of the payload are the statement as JSON
with sorted keys, no spaces, ASCII only, and every double in its shortest exact form.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.verifier.document import MOST_SIGNATURES, Document
from lastiterate.verifier.refusals import AuthenticityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PREDICATE_TYPE = "urn:lastiterate:certificate:1"
TERMS_TYPE = "urn:lastiterate:chain-terms:1"
REVOCATION_TYPE = "urn:lastiterate:revocation:1"
MOST_BYTES = 1 << 16  # of a key file
MOST_ENVELOPE = 256 << 20

Key: TypeAlias = "str | os.PathLike[str] | bytes | Ed25519PrivateKey | Ed25519PublicKey"
Signature: TypeAlias = dict[str, str]


# --- what is signed -------------------------------------------------------------------------------


def statement(certificate: Document) -> dict[str, Any]:
    """The in-toto statement about a certificate and the models that it is bound to.

    The digest of a model is the SHA-256 of its parameters as `certify` hashes them, not of the
    file it happens to be stored in.
    """
    predicate = {key: value for key, value in certificate.content.items() if key != "signatures"}
    subjects = [{"name": "certificate", "digest": {"sha256": certificate.sha256}}]
    for run in certificate.parts or (certificate,):
        bound = run.content.get("parameters")
        if bound is not None:
            subjects.append({"name": "model parameters", "digest": {"sha256": bound}})
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": PREDICATE_TYPE,
        "predicate": predicate,
    }


def payload(certificate: Document) -> bytes:
    """The canonical bytes of the statement."""
    return encoded(statement(certificate))


def terms_payload(terms: Mapping[str, Any], sha256: str) -> bytes:
    """The canonical bytes of the statement about the terms of a chain, without signatures."""
    return encoded(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": "terms of a chain", "digest": {"sha256": sha256}}],
            "predicateType": TERMS_TYPE,
            "predicate": terms,
        }
    )


def revocation(certificate: Document, reason: str) -> bytes:
    """The bytes of a note that its signer no longer stands by a certificate, and why."""
    return encoded(
        {
            "_type": STATEMENT_TYPE,
            "subject": [{"name": "certificate", "digest": {"sha256": certificate.sha256}}],
            "predicateType": REVOCATION_TYPE,
            "predicate": {"reason": reason},
        }
    )


def encoded(table: Mapping[str, Any]) -> bytes:
    """JSON with sorted keys, no spaces, ASCII only."""
    text = json.dumps(table, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def pre_authentication_encoding(kind: str, body: bytes) -> bytes:
    """PAE of DSSE v1: lengths first, so that no two pairs (kind, body) have the same bytes.

    >>> pre_authentication_encoding("http://example.com/HelloWorld", b"hello world")
    b'DSSEv1 29 http://example.com/HelloWorld 11 hello world'
    """
    name = kind.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(name), name, len(body), body)


# --- checking -------------------------------------------------------------------------------------


def trusted_signers(
    body: bytes,
    trusted: Iterable[Key],
    signatures: Iterable[Mapping[str, str]],
    what: str = "certificate",
) -> tuple[str, ...]:
    """The trusted keys that really signed a payload; none raises an AuthenticityError.

    The names in the signatures are hints: every signature is tried with every trusted key.
    """
    given = list(signatures)
    keys = list(map(_public, trusted))  # a wrong key file is said first
    if not given:
        raise AuthenticityError(
            f"The {what} is not signed. Its hash shows that it is in one piece, not who wrote it. "
            "Ask for a signed one, or check it without --trusted-key."
        )
    if len(given) > MOST_SIGNATURES:
        raise AuthenticityError(f"The {what} has more than {MOST_SIGNATURES} signatures.")
    found = _signers(body, keys, given)
    if not found:
        raise AuthenticityError(
            f"No trusted key signed this {what} as it stands. Either another key signed it "
            f"(it names {', '.join(sorted({_said(s) for s in given}))}), or it was changed after "
            "it was signed. Ask whoever trained the model, over a channel that you trust."
        )
    return found


def _signers(
    body: bytes, keys: Iterable[Ed25519PublicKey], signatures: Iterable[Mapping[str, str]]
) -> tuple[str, ...]:
    """Those of the keys that signed these bytes."""
    from cryptography.exceptions import InvalidSignature

    message = pre_authentication_encoding(PAYLOAD_TYPE, body)
    raws = [_raw(one) for one in signatures]
    found = []
    for name, public in {key_id(key): key for key in keys}.items():
        for raw in raws:
            try:
                public.verify(raw, message)
            except InvalidSignature:
                continue
            found.append(name)
            break
    return tuple(found)


def check_not_revoked(
    certificate: Document, note: str | os.PathLike[str], trusted: Iterable[Key]
) -> None:
    """Raise if a trusted key's note revokes the certificate, or if the note is nobody's."""
    said, signatures = _envelope(note)
    if not _signers(said, map(_public, trusted), signatures[:MOST_SIGNATURES]):
        raise AuthenticityError(
            f"No trusted key signed the note {note}, so it can neither revoke a certificate nor "
            "clear one. Ask the signer of the certificate for it."
        )
    try:
        table = json.loads(said)
        kind, reason = table["predicateType"], str(table["predicate"]["reason"])
        revoked = {one["digest"]["sha256"] for one in table["subject"]}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        kind, reason, revoked = "", "", set()
    if kind != REVOCATION_TYPE:
        raise AuthenticityError(f"{note} is no note about revoked certificates.")
    if revoked & {each.sha256 for each in (certificate, *certificate.parts)}:
        raise AuthenticityError(
            f"The certificate was revoked by a key that you trust: {reason[:500] or 'no reason'}"
        )


def read_envelope(path: str | os.PathLike[str], certificate: Document) -> tuple[Signature, ...]:
    """The signatures of a DSSE envelope in a file; it must be about this very certificate."""
    where = Path(path)
    said, found = _envelope(where)
    if said != payload(certificate):
        raise AuthenticityError(
            f"{where} is a signature of something else than this certificate. Keep each signature "
            "beside the file that it was made for."
        )
    return found


def _envelope(path: str | os.PathLike[str]) -> tuple[bytes, tuple[Signature, ...]]:
    """The payload of a DSSE envelope in a file, and its signatures."""
    where = Path(path)
    try:
        raw = read_bounded(where, MOST_ENVELOPE)
        table = json.loads(raw)
        kind, body, signatures = table["payloadType"], table["payload"], table["signatures"]
        said = base64.b64decode(body, validate=True)
        found = tuple({"keyid": str(s.get("keyid", "")), "sig": s["sig"]} for s in signatures)
    except OSError as error:
        raise AuthenticityError(f"{where} cannot be read: {error.strerror}.") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise AuthenticityError(f"{where} is not a DSSE envelope.") from None
    if kind != PAYLOAD_TYPE:
        raise AuthenticityError(f"{where} is an envelope of something else ({kind!r:.80}).")
    return said, found


def _raw(one: Mapping[str, str]) -> bytes:
    """The bytes of a signature; what is not base64 is no signature of anybody."""
    try:
        return base64.b64decode(one["sig"], validate=True)
    except (binascii.Error, ValueError, TypeError, KeyError):
        return b""


def _said(one: Mapping[str, str]) -> str:
    name = str(one.get("keyid"))
    return f"key {name}" if re.fullmatch("[0-9a-f]{64}", name) else "an unnamed key"


# --- keys -----------------------------------------------------------------------------------------


def key_id(public: Ed25519PublicKey) -> str:
    """The name of a key: SHA-256 of its DER encoding (SubjectPublicKeyInfo)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(der).hexdigest()


def _public(key: Key) -> Ed25519PublicKey:
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    if isinstance(key, Ed25519PublicKey):
        return key
    what, why = "an Ed25519 public key (lastiterate keygen)", "trust is given to a known key"
    raw, name = pem(key, what, why)
    try:
        found = load_pem_public_key(raw)
    except Exception:  # the library's own list of exceptions is long and grows
        raise DescriptionError("trusted_key", name, f"{what}, in PEM", why) from None
    if not isinstance(found, Ed25519PublicKey):
        raise DescriptionError("trusted_key", name, what, why)
    return found


def pem(key: Any, what: str, why: str) -> tuple[bytes, str]:
    """The bytes of a key, and how to name it in a message (never its content)."""
    if isinstance(key, bytes):
        return key, "some bytes"
    if not isinstance(key, (str, os.PathLike)):
        raise DescriptionError("key", type(key).__name__, what, why)
    try:
        return read_bounded(Path(key), MOST_BYTES), str(key)
    except OSError as error:
        raise DescriptionError("key", f"{key} ({error.strerror})", what, why) from None


def read_bounded(path: Path, most: int) -> bytes:
    """A plain file of bounded size; a pipe would make us wait, and a folder is no file."""
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    with path.open("rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise OSError(27, "the file is too large", str(path))
    return raw


def need_cryptography() -> None:
    """Say what to install where signatures cannot be made or checked."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise LastIterateError(
            "Signatures need the package cryptography. Run: pip install 'lastiterate[verify]'"
        ) from None
