"""Stacked networks: gradients against autograd, laws against the formulas."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional  # noqa: E402

from lastiterate.audit.shadow import StackedCohort  # noqa: E402

torch.set_num_threads(1)


def build():
    return torch.nn.Linear(3, 2)


def stacked(**options):
    settings = {"steps": 20, "step_size": 0.5, "noise": 0.0, "batch": 4}
    return StackedCohort(build, np.eye(3), **{**settings, **options})


def test_stacked_networks_learn():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int)
    seen = stacked(steps=200, every=100).cohort((X, y), [1, 2, 3])
    assert seen.shape == (3, 2, 3, 2)
    assert np.all(seen[:, -1, 0, 1] > 0.9)


def test_stacked_clipping():
    """A single update from the same start moves by at most step_size times the clip."""
    X, y = 100 * np.ones((8, 3), np.float32), np.ones(8, int)
    for clip in (0.5, 5.0):
        train = stacked(steps=1, clip=clip, step_size=0.3)
        before, after = (
            stacked(steps=1, step_size=0.0).cohort((X, y), [7]),
            train.cohort((X, y), [7]),
        )
        # the logits at the unit vectors move by the change of weight and bias of a class
        logit = lambda p: np.log(p[0, 0, :, 0] / p[0, 0, :, 1])  # noqa: E731
        moved = np.abs(logit(after) - logit(before))
        assert np.all(moved <= 2 * 0.3 * clip * np.sqrt(2) + 1e-5)
        assert np.any(moved > 0)
    unclipped = stacked(steps=1, step_size=0.3).cohort((X, y), [7])
    assert np.any(np.abs(logit(unclipped) - logit(before)) > 2 * 0.3 * 5.0 * np.sqrt(2))


@pytest.mark.parametrize("clip", [None, 0.7])
def test_a_stacked_update_is_that_of_each_network(clip):
    """Against a loop over networks and records, with the same batches and the same noise."""
    rng = np.random.default_rng(2)
    X = torch.as_tensor(rng.standard_normal((30, 3)), dtype=torch.float32)
    y = torch.as_tensor(rng.integers(0, 2, 30))
    train = stacked(clip=clip, noise=0.1, regularization=0.2, device="cpu")
    networks = [build() for _ in range(3)]
    parameters = {
        name: torch.stack([dict(net.named_parameters())[name].detach() for net in networks])
        for name in ("weight", "bias")
    }
    update = train.update(networks[0], parameters, {}, (X, y), seed=5)
    update()
    generator = torch.Generator().manual_seed(5)
    rows = torch.randint(30, (3, 4), generator=generator)
    draws = {name: torch.randn(parameters[name].shape, generator=generator) for name in parameters}
    for m, net in enumerate(networks):
        total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
        for i in rows[m]:
            net.zero_grad()
            functional.cross_entropy(net(X[i : i + 1]), y[i : i + 1]).backward()
            norm = torch.sqrt(sum((p.grad**2).sum() for p in net.parameters()))
            factor = 1.0 if clip is None else min(1.0, clip / float(norm))
            for name, p in net.named_parameters():
                total[name] += factor * p.grad
        for name, p in net.named_parameters():
            expected = p.detach() * (1 - 0.5 * 0.2) - 0.5 / 4 * total[name]
            expected = expected + 0.1 * draws[name][m]
            assert torch.allclose(parameters[name][m], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="CUDA graphs need a GPU")
def test_a_replayed_update_is_the_recorded_one():
    """All records alike and no noise: the batches do not matter; with noise: its spread."""
    X, y = np.ones((50, 3), np.float32), np.zeros(50, int)
    for clip in (None, 0.3):
        one, two = (stacked(clip=clip, device=d).cohort((X, y), [1, 2, 3]) for d in ("cpu", "cuda"))
        np.testing.assert_allclose(one, two, rtol=1e-4)
    train = stacked(steps=1, step_size=0.0, noise=0.3, device="cuda")
    shown = train.cohort((X, y), range(4000))[:, 0, 0]
    before = stacked(steps=1, step_size=0.0, device="cuda").cohort((X, y), range(4000))[:, 0, 0]
    moved = np.log(shown[:, 0] / shown[:, 1]) - np.log(before[:, 0] / before[:, 1])
    assert np.std(moved) == pytest.approx(0.3 * 2, rel=0.05)  # two weights, two biases
    again = train.cohort((X, y), range(4000))[:, 0, 0]
    np.testing.assert_array_equal(shown, again)
