"""Where the privacy loss stops growing.

A run that forgets its past has a plateau: beyond some step, more training costs nothing. Where
the loss keeps growing (no contraction, no bounded domain) the answer is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lastiterate._internal.progress import Working
from lastiterate.accounting.accountant import account
from lastiterate.accounting.guarantee import warn_if_estimated
from lastiterate.curves.bracket import last_good
from lastiterate.description import Loss, PrivacyUnit, Schedule, Training
from lastiterate.description.unit import read_unit
from lastiterate.errors import UnsupportedError
from lastiterate.theory import Run

_TOLERANCE = 0.01
_FAR = 2**40  # steps; where there are closed forms "for ever" is as cheap as one step
_FORGOTTEN = 64  # memories after which a contracting run has forgotten its start: e^-64


def plateau(
    training: Training, loss: Loss, delta: float, *, unit: PrivacyUnit | None = None
) -> int | None:
    """The step after which epsilon grows by less than 1 % for ever, or None if it keeps growing.

    ``training.steps`` is only a starting point: the question is about the same run continued.
    ``unit``: for whom, as in `account`.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=1, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> plateau(run, Loss(smoothness=1.0, strong_convexity=1.0), delta=1e-5)
    45
    >>> plateau(run, Loss(smoothness=1.0), delta=1e-5) is None
    True
    """
    warn_if_estimated(training, loss)
    lists = isinstance(training.step_size, Schedule) or isinstance(training.noise, Schedule)
    if lists or training.final_noise != 1:
        raise UnsupportedError(
            "plateau needs a constant step size and noise: a schedule of one value per step, or a "
            "burst of noise at the end, says nothing about the steps after it. Describe the run "
            "with single values."
        )
    person = read_unit(unit)
    if person.timed:
        raise UnsupportedError(
            f"plateau asks about a run that goes on, and {person} is there for a time only. Ask "
            "`account` at the steps you have in mind."
        )
    if training.correlation is not None:
        training.needs_plain_updates("plateau")
    memory = _memory(training, loss)
    if training.momentum:
        return None  # composition alone covers it, and composition never stops growing
    if math.isinf(memory) and math.isinf(training.diameter):
        return None
    # Batches drawn at random have no epochs; as many steps as an epoch would have serve as one.
    stride = training.batches_per_epoch or round(
        training.records / training.batches.divisor(training.records)
    )

    def epsilon(blocks: int) -> float:
        return account(training.replace(steps=blocks * stride), loss, unit=person).epsilon(delta)

    closed_form = training.batches.repeated
    ever = min(_FAR, math.ceil(_FORGOTTEN * memory)) if math.isfinite(memory) else _FAR
    with Working("plateau"):
        far = -(-ever // stride) if closed_form else _settled(epsilon, memory, stride)
        if far is None:
            return None
        limit = epsilon(far)
        if not math.isfinite(limit):
            return None  # what reveals everything at once does not settle at anything
        if closed_form and epsilon(far // 2) < limit / (1 + _TOLERANCE / 10):
            return None
        target = limit / (1 + _TOLERANCE)

        def short(blocks: int) -> bool:
            guarantee = account(training.replace(steps=blocks * stride), loss, unit=person)
            if math.isfinite(training.diameter) and 0 < target < math.inf:
                return guarantee.delta(target) < delta  # one question where epsilon is a search
            return guarantee.epsilon(delta) < target

        return last_good(lambda blocks: not short(blocks), good=far, bad=0) * stride


def _memory(training: Training, loss: Loss) -> float:
    """About how many steps a run remembers, 1/(1 − c); infinite without contraction."""
    if not training.batches.fixed_size:
        loss = Loss(smoothness=0.0, regularization=loss.regularization)  # an empty batch
    c = Run(training, loss).contraction
    return 1 / (1 - float(c[0])) if c is not None and c[0] < 1 else math.inf


def _settled(epsilon: Callable[[int], float], memory: float, unit: int) -> int | None:
    """Epochs after which doubling them no longer moves epsilon; None if that is never seen.

    The search begins where a contracting run has forgotten its start: before that, many small
    batches can look settled while they are not.
    """
    blocks = math.ceil(4 * memory / unit) if math.isfinite(memory) else 64
    before = epsilon(blocks)
    for _ in range(12):
        blocks *= 2
        now = epsilon(blocks)
        if now <= before * (1 + _TOLERANCE / 10):
            return blocks
        before = now
    return None
