"""Where the privacy loss stops growing.

A run that forgets its past has a plateau: beyond some step, more training costs nothing. Where
the loss keeps growing (no contraction, no bounded domain) the answer is None.
"""

from __future__ import annotations

from collections.abc import Callable

from lastiterate.accounting import account
from lastiterate.description import FullBatch, Loss, Schedule, Training
from lastiterate.errors import UnsupportedError

_TOLERANCE = 0.01
_FAR_STEPS = 2**40  # full batches have closed forms: "for ever" is as cheap as one step
_FAR_EPOCHS = 2**12


def plateau(training: Training, loss: Loss, delta: float) -> int | None:
    """The step after which epsilon grows by less than 1 % for ever, or None if it keeps growing.

    ``training.steps`` is only a starting point: the question is about the same run continued.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=1, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> plateau(run, Loss(smoothness=1.0, strong_convexity=1.0), delta=1e-5)
    49
    >>> plateau(run, Loss(smoothness=1.0), delta=1e-5) is None
    True
    """
    if isinstance(training.step_size, Schedule) or isinstance(training.noise, Schedule):
        raise UnsupportedError(
            "plateau needs a constant step size and noise: a schedule of one value per step says "
            "nothing about the steps after its end. Describe the run with single values."
        )
    full_batch = isinstance(training.batches, FullBatch)
    # Batches drawn at random have no epochs; as many steps as an epoch would have serve as one.
    unit = training.batches_per_epoch or round(
        training.records / training.batches.divisor(training.records)
    )

    def epsilon(blocks: int) -> float:
        return account(training.replace(steps=blocks * unit), loss).epsilon(delta)

    far = _FAR_STEPS if full_batch else _settled(epsilon)
    if far is None:
        return None
    limit = epsilon(far)
    if full_batch and epsilon(far // 2) < limit / (1 + _TOLERANCE / 10):
        return None
    low, high = 0, far  # epsilon(low) is short of the limit, epsilon(high) is not
    while high - low > 1:
        middle = (low + high) // 2
        if epsilon(middle) * (1 + _TOLERANCE) >= limit:
            high = middle
        else:
            low = middle
    return high * unit


def _settled(epsilon: Callable[[int], float]) -> int | None:
    """Epochs after which doubling them no longer moves epsilon; None if that never happens."""
    blocks, before = 1, epsilon(1)
    while blocks < _FAR_EPOCHS:
        blocks *= 2
        now = epsilon(blocks)
        if now <= before * (1 + _TOLERANCE / 10):
            return blocks
        before = now
    return None
