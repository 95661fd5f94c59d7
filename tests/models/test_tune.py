"""Private selection: its bound against the exact law of the best of a random number of trials."""

from __future__ import annotations

import math
import sys
import warnings
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer

from lastiterate import Cyclic, account
from lastiterate._internal import progress
from lastiterate.errors import DescriptionError, TargetError, UnsupportedError
from lastiterate.losses import Logistic
from lastiterate.models import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateStandardScaler,
    tune,
)
from lastiterate.models.choose import choose
from lastiterate.models.tune import (
    _expected,
    _gamma,
    _number_of_trials,
    _score,
    gaussian_run,
    score_sensitivity,
    selected,
)
from lastiterate.noise import source


def best_of_random_number(trial: np.ndarray, gamma: float) -> np.ndarray:
    """The law of the largest of k draws, k logarithmic: differences of its generating function."""
    below = np.concatenate([[0.0], np.cumsum(trial)])
    distribution = np.log1p(-(1 - gamma) * np.minimum(below, 1.0)) / math.log(gamma)
    return np.diff(distribution)


@given(st.floats(0.05, 2.0), st.floats(1.2, 50.0), st.integers(0, 10**6))
@settings(max_examples=150, deadline=None)
def test_the_bound_is_above_the_exact_law(mu: float, trials: float, seed: int) -> None:
    """Trials: a Gaussian shifted by mu or not, cut into bins whose ranking is arbitrary."""
    rng = np.random.default_rng(seed)
    gamma = _gamma(trials)
    edges = np.concatenate([[-np.inf], np.sort(rng.normal(mu / 2, 1.5, 8)), [np.inf]])
    ranking = rng.permutation(9) if seed % 2 else np.arange(9)
    with np.errstate(all="ignore"):
        p, q = (np.diff(norm.cdf(edges, loc))[ranking] for loc in (mu, 0.0))
    p, q = best_of_random_number(p, gamma), best_of_random_number(q, gamma)
    curve = selected(mu, gamma)
    kept = (p > 1e-12) & (q > 1e-12)
    for one, other in ((p[kept], q[kept]), (q[kept], p[kept])):
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            delta = np.maximum(one - math.exp(epsilon) * other, 0).sum()
            assert curve.delta(epsilon) >= delta * (1 - 1e-9) - 1e-10
        for order in (1.5, 4.0, 16.0):
            exact = np.log((one**order * other ** (1 - order)).sum()) / (order - 1)
            assert curve.bound(order) >= exact - 1e-9


def test_a_fixed_number_of_trials_breaks_the_bound() -> None:
    """Random stopping is what makes it cheap: the best of a million trials is far above it."""
    mu, count, threshold = 0.3, 10**6, 4.83
    p, q = (math.exp(count * norm.logcdf(threshold - shift)) for shift in (mu, 0.0))
    assert selected(mu, _gamma(1.5)).delta(1.0) < q - math.e * p


def test_the_number_of_trials_has_its_law() -> None:
    gamma, draws = _gamma(4.0), source(0)
    assert _expected(gamma) == pytest.approx(4.0)
    counts = np.array([_number_of_trials(gamma, draws) for _ in range(20_000)])
    k = np.arange(1, 6)
    law = (1 - gamma) ** k / (k * math.log(1 / gamma))
    seen = np.array([(counts == value).mean() for value in k])
    assert seen == pytest.approx(law, abs=5 * math.sqrt(0.25 / 20_000))


class Bits:
    """A source whose next number in [0, 1) is this one."""

    def __init__(self, value: Any) -> None:
        self._bits = int(mpmath.floor(value * mpmath.mpf(2) ** 265))

    def integers(self, bound: int, size: int) -> np.ndarray:
        assert (bound, size) == (2**53, 5)
        return np.array([self._bits >> (53 * place) & (bound - 1) for place in range(size)])


