"""Stretches finer than the releases: never below the truth, and hiding more never costs more."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from sampled_laws import without_replacement_law

from lastiterate import (
    Certificate,
    CertificateError,
    Loss,
    Poisson,
    Training,
    WithoutReplacement,
    certify,
    verify,
)
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.theory import poisson, without_replacement
from lastiterate.theory.dynamics import Steps
from lastiterate.verifier.document import fingerprint

NOTHING = LossDistribution.nothing()


def composed(parts):
    return NOTHING.compose(*(part.found.curve for part in parts))


def random_steps(rng, count):
    c, s, nu = (rng.uniform(low, 1.0, count) for low in (0.7, 0.1, 0.3))
    return Steps(c, s, nu * rng.choice([0.5, 1.0, 2.0]), count, gap=2 * s)


def test_never_below_the_exact_law():
    """Linear updates, every batch listed; a step with little noise, and then two with much."""
    rng, cut = np.random.default_rng(31), 0
    for _ in range(8):
        records, steps = 3, 4
        size, s = int(rng.integers(1, 3)), rng.uniform(0.2, 2.0)
        c, nu = rng.uniform(0.5, 1.0, steps), np.array([2.0, 0.4, 3.0, 3.0]) * rng.uniform(0.5, 1)
        run, spans = Steps(c, s, nu, steps), [(0, steps)]
        pair_of = without_replacement.replaced_pair(size / records)
        parts = without_replacement.best_segments(pair_of, run, spans, 1e-3)
        cut += len(parts) > 1 and any(part.found.pays is not None for part in parts)
        curve = composed(parts)
        pulls = rng.choice([0.0, s * size], records - 1)
        shrink = rng.choice([1.0, rng.uniform()], steps) * rng.choice([-1, 1], steps)
        law = without_replacement_law(c * shrink, (0.0, s * size), pulls, nu, size)
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            (truth,) = law.deltas([epsilon])
            assert truth < 1e-13 or curve.delta(epsilon) >= truth, (c, s, nu, size, epsilon)
    assert cut


@pytest.mark.parametrize("number", [0, 1])
def test_a_release_on_the_way_never_helps(number):
    check_releases(np.random.default_rng(number), number % 2)


@pytest.mark.fuzz
@pytest.mark.parametrize("number", range(2, 30))
def test_a_release_on_the_way_never_helps_many(number):
    check_releases(np.random.default_rng(number), number % 2)


def check_releases(rng, kind):
    count, rate = int(rng.integers(4, 8)), rng.uniform(0.05, 0.5)
    run, delta = random_steps(rng, count), float(rng.choice([1e-6, 1e-2]))
    pair_of = (without_replacement.replaced_pair, poisson.opposed_pair)[kind](rate)
    one = composed(without_replacement.best_segments(pair_of, run, [(0, count)], delta))
    hidden = one.epsilon(delta)
    assert hidden <= without_replacement.best(pair_of, run, delta).curve.epsilon(delta) * (1 + 1e-9)
    for place in {count // 2, count - 1}:
        spans = [(0, place), (place, count)]
        known = composed(without_replacement.best_segments(pair_of, run, spans, delta)).epsilon(
            delta
        )
        assert hidden <= known * (1 + 1e-4), (run.c, run.s, run.nu, rate, delta, place)


def test_every_release_is_the_end_of_a_stretch():
    run, pair_of = random_steps(np.random.default_rng(3), 6), without_replacement.replaced_pair(0.3)
    parts = without_replacement.best_segments(pair_of, run, [(0, 2), (2, 3), (3, 6)], 1e-5)
    ends = [part.last for part in parts]
    assert {2, 3, 6} <= set(ends)
    assert [part.first for part in parts] == [0, *ends[:-1]]


def test_odd_runs():
    """No noise, no record, one step, steps that forget all, long runs: an answer, and no error."""
    pair_of = without_replacement.replaced_pair(0.3)
    for c, s, nu, count in (
        (0.9, 1.0, 0.0, 3),
        (0.9, 0.0, 1.0, 3),
        (0.9, 1.0, 1.0, 1),
        (math.inf, 1.0, 1.0, 3),
        (0.0, [1.0, 2.0, 3.0], 1.0, 3),
        (0.9, [1e-100, 1e100, 1.0], 1.0, 3),
        (0.9, 1.0, 1.0, 200),
    ):
        run = Steps(c, s, nu, count)
        parts = without_replacement.best_segments(pair_of, run, [(0, count)], 1e-5)
        least = without_replacement.best(pair_of, run, 1e-5).curve.epsilon(1e-5)
        assert composed(parts).epsilon(1e-5) <= least * (1 + 1e-9)
    assert without_replacement.best_segments(pair_of, Steps(0.9, 1.0, 1.0, 0), [], 1e-5) == []


# --- certificates --------------------------------------------------------------------------------

SIZES, NOISES = [0.02, 0.5, 0.05, 0.05, 0.05], [0.1, 0.1, 0.4, 0.4, 0.4]


def certificate(batches, releases=()):
    run = Training(
        records=12,
        steps=5,
        step_size=SIZES,
        noise=NOISES,
        gradient_norm=1.0,
        batches=batches,
        adjacency="replace",
    )
    loss = Loss(smoothness=0.5, strong_convexity=0.2, regularization=0.3)
    return certify(run, loss, 1e-5, releases=releases)


@pytest.fixture(scope="module")
def finer():
    return certificate(WithoutReplacement(4))


def spans_of(content):
    return [(part["first"], part["last"]) for part in content["witness"]["segments"]]


def changed(content, change):
    """The stretches after a change, sealed by somebody who can compute a hash."""
    witness = json.loads(json.dumps(content["witness"]))
    change(witness["segments"])
    content = {**content, "witness": witness}
    return Certificate.from_json(json.dumps({**content, "sha256": fingerprint(content)}))


@pytest.mark.parametrize("batches", [WithoutReplacement(4), Poisson(0.3)])
def test_finer_stretches_are_verified(batches):
    proof = certificate(batches)
    assert len(spans_of(proof.content)) > 1
    assert verify(proof).epsilon == proof.epsilon


HOSTILE = {
    "a stretch is missing": lambda parts: parts.pop(0),
    "the end is missing": lambda parts: parts.pop(),
    "all are missing": lambda parts: parts.clear(),
    "one is said twice": lambda parts: parts.insert(0, parts[0]),
    "another order": lambda parts: parts.reverse(),
    "a gap": lambda parts: parts[1].update(first=parts[1]["first"] + 1),
    "an overlap": lambda parts: parts[1].update(first=parts[1]["first"] - 1),
    "beyond the end": lambda parts: parts[-1].update(last=6),
    "before the beginning": lambda parts: parts[0].update(first=-1),
    "an empty stretch": lambda parts: parts.insert(0, {"first": 0, "last": 0}),
    "backwards": lambda parts: parts[0].update(last=0),
    "no whole number": lambda parts: parts[0].update(first=0.0),
    "no number": lambda parts: parts[0].update(first=False),
    "nothing paid": lambda parts: [part.update(z=[0.0, 0.0]) for part in parts],
}


@pytest.mark.parametrize("change", HOSTILE)
def test_stretches_that_are_none_are_refused(finer, change):
    with pytest.raises(CertificateError):
        verify(changed(finer.content, HOSTILE[change]))


def test_a_release_inside_a_stretch_is_refused(finer):
    """The proof for the last iterate alone says nothing about one more."""
    inside = next(last - 1 for first, last in spans_of(finer.content) if last - first > 1)
    proof = certificate(WithoutReplacement(4), releases=(inside,))
    assert verify(proof).epsilon == proof.epsilon
    content = {**proof.content, "witness": finer.content["witness"], "epsilon": finer.epsilon}
    forged = json.dumps({**content, "sha256": fingerprint(content)})
    with pytest.raises(CertificateError):
        verify(Certificate.from_json(forged))
