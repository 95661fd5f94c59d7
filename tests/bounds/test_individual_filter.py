"""Records with budgets of their own: true for public iterates, and not for hidden ones.

Why no record may be dropped by what it did to a hidden iterate:

A tempting claim: in cyclic batches with non-expansive steps, drop a record once the squares of the
impulses that it really caused exceed M. Paying every impulse evenly until the next use would give
mu^2 = ((M - s^2)_+/B + min(M, s^2)/(B - j))/nu^2 for position j of B. That holds if one record has
such a budget. If all have one, whether *others* are dropped depends on hidden iterates, jumps where
the steps are continuous, and tells to the end what one step knew: the run below is exactly as bad
as if every iterate were public, mu^2 = M/nu^2.
"""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

from lastiterate import (
    Arithmetic,
    CertificateError,
    Cyclic,
    Exposure,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    account,
    calibrate,
    certify,
    compare,
    verify,
)
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import L1, fractional
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.plan import optimal_schedule, plateau, predicted_risk
from lastiterate.train.budgets import Budgets
from lastiterate.verifier.balls import precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.document import canonical, fingerprint
from lastiterate.verifier.steps import Case


def final_iterates(with_record, runs, rng, batches=100, size=1000):
    """Two epochs in one dimension, nu = 1, one record moves a step by at most s = 1, M = s^2.

    Batch 0: the record, linear loss. Batch 1: ``size`` copies of a record with the convex and
    smooth loss of slope clip((x - 1/2)/(2w), 0, 1), w = size/4 (so that the step's slope is -1 or
    1). Batch 2: ``size`` records that push to the right by a linear loss. All others do nothing.
    """
    width, budget = size / 4, 1.0
    x = np.zeros(runs)
    spent = np.zeros((3, runs))
    for k in range(2 * batches):
        j = k % batches
        if j < 3:
            bent = np.clip((x - 0.5) / (2 * width), 0, 1)
            norm = (np.full(runs, float(with_record)), bent, np.ones(runs))[j]
            used = spent[j] + norm**2 <= budget
            spent[j] += np.where(used, norm**2, 0)
            x += np.where(used, (1.0, -float(size), float(size))[j] * norm, 0)
        x += rng.normal(size=runs)
    return x


def test_budgets_of_all_records_are_as_bad_as_public_iterates():
    rng, runs = np.random.default_rng(0), 20_000
    here, gone = (final_iterates(present, runs, rng) for present in (True, False))
    seen = np.mean(here > 500) - np.mean(gone > 500)
    public = Gaussian(1.0).delta(0.0)  # mu^2 = M/nu^2
    claimed = Gaussian(1 / math.sqrt(100)).delta(0.0)  # min(M, s^2)/B, the record is in batch 0
    noise = 5 * math.sqrt(0.5 / runs)
    assert seen - noise > 8 * claimed
    assert seen == pytest.approx(public, abs=noise)


def describe(**changes):
    fields = {
        "records": 6,
        "steps": 12,
        "step_size": 1.0,
        "noise": 1.0,
        "gradient_norm": 3.0,
        "adjacency": "zero-out",
        "batches": Cyclic(2),
        "individual_budget": 2.0,
    }
    return Training(**{**fields, **changes})


def test_the_counterexample_has_the_right_number():
    run = describe(
        records=100_000,
        steps=200,
        step_size=1000.0,
        gradient_norm=1.0,
        batches=Cyclic(1000),
        individual_budget=1.0,
    )
    found = account(run, Loss(smoothness=1.0))
    assert found.theorem.key == "individual-filter"
    assert found.mu == 1.0
    assert found.delta(0.0) == pytest.approx(0.3829, abs=1e-4)  # what the observer above has
    assert account(run.replace(individual_budget=2.0), Loss.unknown()).mu == pytest.approx(2**0.5)


