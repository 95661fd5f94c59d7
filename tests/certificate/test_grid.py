"""Certificates of runs on a grid: the verifier charges it by itself, and no field of it can lie."""

from __future__ import annotations

import copy
import itertools
import json
import math

import numpy as np
import pytest
from described_runs import RUNS

from lastiterate import (
    Arithmetic,
    AssumptionError,
    Certificate,
    CertificateError,
    TailAverage,
    account,
    certify,
    compose,
    verify,
)
from lastiterate.certificate import ClaimError
from lastiterate.description.assumptions import NOT_COVERED
from lastiterate.verifier.document import canonical, fingerprint, parameters_hash
from lastiterate.verifier.words import words

DELTA = 1e-6
ON_GRID = Arithmetic(grid=2.0**-16, error=1e-5, coordinates=7)  # 1/50 of the impulses of RUNS
# One for each theorem with a check, and those that carry windows, releases and restarts.
NAMES = (
    "full",
    "full, schedule",
    "full, rough",
    "full, released",
    "full, coupled",
    "full, momentum",
    "cyclic",
    "cyclic, bounded",
    "cyclic, rough",
    "shuffled, released",
    "reshuffled, bounded",
    "Poisson",
    "without replacement",
)


def on_grid(name, arithmetic=ON_GRID):
    training, loss, releases = RUNS[name]
    return training.replace(arithmetic=arithmetic), loss, releases


def resealed(certificate, arithmetic):
    """A liar's file: another arithmetic, all words to match, the old numbers, a hash that fits."""
    content = copy.deepcopy(json.loads(certificate.to_json()))
    content["training"]["arithmetic"] = arithmetic
    training, loss = certificate.training.replace(arithmetic=arithmetic), certificate.loss
    key = content["theorem"]["key"]
    content.update(words(training, loss, tuple(content["releases"]), key, certificate.unit))
    content["sha256"] = fingerprint(content)
    return Certificate.from_json(canonical(content))


def cost(name, arithmetic):
    training, loss, releases = on_grid(name, arithmetic)
    return account(training, loss, releases=releases).epsilon(DELTA)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_sealed_is_confirmed_and_covers_the_grid(name, tmp_path):
    training, loss, releases = on_grid(name)
    certificate = certify(training, loss, DELTA, releases=releases)
    certificate.save(tmp_path / "run.json")
    assert verify(tmp_path / "run.json").epsilon == certificate.epsilon
    assert Certificate.load(tmp_path / "run.json").training == training
    exact = certify(training.replace(arithmetic="exact"), loss, DELTA, releases=releases)
    assert certificate.epsilon > exact.epsilon * 1.002
    # The certificate of the run in real numbers proves nothing about the one on the grid.
    with pytest.raises(ClaimError, match=r"does not hold|dearer"):
        verify(resealed(exact, ON_GRID.to_dict()))
    assert verify(resealed(certificate, certificate.training.arithmetic.to_dict()))


@pytest.mark.parametrize("name", ["full", "cyclic", "shuffled, released", "Poisson"])
@pytest.mark.parametrize(
    "lie",
    [
        {"grid": 2.0**-14},
        {"error": 1e-4},
        {"coordinates": 70},
        {"grid": 2.0**-30, "error": 1e-3},
        {"grid": 0.5},
        {"grid": 2.0**200},
    ],
)
def test_a_coarser_arithmetic_than_was_charged_is_caught(name, lie):
    training, loss, releases = on_grid(name)
    certificate = certify(training, loss, DELTA, releases=releases)
    with pytest.raises(CertificateError, match=r"does not hold|more than|leaves|dearer|noise|wide"):
        verify(resealed(certificate, ON_GRID.to_dict() | lie))


