"""Every public accounting function on every kind of description: a result, or a clear refusal."""

from __future__ import annotations

import itertools
import math
import re

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    TailAverage,
    TargetError,
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
    calibrate,
    certify,
    compare,
    individual_epsilons,
    plateau,
)

SCHEMES = [FullBatch(), Cyclic(3), Shuffled(3), Reshuffled(3), Poisson(0.25), WithoutReplacement(3)]
SCHEDULES = {
    "constant": {},
    "step sizes": {"step_size": [0.1] * 6 + [0.05] * 6},
    "noises": {"noise": [0.3] * 11 + [0.6]},
    "equalised": {"schedule": "equalised"},
    "final noise": {"final_noise": 2.0},
    "no step": {"steps": 0},
}
AVERAGES = ["last", TailAverage(2), TailAverage(10)]
RELEASES = [(), (4,), (1, 5)]
UNITS = {
    "record": None,
    "records": PrivacyUnit(records=2),
    "apart": PrivacyUnit(records=2, per_batch=1),
    "late": PrivacyUnit(first_step=2),
    "early": PrivacyUnit(last_step=8),
    "short": PrivacyUnit(gradient_norm=0.5),
}
LOSSES = [Loss(smoothness=1.0, regularization=0.1), Loss.unknown()]
# What to do instead, in the words of the messages.
REMEDY = re.compile(
    r"`compare` says|[Cc]alibrate|Describe|Give|Take|Choose|give|take|describe|needs|without them"
)

ASKED = {
    "account": lambda run, loss, releases, unit: _numbers(_account(run, loss, releases, unit)),
    "compare": lambda run, loss, releases, unit: (
        [row.epsilon for row in compare(run, loss, releases=releases, unit=unit)]
    ),
    "individual_epsilons": lambda run, loss, releases, unit: (
        [row.epsilon for row in individual_epsilons(_account(run, loss, releases, unit))]
    ),
    "words": lambda run, loss, releases, unit: [len(str(_account(run, loss, releases, unit)))],
    "certify": lambda run, loss, releases, unit: (
        [certify(run, loss, 1e-5, releases=releases, unit=unit).epsilon]
    ),
    "plateau": lambda run, loss, releases, unit: [plateau(run, loss, 1e-5) or 0.0],
    **{
        f"calibrate {find}": lambda run, loss, releases, unit, find=find: _calibrated(
            run, loss, find, unit
        )
        for find in ("noise", "steps", "records", "regularization")
    },
}


def _account(run, loss, releases, unit):
    return account(run, loss, releases=releases, unit=unit)


def _numbers(guarantee):
    return [
        guarantee.epsilon(1e-5),
        guarantee.delta(1.0),
        guarantee.rdp(2.0),
        guarantee.lower(1e-5),
        guarantee.epsilon_quantile(0.5),
    ]


def _calibrated(run, loss, find, unit):
    found = calibrate(run, loss, 4.0, 1e-5, find=find, unit=unit)
    run, loss = found if isinstance(found, tuple) else (found, loss)
    epsilon = account(run, loss, unit=unit).epsilon(1e-5)
    assert epsilon <= 4.0
    return [epsilon]


def descriptions(batches):
    """All combinations that are descriptions: what no run has is left out."""
    kinds = itertools.product(SCHEDULES, AVERAGES, RELEASES, UNITS, LOSSES)
    for schedule, average, releases, unit, loss in kinds:
        fields = dict(records=12, steps=12, step_size=0.1, noise=0.5, gradient_norm=1.0)
        fields |= SCHEDULES[schedule]
        in_epochs = batches.name in ("cyclic", "shuffled", "reshuffled")
        idle = fields["steps"] == 0 and (average != "last" or releases or unit in ("late", "early"))
        if idle or ((schedule == "equalised" or unit == "apart") and not in_epochs):
            continue
        for adjacency in ("replace", "zero-out"):
            run = Training(batches=batches, release=average, adjacency=adjacency, **fields)
            yield run, loss, releases, UNITS[unit]


def check_question(name, described):
    problem = None
    try:
        answers = ASKED[name](*described)
    except (UnsupportedError, TargetError) as refusal:
        answers, problem = [], str(refusal)
    assert problem is None or REMEDY.search(problem), (described, problem)
    assert all(answer >= 0 for answer in answers), described  # and not NaN


