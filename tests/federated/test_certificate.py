"""A federated certificate names both numbers, survives the disk, and is checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastiterate import Loss
from lastiterate.errors import AssumptionError, CertificateError
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
