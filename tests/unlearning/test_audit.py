"""Shadow models with and without a deleted record: the plan holds, the model before it does not."""

from __future__ import annotations

import audit_unlearning as example
import pytest


@pytest.mark.parametrize("models", [2000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_an_audit_of_forgetting(models):
    plan, found = example.audited(models, seed=1)
    promised, gone = plan.guarantee, plan.deleted
    assert promised.epsilon(example.DELTA) <= example.EPSILON
    for clean, result in found.items():
        assert not result.contradicts(example.certified(plan, clean), audited=gone)
    # The same attack on the model of the deletion, and on one that was cleaned too little.
    assert found[0].mu_lower > 3 * promised.mu
    for too_early in (0, 10):
        assert found[too_early].contradicts(promised, audited=gone)
    assert not found[plan.steps].contradicts(promised, audited=gone)
