"""Certificate files that somebody made to hang, crash or fool their reader.

Texts that are no certificates; certificates of this repository (`kept/`) in which one thing was
changed for the worse and the seal repaired, as anybody can; and witnesses that were tampered with
at random.
"""

from __future__ import annotations

import base64
import copy
import gzip
import io
import json
import math
import random
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.verifier.document import fingerprint

KEPT = Path(__file__).parents[1] / "certificate" / "kept"
MOST_NUMBERS = 40_000_000


def kept(name: str) -> dict[str, Any]:
    """A certificate of the repository, as plain values."""
    found: dict[str, Any] = json.loads((KEPT / f"{name}.json").read_text(encoding="ascii"))
    found.pop("signatures", None)
    return found


def resealed(content: dict[str, Any]) -> bytes:
    """Canonical text with a right hash."""
    content = {**content, "sha256": fingerprint(content)}
    return (json.dumps(content, sort_keys=True, indent=1) + "\n").encode("ascii")


@dataclass(frozen=True)
class Bomb:
    """A compressed list of zeros: so many, and how many it says there are."""

    numbers: int
    length: int | None = None
    copies: int = 1

    def __call__(self, most: int) -> Any:
        numbers = min(self.numbers, most)
        press = zlib.compressobj(9)
        whole, rest = divmod(8 * numbers, 1 << 20)
        raw = b"".join(press.compress(bytes(1 << 20)) for _ in range(whole))
        raw += press.compress(bytes(rest)) + press.flush()
        text = base64.b64encode(raw).decode("ascii")
        one = {"float64": text, "length": numbers if self.length is None else self.length}
        return one if self.copies == 1 else [one] * self.copies


def put(
    content: dict[str, Any], place: str, value: Any, most: int = MOST_NUMBERS
) -> dict[str, Any]:
    """The document with another value at "a.b.0"; what is not there is made."""
    changed = copy.deepcopy(content)
    *path, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    at: Any = changed
    for key in path:
        at = at[key]
    at[last] = value(most) if isinstance(value, Bomb) else value
    return changed


