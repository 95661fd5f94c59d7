"""The verifier's own coupling bound: against exact laws, the fast path, and liars."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from flint import arb
from interval_laws import KINDS, maps, truth_from_below

from lastiterate import (
    CertificateError,
    FullBatch,
    Loss,
    Training,
    account,
    certify,
    compose,
    verify,
)
from lastiterate.certificate import Certificate
from lastiterate.certificate.signing import checkable
from lastiterate.theory.coupling import CouplingProblem, stopped_delta
from lastiterate.verifier.balls import gaussian_delta, precision
from lastiterate.verifier.coupled import WIDEST, Coupled, NormalTail
from lastiterate.verifier.document import fingerprint

DELTA = 1e-5
CONVEX = Loss(smoothness=1.0)


def test_normal_tails_are_enclosed():
    rng = np.random.default_rng(0)
    with precision():
        tail = NormalTail(45.0)
        x = np.concatenate([rng.uniform(0, 45, 300), rng.uniform(0, 1e-3, 20), [0.0, 1.0, 37.5]])
        low, high = tail.bounds(x)
        for point, below, above in zip(x.tolist(), low.tolist(), high.tolist(), strict=True):
            exact = (arb(point) / arb(2).sqrt()).erfc() / 2
            assert below <= exact <= above
            if point < 10:
                assert above - below <= 1e-7 * float(exact)


def test_survival_is_above_and_close():
    problem = Coupled(0.97, 0.13, 0.8, 3.0, 5, 40)
    table, h = problem._survival, problem._width
    with precision():
        for i, k in np.ndindex(table.shape):
            rho, y = arb(0.97) * i * h + arb(0.13), arb(k) * h
            root = 2 * arb(0.8) * arb(2).sqrt()
            exact = (-(rho - y) / root).erfc() / 2 - ((rho + y) / root).erfc() / 2
            assert exact <= arb(float(table[i, k])) <= exact + 1e-9


@pytest.mark.parametrize("diameter", [8.0, 16.0, 32.0])
def test_survival_of_a_distance_that_is_lost_to_rounding(diameter):
    """rho is below half a unit of y: rho + y and y - rho are both y to a double.

    P(B(rho) > y) is then about 2 rho phi(y) with nu = 1/2, while the tails that are subtracted
    were computed at one and the same point, on the table, where its error term adds nothing.
    """
    problem = Coupled(0.0, 0.9 * 2.0**-53 * diameter, 0.5, diameter, 3, 8)
    rho, y = problem.s, 8 * problem._width
    assert rho > 0
    assert y + rho == y == y - rho
    with precision(256):
        root = arb(2).sqrt()
        exact = ((arb(y) - rho) / root).erfc() / 2 - ((arb(y) + rho) / root).erfc() / 2
        assert arb(float(problem._survival[0, 8])) >= exact > 0


@pytest.mark.parametrize("kind", KINDS)
def test_never_below_the_exact_law(kind):
    rng = np.random.default_rng(100 + len(kind))
    ratios = []
    while len(ratios) < 55:
        c, D = rng.choice([1.0, 1.0, 0.95, 0.7]), rng.uniform(0.8, 5)
        steps, s, nu = int(rng.integers(1, 30)), rng.uniform(0.2, 1.5), rng.uniform(0.7, 1.5)
        epsilon = rng.uniform(0, 3)
        pair, start = maps(rng, kind, c, s, D), rng.uniform(0, D)
        truth = truth_from_below(pair, D, [nu] * steps, start, epsilon)
        if truth < 1e-7:
            continue
        cells = int(rng.choice([8, 32, 128]))  # coarse grids are looser, never lower
        bound = Coupled(float(c), s, nu, D, steps, cells).delta(epsilon)
        assert bound >= truth, (c, D, steps, s, nu, epsilon, cells)
        ratios.append(bound / truth)
    assert min(ratios) < 3  # the references are near enough to catch a factor of three


def test_an_answer_that_will_do_lies_between_the_full_one_and_what_is_asked():
    problem = Coupled(0.99, 0.2, 1.0, 6.0, 400, 64)
    for epsilon in (0.5, 1.5, 3.0):
        full = problem.delta(epsilon)
        for sufficient in (full * 1.001, full * 1.5, 1.0):
            assert full <= problem.delta(epsilon, sufficient) <= sufficient
        assert problem.delta(epsilon, full * 0.9) == full


def test_one_step_is_a_gaussian_or_a_meeting():
    for s, epsilon in ((0.3, 0.5), (1.0, 2.0), (0.5, 0.0)):
        found = Coupled(1.0, s, 1.0, 5.0, 1, 200).delta(epsilon)
        with precision():
            stopped = float(gaussian_delta(arb(s) ** 2, arb(epsilon)))
        missed = math.erf(s / 2 / math.sqrt(2))  # reflected noises that do not meet
        assert found == pytest.approx(min(stopped, missed), rel=1e-4)
        assert found >= min(stopped, missed) * (1 - 1e-12)


@pytest.mark.parametrize("c", [1.0, 0.99, 0.8])
def test_close_to_the_fast_path(c):
    for D, s, steps in ((5.0, 0.2, 70), (2.0, 0.5, 14), (10.0, 0.2, 240), (1.0, 0.1, 10**9)):
        epsilons = [0.5, 2.0, 6.0]
        fast = stopped_delta(CouplingProblem.of(c, s, 1.0, D, steps), epsilons)
        slow = [Coupled(c, s, 1.0, D, steps, max(256, int(30 * D))).delta(e) for e in epsilons]
        usable = fast > 1e-12
        assert np.array(slow)[usable] == pytest.approx(fast[usable], rel=0.02)


def bounded(**changes):
    settings = {
        "records": 1,
        "steps": 200,
        "step_size": 1.0,
        "noise": 1.0,
        "diameter": 5.0,
        "gradient_norm": 0.1,
        "batches": FullBatch(),
    }
    return Training(**({"adjacency": "replace"} | settings | changes))


@pytest.fixture(scope="module")
def signed():
    return certify(bounded(), CONVEX, DELTA)


def test_account_and_certificate_agree(signed):
    guarantee = account(bounded(), CONVEX)
    assert guarantee.theorem.key == signed.theorem_key == "stopped-coupling"
    epsilon = guarantee.epsilon(DELTA)
    assert type(epsilon) is float
    assert epsilon <= signed.epsilon <= epsilon * 1.001
    assert verify(signed).epsilon == signed.epsilon
    assert signed.mu is None
    for delta, claimed in signed.curve:
        assert (claimed - signed.epsilon) * (signed.delta - delta) > 0
        assert claimed >= guarantee.lower(delta)
    assert len(signed.curve) >= 5


def test_several_runs_compose_by_their_strings(signed):
    joint = compose([signed, signed])
    string = next(b for b in account(bounded(), CONVEX).bounds if b.curve.mu is not None).curve
    assert joint.mu == pytest.approx(math.sqrt(2) * string.mu, rel=1e-9)
    verify(joint)


def test_what_cannot_be_followed_falls_back_to_the_string():
    steps = 60
    for run, loss in (
        (bounded(steps=steps, step_size=np.linspace(1, 0.5, steps), diameter=2.0), CONVEX),
        (bounded(gradient_norm=0.3, final_noise=2.0), CONVEX),
        (bounded(step_size=0.1, gradient_norm=4.0), Loss.nonconvex(smoothness=0.5)),
    ):
        guarantee = account(run, loss)
        coupled = [b for b in guarantee.bounds if b.theorem.key == "stopped-coupling"]
        assert len(coupled) == 1
        assert not checkable(guarantee.run, coupled[0])
        certificate = certify(run, loss, DELTA)
        assert certificate.theorem_key == "taut-string"
        verify(certificate)


LIES = {
    "less epsilon": lambda c: {**c, "epsilon": c["epsilon"] * 0.99},
    "better curve": lambda c: {**c, "curve": [[c["curve"][2][0], c["curve"][0][1]]]},
    "a claim of mu": lambda c: {**c, "mu": 0.1},
    "narrower": lambda c: {**c, "training": {**c["training"], "diameter": 5.2}},
    "more sensitive": lambda c: {**c, "training": {**c["training"], "gradient_norm": 0.102}},
    "less noise": lambda c: {**c, "training": {**c["training"], "noise": 0.98}},
    "unbounded": lambda c: {
        **c,
        "training": {k: v for k, v in c["training"].items() if k != "diameter"},
    },
    "momentum": lambda c: {**c, "training": {**c["training"], "momentum": 0.5}},
    "clipped": lambda c: {**c, "training": {**c["training"], "clipping": "gradient"}},
    "expanding": lambda c: {**c, "loss": {**c["loss"], "smoothness": 3.0}},
    "cyclic": lambda c: {
        **c,
        "training": {**c["training"], "batches": {"scheme": "cyclic", "size": 1}},
    },
    "released": lambda c: {**c, "releases": [100]},
    "coarse": lambda c: {**c, "witness": {**c["witness"], "cells": 4}},
    "no cells": lambda c: {**c, "witness": {**c["witness"], "cells": 0}},
    "too many cells": lambda c: {**c, "witness": {**c["witness"], "cells": 10**6}},
    "cells of nonsense": lambda c: {**c, "witness": {**c["witness"], "cells": "many"}},
    "no grid": lambda c: {**c, "witness": {k: v for k, v in c["witness"].items() if k != "cells"}},
    "too many claims": lambda c: {**c, "curve": [[1e-3, 9.0 + k] for k in range(100)]},
}


@pytest.mark.parametrize("lie", LIES)
def test_liars_are_caught(signed, lie):
    changed = LIES[lie](json.loads(signed.to_json()))
    changed["sha256"] = fingerprint(changed)
    with pytest.raises(CertificateError):
        verify(Certificate(changed))


def test_limits():
    for wrong in (
        {"c": 1.01},
        {"nu": 0.0},
        {"s": -1.0},
        {"cells": 10**5},
        {"diameter": WIDEST + 1.0},
        {"s": WIDEST},
        {"diameter": math.inf},
        {"diameter": math.nan},
    ):
        fields = {"c": 1.0, "s": 0.1, "nu": 1.0, "diameter": 2.0, "steps": 10, "cells": 20} | wrong
        with pytest.raises(CertificateError):
            Coupled(**fields)
    assert Coupled(1.0, 0.1, 1.0, 2.0, 0, 20).delta(1.0) == 0.0
