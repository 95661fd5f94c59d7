"""LeNet-5 networks of the example: gradients against autograd, laws against the formulas."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from lenet.networks import (  # noqa: E402
    PARAMETERS,
    SHAPES,
    LeNets,
    LeNetSGLD,
    descend,
    forward,
    subsets,
)
from scipy.stats import chisquare  # noqa: E402
from torch.nn import functional  # noqa: E402

from lastiterate import AssumptionError, DescriptionError  # noqa: E402

torch.set_num_threads(1)


def plain(p, x):
    """LeNet-5 as anybody would write it, for one model."""
    h = functional.conv2d(functional.pad(x[:, None], (2,) * 4), p["w1"].view(6, 1, 5, 5), p["b1"])
    h = functional.avg_pool2d(h.tanh(), 2)
    h = functional.conv2d(h, p["w2"].view(16, 6, 5, 5), p["b2"])
    h = functional.avg_pool2d(h.tanh(), 2).flatten(1)
    h = functional.linear(h, p["w3"], p["b3"]).tanh()
    h = functional.linear(h, p["w4"], p["b4"]).tanh()
    return functional.linear(h, p["w5"], p["b5"])


@pytest.fixture
def nets():
    found = LeNets(3, "cpu", torch.float64)
    found.initialise([1, 2, 3])
    return found


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(3, 4, 28, 28, dtype=torch.float64, generator=generator)
    return x, torch.randint(10, (3, 4), generator=generator)


def test_it_is_lenet5():
    assert PARAMETERS == 61_706


def test_forward(nets, batch):
    found = forward(nets.p, batch[0])["logits"]
    for m in range(3):
        expected = plain({k: v[m] for k, v in nets.p.items()}, batch[0][m])
        assert torch.allclose(found[m], expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("clip", [None, 2.0, 0.2])
def test_an_update_against_autograd(nets, batch, clip):
    x, labels = batch
    expected, norms = {}, []
    for m in range(3):
        total = {k: torch.zeros_like(v[m]) for k, v in nets.p.items()}
        for i in range(4):
            p = {k: v[m].clone().requires_grad_() for k, v in nets.p.items()}
            functional.cross_entropy(plain(p, x[m, i : i + 1]), labels[m, i : i + 1]).backward()
            norm = torch.sqrt(sum((v.grad**2).sum() for v in p.values()))
            norms.append(float(norm))
            factor = 1.0 if clip is None else min(1.0, clip / float(norm))
            for k in total:
                total[k] += factor * p[k].grad
        expected[m] = {k: nets.p[k][m] - 0.1 * total[k] for k in total}
    descend(nets.p, x, labels, 0.1, clip)
    if clip == 2.0:
        assert min(norms) < 2.0 < max(norms)  # some are clipped, some are not
    for m in range(3):
        for k in SHAPES:
            assert torch.allclose(nets.p[k][m], expected[m][k], rtol=1e-10, atol=1e-13), (m, k)


def test_batches_are_uniform_subsets():
    generator = torch.Generator().manual_seed(1)
    drawn = np.sort(subsets(6, 60_000, 3, "cpu", generator).numpy(), axis=1)
    assert np.all(np.diff(drawn, axis=1) > 0)  # distinct
    kinds, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(kinds) == 20
    assert chisquare(counts).pvalue > 1e-3
    assert set(subsets(4, 5, 4, "cpu").sum(1).tolist()) == {6}
    with pytest.raises(DescriptionError, match=r"^batch must"):
        subsets(4, 1, 5, "cpu")


def test_the_description_is_what_runs():
    """Distances and noise of one update, in the accountant's terms."""
    run = LeNetSGLD(np.zeros((1, 28, 28)), steps=7, step=0.01, batch=4, clip=0.5).description(100)
    assert run.step_size * run.sensitivity / 4 == pytest.approx(0.01 * 2 * 0.5)
    assert run.noise == pytest.approx(np.sqrt(2 * 4 * 0.01 / 100))
    with pytest.raises(AssumptionError, match="clip"):
        LeNetSGLD(np.zeros((1, 28, 28)), steps=7).description(100)


def test_sgld_noise():
    """One update of blank data: the spread of the parameters is √η, the prior shrinks."""
    images, labels = np.zeros((50, 28, 28), np.float32), np.zeros(50)
    train = LeNetSGLD(images[:1], steps=1, step=0.01, batch=5, prior_precision=100.0, device="cpu")
    eta = 2 * 5 * 0.01 / 50
    start = LeNets(20, "cpu", torch.float32)
    start.initialise(range(20))
    nets = train.train((images, labels), range(20))
    # w1 has no gradient at blank images
    change = nets.p["w1"] - (1 - eta / 2 * 100) * start.p["w1"]
    assert float(change.std()) == pytest.approx(np.sqrt(eta), rel=0.05)
    assert abs(float(change.mean())) < 4 * np.sqrt(eta / change.numel())


def test_lenet_learns_and_shows_its_probes():
    rng = np.random.default_rng(0)
    patterns = rng.random((10, 28, 28)) > 0.6
    labels = rng.integers(0, 10, 300)
    images = (patterns[labels] + 0.1 * rng.random((300, 28, 28))).astype(np.float32)
    train = LeNetSGLD(patterns, steps=300, every=150, step=0.02, noise=1e-4, device="cpu")
    seen = pickle.loads(pickle.dumps(train)).cohort((images, labels), [4, 5])
    assert seen.shape == (2, 2, 10, 10)
    np.testing.assert_allclose(seen.sum(axis=-1), 1, rtol=1e-5)
    right = seen[:, -1].argmax(axis=-1) == np.arange(10)
    assert right.mean() > 0.8
    assert not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen, train.cohort((images, labels), [4, 5]))