def _texts(most: int) -> Iterator[tuple[str, bytes]]:
    good = (KEPT / "full-batch.json").read_bytes()
    text = good.decode("ascii")
    yield "empty", b""
    yield "one zero byte", b"\0"
    yield "null", b"null"
    yield "a list", b"[]"
    yield "an empty object", b"{}"
    yield "byte order mark", b"\xef\xbb\xbf" + good
    yield "UTF-16", text.encode("utf-16")
    yield "UTF-32", text.encode("utf-32")
    yield "Latin-1", b'{"format": "\xff\xfe"}'
    yield "Windows line ends", good.replace(b"\n", b"\r\n")
    yield "no line end", good.rstrip()
    yield "spaces after it", good + b" " * min(most, 10_000_000)
    yield "only spaces", b" " * min(most, 50_000_000)
    yield "half", good[: len(good) // 2]
    yield "twice", good + good
    yield "open lists", b"[" * min(most, 5_000_000)
    yield "closed lists", b"]" * min(most, 50_000_000)
    yield "closed objects", b"}" * min(most, 50_000_000)
    yield "open objects", b'{"a":' * min(most, 1_000_000)
    yield "100 levels", b'{"a":' * 100 + b"1" + b"}" * 100
    yield "100,000 levels", b"[" * min(most, 100_000) + b"]" * min(most, 100_000)
    yield "commas", b"[" + b"," * min(most, 10_000_000) + b"]"
    yield "a million members", b"[" + b"1," * min(most, 1_000_000) + b"1]"
    yield "a number of 10^6 digits", b'{"format": ' + b"9" * min(most, 1_000_000) + b"}"
    yield "a number of 400 digits", good.replace(b'"version": 1', b'"version": ' + b"1" * 400)
    yield "a fraction of 10^6 digits", b'{"format": 0.' + b"9" * min(most, 1_000_000) + b"}"
    yield "an exponent of 10^6 digits", b'{"format": 1e' + b"9" * min(most, 1_000_000) + b"}"
    yield "not a number", good.replace(b'"delta": 1e-06', b'"delta": NaN', 1)
    yield "infinity", good.replace(b'"delta": 1e-06', b'"delta": Infinity', 1)
    yield "1e999", good.replace(b'"delta": 1e-06', b'"delta": 1e999', 1)
    yield "a field twice", good.replace(b'"delta": 1e-06', b'"delta": 1e-06,\n "delta": 1e-06', 1)
    yield "two claims", good.replace(b'"epsilon"', b'"epsilon": 0.001,\n "epsilon"', 1)
    yield "half a character", good.replace(b'"dataset": "kept"', b'"dataset": "\\ud800"')
    yield "a vast text", b'{"format": "' + b"x" * min(most, 60_000_000) + b'"}'
    yield "a vast name", b'{"' + b"x" * min(most, 60_000_000) + b'": 1}'
    yield "control characters", good.replace(b"kept", b"\x1b[2K")
    yield "a zip archive", _zipped(good)
    yield "a zip bomb", _zipped(bytes(min(most, 50_000_000)))
    yield "a gzip bomb", gzip.compress(bytes(min(most, 50_000_000)))
    yield "a pickle", b"\x80\x04\x95"
    yield "130 MiB", b"{" + b" " * min(most, 130 << 20)


def _zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("certificate.json", content)
    return file.getvalue()


HUGE = 10**400
# A kept certificate, the place, and what stands there instead.
_CHANGES: list[tuple[str, str, Any]] = [
    ("full-batch", "version", HUGE),
    ("full-batch", "epsilon", HUGE),
    ("full-batch", "epsilon", 0.5),
    ("full-batch", "delta", 5e-324),
    ("full-batch", "mu", 1e-300),
    ("full-batch", "curve", [[1e-300, 0.1]] * 15),
    ("full-batch", "curve", [[1e-6, 1.0]] * 60_000),
    ("full-batch", "kind", "composition"),
    ("full-batch", "kind", "\x1b[2K\rverified"),
    ("full-batch", "library", "\x1b[2K\rverified: epsilon <= 0.1"),
    ("full-batch", "theorem.key", "stopped-coupling"),
    ("full-batch", "theorem.key", "__class__"),
    ("full-batch", "training.steps", HUGE),
    ("full-batch", "training.steps", -1),
    ("full-batch", "training.records", HUGE),
    ("full-batch", "training.noise", HUGE),
    ("full-batch", "training.noise", 5e-324),
    ("full-batch", "training.noise", "nan"),
    ("full-batch", "training.noise", Bomb(3_000_000)),
    ("full-batch", "training.step_size", Bomb(10, length=10**9)),
    ("full-batch", "training.step_size", Bomb(10, length=-1)),
    ("full-batch", "training.step_size", Bomb(20_000_000, length=100)),
    ("full-batch", "training.step_size", Bomb(MOST_NUMBERS)),
    ("full-batch", "training.step_size", Bomb(MOST_NUMBERS // 2, copies=3)),
    ("full-batch", "training.step_size", {"float64": "!", "length": 1}),
    ("full-batch", "training.step_size", {"float64": "A" * 10_000_000, "length": 10**6}),
    ("full-batch", "training.batches.scheme", "__import__"),
    ("full-batch", "training.release", {"window": 10**9, "decay": 0.5}),
    ("full-batch", "training.correlation", Bomb(1_000_000)),
    ("full-batch", "training.arithmetic", {"grid": 5e-324, "error": 1e308, "coordinates": HUGE}),
    ("full-batch", "unit", {"records": HUGE}),
    ("full-batch", "unit", {"records": 10**9, "per_batch": 1}),
    ("full-batch", "link", {"former": "0" * 64, "start": None, "mu": HUGE}),
    ("full-batch", "releases", list(range(1, 100_000))),
    ("full-batch", "witness", {"stretches": [{}] * 50_000}),
    ("full-batch", "witness", Bomb(MOST_NUMBERS)),
    ("full-batch", "assumptions", ["x"] * 100_000),
    ("full-batch", "signatures", [{"keyid": "x" * 256, "sig": "x" * 256}] * 17),
    ("full-batch-coupling", "witness.cells", 10**9),
    ("full-batch-coupling", "witness.cells", 1.5),
    ("full-batch-coupling", "training.steps", 10**18),
    ("full-batch-schedule-bounded", "training.steps", 10**12),
    ("cyclic", "training.steps", 10**15),
    ("cyclic", "training.batches.size", HUGE),
    ("cyclic-correlated-composition", "training.steps", 10**9),
    ("cyclic-correlated-composition", "training.correlation", Bomb(100_000)),
    ("cyclic-people", "unit.records", 10**9),
    ("shuffled", "training.records", 10**15),
    ("shuffled", "training.steps", 10**15),
    ("shuffled", "nonce", "x" * 10_000_000),
    ("shuffled-people", "unit.records", 10**6),
    ("shuffled-people", "training.records", 10**9),
    ("shuffled-people", "witness", {"cells": 10**9, "reach": 1e300}),
    ("shuffled-left-early", "unit.last_step", HUGE),
    ("shuffled-correlated", "training.steps", 10**6),
    ("shuffled-correlated", "training.records", 10**8),
    ("reshuffled", "training.steps", 10**9),
    ("reshuffled", "training.records", 10**12),
    ("reshuffled", "training.batches.size", 1),
    ("poisson", "training.steps", 10**9),
    ("poisson", "training.batches.rate", 5e-324),
    ("poisson", "witness.menu", [[1e-3 * k, 0.1] for k in range(30_000)]),
    ("poisson-composition", "training.steps", 10**12),
    ("poisson-composition", "witness.menu", Bomb(1_000_000)),
    ("poisson-composition", "training.noise", 1e-12),
    ("poisson-deferred", "witness.segments.0.z", Bomb(5_000_000)),
    ("poisson-replaced", "training.noise", 1e-12),
    ("poisson-replaced-composition", "training.records", 10**18),
    ("without-replacement", "training.steps", 10**12),
    ("without-replacement-zero-out", "training.batches.size", 1),
    ("shuffled-proximal", "training.proximal", {"kind": "simplex"}),
    ("composition", "parts", []),
    ("composition", "parts.0.epsilon", 0.001),
    ("composition", "parts.0", {}),
    ("link", "link.mu", 0.0),
]


def _nested() -> bytes:
    """Compositions of compositions, and a thousand equal parts."""
    part = json.loads(resealed(kept("full-batch")))
    return resealed({**kept("composition"), "parts": [part] * 1000})


def _within() -> bytes:
    whole = kept("composition")
    return resealed({**whole, "parts": [json.loads(resealed(whole))] * 2})


def hostile_files(most: int = 10**9) -> Iterator[tuple[str, bytes]]:
    """Every file and its name, one after the other, as some are large: at most about this."""
    yield from _texts(most)
    for name, place, value in _CHANGES:
        yield (
            f"{name}: {place} = {str(value)[:60]!r}",
            resealed(put(kept(name), place, value, most)),
        )
    yield "a composition of 1,000", _nested()
    yield "a composition of compositions", _within()


# --- witnesses ------------------------------------------------------------------------------------

_ODD = (0, -1, 1, 0.5, 1e-300, 1e300, -1e-9, 10**9, 10**400, "inf", "-inf", "nan", "", None, True)
_ODD += ([], {}, [[]], {"float64": "eJwDAAAAAAE=", "length": 0})


def mutated(rng: random.Random, witness: Any) -> Any:
    """The witness with one to three things changed: numbers, types, lengths, bytes, order."""
    changed = copy.deepcopy(witness)
    for _ in range(rng.choice((1, 1, 2, 3))):
        holders = list(_holders(changed))
        if not holders:
            return {
                rng.choice(("cells", "menu", "stretches", "segments", "paths")): rng.choice(_ODD)
            }
        _spoil(rng, rng.choice(holders))
    return changed


def _holders(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list) and value:
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from _holders(item)


def _spoil(rng: random.Random, holder: Any) -> None:
    place = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    old = holder[place]
    kind = rng.randrange(6)
    if kind == 0:
        holder[place] = copy.deepcopy(rng.choice(_ODD))
    elif kind == 1:
        del holder[place]
    elif isinstance(old, bool):
        holder[place] = not old
    elif isinstance(old, int | float):
        factor = rng.choice((0.0, 0.5, 0.999, 1.001, 2.0, -1.0, 1e6))
        moved = float(old) * factor if abs(old) < 1e300 else 0.0
        holder[place] = int(moved) if kind < 5 and isinstance(old, int) else moved
    elif isinstance(old, str) and place == "float64":
        holder[place] = _other_numbers(rng, old)
    elif isinstance(old, str) and old:
        at = rng.randrange(len(old))
        holder[place] = old[:at] + rng.choice("aA0+/=\x1b") + old[at + 1 :]
    elif isinstance(old, list) and kind < 4:
        rng.shuffle(old)
    elif isinstance(old, list):
        old.extend(copy.deepcopy(old[: rng.randrange(1, 4)]))
    else:
        holder[place] = copy.deepcopy(rng.choice(_ODD))


def _other_numbers(rng: random.Random, text: str) -> str:
    numbers = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<f8").copy()
    if len(numbers):
        at = rng.randrange(len(numbers))
        with np.errstate(all="ignore"):  # nan and infinities are meant
            numbers[at:] *= rng.choice((0.0, 0.9, 1.1, -1.0, math.nan, math.inf, 1e300))
    return base64.b64encode(zlib.compress(numbers.tobytes(), 1)).decode("ascii")