def picked(batches, count, seed):
    every = list(descriptions(batches))
    order = np.random.default_rng(seed).permutation(len(every))[:count]
    return [every[place] for place in order]


def questions():
    """Every question to every scheme; those that bound many sampled runs take a minute."""
    for batches, name in itertools.product(SCHEMES, ASKED):
        many = name.startswith("calibrate") or name in ("individual_epsilons", "certify", "plateau")
        sampled = batches.name in ("poisson", "without-replacement")
        count = 1 if sampled else 3 if many else 12
        walked = name == "plateau" and not batches.repeated  # up to a million steps
        marks = [pytest.mark.slow] if (sampled and many) or walked else []
        yield pytest.param(batches, name, count, marks=marks, id=f"{batches.name}-{name}")


@pytest.mark.parametrize(("batches", "name", "count"), questions())
def test_a_question_is_answered_or_refused_with_a_remedy(batches, name, count):
    for described in picked(batches, count, seed=1):
        check_question(name, described)


@pytest.mark.fuzz
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("batches", SCHEMES, ids=lambda b: b.name)
def test_every_question_is_answered_or_refused_with_a_remedy(batches, name):
    for described in picked(batches, 100, seed=2):
        check_question(name, described)


@pytest.mark.parametrize("field", ["step_size", "noise"])
@pytest.mark.parametrize("batches", [Cyclic(3), Shuffled(3), Reshuffled(3)], ids=lambda b: b.name)
def test_compare_takes_lists_with_releases(batches, field):
    run = Training(
        records=12,
        steps=12,
        step_size=0.1,
        noise=0.5,
        gradient_norm=1.0,
        batches=batches,
        adjacency="replace",
    )
    listed = compare(run.replace(**{field: [getattr(run, field)] * 12}), LOSSES[0], releases=(4, 8))
    plain = compare(run, LOSSES[0], releases=(4, 8))
    assert listed[0].epsilon == pytest.approx(plain[0].epsilon, rel=1e-6)


def test_compare_takes_an_equalised_epoch_behind_a_release():
    run = Training(
        records=12,
        steps=12,
        step_size=0.1,
        noise=0.5,
        gradient_norm=1.0,
        batches=Cyclic(3),
        schedule="equalised",
        adjacency="replace",
    )
    assert compare(run, LOSSES[0], releases=(11,))[0].epsilon > 0


def test_a_table_of_persons_leaves_out_who_cannot_be_in_the_run():
    apart = PrivacyUnit(records=2, per_batch=1)
    run = Training(
        records=12,
        steps=12,
        step_size=0.1,
        noise=0.5,
        gradient_norm=1.0,
        batches=Cyclic(3),
        adjacency="replace",
    )
    table = individual_epsilons(account(run, LOSSES[0], unit=apart))
    assert max(row.unit.records for row in table) == 2  # not 10: an epoch has 4 batches


@pytest.mark.parametrize("batches", SCHEMES, ids=lambda b: b.name)
def test_a_table_of_persons_of_a_run_without_steps(batches):
    table = individual_epsilons(
        account(
            Training(
                records=12,
                steps=0,
                step_size=0.1,
                noise=0.5,
                gradient_norm=1.0,
                batches=batches,
                adjacency="replace",
            ),
            LOSSES[1],
        )
    )
    assert table.rows[0].epsilon == 0.0
    assert {row.epsilon for row in table} <= {0.0, math.inf}  # infinite: no theorem covers it


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(3)], ids=lambda b: b.name)
def test_calibrated_steps_hold_the_window_of_an_average(batches):
    run = Training(
        records=12,
        steps=12,
        step_size=0.1,
        noise=2.0,
        gradient_norm=1.0,
        batches=batches,
        release=TailAverage(10),
        adjacency="replace",
    )
    found = calibrate(run, LOSSES[1], 4.0, 1e-5, find="steps")
    assert found.steps >= 10
    assert account(found, LOSSES[1]).epsilon(1e-5) <= 4.0
    with pytest.raises(TargetError, match="steps of the average"):
        calibrate(run.replace(noise=0.1), LOSSES[1], 0.1, 1e-5, find="steps")
