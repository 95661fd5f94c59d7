"""Long lists of numbers in a certificate: compressed, exact, and bounded when they are read.

A list of doubles becomes ``{"float64": base64(zlib(little-endian bytes)), "length": n}``. Reading
never expands more bytes than the length says, nor more numbers in all than a limit.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lastiterate.verifier.refusals import MalformedCertificateError

INLINE = 16  # shorter lists stay readable
MOST_NUMBERS = 40_000_000  # in one certificate, all lists together: 320 MB


def pack(value: Any) -> Any:
    """Plain JSON values; long lists of numbers compressed; infinity as the word "inf".

    >>> pack({"shifts": np.zeros(3), "diameter": float("inf")})
    {'shifts': [0.0, 0.0, 0.0], 'diameter': 'inf'}
    >>> packed = pack(np.zeros(1000))
    >>> packed["length"], len(packed["float64"]) < 200
    (1000, True)
    """
    if isinstance(value, Mapping):
        return {str(key): pack(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _packed(value) if value.size > INLINE else pack(value.tolist())
    if isinstance(value, (list, tuple)):
        if len(value) > INLINE and all(isinstance(item, (int, float)) for item in value):
            return _packed(np.array(value, dtype=np.float64))
        return [pack(item) for item in value]
    if isinstance(value, np.generic):
        return pack(value.item())
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value


def _packed(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    raw = np.ascontiguousarray(array, dtype="<f8").tobytes()
    text = base64.b64encode(zlib.compress(raw, 1)).decode("ascii")
    return {"float64": text, "length": int(array.size)}


def unpack(value: Any) -> Any:
    """What `pack` wrote, with lists of floats as arrays.

    >>> unpack(pack({"x": np.arange(40.0)}))["x"][-1].item()
    39.0
    """
    return _Reader().read(value)


class _Reader:
    """Counts what it expands, so that a small file cannot fill the memory."""

    def __init__(self) -> None:
        self._left = MOST_NUMBERS

    def read(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            if set(value) == {"float64", "length"}:
                return self._expand(value["float64"], value["length"])
            return {key: self.read(item) for key, item in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self.read(item) for item in value]
        if value in ("inf", "-inf"):
            return float(value)
        return value

    def _expand(self, text: Any, length: Any) -> np.ndarray[Any, Any]:
        if not isinstance(text, str) or isinstance(length, bool) or not isinstance(length, int):
            raise MalformedCertificateError("A compressed list of the certificate is malformed.")
        self._left -= length
        if length < 0 or self._left < 0:
            raise MalformedCertificateError(
                f"The certificate holds more than {MOST_NUMBERS:,} numbers, more than any "
                "certificate this library writes."
            )
        try:
            reader = zlib.decompressobj()
            raw = reader.decompress(base64.b64decode(text, validate=True), 8 * length + 1)
        except (zlib.error, binascii.Error, ValueError):
            raise MalformedCertificateError(
                "A compressed list of the certificate cannot be expanded."
            ) from None
        if len(raw) != 8 * length or not reader.eof or reader.unused_data:
            raise MalformedCertificateError(
                f"A compressed list of the certificate does not hold the {length} numbers it says."
            )
        return np.frombuffer(raw, dtype="<f8").astype(np.float64)
