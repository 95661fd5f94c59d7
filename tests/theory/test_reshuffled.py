"""The boundary policy: table, counterexamples to worse ideas, exact mixtures by enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from exact_laws import Pair, constant, linear_run, random_schedule, string_cost

from lastiterate.curves import gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description.schedule import equalising
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.lower.minibatch import lower_reshuffled
from lastiterate.published.equalised import equalised_mu
from lastiterate.theory.cost_law import law_of_sum
from lastiterate.theory.positions import position_mus
from lastiterate.theory.reshuffled import epoch_costs, reshuffled


def curve(*run, **choice):
    policy = reshuffled(*run, **choice)
    assert policy.weights.sum() >= 1
    return Mixture(policy.mus, policy.weights)


def sequences(steps, batches):
    epochs = -(-steps // batches)
    for positions in itertools.product(range(batches), repeat=epochs):
        used = [e * batches + j for e, j in enumerate(positions)]
        yield np.array([k for k in used if k < steps], dtype=int)


def costs_by_sequence(c, s, nu, batches):
    """The exact string of every sequence of positions: no policy can be below their mixture."""
    steps = np.arange(len(s))
    return [
        string_cost(c, s * np.isin(steps, used), nu, number=float)
        for used in sequences(len(s), batches)
    ]


# c, B, E, s, epoch-end, boundary as published with the theory, Monte-Carlo limit
TABLE = [
    (1, 10, 5, 0.8, 0.2187, 0.1167, 0.111),
    (0.99, 10, 10, 0.8, 0.3698, 0.1701, 0.166),
    (0.95, 10, 10, 0.8, 0.3438, 0.0724, 0.069),
    (0.98, 20, 20, 0.8, 0.4055, 0.0415, 0.041),
    (0.9, 5, 20, 0.5, 0.3995, 0.0448, 0.041),
    (0.995, 20, 40, 0.5, 0.3641, 0.0571, 0.055),
]


@pytest.mark.parametrize(("c", "batches", "epochs", "s", "epoch_end", "boundary", "limit"), TABLE)
def test_table_of_deltas_at_half(c, batches, epochs, s, epoch_end, boundary, limit):
    run = constant(c, s, batches * epochs)
    delta = curve(*run, batches, epsilon=0.5).delta(0.5)
    assert delta <= boundary
    assert limit - 0.0005 <= delta <= 1.12 * limit
    # Levels 0: every epoch pays for itself.
    costs = epoch_costs(*run, batches, len(run[0]))
    rows = costs.values(np.array([0]), np.zeros(1), np.zeros(1))
    law = law_of_sum(rows, np.array([epochs]), math.inf, 1 << 15)
    plain = Mixture(np.sqrt(law.costs), law.weights)
    assert plain.delta(0.5) == pytest.approx(epoch_end, abs=3e-4)
    assert plain.delta(0.5) >= epoch_end - 5e-5


@pytest.mark.parametrize(("c", "batches", "epochs", "s"), [row[:4] for row in TABLE])
def test_worst_sequence_is_the_worst_position_for_whole_constant_epochs(c, batches, epochs, s):
    run = constant(c, s, batches * epochs)
    worst = reshuffled(*run, batches, epsilon=0.5).worst
    cyclic = position_mus(*run, batches).max()
    assert cyclic <= worst <= cyclic * (1 + 1e-3)


def test_partial_last_epoch_exceeds_the_worst_cyclic_position():
    run = constant(1.0, 2.0, 3)
    cyclic = gaussian.delta(float(position_mus(*run, 2).max()), 12.0)
    assert cyclic == pytest.approx(4.5e-5, abs=5e-7)
    # Impulses 2, 2, 2; the second step forgets what came before it.
    means = np.array([2 * sum(k > 0 for k in used) for used in sequences(3, 2)]) / math.sqrt(2)
    truth = Pair(means, 0 * means, np.full(4, 0.25)).delta(12.0, cells=20000)
    assert truth == pytest.approx(4.9e-5, abs=5e-7)
    bound = curve(*run, 2, epsilon=12.0).delta(12.0)
    assert bound >= truth > cyclic


def test_varying_steps_exceed_the_worst_cyclic_position():
    impulses = 3 * np.concatenate([np.ones(2), equalising(2)])
    run = (np.ones(4), impulses, np.ones(4))
    cyclic = gaussian.delta(float(position_mus(*run, 2).max()), 12.0)
    assert cyclic == pytest.approx(3.12e-3, abs=5e-6)
    assert equalised_mu(3.0, 2, 2) == pytest.approx(position_mus(*run, 2).max())
    means = [impulses[used[used > 0]].sum() / math.sqrt(3) for used in sequences(4, 2)]
    truth = Pair(np.array(means), np.zeros(4), np.full(4, 0.25)).delta(12.0, cells=20000)
    assert truth == pytest.approx(3.53e-3, abs=5e-6)
    bound = curve(*run, 2, epsilon=12.0).delta(12.0)
    assert bound >= truth > cyclic


def check_truth(seed, instances):
    rng = np.random.default_rng(seed)
    tightest = math.inf
    for _ in range(instances):
        batches = int(rng.integers(2, 5))
        steps = int(rng.integers(1, 3 * batches + 1))
        c, s, nu = random_schedule(rng, steps)
        epsilon = float(rng.uniform(0, 5))
        choice = {"epsilon": epsilon} if rng.uniform() < 0.5 else {"delta": 1e-4}
        bound = curve(c, s, nu, batches, **choice)
        pair = linear_run(rng, c, s, nu, list(sequences(steps, batches)))
        mus = np.sqrt(costs_by_sequence(c, s, nu, batches))
        for e in (0.0, epsilon):
            truth = pair.delta(e, cells=1500)
            assert bound.delta(e) >= truth
            # The averaged exact strings: what the policy approximates from above.
            limit = float(np.mean(gaussian.delta(mus, np.full(len(mus), e))))
            assert bound.delta(e) >= limit * (1 - 1e-9)
            if truth > 1e-6:
                tightest = min(tightest, bound.delta(e) / truth)
        order = float(rng.choice([1.1, 2, 8, 64, rng.uniform(1, 64)]))
        assert bound.rdp(order) >= pair.renyi(order) * (1 - 1e-9) - 1e-12
        worst = reshuffled(c, s, nu, batches, **choice).worst if rng.uniform() < 0.1 else math.inf
        assert worst >= mus.max() * (1 - 1e-12)
    assert tightest < 1.15  # the comparison has teeth


def test_truth_of_linear_runs():
    check_truth(21, 40)


@pytest.mark.slow
def test_truth_of_400_linear_runs():
    check_truth(22, 400)


@pytest.mark.parametrize("seed", range(6))
def test_epoch_cost_is_the_least_cost_between_two_levels(seed):
    quadprog = pytest.importorskip("quadprog")
    rng = np.random.default_rng(seed)
    batches = 5
    c, s, nu = random_schedule(rng, batches, constant=False)
    x, y = rng.uniform(0, 2), rng.uniform(0, 1.5)
    found = epoch_costs(c, s, nu, batches, batches).values(
        np.array([0]), np.array([x]), np.array([y])
    )[0]
    for j in range(batches):
        # z_k = (products of c) x + impulses - shifts >= 0, last one <= y, shifts >= 0.
        reach = np.zeros((batches, batches))
        level = np.zeros(batches)
        z, row = x, np.zeros(batches)
        for k in range(batches):
            z, row = c[k] * z + (s[k] if k == j else 0), c[k] * row
            row[k] += 1
            reach[k], level[k] = row, z
        constraints = np.vstack([np.eye(batches), -reach, reach[-1:]])
        bounds = np.concatenate([np.zeros(batches), -level, [level[-1] - y]])
        value = (
            quadprog.solve_qp(np.diag(2 / nu**2), np.zeros(batches), constraints.T, bounds)[1]
            if level[-1] > y
            else 0.0
        )
        assert found[j] >= value * (1 - 1e-9) - 1e-12
        assert found[j] == pytest.approx(value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("counts", [[2, 1, 3], [3, 1, 3]])  # listed; on a grid
def test_law_of_sum_covers_the_exact_law(counts):
    rng = np.random.default_rng(4)
    rows = rng.exponential(size=(3, 4))
    counts = np.array(counts)
    law = law_of_sum(rows, counts, math.inf, 1 << 12)
    sums = [sum(draw) for draw in itertools.product(*np.repeat(rows, counts, axis=0))]
    sums = np.sort(sums)
    assert law.weights.sum() >= 1
    order = np.argsort(law.costs)
    above = np.cumsum(law.weights[order][::-1])[::-1]  # mass at or above each cost
    for quantile in (0.01, 0.3, 0.7, 0.99, 0.9999):
        point = float(np.quantile(sums, quantile))
        exact = np.mean(sums > point)
        index = int(np.searchsorted(law.costs[order], point, side="right"))
        bound = above[index] if index < len(above) else 0.0
        assert bound >= exact * (1 - 1e-12)
    mean = float(law.costs @ law.weights)
    assert sums.mean() <= mean <= sums.mean() * 1.01


def test_far_tail_of_the_law_keeps_its_digits():
    # One cost of 1 with probability 1/4, else 0, forty times: P(all forty) = 4^-40 = 8e-25.
    law = law_of_sum(np.array([[0.0, 0, 0, 1]]), np.array([40]), math.inf, 1 << 14)
    top = law.weights[law.costs >= 40 * (1 - 1e-12)].sum()
    assert 4.0**-40 <= top <= 4.0**-40 * 1.5


def test_a_bounded_domain_helps_and_stays_sound():
    run = constant(1.0, 0.3, 40 * 5)
    free = curve(*run, 5, delta=1e-5).epsilon(1e-5)
    policy = reshuffled(*run, 5, delta=1e-5, diameter=1.0)
    bounded = Mixture(policy.mus, policy.weights).epsilon(1e-5)
    assert bounded < 0.7 * free
    assert not policy.pays.all()
    # Never below the average over sequences of the best restart of each (Monte Carlo of strings).
    rng = np.random.default_rng(0)
    c, s, nu = run
    deltas = []
    for _ in range(60):
        used = np.arange(40) * 5 + rng.integers(5, size=40)
        impulses = s * np.isin(np.arange(200), used)
        starts = used[-25:] + 1
        cost = min(string_cost(c[t:], impulses[t:], nu[t:], 1.0, float) for t in starts if t < 200)
        deltas.append(gaussian.delta(math.sqrt(cost), bounded))
    # The limit is met from above, up to the noise of sixty draws.
    assert np.mean(deltas) - 3 * np.std(deltas) / math.sqrt(60) <= 1e-5


def test_released_epochs_add_up():
    run = constant(0.95, 0.8, 12)
    whole = curve(*run, 3, epsilon=1.0)
    released = curve(*run, 3, epsilon=1.0, releases=(6,))
    assert released.delta(1.0) > whole.delta(1.0)
    halves = costs_by_sequence(*(v[:6] for v in run), 3)
    limit = np.mean(
        [gaussian.delta(math.sqrt(a + b), 1.0) for a, b in itertools.product(halves, halves)]
    )
    assert limit <= released.delta(1.0) <= 1.1 * limit
    with pytest.raises(UnsupportedError, match="after 6 steps"):
        reshuffled(*run, 3, epsilon=1.0, releases=(7,))
    with pytest.raises(DescriptionError):
        reshuffled(*run, 3, epsilon=1.0, releases=(13,))


@pytest.mark.parametrize("window", [2, 4, 8, 9])
def test_window_of_last_iterates(window):
    c, s, nu = constant(0.9, 0.8, 9)
    end = 9 - window + 1
    limit = []
    for used in sequences(9, 3):
        impulses = s * np.isin(np.arange(9), used)
        cost = float(string_cost(c[:end], impulses[:end], nu[:end])) + np.sum(impulses[end:] ** 2)
        limit.append(gaussian.delta(math.sqrt(cost), 1.0))
    bound = curve(c, s, nu, 3, epsilon=1.0, window=window).delta(1.0)
    assert np.mean(limit) * (1 - 1e-9) <= bound <= 1.12 * np.mean(limit)


def test_hidden_state_is_never_above_composition_and_falls_with_noise():
    rng = np.random.default_rng(9)
    for _ in range(4):
        c, s, nu = random_schedule(rng, 12)
        bound = curve(c, s, nu, 4, epsilon=1.0)
        composed = np.sqrt([np.sum((s[u] / nu[u]) ** 2) for u in sequences(12, 4)])
        plain = np.mean(gaussian.delta(composed, np.full(len(composed), 1.0)))
        assert bound.delta(1.0) <= plain * 1.001
        assert curve(c, s, 1.2 * nu, 4, epsilon=1.0).delta(1.0) < bound.delta(1.0)


def test_lower_reference_stays_below():
    for c in (0.9, 1.0):
        run = constant(c, 1.0, 12)
        bound = curve(*run, 4, delta=1e-4)
        low = lower_reshuffled(0.5, *run, 4, 1e-4)
        assert 0.3 < low <= bound.epsilon(1e-4)
        # One map only: the exact mixture by enumeration.
        ahead = c ** np.arange(11, -1, -1.0)
        means = np.array([ahead[u].sum() for u in sequences(12, 4)]) / np.linalg.norm(ahead)
        pairs = ((means, 0 * means), (2 * means, means))  # others push the opposite way
        exact = lower_reshuffled(c, *run, 4, 1e-4)
        found = [Pair(*both, np.full(64, 1 / 64)).delta(exact, cells=12000) for both in pairs]
        assert max(found) == pytest.approx(1e-4, rel=0.02)
        assert max(found) >= 1e-4 * (1 - 1e-4)  # cells lose a little


def test_edges():
    one, zero = np.ones(4), np.zeros(4)
    assert reshuffled(one, zero, one, 2, delta=1e-5).mus.tolist() == [0.0]
    assert reshuffled(one, one, zero, 2, delta=1e-5).mus.tolist() == [math.inf]
    assert reshuffled([], [], [], 2, delta=1e-5).mus.tolist() == [0.0]
    silent_end = curve(one, one, [1, 1, 1, 0], 2, epsilon=1.0)
    assert silent_end.delta(50.0) >= 0.5  # half of the runs end on a bare gradient
    silent_start = curve(one, one, [0, 1, 1, 1], 2, epsilon=1.0)
    assert silent_start.delta(1.0) < 0.9  # the second step covers the first
    with pytest.raises(DescriptionError):
        reshuffled(one, one, one, 2)
    with pytest.raises(DescriptionError):
        reshuffled(one, one, one, 2, epsilon=1.0, delta=1e-5)


@pytest.mark.parametrize("epsilon", [0.0025, 0.1, 1.0, 3.0])
def test_a_record_that_is_never_used_costs_nothing(epsilon):
    """One step of an epoch of two: with probability 1/2 the record is not in it, and mu = 0.

    Its exact curve is half a Gaussian; a cell of costs that holds 0 must not be rounded up.
    """
    mu = 0.47
    policy = curve([1.0], [mu], [1.0], 2, epsilon=epsilon)
    truth = gaussian.delta(mu, epsilon) / 2
    assert truth <= policy.delta(epsilon) <= truth * (1 + 1e-4) + 1e-12
    assert epsilon <= policy.epsilon(truth) <= epsilon * (1 + 1e-3)
