"""A run that goes on without some of its records: the descriptions that plans are made of.

*Reference.* The same steps, batches and noise, on the remaining records from the start. Slots of
the deleted stay empty and the divisor is kept (zero-out), or public records take them (replace).
A new partition would move every record, and nothing here would hold.
"""

from __future__ import annotations

import numpy as np

from lastiterate.description import Cyclic, FullBatch, PrivacyUnit, Schedule, Training
from lastiterate.errors import DescriptionError, UnsupportedError


def unlearnable(training: Training, deleted: PrivacyUnit) -> None:
    """Raise if no plan can be made for this run and these records."""
    if deleted.last_step is not None and not isinstance(training.batches, (FullBatch, Cyclic)):
        why = (
            "how many steps follow the last use of a record tells its place, which these batches "
            "keep secret; describe them as cyclic ones, and every place is known"
        )
        raise DescriptionError("deleted.last_step", deleted.last_step, "None", why)
    deleted.check(training)
    if training.release != "last":
        raise UnsupportedError(
            "A tail average holds iterates from before the deletion, which clean steps do not "
            "clean. Describe the run with release='last', and release its last iterate."
        )


def base(training: Training) -> tuple[float, float]:
    """Step size and noise of a clean step: the run's own, the last ones where they were lists."""
    own = []
    for each in (training.step_size, training.noise):
        values = each.values if isinstance(each, Schedule) else np.array([each])
        own.append(float(values[-1]) if len(values) else 0.0)
    return own[0], own[1]


def going_on(training: Training, clean: int, noise: float | None = None) -> Training:
    """The run and ``clean`` further steps, with the same noise or another one.

    What the run did up to here stays as it was: a burst of noise at its end does not move.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=2, step_size=0.5, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch(), final_noise=4.0)
    >>> going_on(run, 2).noises
    array([1., 2., 1., 1.])
    """
    eta, own = base(training)
    noise = own if noise is None else noise
    if training.constant and noise == own:
        return training.replace(steps=training.steps + clean)
    return training.replace(
        steps=training.steps + clean,
        step_size=np.concatenate([training.step_sizes, np.full(clean, eta)]),
        noise=np.concatenate([training.noises, np.full(clean, noise)]),
        schedule=None,
        final_noise=1.0,
    )
