"""What lies in a run's folder, read as if a stranger had written it.

The certificate is verified here, by recomputing it, and the model is compared with the hash that
it is bound to. Files of other names are not looked at, so nothing private gets into a report by
accident.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lastiterate._internal.folder_replacement import finish_replacement
from lastiterate._internal.safe_io import read_json
from lastiterate.audit.result import AuditResult
from lastiterate.certificate import Certificate, verify
from lastiterate.certificate.filed import (
    ABOUT,
    CERTIFICATE,
    PARAMETERS,
    applying,
    in_words,
    misfit,
    public_classes,
    read_about,
    refuse_pickles,
)
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.report.attacker import proved_pairs
from lastiterate.verifier.authenticity import Key
from lastiterate.verifier.balls import need_balls

Status = Literal["verified", "refused", "experiment"]

AUDIT = "audit.json"
KNOWN = (CERTIFICATE, PARAMETERS, ABOUT, "report.md", AUDIT)


@dataclass(frozen=True)
class About:
    """What `lastiterate train` says about a run: public facts, nothing read off the records."""

    model: str
    target: str
    records: int
    columns: int
    features: int
    certified: bool
    delta: float
    training: Training
    loss: Loss
    unit: PrivacyUnit
    choice: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    score: tuple[str, float, int] | None  # name, value, records
    versions: Mapping[str, str]
    title: str
    data_label: str
    public_classes: bool

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> About:
        """Read run.json; anything that does not fit is refused by name."""
        try:
            score = table["score"]
            return cls(
                _text(table["model"]),
                _text(table["target"]),
                int(table["records"]),
                int(table["columns"]),
                int(table["features"]),
                bool(table["certified"]),
                float(table["delta"]),
                Training.from_dict(table["training"]),
                Loss.from_dict(table["loss"]),
                PrivacyUnit.from_dict(table["unit"]),
                tuple((_text(what), _text(why)) for what, why in _list(table["choice"])),
                tuple(_text(line) for line in _list(table["warnings"])),
                score and (_text(score["name"]), float(score["value"]), int(score["records"])),
                {_text(name): _text(text) for name, text in table["versions"].items()},
                _text(table.get("title", "")),
                _text(table.get("data_label", "")),
                public_classes(table),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = "a report must not be built on half a description; remove the file or restore it"
            raise DescriptionError(
                ABOUT, repr(error), "what lastiterate train wrote", why
            ) from None


@dataclass(frozen=True)
class Audited:
    """An audit's result, and whether it contradicted the claim that it was held against."""

    result: AuditResult
    contradicted: bool


