"""Samplers against the exact law of the discretised chain, not only against the target."""

import math

import numpy as np
import pytest

from lastiterate.description import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    WithoutReplacement,
)
from lastiterate.errors import DescriptionError
from lastiterate.sampling import (
    Samples,
    gaussian_likelihood,
    logistic_likelihood,
    sgld,
    sgld_training,
)
from lastiterate.sampling.likelihood import RecordGradients

CHAINS = 20_000


def decaying_steps(steps, first):
    """Welling and Teh's schedule."""
    return first * (1.0 + np.arange(steps)) ** -0.55


def regression(n=24, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    return X, X @ np.arange(1.0, d + 1) + 0.5 * rng.standard_normal(n)


def exact_law(X, y, order, steps, etas, alpha, beta, temperature):
    """Mean and covariance of SGLD from 0 on linear-Gaussian data with the given batches."""
    n, d = X.shape
    mean, cov = np.zeros(d), np.zeros((d, d))
    for t in range(steps):
        rows = order(t)
        scale, eta = n / len(rows), etas[t]
        hessian = alpha * np.eye(d) + scale * beta * X[rows].T @ X[rows]
        step = np.eye(d) - eta / 2 * hessian
        mean = step @ mean + eta / 2 * scale * beta * X[rows].T @ y[rows]
        cov = step @ cov @ step.T + eta * temperature * np.eye(d)
    return mean, cov


def assert_law(draws, mean, cov, sigmas=4.5):
    """Sample mean and covariance within Monte-Carlo error of the exact ones."""
    m = len(draws)
    assert np.all(np.abs(draws.mean(0) - mean) < sigmas * np.sqrt(np.diag(cov) / m) + 1e-12)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / m)
    assert np.all(np.abs(np.cov(draws.T) - cov) < sigmas * error + 1e-12)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("size", [None, 6])
def test_law_of_full_and_cyclic_batches(size, backend, temperature) -> None:
    if backend == "torch":
        pytest.importorskip("torch")
    X, y = regression()
    steps, alpha, beta = 37, 1.5, 0.8
    etas = decaying_steps(steps, 0.02)
    batches = FullBatch() if size is None else Cyclic(size)
    samples = sgld(
        gaussian_likelihood(beta),
        X,
        y,
        np.zeros((CHAINS, 3)),
        steps=steps,
        step_size=etas,
        batches=batches,
        prior_precision=alpha,
        temperature=temperature,
        burn_in=steps - 1,
        backend=backend,
        random_state=1,
    )

    def order(t):
        return np.arange(24) if size is None else np.arange(6) + 6 * (t % 4)

    assert_law(samples.draws[:, -1], *exact_law(X, y, order, steps, etas, alpha, beta, temperature))


def test_long_run_has_the_stationary_law_of_the_discretisation_not_of_the_target() -> None:
    X, y = regression()
    eta, alpha = 0.05, 1.0
    samples = sgld(
        gaussian_likelihood(),
        X,
        y,
        np.zeros((CHAINS, 3)),
        steps=200,
        step_size=eta,
        prior_precision=alpha,
        burn_in=199,
        random_state=2,
    )
    hessian = alpha * np.eye(3) + X.T @ X
    step = np.eye(3) - eta / 2 * hessian
    stationary = eta * np.linalg.inv(np.eye(3) - step @ step)
    target = np.linalg.inv(hessian)
    assert_law(samples.draws[:, -1], target @ X.T @ y, stationary)
    gap = np.abs(np.cov(samples.draws[:, -1].T) - target).max()
    assert gap > 0.1 * target.max()  # the test above would notice the wrong law


