"""A privacy guarantee that travels with the model.

One JSON document in one canonical form: sorted keys, fixed layout, a version, and a SHA-256 of its
own content (its seal, which anybody can make). It holds the description, the theorem, the witness
and the claimed numbers; whoever holds it can recompute them without trusting whoever wrote it.
Signatures, where there are any, stand outside of what they sign.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.json_size import nesting, values
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.assumptions import SENSITIVITY_STATEMENT
from lastiterate.verifier.refusals import (
    MalformedCertificateError,
    TamperedCertificateError,
    UnreadableCertificateError,
)
from lastiterate.verifier.witness import unpack
from lastiterate.verifier.words import THEOREMS

FORMAT = "lastiterate-certificate"
VERSION = 1
MOST_BYTES = 128 << 20
MOST_VALUES = 200_000  # brackets, braces and commas: long lists are compressed, so few are needed
MOST_DEPTH = 24
MOST_SIGNATURES = 16

_RUN = "run"  # one run, with its description and witness
_COMPOSITION = "composition"  # several certificates on the same data

# The fields of every certificate, of a run, and of a composition, with their types.
_COMMON: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "version": (int,),
    "library": (str,),
    "kind": (str,),
    "dataset": (str,),
    "adjacency": (str,),
    "release": (str,),
    "theorem": (dict,),
    "epsilon": (float, int),
    "delta": (float, int),
    "mu": (float, int, type(None)),
    "curve": (list,),
    "assumptions": (list,),
    "not_covered": (list,),
    "sha256": (str,),
}
_OWN: dict[str, dict[str, tuple[type, ...]]] = {
    _RUN: {
        "training": (dict,),
        "loss": (dict,),
        "releases": (list,),
        "witness": (dict,),
        "provenance": (dict,),
        "nonce": (str, type(None)),
        "parameters": (str, type(None)),
    },
    _COMPOSITION: {"parts": (list,)},
}
_OUTSIDE = {"sha256", "signatures"}  # fields that are about the others
# Absent: one record all the time; a run that follows no other; no file beside it.
_OPTIONAL: dict[str, tuple[type, ...]] = {"unit": (dict,), "link": (dict,), "about": (str,)}
_THEOREM = {"key", "name", "reference", "status"}


class Head(NamedTuple):
    """What the next run of a chain follows: a certificate, and the released model it is bound to.

    Before the first run: the terms of the chain, and no model.
    """

    sha256: str
    parameters: str | None


class Link(NamedTuple):
    """Where a run stands in a chain: what it follows, and what it costs as one Gaussian."""

    former: str  # sha256 of the certificate before it, or of the terms of the chain
    start: str | None  # hash of the released parameters that it started from; None: public ones
    mu: float  # whatever is hidden in the run


@dataclass(frozen=True, eq=False)
class Document:
    """What is claimed, about which run, and why.

    ``content`` is the JSON object; the properties read it. `certify` and `compose` make such
    documents, `verify` checks their claims.
    """

    content: Mapping[str, Any]

    def __post_init__(self) -> None:
        _check_shape(self.content)

    @classmethod
    def sealed(cls, content: Mapping[str, Any]) -> Self:
        """The document of a content, with its hash."""
        return cls({**content, "sha256": fingerprint(content)})

    @property
    def epsilon(self) -> float:
        """The claimed epsilon at `delta`."""
        return float(self.content["epsilon"])

    @property
    def delta(self) -> float:
        """The probability with which `epsilon` may fail."""
        return float(self.content["delta"])

    @property
    def mu(self) -> float | None:
        """The parameter of Gaussian differential privacy, if the curve is one Gaussian."""
        value = self.content["mu"]
        return None if value is None else float(value)

    @property
    def curve(self) -> tuple[tuple[float, float], ...]:
        """Further claimed pairs (delta, epsilon)."""
        return tuple((float(delta), float(epsilon)) for delta, epsilon in self.content["curve"])

    @property
    def of_real_numbers(self) -> bool:
        """Whether a run that it speaks of is theory: see `Training.of_real_numbers`."""
        runs = [each.training for each in self.parts or (self,)]
        return any(run is None or run.of_real_numbers for run in runs)

    @property
    def adjacency(self) -> str:
        """Which datasets count as neighbours."""
        return str(self.content["adjacency"])

    @property
    def dataset(self) -> str:
        """The label the user gave to the data; never derived from its content."""
        return str(self.content["dataset"])

    @property
    def release(self) -> str:
        """What may be seen by others."""
        return str(self.content["release"])

    @property
    def seen(self) -> str:
        """What others may see: more than `release` where the theorem needs no secret iterates."""
        found = THEOREMS.get(self.theorem_key)
        hidden = found is None or found.hidden_state
        return self.release if hidden else "any or all of its iterates released"

    @property
    def theorem(self) -> str:
        """The name of the theorem that the numbers rest on."""
        return str(self.content["theorem"]["name"])

    @property
    def theorem_key(self) -> str:
        """The key of that theorem in the ledger: what a program compares, and never changes."""
        return str(self.content["theorem"]["key"])

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the certificate says nothing about."""
        return tuple(self.content["not_covered"])

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the numbers rest on, and who vouches for it."""
        return tuple(self.content["assumptions"])

    @property
    def declarations(self) -> tuple[str, ...]:
        """Sensitivities below what the description implies: only the user vouches for them."""
        runs = self.parts or (self,)
        return tuple(
            text
            for run in runs
            if run.provenances.get("sensitivity") == "declared"
            for text in run.assumptions
            if text.startswith(SENSITIVITY_STATEMENT)
        )

    @property
    def provenances(self) -> dict[str, str]:
        """One word each: who vouches for regularity, gradient norm and sensitivity of the run."""
        return dict(self.content.get("provenance", {}))

    @property
    def nonce(self) -> str | None:
        """Names the hidden random batches of the run; equal nonces mean equal partitions."""
        return self.content.get("nonce")

    @property
    def parts(self) -> tuple[Self, ...]:
        """The certificates that were composed; empty for a single run."""
        return tuple(type(self)(part) for part in self.content.get("parts", ()))

    @property
    def training(self) -> Training | None:
        """The run; None for what is not one run."""
        if self.content["kind"] != _RUN:
            return None
        return Training.from_dict(unpack(self.content["training"]))

    @property
    def loss(self) -> Loss | None:
        """What was assumed about the loss, or None for a composition."""
        return None if self.training is None else Loss.from_dict(unpack(self.content["loss"]))

    @property
    def unit(self) -> PrivacyUnit:
        """Whom the numbers are for: one record from first to last step unless something is said."""
        return PrivacyUnit.from_dict(unpack(self.content.get("unit", {})))

    @property
    def link(self) -> Link | None:
        """Its place in a chain; None for a run of its own."""
        return Link(**self.content["link"]) if "link" in self.content else None

    @property
    def head(self) -> Head:
        """What a run that goes on from this one's released model follows."""
        return Head(self.sha256, self.content.get("parameters"))

    @property
    def sha256(self) -> str:
        """The hash of everything else in the document."""
        return str(self.content["sha256"])

    @property
    def signatures(self) -> tuple[dict[str, str], ...]:
        """Who says to vouch for it (keyid, sig); only `verify` with trusted keys checks them."""
        return tuple(dict(one) for one in self.content.get("signatures", ()))

    def unsigned(self) -> Self:
        """The certificate without its signatures."""
        return type(self)({k: v for k, v in self.content.items() if k != "signatures"})

    def to_json(self) -> str:
        """The canonical text."""
        return canonical(self.content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __str__(self) -> str:
        return self.summary(self.not_covered)

    def summary(self, not_covered: Iterable[str]) -> str:
        """The certificate in words, with these of its caveats."""
        label = f" on {self.dataset!r}" if self.dataset else ""
        return (
            f"Certificate: epsilon <= {self.epsilon!r} at delta = {self.delta!r}{label}, "
            f"{self.adjacency} adjacency, {self.seen}. "
            + (f"For {self.unit}. " if "unit" in self.content else "")
            + (f"A link after {self.link.former[:16]}. " if self.link else "")
            + f"{self.theorem}. "
            + "".join(f"Declared, not proved: {text}. " for text in self.declarations)
            + f"Not covered: {'; '.join(not_covered)}."
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a document and check its form and its hash, in bounded time and memory.

        The claims themselves are checked by `verify`.
        """
        return cls.from_json(_read(Path(path)))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read the canonical text; anything else, even one space more, is refused."""
        raw = text if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")
        content = _parse(raw)
        certificate = cls(content)
        if fingerprint(content) != content["sha256"]:
            raise TamperedCertificateError(
                "The certificate was changed after it was written: its content does not match its "
                "own SHA-256. Ask for the original file."
            )
        if canonical(content).encode("ascii") != raw:
            raise TamperedCertificateError(
                "The certificate is not in its canonical form, so it was changed after it was "
                "written (perhaps only reformatted). Ask for the original file."
            )
        return certificate


def canonical(content: Mapping[str, Any]) -> str:
    """The one text of a document: sorted keys, indented, ASCII, exact numbers."""
    return json.dumps(content, sort_keys=True, indent=1, allow_nan=False) + "\n"


def fingerprint(content: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical text without the fields ``sha256`` and ``signatures``."""
    rest = {key: value for key, value in content.items() if key not in _OUTSIDE}
    return hashlib.sha256(canonical(rest).encode("ascii")).hexdigest()


def parameters_hash(parameters: Any) -> str:
    """SHA-256 of a model: an array, or a list or dict of them, with shapes, as doubles.

    >>> parameters_hash([1.0, 2.0]) == parameters_hash(np.array([1.0, 2.0]))
    True
    """
    digest = hashlib.sha256()
    for name, array in _named(parameters, ""):
        digest.update(f"{name}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()


def arrays(parameters: Any) -> Iterator[NDArray[np.float64]]:
    """The arrays of a model, as doubles."""
    for _, array in _named(parameters, ""):
        yield array


def _named(parameters: Any, name: str) -> Iterator[tuple[str, NDArray[np.float64]]]:
    if isinstance(parameters, Mapping):
        for key in sorted(parameters):
            yield from _named(parameters[key], f"{name}/{key}")
    elif isinstance(parameters, (list, tuple)) and not _numeric(parameters):
        for index, item in enumerate(parameters):
            yield from _named(item, f"{name}/{index}")
    else:
        yield name, np.asarray(parameters, dtype=np.float64)


def _numeric(values: list[Any] | tuple[Any, ...]) -> bool:
    return all(isinstance(value, (int, float, np.number)) for value in values)


def _read(path: Path) -> bytes:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UnreadableCertificateError(f"{path} is not a file.")
        if status.st_size > MOST_BYTES:
            raise UnreadableCertificateError(
                f"{path} has {status.st_size:,} bytes; no certificate has more than "
                f"{MOST_BYTES:,}. It was not read."
            )
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise UnreadableCertificateError(f"{path} cannot be read: {error.strerror}.") from None
    if len(raw) > MOST_BYTES:
        raise UnreadableCertificateError(f"{path} grew beyond {MOST_BYTES:,} bytes.")
    return raw


def _parse(raw: bytes) -> dict[str, Any]:
    """JSON of bounded size and depth."""
    if values(raw) > MOST_VALUES:
        raise UnreadableCertificateError(
            f"The document has more than {MOST_VALUES:,} values, more than any certificate."
        )
    deepest = nesting(raw)
    if deepest > MOST_DEPTH:
        raise UnreadableCertificateError(
            f"The document is nested {deepest} levels deep, deeper than any certificate."
        )
    try:
        content = json.loads(raw, parse_constant=_no_constant, parse_float=_double)
    except (ValueError, RecursionError) as error:
        raise UnreadableCertificateError(
            f"This is not a certificate, or only a part of one: {error}."
        ) from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise UnreadableCertificateError("This is JSON, but not a certificate of lastiterate.")
    return content


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _double(word: str) -> float:
    """A number that a double can hold; 1e999 would silently become infinite."""
    value = float(word)
    return value if math.isfinite(value) else _no_constant(word[:40])


def _check_shape(content: Mapping[str, Any]) -> None:
    if not isinstance(content, Mapping):
        raise MalformedCertificateError("A certificate is one JSON object.")
    version = content.get("version")
    if version != VERSION or not isinstance(version, int) or isinstance(version, bool):
        raise MalformedCertificateError(
            f"The certificate has schema version {version!r}; this library reads version "
            f"{VERSION}. Upgrade lastiterate."
        )
    library = content.get("library")
    if not isinstance(library, str) or not re.fullmatch(r"[\w.+!-]{1,64}", library, re.ASCII):
        raise MalformedCertificateError(
            f"The certificate does not say by which version it was written: {library!r:.80}."
        )
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _OWN:
        raise MalformedCertificateError(f"The certificate is of unknown kind {kind!r}.")
    wanted = _COMMON | _OWN[kind] | {k: v for k, v in _OPTIONAL.items() if k in content}
    if set(content) - _OUTSIDE != set(wanted) - _OUTSIDE:
        odd = sorted((set(content) ^ set(wanted)) - _OUTSIDE)
        raise MalformedCertificateError(f"The certificate has missing or unknown fields: {odd}.")
    for name, types in wanted.items():
        value = content.get(name)
        if not isinstance(value, types) or isinstance(value, bool):
            raise MalformedCertificateError(f"The field {name} of the certificate is malformed.")
    numbers = [content["epsilon"], content["delta"], *_flat(content["curve"])]
    numbers += [] if content["mu"] is None else [content["mu"]]
    if not all(_finite(x) for x in numbers):
        raise MalformedCertificateError("A claimed number is not a finite number of at least 0.")
    texts = (*content["assumptions"], *content["not_covered"])
    if not all(isinstance(text, str) for text in texts):
        raise MalformedCertificateError("The certificate's statements are malformed.")
    theorem = content["theorem"]
    if set(theorem) != _THEOREM or not all(isinstance(text, str) for text in theorem.values()):
        raise MalformedCertificateError("The certificate does not name its theorem.")
    if kind == _RUN and not _word_for_each(content["provenance"]):
        raise MalformedCertificateError("The certificate does not say who vouches for it.")
    parameters = content.get("parameters")
    if parameters is not None and not is_hash(parameters):
        raise MalformedCertificateError("The hash of the model is not a SHA-256.")
    if "about" in content and not is_hash(content["about"]):
        raise MalformedCertificateError("The hash of the file beside it is not a SHA-256.")
    if "link" in content and not _good_link(content):
        raise MalformedCertificateError("The link of the certificate is malformed.")
    if "signatures" in content and not are_signatures(content["signatures"]):
        raise MalformedCertificateError("The signatures of the certificate are malformed.")


def is_hash(text: Any) -> bool:
    """Whether this is a SHA-256 in hexadecimal."""
    return isinstance(text, str) and re.fullmatch("[0-9a-f]{64}", text) is not None


def _good_link(content: Mapping[str, Any]) -> bool:
    """A link names what it follows, is bound to a model, and says a cost that is a number."""
    link = content["link"]
    if set(link) != set(Link._fields) or content["kind"] != _RUN:
        return False
    mu, start = link["mu"], link["start"]
    known = is_hash(link["former"]) and (start is None or is_hash(start))
    bound = content["parameters"] is not None
    return known and bound and isinstance(mu, (int, float)) and mu is not True and _finite(mu)


def are_signatures(signatures: Any) -> bool:
    """Whether these are a few pairs of texts; whose signatures they are is checked elsewhere."""
    good = isinstance(signatures, list) and 0 < len(signatures) <= MOST_SIGNATURES
    for one in signatures if good else ():
        good = (
            good
            and isinstance(one, dict)
            and set(one) == {"keyid", "sig"}
            and all(isinstance(text, str) and len(text) <= 256 for text in one.values())
        )
    return good


def _word_for_each(provenances: Mapping[str, Any]) -> bool:
    named = set(provenances) == {"regularity", "gradient_norm", "sensitivity"}
    return named and all(isinstance(word, str) for word in provenances.values())


def _finite(value: float) -> bool:
    """Whether a claimed number is one that a double can hold, and at least 0."""
    try:
        return math.isfinite(value) and value >= 0
    except OverflowError:  # a whole number beyond every double
        return False


def _flat(curve: list[Any]) -> list[float]:
    answer: list[float] = []
    for pair in curve:
        if not isinstance(pair, list) or len(pair) != 2:
            raise MalformedCertificateError("The curve of the certificate is malformed.")
        for value in pair:
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise MalformedCertificateError("The curve of the certificate is malformed.")
            answer.append(value)
    return answer
