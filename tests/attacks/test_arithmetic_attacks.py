"""Two attacks on floats that refuted certified claims, and a generic one, against every release.

The old paths are kept here, a few lines each: a value plus noise in doubles, and a running sum in
float32. On them the attacks must win; on what the library releases they must find nothing.

Every coordinate (or chain, or call) is a release of its own: one record moves it by ``SHIFT``, and
its noise is that of a (1, 1e-5) claim.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from low_bits import refuted_delta

from lastiterate import FullBatch, Training
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import halved
from lastiterate.federated.aggregation import next_model
from lastiterate.federated.federation import Federation
from lastiterate.losses import Logistic
from lastiterate.models import PrivateLogisticRegression, PrivateStandardScaler
from lastiterate.models.tune import noisy_score, score_grid, score_sensitivity
from lastiterate.noise import SecureSource, SeededSource
from lastiterate.sampling import sgld
from lastiterate.train import noisy_descent

EPSILON, DELTA = 1.0, 1e-5
MU = halved(lambda mu: gaussian.epsilon(mu, DELTA) <= EPSILON, good=0.1, bad=1.0, rounds=50)
SHIFT = 0.7  # what one record moves a release by
NOISE = SHIFT / MU
RELEASES = 200_000
MANY = 1_000_000


def in_doubles(shift: float, noise: float, releases: int):
    """The old path: a value plus noise, in double precision, in the worlds with and without it."""
    source = SecureSource()
    return [value + noise * source.normal(releases) for value in (shift, 0.0)]


def descent(releases: int, start: float = 0.0):
    """One step of noisy descent with a gradient of this size in every coordinate."""
    run = Training(
        records=1,
        steps=1,
        step_size=1.0,
        noise=NOISE,
        gradient_norm=SHIFT * math.sqrt(releases),
        batches=FullBatch(),
        adjacency="zero-out",
    )
    return [
        noisy_descent(
            lambda _, rows, value=value: np.full((len(rows), releases), value),
            None,
            run,
            start=np.full(releases, start),
        ).parameters
        for value in (-SHIFT, 0.0)
    ]


def several_steps(releases: int):
    """Three hidden steps, the record in all of them."""
    run = Training(
        records=1,
        steps=3,
        step_size=1 / 3,
        noise=NOISE / math.sqrt(3),
        gradient_norm=SHIFT * math.sqrt(releases),
        batches=FullBatch(),
        adjacency="zero-out",
    )
    return [
        noisy_descent(
            lambda _, rows, value=value: np.full((len(rows), releases), value),
            None,
            run,
            start=np.zeros(releases),
        ).parameters
        for value in (-SHIFT, 0.0)
    ]


def linear(releases: int):
    """One step of logistic regression: at 0 a record's gradient is half of its row."""
    run = Training(
        records=1,
        steps=1,
        step_size=1.0,
        noise=NOISE,
        gradient_norm=2 * SHIFT * math.sqrt(releases) * 1.001,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    rows = [np.full((1, releases), size) for size in (2 * SHIFT, 0.0)]
    return [noisy_descent(Logistic(), row, run, labels=[1.0]).parameters for row in rows]


def estimator(releases: int):
    """`PrivateLogisticRegression` with one step; an epsilon that leaves MU to every coefficient."""
    releases = min(releases, 40_000)
    settings = {
        "epsilon": gaussian.epsilon(MU * math.sqrt(releases), 1e-6),
        "delta": 1e-6,
        "feature_bound": math.sqrt(releases),
        "steps": 1,
        "fit_intercept": False,
        "classes": [0, 1],
        "final_noise": None,
    }
    worlds = []
    for size in (1.0, 0.0):
        model = PrivateLogisticRegression(**settings)
        model.fit(np.full((2, releases), size) * [[1.0], [0.0]], np.array([1, 0]))
        assert model.certificate_ is not None
        worlds.append(model.coef_.ravel())
    unit = float(model.training_.step_size) / 4  # two records; the cap halves a slope of 1/2
    return [*worlds, unit]


def scaler(releases: int):
    """`PrivateStandardScaler`; an epsilon that leaves MU to every column's mean."""
    releases, worlds = min(releases, 40_000), []
    for first in (1.0, 0.0):
        fitted = PrivateStandardScaler(
            gaussian.epsilon(MU * math.sqrt(5 / 4 * releases), DELTA), DELTA
        )
        fitted.fit(np.outer(np.arange(10) == 0, np.full(releases, first)))
        assert fitted.certificate_ is not None
        worlds.append(fitted.mean_)
    return [*worlds, 0.1]


def federated(releases: int):
    """One round with one client; its update is SHIFT in every parameter."""
    clip = SHIFT * math.sqrt(releases) * 1.000001
    run = Federation(
        clients=1,
        sampled=1,
        rounds=1,
        clip=clip,
        noise_multiplier=NOISE / clip,
        adjacency="zero-out",
    )
    model, source = {"w": np.zeros(releases)}, SecureSource()
    return [
        next_model(model, [np.full(releases, value)], run, source)["w"] for value in (SHIFT, 0.0)
    ]


def sampler(releases: int):
    """One step of as many chains; the gradient of the record is constant."""
    eta = (2 * SHIFT / NOISE) ** -2 * 4  # eta/2·clip over sqrt(eta) is MU for this clip
    clip = 2 * MU / math.sqrt(eta)
    worlds = [
        sgld(
            lambda theta, X, y: np.broadcast_to(y[:, None], (len(theta), 1, 1)) * clip,
            np.zeros((1, 1)),
            np.array([label]),
            np.zeros((releases, 1)),
            steps=1,
            step_size=eta,
            clip=clip,
            prior_precision=0.0,
        )
        for label in (1.0, 0.0)
    ]
    assert not worlds[0].experiment
    return [*(world.draws.ravel() for world in worlds), eta / 2 * clip]


def tuning_score(releases: int):
    """The noisy score of a trial, one record right or wrong."""
    releases, source = releases // 20, SecureSource()
    worlds = [
        score_grid(3, MU)
        * np.array([noisy_score(s, 3, MU, source) for _ in range(releases)], float)
        for s in (1 / 3, 0.0)
    ]
    return [*worlds, score_sensitivity(3)]


RELEASED = [
    descent,
    lambda releases: descent(releases, start=12.3),
    several_steps,
    linear,
    estimator,
    scaler,
    federated,
    sampler,
    tuning_score,
]
NAMES = [
    "one step",
    "from another start",
    "three steps",
    "logistic",
    "estimator",
    "scaler",
    "federated",
    "sampler",
    "score",
]


def attack(release, releases: int) -> tuple[float, float]:
    """The delta that the low bits refute: of the library's releases, and of the old path's."""
    one, other, *rest = release(releases)
    unit = rest[0] if rest else SHIFT
    old = in_doubles(unit, unit / MU, len(one))
    return refuted_delta(one, other, EPSILON, unit), refuted_delta(*old, EPSILON, unit)


@pytest.mark.parametrize("release", RELEASED, ids=NAMES)
def test_low_bits_tell_nothing(release) -> None:
    ours, old = attack(release, RELEASES)
    assert old > 100 * DELTA  # the attack has power: as many releases of the old path are refuted
    assert ours == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASED, ids=NAMES)
