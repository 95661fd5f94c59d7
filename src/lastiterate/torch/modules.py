"""Noisy descent of any network: per-record clipping, batches as described.

The update is that of `noisy_descent`; what is proved about the loss is another matter: for most
networks `Loss.unknown()` is the truth, for those of `bounded_heads` there are proved constants.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lastiterate.description import Training
from lastiterate.description.fields import one_of
from lastiterate.noise import Source
from lastiterate.noise.seeded import Seed
from lastiterate.torch.bounded_heads import BoundedHead
from lastiterate.torch.module_gradients import LossFunction, ModuleGradients
from lastiterate.train.checkpoint import Checkpoint
from lastiterate.train.loop import Run
from lastiterate.train.result import Descent
from lastiterate.train.settings import Settings
from lastiterate.train.torch_backend.backend import TorchBackend


def noisy_module_descent(
    module: nn.Module,
    loss: LossFunction,
    inputs: Tensor,
    targets: Tensor,
    training: Training,
    *,
    regularization: float = 0.0,
    noise: Source | None = None,
    random_state: Seed = None,
    radius: float | None = None,
    progress: bool | None = None,
    checkpoint: Checkpoint | None = None,
    groups: Any = None,
    max_records_per_group: int | None = None,
    per_batch: int | None = None,
    chunk: int | None = None,
    per_record: Literal["func", "hooks", "ghost"] = "func",
) -> Descent:
    """Train a network with noisy gradients, exactly as described.

    Args:
        module: the network, where its parameters are now: the start, and the centre of the
            projection, must not depend on the data. Its trainable parameters are set to what
            is released when the run ends, and not before.
        loss: (outputs, targets) of a batch of one record -> its loss.
        inputs: one per record, on the device of the network.
        targets: one per record.
        training: what to run; clipping is "gradient", or "none" where no gradient is longer. What
            is not finite is clipped to 0.
        regularization: coefficient of the data-free L2 term on the trainable parameters.
        noise, random_state, radius, progress, checkpoint: as in `noisy_descent`. A resumed run
            starts from a network with the same parameters.
        groups, max_records_per_group, per_batch: as in `noisy_descent`: whose records they are.
        chunk: records whose gradients are held at once; 1 computes them one by one.
        per_record: how gradients of single records are clipped: "func" by `torch.func`, for any
            network; "hooks" by Opacus' layers; "ghost" by Opacus without holding one gradient
            per record, in two backward passes, whose sums have no proved error (an experiment).
            The last two are compared with the first on a few records before the run.

    Returns what was released as one vector; its ``loss`` is None, as nobody vouches for it here.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=4, steps=3, step_size=0.5, noise=0.1, gradient_norm=1.0,
    ...                batches=FullBatch(), clipping="gradient")
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2))
    >>> done = noisy_module_descent(net, nn.CrossEntropyLoss(), torch.eye(4)[:, :2],
    ...                             torch.tensor([0, 1, 0, 1]), run)
    >>> done.parameters.shape
    (17,)
    """
    one_of("per_record", per_record, ("func", "hooks", "ghost"))
    gradients = ModuleGradients(module, loss, inputs, targets, training, chunk)
    if per_record != "func":
        from lastiterate.torch.opacus_gradients import OpacusGradients

        gradients = OpacusGradients(gradients, ghost=per_record == "ghost")
    if not gradients.objection:
        gradients.check_independence()
    for part in module.modules():
        if isinstance(part, BoundedHead):
            part.started()
    start = gradients.vector()
    told = Settings(
        regularization=regularization,
        start=start.cpu().numpy(),
        noise=noise,
        random_state=random_state,
        radius=radius,
        progress=progress,
        checkpoint=checkpoint,
        groups=groups,
        max_records_per_group=max_records_per_group,
        per_batch=per_batch,
    )
    run = Run.of(module, training, told, gradients)
    done = run.descended(gradients, TorchBackend(start.device, run.source))
    values = gradients.shaped(torch.from_numpy(done.parameters.copy()).to(start.device))
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name in values:
                parameter.copy_(values[name])
    return dataclasses.replace(done, not_convex=_stacked(module))


def _stacked(module: nn.Module) -> str:
    """Return that weights of several layers are multiplied with each other; "" if unknown."""
    layers = (nn.Linear, nn.modules.conv._ConvNd)
    parts = module.children() if type(module) is nn.Sequential else ()
    trained = sum(isinstance(part, layers) and part.weight.requires_grad for part in parts)
    if trained < 2:
        return ""
    return f"{trained} of the network's layers are trained, one on the output of another"
