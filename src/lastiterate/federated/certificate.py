"""What a federated run hands over: its description and both numbers, as one JSON file.

Both numbers stand in it by name, because a reader who is a client and a reader who is not may rely
on different ones. Whoever loads it can recompute them.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from lastiterate import __version__
from lastiterate.description.failure import large_delta, promised_delta
from lastiterate.description.portable import Portable, known_fields
from lastiterate.errors import (
    AssumptionError,
    CertificateError,
    DescriptionError,
    LastIterateError,
    PrivacyWarning,
)
from lastiterate.federated.accounting import NOT_COVERED, FederatedGuarantee
from lastiterate.federated.federation import Federation
from lastiterate.printing import printed

_FIELDS = {
    "federation",
    "releases",
    "kept",
    "spoiled",
    "delta",
    "epsilon_against_clients",
    "epsilon_against_outsiders",
    "assumptions",
    "not_covered",
    "version",
}


@dataclass(frozen=True)
class FederatedCertificate(Portable):
    """Both numbers of a finished federated run at one delta.

    >>> from lastiterate.federated import account_federated
    >>> g = account_federated(clients=100, sampled=10, rounds=5, clip=1.0, noise_multiplier=3.0)
    >>> certificate = FederatedCertificate.issue(g, delta=1e-5)
    >>> FederatedCertificate.from_json(certificate.to_json()) == certificate
    True
    """

    guarantee: FederatedGuarantee
    delta: float
    epsilon_against_clients: float
    epsilon_against_outsiders: float

    @classmethod
    def issue(cls, guarantee: FederatedGuarantee, delta: float) -> Self:
        """The certificate of a guarantee; refused if it rests on an estimate or delta is 0.5."""
        delta = promised_delta(delta, guarantee.federation.clients)
        _refuse_estimate(guarantee)
        return cls(guarantee, delta, *_numbers(guarantee, delta))

    def check(self) -> None:
        """Recompute both numbers; raise a CertificateError if one of them is claimed too small.

        A delta of 1/clients or more is said aloud: somebody else may have certified it.
        """
        _refuse_estimate(self.guarantee)
        try:
            recomputed = _numbers(self.guarantee, promised_delta(self.delta))
        except DescriptionError as error:
            raise CertificateError(f"What the certificate says cannot be: {error}") from None
        if said := large_delta(self.delta, self.guarantee.federation.clients):
            warnings.warn(said, PrivacyWarning, stacklevel=2)
        names = ("epsilon_against_clients", "epsilon_against_outsiders")
        for name, found in zip(names, recomputed, strict=True):
            claimed = getattr(self, name)
            if not claimed >= found * (1 - 1e-9):
                raise CertificateError(
                    f"The certificate claims {name} = {claimed!r} at delta = "
                    f"{printed(self.delta)}, but its own description gives {printed(found)}. Do "
                    f"not rely on it."
                )

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values."""
        guarantee = self.guarantee
        return {
            "federation": guarantee.federation.to_dict(),
            "releases": list(guarantee.releases),
            "kept": guarantee.federation.rounds if guarantee.kept is None else guarantee.kept,
            "spoiled": guarantee.spoiled,
            "delta": self.delta,
            "epsilon_against_clients": self.epsilon_against_clients,
            "epsilon_against_outsiders": self.epsilon_against_outsiders,
            "assumptions": [str(assumption) for assumption in guarantee.assumptions],
            "not_covered": list(NOT_COVERED),
            "version": __version__,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        fields = known_fields("certificate", table, _FIELDS)
        try:
            federation = Federation.from_dict(fields["federation"])
            kept = int(fields["kept"])
            guarantee = FederatedGuarantee(
                federation,
                tuple(int(release) for release in fields["releases"]),
                None if kept == federation.rounds else kept,
                str(fields["spoiled"]),
            )
            numbers = [
                float(fields[name])
                for name in ("delta", "epsilon_against_clients", "epsilon_against_outsiders")
            ]
        except (KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"Not a federated certificate: {error}.") from None
        if any(math.isnan(value) for value in numbers):
            raise CertificateError("Not a federated certificate: a number is missing.")
        return cls(guarantee, *numbers)

    def save(self, path: str | Path) -> None:
        """Write one JSON file."""
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what ``save`` wrote; the numbers are not believed before `check`."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise CertificateError(f"{path} cannot be read: {error}.") from None
        except LastIterateError as error:
            raise CertificateError(f"{path} is not a federated certificate: {error}") from None

    def __str__(self) -> str:
        both = (
            f"At delta = {printed(self.delta)}: epsilon = {printed(self.epsilon_against_clients)} "
            f"against clients, {printed(self.epsilon_against_outsiders)} against outsiders."
        )
        return f"{both}\n{self.guarantee}"


def _refuse_estimate(guarantee: FederatedGuarantee) -> None:
    if guarantee.outsiders is not None and guarantee.outsiders.provenance == "estimated":
        raise AssumptionError(
            "The constants of the clients' objective were estimated, so the number against "
            "outsiders is not a guarantee and cannot be certified. Describe the run without "
            "loss=, which certifies the number that needs no constants, or declare proved ones."
        )


def _numbers(guarantee: FederatedGuarantee, delta: float) -> tuple[float, float]:
    """Against clients and against outsiders."""
    return guarantee.epsilon(delta), guarantee.epsilon(delta, against="outsiders")
