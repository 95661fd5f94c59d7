"""Every theorem is a row of data: a key for files and code, a name for people, what it covers."""

import re

import pytest

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    compare,
    theorems,
)
from lastiterate.description.batches import SCHEMES
from lastiterate.errors import AssumptionError
from lastiterate.published import PUBLISHED
from lastiterate.theory import BY_KEY, THEOREMS, Run, inapplicable_reason
from lastiterate.theory.registry import FEATURES
from lastiterate.verifier.checks import CHECKS

ROWS = {theorem.key: theorem for theorem in theorems()}


def test_keys_name_one_theorem_each():
    rows = theorems()
    assert len(rows) == len(THEOREMS) + len(PUBLISHED) == len(ROWS) == len({t.name for t in rows})
    assert {theorem.key: theorem for theorem in THEOREMS} == BY_KEY
    for key in ROWS:
        assert re.fullmatch(r"[a-z][a-z0-9.]*(-[a-z0-9.]+)*", key), key


def test_what_refers_to_a_theorem_uses_its_key():
    for theorem in ROWS.values():
        assert all(ROWS[key].status != "refuted" for key in theorem.dominated_by)
    assert all(ROWS[key].status != "refuted" for key in CHECKS)


def test_what_a_theorem_supports_is_a_feature_of_runs():
    for theorem in ROWS.values():
        assert theorem.supports <= set(FEATURES), theorem
        assert theorem.needs <= set(FEATURES), theorem
        assert all(FEATURES[name].needed for name in theorem.needs)


@pytest.mark.parametrize(
    "batches",
    [FullBatch(), Cyclic(2), Shuffled(2), Reshuffled(2), Poisson(0.5), WithoutReplacement(2)],
)
def test_a_theorem_covers_its_schemes_alone(batches):
    run = Run(
        Training(
            records=8,
            steps=4,
            step_size=0.1,
            noise=1.0,
            gradient_norm=1.0,
            batches=batches,
            adjacency="replace",
        ),
        Loss(smoothness=1.0),
    )
    for theorem in ROWS.values():
        if type(batches) not in theorem.schemes:
            word = "refuted" if theorem.status == "refuted" else "stated for"
            assert word in inapplicable_reason(theorem, run), theorem
    assert any(inapplicable_reason(theorem, run) is None for theorem in THEOREMS)


def test_every_theorem_says_which_schemes_it_covers():
    """One that says nothing covers nothing."""
    for theorem in ROWS.values():
        assert theorem.status == "refuted" or theorem.schemes, theorem
        assert set(theorem.schemes) <= set(SCHEMES.values())


def test_a_refuted_claim_has_a_counterexample_and_no_bound():
    run = Run(
        Training(
            records=8,
            steps=4,
            step_size=0.1,
            noise=1.0,
            gradient_norm=1.0,
            batches=FullBatch(),
            adjacency="replace",
        ),
        Loss(smoothness=1.0),
    )
    for theorem in ROWS.values():
        assert (theorem.status == "refuted") == bool(theorem.counterexample)
        assert (theorem.status == "refuted") == (theorem.bound is None)
        if theorem.bound is None:
            with pytest.raises(AssumptionError):
                theorem.prove(run)


def test_published_bounds_are_compared_when_asked():
    run = Training(
        records=5,
        steps=20,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    own, every = compare(run, loss), compare(run, loss, published=True)
    assert {row.theorem for row in own} <= {row.theorem for row in every}
    assert {row.theorem for row in every} & set(PUBLISHED)
    assert not {row.theorem for row in own} & set(PUBLISHED)
    assert own[0].epsilon == every[0].epsilon
