"""JAX and Optax, for real: the same run as NumPy's, and noise that is the described one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed: make test-integrations")
pytest.importorskip("optax", reason="optax is not installed: make test-integrations")

import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree

from lastiterate import (
    AssumptionError,
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    UnsupportedError,
    verify,
)
from lastiterate import train as numpy_engine
from lastiterate.jax import described_noise, noisy_descent
from lastiterate.jax.pytrees import _RecordGradients
from lastiterate.losses import Softmax
from lastiterate.train import MemoryCheckpoint

N, D, K = 60, 4, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, D))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = RNG.integers(0, K, N)
ROWS = np.hstack([X, np.ones((N, 1))])  # the bias is a column of ones for NumPy


@contextmanager
def precision(double: bool) -> Iterator[None]:
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", double)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)


def cross_entropy(head: Any, x: Any, y: Any) -> Any:
    scores = x @ head["kernel"] + head["bias"]
    return optax.softmax_cross_entropy_with_integer_labels(scores, y)


def zero() -> Any:
    return {"kernel": jnp.zeros((D, K)), "bias": jnp.zeros(K)}


def described(batches: Any, noise: float = 0.0, **settings: Any) -> Training:
    told = {"steps": 40, "step_size": 0.5, "gradient_norm": 2.1, **settings}
    return Training(records=N, noise=noise, batches=batches, **({"adjacency": "replace"} | told))


def both(training: Training, **settings: Any) -> tuple[np.ndarray, np.ndarray]:
    head, _ = noisy_descent(cross_entropy, (X, Y), training, start=zero(), **settings)
    ours = np.vstack([head["kernel"], head["bias"]])
    theirs = numpy_engine.noisy_descent(
        Softmax(K), ROWS, training, labels=Y, feature_bound=2**0.5, **settings
    )
    return ours, theirs.parameters


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(20)])
@pytest.mark.parametrize("double", [True, False])
def test_without_noise_it_is_the_numpy_engine(batches: Any, double: bool) -> None:
    with precision(double):
        ours, theirs = both(described(batches), regularization=0.05)
    assert np.abs(theirs).max() > 0.1
    assert np.abs(ours - theirs).max() <= (1e-12 if double else 1e-6)


@pytest.mark.parametrize("batches", [Reshuffled(20), Poisson(0.3)])
def test_seeded_noise_and_batches_are_those_of_numpy(batches: Any) -> None:
    with precision(True):
        training = described(batches, noise=0.2)
        head, _ = noisy_descent(cross_entropy, (X, Y), training, start=zero(), random_state=5)
        # NumPy's order of parameters is another one, and noise follows the order: as JAX's
        flat = [("bias", slice(0, K)), ("kernel", slice(K, None))]

        def gradient(theta: np.ndarray, index: np.ndarray) -> np.ndarray:
            bias, kernel = theta[flat[0][1]], theta[flat[1][1]].reshape(D, K)
            scores = X[index] @ kernel + bias
            slope = Softmax(K).slope(scores, Y[index])
            outer = X[index][:, :, None] * slope[:, None, :]
            return np.hstack([slope, outer.reshape(len(index), -1)])

        told = numpy_engine.noisy_descent(
            gradient, None, training, start=np.zeros(K + D * K), random_state=5
        )
        ours = np.concatenate([head["bias"], np.ravel(head["kernel"])])
    assert np.abs(ours - told.parameters).max() <= 1e-9


def test_gradients_are_clipped_one_by_one() -> None:
    with precision(True):
        training = described(FullBatch(), gradient_norm=0.1, clipping="gradient", steps=3)
        ours, theirs = both(training)
    assert np.abs(ours - theirs).max() <= 1e-12


@pytest.mark.parametrize("batches", [Poisson(0.3), Shuffled(20)], ids=repr)
def test_a_gradient_is_the_same_whoever_shares_the_batch(batches) -> None:
    """To the last bit, for products that are blocked by their shape."""
    rng = np.random.default_rng(0)
    weights = {"first": rng.standard_normal((57, 129)), "second": rng.standard_normal((129, 7))}
    start = {name: jnp.asarray(w / 8, jnp.float32) for name, w in weights.items()}
    records = rng.standard_normal((200, 57)).astype(np.float32), rng.integers(0, 7, 200)

    def loss(w: Any, x: Any, y: Any) -> Any:
        scores = jnp.tanh(x @ w["first"]) @ w["second"]
        return optax.softmax_cross_entropy_with_integer_labels(scores, y)

    run = described(batches, clipping="gradient").replace(records=200, adjacency="zero-out")
    flat, unravel = ravel_pytree(start)
    gradients = _RecordGradients(loss, records, run, flat, unravel)
    gradients.check_independence(flat)
    theta, seen = np.asarray(flat, dtype=np.float64), {}
    some = np.flatnonzero(rng.random(200) < 0.3)
    for batch in (
        some,
        some[1:],
        np.r_[some, 199],
        rng.permutation(some),
        np.arange(200),
        some[:1],
    ):
        for i, row in zip(batch.tolist(), gradients(theta, batch), strict=True):
            assert seen.setdefault(i, row.tobytes()) == row.tobytes()


def test_a_loss_that_draws_random_numbers_is_refused() -> None:
    def noisy(w: Any, x: Any, y: Any) -> Any:
        drawn = jax.pure_callback(
            lambda: np.float32(np.random.default_rng().standard_normal()),
            jax.ShapeDtypeStruct((), jnp.float32),
        )
        return cross_entropy(w, x, y) * drawn

    run = described(FullBatch(), noise=0.5, steps=2, clipping="gradient")
    with pytest.raises(UnsupportedError, match="to the last bit"):
        noisy_descent(noisy, (X, Y), run, start=zero())


def test_secure_runs_are_certified_and_seeded_ones_are_not() -> None:
    training = described(FullBatch(), noise=0.5, steps=5)
    _, released = noisy_descent(cross_entropy, (X, Y), training, start=zero())
    certificate = released.certificate(1e-5, loss=Loss.unknown())
    assert verify(certificate, parameters=released.parameters).epsilon == certificate.epsilon
    _, seeded = noisy_descent(cross_entropy, (X, Y), training, start=zero(), random_state=1)
    with pytest.raises(AssumptionError, match="seed"):
        seeded.certificate(1e-5, loss=Loss.unknown())


def test_what_does_not_fit_is_refused() -> None:
    training = described(FullBatch())
    with pytest.raises(DescriptionError, match="data"):
        noisy_descent(cross_entropy, (X[:-1], Y[:-1]), training, start=zero())
    with pytest.raises(DescriptionError, match="data"):
        noisy_descent(cross_entropy, X, training, start=zero())
    with pytest.raises(DescriptionError, match="start"):
        noisy_descent(cross_entropy, (X, Y), training, start={"kernel": jnp.zeros(3, jnp.int32)})
    with pytest.raises(AssumptionError, match="longer than gradient_norm"):
        noisy_descent(
            cross_entropy, (X, Y), described(FullBatch(), gradient_norm=0.1), start=zero()
        )
    with pytest.raises(AssumptionError, match="not finite"):
        noisy_descent(lambda w, x, y: jnp.inf * w["bias"].sum(), (X, Y), training, start=zero())


class Stopped(MemoryCheckpoint):
    """Ends the run after its first state was kept."""

    def save(self, state: Any) -> None:
        super().save(state)
        raise KeyboardInterrupt


def test_a_run_goes_on_with_the_same_records_alone() -> None:
    """In another order a record would come twice in the epoch that was interrupted."""
    training, kept = described(Cyclic(20), noise=0.5, steps=6), Stopped(every=2)
    told = {"start": zero(), "checkpoint": kept}
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(cross_entropy, (X, Y), training, **told)
    again = MemoryCheckpoint(every=2)
    MemoryCheckpoint.save(again, kept.load())
    for data in ((X[::-1], Y[::-1]), (X, (Y + 1) % K)):
        with pytest.raises(AssumptionError, match="another run"):
            noisy_descent(cross_entropy, data, training, start=zero(), checkpoint=again)
    _, released = noisy_descent(cross_entropy, (X, Y), training, start=zero(), checkpoint=again)
    assert released.certificate(1e-5, loss=Loss.unknown()).epsilon > 0


def test_losses_that_look_at_a_batch_or_overflow_are_refused() -> None:
    training = described(FullBatch(), noise=0.5, steps=2)

    def mixing(head: Any, x: Any, y: Any) -> Any:
        return cross_entropy(head, x - jax.lax.pmean(x, "batch"), y)

    with pytest.raises(Exception, match="batch"):
        noisy_descent(mixing, (X, Y), training, start=zero())
    half = jax.tree_util.tree_map(lambda leaf: leaf.astype(jnp.float16), zero())
    with pytest.raises(AssumptionError, match="not finite"):
        noisy_descent(
            lambda w, x, y: 1e5 * cross_entropy(w, x.astype(jnp.float16), y).sum(),
            (X, Y),
            training,
            start=half,
        )


def test_the_noise_for_optax_is_the_described_one() -> None:
    noises = [0.5, 0.0, 2.0]
    training = described(FullBatch(), steps=3).replace(noise=noises)
    noisy = optax.chain(optax.sgd(0.5), described_noise(training))
    tree = {"a": jnp.ones((100, 30)), "b": jnp.ones(5)}
    update = jax.jit(noisy.update)
    state = noisy.init(tree)
    for scale in noises:
        updates, state = update(tree, state)
        added = np.concatenate([np.ravel(updates["a"]), updates["b"]]) + 0.5
        assert abs(np.std(added) - scale) <= 6 * scale / np.sqrt(2 * added.size)
        assert abs(np.mean(added)) <= 6 * scale / np.sqrt(added.size)
    with pytest.raises(Exception, match="The description has 3 updates"):
        jax.block_until_ready(update(tree, state))


def test_noise_for_optax_is_fresh_unless_seeded() -> None:
    training = described(FullBatch(), noise=1.0)

    def first(**settings: Any) -> np.ndarray:
        noisy = described_noise(training, **settings)
        return np.asarray(noisy.update(jnp.zeros(4), noisy.init(jnp.zeros(4)))[0])

    assert not np.array_equal(first(), first())
    assert np.array_equal(first(random_state=1), first(random_state=1))