@pytest.mark.parametrize(
    "lie",
    [
        {"grid": 2.0**-17},
        {"coordinates": 6},
        {"error": 1.1e-5},
        {"error": 1.1e-6},
        {"grid": 0.0},
        {"grid": 3.0},
        {"grid": -(2.0**-16)},
        {"grid": "2e-5"},
        {"coordinates": 7.0},
        {"coordinates": 0},
        {"coordinates": True},
        {"spacing": 1.0},
    ],
)
def test_every_change_of_a_field_is_caught_where_the_words_stay(lie):
    """The words name the spacing, the number of parameters and the error: finer ones do not fit."""
    training, loss, releases = on_grid("full")
    content = json.loads(certify(training, loss, DELTA, releases=releases).to_json())
    content["training"]["arithmetic"] |= lie
    content["sha256"] = fingerprint(content)
    with pytest.raises(CertificateError):
        verify(Certificate.from_json(canonical(content)))


@pytest.mark.parametrize(
    "value",
    [10**400, -1, 0, 2**53 + 1, 1e308, 5e-324, -0.0, "inf", "nan", "", None, True, [], {}, [1.0]],
)
@pytest.mark.parametrize("field", ["grid", "error", "coordinates", None])
def test_a_hostile_arithmetic_is_refused(field, value):
    training, loss, releases = on_grid("full")
    content = json.loads(certify(training, loss, DELTA, releases=releases).to_json())
    if field is None:
        content["training"]["arithmetic"] = value
    else:
        content["training"]["arithmetic"][field] = value
    content["sha256"] = fingerprint(content)
    with pytest.raises(CertificateError):
        verify(Certificate.from_json(canonical(content)))


@pytest.mark.parametrize("name", ["full", "full, coupled", "cyclic", "shuffled"])
def test_coarser_never_costs_less(name):
    """In every field; and nothing to round costs what real numbers cost, to the last digit."""
    no_less(name, slack=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reshuffled, bounded", "Poisson", "without replacement"])
def test_coarser_costs_less_by_no_more_than_a_search_may_miss(name):
    no_less(name, slack=1e-4)


def no_less(name, slack):
    training, loss, releases = RUNS[name]
    exact = account(training.replace(arithmetic="exact"), loss, releases=releases).epsilon(DELTA)
    assert cost(name, Arithmetic(coordinates=50)) == exact
    ways = (
        [Arithmetic(2.0**k, 1e-6, 3) for k in (-40, -24, -18, -15)],
        [Arithmetic(2.0**-20, error, 3) for error in (0.0, 1e-9, 1e-5, 1e-3)],
        [Arithmetic(2.0**-20, 1e-6, d) for d in (1, 2, 1000, 10**5)],
    )
    for way in ways:
        costs = [cost(name, arithmetic) for arithmetic in way]
        assert all(a <= b * (1 + slack) for a, b in itertools.pairwise(costs)), costs
        assert exact <= costs[0] * (1 + slack)
        assert costs[-1] > exact


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in RUNS if n not in NAMES and "no steps" not in n])
def test_every_other_run_is_sealed_on_a_grid(name):
    training, loss, releases = on_grid(name)
    certificate = certify(training, loss, DELTA, releases=releases)
    assert verify(certificate).epsilon == certificate.epsilon
    assert certificate.epsilon >= cost(name, "exact")


def test_what_stays_outside_is_said():
    training, loss, _ = on_grid("full")
    grid = certify(training, loss, DELTA)
    plain = certify(RUNS["full"][0], loss, DELTA)
    assert any("memory" in text for text in grid.not_covered)
    assert not any("last bits" in text for text in grid.not_covered)
    assert any("last bits" in text for text in plain.not_covered)
    both = compose([grid, plain])
    assert set(both.not_covered) == {*NOT_COVERED, grid.not_covered[-1], plain.not_covered[-1]}
    assert verify(both).epsilon == both.epsilon
    softened = json.loads(both.to_json())
    softened["not_covered"] = list(grid.not_covered)
    softened["sha256"] = fingerprint(softened)
    with pytest.raises(ClaimError, match="not_covered"):
        verify(Certificate.from_json(canonical(softened)))


