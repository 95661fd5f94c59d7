"""The full-batch ledger: reference table, exact laws, and the optimum of each theorem."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize

from lastiterate import FullBatch, Loss, TailAverage, Training, account, compare, theorems
from lastiterate.curves import gaussian
from lastiterate.errors import AssumptionError
from lastiterate.published.chien_li import (
    output_perturbation_coefficient,
    remaining_cost,
    walk_on_an_interval,
)
from lastiterate.theory import BY_KEY, Run, inapplicable_reason

THEOREM = {theorem.key: theorem for theorem in theorems()}
STRONGLY_CONVEX = Loss(smoothness=1.0, strong_convexity=1.0)
CONVEX = Loss(smoothness=1.0)
NONCONVEX = Loss.nonconvex(smoothness=1.0)

# Chien & Li 2025: L = m = 1, K = 2, sigma = 1, D = 1, n = 5, eta = 0.1. Coefficients of alpha:
# T, composition, L sc, L convex, L nonconvex, Y D.6, D.6 sharper, C Cor 1, SI sc, convex, nonconvex
TABLE = """
1   .003200 .003200 .003200 .003200 .006080 .005792 .006243 .003200 .003200 .003200
2   .006400 .006400 .006400 .006400 .011856 .011034 .012181 .006382 .006400 .006400
5   .016000 .016000 .016000 .016000 .027508 .023956 .028313 .015654 .016000 .016000
10  .032000 .031649 .032000 .032000 .048794 .038499 .050364 .029362 .032000 .032000
20  .064000 .052768 .064000 .064000 .078008 .052688 .080911 .047619 .064000 .064000
50  .160000 .066031 .160000 .160000 .112243 .060554 .117493 .060177 .160000 .160000
100 .320000 .066656 .160062 .273172 .120880 .060966 .127138 .060797 .160062 .273172
200 .640000 .066659 .160062 .273172 .121596 .060968 .127994 .060800 .160062 .273172
"""
ROWS = [[float(x) for x in line.split()] for line in TABLE.strip().splitlines()]
COLUMNS = [
    ("gaussian-composition", CONVEX),
    ("chien-li-2025-3.1", STRONGLY_CONVEX),
    ("chien-li-2025-3.1", CONVEX),
    ("chien-li-2025-3.1", NONCONVEX),
    ("ye-shokri-2022-d6", STRONGLY_CONVEX),
    ("ye-shokri-2022-d6-sharper", STRONGLY_CONVEX),
    ("chourasia-ye-shokri-2021-corollary-1", STRONGLY_CONVEX),
    ("taut-string", STRONGLY_CONVEX),
    ("taut-string", CONVEX),
    ("taut-string", NONCONVEX),
]


def figure_one(steps: int) -> Training:
    return Training(
        records=5,
        steps=steps,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )


def coefficient(name: str, training: Training, loss: Loss) -> float:
    return THEOREM[name].evaluate(training, loss).curve.rdp(2.0) / 2


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"T={row[0]:.0f}")
def test_reference_table(row):
    training = figure_one(int(row[0]))
    got = [coefficient(name, training, loss) for name, loss in COLUMNS]
    assert np.round(got, 6).tolist() == pytest.approx(row[1:], abs=1e-9)
    assert output_perturbation_coefficient(1.0, 1.0) == 0.5


def test_reference_epsilons():
    training = figure_one(200)
    for loss, exact, best in [
        (STRONGLY_CONVEX, 1.336, 1.531),
        (CONVEX, 2.289, 2.485),
        (NONCONVEX, 3.095, 3.352),
    ]:
        string = THEOREM["taut-string"].evaluate(training, loss).curve
        assert string.epsilon(1e-5) == pytest.approx(exact, abs=5e-4)
        assert account(training, loss).epsilon(1e-5) <= string.epsilon(1e-5)
        shifted = THEOREM["chien-li-2025-3.1"].evaluate(training, loss).curve
        assert shifted.epsilon(1e-5) == pytest.approx(best, abs=5e-4)


def test_shifted_interpolation_against_l_over_a_sweep():
    ratios = {"sc": [], "convex": [], "nonconvex": []}
    for steps in range(1, 201):
        training = figure_one(steps)
        for key, loss in (("sc", STRONGLY_CONVEX), ("convex", CONVEX), ("nonconvex", NONCONVEX)):
            ours = coefficient("taut-string", training, loss)
            ratios[key].append(coefficient("chien-li-2025-3.1", training, loss) / ours - 1)
    assert max(ratios["sc"]) == pytest.approx(0.1085, abs=5e-5)
    assert min(ratios["sc"]) > -1e-10
    assert min(ratios["sc"][1:]) > 0
    for key in ("convex", "nonconvex"):
        assert np.abs(ratios[key]).max() < 1e-10


def random_quadratic(rng):
    """A run whose last iterate is exactly Gaussian, with its true mu; 1-D or 2-D."""
    steps, records = int(rng.integers(1, 40)), int(rng.integers(1, 30))
    low, high = np.sort(rng.uniform(0.05, 2.0, 2))
    eta = rng.uniform(0.05, 1.9) / high
    nu = rng.uniform(0.01, 2.0)
    dimension = int(rng.integers(1, 3))
    curvatures = rng.uniform(low, high, dimension)
    gap = rng.normal(size=dimension)  # the two records' difference, in the Hessian's eigenbasis
    sensitivity = float(np.linalg.norm(curvatures * gap))
    c = 1 - eta * curvatures
    powers = c[:, None] ** np.arange(steps)
    mean = eta * curvatures * gap / records * powers.sum(axis=1)
    variance = nu**2 * (powers**2).sum(axis=1)
    true_mu = math.sqrt(float((mean**2 / variance).sum()))
    training = Training(
        records=records,
        steps=steps,
        step_size=eta,
        noise=nu,
        gradient_norm=sensitivity / 2,
        batches=FullBatch(),
        adjacency="replace",
    )
    return training, Loss(smoothness=high, strong_convexity=low), true_mu


@pytest.mark.parametrize("problems", [400, pytest.param(4000, marks=pytest.mark.slow)])
def test_no_bound_is_below_the_exact_law_of_quadratics(problems):
    rng = np.random.default_rng(11)
    used = set()
    for _ in range(problems):
        training, loss, true_mu = random_quadratic(rng)
        delta, order = 10 ** rng.uniform(-12, -0.5), 1 + rng.exponential(8.0)
        true_epsilon = gaussian.epsilon(true_mu, delta)
        run = Run(training, loss)
        for theorem in THEOREM.values():
            if inapplicable_reason(theorem, run) is None:
                used.add(theorem.key)
                curve = theorem.prove(run).curve
                assert curve.epsilon(delta) >= true_epsilon * (1 - 1e-9), theorem
                assert curve.rdp(order) >= order * true_mu**2 / 2 * (1 - 1e-9), theorem
    assert used >= {
        "taut-string",
        "gaussian-composition",
        "chourasia-ye-shokri-2021-1",
        "chourasia-ye-shokri-2021-2",
        "chourasia-ye-shokri-2021-corollary-1",
        "ye-shokri-2022-d6",
        "ye-shokri-2022-d6-sharper",
        "chien-li-2025-3.1",
    }


def test_attained_by_quadratics_of_least_curvature():
    rng = np.random.default_rng(12)
    for _ in range(300):
        h, eta, steps = rng.uniform(0.1, 2.0), rng.uniform(0.01, 0.5), int(rng.integers(1, 60))
        training = Training(
            records=3,
            steps=steps,
            step_size=eta,
            noise=1.0,
            gradient_norm=1.0,
            batches=FullBatch(),
            adjacency="replace",
        )
        loss = Loss(smoothness=h, strong_convexity=h)
        c = 1 - eta * h
        s = eta * 2 / 3
        powers = c ** np.arange(steps)
        truth = s * powers.sum() / math.sqrt((powers**2).sum())
        g = account(training, loss)
        assert g.mu == pytest.approx(truth, rel=1e-9)
        assert g.mu >= truth * (1 - 1e-15)
        assert g.lower(1e-5) == pytest.approx(g.epsilon(1e-5), rel=1e-6)
        assert g.lower(1e-5) <= g.epsilon(1e-5)
        # Chourasia, Ye, Shokri 2021, Theorem 3: exact for squared losses.
        exact = s * s / 2 * (1 + c) / (1 - c) * (1 - c**steps) / (1 + c**steps)
        assert exact == pytest.approx(truth**2 / 2, rel=1e-9)


def test_corollary_two_against_squared_losses():
    rng = np.random.default_rng(13)
    for _ in range(300):
        h = rng.uniform(0.01, 1.99)
        steps = int(rng.integers(1, 60))
        training = Training(
            records=1,
            steps=steps,
            step_size=h,
            noise=1.0,
            gradient_norm=0.5,
            batches=FullBatch(),
            adjacency="replace",
        )
        bound = THEOREM["chourasia-ye-shokri-2021-corollary-2"].evaluate(training, STRONGLY_CONVEX)
        powers = (1 - h) ** np.arange(steps)
        truth = (h * powers.sum()) ** 2 / (powers**2).sum() / 2
        assert bound.curve.rdp(3.0) >= 3 * truth * (1 - 1e-12)


def test_bare_diameter_is_refuted_and_the_correction_holds():
    """D = 1, nu = 0.5, s = 0.75, neighbours that start together: above the claim at order 1.01."""
    diameter, nu, s, order = 1.0, 0.5, 0.75, 1.01
    exact = walk_on_an_interval(order, diameter, s, nu, 50)
    assert exact > 1.4 * order * output_perturbation_coefficient(diameter, nu)
    training = Training(
        records=1,
        steps=50,
        step_size=1.0,
        noise=nu,
        gradient_norm=s / 2,
        batches=FullBatch(),
        diameter=diameter,
        adjacency="replace",
    )
    curve = THEOREM["output-perturbation"].evaluate(training, CONVEX).curve
    assert curve.mu == pytest.approx((diameter + s) / nu)
    for other in (order, 2.0, 8.0):
        assert curve.rdp(other) >= walk_on_an_interval(other, diameter, s, nu, 50)
    claim = THEOREM["chien-li-2025-figure-1"]
    assert inapplicable_reason(claim, Run(training, CONVEX)) is not None
    with pytest.raises(AssumptionError, match="refuted"):
        claim.evaluate(training, CONVEX)


def test_l_optimum_is_never_beaten_by_a_generic_optimiser():
    """min sum s^2/beta + d^2 / sum (1-beta) c^(-2 i) by SLSQP from several starts."""
    rng = np.random.default_rng(14)
    for _ in range(60):
        c, s, d = rng.uniform(0.6, 1.4), rng.uniform(0.05, 1.0), rng.uniform(0.1, 3.0)
        m = int(rng.integers(1, 9))
        weights = c ** (-2.0 * np.arange(1, m + 1))

        def cost(beta, s=s, d=d, weights=weights):
            return (s**2 / beta).sum() + d**2 / ((1 - beta) * weights).sum()

        ours = float(remaining_cost(c, s, np.array([d]), np.array([float(m)]))[0])
        found = min(
            minimize(cost, rng.uniform(0.1, 0.9, m), bounds=[(1e-6, 1 - 1e-6)] * m).fun
            for _ in range(4)
        )
        assert ours <= found * (1 + 1e-9)
        assert ours >= found * (1 - 1e-3)


def test_bounded_walks_on_a_grid_stay_below():
    """Linear losses on an interval: the exact law of the projected walk, both orders."""
    rng = np.random.default_rng(15)
    for _ in range(40):
        diameter, s = rng.uniform(0.5, 4.0), rng.uniform(0.05, 1.0)
        training = Training(
            records=1,
            steps=int(rng.integers(1, 60)),
            step_size=1.0,
            noise=1.0,
            gradient_norm=s / 2,
            batches=FullBatch(),
            diameter=diameter,
            adjacency="replace",
        )
        loss = Loss(smoothness=rng.uniform(0, 1.5), regularization=rng.choice([0.0, 0.1]))
        g = account(training, loss)
        for delta in (1e-2, 1e-4):
            lower = g.lower(delta)
            assert 0 < lower <= g.epsilon(delta)


def test_releases_add_up_and_tail_average_pays_for_its_window():
    training = Training(
        records=10,
        steps=60,
        step_size=0.1,
        noise=0.3,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    first = account(training.replace(steps=20), loss).mu
    rest = account(training.replace(steps=40), loss).mu
    joint = account(training, loss, releases=(20,)).mu
    assert joint == pytest.approx(math.hypot(first, rest), rel=1e-10)
    every = account(training, loss, releases=range(1, 61)).mu
    assert every == pytest.approx(
        THEOREM["gaussian-composition"].evaluate(training, loss).curve.mu, rel=1e-10
    )
    # Window of M4 in units s^2/nu^2: c = .9, T = 60, k = 10 and 30.
    unit = (0.1 * 2 / 10 / 0.3) ** 2
    for window, printed in ((10, 27.82), (30, 46.60)):
        g = account(training.replace(release=TailAverage(window)), loss)
        assert g.mu**2 / unit == pytest.approx(printed, abs=5e-3)


def test_compare_ranks_and_explains():
    table = compare(figure_one(100).replace(diameter=math.inf), STRONGLY_CONVEX, published=True)
    assert table[0].theorem.key == "taut-string"
    assert [row.epsilon for row in table] == sorted(row.epsilon for row in table)
    reasons = {row.theorem.key: row.reason for row in table.inapplicable}
    assert "refuted" in reasons["chien-li-2025-3.12-printed"]
    too_large = compare(figure_one(100).replace(step_size=1.5), STRONGLY_CONVEX, published=True)
    reasons = {row.theorem.key: row.reason for row in too_large.inapplicable}
    assert "step_size" in reasons["chourasia-ye-shokri-2021-corollary-1"]


def test_clipping_is_not_free():
    unclipped = figure_one(400).replace(diameter=math.inf)
    loss = Loss(smoothness=1.0, regularization=0.2)
    clipped = unclipped.replace(clipping="gradient")
    assert account(clipped, loss).mu > account(unclipped, loss).mu
    assert "Clipping is not free" in str(account(clipped, loss))
    composition = THEOREM["gaussian-composition"].evaluate(clipped, loss).curve.mu
    assert account(clipped, loss).mu < composition  # lambda = .2 > beta/8 still contracts


def test_degenerate_runs():
    training = figure_one(10)
    assert account(training.replace(steps=0), CONVEX).epsilon(1e-5) == 0
    assert account(training.replace(gradient_norm=0.0), CONVEX).epsilon(1e-5) == 0
    assert account(training.replace(noise=0.0), CONVEX).epsilon(1e-5) == math.inf
    assert (
        account(training.replace(diameter=math.inf), Loss.unknown()).theorem.key
        == "gaussian-composition"
    )
    far = training.replace(steps=10**12, diameter=math.inf)
    assert account(far, STRONGLY_CONVEX).mu ** 2 / 2 == pytest.approx(0.0608, abs=5e-7)


def test_guarantee_reads_like_a_document():
    unbounded = figure_one(100).replace(diameter=math.inf)
    text = str(account(unbounded, STRONGLY_CONVEX))
    for phrase in (
        "only the last iterate",
        "replacing one record",
        "epsilon = 1.33",
        BY_KEY["taut-string"].name,
        "declared by the user",
        "Not covered",
    ):
        assert phrase in text
    estimated = Loss(smoothness=1.0, strong_convexity=1.0, provenance="estimated")
    assert str(account(unbounded, estimated)).startswith("NOT A GUARANTEE")


def test_random_schedules_are_monotone_in_noise():
    rng = np.random.default_rng(16)
    for _ in range(100):
        steps = int(rng.integers(1, 30))
        training = Training(
            records=7,
            steps=steps,
            step_size=rng.uniform(0.01, 1.0, steps),
            noise=rng.uniform(0.1, 1.0, steps),
            gradient_norm=1.0,
            batches=FullBatch(),
            diameter=rng.choice([math.inf, 0.5]),
            adjacency="replace",
        )
        loss = Loss(smoothness=1.5, regularization=rng.choice([0.0, 0.3]))
        string = THEOREM["taut-string"]
        mu = string.evaluate(training, loss).curve.mu
        louder = string.evaluate(training.scale_noise(1.1), loss).curve.mu
        assert louder == pytest.approx(mu / 1.1, rel=1e-9)
        assert string.evaluate(training.replace(records=8), loss).curve.mu <= mu
