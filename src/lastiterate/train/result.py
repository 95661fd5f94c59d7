"""What a run returns: what it released, and what ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Arithmetic, Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import AssumptionError
from lastiterate.train.grid import Grid, Parameters
from lastiterate.train.summation import charged

if TYPE_CHECKING:
    from lastiterate.certificate import Certificate
    from lastiterate.verifier.document import Head


@dataclass(frozen=True)
class Descent:
    """What a run released, and what ran.

    Attributes:
        parameters: what the description releases: the last iterate or the tail average; shape
            (features,) or (features, outputs); read-only.
        training: the description that ran, with the error of the sums that were computed: certify
            this one.
        loss: what is proved about the loss (None for a gradient function or a network).
        regularization: the coefficient of the L2 term that every update added.
        not_convex: the reason why no criterion makes the loss convex in the parameters, such as two
            trained layers; then a convex ``loss=`` raises. Empty if nothing is known.
        experiment: the randomness of the run or of a part of it was seeded, or its sums have no
            proved error: no certificate may be given.
        partition_nonce: names the hidden partition; None where batches have none.
        objection: why the run is an experiment and what to do about it; empty if it is none.
        unit: whom the run was made for (``groups``): certify it for that person.
        above: who has more records than one person may have. They are covered, as the rest of
            their records was dropped. For whoever runs it: not for a report, nor a certificate.
            Empty slots curve nothing: declare no strong_convexity of the data then.
        started: the hash of the released model that the run went on from (``continue_from``); None
            if it started somewhere public. A certificate must say it: `CertificateChain.append`
            does.
    """

    parameters: Parameters
    training: Training
    loss: Loss | None
    experiment: bool
    partition_nonce: str | None
    objection: str = ""
    unit: PrivacyUnit = ONE_RECORD
    above: tuple[Any, ...] = field(default=(), repr=False)
    started: str | None = None
    regularization: float = 0.0
    not_convex: str = ""

    def certificate(
        self,
        delta: float,
        *,
        loss: Loss | None = None,
        dataset: str = "",
        releases: Iterable[int] = (),
        unit: PrivacyUnit | None = None,
        follows: Head | None = None,
    ) -> Certificate:
        """The certificate of this run, bound to its parameters; an experiment has none.

        Args:
            delta, dataset, releases, follows: as in `certify`.
            loss: what is known about the loss, where the run does not say it. Its regularization
                must be that of the run, and it may claim no more than proved constants say, nor
                convexity of a network that is not linear in what was trained.
            unit: as in `certify`; by default the person whom the run was made for (``groups``).

        >>> from lastiterate import FullBatch, verify
        >>> from lastiterate.losses import Logistic
        >>> from lastiterate.train import noisy_descent
        >>> run = Training(records=40, steps=20, step_size=1.0, noise=0.3, gradient_norm=1.0,
        ...                batches=FullBatch(), adjacency="zero-out")
        >>> X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
        >>> released = noisy_descent(Logistic(), X, run, labels=y)
        >>> certificate = released.certificate(delta=1e-5)
        >>> f"{verify(certificate, parameters=released.parameters).epsilon:.3f}"
        '1.438'
        """
        from lastiterate.certificate.released import certify_released

        return certify_released(
            self,
            delta,
            loss=loss,
            dataset=dataset,
            releases=releases,
            unit=unit,
            follows=follows,
        )


_SEEDED = (
    "The randomness was seeded, and whoever knows the seed can subtract the noise, or came from a "
    "source of your own, for which nobody vouches: leave random_state and noise out."
)
_UNBOUNDED = (
    "Nothing bounds how long a gradient is, so nothing bounds what their sums round: clip "
    "gradients, or declare a gradient_norm that holds."
)
_RESUMED = (
    "The part of the run before its checkpoint was an experiment (seeded, or with sums that have "
    "no proved error): start again without the checkpoint."
)


def concluded(
    parameters: Parameters,
    training: Training,
    loss: Loss | None,
    nonce: str | None,
    engine: Arithmetic | None,
    grid: Grid | None,
    per_length: float,
    *,
    regularization: float,
    secure: bool,
    marked: bool = False,
    coarse: str = "",
) -> Descent:
    """What ran: the description with the error of its sums, or why it is an experiment.

    Args:
        engine: how far sums can be off; None if nothing bounds it.
        grid: what the parameters were rounded to; None without noise.
        per_length: how much farther gradients can be off for every unit of the parameters' length.
        regularization: the coefficient of the L2 term of the updates.
        secure: whether the randomness was.
        marked: whether any part of the run, before a checkpoint too, forbids a certificate.
        coarse: why sums have no proved error, if so.
    """
    objection = coarse
    if not objection and engine is None:
        objection = _UNBOUNDED
    if not objection and not secure:
        objection = _SEEDED
    if not objection and marked:
        objection = _RESUMED
    # An experiment with coarse sums claims nothing about what it rounds.
    ran = training.replace(arithmetic="exact")
    if not coarse:
        ran = rounding(training, engine, grid, parameters.size, per_length)
    return Descent(
        parameters, ran, loss, bool(objection), nonce, objection, regularization=regularization
    )


def rounding(
    training: Training, engine: Arithmetic | None, grid: Grid | None, size: int, per_length: float
) -> Training:
    """The description with what its sums, of so many parameters, and its grid round."""
    if engine is not None and grid is not None:
        engine = grid.arithmetic(engine, size, per_length)
    return charged(training, engine)


_CONTINUED = (
    "It goes on from the model of an experiment, of whose people no certificate says anything: go "
    "on from a run that can be certified."
)


def continued(ran: Descent, started: str | None, before: bool) -> Descent:
    """What ran, from which released model; ``before``: that was one of an experiment."""
    told = replace(ran, started=started)
    if not before:
        return told
    return replace(told, experiment=True, objection=ran.objection or _CONTINUED)


def shares(training: Training) -> tuple[int, NDArray[np.float64]]:
    """The window, and what each iterate counts for in the sum that is divided by it at the end.

    0 before the window and, for a plain average, 1 inside it.
    """
    counts = np.zeros(training.steps)
    release = training.release
    window = release.window if isinstance(release, TailAverage) else 1
    counts[-window:] = 1.0
    if isinstance(release, TailAverage) and release.decay is not None and training.steps:
        counts[-window:] = release.weights * window
    return window, counts


def released(parameters: Parameters, training: Training, left: bool) -> Parameters:
    """The parameters, read-only; raises if the run diverged: infinite, or at the grid's end."""
    if left or not np.isfinite(parameters).all():
        raise AssumptionError(
            "The run diverged: the parameters grew without bounds, and nothing is released. The "
            f"step size {training.step_size} is too large for this loss, or the data too large."
        )
    parameters.flags.writeable = False
    return parameters
