"""The kernel's sentences are those of the library, and "proved" is derived again."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path

import pytest
from described_runs import RUNS, SLOW_RUNS

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    RandomAllocation,
    Shuffled,
    Training,
)
from lastiterate.description.assumptions import assumptions, not_covered, provenances
from lastiterate.description.loss import NAMES, Origin
from lastiterate.description.proximal import L1, Box, GroupLasso, Simplex
from lastiterate.kernel.assumptions import constants, sentences
from lastiterate.kernel.balls import KernelError, precision
from lastiterate.kernel.run import read_run
from lastiterate.verifier.witness import pack
from lastiterate.verifier.words import THEOREMS, release_model

KEPT = sorted((Path(__file__).parents[1] / "certificate" / "kept").glob("*.json"))


def content(training, loss, releases=(), unit=None):
    unit = unit or PrivacyUnit()
    return json.loads(
        json.dumps(
            {
                "training": pack(training.to_dict()),
                "loss": {**pack(loss.to_dict()), "provenance": loss.provenance},
                "releases": list(releases),
                **({} if unit.default else {"unit": pack(unit.to_dict())}),
            }
        )
    )


def check(training, loss, releases=(), unit=None, head=None):
    link = None if head is None else {"former": head[0], "start": head[1]}
    with precision():
        run = read_run(content(training, loss, releases, unit))
        for hidden in (False, True):
            found = sentences(run, hidden, link)
            own = assumptions(training, loss, hidden_state=hidden, unit=unit, head=head)
            assert found["assumptions"] == [str(each) for each in own]
            assert found["provenance"] == provenances(training, loss, hidden_state=hidden)
            assert found["not_covered"] == list(not_covered(training))
            assert found["release"] == release_model(training, tuple(releases))
            assert found["adjacency"] == training.adjacency


@pytest.mark.parametrize("name", RUNS | SLOW_RUNS)
def test_the_sentences_of_described_runs(name):
    training, loss, releases = (RUNS | SLOW_RUNS)[name]
    check(training, loss, releases)


def small(**changes):
    fields = {"records": 20, "steps": 8, "step_size": 0.1, "noise": 0.3, "gradient_norm": 1.0}
    return Training(**{**fields, "batches": FullBatch(), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"arithmetic": arithmetic, "batches": batches, "adjacency": adjacency}
        for arithmetic, batches, adjacency in itertools.product(
            ("exact", Arithmetic(error=1e-5), Arithmetic(2.0**-20, coordinates=3)),
            (FullBatch(), Cyclic(5), Shuffled(5), Poisson(0.2), RandomAllocation(5)),
            ("zero-out", "replace"),
        )
    ]
    + [
        {"proximal": proximal}
        for proximal in (
            *(L1(0.1), L1(0.2, 3), GroupLasso(0.1), GroupLasso(1.0, [2, 3], 1)),
            *(Box(-1.0, 2.0), Simplex(), Simplex(3.5)),
        )
    ]
    + [
        {"clipping": "gradient"},
        {"clipping": "margin"},
        {"sensitivity": 0.3},
        {"sensitivity": 0.3, "gradient_norm": math.inf},
        {"diameter": 1234567.5},
        {"diameter": 0.0},
        {"correlation": [1.0, -0.5], "batches": Cyclic(5)},
    ],
    ids=str,
)
def test_the_sentences_of_every_feature(changes):
    losses = (
        *(Loss(smoothness=1 / 3, strong_convexity=0.1), Loss(smoothness=1.0, regularization=0.01)),
        *(Loss.unknown(), Loss.nonconvex(smoothness=2.5), Loss.holder(constant=1.5, exponent=0.5)),
        Loss(0.25, provenance="proved", origin=Origin("logistic", 1.0)),
    )
    for loss in losses:
        check(small(**changes), loss)


@pytest.mark.parametrize(
    "unit",
    [
        PrivacyUnit(records=3),
        PrivacyUnit(records=4, per_batch=1),
        PrivacyUnit(records=4, per_batch=2),
        PrivacyUnit(first_step=2),
        PrivacyUnit(last_step=5),
        PrivacyUnit(first_step=2, last_step=5, gradient_norm=0.123456789),
    ],
    ids=str,
)
@pytest.mark.parametrize("batches", [Cyclic(5), Shuffled(5)])
def test_the_sentences_of_units_and_links(unit, batches):
    for head in (None, ("a" * 64, None), ("a" * 64, "b" * 64)):
        check(small(batches=batches), Loss(smoothness=1.0), unit=unit, head=head)


def origins():
    for name in NAMES:
        for bound, limit, classes, start in itertools.product(
            (0.0, 0.7, 3.0), (None, 0.3, 0.8, 5.0), (None, 2, 7), (None, 0.2)
        ):
            try:
                yield Origin(name, bound, limit, classes, start)
            except ValueError:
                continue


def test_constants_of_every_origin_are_derived_alike():
    found = list(origins())
    assert {each.name for each in found} == set(NAMES)
    for origin in found:
        smoothness, square = constants(pack(origin.to_dict()))
        assert smoothness == origin.constants.smoothness
        assert square == origin.constants.squared_norm


@pytest.mark.parametrize("diameter", [math.inf, 1.0, 1.6, 1.7])
def test_sentences_of_proved_losses(diameter):
    for origin in origins():
        for factor in (Fraction(1), Fraction(1, 2)):
            smooth = float(origin.constants.smoothness * factor) * (1 + 1e-12)
            norm = float(factor * origin.constants.squared_norm) ** 0.5 * (1 + 1e-12) or 1.0
            loss = Loss(smooth, provenance="proved", origin=origin)
            check(small(gradient_norm=norm, diameter=diameter), loss)


@pytest.mark.parametrize(
    "changes",
    [
        {"smoothness": 0.24},
        {"origin": None},
        {"origin": {"name": "logistic", "feature_bound": 1.1}},
        {"origin": {"name": "logistic", "feature_bound": 1.0, "limit": 1.0}},
        {"origin": {"name": "cubic", "feature_bound": 1.0}},
        {"origin": {"name": "huber", "feature_bound": 1.0}},
        {"origin": {"name": "softmax", "feature_bound": 0.1}},
        {"origin": {"name": "logistic", "feature_bound": -1.0}},
        {"origin": {"name": "logistic", "feature_bound": math.nan}},
        {"origin": "logistic"},
        {"strong_convexity": 0.1},
        {"provenance": "declared"},
        {"provenance": "estimated"},
    ],
    ids=str,
)
def test_a_word_alone_proves_nothing(changes):
    loss = Loss(0.25, provenance="proved", origin=Origin("logistic", 1.0))
    table = content(small(), loss)
    table["loss"] = {name: x for name, x in {**table["loss"], **changes}.items() if x is not None}
    with precision(), pytest.raises(KernelError):
        sentences(read_run(table), hidden_state=True)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_the_sentences_of_kept_certificates(path):
    whole = json.loads(path.read_text(encoding="ascii"))
    for part in whole.get("parts", [whole]):
        if part["kind"] == "run":
            with precision():
                hidden = THEOREMS[part["theorem"]["key"]].hidden_state
                for field, value in sentences(read_run(part), hidden, part.get("link")).items():
                    assert part[field] == value
