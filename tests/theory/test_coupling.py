"""The coupling bound against exact laws on an interval, and against its published table."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from interval_laws import KINDS, exact_delta, maps, truth_from_below

from lastiterate import FullBatch, Loss, TailAverage, Training, account
from lastiterate.curves import gaussian
from lastiterate.theory import taut_string
from lastiterate.theory.coupling import Coupling, CouplingProblem, _Prices, stopped_delta

# D, s, T, c, epsilon of the stopped coupling at delta = 1e-5 and nu = 1 (rounded as printed)
TABLE = [
    (10, 0.1, 1000, 1.0, 5.550),
    (5, 0.2, 70, 1.0, 6.373),
    (5, 0.1, 70, 1.0, 3.239),
    (5, 0.4, 50, 1.0, 12.113),
    (10, 0.2, 240, 1.0, 10.558),
    (2, 0.5, 14, 1.0, 8.203),
    (2.5, 0.1, 20, 1.0, 1.760),
    (1, 0.1, 20, 1.0, 1.177),
    (5, 1.0, 24, 1.0, 26.448),
    (10, 0.5, 300, 1.0, 24.009),
    (5, 0.1, 300, 0.99, 3.094),
    (5, 0.1, 300, 0.95, 2.333),
]


def bounded_run(D, s, steps, **changes):
    """A full-batch run with impulse s and noise 1 on a set of diameter D."""
    settings = {
        "records": 1,
        "steps": steps,
        "step_size": 1.0,
        "noise": 1.0,
        "diameter": D,
        "gradient_norm": s / 2,
        "batches": FullBatch(),
    }
    return Training(**({"adjacency": "replace"} | settings | changes))


@pytest.mark.parametrize(("D", "s", "steps", "c", "goal"), TABLE)
def test_table(D, s, steps, c, goal):
    string = float(taut_string.constant_curve(c, s, 1.0, steps, D))
    curve = Coupling(CouplingProblem.of(c, s, 1.0, D, steps), string)
    found = curve.epsilon(1e-5)
    assert round(found, 3) <= goal
    assert stopped_delta(curve.problem, [found])[0] <= 1e-5 or found >= gaussian.epsilon(
        string, 1e-5
    )


@pytest.mark.slow
def test_long_walk_on_a_wide_interval():
    run = bounded_run(20, 0.05, 4000)
    guarantee = account(run, Loss(smoothness=0.0))
    assert guarantee.epsilon(delta=1e-5) <= 5.240
    assert guarantee.theorem.key == "stopped-coupling"
    string = gaussian.epsilon(float(taut_string.constant_curve(1.0, 0.05, 1.0, 4000, 20)), 1e-5)
    assert round(string, 3) == 9.997


# --- exact laws on [0, D] -------------------------------------------------------------------------


@pytest.mark.parametrize("problems", [25, pytest.param(110, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_never_below_the_exact_law(kind, problems):
    rng = np.random.default_rng(len(kind))
    ratios = []
    while len(ratios) < problems:
        c, D = rng.choice([1.0, 1.0, 0.95, 0.7]), rng.uniform(0.8, 5)
        steps, s = int(rng.integers(1, 30)), rng.uniform(0.2, 1.5)
        nus = rng.choice([1.0, 1.0, rng.uniform(0.7, 1.5)], steps).tolist()
        epsilon = rng.uniform(0, 3)
        pair, start = maps(rng, kind, c, s, D), rng.uniform(0, D)
        truth = truth_from_below(pair, D, nus, start, epsilon)
        if truth < 1e-7:
            continue
        bound = stopped_delta(CouplingProblem.of(c, s, nus, D), [epsilon])[0]
        assert bound >= truth, (c, D, steps, s, epsilon)
        ratios.append(bound / truth)
    # The references are near enough to catch a factor of three, of two when there are many.
    assert min(ratios) < (3 if problems < 100 else 2)


@pytest.mark.parametrize("problems", [12, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_steps_never_below_the_exact_law(kind, problems):
    """Long enough for every way out: stops on a grid (c > 1), settling, pushes with T s < D."""
    rng = np.random.default_rng(100 + len(kind))
    ratios, expanding = [], 0
    while len(ratios) < problems:
        c = rng.choice([1.0, 0.97, 1.001, 1.01, 1.05, 1.2])
        D, steps, s = rng.uniform(0.5, 4), int(rng.integers(20, 120)), rng.choice([0.02, 0.1, 0.4])
        epsilon = rng.uniform(0, 3) * s * D
        pair, start = maps(rng, kind, c, s, D), rng.uniform(0, D)
        truth = truth_from_below(pair, D, [1.0] * steps, start, epsilon)
        if truth < 1e-7:
            continue
        bound = stopped_delta(CouplingProblem.of(c, s, 1.0, D, steps), [epsilon])[0]
        assert bound >= truth, (c, D, steps, s, epsilon)
        ratios.append(bound / truth)
        expanding += c > 1
    assert expanding > 2
    assert min(ratios) < 3


def test_attained_by_one_step_and_by_linear_walks_far_from_the_walls():
    for s in (0.3, 1.0, 2.0):
        one = stopped_delta(CouplingProblem.of(1.0, s, 1.0, 50.0, 1), [0.5, 2.0])
        assert one == pytest.approx(gaussian.delta(np.array(s), np.array([0.5, 2.0])), rel=1e-9)
    string = gaussian.delta(0.2 * math.sqrt(30), 1.0)
    assert stopped_delta(CouplingProblem.of(1.0, 0.2, 1.0, 40.0, 30), [1.0])[0] == pytest.approx(
        string, rel=1e-6
    )


def test_the_searched_epsilon_is_above_the_exact_law_and_where_the_bound_crosses():
    rng = np.random.default_rng(21)
    for _ in range(8):
        c, D = rng.choice([1.0, 0.95]), rng.uniform(0.8, 4)
        steps, s = int(rng.integers(5, 40)), rng.uniform(0.1, 1.0)
        delta = float(rng.choice([1e-2, 1e-4, 1e-6]))
        problem = CouplingProblem.of(c, s, 1.0, D, steps)
        string = float(taut_string.constant_curve(c, s, 1.0, steps, D))
        found = Coupling(problem, string).epsilon(delta)
        pair, start = maps(rng, rng.choice(KINDS), c, s, D), rng.uniform(0, D)
        assert truth_from_below(pair, D, [1.0] * steps, start, found) <= delta
        safe, unsafe = gaussian.epsilon(string, delta), 0.0
        for _ in range(22):
            middle = (safe + unsafe) / 2
            holds = stopped_delta(problem, [middle])[0] <= delta
            safe, unsafe = (middle, unsafe) if holds else (safe, middle)
        assert found <= safe * (1 + 2e-4)
        assert stopped_delta(problem, [found])[0] <= delta or found >= gaussian.epsilon(
            string, delta
        )


def test_the_searched_epsilon_holds_whatever_the_numbers():
    """Also where the best time to stop changes with epsilon, and the bound has a concave kink."""
    rng = np.random.default_rng(24)
    cases = [(0.9170628915463424, 40, 1.0, 0.007747700400723249, 1.0, 1e-12)]
    for _ in range(20):
        steps = int(rng.integers(1, 30))
        nus = 1.0 if rng.random() < 0.6 else rng.uniform(0.5, 2, steps)
        delta = float(rng.choice([0.0, 1e-300, 1e-30, 1e-9, 0.1, 0.9, 1.0]))
        c, s = float(rng.choice([0.0, 0.5, 1.0, 1.05])), 10 ** rng.uniform(-6, 1)
        cases.append((10 ** rng.uniform(-2, 0.5), steps, c, s, nus, delta))
    for D, steps, c, s, nus, delta in cases:
        problem = CouplingProblem.of(c, s, nus, D, steps)
        string = taut_string.best(c, [s] * steps, nus, D).mu
        curve, most = Coupling(problem, string), gaussian.epsilon(string, delta) * (1 + 1e-9)
        found = curve.epsilon(delta)
        assert found <= most
        assert curve.delta(min(found, 1e9)) <= delta or found == math.inf


def test_the_search_ends_near_the_crossing_at_every_delta():
    """It once took the string's epsilon, twice as large, for one that nothing can improve."""
    curve = Coupling(CouplingProblem.of(1.0, 0.08, 1.0, 1.0, 200), mu=0.566)
    deltas = np.geomspace(1e-6, 1e-2, 9)
    found = [curve.epsilon(float(delta)) for delta in deltas]
    assert all(a > b for a, b in itertools.pairwise(found))
    for delta, epsilon in zip(deltas, found, strict=True):
        assert curve.delta(epsilon) <= delta < curve.delta(epsilon * (1 - 1e-3))