def transcript_deltas(norms, shifts, run, order, epsilons):
    """The exact hockey-stick divergences of all iterates of three steps in one dimension.

    At step t the record has a gradient of norms[t][cell], and all others together move the
    parameters by shifts[t][cell], where the cell is that of the iterate before: any functions that
    jump, whoever is dropped. The filter is the trainer's. Cells are integrated one by one, where
    everything is smooth; the last step has a closed form.
    """
    etas, nus, cuts = run.step_sizes, run.noises, np.array([-np.inf, -1.0, 0.0, 1.0, np.inf])
    nodes, weights = np.polynomial.legendre.leggauss(14)
    cells = len(cuts) - 1
    found = np.zeros(len(epsilons))

    def moved(path):
        """What the record moved each step by along these cells."""
        budgets, moves = Budgets(run), []
        for t, cell in enumerate(path):
            used = budgets.counted(slice(0, 1), np.array([norms[t][cell]]))[0]
            moves.append(float(used) * etas[t] * norms[t][cell])
            budgets.update += 1
        return moves

    start = 2  # the cell of the start, 0
    for first, second in itertools.product(range(cells), repeat=2):
        s = moved((start, first, second))
        x = shifts[0][start]
        wy, ly = _leg(cuts[first : first + 2], x, s[0], nus[0], nodes, weights, order)
        x = shifts[1][first]
        wz, lz = _leg(cuts[second : second + 2], x, s[1], nus[1], nodes, weights, order)
        weight, loss = np.outer(wy, wz).ravel(), np.add.outer(ly, lz).ravel()
        mu = s[2] / nus[2]
        for i, epsilon in enumerate(epsilons):
            # weights are those of the first world, loss = log(first/second)
            left = epsilon - loss
            if mu == 0:
                last = np.maximum(-np.expm1(np.minimum(left, 0)), 0.0)
            else:
                last = ndtr(mu / 2 - left / mu) - np.exp(left + log_ndtr(-mu / 2 - left / mu))
            found[i] += float(weight @ last)
    return found


def _leg(ends, mean, s, nu, nodes, weights, order):
    """The weights of a cell's nodes under the first world's Gaussian, and the privacy loss."""
    low, high = (
        max(ends[0], min(mean, mean + s) - 9 * nu),
        min(ends[1], max(mean, mean + s) + 9 * nu),
    )
    if low >= high:
        return np.zeros(1), np.zeros(1)
    pieces = np.linspace(low, high, 3)
    half = np.diff(pieces)[:, None] / 2
    x = (pieces[:-1, None] + half * (1 + nodes)).ravel()
    means = (mean + s, mean) if order else (mean, mean + s)
    logs = [-((x - m) ** 2) / (2 * nu**2) for m in means]
    density = np.exp(logs[0]) / (nu * math.sqrt(2 * math.pi))
    return (half * weights).ravel() * density, logs[0] - logs[1]


def random_instance(rng):
    steps, K = 3, 3.0
    run = describe(
        records=1,
        steps=steps,
        step_size=rng.uniform(0.3, 1.2, steps).tolist(),
        noise=rng.uniform(0.5, 1.5, steps).tolist(),
        gradient_norm=K,
        batches=FullBatch(),
        individual_budget=float(rng.uniform(0.3, 3.0)),
    )
    norms = rng.uniform(0, K, (steps, 4)) * (rng.uniform(size=(steps, 4)) < 0.8)
    return run, norms, rng.normal(0, 1.0, (steps, 4))


def test_no_transcript_tells_more_than_the_budget():
    rng, epsilons = np.random.default_rng(1), (0.0, 0.5, 1.5)
    closest = 0.0
    for i in range(500):
        run, norms, shifts = random_instance(rng)
        seen = transcript_deltas(norms, shifts, run, bool(i % 2), epsilons)
        promised = np.array([account(run, Loss.unknown()).delta(e) for e in epsilons])
        assert np.all(seen <= promised * (1 + 1e-6) + 1e-9), (i, seen, promised)
        closest = max(closest, float(np.max(seen / promised)))
    assert closest > 0.97  # some instance spends nearly everything: the bound could not be smaller


