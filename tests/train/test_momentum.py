"""Momentum and exponential averages: the trainers run what the description says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from momentum_laws import reactions

from lastiterate import Cyclic, FullBatch, Reshuffled, Shuffled, TailAverage, Training
from lastiterate.losses import Logistic
from lastiterate.train import EncryptedCheckpoint, MemoryCheckpoint, noisy_descent

rng = np.random.default_rng(0)
X = rng.normal(size=(40, 5))
X /= np.linalg.norm(X, axis=1, keepdims=True)
Y = np.where(X @ np.arange(5.0) + 0.3 * rng.normal(size=40) > 0, 1.0, -1.0)


def run(**changes):
    settings = {
        "records": 40,
        "steps": 30,
        "step_size": 0.7,
        "noise": 0.0,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
        "momentum": 0.8,
    }
    return Training(**({"adjacency": "replace"} | settings | changes))


def trained(training, **changes):
    settings = {"labels": Y, "regularization": 0.05, "random_state": 1, "feature_bound": 1.0}
    return noisy_descent(Logistic(), X, training, **(settings | changes)).parameters


def test_it_is_the_update_of_torch():
    torch = pytest.importorskip("torch")
    theta = torch.zeros(5, dtype=torch.float64, requires_grad=True)
    features, labels = torch.from_numpy(X), torch.from_numpy(Y)
    optimizer = torch.optim.SGD([theta], lr=0.7, momentum=0.8, weight_decay=0.05)
    for _ in range(30):
        optimizer.zero_grad()
        torch.nn.functional.softplus(-labels * (features @ theta)).mean().backward()
        optimizer.step()
    assert trained(run()) == pytest.approx(theta.detach().numpy(), rel=1e-10)


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(8), Shuffled(8), Reshuffled(8)])
@pytest.mark.parametrize("diameter", [math.inf, 1.0])
def test_tensors_are_trained_alike(batches, diameter):
    torch = pytest.importorskip("torch")
    training = run(batches=batches, noise=0.05, diameter=diameter, release=TailAverage(4, 0.7))
    data = torch.from_numpy(X)
    found = noisy_descent(
        Logistic(),
        data,
        training,
        labels=torch.from_numpy(Y),
        regularization=0.05,
        random_state=1,
        feature_bound=1.0,
    )
    assert found.parameters == pytest.approx(trained(training), rel=1e-9)


def test_no_momentum_is_plain_descent():
    plain, tiny = (trained(run(noise=0.05, momentum=m)) for m in (0.0, 1e-13))
    assert tiny == pytest.approx(plain, rel=1e-9)
    assert not np.allclose(plain, trained(run(noise=0.05)), rtol=1e-2)


class StoppedError(Exception):
    """The power went out."""


class Fragile(MemoryCheckpoint):
    """Stops the run after the first save."""

    broken = False

    def save(self, state):
        super().save(state)
        if not self.broken:
            self.broken = True
            raise StoppedError


@pytest.mark.parametrize("release", ["last", TailAverage(25), TailAverage(25, decay=0.6)])
def test_a_checkpoint_carries_the_velocity(release):
    training = run(noise=0.05, release=release)
    checkpoint = Fragile(every=13)
    with pytest.raises(StoppedError):
        trained(training, checkpoint=checkpoint)
    resumed = trained(training, checkpoint=checkpoint)
    assert np.array_equal(resumed, trained(training))


def test_an_encrypted_checkpoint_carries_the_velocity(tmp_path):
    pytest.importorskip("cryptography")
    path, key = tmp_path / "state", EncryptedCheckpoint.new_key()
    training, seen = run(noise=0.05), []

    class Watching(EncryptedCheckpoint):
        def save(self, state):
            super().save(state)
            seen.append((state, self.load()))

    trained(training, checkpoint=Watching(path, key, every=10))
    for state, read in seen:
        assert np.array_equal(state.velocity, read.velocity)
    assert len(seen) == 2


def test_an_exponential_average_starts_inside_the_window():
    iterates = [trained(run(steps=k, noise=0.0)) for k in range(21, 31)]
    average = iterates[0]
    for iterate in iterates[1:]:
        average = 0.8 * average + 0.2 * iterate
    found = trained(run(release=TailAverage(10, decay=0.8)))
    assert found == pytest.approx(average, rel=1e-12)


@pytest.mark.parametrize("release", ["last", TailAverage(5), TailAverage(5, decay=0.5)])
def test_the_law_of_the_noise(release):
    """One run of many independent coordinates on the same quadratic: their spread is exact."""
    coordinates, curvature = 40_000, 0.6
    training = run(records=1, steps=12, noise=0.3, gradient_norm=1e9, release=release)
    found = noisy_descent(
        lambda theta, indices: curvature * theta[None],
        None,
        training,
        start=np.zeros(coordinates),
        random_state=2,
    ).parameters
    weights = (1.0,) if release == "last" else tuple(release.weights)
    deviation = 0.3 * math.sqrt(float(np.sum(reactions(training, curvature, weights) ** 2)))
    assert np.std(found) == pytest.approx(deviation, rel=4 / math.sqrt(2 * coordinates))
    plain = 0.3 * math.sqrt(float(np.sum(reactions(training.replace(momentum=0), curvature) ** 2)))
    assert abs(deviation / plain - 1) > 0.1  # without momentum it would be another number
