"""What lies in a run's folder, read as if a stranger had written it.

The certificate is verified here, by recomputing it, and the model is compared with the hash that
it is bound to. Files of other names are not looked at, so nothing private gets into a report by
accident.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lastiterate.audit.result import AuditResult
from lastiterate.certificate import Certificate, verify
from lastiterate.certificate.filed import (
    ABOUT,
    CERTIFICATE,
    PARAMETERS,
    other_model,
    other_run,
    read_about,
    read_parameters,
    refuse_pickles,
)
from lastiterate.description import Loss, Training
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.plain_files import read_json
from lastiterate.report.attacker import proved_pairs
from lastiterate.verifier.balls import need_balls
from lastiterate.verifier.verification import THEORY

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
    choice: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    score: tuple[str, float, int] | None  # name, value, records
    versions: Mapping[str, str]

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
                tuple((_text(what), _text(why)) for what, why in _list(table["choice"])),
                tuple(_text(line) for line in _list(table["warnings"])),
                score and (_text(score["name"]), float(score["value"]), int(score["records"])),
                {_text(name): _text(text) for name, text in table["versions"].items()},
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
        status: "verified" (every claim was recomputed), "refused" (do not rely on it), or
            "experiment" (there is no certificate, and nothing is promised).
        reason: why it was refused.
        certificate: only if it was verified.
    """

    label: str
    status: Status
    reason: str
    certificate: Certificate | None
    about: About | None
    audited: Audited | None
    files: tuple[Hashed, ...]

    @classmethod
    def read(cls, path: Path) -> RunFolder:
        """Read a folder written by `lastiterate train`, or a certificate alone."""
        if path.is_file():
            certificate, reason = _verified(path)
            status: Status = "refused" if certificate is None else "verified"
            return cls(path.name, status, reason, certificate, None, None, (_hashed(path),))
        refuse_pickles(path)
        if not any((path / name).is_file() for name in (CERTIFICATE, ABOUT, PARAMETERS)):
            allowed = "a folder that lastiterate train wrote, or a certificate file"
            why = "a report needs something to report on"
            raise DescriptionError("run", str(path), allowed, why)
        known = About.of(read_about(path)) if (path / ABOUT).is_file() else None
        audit = read_json(path / AUDIT) if (path / AUDIT).is_file() else None
        status, reason, certificate = _status(path / CERTIFICATE, known)
        return cls(
            path.resolve().name,
            status,
            reason,
            certificate,
            None if status == "refused" else known,
            None if audit is None else _audited(audit),
            tuple(_hashed(path / name) for name in KNOWN if (path / name).is_file()),
        )

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
            if not found.exposure.default:
                return None
            training, loss = found.training, found.loss
            if training is None or loss is None:
                return None
            return training, loss, found.delta, tuple(found.content["releases"])
        if self.about is not None and 0 < self.about.delta < 1:
            return self.about.training, self.about.loss, self.about.delta, ()
        return None


def _status(path: Path, about: About | None) -> tuple[Status, str, Certificate | None]:
    if not path.is_file():
        if about is not None and about.certified:
            reason = f"{ABOUT} says that this run was certified, but {path.name} is not here."
            return "refused", reason, None
        return "experiment", "", None
    certificate, reason = _verified(path)
    if certificate is None:
        return "refused", reason, None
    if about is not None and (
        not about.certified or other_run(certificate, about.training, about.loss)
    ):
        reason = (
            f"{path.name} is sound, but it certifies another run than {ABOUT} describes: one of "
            "the two files does not belong here."
        )
        return "refused", reason, None
    if about is not None and certificate.of_real_numbers:
        return "refused", f"{path.name} is sound, but {THEORY}. Train again.", None
    if (path.parent / PARAMETERS).is_file():
        if other_model(certificate, read_parameters(path.parent)):
            reason = (
                f"{path.name} is sound, but it is not bound to the model in {PARAMETERS}: its "
                "parameters have another hash. That model is not covered."
            )
            return "refused", reason, None
    elif about is not None:
        return "refused", f"{ABOUT} describes a model, but {PARAMETERS} is not here.", None
    return "verified", "", certificate


def _verified(path: Path) -> tuple[Certificate | None, str]:
    """The certificate after recomputing it; or None, and why it is refused."""
    need_balls()
    try:
        certificate = Certificate.load(path)
        verify(certificate)
        return certificate, ""
    except LastIterateError as error:
        return None, str(error)


def _audited(table: Mapping[str, Any]) -> Audited:
    return Audited(AuditResult.from_dict(table), bool(table.get("contradicted")))


def _hashed(path: Path) -> Hashed:
    digest = hashlib.sha256()
    size = 0
    with path.open("rb") as file:
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