@pytest.mark.parametrize(
    "batches", [Shuffled(6), Reshuffled(6), WithoutReplacement(6), Poisson(0.25)]
)
def test_random_batches_are_unbiased_and_independent_between_chains(batches) -> None:
    """One step from 0: the mean of the full gradient, the variance of the batch sum added."""
    X, y = regression()
    eta = 0.04
    samples = sgld(
        gaussian_likelihood(),
        X,
        y,
        np.zeros((CHAINS, 3)),
        steps=1,
        step_size=eta,
        batches=batches,
        random_state=3,
    )
    each = X * y[:, None]
    if isinstance(batches, Poisson):
        spread = 0.25 * 0.75 * each.T @ each / 0.25**2
    else:
        spread = np.cov(each.T) * 24**2 / 6 * (1 - 6 / 24)
    cov = eta * np.eye(3) + eta**2 / 4 * spread
    draws = samples.draws[:, 0]
    assert_law(draws, eta / 2 * each.sum(0), cov, sigmas=5.5)
    # an epoch of a partition uses every record once: two half epochs add to the full gradient
    if isinstance(batches, Shuffled | Reshuffled):
        cold = sgld(
            lambda t, x, b: x * b[..., None],
            X,
            y,
            np.zeros((50, 3)),
            steps=4,
            step_size=eta,
            batches=batches,
            prior_precision=0.0,
            temperature=0.0,
            random_state=4,
        )
        np.testing.assert_allclose(
            cold.draws[:, -1], np.tile(4 * eta / 2 * each.sum(0), (50, 1)), rtol=1e-12
        )
        assert np.ptp(cold.draws[:, 0], axis=0).min() > 0


