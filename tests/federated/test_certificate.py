"""A federated certificate names both numbers, survives the disk, and is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastiterate import Loss
from lastiterate.errors import (
    AssumptionError,
    CertificateError,
    DescriptionError,
    LastIterateError,
    PrivacyWarning,
)
from lastiterate.federated import FederatedCertificate, FederatedGuarantee, account_federated


def guarantee(provenance: str = "declared") -> FederatedGuarantee:
    loss = Loss(smoothness=0.25, regularization=0.05, provenance=provenance)
    return account_federated(50, 50, 100, 1.0, 10.0, loss=loss, clipping="none")


def test_both_numbers_by_name(tmp_path: Path) -> None:
    g = guarantee()
    certificate = FederatedCertificate.issue(g, 1e-5)
    certificate.save(tmp_path / "c.json")
    table = json.loads((tmp_path / "c.json").read_text())
    assert table["epsilon_against_clients"] == g.epsilon(1e-5)
    assert table["epsilon_against_outsiders"] == g.epsilon(1e-5, "outsiders")
    assert table["epsilon_against_outsiders"] < table["epsilon_against_clients"]
    loaded = FederatedCertificate.load(tmp_path / "c.json")
    loaded.check()
    assert loaded.to_dict() == certificate.to_dict()


@pytest.mark.parametrize("name", ["epsilon_against_clients", "epsilon_against_outsiders"])
def test_a_smaller_claim_is_caught(tmp_path: Path, name: str) -> None:
    table = FederatedCertificate.issue(guarantee(), 1e-5).to_dict()
    table[name] *= 0.999
    (tmp_path / "c.json").write_text(json.dumps(table))
    with pytest.raises(CertificateError, match=name):
        FederatedCertificate.load(tmp_path / "c.json").check()


def test_estimates_are_not_certified() -> None:
    with pytest.raises(AssumptionError, match="estimated"):
        FederatedCertificate.issue(guarantee("estimated"), 1e-5)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"federation": 3}', '{"unheard": 1}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(CertificateError):
        FederatedCertificate.load(tmp_path / "c.json")
    with pytest.raises(CertificateError):
        FederatedCertificate.load(tmp_path / "absent.json")


@pytest.mark.parametrize("delta", [0.5, 0.9, 1.0])
def test_a_delta_of_one_half_is_no_promise(delta: float) -> None:
    """At delta = 1 every run has epsilon 0, also one without noise."""
    with pytest.raises(DescriptionError, match="delta"):
        FederatedCertificate.issue(guarantee(), delta)
    table = FederatedCertificate.issue(guarantee(), 1e-5).to_dict()
    with pytest.raises(LastIterateError, match="delta"):
        FederatedCertificate.from_dict({**table, "delta": delta}).check()


def test_a_delta_above_one_over_clients_is_said_aloud() -> None:
    with pytest.warns(PrivacyWarning, match="1/records"):
        FederatedCertificate.issue(guarantee(), 0.2)
