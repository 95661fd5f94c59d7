"""Networks: per-record clipping, batches as described, against written-out gradients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Poisson, Reshuffled, Shuffled, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import Softmax
from lastiterate.noise import SeededSource
from lastiterate.train import MemoryCheckpoint, bound_rows
from lastiterate.train import noisy_descent as numpy_descent
from lastiterate.train.grid import Grid

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lastiterate.torch import noisy_module_descent  # noqa: E402
from lastiterate.torch.module_gradients import ModuleGradients  # noqa: E402

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
    settings = {
        "records": N,
        "steps": 7,
        "step_size": 0.6,
        "noise": 0.05,
        "gradient_norm": 0.5,
        "clipping": "gradient",
        "batches": batches,
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def reference(net, X, y, run, l2, seed):
    """One backward pass per record, every gradient clipped by hand."""
    source = SeededSource(seed)
    stream = run.batches.rows(run.records, source)
    start = nn.utils.parameters_to_vector(net.parameters()).detach().clone()
    theta = start.clone()
    for k in range(run.steps):
        total = torch.zeros_like(theta)
        for i in np.arange(N)[next(stream)]:
            nn.utils.vector_to_parameters(theta, net.parameters())
            net.zero_grad()
            nn.functional.cross_entropy(net(X[i : i + 1]), y[i : i + 1]).backward()
            g = torch.cat([p.grad.reshape(-1) for p in net.parameters()])
            total += g * min(1.0, run.gradient_norm / float(g.norm()))
        theta = theta - run.step_sizes[k] * (total / run.batches.divisor(N) + l2 * theta)
        theta += run.noises[k] * torch.from_numpy(source.normal(tuple(theta.shape)))
        away = theta - start
        theta = start + away * min(1.0, run.diameter / 2 / float(away.norm()))
    return theta


@pytest.mark.parametrize("batches", SCHEMES, ids=repr)
@pytest.mark.parametrize("per_record", ["func", "hooks", "ghost"])
def test_the_written_out_run(batches, per_record):
    if per_record != "func":
        pytest.importorskip("opacus")
    X, y = problem()
    run = describe(batches, diameter=1.0)
    net = network()
    got = noisy_module_descent(
        net,
        nn.CrossEntropyLoss(),
        X,
        y,
        run,
        regularization=0.1,
        random_state=4,
        chunk=5,
        per_record=per_record,
    )
    expected = reference(network(), X, y, run, 0.1, 4)
    start = nn.utils.parameters_to_vector(network().parameters()).detach().numpy()
    off = 4 * run.steps * Grid.of(run, start, run.diameter / 2, 0.1).spacing
    np.testing.assert_allclose(got.parameters, expected.detach(), rtol=1e-9, atol=off)
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


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(4)])
def test_a_person_counts_with_so_many_records(batches):
    """Ten records of one person are one record ten times: eight of them are dropped."""
    X, y = problem()
    X[:10], y[:10] = X[0], y[0]
    owners = np.r_[np.zeros(10), np.arange(1, 5)]
    run = describe(batches, noise=0.0, steps=1 if batches.full else 3)
    told = {"groups": owners, "max_records_per_group": 2, "random_state": 5}
    done = noisy_module_descent(network(), nn.CrossEntropyLoss(), X, y, run, **told)
    assert done.unit.records == 2
    assert done.above == (0.0,)
    if batches.full:
        few = describe(batches, noise=0.0, steps=1, records=6, step_size=0.6 * 6 / N)
        plain = noisy_module_descent(network(), nn.CrossEntropyLoss(), X[8:], y[8:], few)
        np.testing.assert_allclose(done.parameters, plain.parameters, atol=1e-12)


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
    rough = describe(FullBatch(), clipping="none", gradient_norm=math.inf, sensitivity=1.0)
    with pytest.raises(AssumptionError, match="no gradient_norm"):
        noisy_module_descent(network(), loss, X, y, rough)
    with pytest.raises(UnsupportedError, match="margin"):
        noisy_module_descent(network(), loss, X, y, describe(FullBatch(), clipping="margin"))
    with pytest.raises(DescriptionError, match="inputs"):
        noisy_module_descent(network(), loss, X[1:], y, describe(FullBatch()))
    with pytest.raises(DescriptionError, match="trainable"):
        noisy_module_descent(nn.Tanh(), loss, X, y, describe(FullBatch()))


# --- Opacus' hooks and ghost clipping -----------------------------------------------------------


class Words(nn.Module):
    """An embedding, a layer on every word, and a head: ghost norms would be sums that cancel."""

    def __init__(self):
        super().__init__()
        self.words, self.each, self.head = nn.Embedding(9, 4), nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.each(self.words(x))).mean(1))


class Centred(nn.Module):
    """Mixes the records of a batch without any layer that is known to."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x):
        return self.head(x - 0.5 * x.mean(0, keepdim=True))


