"""Networks: per-record clipping, batches as described, against written-out gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Poisson, Reshuffled, Shuffled, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import Softmax
from lastiterate.noise import SeededSource
from lastiterate.train import bound_rows
from lastiterate.train import noisy_descent as numpy_descent
from lastiterate.train.batches import BatchStream

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lastiterate.torch import noisy_module_descent  # noqa: E402

N = 14
SCHEMES = [FullBatch(), Cyclic(4), Shuffled(4), Reshuffled(5), Poisson(0.3)]


def problem():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.standard_normal((N, 3)))
    return X, torch.from_numpy(rng.integers(0, 2, N))


def network():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()


def describe(batches, **changes):
    settings = {"records": N, "steps": 7, "step_size": 0.6, "noise": 0.05, "gradient_norm": 0.5,
                "clipping": "gradient", "batches": batches}  # fmt: skip
    return Training(**{**settings, **changes})


def reference(net, X, y, run, l2, seed):
    """One backward pass per record, every gradient clipped by hand."""
    source = SeededSource(seed)
    stream = BatchStream(run.batches, run.records, source)
    start = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    theta = start.clone()
    for k in range(run.steps):
        total = torch.zeros_like(theta)
        for i in np.arange(N)[next(stream)]:
            nn.utils.vector_to_parameters(theta, net.parameters())
            net.zero_grad()
            nn.functional.cross_entropy(net(X[i : i + 1]), y[i : i + 1]).backward()
            g = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            total += g * min(1.0, run.gradient_norm / (1 + 2.0**-20) / float(g.norm()))
        theta = theta - run.step_sizes[k] * (total / run.batches.divisor(N) + l2 * theta)
        theta += run.noises[k] * torch.from_numpy(source.normal(tuple(theta.shape)))
        away = theta - start
        theta = start + away * min(1.0, run.diameter / 2 / float(away.norm()))
    return theta


@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
def test_the_written_out_run(batches):
    X, y = problem()
    run = describe(batches, diameter=1.0)
    net = network()
    got = noisy_module_descent(net, nn.CrossEntropyLoss(), X, y, run, regularization=0.1,
                               random_state=4, chunk=5)  # fmt: skip
    expected = reference(network(), X, y, run, 0.1, 4)
    np.testing.assert_allclose(got.parameters, expected.detach(), rtol=1e-9, atol=1e-12)
    held = nn.utils.parameters_to_vector(net.parameters()).detach()
    np.testing.assert_array_equal(held.numpy(), got.parameters)
    assert got.experiment
    assert got.loss is None


def test_a_linear_network_is_the_linear_model():
    loss = Softmax(3)
    rng = np.random.default_rng(2)
    X, y = bound_rows(rng.standard_normal((N, 4)), 1.0), rng.integers(0, 3, N)
    run = describe(Shuffled(4), gradient_norm=1.5, clipping="none", noise=0.0)
    net = nn.Linear(4, 3, bias=False).double()
    nn.init.zeros_(net.weight)
    inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
    got = noisy_module_descent(net, nn.CrossEntropyLoss(), inputs, targets, run, random_state=1)
    expected = numpy_descent(loss, X, run, labels=y, random_state=1)
    np.testing.assert_allclose(got.parameters.reshape(3, 4).T, expected.parameters, rtol=1e-10)


def test_frozen_parameters_stay():
    X, y = problem()
    net = network()
    net[0].weight.requires_grad_(False)
    before = net[0].weight.clone()
    got = noisy_module_descent(net, nn.CrossEntropyLoss(), X, y, describe(FullBatch()))
    assert torch.equal(net[0].weight, before)
    assert got.parameters.shape == (4 + 8 + 2,)
    assert not got.experiment


def test_a_failed_run_leaves_the_network_alone():
    X, y = problem()
    net = network()
    before = nn.utils.parameters_to_vector(net.parameters()).clone()
    X[3, 0] = math.nan
    with pytest.raises(AssumptionError, match="not finite"):
        noisy_module_descent(net, nn.CrossEntropyLoss(), X, y, describe(Cyclic(2)))
    assert torch.equal(nn.utils.parameters_to_vector(net.parameters()), before)


def test_refusals():
    X, y = problem()
    loss = nn.CrossEntropyLoss()
    mixing = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    with pytest.raises(UnsupportedError, match="BatchNorm1d"):
        noisy_module_descent(mixing, loss, X, y, describe(FullBatch()))
    run = describe(FullBatch(), clipping="none", gradient_norm=1e-3)
    with pytest.raises(AssumptionError, match="longer than"):
        noisy_module_descent(network(), loss, X, y, run)
    with pytest.raises(UnsupportedError, match="margin"):
        noisy_module_descent(network(), loss, X, y, describe(FullBatch(), clipping="margin"))
    with pytest.raises(DescriptionError, match="inputs"):
        noisy_module_descent(network(), loss, X[1:], y, describe(FullBatch()))
    with pytest.raises(DescriptionError, match="trainable"):
        noisy_module_descent(nn.Tanh(), loss, X, y, describe(FullBatch()))
