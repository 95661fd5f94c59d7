"""``generalization``: what it accepts, what it names best, what it says."""

from __future__ import annotations

import dataclasses
import math

import pytest
from scipy.stats import norm

from lastiterate import FullBatch, Loss, Training, account
from lastiterate.composition import optimal
from lastiterate.curves.gaussian import Gaussian
from lastiterate.errors import DescriptionError
from lastiterate.generalization import generalization


def run(steps: int, adjacency: str = "replace") -> Training:
    return Training(
        records=10_000,
        steps=steps,
        step_size=0.1,
        noise=0.01,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency=adjacency,
    )


LOSS = Loss(smoothness=1.0, strong_convexity=0.1)


def test_the_bound_of_a_last_iterate_does_not_grow_with_the_steps() -> None:
    early, late, later = (generalization(account(run(t), LOSS)) for t in (20, 2_000, 200_000))
    assert early.high_probability < late.high_probability
    assert later.high_probability == pytest.approx(late.high_probability, rel=1e-3)
    assert later.expected == pytest.approx(late.expected, rel=1e-3)
    assert later.high_probability < 0.1


def test_zeroed_out_records_count_twice() -> None:
    zeroed = account(run(100, "zero-out"), LOSS)
    assert generalization(zeroed).expected == pytest.approx(
        2 * norm.cdf(zeroed.mu / 2) * 2 - 2, rel=1e-6
    )
    # half the sensitivity, twice the changes: the same bound on replaced records by mu
    replaced = generalization(account(run(100), LOSS))
    assert generalization(zeroed).high_probability == pytest.approx(
        replaced.high_probability, rel=1e-6
    )
    with pytest.raises(DescriptionError, match="adjacency"):
        generalization((1.0, 1e-6), 100, adjacency="add")


def test_total_variation_of_each_form() -> None:
    assert generalization(Gaussian(0.3), 10**6).expected == pytest.approx(
        2 * norm.cdf(0.15) - 1, rel=1e-9
    )
    assert generalization((0.3, 1e-6), 10**6).expected == pytest.approx(
        1e-6 + (1 - 1e-6) * math.tanh(0.15), rel=1e-9
    )
    assert generalization((0.3, 0.0), 10**6).expected == pytest.approx(math.tanh(0.075), rel=1e-9)


def test_a_pure_curve_is_recognised() -> None:
    found = generalization(optimal(0.01, 0.0, 10), 10**5)
    assert "tanh(epsilon/4)" in [bound.name for bound in found.bounds]
    assert found.expected <= math.tanh(0.1 / 4) * (1 + 1e-9)
    approximate = generalization(optimal(0.01, 1e-9, 10), 10**5)
    assert "tanh(epsilon/4)" not in [bound.name for bound in approximate.bounds]


def test_a_curve_does_at_least_as_well_as_one_of_its_pairs() -> None:
    curve = Gaussian(0.05)
    whole = generalization(curve, 10**5)
    one = generalization((curve.epsilon(1e-6), 1e-6), 10**5)
    assert whole.high_probability <= one.high_probability
    assert whole.expected <= one.expected


def test_unverified_bounds_are_shown_and_never_best() -> None:
    found = generalization((0.05, 1e-9), 10**6)
    assert sum(bound.status == "unverified" for bound in found.bounds) == 3
    # an unverified value far below all others, one that fails too often, one that does not apply
    tempting = dataclasses.replace(found.best, value=1e-6)
    for spoiled in (
        dataclasses.replace(tempting, status="unverified"),
        dataclasses.replace(tempting, failure=0.06),
        dataclasses.replace(tempting, unmet=("n is too small",)),
    ):
        assert dataclasses.replace(found, bounds=(spoiled, *found.bounds)).best == found.best
    assert dataclasses.replace(found, bounds=(tempting, *found.bounds)).best == tempting


def test_vacuous_bounds_are_called_vacuous() -> None:
    found = generalization((20.0, 1e-6), 1000)
    assert found.best.vacuous
    assert found.high_probability == 1.0
    assert "all are vacuous" in str(found)
    assert found.population_risk(0.1) == 1.0
    assert generalization((math.inf, 0.0), 1000).expected == 1.0


def test_theorem_1_is_not_offered_where_it_fails() -> None:
    # for epsilon >= 2 its printed probability exceeds 1
    found = generalization((2.0, 1e-6), 10**9)
    theirs = next(
        bound for bound in found.bounds if bound.reference == "He, Wang & Tao 2020, Theorem 1"
    )
    assert not theirs.hypotheses_met
    assert "epsilon < 2" in str(theirs)
    assert 1 - math.exp(-2.0) * 1e-6 / 2.0 * math.log(2 / 2.0) >= 1


def test_the_statement_bounds_the_population_risk_from_above() -> None:
    found = generalization((0.05, 1e-7), 10**6)
    assert "the population risk is at most the training risk plus" in str(found)
    assert found.population_risk(0.2) == 0.2 + found.high_probability
    with pytest.raises(DescriptionError, match="training_risk"):
        found.population_risk(1.2)


def test_estimated_constants_are_announced_first() -> None:
    estimated = Loss(smoothness=1.0, strong_convexity=0.1, provenance="estimated")
    text = str(generalization(account(run(100), estimated)))
    assert text.startswith("NOT A GUARANTEE")


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        (((1.0, 1e-6), None), "records"),
        (((1.0, 1e-6), 0), "records"),
        (((1.0, 1e-6), 100, 1.0), "confidence"),
        (((-1.0, 1e-6), 100), "epsilon"),
        ((3.0, 100), "guarantee"),
    ],
)
def test_bad_input_is_named(arguments: tuple[object, ...], field: str) -> None:
    with pytest.raises(DescriptionError, match=field):
        generalization(*arguments)  # type: ignore[arg-type]


def test_records_must_be_those_of_the_guarantee() -> None:
    with pytest.raises(DescriptionError, match="records"):
        generalization(account(run(10), LOSS), 20_000)