def networks():
    images = torch.randn(N, 2, 6, 6)
    conv = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    )
    mlp = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3, bias=False))
    frozen = nn.Sequential(nn.Linear(5, 6), nn.Tanh(), nn.Linear(6, 3))
    frozen[0].weight.requires_grad_(False)
    return {
        "mlp": (mlp, torch.randn(N, 5)),
        "convolutions": (conv, images),
        "words": (Words(), torch.randint(0, 9, (N, 6))),
        "frozen layer": (frozen, torch.randn(N, 5)),
    }


@pytest.mark.parametrize("which", networks())
@pytest.mark.parametrize("how", ["hooks", "ghost"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-3)])
def test_ghost_hooks_and_func_are_one_sum(which, how, dtype, tolerance):
    """At several parameters; the bound lies in the middle of the norms, so some are clipped."""
    pytest.importorskip("opacus")
    from lastiterate.torch.opacus_gradients import OpacusGradients

    torch.manual_seed(5)
    net, X = networks()[which]
    net, y = net.to(dtype), torch.arange(N) % 3
    X = X.to(dtype) if X.is_floating_point() else X
    loss = nn.CrossEntropyLoss()
    everyone = torch.arange(N)
    plain = ModuleGradients(net, loss, X, y, describe(FullBatch()))
    middle = float(plain.per_record(plain.vector(), everyone)[0].norm(dim=1).median())
    plain = ModuleGradients(net, loss, X, y, describe(FullBatch(), gradient_norm=middle), chunk=4)
    other = OpacusGradients(plain, ghost=how == "ghost")
    for scale in (0.0, 0.3, 1.0):
        theta = plain.vector() + scale * torch.randn(plain.size, dtype=torch.float64)
        for rows in (slice(0, N), np.array([3, 1, 8]), np.array([], dtype=np.int64)):
            told, got = plain.total(theta, rows), other.total(theta, rows)
            assert float((got - told).norm()) <= tolerance * float(told.norm())
        each = plain.per_record(theta, everyone)[0].norm(dim=1)
        assert scale or (each.min() < middle < each.max())


def test_no_ghost_gradient_is_longer_than_described():
    pytest.importorskip("opacus")
    from lastiterate.torch.opacus_gradients import OpacusGradients

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(300, 200), nn.Tanh(), nn.Linear(200, 3))
    X, y = 5 * torch.randn(N, 300), torch.arange(N) % 3
    run = describe(FullBatch(), gradient_norm=0.25)
    plain = ModuleGradients(net, nn.CrossEntropyLoss(), X, y, run)
    ghost = OpacusGradients(plain, ghost=True)
    for k in range(N):
        length = float(ghost.total(plain.vector(), slice(k, k + 1)).norm())
        assert 0.249 < length <= 0.25


