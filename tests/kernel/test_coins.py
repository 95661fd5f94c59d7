"""Poisson batches and batches without replacement: any path proves something true."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import arb
from sampled_laws import Mixtures

from lastiterate.kernel.balls import KernelError, precision
from lastiterate.kernel.coins import FEW, check_poisson, check_without_replacement
from lastiterate.kernel.privacy_loss import MOST_PAIRS, Total
from lastiterate.kernel.run import read_run

EPSILONS = (0.0, 0.4, 1.5)


def described(batches, *, loss=None, unit=None, releases=(), **changes):
    """A run with x -> (1 - eta l2) x: the loss has no curvature of its own."""
    training = {"records": 20, "steps": 4, "step_size": 0.5, "noise": 0.1, "gradient_norm": 1.0}
    content = {
        "training": {**training, "batches": batches, **changes},
        "loss": {
            **{"smoothness": 0.0, "regularization": 0.4, "provenance": "declared"},
            **(loss or {}),
        },
        "releases": list(releases),
        **({} if unit is None else {"unit": unit}),
    }
    return read_run(content)


POISSON = {"scheme": "poisson", "rate": 0.2}


def random_path(rng, c, s):
    """Distances that come and go: what the steps could build up, times something."""
    z = [0.0]
    for factor, impulse in zip(c[:-1], s[:-1], strict=True):
        z.append(
            float(rng.choice([0.0, 0.5, 1.0, 1.3]) * rng.uniform() * (factor * z[-1] + impulse))
        )
    return [*z, 0.0]


def bound(charges, epsilon):
    pairs, failure = charges
    if not pairs:
        return float(failure)
    return float(Total(pairs, 1e-7).delta(arb(epsilon)) + failure)


def linear_run(rng, batches, **changes):
    """A random run with its constants: (run, c, s per unit of gradient, nu)."""
    steps = int(rng.integers(1, 5))
    etas, nus = rng.uniform(0.2, 1.5, steps), rng.uniform(0.05, 0.4, steps)
    run = described(batches, steps=steps, step_size=etas.tolist(), noise=nus.tolist(), **changes)
    return run, 1 - 0.4 * etas, etas, nus


def coin_law(c, moves, against, nu, rate, records):
    """x -> c x + (records in the batch) move + noise, against the same with other moves."""
    later = np.array([np.prod(c[k + 1 :]) for k in range(len(c))])
    noise = np.sqrt(np.sum((later * nu) ** 2))
    counts = np.array(list(itertools.product(range(records + 1), repeat=len(c))))
    binomial = np.array(
        [math.comb(records, i) * rate**i * (1 - rate) ** (records - i) for i in range(records + 1)]
    )
    weights = np.prod(binomial[counts], axis=1)
    sides = [counts @ (later * move) / noise for move in (moves, against)]
    return Mixtures(sides[0], weights, sides[1], weights)


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_poisson_is_never_below_the_exact_law(adjacency, seed):
    rng = np.random.default_rng(seed)
    rate = float(rng.choice([0.05, 0.3, 0.8, 1.0]))
    records = int(rng.integers(1, 4)) if adjacency == "zero-out" else 1
    batches = {"scheme": "poisson", "rate": rate}
    unit = None if records == 1 else {"records": records}
    run, c, etas, nu = linear_run(rng, batches, adjacency=adjacency, unit=unit)
    s = etas / (rate * 20)
    path = {"z": random_path(rng, c, s)} if seed % 4 else {}
    witness = {"menu": [], "cap": 20, "segments": [{"first": 0, "last": run.steps, **path}]}
    signs = rng.choice([-1.0, 1.0], run.steps)
    against = -s * signs if adjacency == "replace" else 0 * s
    law = coin_law(c, s * signs, against, nu, rate, records)
    with precision():
        charges = check_poisson(run, witness, hidden=True)
        public = check_poisson(run, {"menu": []}, hidden=False)
        for epsilon, truth in zip(EPSILONS, law.deltas(EPSILONS), strict=True):
            assert bound(charges, epsilon) >= truth
            assert bound(public, epsilon) >= truth


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_without_replacement_is_never_below_the_exact_law(adjacency, seed):
    rng = np.random.default_rng(seed)
    records, size = 3, int(rng.integers(1, 3))
    batches = {"scheme": "without-replacement", "size": size}
    steps = int(rng.integers(1, 5))
    etas, nu = rng.uniform(0.2, 1.5, steps), rng.uniform(0.2, 2.0, steps)
    changes = {"steps": steps, "step_size": etas.tolist(), "noise": nu.tolist()}
    run = described(batches, records=records, adjacency=adjacency, **changes)
    c = 1 - 0.4 * etas
    path = {"z": random_path(rng, c, 2 * etas / size)} if seed % 4 else {}
    witness = {"menu": [], "segments": [{"first": 0, "last": steps, **path}]}
    others = rng.choice([-1.0, 1.0], records - 1)
    targets = (1.0, -1.0) if adjacency == "replace" else (1.0, 0.0)
    law = pulled_law(c, targets, others, etas, nu, size)
    with precision():
        charges = check_without_replacement(run, witness, hidden=True)
        public = check_without_replacement(run, {"menu": []}, hidden=False)
        for epsilon, truth in zip(EPSILONS, law.deltas(EPSILONS), strict=True):
            assert bound(charges, epsilon) >= truth
            assert bound(public, epsilon) >= truth


def pulled_law(c, targets, others, etas, nu, size):
    """x -> c x + eta (mean of a batch's pulls) + noise; one pull is replaced."""
    later = np.array([np.prod(c[k + 1 :]) for k in range(len(c))])
    noise = np.sqrt(np.sum((later * nu) ** 2))
    sides = []
    for target in targets:
        pulls = np.append(others, target)
        means = [np.mean(pulls[list(b)]) for b in itertools.combinations(range(len(pulls)), size)]
        every = np.array(list(itertools.product(means, repeat=len(c)))) @ (later * etas) / noise
        sides.append((every, np.full(len(every), 1 / len(every))))
    return Mixtures(*sides[0], *sides[1])


def rows_of(charges):
    """The means of the pieces of each pair, with its count."""
    return sorted(
        (tuple(float(m) for _, m in pair.pieces[0].above), count) for pair, count in charges[0]
    )


def test_a_step_costs_what_the_statement_says():
    """alpha = (c z + drift - z')_+ and beta = (c z + s - z')_+, rounding to the grid included."""
    arithmetic = {"grid": 2.0**-10, "error": 0.01, "coordinates": 9}
    run = described(POISSON, steps=2, arithmetic=arithmetic, adjacency="zero-out")
    grid, rounding = 4 * 2.0**-10 * 3, 0.5 * 2 * 0.01
    s, drift, c = 0.5 / 4 + rounding + grid, rounding + grid, 0.8
    z = 0.06
    witness = {"menu": [], "cap": 20, "segments": [{"first": 0, "last": 2, "z": [0.0, z, 0.0]}]}
    with precision():
        found = rows_of(check_poisson(run, witness, hidden=True))
    first = (0.0, (s - z) / 0.1)
    second = ((c * z + drift) / 0.1, (c * z + s) / 0.1)
    for (means, count), expected in zip(found, (first, second), strict=True):
        assert count == 1
        assert means == pytest.approx(expected, rel=1e-12)
        assert all(a >= b * (1 - 1e-15) for a, b in zip(means, expected, strict=True))


def test_a_zeroed_record_of_a_fixed_batch_moves_it_twice():
    batches = {"scheme": "without-replacement", "size": 4}
    runs = [described(batches, adjacency=each) for each in ("zero-out", "replace")]
    with precision():
        found = [
            rows_of(check_without_replacement(run, {"menu": []}, hidden=False)) for run in runs
        ]
    assert found[0] == found[1]  # twice the length of one gradient, which replacing moves it too


def test_crowded_batches_are_a_failure():
    loss = {"smoothness": 0.5}
    run = described(POISSON, loss=loss, adjacency="zero-out")
    with precision():
        for cap in (3, 8, 20):
            witness = {"menu": [], "cap": cap, "segments": [segment(z=[0.0] * 5)]}
            failure = float(check_poisson(run, witness, hidden=True)[1])
            tail = sum(math.comb(20, i) * 0.2**i * 0.8 ** (20 - i) for i in range(cap + 1, 21))
            assert min(4 * tail, 1) * (1 - 1e-12) <= failure <= 4 * tail * (1 + 1e-9)


def test_a_path_may_begin_where_the_runs_can_be():
    """At the diameter, or at what the steps before it build up; no closer."""
    for diameter, least in (("inf", 0.125 * (1 + 0.8)), (0.15, 0.15)):
        run = described(POISSON, diameter=diameter, adjacency="zero-out")
        for share, good in ((1 + 1e-9, True), (0.99, False)):
            z = [least * share, 0.05, 0.0]
            rows = [{"first": 0, "last": 4, "z": z}]
            with precision():
                if good:
                    check_poisson(run, {"menu": [], "cap": 20, "segments": rows}, hidden=True)
                    continue
                with pytest.raises(KernelError, match="starts below"):
                    check_poisson(run, {"menu": [], "cap": 20, "segments": rows}, hidden=True)


def segment(**changes):
    return {"first": 0, "last": 4, **changes}


TAMPERED = {
    "unknown field": {"surprise": 1},
    "no menu": {"menu": None},
    "a menu of words": {"menu": ["a", "b"]},
    "a menu that falls": {"menu": [[2.0, 1.0]]},
    "a menu of infinities": {"menu": [[0.0, math.inf]]},
    "negative cap": {"cap": -1},
    "cap of nonsense": {"cap": 2.5},
    "no segments": {"segments": []},
    "segments of nonsense": {"segments": "many"},
    "a segment too short": {"segments": [segment(last=3)]},
    "a segment too long": {"segments": [segment(last=5)]},
    "a segment backwards": {"segments": [segment(last=0)]},
    "a gap": {"segments": [segment(last=2), segment(first=3)]},
    "an overlap": {"segments": [segment(last=2), segment(first=1)]},
    "half a step": {"segments": [segment(last=2.0), segment(first=2)]},
    "negative": {"segments": [segment(z=[0.0, -1.0, 0.0, 0.0, 0.0])]},
    "nan": {"segments": [segment(z=[0.0, math.nan, 0.0, 0.0, 0.0])]},
    "infinite": {"segments": [segment(z=[0.0, math.inf, 0.0, 0.0, 0.0])]},
    "infinite in words": {"segments": [segment(z=[0.0, "inf", 0.0, 0.0, 0.0])]},
    "not 0 at the end": {"segments": [segment(z=[0.0, 0.0, 0.0, 0.0, 0.1])]},
    "too long": {"segments": [segment(z=[0.0] * 6)]},
    "a single distance": {"segments": [segment(z=[0.0])]},
    "no distance": {"segments": [segment(z=[])]},
    "beginning too near": {"segments": [segment(z=[0.0, 0.0])]},
    "packed nonsense": {"segments": [segment(z={"float64": "AAAA", "length": 5})]},
    "packed too much": {"segments": [segment(z={"float64": "AAAA", "length": 10**12})]},
}


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_witnesses_are_refused(name):
    run = described(POISSON, adjacency="zero-out")
    witness = {"menu": [], "cap": 20, "segments": [segment()], **TAMPERED[name]}
    with precision(), pytest.raises(KernelError):
        check_poisson(run, witness, hidden=True)


def many_steps(menu):
    steps = FEW + 1
    noise = np.linspace(0.1, 0.2, steps).tolist()
    run = described(POISSON, steps=steps, noise=noise, adjacency="zero-out")
    with precision():
        return check_poisson(run, {"menu": menu}, hidden=False)


def test_many_different_steps_are_charged_as_the_first_of_the_menu_that_fits():
    assert rows_of(many_steps([[0.0, 0.9], [0.0, 2.0]])) == [((0.0, 0.9), 25), ((0.0, 2.0), 16)]


@pytest.mark.parametrize(
    "menu",
    [
        [],
        [[0.0, 1.0]],
        [[0.0, math.nan]],
        [[0.0, math.inf]],
        [[3.0, 2.0]],
        [[0.0, 2.0, 2.0]],
        [["a", "b"]],
        "menu",
        {},
        [[0.0, 2.0]] * (MOST_PAIRS + 1),
    ],
    ids=str,
)
def test_a_menu_that_is_none_is_refused(menu):
    with pytest.raises(KernelError):
        many_steps(menu)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"batches": {"scheme": "full"}}, "batches are full"),
        ({"momentum": 0.5}, "momentum"),
        ({"noise": 0.0}, "without noise"),
        ({"unit": {"records": 31}, "records": 40}, "30 records"),
        ({"releases": [2]}, "end at the releases"),
    ],
    ids=str,
)
def test_other_runs_are_refused(changes, reason):
    changes = dict(changes)
    if "loss" in changes:
        changes["loss"] |= {"provenance": "declared"}
    batches = changes.pop("batches", POISSON)
    run = read_run_without_smoothness(batches, **changes)
    witness = {"menu": [], "cap": 20, "segments": [segment(z=[0.0, 0.01, 0.01, 0.01, 0.0])]}
    with precision(), pytest.raises(KernelError, match=reason):
        check_poisson(run, witness, hidden=True)


def read_run_without_smoothness(batches, *, loss=None, **changes):
    if loss is None:
        return described(batches, adjacency="zero-out", **changes)
    unit, releases = changes.pop("unit", None), changes.pop("releases", ())
    assert unit is None
    assert releases == ()
    training = {"records": 20, "steps": 4, "step_size": 0.5, "noise": 0.1, "gradient_norm": 1.0}
    content = {
        "training": {**training, "batches": batches, "adjacency": "zero-out", **changes},
        "loss": loss,
        "releases": [],
    }
    return read_run(content)