@pytest.mark.parametrize("clip", [None, 0.7])
@pytest.mark.parametrize("batches", [Cyclic(6), Shuffled(6), Poisson(0.5)])
def test_generalised_linear_shortcut_equals_per_record_gradients(batches, clip) -> None:
    X, y = regression()
    labels = (y > 0).astype(float)

    def gradients(theta, X, y):
        margin = (X * theta[:, None, :]).sum(-1)
        return (y - 1 / (1 + np.exp(-margin)))[..., None] * X

    runs = [
        sgld(
            model,
            X,
            labels,
            np.zeros((4, 3)),
            steps=30,
            step_size=0.05,
            batches=batches,
            clip=clip,
            random_state=5,
        )
        for model in (logistic_likelihood(), gradients, RecordGradients(gradients))
    ]
    np.testing.assert_allclose(runs[0].draws, runs[1].draws, rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(runs[1].draws, runs[2].draws)


def test_clipped_step_moves_at_most_by_the_sensitivity() -> None:
    """Heller & Fetaya 2022, eq. (66): replacing a record moves a noiseless step by at most eta n C
    / b.
    """
    X, y = regression()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X2, y2 = X.copy(), y.copy()
        X2[3], y2[3] = 100 * rng.standard_normal(3), 1e3
        start = 5 * rng.standard_normal((1, 3))
        kinds = {"steps": 1, "step_size": 0.1, "batches": Cyclic(6), "clip": 0.4}
        one, other = (
            sgld(gaussian_likelihood(), a, b, start, temperature=0.0, **kinds)
            for a, b in ((X, y), (X2, y2))
        )
        gap = np.linalg.norm(one.last - other.last)
        training = sgld_training(24, 1, 0.1, 0.4, Cyclic(6), adjacency="replace")
        limit = training.step_size * training.sensitivity / 6
        assert 0.05 * limit < gap <= limit * (1 + 1e-12)
        assert limit == pytest.approx(0.1 * 24 * 0.4 / 6)


def test_numpy_and_torch_walk_the_same_path_on_the_same_noise() -> None:
    torch = pytest.importorskip("torch")
    X, y = regression()
    labels = (y > 0).astype(float)
    noise = np.random.default_rng(0).standard_normal((40, 6, 3))
    for batches in (Cyclic(6), Shuffled(6), Poisson(0.3)):
        runs = []
        for wrap in (np.asarray, torch.tensor):
            source = iter(noise)
            runs.append(
                sgld(
                    logistic_likelihood(),
                    wrap(X),
                    wrap(labels),
                    np.zeros((6, 3)),
                    steps=40,
                    step_size=0.05,
                    batches=batches,
                    clip=0.5,
                    random_state=9,
                    normals=lambda shape, source=source, wrap=wrap: wrap(next(source)),
                )
            )
        assert isinstance(runs[1].last, torch.Tensor)
        np.testing.assert_allclose(runs[0].draws, runs[1].draws, rtol=1e-9, atol=1e-12)


def test_description_of_the_clipped_sampler_is_what_ran() -> None:
    X, y = regression()
    etas = decaying_steps(12, 1e-3)
    clipped = sgld(
        gaussian_likelihood(),
        X,
        y,
        np.zeros(3),
        steps=12,
        step_size=etas,
        batches=Shuffled(6),
        clip=2.0,
        temperature=0.5,
    ).training
    assert clipped is not None
    assert (clipped.records, clipped.steps, clipped.gradient_norm) == (24, 12, 2.0)
    assert (clipped.batches, clipped.clipping, clipped.sensitivity) == (Shuffled(6), "gradient", 2)
    np.testing.assert_allclose(np.asarray(list(clipped.step_size)), etas * 12)
    np.testing.assert_allclose(np.asarray(list(clipped.noise)), np.sqrt(etas * 0.5))
    plain = sgld(gaussian_likelihood(), X, y, np.zeros(3), steps=2, step_size=1e-3)
    assert plain.training is None


def test_arviz_reads_the_result_and_judges_convergence() -> None:
    arviz = pytest.importorskip("arviz")
    X, y = regression()
    settings = {"steps": 1500, "step_size": 0.02, "random_state": 0}
    good = sgld(gaussian_likelihood(), X, y, np.zeros((4, 3)), burn_in=300, **settings)
    assert np.all(good.rhat() < 1.03)
    line = sgld(gaussian_likelihood(), X[:, :1], y, np.zeros((8, 1)), burn_in=300, **settings)
    memory = 1 - 0.01 * (1 + X[:, 0] @ X[:, 0])  # the chain is autoregressive with this factor
    effective = 8 * 1200 * (1 - memory) / (1 + memory)
    assert arviz.ess(line)["theta"].values[0] == pytest.approx(effective, rel=0.25)
    assert list(arviz.summary(good)["mean"].round(1)) == list(good.mean().round(1))
    stuck = Samples(good.draws + np.arange(4)[:, None, None], last=None)
    assert np.all(stuck.rhat() > 1.5)


def breast_cancer():
    sklearn = pytest.importorskip("sklearn.datasets")
    X, y = sklearn.load_breast_cancer(return_X_y=True)
    X = (X - X.mean(0)) / X.std(0)
    return X[:, :8], y.astype(float)


def reference_chain(X, y, alpha, steps, chains, seed):
    """Metropolis-adjusted Langevin for logistic regression, plain code: an independent sampler."""
    rng = np.random.default_rng(seed)
    hessian = alpha * np.eye(X.shape[1]) + X.T @ X / 4
    root = np.linalg.cholesky(np.linalg.inv(hessian))

    def log_density(t):
        m = t @ X.T
        return (y * m - np.logaddexp(0, m)).sum(1) - alpha / 2 * (t * t).sum(1)

    def drift(t):
        g = (y - 1 / (1 + np.exp(-np.clip(t @ X.T, -500, 500)))) @ X - alpha * t
        return t + h / 2 * g @ root @ root.T

    h, theta, kept = 0.9, np.zeros((chains, X.shape[1])), []
    for k in range(steps):
        z = rng.standard_normal(theta.shape)
        new = drift(theta) + math.sqrt(h) * z @ root.T
        back = np.linalg.solve(root, (theta - drift(new)).T).T / math.sqrt(h)
        log_ratio = log_density(new) - log_density(theta) + ((z * z) - (back * back)).sum(1) / 2
        accept = np.log(rng.random(chains)) < log_ratio
        theta = np.where(accept[:, None], new, theta)
        if k >= steps // 4:
            kept.append(theta.copy())
    return np.array(kept)


@pytest.mark.slow
def test_logistic_posterior_of_breast_cancer_against_a_reference_chain() -> None:
    X, y = breast_cancer()
    alpha = 1.0
    reference = reference_chain(X, y, alpha, 4000, 100, 0)
    flat = reference.reshape(-1, X.shape[1])
    mean, sd = flat.mean(0), flat.std(0)
    per_chain = reference.mean(0)
    reference_error = per_chain.std(0) / math.sqrt(per_chain.shape[0])
    samples = sgld(
        logistic_likelihood(),
        X,
        y,
        np.tile(mean, (200, 1)),
        steps=20_000,
        step_size=2e-3,
        prior_precision=alpha,
        burn_in=4_000,
        thin=20,
        random_state=1,
    )
    own = samples.draws.mean(1)
    error = np.sqrt(own.var(0) / len(own) + reference_error**2)
    # the step adds a bias of order eta * curvature / 2 relative to sd: below 2 % here
    assert np.all(np.abs(samples.mean() - mean) < 4.5 * error + 0.02 * sd)
    assert np.all(np.abs(samples.draws.std(axis=(0, 1)) / sd - 1) < 0.05)


def test_logistic_posterior_mean_in_two_dimensions_against_quadrature() -> None:
    X, y = breast_cancer()
    X, y, alpha = X[:60, :2], y[:60], 1.0
    grid = np.linspace(-8, 4, 241)
    theta = np.stack(np.meshgrid(grid, grid, indexing="ij"), -1).reshape(-1, 2)
    margin = theta @ X.T
    log = (y * margin - np.logaddexp(0, margin)).sum(1) - alpha / 2 * (theta**2).sum(1)
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    samples = sgld(
        logistic_likelihood(),
        X,
        y,
        np.tile(mean, (400, 1)),
        steps=1500,
        step_size=0.01,
        prior_precision=alpha,
        burn_in=500,
        thin=5,
        random_state=6,
    )
    error = samples.draws.mean(1).std(0) / 20
    assert np.all(np.abs(samples.mean() - mean) < 4.5 * error + 0.02 * sd)
    np.testing.assert_allclose(samples.draws.std(axis=(0, 1)), sd, rtol=0.04)


def test_progress_is_quiet_off_a_terminal_and_shown_on_request(capsys) -> None:
    X, y = regression()
    sgld(gaussian_likelihood(), X, y, np.zeros(3), steps=3, step_size=0.01)
    assert capsys.readouterr().err == ""
    sgld(gaussian_likelihood(), X, y, np.zeros(3), steps=3, step_size=0.01, progress=True)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"X": np.empty((0, 3)), "y": np.empty(0)}, "X must"),
        ({"y": np.zeros(5)}, "y must be"),
        ({"steps": 0}, "steps"),
        ({"step_size": -0.1}, "step_size"),
        ({"step_size": [0.1, 0.2]}, "step_size"),
        ({"step_size": 50.0, "steps": 300}, "diverged"),
        ({"temperature": -1.0}, "temperature"),
        ({"clip": 0.0}, "clip"),
        ({"burn_in": 10}, "burn_in"),
        ({"thin": 0}, "thin"),
        ({"batches": Cyclic(25)}, "batches.size"),
        ({"backend": "jax"}, "backend"),
        ({"prior_precision": -1.0}, "prior_precision"),
        ({"start": np.zeros((2, 2, 3))}, "start"),
    ],
)
def test_bad_settings_are_refused(change, match) -> None:
    X, y = regression()
    given = {"X": X, "y": y, "start": np.zeros(3), "steps": 10, "step_size": 0.01} | change
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(DescriptionError, match=match):
        sgld(gaussian_likelihood(), **given)


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("prior", [None, lambda theta: -2.0 * (theta - 100.0)])
def test_chains_that_may_be_released_live_on_their_grid(backend, prior) -> None:
    """Every draw is a multiple of the spacing that the description names."""
    if backend == "torch":
        pytest.importorskip("torch")
    X, y = regression()
    start = np.random.default_rng(0).standard_normal((400, 3))
    settings = {"steps": 30, "step_size": 0.02, "clip": 0.5, "backend": backend}
    samples = sgld(gaussian_likelihood(), X, y, start, prior_gradient=prior, **settings)
    assert not samples.experiment
    said = samples.returned.chain.arithmetic
    assert (said.coordinates, math.frexp(said.grid)[0]) == (3, 0.5)
    assert (samples.draws / said.grid % 1 == 0).all()
    assert not np.signbit(samples.draws[samples.draws == 0]).any()
    seeded = sgld(
        gaussian_likelihood(), X, y, start, prior_gradient=prior, random_state=1, **settings
    )
    error = samples.draws[:, -1].std(0) * math.sqrt(2 / 400)
    gap = np.abs(samples.draws[:, -1].mean(0) - seeded.draws[:, -1].mean(0))
    assert np.all(gap < 6 * error)


