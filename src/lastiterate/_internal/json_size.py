"""How large a JSON text is, before anything reads it."""

from __future__ import annotations


def values(raw: bytes) -> int:
    """How many values a JSON text holds at most, by its signs: those inside of texts count too."""
    opened, closed = (sum(map(raw.count, signs)) for signs in ((b"[", b"{"), (b"]", b"}")))
    return max(opened, closed) + raw.count(b",")


def nesting(raw: bytes) -> int:
    """How deeply the brackets of a JSON text are nested (those inside of texts count too).

    >>> nesting(b'[{"a": []}, []]')
    3
    """
    depth = deepest = 0
    for sign in raw.translate(None, delete=bytes(set(range(256)) - set(b"[]{}"))):
        depth += 1 if sign in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
