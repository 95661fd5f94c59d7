"""Recommendations: every alternative meets the budget, the best comes first, the text says why."""

from __future__ import annotations

import pytest

from lastiterate import DescriptionError, account, recommend
from lastiterate.accounting.risk import QuadraticModel


@pytest.fixture(scope="module")
def advice():
    return recommend(records=20_000, dimension=100, epsilon=0.5, delta=1e-6, epochs=4)


def test_every_alternative_meets_the_target(advice):
    for alternative in advice.alternatives:
        epsilon = account(alternative.training, advice.loss).epsilon(1e-6)
        assert 0.99 * 0.5 <= epsilon <= 0.5
        assert alternative.training.epochs == pytest.approx(4, rel=0.02)


def test_the_best_comes_first_and_is_predicted_on_the_model(advice):
    risks = [alternative.risk.total for alternative in advice.alternatives]
    assert risks == sorted(risks)
    assert advice.training == advice.alternatives[0].training
    model = QuadraticModel(advice.loss, 100, 5.0, 0.5, 1e-6)
    assert model.risk(advice.training).total == pytest.approx(risks[0], rel=1e-12)


def test_it_offers_each_kind(advice):
    names = " ".join(alternative.name for alternative in advice.alternatives)
    for kind in ("constant", "burst", "equalised", "average", "optimal schedule"):
        assert kind in names
    assert str(advice).count("\n") == len(advice.alternatives) + 2


def test_the_model_has_as_many_directions_as_the_loss(advice):
    for dimension in (1, 2, 7, 30, 1000, 12_345):
        values, counts = QuadraticModel(advice.loss, dimension, 5.0, 1.0, 1e-5).directions
        assert counts.sum() == dimension
        assert counts @ values == pytest.approx(0.25)  # bounded rows: the trace of the curvature
        assert values.max() <= 0.25 * (1 + 1e-12)


def test_hidden_states_pay_for_many_small_batches_and_few_passes():
    """One pass: small equalised batches. The full batch cannot even leave its start."""
    advice = recommend(records=30_000, dimension=100, epsilon=1.0, delta=1e-6, epochs=1)
    assert advice.training.schedule == "equalised"
    ranked = [alternative.name for alternative in advice.alternatives]
    assert ranked[-1].startswith("full batch")


def test_few_records_have_no_small_batches():
    advice = recommend(records=50, dimension=3, epsilon=1.0, delta=1e-3, epochs=2)
    assert {a.training.batches.name for a in advice.alternatives} == {"full"}


def test_what_it_refuses():
    with pytest.raises(DescriptionError, match="epochs"):
        recommend(records=100, dimension=3, epsilon=1.0, delta=1e-3, epochs=0)
    with pytest.raises(DescriptionError, match="epsilon"):
        recommend(records=100, dimension=3, epsilon=0.0, delta=1e-3, epochs=2)
    with pytest.raises(DescriptionError, match="adjacency"):
        recommend(records=100, dimension=3, epsilon=1.0, delta=1e-3, epochs=2, adjacency="none")