def test_one_record_moves_a_step_by_what_is_charged() -> None:
    """On the grid, with a prior of any size: in exact arithmetic, before noise."""
    from fractions import Fraction

    from lastiterate.noise import SecureSource
    from lastiterate.sampling.chains_on_grid import GridSteps, chain_grid

    rng = np.random.default_rng(5)
    for trial in range(200):
        chain = sgld_training(
            24, 1, 10.0 ** rng.uniform(-6, 0), 0.4, FullBatch(), adjacency="replace"
        )
        theta = 10.0 ** rng.uniform(-3, 6) * rng.standard_normal((1, 3))
        grid = chain_grid(chain, theta, prior_precision=None)
        steps = GridSteps(grid, np.zeros(1), SecureSource())  # scale 0: no noise
        theta = steps.start(theta)
        pulls = rng.standard_normal((2, 1, 3)) * grid.spacing * 10.0 ** rng.uniform(-1, 9)
        prior = 10.0 ** rng.uniform(-3, 9) * rng.standard_normal((1, 3))
        one, other = (steps.moved(0, theta, pull, prior) for pull in pulls)
        gap = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(one[0], other[0], strict=True))
        exact = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(*pulls[:, 0], strict=True))
        slip = chain.replace(arithmetic={"grid": grid.spacing, "coordinates": 3}).grid_rounding
        assert float(gap) ** 0.5 <= float(exact) ** 0.5 * (1 + 1e-12) + slip / 4 * (1 + 1e-12), (
            trial
        )


