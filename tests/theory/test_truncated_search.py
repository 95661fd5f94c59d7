"""A search that looks at the last steps alone starts from the diameter: g(D) + s, never less.

Gradients are only known to be bounded, so one step may tear two runs apart by 2 eta K. Cutting the
search short must not hide that: the bound stays above exact laws of walks on an interval.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from interval_laws import scheduled_truth_from_below
from kernel_runs import described

from lastiterate import FullBatch, Loss, Training, account, calibrate, certify, verify
from lastiterate.certificate import Certificate, ClaimError
from lastiterate.kernel.balls import KernelError, precision
from lastiterate.kernel.positions import position_squares
from lastiterate.theory import full_batch as shifted_interpolation
from lastiterate.theory.modulus import Modulus, taut_path
from lastiterate.theory.run import Run
from lastiterate.verifier.document import fingerprint

ROUGH = [Loss.unknown(), Loss.holder(constant=50.0, exponent=0.1), Loss(smoothness=math.inf)]


def torn(training):
    """x -> x + eta K sign(x - middle), one record pushing up or down: bounded gradients alone."""
    K, n, D = training.gradient_norm, training.records, training.diameter
    others = K * (n - 1) / n

    def steps(sign):
        return [
            lambda x, eta=eta: x + eta * (others * np.sign(x - D / 2) + sign * K / n)
            for eta in training.step_sizes
        ]

    return steps(1.0), steps(-1.0)


def truth(training, epsilon):
    noises = training.noises.tolist()
    start = training.diameter / 2
    return scheduled_truth_from_below(torn(training), training.diameter, noises, start, epsilon)


def long_run(steps=2100, **changes):
    fields = dict(records=10_000, noise=10.0, gradient_norm=1.0, diameter=1.0)
    sizes = [500_000 / k for k in range(1, steps + 1)]
    return Training(
        steps=steps,
        step_size=sizes,
        batches=FullBatch(),
        **{"adjacency": "replace", **fields, **changes},
    )


def check_torn(run, loss):
    guarantee = account(run, loss)
    assert truth(run, 5.0) > 0.99
    assert guarantee.delta(5.0) > 0.99
    assert guarantee.epsilon(1e-5) > 100


@pytest.mark.parametrize("loss", ROUGH)
def test_steps_that_are_not_looked_at_do_not_bring_two_runs_together(loss, monkeypatch):
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 5)
    check_torn(long_run(steps=105), loss)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ROUGH)
def test_two_thousand_one_hundred_steps(loss):
    check_torn(long_run(), loss)


def test_calibrated_noise_hides_what_the_skipped_steps_did(monkeypatch):
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 5)
    run = long_run(steps=40)
    found = calibrate(run, Loss.unknown(), epsilon=4.5, delta=1e-5, find="noise")
    assert truth(found, 4.5) <= 1e-5


def random_description(rng):
    steps = int(rng.integers(6, 12))
    sizes = rng.uniform(0.02, 1.0, steps) * 10.0 ** rng.uniform(-1, 1.5)
    noise = rng.uniform(0.3, 3.0, steps) * 10.0 ** rng.uniform(-1, 1)
    return Training(
        records=int(rng.integers(2, 30)),
        steps=steps,
        step_size=np.sort(sizes)[::-1] if rng.random() < 0.5 else sizes,
        noise=noise if rng.random() < 0.5 else float(noise[0]),
        gradient_norm=float(rng.uniform(0.2, 2.0)),
        diameter=float(rng.uniform(0.5, 2.0)),
        batches=FullBatch(),
        adjacency="replace",
    )


def check_cut(seed, count, monkeypatch):
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 5)
    close = 0
    for _ in range(count):
        run = random_description(rng)
        path, skipped = shifted_interpolation.modulus_path(Run(run, Loss.unknown()), 0, run.steps)
        assert skipped == run.steps - 5
        assert path.start >= run.diameter
        for epsilon in (0.1, 1.0, 4.0):
            bound = account(run, Loss.unknown()).delta(epsilon)
            exact = truth(run, epsilon)
            assert bound >= exact * (1 - 1e-9), (run, epsilon)
            close += exact > bound / 2 > 1e-6
    return close


def test_a_cut_search_is_above_exact_laws(monkeypatch):
    assert check_cut(1, 12, monkeypatch) > 0  # and not by being far off


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(8))
def test_many_cut_searches_are_above_exact_laws(seed, monkeypatch):
    check_cut(100 + seed, 150, monkeypatch)


def test_without_a_common_start_the_first_step_tears_the_whole_domain():
    """One step left: g(D) + s must be paid at once, whatever the impulse is."""
    shape = Modulus(c=1.0, h=7.0, p=0.0, e=1.0, cap=7.0)
    path = taut_path(shape, [0.25], 2.0, diameter=3.0, common_start=False)
    assert path.start == 3.0
    assert path.mu >= (3.0 + 7.0 + 0.25) / 2.0
    assert path.mu == pytest.approx((3.0 + 7.0 + 0.25) / 2.0, rel=1e-9)
    assert taut_path(shape, [0.25], 2.0, diameter=3.0).mu == pytest.approx(0.125, rel=1e-9)


@pytest.mark.parametrize("loss", ROUGH)
def test_the_certificate_of_a_cut_search_verifies(loss, monkeypatch):
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 5)
    run = Training(
        records=2,
        steps=30,
        step_size=0.5,
        noise=4.0,
        gradient_norm=1.0,
        diameter=0.05,
        batches=FullBatch(),
        adjacency="replace",
    )
    certificate = certify(run, loss, delta=1e-5)
    (family,) = certificate.content["witness"]["families"]
    assert family["moduli"] == [True]
    assert family["paths"]["steps"][0] >= 25
    assert family["paths"]["z"][0] == run.diameter
    assert verify(certificate).epsilon == certificate.epsilon
    assert certificate.epsilon == pytest.approx(account(run, loss).epsilon(1e-5), rel=1e-3)


def test_the_verifier_starts_from_the_diameter_after_skipped_steps():
    """A witness may say what it likes about its start: the check puts it at the diameter."""
    run = Training(
        records=40,
        steps=30,
        step_size=0.5,
        noise=0.4,
        gradient_norm=1.0,
        diameter=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    described_run = described(run, Loss.unknown())

    def proved(first, z):
        steps = list(range(first, first + len(z)))
        paths = {"lengths": [len(z)], "steps": steps, "z": z}
        witness = {"families": [{"moduli": [True], "paths": paths}]}
        with precision():
            [square] = position_squares(described_run, witness)
            return float(square.sqrt().upper())

    impulse = 2 * 0.5 * 1.0 / 40
    assert proved(0, [0.0] * 31) == pytest.approx(impulse / 0.4 * 30**0.5)
    # The last step alone: two runs at opposite ends, torn by 2 eta K, moved by the record. That
    # costs more than to publish all iterates.
    assert proved(29, [2.0, 0.0]) == pytest.approx(impulse / 0.4 * 30**0.5)
    for first, z in ((29, [0.0, 0.0]), (25, [1.9] + [0.0] * 5), (30, [2.0]), (29, [2.0, 0.1])):
        with pytest.raises(KernelError):
            proved(first, z)


def test_a_tampered_start_changes_nothing(monkeypatch):
    monkeypatch.setattr(shifted_interpolation, "SEARCHED", 5)
    run = Training(
        records=2,
        steps=30,
        step_size=0.5,
        noise=4.0,
        gradient_norm=1.0,
        diameter=0.05,
        batches=FullBatch(),
        adjacency="replace",
    )
    certificate = certify(run, Loss.unknown(), delta=1e-5)
    (family,) = certificate.content["witness"]["families"]
    paths = {**family["paths"], "z": [0.0] * 6}
    content = {**certificate.content, "witness": {"families": [{**family, "paths": paths}]}}
    content["sha256"] = fingerprint(content)
    with pytest.raises(ClaimError):
        verify(Certificate(content))