@dataclass(frozen=True)
class Hashed:
    """One file of the folder, by name, size and SHA-256."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class RunFolder:
    """A run as it was filed.

    Attributes:
        about: what ``run.json`` says, if the certificate's seal covers it or there is none.
        status: "verified" (every claim was recomputed), "refused" (do not rely on it), or
            "experiment" (there is no certificate, and nothing is promised).
        reason: why it was refused.
        certificate: only if it was verified.
        released: in words, by the hashes of their numbers; only if it was verified.
    """

    label: str
    status: Status
    reason: str
    certificate: Certificate | None
    about: About | None
    audited: Audited | None
    files: tuple[Hashed, ...]
    signed_by: tuple[str, ...] = ()
    released: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        path: Path,
        trusted_keys: Sequence[Key] | None = None,
        revoked: Sequence[str | os.PathLike[str]] = (),
    ) -> RunFolder:
        """Read a folder written by `lastiterate train`, or a certificate alone."""
        finish_replacement(path)
        names = KNOWN if path.is_dir() else ("",)
        for file in (path / name for name in names):
            if file.is_symlink():  # the page would show the hash of what lies elsewhere
                allowed, why = "a file of its own", "a link may lead out of the run's folder"
                raise DescriptionError("run", f"{file}, a symbolic link", allowed, why)
        if path.is_file():
            certificate, reason, signers = _verified(path, trusted_keys, revoked)
            status: Status = "refused" if certificate is None else "verified"
            files = (_hashed(path),)
            return cls(path.name, status, reason, certificate, None, None, files, signers)
        refuse_pickles(path)
        if not any((path / name).is_file() for name in (CERTIFICATE, ABOUT, PARAMETERS)):
            allowed = "a folder that lastiterate train wrote, or a certificate file"
            why = "a report needs something to report on"
            raise DescriptionError("run", str(path), allowed, why)
        known, sha256 = _about(path)
        audit = read_json(path / AUDIT) if (path / AUDIT).is_file() else None
        status, reason, certificate, signers = _status(
            path / CERTIFICATE, known, sha256, trusted_keys, revoked
        )
        uncovered = certificate is not None and "about" not in certificate.content
        return cls(
            path.resolve().name,
            status,
            reason,
            certificate,
            None if status == "refused" or uncovered else known,
            None if audit is None else _audited(audit, certificate),
            tuple(_hashed(path / name) for name in KNOWN if (path / name).is_file()),
            signers,
            in_words(path) if status == "verified" and (path / PARAMETERS).is_file() else {},
        )

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the verified certificate does not cover; without one, nothing is said."""
        if self.certificate is None:
            return ()
        public = self.about is not None and self.about.public_classes
        return applying(self.certificate, public_classes=public)

    @cached_property
    def proved(self) -> tuple[tuple[float, float], ...]:
        """Pairs (delta, epsilon) that the verified certificate proves; without one, none."""
        return () if self.certificate is None else proved_pairs(self.certificate)

    @property
    def compared(self) -> bool:
        """Whether the model lay beside the certificate and is the one that it is bound to."""
        there = any(file.name == PARAMETERS for file in self.files)
        return self.status == "verified" and there

    @property
    def failed(self) -> bool:
        """Whether a check failed: the certificate's, or the audit against it."""
        return self.status == "refused" or (self.audited is not None and self.audited.contradicted)

    @property
    def description(self) -> tuple[Training, Loss, float, tuple[int, ...]] | None:
        """The run: certified if there is a certificate, else as the experiment was described.

        None if the certificate is not about one record, used from the first step to the last: what
        is drawn from a description would be about somebody else.
        """
        found = self.certificate
        if found is not None:
            if not found.unit.default:
                return None
            training, loss = found.training, found.loss
            if training is None or loss is None:
                return None
            return training, loss, found.delta, tuple(found.content["releases"])
        if self.about is not None and self.about.unit.default and 0 < self.about.delta < 1:
            return self.about.training, self.about.loss, self.about.delta, ()
        return None


def _about(folder: Path) -> tuple[About | None, str]:
    if not (folder / ABOUT).is_file():
        return None, ""
    table, sha256 = read_about(folder)
    return About.of(table), sha256


def _status(
    path: Path,
    about: About | None,
    sha256: str,
    keys: Sequence[Key] | None,
    revoked: Sequence[str | os.PathLike[str]],
) -> tuple[Status, str, Certificate | None, tuple[str, ...]]:
    if not path.is_file():
        reason = f"{ABOUT} says that this run was certified, but {path.name} is not here."
        if about is not None and about.certified:
            return "refused", reason, None, ()
        if keys is not None:
            return "refused", f"{path.name} is not here: no trusted key signed this run.", None, ()
        return "experiment", "", None, ()
    certificate, reason, signers = _verified(path, keys, revoked)
    if certificate is not None:
        described = None if about is None else (about.certified, about.training, about.loss)
        reason = misfit(certificate, path.parent, described, sha256)
    if certificate is None or reason:
        return "refused", reason, None, ()
    return "verified", "", certificate, signers


def _verified(
    path: Path, keys: Sequence[Key] | None, revoked: Sequence[str | os.PathLike[str]]
) -> tuple[Certificate | None, str, tuple[str, ...]]:
    """The certificate after recomputing it, and its trusted signers; or None, and why not."""
    need_balls()
    try:
        certificate = Certificate.load(path)
        beside = Path(f"{path}.sig")
        asked = keys is not None and not certificate.signatures
        apart = beside if asked and beside.is_file() else None
        checked = verify(certificate, trusted_keys=keys, signature=apart, revoked=revoked)
        return certificate, "", checked.signed_by
    except LastIterateError as error:
        return None, str(error), ()


def _audited(table: Mapping[str, Any], claim: Certificate | None) -> Audited:
    """The verdict is recomputed; the file's own word counts only where it is the worse one."""
    result = AuditResult.from_dict(table)
    widened = table.get("replaced_against_zero_out") is True
    contradicted = table.get("contradicted", False) is not False
    covered = claim is not None and claim.unit.covers(ONE_RECORD, claim.loss)
    if claim is not None and covered and result.method != "credible":
        contradicted |= result.contradicts(claim, replaced_against_zero_out=widened)
    return Audited(result, contradicted)


def _hashed(path: Path) -> Hashed:
    digest = hashlib.sha256()
    size = 0
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
            size += len(block)
    return Hashed(path.name, size, digest.hexdigest())


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value
