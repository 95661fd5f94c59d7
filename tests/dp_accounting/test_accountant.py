"""Last iterates as events of dp-accounting: its own contract, and sums against exact laws."""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest

from lastiterate import FullBatch, Loss, Poisson, Shuffled, Training, account, calibrate
from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import fractional
from lastiterate.errors import DescriptionError

dp_accounting = pytest.importorskip("dp_accounting")
from dp_accounting import privacy_accountant_test  # noqa: E402
from dp_accounting.privacy_accountant import (  # noqa: E402
    NeighboringRelation,
    PrivacyAccountant,
    UnsupportedEventError,
)

from lastiterate.dp_accounting import LastIterateAccountant, LastIterateDpEvent  # noqa: E402

LOSS = Loss(smoothness=1.0)
ROOT = Path(__file__).parents[2]


def run(noise=0.01, **changes):
    told = {"records": 1000, "steps": 50, "step_size": 1.0, "gradient_norm": 1.0}
    told |= {"batches": FullBatch(), "adjacency": "zero-out", "noise": noise}
    return Training(**({"adjacency": "replace"} | told | changes))


class TestContract(privacy_accountant_test.PrivacyAccountantTest):
    """What dp-accounting demands of every accountant."""

    def _make_test_accountants(self):
        return [LastIterateAccountant(relation) for relation in NeighboringRelation]


def test_a_run_alone_is_answered_by_its_guarantee():
    for batches in (FullBatch(), Shuffled(100)):
        guarantee = account(run(batches=batches), LOSS)
        accountant = LastIterateAccountant().compose(LastIterateDpEvent(guarantee.training, LOSS))
        for delta in (1e-4, 1e-6, 1e-15):
            assert accountant.get_epsilon(delta) == guarantee.epsilon(delta)
        assert accountant.get_delta(1.0) == guarantee.delta(1.0)
        assert accountant.get_epsilon(0) == math.inf
        assert accountant.get_epsilon(1) == 0


def test_runs_and_other_events_against_the_exact_gaussian():
    """Full-batch runs are Gaussians, so a sum of them and of Gaussian events is one, exactly."""
    rng = np.random.default_rng(3)
    for _ in range(4):
        accountant = LastIterateAccountant(value_discretization_interval=1e-3)
        squares = 0.0
        for _ in range(int(rng.integers(1, 4))):
            described = run(noise=float(rng.uniform(0.01, 0.05)))
            count = int(rng.integers(1, 4))
            accountant.compose(LastIterateDpEvent(described, LOSS), count)
            squares += count * account(described, LOSS).mu ** 2
        for events in range(3):
            exact = Gaussian(math.sqrt(squares))
            for delta in (1e-3, 1e-6, 1e-10):
                found = accountant.get_epsilon(delta)
                assert exact.epsilon(delta) * (1 - 1e-9) <= found <= exact.epsilon(delta) * 1.001
            for epsilon in (0.0, 1.0, 4.0):
                found = accountant.get_delta(epsilon)
                assert exact.delta(epsilon) * (1 - 1e-9) <= found
                assert found <= exact.delta(epsilon) * 1.001 + 1e-11
            accountant.compose(dp_accounting.GaussianDpEvent(float(3 + events)), 2)
            squares += 2 / (3 + events) ** 2


def test_several_runs_that_are_no_gaussians():
    """Hidden positions: the average over both positions of each run, composed, by hand."""
    described = run(noise=0.02, batches=Shuffled(500), steps=2)
    guarantee = account(described, LOSS)
    assert guarantee.mu is None
    event = LastIterateDpEvent(described, LOSS)
    twice = LastIterateAccountant().compose(event, 2)
    nested = LastIterateAccountant().compose(
        dp_accounting.ComposedDpEvent([event, dp_accounting.SelfComposedDpEvent(event, 1)])
    )
    assert twice.get_epsilon(1e-6) == pytest.approx(nested.get_epsilon(1e-6), rel=1e-9)
    composed = guarantee.to_dp_accounting().self_compose(2)
    assert twice.get_epsilon(1e-6) == pytest.approx(composed.get_epsilon_for_delta(1e-6), rel=1e-3)
    assert guarantee.epsilon(1e-6) < twice.get_epsilon(1e-6) < 2 * guarantee.epsilon(1e-6)
    assert twice.get_epsilon(1e-13) == math.inf  # below what is kept back for rounded sums


