"""What a federated run promises to each audience is an ordinary certificate of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lastiterate import Certificate, Loss, TailAverage, certify, compose, verify
from lastiterate.certificate import ClaimError
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    PrivacyWarning,
    UnsupportedError,
)
from lastiterate.federated import FederatedGuarantee, account_federated
from lastiterate.losses import Logistic


def guarantee(provenance: str = "declared", **changes) -> FederatedGuarantee:
    loss = Loss(smoothness=0.25, regularization=0.05, provenance=provenance)
    poisson = changes.get("sampling") == "poisson"
    fields = {"adjacency": "zero-out" if poisson else "replace", "loss": loss}
    fields |= {"clipping": "none", "sampled": 50, **changes}
    return account_federated(50, fields.pop("sampled"), 100, 1.0, 10.0, **fields)


@pytest.mark.parametrize("sampling", ["without-replacement", "poisson"])
@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("sampled", [5, 50])
def test_each_audience_has_its_number(tmp_path: Path, sampling, adjacency, sampled) -> None:
    g = guarantee(sampling=sampling, adjacency=adjacency, sampled=sampled)
    found = {}
    for against in ("clients", "outsiders"):
        certificate = g.certificate(1e-5, against)
        certificate.save(tmp_path / f"{against}.json")
        found[against] = verify(tmp_path / f"{against}.json").epsilon
        number = g.epsilon(1e-5, against)
        assert number <= found[against] <= 1.001 * number
        assert certificate.adjacency == adjacency
        assert certificate.training.records == 50
        assert "a record is one client's whole data" in str(certificate)
    assert found["outsiders"] <= found["clients"]


def test_the_certificate_against_clients_releases_every_model() -> None:
    g = guarantee()
    for_clients, for_outsiders = g.certificate(1e-5), g.certificate(1e-5, "outsiders")
    assert for_clients.training.release == TailAverage(100)
    assert for_clients.provenances["regularity"] == "unused"
    assert not any("stay secret" in text for text in for_clients.assumptions)
    assert for_outsiders.epsilon < 0.9 * for_clients.epsilon
    assert any("intermediate iterates stay secret" in text for text in for_outsiders.assumptions)


def test_what_clients_compute_is_proved_by_nobody_here() -> None:
    """A loss of this library has proved constants; that clients compute it is their word."""
    told = guarantee(loss=Logistic().regularity(1.0, regularization=0.05))
    certificate = told.certificate(1e-5, "outsiders")
    assert certificate.provenances["regularity"] == "declared"
    assert not any("proved by this library" in text for text in certificate.assumptions)
    assert any("what computing one gradient rounds" in text for text in certificate.assumptions)
    assert certificate.epsilon == guarantee().certificate(1e-5, "outsiders").epsilon


def test_models_shown_and_rounds_lost_are_in_it() -> None:
    federation = guarantee().federation
    crashed = FederatedGuarantee(federation, releases=(10, 20), kept=40)
    certificate = crashed.certificate(1e-5, "outsiders")
    assert (certificate.training.steps, certificate.content["releases"]) == (40, [10, 20])
    assert crashed.certificate(1e-5).training.steps == 100
    spoiled = FederatedGuarantee(federation, spoiled="every model was shown")
    assert spoiled.certificate(1e-5, "outsiders").training.release == TailAverage(100)


@pytest.mark.parametrize("against", ["clients", "outsiders"])
def test_a_smaller_claim_is_caught(against) -> None:
    content = dict(guarantee().certificate(1e-5, against).content)
    content["epsilon"] *= 0.999
    with pytest.raises(ClaimError, match="does not hold"):
        verify(Certificate.sealed(content))


def test_the_words_for_clients_cannot_be_put_on_the_number_for_outsiders() -> None:
    content = dict(guarantee().certificate(1e-5, "outsiders").content)
    content["release"] = guarantee().certificate(1e-5).release
    with pytest.raises(ClaimError, match="release"):
        verify(Certificate.sealed(content))


def test_only_certificates_about_the_same_clients_compose() -> None:
    g = guarantee()
    one = g.certificate(1e-5, dataset="phones 2024")
    assert compose([one, one]).mu == pytest.approx(2**0.5 * one.mu, rel=1e-6)
    with pytest.raises(UnsupportedError, match="dataset"):
        compose([one, g.certificate(1e-5)])
    records = certify(g.training, Loss.unknown(), 1e-5, dataset="phones 2024")
    with pytest.raises(UnsupportedError, match="dataset"):
        compose([one, records])


def test_an_estimate_is_certified_to_clients_only() -> None:
    """Their number needs no constants."""
    with pytest.raises(AssumptionError, match="estimated"):
        guarantee("estimated").certificate(1e-5, "outsiders")
    verify(guarantee("estimated").certificate(1e-5))


def test_no_noise_is_not_certified() -> None:
    with pytest.raises(AssumptionError, match="nothing to certify"):
        account_federated(10, 5, 3, 1.0, 0.0, adjacency="replace").certificate(1e-5)


@pytest.mark.parametrize("delta", [0.5, 0.9, 1.0])
def test_a_delta_of_one_half_is_no_promise(delta: float) -> None:
    """At delta = 1 every run has epsilon 0, also one without noise."""
    with pytest.raises(DescriptionError, match="delta"):
        guarantee().certificate(delta)


def test_a_delta_above_one_over_clients_is_said_aloud() -> None:
    with pytest.warns(PrivacyWarning, match="1/records"):
        guarantee().certificate(0.2)


@pytest.mark.parametrize(
    "question", [{"against": "everyone"}, {"dataset": 3}, {"delta": float("nan")}, {"delta": "x"}]
)
def test_bad_questions_are_refused(question) -> None:
    with pytest.raises(DescriptionError):
        guarantee().certificate(**{"delta": 1e-5, **question})


def test_the_file_is_an_ordinary_one(tmp_path: Path) -> None:
    guarantee().certificate(1e-5).save(tmp_path / "c.json")
    content = json.loads((tmp_path / "c.json").read_text())
    assert (content["format"], content["kind"]) == ("lastiterate-certificate", "run")
