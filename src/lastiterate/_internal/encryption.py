"""Bytes that only the holder of a key can read or forge: what may lie on a disk of hidden runs."""

from __future__ import annotations

import os

from lastiterate.errors import AssumptionError, DescriptionError


class Seal:
    """Authenticated encryption (AES-256-GCM) under a key of 32 bytes that lies elsewhere.

    >>> seal = Seal(os.urandom(32), "a note")
    >>> seal.opened(seal.sealed(b"secret"))
    b'secret'
    """

    def __init__(self, key: bytes, what: str) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as missing:
            raise AssumptionError(
                f"To encrypt {what} the package `cryptography` is needed "
                "(pip install lastiterate[models]); in memory nothing is."
            ) from missing
        if not isinstance(key, bytes) or len(key) != 32:
            found = f"{type(key).__name__} of other length or type"
            allowed = "32 bytes, such as EncryptedCheckpoint.new_key()"
            why = f"{what} that others can read is a release"
            raise DescriptionError("key", found, allowed, why)
        self._cipher, self._what = AESGCM(key), what

    def sealed(self, content: bytes, place: bytes | None = None) -> bytes:
        """The content, encrypted under a fresh nonce; with a place it opens there alone."""
        nonce = os.urandom(12)
        return nonce + self._cipher.encrypt(nonce, content, place)

    def opened(self, sealed: bytes, place: bytes | None = None) -> bytes:
        """What was sealed; raises ValueError if it was not, or not with this key, or elsewhere."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:12], sealed[12:], place)
        except InvalidTag:
            raise ValueError(f"{self._what} of another key, or changed since") from None