def test_where_stopping_cannot_win_its_price_is_not_asked():
    rng = np.random.default_rng(23)
    targets = np.array([0.0, 0.3, 5.0])
    prices = _Prices(targets)
    for _ in range(50):
        mus = np.sort(rng.choice([1e-6, 0.1, 1.0, 10.0, 1e4]) * rng.random(40))
        expected = np.sort(10 ** rng.uniform(-12, 0, (40, 3)), axis=0)
        full = gaussian.delta(mus[:, None], targets)
        assert np.array_equal(
            np.minimum(prices(mus, expected), expected), np.minimum(full, expected)
        )


def test_no_other_thread_is_asked_to_multiply():
    """Threads of BLAS would wait for each other at every step: six times the seconds where busy."""
    problem = CouplingProblem.of(1.0, 0.1, 1.0, 15.0, 60)
    others = math.inf
    for _ in range(3):
        process, thread = time.process_time(), time.thread_time()
        stopped_delta(problem, np.linspace(1.0, 3.0, 12))
        own = time.thread_time() - thread
        others = min(others, (time.process_time() - process - own) / own)
    assert others < 0.3


def test_grid_is_an_upper_bound_that_converges(monkeypatch):
    from lastiterate.theory import coupling

    problem = CouplingProblem.of(0.99, 0.2, 1.0, 4.0, 60)
    values = []
    for cells in (8, 16, 32, 64, 128):
        monkeypatch.setattr(coupling, "_CELLS_PER_NOISE", cells)
        monkeypatch.setattr(coupling, "_FEWEST_CELLS", 8)
        values.append(stopped_delta(problem, [1.0])[0])
    assert all(a >= b for a, b in itertools.pairwise(values))
    assert values[-2] / values[-1] < 1.003