@pytest.mark.parametrize("how", ["hooks", "ghost"])
def test_what_opacus_cannot_clip_is_refused(how):
    pytest.importorskip("opacus")
    X, y = problem()
    X = X.float()
    loss = nn.CrossEntropyLoss()
    run = describe(FullBatch(), noise=0.0)
    with pytest.raises(UnsupportedError, match=r"train\(\)"):
        noisy_module_descent(nn.Linear(3, 2).eval(), loss, X, y, run, per_record=how)
    net = nn.Sequential(nn.Dropout(), nn.Linear(3, 2))
    with pytest.raises(UnsupportedError, match="Dropout"):
        noisy_module_descent(net, loss, X, y, run, per_record=how)
    with pytest.raises(UnsupportedError, match="gradients differ"):
        noisy_module_descent(Centred(), loss, X, y, run, per_record=how)
    tied = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    if how == "ghost":
        with pytest.raises(UnsupportedError, match="Opacus says"):
            noisy_module_descent(tied, loss, X, y, run, per_record=how)
    short = run.replace(clipping="none", gradient_norm=1e-3)
    with pytest.raises(AssumptionError, match="longer than"):
        noisy_module_descent(nn.Linear(3, 2), loss, X, y, short, per_record=how)
    with pytest.raises(DescriptionError, match="per_record"):
        noisy_module_descent(nn.Linear(3, 2), loss, X, y, run, per_record="magic")


def test_the_network_is_left_without_hooks():
    pytest.importorskip("opacus")
    X, y = problem()
    net = network()
    noisy_module_descent(
        net, nn.CrossEntropyLoss(), X, y, describe(FullBatch()), per_record="ghost"
    )
    assert not any(m._forward_hooks or m._backward_hooks for m in net.modules())
    assert not any(hasattr(p, "grad_sample") for p in net.parameters())


def test_a_network_goes_on_from_its_checkpoint():
    X, y = problem()
    run = describe(Shuffled(4))
    loss = nn.CrossEntropyLoss()
    expected = noisy_module_descent(network(), loss, X, y, run, random_state=4)
    kept, net = MemoryCheckpoint(every=2), network()
    with pytest.raises(KeyboardInterrupt):
        noisy_module_descent(net, loss, X, y, run, noise=Stopping(4, 5), checkpoint=kept)
    assert kept.load().step == 4
    got = noisy_module_descent(net, loss, X, y, run, random_state=0, checkpoint=kept)
    np.testing.assert_array_equal(got.parameters, expected.parameters)
    assert kept.load() is None
    with pytest.raises(KeyboardInterrupt):
        noisy_module_descent(network(), loss, X, y, run, noise=Stopping(4, 5), checkpoint=kept)
    with pytest.raises(AssumptionError, match="another run"):  # net holds what was released
        noisy_module_descent(net, loss, X, y, run, checkpoint=kept)


class Stopping(SeededSource):
    """A seeded source that is interrupted at its n-th draw of noise."""

    def __init__(self, seed, last):
        super().__init__(seed)
        self._left = last

    def normal(self, shape):
        if self._left == 0:
            raise KeyboardInterrupt
        self._left -= 1
        return super().normal(shape)


def test_a_network_resumed_without_its_seed_stays_an_experiment():
    X, y = problem()
    run, loss, kept = describe(Shuffled(4)), nn.CrossEntropyLoss(), MemoryCheckpoint(every=2)
    start = network().state_dict()
    net = network()
    with pytest.raises(KeyboardInterrupt):
        noisy_module_descent(net, loss, X, y, run, noise=Stopping(4, 5), checkpoint=kept)
    assert noisy_module_descent(net, loss, X, y, run, checkpoint=kept).experiment
    net.load_state_dict(start)
    assert not noisy_module_descent(net, loss, X, y, run, checkpoint=kept).experiment


def test_a_part_by_ghost_clipping_marks_the_whole_run():
    """Sums without a proved error before a checkpoint: no better ones after it repair them."""
    pytest.importorskip("opacus")
    X, y = problem()
    net, run = network(), describe(FullBatch())
    kept = Kept(every=3)
    with pytest.raises(KeyboardInterrupt):
        noisy_module_descent(
            net, nn.CrossEntropyLoss(), X, y, run, per_record="ghost", checkpoint=kept
        )
    assert kept.load().step == 3
    got = noisy_module_descent(net, nn.CrossEntropyLoss(), X, y, run, checkpoint=kept)
    assert got.experiment
    assert "before its checkpoint" in got.objection


class Kept(MemoryCheckpoint):
    """Stopped as soon as something is kept, once."""

    def save(self, state):
        first, self.stopped = not hasattr(self, "stopped"), True
        super().save(state)
        if first:
            raise KeyboardInterrupt