def test_without_a_filter_the_same_transcripts_tell_more():
    """The law above can fail: uses that are not left out break the promise."""
    rng, broken = np.random.default_rng(2), 0
    for _ in range(30):
        run, norms, shifts = random_instance(rng)
        free = run.replace(individual_budget=1e3)
        seen = transcript_deltas(norms, shifts, free, True, (0.5,))
        broken += seen[0] > Gaussian(run.individual_budget).delta(0.5) * (1 + 1e-6)
    assert broken > 5


def test_a_record_that_spends_all_of_it_attains_the_bound():
    run = describe(records=1, steps=3, batches=FullBatch(), individual_budget=3**0.5 * (1 + 1e-9))
    ones = np.ones((3, 4))
    for order in (True, False):
        seen = transcript_deltas(ones, np.zeros((3, 4)), run, order, (0.0, 1.0))
        promised = [account(run, Loss.unknown()).delta(e) for e in (0.0, 1.0)]
        assert seen == pytest.approx(promised, rel=1e-6)


def test_what_is_spent_is_never_more_in_exact_numbers():
    rng = np.random.default_rng(3)
    for _ in range(200):
        records, steps = int(rng.integers(1, 5)), int(rng.integers(1, 9))
        arithmetic = Arithmetic(
            grid=2.0 ** int(rng.integers(-60, -8)), error=float(10.0 ** rng.uniform(-18, -2))
        )
        scale = 10.0 ** rng.uniform(-150, 150)
        run = describe(
            records=records,
            steps=steps,
            step_size=10.0 ** rng.uniform(-3, 1, steps),
            noise=scale * rng.uniform(0.2, 2, steps) * (rng.uniform(size=steps) < 0.9),
            batches=FullBatch(),
            individual_budget=float(10.0 ** rng.uniform(-3, 2)),
            arithmetic=arithmetic if rng.uniform() < 0.5 else "exact",
        )
        slip = Fraction(run.slip)
        charge = Fraction(arithmetic.charge) if run.slip else Fraction(0)
        budgets, spent = Budgets(run), [Fraction(0)] * records
        for k in range(steps):
            norms = scale * rng.uniform(0, 3, records) * rng.choice([0, 1e-170, 1, 1, 1], records)
            norms[rng.uniform(size=records) < 0.05] = rng.choice([np.nan, np.inf, 5e-324])
            counted = budgets.counted(slice(0, records), norms)
            budgets.update += 1
            for i in np.flatnonzero(counted):
                moved = Fraction(run.step_sizes[k]) * (Fraction(norms[i]) / records + charge) + slip
                if moved:
                    spent[i] += (moved / Fraction(run.noises[k])) ** 2
        assert all(each <= Fraction(run.individual_budget) ** 2 for each in spent)


LOSSES = (Loss(smoothness=1.0), Loss(smoothness=1.0, strong_convexity=0.5), Loss.unknown())


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(2), Shuffled(2), Reshuffled(2)])
def test_no_theorem_about_hidden_iterates_speaks_of_it(batches):
    run = describe(batches=batches, diameter=1.0)
    for loss, more in itertools.product(LOSSES, ({}, {"proximal": L1(0.1)}, {"final_noise": 2.0})):
        rows = compare(run.replace(**more), loss, delta=1e-5)
        assert {row.theorem.key for row in rows} == {"individual-filter", "gaussian-composition"}
        assert account(run.replace(**more), loss).lower(1e-5) == 0.0
    plain = compare(run.replace(individual_budget=None), LOSSES[0], delta=1e-5)
    assert "individual-filter" not in {row.theorem.key for row in plain}
    assert account(run, LOSSES[0], releases=(3,)).mu == account(run, LOSSES[0]).mu
    average = run.replace(release=TailAverage(5))
    assert account(average, LOSSES[0]).mu == account(run, LOSSES[0]).mu
    for person in (Exposure(joined=3), Exposure(left=9), Exposure(gradient_norm=2.9)):
        assert account(run, LOSSES[0], exposure=person).mu <= 2.0
        sealed = certify(run, LOSSES[0], 1e-5, exposure=person)
        assert verify(sealed).epsilon <= Gaussian(2.0).epsilon(1e-5) * (1 + 1e-6)
    people = compare(run, LOSSES[0], delta=1e-5, exposure=Exposure(records=2))
    assert {row.theorem.key for row in people} == {"gaussian-composition"}
    with precision():
        for key, other in CHECKS.items():
            if key not in ("individual-filter", "gaussian-composition"):
                with pytest.raises(CertificateError):
                    other(Case(run, LOSSES[0]), {})
        with pytest.raises(CertificateError):
            CHECKS["individual-filter"](Case(run.replace(individual_budget=None), LOSSES[0]), {})
        with pytest.raises(CertificateError):
            CHECKS["individual-filter"](Case(run, LOSSES[0], (), Exposure(records=2)), {})