def test_constant_steps_and_the_same_as_a_schedule_agree():
    D, s, steps = 3.0, 0.3, 40
    nus = np.ones(steps)
    nus[0] = 1 + 1e-9  # not all alike: the general path, with its table of strings
    one = stopped_delta(CouplingProblem.of(0.98, s, 1.0, D, steps), [0.5, 2.0])
    other = stopped_delta(CouplingProblem.of(0.98, s, nus, D), [0.5, 2.0])
    assert other == pytest.approx(one, rel=1e-3)


def test_a_run_without_end_stays_finite():
    """The distance forgets: V settles, and its value at D covers every longer run."""
    short, long = (
        stopped_delta(CouplingProblem.of(1.0, 0.2, 1.0, 3.0, steps), [3.0])[0]
        for steps in (2_000, 10**12)
    )
    assert long == pytest.approx(short, rel=2e-3)


def test_expanding_steps():
    """c > 1: never below the exact law of x -> c x on an interval, and closed form = schedule."""
    c, s, D, steps = 1.05, 0.3, 2.0, 30
    problem = CouplingProblem.of(c, s, 1.0, D, steps)
    pair = tuple(lambda x, d=d: c * (x - D / 2) + D / 2 + d * s / 2 for d in (1, -1))
    bound = stopped_delta(problem, [0.5, 2.0])
    for value, epsilon in zip(bound, (0.5, 2.0), strict=True):
        assert value >= max(exact_delta(pair, D, [1.0] * steps, D / 2, epsilon, 400))
    nus = np.ones(steps)
    nus[0] = 1 + 1e-9
    other = stopped_delta(CouplingProblem.of(c, s, nus, D), [0.5, 2.0])
    assert other == pytest.approx(bound, rel=1e-3)
    endless = stopped_delta(CouplingProblem.of(c, s, 1.0, D, 10**12), [2.0])[0]
    assert bound[1] * 0.99 <= endless < 1


def test_the_accountant_uses_it_only_where_it_can_win():
    loss = Loss(smoothness=0.0)
    guarantee = account(bounded_run(5, 0.2, 200), loss)
    assert guarantee.theorem.key == "stopped-coupling"
    assert guarantee.epsilon(1e-5) < 6.9
    assert guarantee.lower(1e-5) <= guarantee.epsilon(1e-5)
    for other in (
        bounded_run(20, 0.05, 300),  # no time to cross
        bounded_run(math.inf, 0.2, 200),
        bounded_run(500, 0.2, 10**6),  # too wide
        bounded_run(5, 0.2, 200, release=TailAverage(3)),
    ):
        names = [bound.theorem.key for bound in account(other, loss).bounds]
        assert "stopped-coupling" not in names


def test_pushes_that_never_cross_the_domain():
    """T s < D: not the wall but the meetings count; above the exact law, below the string."""
    D, s, steps = 4.0, 0.05, 75
    pair = tuple(lambda x, d=d: x + d * s / 2 for d in (1, -1))
    bound = stopped_delta(CouplingProblem.of(1.0, s, 1.0, D, steps), [0.0, 0.05])
    string = gaussian.delta(s * math.sqrt(steps), np.array([0.0, 0.05]))
    for value, without, epsilon in zip(bound, string, (0.0, 0.05), strict=True):
        truth = max(exact_delta(pair, D, [1.0] * steps, D / 2, epsilon, 400))
        assert 1e-4 < truth <= value < 0.8 * without
    assert account(bounded_run(D, s, steps), Loss(smoothness=0.0)).theorem.key == (
        "stopped-coupling"
    )


def test_any_schedule_is_accounted():
    steps = 60
    run = bounded_run(2, 0.4, steps, step_size=np.linspace(1, 0.5, steps))
    guarantee = account(run, Loss(smoothness=0.0))
    assert guarantee.theorem.key == "stopped-coupling"
    string = account(run.replace(diameter=math.inf), Loss(smoothness=0.0)).epsilon(1e-5)
    assert guarantee.lower(1e-5) <= guarantee.epsilon(1e-5) < string