def test_a_prior_that_pulls_beyond_the_grid_is_divergence() -> None:
    X, y = regression()
    with pytest.raises(DescriptionError, match="diverged"):
        sgld(
            gaussian_likelihood(),
            X,
            y,
            np.zeros(3),
            steps=2,
            step_size=0.01,
            clip=1.0,
            prior_gradient=lambda theta: 1e300 + 0 * theta,
        )


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_record_that_takes_anothers_place_moves_no_third_one(backend) -> None:
    """Secret batches are sorted, so one record for another shifts the rest by a place.

    Rows of 1e20 whose scores are nothing but rounding: with one matrix product, whose last rows
    are added up in another order, a record moved the sum by four clipped gradients instead of two.
    """
    given = pytest.importorskip("torch").from_numpy if backend == "torch" else np.asarray
    rng, worst = np.random.default_rng(0), 0.0
    for size in (5, 7, 15, 18):
        settings = {"steps": 1, "step_size": size / 12, "temperature": 0.0, "clip": 1.0}
        settings |= {"batches": WithoutReplacement(size), "prior_precision": 0.0}
        settings |= {"random_state": 0}  # a pull counts once
        places = []

        def look(theta, X, y, places=places):
            places.extend(y.ravel().tolist())
            return 0.0 * (X if X.ndim == 3 else X[None])

        numbers = np.arange(24.0)
        sgld(look, np.zeros((24, 33)), numbers, np.zeros(33), **settings)
        drawn = np.array(places, int)
        for _ in range(40):
            theta, rows = rng.standard_normal(33), rng.standard_normal(33)
            rows = (rows + 0.05 * rng.standard_normal((24, 33))) * 1e20
            rows -= np.outer(rows @ theta, theta) / (theta @ theta)
            labels = rng.choice([0.0, 1.0], 24)
            labels[0], labels[size] = 1.0, 0.0
            ended = []
            for first in (0, 1):
                X, y = np.zeros((24, 33)), np.zeros(24)
                X[drawn], y[drawn] = rows[first : first + size], labels[first : first + size]
                data = (given(X), given(y), given(theta))
                ended.append(sgld(logistic_likelihood(), *data, **settings).draws[0, -1])
            worst = max(worst, float(np.linalg.norm(ended[0] - ended[1])))
    assert worst <= 2 * (1 + 1e-9)