@pytest.mark.parametrize("trials", [1.5, 4.0, 60.0])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_the_number_of_trials_has_its_law_to_many_digits(trials: float, count: int) -> None:
    """Doubles were off by 1e-16 at every number of trials: no delta pays for that."""
    gamma = _gamma(trials)
    with mpmath.workdps(120):
        q = 1 - mpmath.mpf(gamma)
        below = sum(q**k / k for k in range(1, count + 1)) / -mpmath.log(gamma)
        near = mpmath.mpf(10) ** -70
        assert _number_of_trials(gamma, Bits(below - near)) == count
        assert _number_of_trials(gamma, Bits(below + near)) == count + 1


@pytest.mark.parametrize("mu", [0.05, 1.0])
def test_trials_are_gaussian_even_if_the_batches_were_known(mu: float) -> None:
    chosen = choose(Logistic(), records=3000, row_norm=1.0, epsilon=1.0, delta=1e-6)
    run = gaussian_run(chosen, mu)
    known = account(run.replace(batches=Cyclic(run.batches.size)), chosen.loss)
    assert mu * (1 - 1e-6) <= known.mu <= mu


def test_selecting_finds_the_sensible_candidate() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    X = X / np.abs(X).max(axis=0)
    model = PrivateLogisticRegression(epsilon=20.0, delta=1e-4)
    found = tune(model, {"regularization": [1e-3, 1e3]}, X, y, trials=12.0, random_state=3)
    assert found.parameters == {"regularization": 1e-3}
    assert found.with_secure_noise <= 20.0
    assert found.model.certificate_ is None
    assert "random stopping" in str(found)


def test_a_regression_can_be_tuned() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    model = PrivateRidge(epsilon=5.0, delta=1e-5, feature_bound=1.5, target_bound=2.0)
    found = tune(model, [{"regularization": 0.01}], X, X @ [1.0, 0.5], random_state=0)
    assert found.model.score(X, X @ [1.0, 0.5]) > 0.5


