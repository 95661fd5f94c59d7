"""certify -> save -> load -> verify is the identity, for every theorem and every batch scheme."""

from __future__ import annotations

import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from described_runs import RIDGE, RUNS, SLOW_RUNS, run

from lastiterate import (
    Arithmetic,
    AssumptionError,
    Certificate,
    FullBatch,
    Loss,
    Shuffled,
    account,
    certify,
    theorems,
    verify,
)
from lastiterate.certificate import TamperedCertificateError
from lastiterate.certificate.signing import checkable
from lastiterate.errors import DescriptionError
from lastiterate.verifier.checks import CHECKS

DELTA = 1e-6
DOCS = Path(__file__).parents[2] / "docs"
SCHEMA = json.loads((DOCS / "certificate.schema.json").read_text(encoding="utf-8"))


def best(training, loss, releases):
    """The tightest bound that has an independent check."""
    guarantee = account(training, loss, releases=releases)
    able = [bound for bound in guarantee.bounds if checkable(guarantee.run, bound)]
    return min(able, key=lambda bound: bound.curve.epsilon(DELTA))


def roundtrip(name, tmp_path):
    training, loss, releases = (RUNS | SLOW_RUNS)[name]
    certificate = certify(training, loss, DELTA, dataset="people", releases=releases)
    path = tmp_path / "certificate.json"
    certificate.save(path)
    loaded = Certificate.load(path)
    assert loaded == certificate
    assert loaded.to_json() == path.read_text()
    assert loaded.training == training
    assert loaded.loss == loss
    result = verify(path)
    assert (result.epsilon, result.delta) == (certificate.epsilon, DELTA)
    first, theory = str(result).splitlines()
    assert first == f"verified: epsilon <= {certificate.epsilon!r} at delta = {DELTA!r}"
    assert "no model that a machine computed" in theory
    # The signed number is what the accountant says, up to the slack of convolutions.
    fast = best(training, loss, releases).curve.epsilon(DELTA)
    assert fast <= certificate.epsilon <= fast * (1 + 2e-3) + 1e-9
    if certificate.mu is not None:
        assert certificate.epsilon == fast
    deltas = [delta for delta, _ in loaded.curve]
    assert deltas == sorted(set(deltas), reverse=True)
    epsilons = [epsilon for _, epsilon in loaded.curve]
    assert epsilons == sorted(epsilons)
    jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    return certificate


@pytest.mark.parametrize("name", RUNS)
def test_roundtrip(name, tmp_path):
    roundtrip(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_RUNS)
def test_roundtrip_of_larger_runs(name, tmp_path):
    roundtrip(name, tmp_path)


@pytest.mark.slow
def test_every_check_is_exercised():
    used = {best(*described).theorem.key for described in (RUNS | SLOW_RUNS).values()}
    # Several records, correlated noise have certificates in test files of their own.
    elsewhere = {known.key for known in theorems() if {"records", "correlated noise"} & known.needs}
    assert set(CHECKS) - used - elsewhere == set()


@pytest.mark.slow
def test_a_million_random_steps(tmp_path):
    random = np.random.default_rng(0)
    steps = 10**6
    long = run(
        FullBatch(),
        steps=steps,
        step_size=random.uniform(0, 0.2, steps),
        noise=random.uniform(0.01, 0.02, steps),
    )
    path = tmp_path / "long.json"
    certify(long, RIDGE, DELTA).save(path)
    assert verify(path).epsilon == account(long, RIDGE).epsilon(DELTA)


def test_a_model_is_bound():
    model = {"coef_": np.arange(6.0).reshape(2, 3), "intercept_": [0.5]}
    trained = run(FullBatch(), arithmetic=Arithmetic(grid=2.0**-40, coordinates=7))
    certificate = certify(trained, RIDGE, DELTA, parameters=model)
    verify(certificate, parameters=model)
    other = {**model, "intercept_": [math.nextafter(0.5, 1.0)]}
    with pytest.raises(TamperedCertificateError, match="another hash"):
        verify(certificate, parameters=other)
    reshaped = {**model, "coef_": np.arange(6.0).reshape(3, 2)}
    with pytest.raises(TamperedCertificateError, match="another hash"):
        verify(certificate, parameters=reshaped)
    unbound = certify(run(FullBatch()), RIDGE, DELTA)
    with pytest.raises(TamperedCertificateError, match="not bound"):
        verify(unbound, parameters=model)


def test_nonces():
    shuffled = run(Shuffled(10))
    first, second = certify(shuffled, RIDGE, DELTA), certify(shuffled, RIDGE, DELTA)
    assert first.nonce is not None
    assert first.nonce != second.nonce
    assert certify(shuffled, RIDGE, DELTA, nonce="a" * 32).nonce == "a" * 32
    assert certify(run(FullBatch()), RIDGE, DELTA).nonce is None
    with pytest.raises(DescriptionError, match="nonce"):
        certify(shuffled, RIDGE, DELTA, nonce="short")


def test_refusals():
    training = run(FullBatch())
    estimated = Loss(smoothness=1.0, provenance="estimated")
    with pytest.raises(AssumptionError, match="only estimated"):
        certify(training, estimated, DELTA)
    with pytest.raises(AssumptionError, match="seed"):
        certify(training, RIDGE, DELTA, seeded_noise=True)
    with pytest.raises(AssumptionError, match="no finite epsilon"):
        certify(run(FullBatch(), noise=0.0), RIDGE, DELTA)
    for delta in (0.0, -1e-5, 1.5, math.nan):
        with pytest.raises(DescriptionError, match="delta"):
            certify(training, RIDGE, delta)
    with pytest.raises(DescriptionError, match="dataset"):
        certify(training, RIDGE, DELTA, dataset=b"hash")


def test_saving_is_atomic(tmp_path, monkeypatch):
    path = tmp_path / "certificate.json"
    old = certify(run(FullBatch()), RIDGE, DELTA)
    old.save(path)
    text = path.read_text()

    def no_space(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        certify(run(FullBatch(), noise=0.1), RIDGE, DELTA).save(path)
    assert path.read_text() == text
    assert list(tmp_path.iterdir()) == [path]