def test_low_bits_tell_nothing_in_a_million_releases(release) -> None:
    ours, old = attack(release, MANY)
    assert old > 1000 * DELTA
    assert ours == 0.0


def off_the_shift(releases):
    """The event of the precision attack: small, and not a multiple of the last bit of the shift."""
    ulp = math.ulp(SHIFT) / 4  # a sum with |noise| below twice the shift is a multiple of this
    small = np.abs(releases) < SHIFT / 8
    return small & (np.rint(releases / ulp) * ulp != releases)


def test_the_precision_attack_refutes_doubles_and_not_the_grid() -> None:
    """Where noise cancels the value, what is left is a multiple of the value's last bit."""
    with_record, without = map(off_the_shift, in_doubles(SHIFT, NOISE, MANY))
    assert not with_record.any()
    assert without.mean() > 1000 * DELTA  # certified 1e-5
    for release in (descent, federated):
        one, other = map(off_the_shift, release(MANY)[:2])
        assert one.mean() <= math.e * other.mean() + 1e-3
        assert other.mean() <= math.e * one.mean() + 1e-3
        assert not one.any()  # not one release has bits below the grid
        assert not other.any()


# --- sums ---------------------------------------------------------------------------------------

LARGEST = 4096.0  # no record's value is larger


def doubling(stages: int):
    """Records whose float32 running sum doubles the lead of the first one at every binade.

    The sum with the first record is at 2^(24+j), the other one just below it: values a little above
    half of the spacing there are rounded up in the one world and down in the other.
    """
    values, missing = [np.array([LARGEST])], 2.0**24 / LARGEST - 1
    for j in range(stages):
        values += [np.full(int(missing), LARGEST), np.full(4096, 2.0**j * (1 + 2.0**-10))]
        missing = (2.0 ** (24 + j) - 2 ** (j + 1) * LARGEST) / LARGEST
    one = np.concatenate(values).astype(np.float32)
    other = one.copy()
    other[0] = 0.0
    return one, other


def test_the_summation_attack_moves_float32_by_32_records() -> None:
    one, other = doubling(5)
    assert max(one.max(), other.max()) == LARGEST
    lead = float(np.cumsum(one)[-1]) - float(np.cumsum(other)[-1])
    assert lead == 32 * LARGEST
    noise = LARGEST / MU
    source = SecureSource()
    half = float(np.cumsum(other)[-1]) + lead / 2
    above = [float(np.cumsum(w)[-1]) + noise * source.normal(400) > half for w in (one, other)]
    assert above[0].mean() > math.e * above[1].mean() + 0.5  # (1, 1e-5) was certified


@pytest.mark.parametrize("seed", [1, 2])
def test_the_summation_attack_finds_no_more_than_one_record(seed) -> None:
    """With the same noise, two releases differ by one record and what rounding is charged."""
    worlds = doubling(5)
    run = Training(
        records=len(worlds[0]),
        steps=1,
        step_size=1.0,
        noise=LARGEST / MU / len(worlds[0]),
        gradient_norm=LARGEST,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    found = [
        noisy_descent(
            lambda _, rows, world=world: -world[rows][:, None],
            None,
            run,
            start=np.zeros(1),
            noise=SeededSource(seed),
        )
        for world in worlds
    ]
    moved = abs(float(found[0].parameters[0]) - float(found[1].parameters[0]))
    charged = found[0].training
    assert moved <= charged.impulse * charged.step_size + charged.grid_rounding
    assert 0.999 * LARGEST / len(worlds[0]) <= moved <= 1.001 * LARGEST / len(worlds[0])
