"""Noisy descent runs exactly what it is given: against a plain reference and against exact laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from lastiterate import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
)
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import (
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.noise import SecureSource, SeededSource
from lastiterate.theory.run import Run
from lastiterate.train import bound_rows, noisy_descent

LOSSES = [
    Logistic(),
    Huber(0.3),
    SquaredError(0.4),
    SmoothedHinge(0.5),
    SquaredHinge(0.6),
    Softmax(3),
    OneVsRest(Logistic(), 3),
    OneVsRest(SquaredHinge(0.5), 4),
]
SCHEMES = [
    FullBatch(),
    Cyclic(4),
    Shuffled(4),
    Reshuffled(5),
    Poisson(0.2),
    WithoutReplacement(6),
]


def problem(loss, n=13, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = bound_rows(rng.standard_normal((n, d)), 1.0)
    outputs = loss.outputs()
    y = rng.integers(0, outputs, n) if outputs > 1 else rng.choice([-1.0, 1.0], n)
    return X, y


def describe(loss, batches, **changes):
    settings = {
        "records": 13,
        "steps": 12,
        "step_size": 0.4,
        "noise": 0.05,
        "gradient_norm": loss.gradient_norm(1.0),
        "batches": batches,
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def reference(loss, X, y, training, l2, seed, start, R=1.0):
    """The update rule, one record at a time, every gradient written out."""
    source = SeededSource(seed)
    stream = training.batches.rows(len(X), source)
    y = loss.targets(y)
    theta, history = start.copy(), []
    for k in range(training.steps):
        total = np.zeros_like(theta)
        for i in np.arange(len(X))[next(stream)]:
            slope = loss.slope((X[i] @ theta)[None], y[[i]])[0]
            if training.clipping == "margin":
                h = training.gradient_norm / (R * math.sqrt(loss.outputs()))
                slope = np.minimum(np.maximum(slope, -h), h)
            gradient = np.multiply.outer(X[i], slope)
            if training.clipping == "gradient":
                length = np.sqrt((gradient**2).sum())
                gradient = gradient * min(1.0, training.gradient_norm / max(length, 1e-300))
            assert np.sqrt((gradient**2).sum()) <= training.gradient_norm * (1 + 1e-12)
            total += gradient
        divisor = {"full": len(X), "poisson": getattr(training.batches, "rate", 0) * len(X)}.get(
            training.batches.name, getattr(training.batches, "size", None)
        )
        theta = theta - training.step_sizes[k] * (total / divisor + l2 * theta)
        theta = theta + training.noises[k] * source.normal(theta.shape)
        offset = theta - start
        length = np.sqrt((offset**2).sum())
        if length > training.diameter / 2:
            theta = start + offset / length * training.diameter / 2
        history.append(theta)
    window = training.release.window if isinstance(training.release, TailAverage) else 1
    return np.mean(history[-window:], axis=0)


@pytest.mark.parametrize("batches", SCHEMES, ids=str)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_the_engine_is_the_update_rule(loss, batches):
    X, y = problem(loss)
    R = 1.0
    shape = (3,) if loss.outputs() == 1 else (3, loss.outputs())
    start = np.random.default_rng(9).standard_normal(shape)
    clippings = ["none", "gradient"] + ([] if isinstance(loss, Softmax) else ["margin"])
    for clipping in clippings:
        K = loss.gradient_norm(R) * (1.0 if clipping == "none" else 0.4)
        run = describe(loss, batches, clipping=clipping, gradient_norm=K, diameter=1.1)
        expected = reference(loss, X, y, run, 0.03, 5, start)
        for data in (X, sp.csr_matrix(X), sp.coo_array(X), np.asfortranarray(X)):
            found = noisy_descent(
                loss,
                data,
                run,
                labels=y,
                regularization=0.03,
                start=start,
                feature_bound=R,
                random_state=5,
            )
            grid = found.training.arithmetic.grid
            assert 0 < grid <= 1e-6 * run.impulse * run.step_size
            # Every update rounds its map and its noise by half a unit, and the projection by one.
            np.testing.assert_allclose(
                found.parameters, expected, rtol=0, atol=3 * run.steps * grid
            )
            assert found.training.replace(arithmetic="exact") == run
            assert 0 < found.training.arithmetic.error < 1e-12 * run.impulse
            assert found.loss == loss.regularity(R, 0.03)
            assert found.experiment
            assert (found.partition_nonce is None) == (
                not isinstance(batches, (Shuffled, Reshuffled))
            )


def test_schedules_tail_average_and_single_precision():
    loss = Logistic()
    X, y = problem(loss)
    start = np.zeros(3)
    steps = 12
    run = describe(
        loss,
        Shuffled(4),
        steps=steps,
        release=TailAverage(5),
        step_size=np.linspace(0.1, 0.9, steps),
        noise=np.linspace(0.3, 0.0, steps),
    )
    expected = reference(loss, X, y, run, 0.1, 1, start)
    found = noisy_descent(loss, X, run, labels=y, regularization=0.1, random_state=1)
    grid = found.training.arithmetic.grid
    np.testing.assert_allclose(found.parameters, expected, rtol=0, atol=3 * steps * grid)
    single = noisy_descent(
        loss,
        bound_rows(X.astype(np.float32), 1.0),
        run,
        labels=y,
        regularization=0.1,
        random_state=1,
    )
    np.testing.assert_allclose(single.parameters, expected, rtol=1e-5)
    equal = describe(loss, Cyclic(4), schedule="equalised")
    expected = reference(loss, X, y, equal, 0.0, 1, start)
    assert equal.step_sizes[-1] < equal.step_sizes[0]
    found = noisy_descent(loss, X, equal, labels=y, random_state=1)
    grid = found.training.arithmetic.grid
    np.testing.assert_allclose(found.parameters, expected, rtol=0, atol=3 * equal.steps * grid)


def test_blocks_of_rows_add_up():
    """More rows than a block holds: the sum is that of all records, dense and gathered."""
    rng = np.random.default_rng(0)
    n = 40_000
    X = bound_rows(rng.standard_normal((n, 60)), 1.0)
    y = rng.choice([-1.0, 1.0], n)
    start = rng.standard_normal(60)
    slope = -y / (1 + np.exp(y * (X @ start)))
    for batches in (FullBatch(), WithoutReplacement(n), Poisson(1.0)):
        run = Training(
            records=n,
            steps=1,
            step_size=1.0,
            noise=0.0,
            gradient_norm=1.0,
            batches=batches,
            adjacency="replace",
        )
        found = noisy_descent(Logistic(), X, run, labels=y, start=start)
        expected = start - X.T @ slope / n
        np.testing.assert_allclose(found.parameters, expected, rtol=0, atol=1e-13)


def test_the_law_on_a_quadratic_is_gaussian_with_the_exact_mean_and_covariance():
    """Half squared error, clip never active: θ ← Mθ + ηb + ν·N(0, I), M = I − η(A + λ)."""
    rng = np.random.default_rng(1)
    n, d, steps, eta, nu, l2, runs = 6, 2, 7, 0.5, 0.3, 0.2, 1500
    X = bound_rows(rng.standard_normal((n, d)), 1.0)
    y = rng.standard_normal(n)
    loss = SquaredError(50.0)
    run = Training(
        records=n,
        steps=steps,
        step_size=eta,
        noise=nu,
        gradient_norm=50.0,
        batches=FullBatch(),
        clipping="margin",
        adjacency="replace",
    )
    source = SecureSource()
    found = np.array(
        [
            noisy_descent(loss, X, run, labels=y, regularization=l2, noise=source).parameters
            for _ in range(runs)
        ]
    )
    M = np.eye(d) - eta * (X.T @ X / n + l2 * np.eye(d))
    mean, covariance = np.zeros(d), np.zeros((d, d))
    for _ in range(steps):
        mean = M @ mean + eta * X.T @ y / n
        covariance = M @ covariance @ M.T + nu**2 * np.eye(d)
    white = np.linalg.solve(np.linalg.cholesky(covariance), (found - mean).T)
    assert np.abs(white.mean(axis=1)).max() < 5 / math.sqrt(runs)
    spread = white @ white.T / runs
    assert np.abs(np.diag(spread) - 1).max() < 5 * math.sqrt(2 / runs)
    assert abs(spread[0, 1]) < 5 / math.sqrt(runs)
    for coordinate in white:
        assert stats.kstest(coordinate, "norm").pvalue > 1e-6


def test_the_law_of_many_chains_at_once_with_a_gradient_function():
    """20,000 independent copies of a quadratic as one parameter matrix: a sharper test."""
    rng = np.random.default_rng(2)
    n, copies, steps, eta, nu = 3, 20_000, 9, 0.3, 0.7
    curvature, centre = rng.uniform(0.2, 1.0, n), rng.standard_normal(n)

    def gradient(theta, indices):
        return curvature[indices, None] * (theta[None, :] - centre[indices, None])

    run = Training(
        records=n,
        steps=steps,
        step_size=eta,
        noise=nu,
        gradient_norm=1e6,
        batches=FullBatch(),
        adjacency="replace",
    )
    found = noisy_descent(gradient, None, run, start=np.full(copies, 2.0))
    m, v = 2.0, 0.0
    for _ in range(steps):
        m -= eta * (curvature * (m - centre)).mean()
        v = (1 - eta * curvature.mean()) ** 2 * v + nu**2
    z = (found.parameters - m) / math.sqrt(v)
    assert stats.kstest(z, "norm").pvalue > 1e-6
    assert abs(z.mean()) < 5 / math.sqrt(copies)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / copies)
    assert found.loss is None
    assert not found.experiment


@pytest.mark.parametrize("batches", [Poisson(0.4), WithoutReplacement(2)], ids=str)
def test_fresh_batches_have_the_mean_of_the_full_batch(batches):
    """Batches are independent of the iterate and the divisor is nominal: the mean is exact."""
    rng = np.random.default_rng(3)
    n, steps, eta, runs = 5, 4, 0.7, 3000
    X = bound_rows(rng.standard_normal((n, 1)) + 1, 1.0)
    y = rng.standard_normal(n)
    run = Training(
        records=n,
        steps=steps,
        step_size=eta,
        noise=0.0,
        gradient_norm=50.0,
        batches=batches,
        clipping="margin",
        adjacency="replace",
    )
    source = SecureSource()
    ends = np.array(
        [
            noisy_descent(SquaredError(50.0), X, run, labels=y, noise=source).parameters[0]
            for _ in range(runs)
        ]
    )
    mean = 0.0
    for _ in range(steps):
        mean -= eta * (X[:, 0] * (X[:, 0] * mean - y)).mean()
    assert abs(ends.mean() - mean) < 5 * ends.std() / math.sqrt(runs)
    assert ends.std() > 0


def test_an_empty_poisson_batch_is_a_step_of_noise_and_shrinkage_alone():
    X, y = problem(Logistic())
    run = describe(Logistic(), Poisson(1e-12), noise=0.0)
    start = np.array([1.0, -2.0, 0.5])
    for data in (X, sp.csr_array(X)):
        found = noisy_descent(Logistic(), data, run, labels=y, regularization=0.5, start=start)
        expected = start * (1 - 0.4 * 0.5) ** 12
        np.testing.assert_allclose(found.parameters, expected, rtol=1e-12)

    def gradient(theta, indices):
        return np.ones((len(indices), 3))

    found = noisy_descent(gradient, None, run.replace(gradient_norm=2.0), start=start)
    np.testing.assert_allclose(found.parameters, start)


@pytest.mark.parametrize("centre", [np.zeros(3), np.array([5.0, -1.0, 2.0])])
def test_parameters_stay_in_the_ball_around_the_start(centre):
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch(), noise=3.0, diameter=1.0)
    for radius in (None, 0.2):
        ends = np.array(
            [
                noisy_descent(Logistic(), X, run, labels=y, start=centre, radius=radius).parameters
                for _ in range(20)
            ]
        )
        distances = np.linalg.norm(ends - centre, axis=1)
        assert distances.max() <= (radius or 0.5) * (1 + 1e-12)
        assert distances.max() > 0.99 * (radius or 0.5)
    with pytest.raises(DescriptionError, match="radius"):
        noisy_descent(Logistic(), X, run, labels=y, radius=0.6)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_no_update_expands_more_than_the_accountant_assumes(loss):
    """One noiseless step of the engine from two starts, for every way of clipping."""
    rng = np.random.default_rng(4)
    shape = (2,) if loss.outputs() == 1 else (2, loss.outputs())
    for k in range(60):
        X, y = problem(loss, n=3, d=2, seed=k)
        clipping = ["none", "gradient", "margin"][k % (2 if isinstance(loss, Softmax) else 3)]
        K = loss.gradient_norm(1.0) * (1.0 if clipping == "none" else rng.uniform(0.05, 0.9))
        run = describe(
            loss,
            FullBatch(),
            records=3,
            steps=1,
            noise=0.0,
            clipping=clipping,
            gradient_norm=K,
            step_size=rng.uniform(0.05, 1.9) / loss.smoothness(1.0),
        )
        l2 = rng.choice([0.0, 0.05])
        start = rng.standard_normal(shape) * 10 ** rng.uniform(-1, 1)
        other = start + rng.standard_normal(shape) * 10 ** rng.uniform(-4, 0)

        def step(theta, run=run, X=X, y=y, l2=l2):
            return noisy_descent(
                loss, X, run, labels=y, regularization=l2, start=theta, feature_bound=1.0
            ).parameters

        ratio = np.linalg.norm(step(start) - step(other)) / np.linalg.norm(start - other)
        assert ratio <= Run(run, loss.regularity(1.0, l2)).contraction[0] * (1 + 1e-10)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_data_that_is_not_finite_is_refused(wrong, form):
    X, y = problem(Logistic())
    X[4, 1] = wrong
    for clipping in ("none", "gradient"):
        run = describe(Logistic(), FullBatch(), clipping=clipping)
        with pytest.raises(AssumptionError, match="rows that hold NaN"):
            noisy_descent(Logistic(), form(X), run, labels=y)


def test_rows_that_are_too_long_are_neither_counted_nor_shown():
    said = set()
    for long in (1, 2, 5):
        X, y = problem(Logistic())
        X[:long] = [7.25, 0, 0]
        with pytest.raises(AssumptionError, match="rows with a norm above 1,") as caught:
            noisy_descent(Logistic(), X, describe(Logistic(), FullBatch()), labels=y)
        said.add(str(caught.value))
    assert len(said) == 1
    noisy_descent(Logistic(), bound_rows(X, 1.0), describe(Logistic(), FullBatch()), labels=y)


def test_entries_of_one_place_that_are_kept_apart_do_not_hide_a_long_row():
    parts = sp.csr_array((np.array([0.9, 0.9, 0.1]), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    assert not parts.has_canonical_format
    run = describe(Logistic(), FullBatch(), records=2)
    with pytest.raises(AssumptionError, match="rows with a norm above"):
        noisy_descent(Logistic(), parts, run, labels=[1.0, -1.0])
    assert parts.nnz == 3  # the caller's data is left alone


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_bounded_rows_pass_the_check_whatever_their_type(dtype, form):
    rng = np.random.default_rng(6)
    for R in (0.1, 1.0, 3.7, 1e3):
        X = (rng.standard_normal((500, 37)) * R).astype(dtype)
        X[0] = 0.0
        X[1] *= 0.01 / np.linalg.norm(X[1]) * R
        bounded = bound_rows(form(X), R)
        assert bounded.dtype == dtype
        dense = bounded.toarray() if sp.issparse(bounded) else bounded
        norms = np.linalg.norm(dense.astype(np.float64), axis=1)
        assert norms.max() <= R
        assert norms[2:].min() > R * (1 - 1e-5) * min(1, np.linalg.norm(X[2:], axis=1).min() / R)
        np.testing.assert_array_equal(dense[:2], X[:2])
        run = describe(
            Softmax(3), FullBatch(), records=500, gradient_norm=Softmax(3).gradient_norm(R)
        )
        noisy_descent(Softmax(3), bounded, run, labels=rng.integers(0, 3, 500))


def test_a_bound_that_the_loss_cannot_keep_is_refused():
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch(), gradient_norm=0.5)
    with pytest.raises(AssumptionError, match="gradients of norm"):
        noisy_descent(Logistic(), X, run, labels=y, feature_bound=1.0)
    with pytest.raises(AssumptionError, match=r"rows with a norm above 0\.5"):
        noisy_descent(Logistic(), X, run, labels=y)


def test_gradient_clipping_without_a_feature_bound_claims_no_smoothness():
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch(), clipping="gradient", gradient_norm=0.2)
    assert noisy_descent(Logistic(), X * 50, run, labels=y).loss.kind == "unknown"
    bounded = noisy_descent(Logistic(), X, run, labels=y, feature_bound=1.0)
    assert bounded.loss == Logistic().regularity(1.0)
    assert bounded.loss.provenance == "proved"


def test_margin_clipping_needs_a_margin_and_a_bound():
    X, y = problem(Logistic())
    run = describe(Logistic(), FullBatch(), clipping="margin", gradient_norm=0.2)
    with pytest.raises(DescriptionError, match="feature_bound"):
        noisy_descent(Logistic(), X, run, labels=y)
    with pytest.raises(UnsupportedError, match="OneVsRest"):
        noisy_descent(Softmax(2), X, run, labels=(y > 0).astype(int), feature_bound=1.0)
    with pytest.raises(UnsupportedError, match="margin"):
        noisy_descent(lambda theta, i: np.zeros((len(i), 2)), None, run, start=np.zeros(2))


def test_a_gradient_function_is_held_to_its_bound():
    def gradient(theta, indices):
        rows = np.zeros((len(indices), 2))
        rows[:, 0] = np.where(indices == 3, 9.0, 1.0)
        return rows

    run = describe(Logistic(), FullBatch(), gradient_norm=2.0, noise=0.0, steps=1, step_size=13.0)
    with pytest.raises(AssumptionError, match="A per-record gradient is longer"):
        noisy_descent(gradient, None, run, start=np.zeros(2))
    clipped = noisy_descent(gradient, None, run.replace(clipping="gradient"), start=np.zeros(2))
    np.testing.assert_allclose(clipped.parameters, [-(12 * 1.0 + 2.0), 0.0])
    nowhere = run.replace(clipping="gradient")
    for wrong in (np.nan, np.inf):
        told = (lambda t, i, wrong=wrong: np.full((len(i), 2), wrong)), None
        assert not noisy_descent(*told, nowhere, start=np.zeros(2)).parameters.any()
        with pytest.raises(AssumptionError, match="not finite"):
            noisy_descent(*told, run, start=np.zeros(2))
    with pytest.raises(DescriptionError, match="one gradient per record"):
        noisy_descent(lambda t, i: np.zeros(2), None, nowhere, start=np.zeros(2))


def test_a_gradient_function_cannot_change_the_iterate():
    def gradient(theta, indices):
        theta[:] = 100.0
        return np.zeros((len(indices), 2))

    run = describe(Logistic(), FullBatch(), noise=0.0)
    assert (noisy_descent(gradient, None, run, start=np.ones(2)).parameters == 1.0).all()


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"labels": None}, "labels"),
        ({"labels": np.ones(12)}, "labels"),
        ({"data": np.zeros((12, 3))}, "data"),
        ({"data": np.zeros(13)}, "data"),
        ({"data": np.array([["a"]] * 13)}, "data"),
        ({"start": np.zeros(4)}, "start"),
        ({"start": np.array([0, 0, np.nan])}, "start"),
        ({"regularization": -1.0}, "regularization"),
        ({"feature_bound": -1.0}, "feature_bound"),
        ({"noise": SecureSource(), "random_state": 1}, "random_state"),
        ({"objective": 3}, "objective"),
    ],
)
def test_arguments_that_do_not_fit_are_named(changes, field):
    X, y = problem(Logistic())
    given = {"objective": Logistic(), "data": X, "labels": y, **changes}
    run = describe(Logistic(), FullBatch())
    with pytest.raises(DescriptionError, match=field):
        noisy_descent(given.pop("objective"), given.pop("data"), run, **given)


def test_a_run_that_diverges_releases_nothing():
    X, y = problem(SquaredError(1.0))
    run = describe(Logistic(), FullBatch(), step_size=1e3, steps=400)
    with pytest.raises(AssumptionError, match="diverged"):
        noisy_descent(Logistic(), X, run, labels=y, regularization=1.0)


def test_no_steps_release_the_start_and_released_parameters_cannot_be_changed():
    X, y = problem(Logistic())
    found = noisy_descent(Logistic(), X, describe(Logistic(), FullBatch(), steps=0), labels=y)
    assert (found.parameters == 0).all()
    with pytest.raises(ValueError, match="read-only"):
        found.parameters[0] = 1.0


def test_seeds_repeat_and_secure_runs_do_not():
    X, y = problem(Logistic())
    run = describe(Logistic(), Reshuffled(4))

    def end(**how):
        return noisy_descent(Logistic(), X, run, labels=y, **how)

    assert (end(random_state=3).parameters == end(random_state=3).parameters).all()
    assert end(random_state=3).experiment
    assert end(noise=SeededSource(3)).experiment
    assert (end(random_state=3).parameters == end(noise=SeededSource(3)).parameters).all()
    assert not end().experiment
    assert (end().parameters != end().parameters).all()


def test_tables_and_whole_numbers_are_read():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame({"a": [1, 0, 0], "b": [0, 1, 0]})
    y = pandas.Series([1, -1, 1])
    run = describe(Logistic(), FullBatch(), records=3, noise=0.0)
    found = noisy_descent(Logistic(), X, run, labels=y)
    expected = noisy_descent(Logistic(), X.to_numpy(float), run, labels=y.to_numpy())
    assert (found.parameters == expected.parameters).all()


class Zeros(SecureSource):
    """No noise at all, and it says that it is secure."""

    def normal(self, shape):
        return np.zeros(shape)


class SecureByWord:
    secure = True

    def __getattr__(self, name):
        return getattr(SeededSource(0), name)


@pytest.mark.parametrize("noise", [Zeros(), SecureByWord()], ids=["subclass", "own class"])
@pytest.mark.parametrize("backend", ["numpy", "torch", "module"])
def test_a_source_that_calls_itself_secure_makes_an_experiment(noise, backend):
    run = Training(
        records=4,
        steps=2,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        clipping="gradient",
        adjacency="replace",
    )
    X, y = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0])
    if backend == "numpy":
        done = noisy_descent(Logistic(), X, run, labels=y, noise=noise)
    else:
        torch = pytest.importorskip("torch")
        from lastiterate.torch import noisy_module_descent

        if backend == "torch":
            done = noisy_descent(Logistic(), torch.from_numpy(X), run, labels=y, noise=noise)
        else:
            net = torch.nn.Linear(4, 2)
            labels = torch.tensor([0, 1, 0, 1])
            criterion = torch.nn.CrossEntropyLoss()
            inputs = torch.eye(4)
            done = noisy_module_descent(net, criterion, inputs, labels, run, noise=noise)
    assert done.experiment
    assert "source of your own" in done.objection


@pytest.mark.parametrize(
    "batches", [FullBatch(), Cyclic(2), Shuffled(2), Reshuffled(2), WithoutReplacement(2)]
)
def test_a_function_that_writes_into_its_indices_moves_no_later_batch(batches):
    """One that counts from 1, say: every record must still come once in every epoch."""
    run = Training(
        records=6,
        steps=9,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=batches,
        clipping="gradient",
        adjacency="replace",
    )
    seen = []

    def gradient(parameters, indices):
        seen.append(indices.copy())
        indices[:] = 0
        parameters[:] = 9.0
        return np.zeros((len(indices), 2))

    noisy_descent(gradient, None, run, start=np.zeros(2))
    for batch in seen:
        assert len(np.unique(batch)) == len(batch)
    if batches.ordered:
        per_epoch = batches.per_epoch(6)
        for first in range(0, 9, per_epoch):
            epoch = np.concatenate(seen[first : first + per_epoch])
            assert sorted(epoch) == list(range(6))


@pytest.mark.parametrize("kind", [complex, str, object])
def test_gradients_that_are_no_real_numbers_are_refused(kind):
    run = Training(
        records=2,
        steps=1,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        clipping="gradient",
        adjacency="replace",
    )
    with pytest.raises(DescriptionError, match="real numbers"):
        noisy_descent(lambda theta, rows: np.ones((2, 2), kind), None, run, start=np.zeros(2))