@pytest.mark.parametrize(
    "changes",
    [
        {"adjacency": "replace"},
        {"momentum": 0.5},
        {"batches": Poisson(0.5)},
        {"correlation": fractional(0.5, 3)},
        {"individual_budget": 0.0},
        {"individual_budget": -1.0},
        {"individual_budget": math.inf},
        {"individual_budget": math.nan},
        {"individual_budget": "2"},
        {"individual_budget": True},
    ],
)
def test_what_is_not_proved_is_not_described(changes):
    with pytest.raises(DescriptionError):
        describe(**changes)


def test_plans_that_know_no_budgets_refuse():
    run, loss = describe(batches=FullBatch()), Loss(smoothness=1.0)
    for ask in (
        lambda: calibrate(run, loss, epsilon=1.0, delta=1e-5),
        lambda: calibrate(run, loss, epsilon=1.0, delta=1e-5, find="steps"),
        lambda: plateau(run, loss, 1e-5),
        lambda: optimal_schedule(run, loss, epsilon=1.0, delta=1e-5),
        lambda: predicted_risk(run, loss, [1.0]),
    ):
        with pytest.raises(UnsupportedError, match="individual budgets"):
            ask()


def test_it_is_written_and_read(tmp_path):
    run = describe()
    assert Training.from_json(run.to_json()) == run
    assert Training.from_toml(run.to_toml()) == run
    assert "no record used beyond mu = 2" in str(run)
    assert any("beyond mu = 2.0" in str(each) for each in account(run, LOSSES[0]).assumptions)


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(2), Shuffled(2), Reshuffled(2)])
def test_certificates_verify_and_mutations_do_not(batches, tmp_path):
    run = describe(batches=batches, individual_budget=1.5)
    sealed = certify(run, Loss.unknown(), 1e-5)
    sealed.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json").epsilon == sealed.epsilon
    assert sealed.epsilon == pytest.approx(Gaussian(1.5).epsilon(1e-5), rel=1e-6)
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["theorem"]["key"] == "individual-filter"
    told = {
        "individual_budget": (None, 1.4, 0.0, "inf", -1.5, [1.5]),
        "adjacency": ("replace",),
        "momentum": (0.5,),
        "batches": ({"scheme": "poisson", "rate": 0.5},),
        "correlation": ([1.0, -0.5],),
    }
    for field, values in told.items():
        for value in values:
            changed = json.loads(json.dumps(document))
            changed["training"][field] = value
            changed["fingerprint"] = fingerprint(changed)
            (tmp_path / "m.json").write_text(canonical(changed))
            with pytest.raises(CertificateError):
                verify(tmp_path / "m.json")
    for field, value in (
        ("epsilon", sealed.epsilon * 0.99),
        ("assumptions", document["assumptions"][:1]),
    ):
        changed = {**document, field: value}
        changed["fingerprint"] = fingerprint(changed)
        (tmp_path / "m.json").write_text(canonical(changed))
        with pytest.raises(CertificateError):
            verify(tmp_path / "m.json")