@pytest.mark.parametrize(
    ("grid", "error"),
    [
        ({"epsilon": [1, 2]}, DescriptionError),
        ([], DescriptionError),
        ({"random_state": [1]}, DescriptionError),
        ({"prepare": [PrivateStandardScaler()]}, UnsupportedError),
    ],
)
def test_refusals(grid: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        tune(PrivateLogisticRegression(1.0, 1e-4), grid, np.zeros((4, 1)), [0, 1, 0, 1])


def test_an_impossible_budget_is_named() -> None:
    with pytest.raises(TargetError, match="fewer trials"):
        tune(
            PrivateLogisticRegression(1e-9, 1e-12),
            {"regularization": [1.0]},
            np.zeros((4, 1)),
            [0, 1, 0, 1],
            trials=100.0,
        )


def small(**given: Any) -> tuple[Any, Any, Any, Any]:
    X = np.random.default_rng(0).standard_normal((80, 2))
    model = PrivateLogisticRegression(8.0, 1e-3, steps=4, **given)
    return model, {"regularization": [0.01, 0.1]}, X, X[:, 0] > 0


@pytest.mark.parametrize("seeded", ["tune", "model", "generator"])
def test_a_seeded_selection_is_no_guarantee(seeded: str) -> None:
    """Whoever knows the seed knows the candidates, the noise of the scores and of the trials."""
    given = {"random_state": 3} if seeded == "model" else {}
    draws = {"tune": 3, "model": None, "generator": np.random.default_rng(3)}[seeded]
    found = tune(*small(**given), random_state=draws)
    assert found.experiment
    assert math.isinf(found.epsilon)
    assert found.with_secure_noise <= 8.0
    assert str(found).startswith("NOT A GUARANTEE")
    assert "inf" in str(found)
    assert "experiment=True" in repr(found)
    assert "epsilon=inf" in repr(found)
    assert found.model.certificate_ is None


def test_a_secure_selection_is_one() -> None:
    found = tune(*small())
    assert not found.experiment
    assert found.epsilon == found.with_secure_noise <= 8.0
    assert "NOT A GUARANTEE" not in str(found)
    assert "which classes occur" in str(found)
    assert "which classes occur" not in str(tune(*small(classes=[False, True])))


def test_the_printed_epsilon_is_rounded_up() -> None:
    found = tune(*small())
    said = float(str(found).split("epsilon = ")[1].split()[0])
    assert found.epsilon <= said <= found.epsilon * 1.001


@pytest.mark.parametrize("column", [False, True])
def test_one_record_moves_a_score_by_what_is_charged(column: bool) -> None:
    """A column of labels is compared with all predictions: that moved the score by twice as much.

    Scores of a regression are means of doubles, whose rounding is charged, too.
    """
    rng = np.random.default_rng(0)
    n = 2000
    x, sign = np.ones((n, 1)), np.ones(n, dtype=int)
    x[0], sign[0] = -1.0, 0
    settings: dict[str, Any] = {"epsilon": math.inf, "fit_intercept": False, "steps": 20}
    classifier = PrivateLogisticRegression(**settings).fit(x, sign)
    other_x, other = np.abs(x), np.ones(n, dtype=int)
    values = rng.uniform(-1, 1, n)
    ridge = PrivateRidge(**settings, feature_bound=1.0).fit(x, values)

    def score(trial: Any, X: np.ndarray, y: np.ndarray) -> Fraction:
        return Fraction(_score(trial, X, y[:, None] if column else y))

    moved = abs(score(classifier, x, sign) - score(classifier, other_x, other))
    assert moved <= Fraction(score_sensitivity(n))
    near, far = values.copy(), values.copy()
    near[0], far[0] = ridge.predict(x[:1])[0], 50.0
    moves = []
    for k in range(50):
        order = np.concatenate([[0], 1 + rng.permutation(n - 1)[k:]])
        m = len(order)
        move = abs(score(ridge, x[order], near[order]) - score(ridge, x[order], far[order]))
        assert move <= Fraction(score_sensitivity(m))
        moves.append(move > Fraction(1, m))
    assert any(moves)  # the rounding is real


def test_noisy_scores_are_whole_numbers_of_their_grid_and_have_their_noise() -> None:
    """From few records to many, from vast noise to next to none: nothing but the grid is shown."""
    from lastiterate.models.tune import noisy_score, score_grid, score_sensitivity
    from lastiterate.noise import SecureSource

    source = SecureSource()
    for records in (2, 1000, 10**9):
        for mu in (1e-6, 0.01, 1.0, 300.0):
            grid = score_grid(records, mu)
            assert grid <= max(1, 2.0**-12 / mu) * 2.0**-24 / records
            whole = [noisy_score(0.7, records, mu, source) for _ in range(400)]
            assert {type(number) for number in whole} == {int}
            drawn = grid * np.array(whole, float)
            expected = (score_sensitivity(records) + grid) / mu
            assert drawn.std() == pytest.approx(expected, rel=0.25)
            assert abs(drawn.mean() - 0.7) < 6 * expected / 20 + grid


@pytest.mark.parametrize("strict", [False, True])
def test_nothing_that_is_shown_tells_the_number_of_trials(
    strict: bool, capfd: Any, caplog: Any, monkeypatch: Any
) -> None:
    """One warning and one line of progress per trial told it, in 12 of 12 calls."""
    ranges = {"feature_range": ([0.0, 0.0], [1.0, 1000.0]), "prepare": None}
    regression = PrivateRidge(8.0, 1e-3, steps=4, target_bound=1.0, **ranges)
    seen = []
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    monkeypatch.setattr(progress, "_PAUSE", -1.0)
    for trials in (1, 6):
        monkeypatch.setattr(
            sys.modules[tune.__module__], "_number_of_trials", lambda *_, trials=trials: trials
        )
        for run in (small(classes=[False, True], **ranges), (regression, *small()[1:])):
            with warnings.catch_warnings(record=True) as caught, monkeypatch.context() as patch:
                warnings.simplefilter("error" if strict else "always")
                patch.setattr(sys.stderr, "isatty", lambda: True)
                tune(*run)
            shown = capfd.readouterr()
            lines = {line.partition(":")[0] for line in shown.err.replace("\r", "\n").split("\n")}
            assert lines <= {"", "selection"}
            seen.append(([str(each.message) for each in caught], shown.out))
    assert seen == [([], "")] * 4
    assert not caplog.records
