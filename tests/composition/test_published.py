"""He, Wang & Tao's composition theorems as printed: each is refuted here by its counterexample."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from lastiterate.composition import chernoff, heterogeneous, kairouz_forms, optimal
from lastiterate.errors import UnsupportedError
from lastiterate.published.he_wang_tao import corollary_2, corollary_3, theorem_4, theorem_6

EPSILONS = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 1.0, 2.0, 3.0, 5.0]
ROUNDS = [1, 2, 3, 5, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000]
DELTAS = [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-10, 1e-12]


@cache
def on_the_grid() -> tuple[np.ndarray, np.ndarray]:
    """Printed and smallest true delta' at EPSILONS x ROUNDS x DELTAS x slacks DELTAS."""
    shape = (len(EPSILONS), len(ROUNDS), len(DELTAS), len(DELTAS))
    claimed, best = np.empty(shape), np.empty(shape)
    for (i, j, k, m), _ in np.ndenumerate(claimed):
        claim = corollary_2(EPSILONS[i], DELTAS[k], ROUNDS[j], DELTAS[m])
        claimed[i, j, k, m] = claim.delta
        tail = _tail(EPSILONS[i], ROUNDS[j], claim.epsilon)
        best[i, j, k, m] = -math.expm1(ROUNDS[j] * math.log1p(-DELTAS[k]) + math.log1p(-tail))
    return claimed, best


@cache
def _tail(epsilon: float, rounds: int, target: float) -> float:
    return optimal(epsilon, 0.0, rounds, target)


def below_the_truth() -> np.ndarray:
    claimed, best = on_the_grid()
    return claimed < best * (1 - 1e-9)


def test_corollary_2_headline() -> None:
    claim = corollary_2(1.0, 1e-5, 1000, 1e-6)
    assert f"{claim.epsilon:.2f}" == "628.34"
    assert f"{claim.delta:.3e}" == "8.267e-03"
    assert f"{optimal(1.0, 1e-5, 1000, claim.epsilon):.3e}" == "9.950e-03"


def test_corollary_2_is_below_what_revealing_alone_costs() -> None:
    # M reveals its record with probability delta: P("some round revealed") against probability 0
    claim = corollary_2(1.0, 1e-5, 1000, 1e-6)
    assert claim.delta < -math.expm1(1000 * math.log1p(-1e-5))


def test_corollary_2_holds_for_few_rounds() -> None:
    claim = corollary_2(1.0, 1e-5, 10, 1e-6)
    assert claim.delta >= optimal(1.0, 1e-5, 10, claim.epsilon)


def test_share_of_the_grid_where_corollary_2_fails() -> None:
    violated = below_the_truth()
    assert violated.size == 8448
    assert violated.sum() == 1407
    by_rounds, by_epsilon = violated.sum(axis=(0, 2, 3)), violated.sum(axis=(1, 2, 3))
    assert by_rounds[:6].tolist() == [0] * 6
    assert by_rounds[6] == 160
    assert (by_rounds[9:].min(), by_rounds[9:].max()) == (249, 269)
    assert (by_epsilon[0], by_epsilon[6], by_epsilon[-1]) == (54, 218, 0)

    claimed, best = on_the_grid()
    worst = np.unravel_index(np.argmin(claimed / best), violated.shape)
    assert f"{(claimed / best)[worst]:.2f}" == "0.76"
    axes = (EPSILONS, ROUNDS, DELTAS, DELTAS)
    place = [axis[i] for axis, i in zip(axes, worst, strict=True)]
    assert place == [1.0, 100_000, 1e-8, 1e-7]


def test_rule_of_thumb_for_the_violated_region() -> None:
    violated = below_the_truth()
    e, t, d, s = np.meshgrid(EPSILONS, ROUNDS, DELTAS, DELTAS, indexing="ij")
    target = np.array(
        [[[min(kairouz_forms(x, r, y)) for y in DELTAS] for r in ROUNDS] for x in EPSILONS]
    )[:, :, None, :]
    full = np.minimum(t, np.ceil(target / e * (1 - 1e-12)))
    rule = (t - full) * d * np.tanh(e / 2) > s
    assert not np.any(violated & ~rule)
    small = t * d <= 0.01 * (1 + 1e-9)
    assert small.sum() == 7040
    assert (violated == rule)[small].sum() == 6969


def test_kairouz_is_never_violated_on_the_grid() -> None:
    _, t, d, s = np.meshgrid(EPSILONS, ROUNDS, DELTAS, DELTAS, indexing="ij")
    claimed = -np.expm1(t * np.log1p(-d) + np.log1p(-s))
    assert np.all(claimed >= on_the_grid()[1] * (1 - 1e-9))


def test_unequal_rounds_fall_below_the_floor() -> None:
    # the printed maximum is relaxed upwards, so the true printed value is lower still
    rng = np.random.default_rng(0)
    below = {theorem_4: 0, theorem_6: 0}
    for _ in range(100):
        rounds = int(rng.integers(200, 2000))
        epsilons = rng.uniform(0.05, 1.0, rounds).tolist()
        deltas = (10 ** rng.uniform(-7, -5, rounds)).tolist()
        floor = -math.expm1(math.fsum(math.log1p(-d) for d in deltas))
        for theorem in below:
            below[theorem] += theorem(epsilons, deltas, 1e-6).delta < floor
    assert set(below.values()) == {100}


def test_theorem_4_agrees_with_corollary_2_on_equal_rounds() -> None:
    # m = eps'/eps is rounded up in the corollary; the theorem's chord takes the fraction
    equal, listed = corollary_2(0.5, 1e-6, 300, 1e-6), theorem_4([0.5] * 300, [1e-6] * 300, 1e-6)
    assert listed.epsilon == pytest.approx(equal.epsilon, rel=1e-12)
    assert equal.delta - 1e-6 <= listed.delta <= equal.delta
    assert heterogeneous([0.5] * 300, [1e-6] * 300, listed.epsilon).lower > listed.delta


def test_corollary_3_is_false_without_any_delta() -> None:
    claim = corollary_3(0.1, 0.0, 100, 1e-5)
    truth = optimal(0.1, 0.0, 100, claim.epsilon)
    corrected = chernoff(0.1, 100, claim.epsilon)
    assert [f"{x:.1e}" for x in (claim.delta, truth, corrected)] == [
        "1.1e-12",
        "6.2e-08",
        "4.8e-06",
    ]


def test_corollary_3_says_where_it_is_undefined() -> None:
    with pytest.raises(UnsupportedError, match="undefined"):
        corollary_3(1.0, 0.0, 2, 1e-5)
