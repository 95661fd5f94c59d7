"""Every record picks a batch by itself, and nobody is told how many picked which."""

from __future__ import annotations

import numpy as np
import pytest

from lastiterate import RandomAllocation, Training
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.losses import Logistic
from lastiterate.noise import SeededSource, SideBySide, source
from lastiterate.train import MemoryCheckpoint, noisy_descent

RECORDS, SIZE, BATCHES = 47, 10, 4


def picks(stream, epochs: int) -> np.ndarray:
    """The batch of every record in every epoch."""
    found = np.full((epochs, RECORDS), -1)
    for epoch in range(epochs):
        for k in range(BATCHES):
            rows = next(stream)
            assert (found[epoch, rows] == -1).all()
            found[epoch, rows] = k
    return found


@pytest.mark.parametrize("same", [False, True])
def test_every_record_is_in_one_batch_of_every_epoch(same: bool) -> None:
    found = picks(RandomAllocation(SIZE, same).rows(RECORDS, source()), 3)
    assert (found >= 0).all()
    assert (found[0] == found[1]).all() == same


def test_picks_are_uniform_and_independent() -> None:
    stream = RandomAllocation(SIZE).rows(RECORDS, SeededSource(3))
    found = picks(stream, 4000)
    counts = np.stack([(found == k).mean(0) for k in range(BATCHES)])
    assert abs(counts - 1 / BATCHES).max() < 5 * np.sqrt(3 / 16 / 4000)
    together = (found[:, :1] == found[:, 1:]).mean(0)  # a partition would be below 1/B
    assert abs(together.mean() - 1 / BATCHES) < 5 * np.sqrt(3 / 16 / 4000 / (RECORDS - 1)) * 2
    sizes = (found == 0).sum(1)
    assert sizes.var() == pytest.approx(RECORDS * 3 / 16, rel=0.1)


def test_several_runs_draw_what_each_would_draw_alone() -> None:
    both = RandomAllocation(SIZE).rows(RECORDS, SideBySide([SeededSource(1), SeededSource(2)]))
    alone = RandomAllocation(SIZE).rows(RECORDS, SeededSource(2))
    for _ in range(2 * BATCHES):
        assert (np.flatnonzero(next(both)[1]) == next(alone)).all()


def test_lost_picks_are_not_drawn_again() -> None:
    stream = RandomAllocation(SIZE, same_every_epoch=True).rows(RECORDS, source())
    next(stream)
    stream.order = None
    with pytest.raises(AssumptionError, match="lost"):
        next(stream)


def training(**changes) -> Training:
    fields = dict(
        records=RECORDS,
        steps=12,
        step_size=0.5,
        noise=0.1,
        gradient_norm=1.0,
        batches=RandomAllocation(SIZE),
        adjacency="zero-out",
    )
    return Training(**{"adjacency": "replace", **fields, **changes})


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(RECORDS, 3))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] > 0, 1.0, -1.0)


def test_the_divisor_is_nominal() -> None:
    """Without noise a step is the sum of its batch's gradients divided by ``size``."""
    X, y = data()
    run = training(steps=1, noise=0.0)
    found = noisy_descent(Logistic(), X, run, labels=y, random_state=5, radius=10.0).parameters
    rows = next(RandomAllocation(SIZE).rows(RECORDS, SeededSource(5)))
    want = 0.5 / SIZE * (y[rows, None] * X[rows] / 2).sum(0)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_nothing_shows_how_large_batches_were(capsys) -> None:
    """Two runs with other sizes differ in nothing that is returned but the parameters."""
    X, y = data()
    done = noisy_descent(Logistic(), X, training(), labels=y, progress=True)
    shown = capsys.readouterr()
    other = noisy_descent(Logistic(), X, training(), labels=y, progress=True)
    varying = ("parameters", "partition_nonce")
    fields = {name: value for name, value in vars(done).items() if name not in varying}
    assert fields == {name: value for name, value in vars(other).items() if name not in varying}
    assert "batch" not in shown.out + shown.err


def test_a_checkpoint_keeps_the_picks() -> None:
    X, y = data()
    run = training(batches=RandomAllocation(SIZE, same_every_epoch=True))
    once = noisy_descent(Logistic(), X, run, labels=y, random_state=1)
    kept = MemoryCheckpoint(every=5)
    again = noisy_descent(Logistic(), X, run, labels=y, random_state=1, checkpoint=kept)
    np.testing.assert_array_equal(once.parameters, again.parameters)


def test_pytorch_refuses() -> None:
    torch = pytest.importorskip("torch")
    X, y = data()
    with pytest.raises(UnsupportedError, match="does not draw RandomAllocation"):
        noisy_descent(Logistic(), torch.tensor(X), training(), labels=torch.tensor(y))


def test_the_sampler_refuses() -> None:
    from lastiterate.sampling import gaussian_likelihood, sgld

    with pytest.raises(UnsupportedError, match="sampler does not draw"):
        sgld(
            gaussian_likelihood(),
            np.ones((RECORDS, 1)),
            np.ones(RECORDS),
            np.zeros((2, 1)),
            steps=4,
            step_size=0.01,
            batches=RandomAllocation(SIZE),
        )