def test_poisson_composition_agrees_with_their_own_accountant():
    described = Training.dp_sgd(
        records=1000,
        steps=200,
        step_size=0.1,
        noise_multiplier=1.0,
        clip=1.0,
        batches=Poisson(0.05),
    )
    ours = LastIterateAccountant().compose(LastIterateDpEvent(described, Loss.unknown()))
    step = dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(1.0))
    theirs = dp_accounting.pld.PLDAccountant().compose(step, 200)
    same = LastIterateAccountant().compose(step, 200)
    for delta in (1e-4, 1e-7):
        assert same.get_epsilon(delta) == pytest.approx(theirs.get_epsilon(delta), rel=1e-12)
        assert ours.get_epsilon(delta) == pytest.approx(theirs.get_epsilon(delta), rel=2e-3)


def test_calibrate_dp_mechanism_finds_the_noise_that_calibrate_finds():
    noise = dp_accounting.calibrate_dp_mechanism(
        LastIterateAccountant,
        lambda value: LastIterateDpEvent(run(noise=value), LOSS),
        target_epsilon=1.0,
        target_delta=1e-6,
        bracket_interval=dp_accounting.ExplicitBracketInterval(1e-4, 1.0),
    )
    assert account(run(noise=noise), LOSS).epsilon(1e-6) <= 1.0
    ours = calibrate(run(), LOSS, epsilon=1.0, delta=1e-6).noise
    assert noise == pytest.approx(ours, rel=1e-3)
    # From nothing, as its default bracket does: no noise has no epsilon.
    steps = dp_accounting.calibrate_dp_mechanism(
        LastIterateAccountant,
        lambda value: LastIterateDpEvent(run(noise=value), LOSS),
        1.0,
        1e-6,
    )
    assert steps == pytest.approx(ours, rel=1e-2)


