"""All that a sampler returns is accounted: the guarantee against the exact law of the draws.

With constant gradients the chain is linear and everything returned is jointly Gaussian, so that two
neighbouring data sets differ by a shift of a known Gaussian and the exact mu is its length.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import Loss, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.curves.repeated import repeated
from lastiterate.description import (
    Cyclic,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    WithoutReplacement,
)
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.losses import Logistic
from lastiterate.sampling import (
    gaussian_likelihood,
    logistic_likelihood,
    sgld,
    sgld_training,
)
from lastiterate.sampling.likelihood import (
    GeneralizedLinear,
    RecordGradients,
    lengths,
    rounding_of_sums,
)
from lastiterate.sampling.returned import Returned


def exact_mu(etas, noises, prior, releases, moved_at, push):
    """mu of the returned iterates of one chain: θ_t = (1 − η_t p/2)θ_{t−1} + push_t + ν_t ξ_t."""
    steps = len(etas)
    weights = np.zeros((steps, steps))  # of the input of step k in iterate t
    for k in range(steps):
        weights[k, k] = 1.0
        for t in range(k + 1, steps):
            weights[t, k] = (1 - etas[t] * prior / 2) * weights[t - 1, k]
    kept = weights[np.array(releases) - 1]
    shift = kept @ np.where(moved_at, push, 0.0)
    covariance = (kept * noises**2) @ kept.T
    return math.sqrt(shift @ np.linalg.solve(covariance, shift))


@given(
    steps=st.integers(1, 12),
    burn=st.integers(0, 11),
    thin=st.integers(1, 4),
    chains=st.integers(1, 5),
    records=st.integers(1, 12),
    prior=st.floats(0.0, 3.0),
    temperature=st.floats(0.05, 3.0),
    size=st.integers(0, 4),
    regular=st.booleans(),
    seed=st.integers(0, 10**6),
)
@settings(max_examples=200, deadline=None)
def test_the_guarantee_is_above_the_exact_law(
    steps, burn, thin, chains, records, prior, temperature, size, regular, seed
) -> None:
    """One record with gradient clip against −clip; full and cyclic batches, any thinning."""
    rng = np.random.default_rng(seed)
    etas = rng.uniform(0.01, 0.2, steps)
    noises = np.sqrt(etas * temperature)
    batches = FullBatch() if size == 0 or size > records else Cyclic(size)
    per_epoch = batches.per_epoch(records) or 1
    clip = float(rng.uniform(0.1, 2.0))
    after = tuple(range(min(burn, steps - 1) + 1, steps + 1, thin))
    releases = tuple(sorted({*after, steps}))
    chain = sgld_training(
        records, steps, etas, clip, batches, temperature=temperature, adjacency="replace"
    )
    # Linear losses: smoothness 0, and a prior that is the data-free term p/n.
    loss = Loss(smoothness=0.0, regularization=prior / records) if regular else Loss.unknown()
    found = Returned(chain, releases, chains, regularization=prior / records).guarantee(
        loss, adjacency="replace"
    )
    scale = records / batches.divisor(records)
    push = etas / 2 * scale * 2 * clip
    for position in range(per_epoch):
        moved = np.arange(steps) % per_epoch == position
        truth = math.sqrt(chains) * exact_mu(etas, noises, prior, releases, moved, push)
        for epsilon in (0.0, 0.5, 2.0):
            assert found.delta(epsilon) >= gaussian.delta(truth, epsilon) * (1 - 1e-9)
    one = Returned(chain, releases, chains).training
    if chains == 1:  # the description alone says it all, to whoever forgets the releases
        assert account(one, loss).epsilon(1e-3) >= found.epsilon(1e-3) * (1 - 1e-9)
    else:
        assert one is None


def test_the_bound_is_attained_when_all_iterates_are_returned() -> None:
    etas, chains = np.full(30, 0.02), 7
    chain = sgld_training(10, 30, etas, 1.0, FullBatch(), adjacency="replace")
    releases = tuple(range(1, 31))
    truth = exact_mu(etas, np.sqrt(etas), 0.0, releases, np.ones(30, bool), etas)
    found = Returned(chain, releases, chains).guarantee(adjacency="replace")
    assert found.mu == pytest.approx(math.sqrt(chains) * truth, rel=1e-9)
    assert found.mu >= math.sqrt(chains) * truth * (1 - 1e-12)


def constant(theta: Any, X: Any, y: Any) -> Any:
    """Gradients that do not depend on theta."""
    return X * 1.0 if X.ndim == 3 else np.broadcast_to(X, (len(theta), *X.shape)) * 1.0


def sample(flip: bool = False, **given: Any) -> Any:
    """Draws from twenty records; with ``flip`` the last one pulls the other way."""
    X = np.linspace(-1, 1, 20)[:, None]
    X[-1] *= -1 if flip else 1
    defaults: dict[str, Any] = {"steps": 12, "step_size": 0.01, "clip": 1.0}
    start = given.pop("start", np.zeros((3, 1)))
    return sgld(RecordGradients(constant), X, X[:, 0], start, **{**defaults, **given})


def test_the_defect_that_was_reported() -> None:
    """Many chains and thinned draws were described as one last iterate of one chain."""
    samples = sample(start=np.zeros((50, 1)), steps=100, burn_in=20, thin=4)
    assert samples.training is None
    loss = Loss(smoothness=0.0, regularization=1 / 20)
    before = account(samples.returned.chain, loss).epsilon(1e-5)
    kept = np.array(samples.returned.releases)
    etas = np.full(100, 0.01)
    truth = exact_mu(etas, np.sqrt(etas), 1.0, kept, np.ones(100, bool), etas)
    true_epsilon = gaussian.epsilon(math.sqrt(50) * truth, 1e-5)
    assert before < true_epsilon / 5  # what .training used to say
    assert samples.guarantee(loss, adjacency="replace").epsilon(1e-5) >= true_epsilon


def test_four_hundred_draws_are_not_one() -> None:
    """Eight chains of fifty draws: .34 was reported, for one last iterate; 10.0 is true.

    The prior draws so strongly that a step forgets everything (c = 0): each of the 400 draws is a
    Gaussian of its own, moved by 0.1 of its standard deviation.
    """
    samples = sample(start=np.zeros((8, 1)), steps=50, prior_precision=200.0)
    assert samples.draws.shape == (8, 50, 1)
    loss = Loss(smoothness=0.0, regularization=200 / 20)
    chain = samples.returned.chain.replace(adjacency="replace")
    one = account(chain, loss).epsilon(1e-5)
    truth = gaussian.epsilon(math.sqrt(8 * 50) * 0.1, 1e-5)
    assert one == pytest.approx(0.34, abs=0.005)
    assert truth == pytest.approx(10.0, abs=0.005)
    assert truth <= samples.guarantee(loss, adjacency="replace").epsilon(1e-5) <= truth * (1 + 1e-6)
    moved = sample(
        start=np.zeros((8, 1)), steps=50, prior_precision=200.0, random_state=1, flip=True
    )
    same = sample(start=np.zeros((8, 1)), steps=50, prior_precision=200.0, random_state=1)
    each = (same.draws - moved.draws).ravel() / 0.1  # same noise, of standard deviation 0.1
    np.testing.assert_allclose(each[1:], 0.1, rtol=1e-9)


@pytest.mark.parametrize(
    ("burn_in", "thin", "releases"),
    [
        (0, 1, range(1, 13)),
        (11, 1, [12]),
        (3, 4, [4, 8, 12]),
        (2, 4, [3, 7, 11, 12]),
        (0, 50, [1, 12]),
    ],
)
def test_the_releases_are_what_is_returned(burn_in: int, thin: int, releases: Any) -> None:
    samples = sample(burn_in=burn_in, thin=thin, start=np.zeros((2, 1)))
    assert samples.returned.releases == tuple(releases)
    assert samples.returned.chains == 2
    whole = sample(burn_in=0, thin=1, start=np.zeros((2, 1)), random_state=5)
    part = sample(burn_in=burn_in, thin=thin, start=np.zeros((2, 1)), random_state=5)
    seen = {*part.draws[0, :, 0], float(part.last[0, 0])}
    assert seen == {whole.draws[0, step - 1, 0] for step in releases}
    one = sample(burn_in=burn_in, thin=thin, start=np.zeros(1))
    window = 12 - burn_in
    assert one.training.release == ("last" if window == 1 else TailAverage(window))


def test_who_gets_no_guarantee() -> None:
    for seeded in (
        {"random_state": 0},
        {"random_state": np.random.default_rng()},
        {"normals": np.random.default_rng().standard_normal},
    ):
        samples = sample(**seeded)
        assert samples.experiment
        with pytest.raises(AssumptionError, match="experiment"):
            samples.guarantee(adjacency="replace")
    with pytest.raises(AssumptionError, match="clip"):
        sample(clip=None).guarantee(adjacency="replace")
    assert sample(clip=None).returned is None
    assert math.isinf(sample(temperature=0.0).guarantee(adjacency="replace").epsilon(1e-5))
    assert not sample().experiment
    assert "3 chains" in str(sample().guarantee(adjacency="replace"))


def test_a_loss_is_what_whoever_asks_declares() -> None:
    """No row is looked at, nor is what scores round charged: this library proves nothing there."""
    proved = Logistic().regularity(1e-3, regularization=1 / 20)
    samples = sample(steps=100, burn_in=99)
    said = " ".join(map(str, samples.guarantee(proved, adjacency="replace").assumptions))
    assert "proved by this library" not in said
    assert "declared by the user" in said
    assert "what computing one gradient rounds" in said


def test_less_than_double_precision_is_an_experiment() -> None:
    torch = pytest.importorskip("torch")
    for kind, experiment in (
        (torch.float32, True),
        (torch.float64, False),
        (torch.bfloat16, True),
    ):
        X = torch.linspace(-1, 1, 20, dtype=kind)[:, None]
        samples = sgld(
            gaussian_likelihood(), X, X[:, 0], np.zeros(1), steps=3, step_size=0.01, clip=1.0
        )
        assert samples.experiment is experiment


SCHEMES = [Shuffled(5), Reshuffled(5), WithoutReplacement(5), Poisson(0.25)]


@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
def test_hidden_batches(batches: Any) -> None:
    """More chains always cost more."""
    adjacency = "zero-out" if isinstance(batches, Poisson) else "replace"
    found = []
    for chains in (1, 2, 4):
        samples = sample(batches=batches, start=np.zeros((chains, 1)))
        assert samples.draws.shape == (chains, 12, 1)
        guarantee = samples.guarantee(adjacency=adjacency)
        assert guarantee.training.adjacency == adjacency
        found.append(guarantee.epsilon(1e-4))
    assert found[0] < found[1] < found[2]


@pytest.mark.parametrize("chains", [2, 3])
def test_chains_of_shuffled_batches_against_the_exact_mixture(chains: int) -> None:
    """Four records in two batches, two steps, a flat prior: the record moves step 1 or step 2.

    A partition of its own gives each chain a coin of its own. If
    all other records pull as the replaced one does, the other law has no coin. The delta between
    the two is an average over 400,000 draws of the exact likelihood ratio, less five errors.
    """
    eta, clip = 0.3, 1.0
    chain = sgld_training(4, 2, eta, clip, Shuffled(2), adjacency="replace")
    found = Returned(chain, (1, 2), chains).guarantee(adjacency="replace")
    # The shift of a step in units of its noise; without the record's other value the mean is 0.
    move = eta / 2 * 2 * 2 * clip / math.sqrt(eta)
    rng = np.random.default_rng(1)
    draws = rng.standard_normal((400_000, chains, 2))
    coins = rng.integers(0, 2, (len(draws), chains))
    shifted = draws + move * np.stack([1 - coins, coins], axis=-1)
    likelihoods = np.exp(move * shifted - move**2 / 2)  # of "moved at this step" against "not"
    ratio = likelihoods.mean(axis=2).prod(axis=1)
    for epsilon in (0.5, 1.0, 2.0):
        values = np.maximum(1 - np.exp(epsilon) / ratio, 0)
        error = 5 * values.std() / math.sqrt(len(values))
        assert found.delta(epsilon) >= values.mean() - error


def test_repeating_a_curve() -> None:
    for times in (1, 2, 5, 100):
        for mu in (0.0, 1e-200, 0.3, 1e150, math.inf):
            joint = repeated(Gaussian(mu), times).mu
            assert joint >= mu
            assert joint == pytest.approx(math.sqrt(times) * mu)
    mixture = Mixture([0.2, 0.7, 1.3])
    for times in (2, 3, 5):
        joint = repeated(mixture, times)
        mus, shares = np.array([0.0]), np.array([1.0])
        for _ in range(times):
            mus = np.hypot.outer(mus, mixture.mus).ravel()
            shares = np.multiply.outer(shares, mixture.weights).ravel()
        for epsilon in (0.1, 1.0, 4.0):
            exact = sum(w * gaussian.delta(m, epsilon) for w, m in zip(shares, mus, strict=True))
            assert exact * (1 - 1e-9) <= joint.delta(epsilon) <= exact * (1 + 1e-6)
    assert repeated(mixture, 50).mu == pytest.approx(math.sqrt(50) * 1.3)


def test_small_rows_are_clipped_too() -> None:
    """The length of a row of 1e-162 comes out as 0 if it is squared: nothing would be clipped."""
    rows = np.array([[1.5e-162, 0.0], [3e200, 4e200], [0.0, 0.0], [3.0, 4.0], [5e-324, 0.0]])
    truth = [1.5e-162, 5e200, 0.0, 5.0, 5e-324]
    np.testing.assert_allclose(lengths(rows), truth, rtol=1e-14, atol=1e-323)
    assert np.all(lengths(rows) >= np.array(truth) * (1 - 1e-14))
    for model in (
        gaussian_likelihood(),
        RecordGradients(lambda theta, X, y: (y[:, None] * X)[None]),
    ):
        for x, label in ((1.5e-162, 1e170), (1e-200, 1e250), (1e150, 1e150), (1e-320, 1e308)):
            total = model.gradient(
                np.zeros((1, 1)), np.array([[x]]), np.array([label]), None, clip=1.0
            )
            assert abs(float(total[0, 0])) <= 1 + 1e-12
    assert logistic_likelihood().gradient(
        np.zeros((1, 1)), np.array([[1e300]]), np.array([1.0]), None, clip=1.0
    ) == pytest.approx(1.0)


@pytest.mark.parametrize("seed", range(20))
def test_the_rounding_of_sums_is_charged(seed: int) -> None:
    """Computed sums of clipped gradients against exact ones, with terms of all sizes."""
    rng = np.random.default_rng(seed)
    n, d, clip = int(rng.integers(1, 3000)), int(rng.integers(1, 6)), float(rng.uniform(0.1, 9))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 3, (n, 1))
    y = rng.standard_normal(n) * 10.0 ** rng.integers(-3, 6, n)
    theta = rng.standard_normal((2, d))
    found = gaussian_likelihood().gradient(theta, X, y, None, clip)
    for row, parameters in zip(found, theta, strict=True):
        slope = y - X @ parameters
        each = slope[:, None] * X
        each /= np.maximum(1, np.linalg.norm(each, axis=1) / clip)[:, None]
        exact = np.array([math.fsum(column) for column in each.T])
        assert np.linalg.norm(row - exact) <= rounding_of_sums(n, d, clip)
    samples = sgld(gaussian_likelihood(), X, y, theta, steps=2, step_size=1e-9, clip=clip)
    chain = samples.returned.chain
    assert chain.arithmetic.error >= rounding_of_sums(n, d, clip) / n
    assert chain.impulse > chain.replace(arithmetic="exact").impulse


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize("size", [None, 3])
def test_a_column_of_labels_does_not_mix_records(backend: Any, size: int | None) -> None:
    """With as many chains as records, slope[c, i] = y[c] - margin[c, i]: everybody's slope is y[c].

    One label then moved the clipped sum of a chain by as many clips as there are records.
    """
    if backend == "torch":
        pytest.importorskip("torch")
    n = 6
    X, y = np.ones((n, 1)), np.zeros((n, 1))
    batches = FullBatch() if size is None else WithoutReplacement(size)
    for chains in (1, n):
        with pytest.raises(DescriptionError, match="y"):
            sgld(
                gaussian_likelihood(),
                X,
                y,
                np.zeros((chains, 1)),
                steps=2,
                step_size=0.01,
                clip=1.0,
                batches=batches,
                backend=backend,
            )
        with pytest.raises(DescriptionError, match="y"):
            sgld(
                gaussian_likelihood(),
                X,
                np.zeros((n, n)),
                np.zeros((chains, 1)),
                steps=2,
                step_size=0.01,
                clip=1.0,
                batches=batches,
                backend=backend,
            )


def test_gradients_that_are_not_one_per_record_are_refused() -> None:
    X, y = np.ones((4, 2)), np.zeros(4)
    wrong = [
        lambda theta, X, y: np.ones((len(theta), 2)),  # summed already
        lambda theta, X, y: np.ones((len(theta), 1, 2)),
        lambda theta, X, y: np.ones((len(X), len(theta), 2)),
        lambda theta, X, y: np.ones((len(theta), len(X), 1)),
    ]
    for gradients in wrong:
        with pytest.raises(DescriptionError, match="one gradient per record"):
            sgld(gradients, X, y, np.zeros((2, 2)), steps=2, step_size=0.01, clip=1.0)


def test_a_likelihood_that_clips_by_its_own_word_gets_no_guarantee() -> None:
    class Unclipped:
        def gradient(self, theta, X, y, weight, clip):
            return np.full_like(theta, 1e6 * y.sum())

    class Subclassed(GeneralizedLinear):
        def gradient(self, theta, X, y, weight, clip):
            return super().gradient(theta, X, y, weight, None)

    for model in (Unclipped(), Subclassed(lambda margin, y: y - margin)):
        samples = sgld(
            model, np.ones((4, 1)), np.ones(4), np.zeros(1), steps=2, step_size=0.01, clip=1.0
        )
        assert samples.experiment
        with pytest.raises(AssumptionError, match="likelihood of your own"):
            samples.guarantee(adjacency="replace")


@pytest.mark.parametrize("backend", ["numpy", "torch"])
@pytest.mark.parametrize(
    ("row", "label", "clip"),
    [
        ([5e-324, 5e-324], 1e308, 1e-18),  # the length of the row rounds down by a third
        ([1e-323, 5e-324], 1e300, 1e-25),
        ([1.7e308, 0.0], 1e-16, 1.7e308 * 5e-324 * 1.5),  # clip/length has one bit
        ([1e305, 1e305], 1e-120, 1e-18),
        ([1e305, 0.0], 1e-130, 1e-17),
        ([1e-310, 1e-310], 1e305, 1e-8),
    ],
)
def test_no_gradient_is_longer_than_its_clip_where_numbers_end(
    backend: str, row: Any, label: float, clip: float
) -> None:
    X, y, theta = np.array([row]), np.array([label]), np.zeros((1, 2))
    if backend == "torch":
        torch = pytest.importorskip("torch")
        X, y, theta = torch.tensor(X), torch.tensor(y), torch.tensor(theta)
    own = GeneralizedLinear(lambda margin, y: y + 0 * margin)
    each = RecordGradients(lambda theta, X, y: (y[:, None] * X)[None])
    for model in (own, each):
        total = model.gradient(theta, X, y, None, clip)
        assert math.hypot(*(float(g) / clip for g in total[0])) <= 1 + 1e-13


def test_a_clip_below_what_numbers_can_keep_is_refused() -> None:
    with pytest.raises(DescriptionError, match="clip"):
        sgld(
            gaussian_likelihood(),
            np.ones((2, 1)),
            np.ones(2),
            np.zeros(1),
            steps=1,
            step_size=0.1,
            clip=1e-320,
        )


def test_chains_of_one_hidden_partition_each_are_composed() -> None:
    """The bound of one chain lets records change places, and only averages are composed."""
    run = Training(
        records=500,
        steps=100,
        step_size=1.0,
        noise=0.1,
        gradient_norm=0.5,
        batches=Shuffled(10),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0)
    one, two = (
        Returned(run, (100,), chains=c).guarantee(loss, adjacency="replace").epsilon(1e-5)
        for c in (1, 2)
    )
    assert 0 < one < two < math.inf
