"""Witnesses of random allocation: what is taken from them, and what is not."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from flint import arb

from lastiterate import Arithmetic, Loss, RandomAllocation, Training, account, certify, verify
from lastiterate.errors import CertificateError
from lastiterate.kernel.privacy_loss import Scale
from lastiterate.theory import BY_KEY
from lastiterate.verifier import allocated
from lastiterate.verifier.balls import precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.steps import Case

LOSS = Loss(smoothness=1.0)
HIDDEN = "allocation-deferral"


def training(**changes) -> Training:
    fields = dict(
        records=400,
        steps=20,
        step_size=0.1,
        noise=0.005,
        gradient_norm=1.0,
        batches=RandomAllocation(20),
        adjacency="zero-out",
    )
    return Training(**{"adjacency": "replace", **fields, **changes})


@pytest.mark.parametrize(
    ("changes", "loss"),
    [
        ({}, LOSS),
        ({}, Loss.unknown()),
        ({"steps": 47}, LOSS),
        ({"steps": 40, "batches": RandomAllocation(20, same_every_epoch=True)}, LOSS),
        ({"step_size": 0.9, "noise": 0.045}, LOSS),
        ({"arithmetic": Arithmetic(grid=2.0**-24, coordinates=3)}, LOSS),
        ({"momentum": 0.5}, LOSS),
    ],
)
def test_what_is_certified_is_what_was_accounted(changes, loss, tmp_path) -> None:
    run = training(**changes)
    certificate = certify(run, loss, 1e-5)
    bounds = account(run, loss).bounds
    found = min(each.epsilon(1e-5) for each in bounds if each.theorem.key in CHECKS)
    assert certificate.epsilon == pytest.approx(found, rel=0.01)
    certificate.save(tmp_path / "certificate.json")
    assert verify(tmp_path / "certificate.json").epsilon == certificate.epsilon


@pytest.fixture(scope="module")
def witness():
    run = training(steps=40)
    return run, dict(BY_KEY[HIDDEN].evaluate(run, LOSS).at(1e-5).witness)


def edited(found, **changes):
    return {**copy.deepcopy(found), **changes}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tail": 0}, "fit the epochs"),
        ({"tail": 3}, "fill the last epoch"),
        ({"kappa": -1.0}, "kappa"),
        ({"kappa": math.nan}, "kappa"),
        ({"blocks": [[[20], 1]]}, "fit the epochs"),
        ({"blocks": [[[20], 2], [[15], 1]]}, "fit the epochs"),
        ({"blocks": [[[30], 1], [[19], 1]], "tail": 1}, "fill an epoch"),
        ({"blocks": [[[20], 1], [[], 1]], "tail": 20}, "fill the last epoch"),
        ({"blocks": [[[25, -5], 1], [[19], 1]], "tail": 1}, "fit the epochs"),
        ({"tops": []}, "too few"),
        ({"tops": [[math.inf, 0.0]] * 3}, "out of range"),
        ({"cap": -1}, "cap"),
    ],
)
def test_tampered_payments_are_refused(witness, changes, reason) -> None:
    run, found = witness
    with precision(), pytest.raises(CertificateError, match=reason):
        CHECKS[HIDDEN](Case(run, LOSS), edited(found, **changes))


def test_a_smaller_cap_costs_its_failure(witness) -> None:
    run, found = witness
    with precision():
        profile = CHECKS[HIDDEN](Case(run, LOSS), edited(found, cap=25))
        assert float(profile.failure) > 0.5


@pytest.mark.parametrize(
    ("changes", "loss", "reason"),
    [
        ({"adjacency": "replace"}, LOSS, "zero-out"),
        ({"momentum": 0.5}, LOSS, "momentum"),
        ({"step_size": 5.0}, LOSS, "expand"),
        ({"clipping": "gradient"}, LOSS, "expand"),
        ({}, Loss.unknown(), "smoothness"),
        ({"batches": RandomAllocation(20, same_every_epoch=True)}, LOSS, "pick once"),
        ({"noise": 0.0}, LOSS, "without noise"),
    ],
)
def test_other_runs_are_refused(witness, changes, loss, reason) -> None:
    run, found = witness
    with precision(), pytest.raises(CertificateError, match=reason):
        CHECKS[HIDDEN](Case(run.replace(**changes), loss), found)


def test_the_law_dominates_samples_of_the_payments() -> None:
    """E(kappa - L)_+ of the integers is no less than that of explicit payments, and close."""
    batches, blocks, steps, kappa, ratio = 8, (1, 2, 2), 3, 1.0, 0.8
    rows = allocated._terms([(blocks, 1)], {"tail": steps, "kappa": kappa}, arb(ratio))
    ((groups, tail, _),) = rows
    pays = explicit(batches, blocks, steps, kappa, ratio)
    rng = np.random.default_rng(0)
    y = rng.standard_normal((400_000, batches))
    sampled = np.exp(y @ pays.T - (pays**2).sum(1) / 2).mean(1)
    with precision(256):
        pair = allocated.Allocated(batches, groups, tail, 0, 2.0, 2.0)
        values, units = allocated._law(pair, 2.0)
    found = np.array([float(x) / batches for x in values])
    masses = np.array([unit / 2.0**128 for unit in units])
    for kappa_ in (0.5, 0.8, 1.0, 1.5, 3.0):
        put = float(masses @ np.maximum(kappa_ - found, 0))
        excess = np.maximum(kappa_ - sampled, 0)
        spread = excess.std() / len(excess) ** 0.5
        assert abs(put - excess.mean()) < 4 * spread + 1e-5
    ahead, back = pair.laws(Scale(10, 80, 12.0))
    assert ahead.total() >= 1 << 80
    assert back.total() >= 1 << 80


def explicit(batches, sizes, steps, kappa, ratio) -> np.ndarray:
    """Row j: what label j pays at every step."""
    pays = np.zeros((batches, batches))
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
    for b, size in enumerate(sizes):
        first, end = starts[b], starts[b + 1]
        pays[first, first:end] = ratio / size
        if b + 1 < len(sizes):
            pays[first + 1 : end, end : starts[b + 2]] = ratio / sizes[b + 1]
        else:
            pays[first + 1 : end, batches - steps :] = ratio / steps
    for left in range(steps, 0, -1):
        k, later = batches - left, ratio / min(left + kappa, steps)
        pays[k, k + 1 :] = later
        pays[k, k] = ratio - (left - 1) * later
    return pays