REFUSED = {
    "neighbours": (run(adjacency="replace"), LOSS, "REPLACE_ONE"),
    "an estimate": (run(), Loss(smoothness=1.0, provenance="estimated"), "NOT A GUARANTEE"),
    "no theorem": (run(batches=Poisson(0.1), correlation=fractional(0.5, 50)), LOSS, "No theorem"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_is_refused_before_anything_is_counted(kind):
    training, loss, says = REFUSED[kind]
    event = LastIterateDpEvent(training, loss)
    accountant = LastIterateAccountant()
    assert not accountant.supports(event)
    mixed = dp_accounting.ComposedDpEvent([dp_accounting.GaussianDpEvent(1.0), event])
    for bad in (event, mixed, dp_accounting.SelfComposedDpEvent(event, 3)):
        with pytest.raises(UnsupportedEventError, match=says):
            accountant.compose(bad)
    assert accountant.get_epsilon(1e-5) == 0


def test_added_or_removed_records_are_not_what_runs_describe():
    event = LastIterateDpEvent(run(), LOSS)
    accountant = LastIterateAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    with pytest.raises(UnsupportedEventError, match="REPLACE_SPECIAL"):
        accountant.compose(event)
    assert LastIterateAccountant(NeighboringRelation.REPLACE_ONE).supports(
        LastIterateDpEvent(run(adjacency="replace"), LOSS)
    )


def test_a_run_inside_a_sample_or_a_selection_is_another_mechanism():
    event = LastIterateDpEvent(run(), LOSS)
    accountant = LastIterateAccountant()
    for wrapped in (
        dp_accounting.PoissonSampledDpEvent(0.1, event),
        dp_accounting.SampledWithoutReplacementDpEvent(100, 10, event),
        dp_accounting.dp_event.RepeatAndSelectDpEvent(event, 3.0, 1.0),
    ):
        assert not accountant.supports(wrapped)
    with pytest.raises(UnsupportedEventError):
        dp_accounting.pld.PLDAccountant().compose(event)  # nobody else mistakes it for a step


def test_no_noise_is_no_privacy():
    event = LastIterateDpEvent(run(noise=0.0), LOSS)
    accountant = LastIterateAccountant().compose(event)
    assert accountant.get_epsilon(1) == math.inf
    assert accountant.get_delta(100.0) == 1


def test_an_event_travels_as_a_named_tuple_and_stays_in_the_ledger():
    event = LastIterateDpEvent(run(), LOSS)
    assert dp_accounting.DpEvent.from_named_tuple(event.to_named_tuple()) == event
    accountant = LastIterateAccountant().compose(event).compose(event)
    assert accountant.ledger == dp_accounting.SelfComposedDpEvent(event, 2)


PUBLIC = {
    "CompositionErrorDetails",  # a record of dp-accounting, not a method
    "compose",
    "get_delta",
    "get_epsilon",
    "ledger",
    "neighboring_relation",
    "supports",
}


def test_every_public_method_accounts_for_runs():
    """A method that dp-accounting adds would ignore runs: it has to be defined here, or refused."""
    assert {name for name in dir(PrivacyAccountant) if not name.startswith("_")} == PUBLIC
    assert {name for name in dir(LastIterateAccountant) if not name.startswith("_")} == PUBLIC
    assert vars(LastIterateAccountant).keys() >= PUBLIC - {"CompositionErrorDetails"}
    assert not isinstance(LastIterateAccountant(), dp_accounting.pld.PLDAccountant)


def test_dp_accounting_is_capped_below_the_next_minor_version():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["optional-dependencies"]["interchange"]
    assert any(re.match(r"dp-accounting>=[\d.]+,<0\.\d+$", each) for each in needed)


@pytest.mark.parametrize("count", [-1, 0])
def test_a_count_below_one_raises_as_in_dp_accounting(count):
    for event in (LastIterateDpEvent(run(), LOSS), dp_accounting.GaussianDpEvent(1.0)):
        accountant = LastIterateAccountant()
        with pytest.raises(ValueError, match="count"):
            dp_accounting.pld.PLDAccountant().compose(dp_accounting.GaussianDpEvent(1.0), count)
        with pytest.raises(ValueError, match="count"):
            accountant.compose(event, count)
        assert accountant.get_epsilon(1e-5) == 0


def test_randomized_response_counts_as_often_as_it_happens():
    """k binary responses against the exact law: a sum of k coins."""
    event = dp_accounting.dp_event.RandomizedResponseDpEvent(0.5, 2)
    laws = [(0.75**k * 0.25 ** (3 - k), 0.25**k * 0.75 ** (3 - k)) for k in range(4)]
    truth = sum(math.comb(3, k) * max(p - math.e * q, 0) for k, (p, q) in enumerate(laws))
    for composed in (
        LastIterateAccountant(NeighboringRelation.REPLACE_ONE).compose(event, 3),
        LastIterateAccountant(NeighboringRelation.REPLACE_ONE).compose(event).compose(event, 2),
    ):
        assert truth <= composed.get_delta(1.0) <= truth * 1.01 + 1e-9


@pytest.mark.parametrize("count", [-1, -0.5, 0.25, math.nan, np.int64(2) ** 40, "2"])
def test_counts_that_no_mechanism_has_are_refused(count):
    """Minus one run took back what the run before it cost; a quarter of one cost half of it."""
    event = LastIterateDpEvent(run(), LOSS)
    for inner in (event, dp_accounting.GaussianDpEvent(1.0)):
        several = dp_accounting.SelfComposedDpEvent(inner, count)
        for odd in (several, dp_accounting.ComposedDpEvent([event, several])):
            accountant = LastIterateAccountant().compose(event)
            before = accountant.get_epsilon(1e-5)
            assert not accountant.supports(odd)
            with pytest.raises((UnsupportedEventError, TypeError, ValueError)):
                accountant.compose(odd)
            assert accountant.get_epsilon(1e-5) == before


@pytest.mark.parametrize("buckets", [2, 5])
def test_repeated_randomized_response_counts_every_time(buckets):
    """dp-accounting's own accountant counts it once; ten times cost 10 epsilon at delta = 0."""
    once = math.log((1 - 0.5 + 0.5 / buckets) / (0.5 / buckets))
    event = dp_accounting.RandomizedResponseDpEvent(0.5, buckets)
    for several in (event, dp_accounting.SelfComposedDpEvent(event, 5)):
        count = 10 if several is event else 2
        accountant = LastIterateAccountant(NeighboringRelation.REPLACE_ONE, 1e-3)
        found = accountant.compose(several, count).get_epsilon(1e-13)
        assert 10 * once - 1e-3 <= found <= 10 * (once + 1e-3)
        both = accountant.compose(LastIterateDpEvent(run(adjacency="replace"), LOSS))
        assert both.get_epsilon(1e-13) > 10 * once


def test_questions_that_have_no_answer_are_refused():
    described = LastIterateDpEvent(run(), LOSS)
    for events in ([described], [described, dp_accounting.GaussianDpEvent(5.0)], []):
        accountant = LastIterateAccountant()
        for event in events:
            accountant.compose(event)
        for delta in (math.nan, -1e-3, 1.5):
            with pytest.raises(DescriptionError):
                accountant.get_epsilon(delta)
        with pytest.raises(DescriptionError):
            accountant.get_delta(math.nan)
    with pytest.raises(UnsupportedEventError, match="Training"):
        LastIterateAccountant().compose(LastIterateDpEvent("a run", LOSS))
