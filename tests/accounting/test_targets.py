"""What `calibrate` returns was accounted, and meets the target: every quantity, every scheme.

Searches that are cut (the most steps, records and epochs that are looked at, bisections that stop)
may end in a refusal, never in a description whose epsilon is above the target.
"""

from __future__ import annotations

import math

import numpy as np
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
    account,
    calibrate,
)
from lastiterate.accounting import calibration, optimal_schedule, plateau
from lastiterate.errors import LastIterateError

SCHEMES = {
    "full": FullBatch(),
    "cyclic": Cyclic(4),
    "shuffled": Shuffled(4),
    "reshuffled": Reshuffled(4),
    "poisson": Poisson(0.2),
    "without-replacement": WithoutReplacement(4),
}
FINDS = ("noise", "steps", "records", "regularization")
DELTA = 1e-5


def random_problem(rng, batches, bounded):
    """A short run, a loss and a target, most of them reachable."""
    steps = int(rng.integers(1, 7))
    size = float(10 ** rng.uniform(-1.5, 0.3))
    noise = float(10 ** rng.uniform(-2, 1))
    training = Training(
        records=20,
        steps=steps,
        step_size=size if rng.random() < 0.7 else (size * rng.uniform(0.2, 1, steps)).tolist(),
        noise=noise if rng.random() < 0.7 else (noise * rng.uniform(0.3, 1, steps)).tolist(),
        gradient_norm=float(10 ** rng.uniform(-1, 1)),
        batches=batches,
        adjacency=str(rng.choice(["replace", "zero-out"])),
        diameter=float(10 ** rng.uniform(-1, 1)) if bounded and rng.random() < 0.4 else math.inf,
        clipping=str(rng.choice(["none", "gradient"])),
    )
    losses = [Loss(smoothness=float(10 ** rng.uniform(-1, 1)), regularization=0.1), Loss.unknown()]
    losses.append(Loss.nonconvex(smoothness=float(10 ** rng.uniform(-1, 1))))
    return training, losses[rng.integers(3)], float(10 ** rng.uniform(-1.5, 1.0))


def check_targets(seed, scheme, find, count, *, bounded=False):
    """How many descriptions were found; all of them meet their target."""
    rng = np.random.default_rng(seed)
    found = 0
    for _ in range(count):
        training, loss, target = random_problem(rng, SCHEMES[scheme], bounded)
        try:
            answer = calibrate(training, loss, target, DELTA, find)
        except LastIterateError:
            continue
        chosen, known = answer if find == "regularization" else (answer, loss)
        reported = account(chosen, known).epsilon(DELTA)
        assert reported <= target, (training, loss, target, find, chosen)
        found += 1
    return found


@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("scheme", ["full", "cyclic"])
def test_what_is_found_meets_its_target(scheme, find):
    assert check_targets(1, scheme, find, 4) > 0


@pytest.mark.slow
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("scheme", ["shuffled", "reshuffled", "poisson", "without-replacement"])
def test_what_is_found_for_hidden_batches_meets_its_target(scheme, find):
    check_targets(2, scheme, find, 3)


@pytest.mark.fuzz
@pytest.mark.parametrize("find", FINDS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_many_targets(scheme, find):
    check_targets(3, scheme, find, 12, bounded=True)


def test_cut_searches_refuse_or_meet_the_target(monkeypatch):
    """With next to nothing to search through, the answer is still one that was accounted."""
    for name, value in (("_MOST_STEPS", 3), ("_MOST_EPOCHS", 2), ("_MOST_LISTED", 3)):
        monkeypatch.setattr(calibration, name, value)
    monkeypatch.setattr(calibration, "_MOST_RECORDS", 50)
    monkeypatch.setattr(calibration, "_MOST_POSITIONS", 6)
    found = sum(
        check_targets(seed, scheme, find, 5)
        for seed in (4, 5)
        for scheme in ("full", "cyclic", "shuffled")
        for find in ("steps", "records")
    )
    assert found > 5


def test_bursts_and_schedules_meet_their_target_by_the_accountant():
    loss = Loss(smoothness=1.0, regularization=0.1)
    fields = dict(records=20, steps=12, step_size=0.2, noise=0.1, gradient_norm=1.0)
    ordered, full = (
        Training(**({"adjacency": "replace"} | fields), batches=b)
        for b in (Shuffled(4), FullBatch())
    )
    burst = calibrate(ordered, loss, 0.5, DELTA, final_noise="best")
    assert burst.final_noise > 1
    for chosen in (burst, optimal_schedule(full, loss, 0.5, DELTA)):
        assert account(chosen, loss).epsilon(DELTA) <= 0.5


def test_from_the_plateau_on_epsilon_does_not_pass_what_is_said():
    """`plateau` is a statement about steps; the epsilon of a longer run is accounted anew."""
    loss = Loss(smoothness=1.0, regularization=0.2)
    run = Training(
        records=20,
        steps=10,
        step_size=0.5,
        noise=0.2,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    steps = plateau(run, loss, DELTA)
    assert steps is not None
    there, beyond = (
        account(run.replace(steps=n), loss).epsilon(DELTA) for n in (steps, 1000 * steps)
    )
    assert there <= beyond <= there * 1.02
