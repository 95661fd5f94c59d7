"""Making keys and signatures; `verifier.authenticity` says what is signed and checks it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lastiterate._internal.atomic_write import write_whole
from lastiterate.errors import DescriptionError
from lastiterate.verifier.authenticity import (
    PAYLOAD_TYPE,
    Key,
    Signature,
    key_id,
    need_cryptography,
    payload,
    pem,
    pre_authentication_encoding,
    revocation,
)
from lastiterate.verifier.document import Document
from lastiterate.verifier.refusals import AuthenticityError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def signature(certificate: Document, key: Key) -> Signature:
    """One signature of the certificate: the key's name and the signature in base64."""
    return signature_of(payload(certificate), key)


def signature_of(body: bytes, key: Key) -> Signature:
    """The signature of a payload."""
    private = private_key(key)
    message = pre_authentication_encoding(PAYLOAD_TYPE, body)
    signed = base64.b64encode(private.sign(message)).decode("ascii")
    return {"keyid": key_id(private.public_key()), "sig": signed}


def envelope(certificate: Document) -> str:
    """The DSSE envelope of a signed certificate: for a file of its own, and for other tools."""
    if not certificate.signatures:
        raise AuthenticityError("The certificate carries no signature; sign it first.")
    return _wrapped(payload(certificate), certificate.signatures)


def revoke(certificate: Document, key: Key, reason: str) -> str:
    """A note, signed with the key, that its holder no longer stands by the certificate.

    Whoever trusts the key gives it to `verify(..., revoked=[note])`, which then refuses. It is a
    DSSE envelope around an in-toto statement, as signatures are.

    Args:
        certificate: the one that is no longer to be relied on.
        key: an Ed25519 private key, as for `Certificate.sign`.
        reason: a sentence for whoever meets the note; nothing private.
    """
    body = revocation(certificate, reason)
    return _wrapped(body, [signature_of(body, key)])


def _wrapped(body: bytes, signatures: Iterable[Signature]) -> str:
    table = {
        "payloadType": PAYLOAD_TYPE,
        "payload": base64.b64encode(body).decode("ascii"),
        "signatures": list(signatures),
    }
    return json.dumps(table, sort_keys=True, indent=1) + "\n"


def make_key(private: str | os.PathLike[str], public: str | os.PathLike[str]) -> str:
    """A new key pair in two PEM files that must not exist yet; returns the key's name.

    The private file can be read by its owner alone.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     name = make_key(Path(folder) / "signer.pem", Path(folder) / "signer.pub")
    ...     len(name), sorted(os.listdir(folder))
    (64, ['signer.pem', 'signer.pub'])
    """
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        PublicFormat,
    )

    secret, known = Path(private), Path(public)
    if secret.absolute() == known.absolute():
        why = "whoever gets the public key must not get the private one"
        raise DescriptionError("key", str(secret), "two different files", why)
    for path in (secret, known):
        if path.exists() or path.is_symlink():
            raise _taken(path)
    key = Ed25519PrivateKey.generate()
    own = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    try:
        write_whole(secret, own, mode=0o600, replace=False)
        try:
            write_whole(known, shown, mode=0o644, replace=False)
        except BaseException:
            secret.unlink(missing_ok=True)  # it was made a moment ago, and nobody has used it
            raise
    except FileExistsError:
        raise _taken(secret if secret.exists() else known) from None
    except OSError as error:
        why = "a key that is nowhere signs nothing"
        raise DescriptionError(
            "key", f"{error.filename} ({error.strerror})", "a file that can be written", why
        ) from None
    return key_id(key.public_key())


def _taken(path: Path) -> DescriptionError:
    why = "what an old key signed could not be told from forgeries any more"
    return DescriptionError("key", str(path), "a file that does not exist yet", why)


def private_key(key: Key) -> Ed25519PrivateKey:
    """The key of a PEM file, its bytes, or itself; raises before anything is signed with it."""
    need_cryptography()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    if isinstance(key, Ed25519PrivateKey):
        return key
    what, why = "an Ed25519 private key (lastiterate keygen)", "only such a key can sign"
    raw, name = pem(key, what, why)
    try:
        found = load_pem_private_key(raw, password=None)
    except Exception:  # the library's own list of exceptions is long and grows
        raise DescriptionError("key", name, f"{what}, in PEM without a password", why) from None
    if not isinstance(found, Ed25519PrivateKey):
        raise DescriptionError("key", name, what, why)
    return found
