"""`noisy_descent`: a description, run with NumPy or PyTorch by the one loop of `loop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from lastiterate.description import Training
from lastiterate.errors import DescriptionError
from lastiterate.losses import LinearLoss
from lastiterate.noise import Source
from lastiterate.noise.seeded import Seed
from lastiterate.train.checkpoint import Checkpoint
from lastiterate.train.gradients import CallableGradients, GradientFunction, LinearGradients
from lastiterate.train.loop import Backend, Gradients, Run
from lastiterate.train.result import Descent
from lastiterate.train.settings import Products, RowRule, Settings
from lastiterate.train.spread import Records, SpreadGradients
from lastiterate.train.torch_backend import on_device

if TYPE_CHECKING:
    from lastiterate.certificate import CertificateChain


def noisy_descent(
    objective: LinearLoss | GradientFunction,
    data: Any,
    training: Training,
    *,
    labels: ArrayLike | None = None,
    regularization: float = 0.0,
    start: ArrayLike | None = None,
    feature_bound: float | None = None,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
    device: Any = None,
    products: Products = "double",
    rows: RowRule = "check",
    entry_bound: float | None = None,
    groups: Any = None,
    max_records_per_group: int | None = None,
    per_batch: int | None = None,
    continue_from: Descent | CertificateChain | None = None,
    weights: ArrayLike | None = None,
) -> Descent:
    """Run a description, with NumPy or, where the data is a tensor, with PyTorch.

    Args:
        objective: a loss of `lastiterate.losses`, or a function (parameters, indices) -> one
            gradient per record (then ``data`` may be None and ``start`` is needed). With
            clipping="gradient" one that is not finite counts as 0. In random batches it is called
            for chunks of one size, filled up with records whose gradients are dropped, so that
            what it rounds of a record does not depend on the batch.
        data: one row per record: an array, a table or a sparse matrix; a torch tensor or
            `lastiterate.torch.Shards`, which run on a device by the same law; or records that lie
            elsewhere (`lastiterate.train.Records`).
        training: what to run.
        labels: one per record.
        regularization: coefficient of the data-free L2 term, added outside any clipping.
        start: where to start, and the centre of the projection; zero by default. It must not
            depend on the data.
        feature_bound: no row of the data is longer. Rows are checked. By default the largest
            bound for which the loss keeps its gradients within training.gradient_norm.
        noise: a source of randomness; by default the secure one. With a source of your own, a
            subclass of the secure one too, the run is an experiment.
        random_state: a seed: the run is then an experiment that cannot be certified.
        radius: of the ball that parameters are projected on; by default half of
            training.diameter, and never more. Without either, noise has a ball so wide that it
            practically never acts (`lastiterate.train.reach`); a smaller one rounds less.
        progress: show a bar; by default only for long runs on a terminal.
        checkpoint: `MemoryCheckpoint` or `EncryptedCheckpoint`: the run goes on from what it
            holds, with the same records in the same order (a gradient function must see to that
            itself). It is cleared when the run ends.
        device, products, rows, entry_bound: only with PyTorch, which a ``device`` asks for by
            itself; see `lastiterate.torch.noisy_descent`.
        groups: the owner of each record, as in scikit-learn's GroupKFold; then `Descent.unit`
            says whom to certify the run for.
        max_records_per_group: with groups, so many records of a person count at most; others are
            dropped at random, and their slots stay empty.
        per_batch: with groups, at most so many of them are in one batch: shuffled batches deal
            them out, batches in a known order are looked at and refused.
        continue_from: start from what an earlier run *released*, also where its people are other
            ones: what it returned, or a `CertificateChain`, whose last model is taken (none yet:
            the run starts at ``start``'s default). Add the run to the chain by
            `CertificateChain.append` before you publish it.
        weights: one number of [0, 1] per record, by which its loss is multiplied (a loss of this
            library, with NumPy). All constants stay: such a multiple is as convex, and no steeper.

    Products and sums are in double precision, also where the features are not, and noise is added
    on a grid (`lastiterate.train.grid`). What is returned says how far sums can be off, and which
    grid it was (`Descent.training.arithmetic`): account and certify that description, or calibrate
    one that has it.

    >>> import numpy as np
    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([1.0, -1.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> noisy_descent(Logistic(), X, run, labels=y, regularization=0.1).parameters.round(3)
    array([ 1.177, -1.177])
    """
    told = Settings(
        labels=labels,
        regularization=regularization,
        start=start,
        feature_bound=feature_bound,
        noise=noise,
        random_state=random_state,
        radius=radius,
        progress=progress,
        checkpoint=checkpoint,
        device=device,
        products=products,
        rows=rows,
        entry_bound=entry_bound,
        groups=groups,
        max_records_per_group=max_records_per_group,
        per_batch=per_batch,
        continue_from=continue_from,
        weights=weights,
    )
    if isinstance(objective, LinearLoss) and (device is not None or on_device(data)):
        from lastiterate.train.torch_backend.descent import descent

        return descent(objective, data, training, told)
    _only_with_torch(told)
    gradients: Gradients
    if isinstance(data, Records):
        gradients = SpreadGradients(objective, data, training, told)
        run = Run.of(objective, training, told, gradients, rows=gradients.rows)
        return run.descended(gradients, Backend())
    if isinstance(objective, LinearLoss):
        l2 = told.regularization
        gradients = LinearGradients(objective, data, labels, training, l2, feature_bound, weights)
    else:
        gradients = _of_function(objective, data, training, told)
    return Run.of(objective, training, told, gradients).descended(gradients, Backend())


def _only_with_torch(told: Settings) -> None:
    """Raise rather than ignore what the NumPy backend cannot do."""
    for name in ("device", "products", "rows", "entry_bound"):
        value = getattr(told, name)
        if value != getattr(Settings, name):
            allowed = "left out unless the data is a tensor and the objective a linear loss"
            raise DescriptionError(name, value, allowed, "what is asked for must be what runs")


def _of_function(
    objective: Any, data: Any, training: Training, told: Settings
) -> CallableGradients:
    if not callable(objective):
        allowed = "a loss of lastiterate.losses or a function (parameters, indices) -> gradients"
        why = "the run needs one gradient per record"
        raise DescriptionError("objective", objective, allowed, why)
    for name in ("labels", "feature_bound", "weights"):
        if getattr(told, name) is not None:
            why = "a gradient function already knows its data"
            raise DescriptionError(name, "given", "absent with a gradient function", why)
    if data is not None and _length(data) != training.records:
        why = "what is certified must be what runs"
        allowed = f"training.records = {training.records} rows, or None"
        raise DescriptionError("data", f"{_length(data)} rows", allowed, why)
    return CallableGradients(objective, training)


def _length(data: Any) -> int:
    return int(data.shape[0]) if hasattr(data, "shape") else len(data)