def test_the_charge_of_one_step_is_the_theorem_s():
    """mu = (eta (2K/n + 2e) + 4 g sqrt(d))/nu, in the certificate too."""
    training, loss, _ = on_grid("full")
    one = certify(training.replace(steps=1), loss, DELTA)
    mu = (0.1 * (2 / 100 + 2e-5) + 4 * 2.0**-16 * math.sqrt(7)) / 0.05
    assert one.mu == pytest.approx(mu, rel=1e-9)


# --- a certificate of real numbers is none of a trained model -------------------------------------

TRAINED = Arithmetic(grid=2.0**-16, coordinates=3)
MODEL = {"coef_": np.array([[0.5, -1.25]]), "intercept_": [2.0**-16]}


def described(**changes):
    training, loss, _ = RUNS["full"]
    return training.replace(arithmetic=TRAINED, **changes), loss


@pytest.mark.parametrize(
    "told", ["exact", Arithmetic(error=1e-9), Arithmetic(grid=2.0**-1000, error=1e-9)]
)
def test_a_hash_that_was_added_to_a_certificate_of_real_numbers_binds_no_model(told):
    training, loss = described()
    theory = certify(training.replace(arithmetic=told), loss, DELTA)
    assert "no model that a machine computed" in str(verify(theory))
    content = copy.deepcopy(json.loads(theory.to_json()))
    content["parameters"] = parameters_hash(MODEL)
    content["sha256"] = fingerprint(content)
    added = Certificate.from_json(canonical(content))
    assert "no model that a machine computed" in str(verify(added))
    with pytest.raises(ClaimError, match="no model that a machine computed"):
        verify(added, parameters=MODEL)


def test_a_grid_that_nobody_draws_noise_on_is_none():
    """All doubles are multiples of the finest powers of two: low bits tell there as anywhere."""
    training, loss = described()
    loudest = float(training.noises.max())
    finest = 2.0 ** math.ceil(math.log2(loudest) - 42)
    on_it = training.replace(arithmetic=Arithmetic(finest, 1e-9, 3))
    certify(on_it, loss, DELTA, parameters=MODEL)
    finer = training.replace(arithmetic=Arithmetic(finest / 2, 1e-9, 3))
    with pytest.raises(AssumptionError, match="speaks of real numbers"):
        certify(finer, loss, DELTA, parameters=MODEL)


def test_a_model_on_the_grid_is_certified_as_what_it_is():
    training, loss = described()
    bound = certify(training, loss, DELTA, parameters=MODEL)
    assert str(verify(bound, parameters=MODEL)).count("\n") == 0
    theory = certify(training.replace(arithmetic="exact"), loss, DELTA)
    together = compose([bound, theory])
    assert not compose([bound, bound]).of_real_numbers
    assert "no model that a machine computed" in str(verify(together))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (np.arange(1.0, 5.0), "4 numbers that are not 0"),
        ({"a": [1.0, 2.0], "b": [[3.0], [4.0]]}, "4 numbers that are not 0"),
        ([0.5, 0.25, 0.1], "no multiples"),
        ([0.5, 0.25, 2.0**-17], "no multiples"),
        ([0.5, 0.25, math.nan], "no multiples"),
        (np.full(3, 1e-300), "no multiples"),
    ],
)
def test_a_model_that_no_such_run_releases_is_refused(model, said):
    training, loss = described()
    with pytest.raises(AssumptionError, match=said):
        certify(training, loss, DELTA, parameters=model)


def test_what_is_off_the_grid_by_right():
    """Zeros are nobody's, averages lie between points of the grid, two releases are two models."""
    training, loss = described()
    certify(training, loss, DELTA, parameters=np.array([0.5, 0.0, 0.0, 0.0, 1.0]))
    averaged = training.replace(release=TailAverage(3))
    certify(averaged, loss, DELTA, parameters=[1 / 3, 1 / 3, 0.1])
    certify(training, loss, DELTA, releases=(5,), parameters=[np.arange(3.0), np.ones(3)])
    with pytest.raises(AssumptionError, match="7 numbers"):
        certify(training, loss, DELTA, releases=(5,), parameters=np.ones(7))
