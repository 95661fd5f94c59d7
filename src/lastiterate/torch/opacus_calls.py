"""What Opacus' own calls need from an accountant: noise for a budget, rates of a scheduler.

`get_noise_multiplier` asks a fresh accountant what a noise multiplier would cost, and tells it the
sample rate and the number of steps, nothing else.
"""

from __future__ import annotations

import inspect
import math
from typing import Any

from lastiterate.accounting import account
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.description import Loss, Training
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

_WHOLE = 1e-9  # a number of epochs that is whole but for rounding

# Their rates are a function of how often step() was called, and of nothing else.
_COUNTING = (
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "StepLR",
)
_OF_OTHERS = ("ChainedScheduler", "SequentialLR")


def planned_epsilon(
    delta: float,
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    training: Training | None = None,
    loss: Loss | None = None,
) -> float:
    """epsilon of a run with this noise multiplier that has not been made.

    Without a description it is the larger one of two compositions, of Poisson batches and of
    batches in order: whichever loader comes, with clipped gradients and zero-out neighbours, one of
    them bounds it. Where ``make_private_with_epsilon`` asks and gives the loader Opacus' Poisson
    sampler, it is the composition of Poisson batches.

    >>> planned_epsilon(1e-5, 1.0, 1.0, 1) >= Gaussian(1.0).epsilon(1e-5)
    True
    """
    # Opacus rounds epochs / sample_rate down: 3 / (1/75) gives 224 steps, one too few.
    passes = (steps + 1) * sample_rate
    if abs(passes - round(passes)) < _WHOLE:
        steps += 1
    if training is None or loss is None:
        if training is not None or loss is not None:
            why = "what is known about the loss is worth something only with the run"
            raise DescriptionError("training, loss", (training, loss), "both or neither", why)
        sampled = LossDistribution.sampled_gaussian(min(sample_rate, 1.0), 1 / noise_multiplier)
        if _poisson_loader_follows():
            return float(sampled.self_compose(steps).epsilon(delta))
        uses = math.ceil(steps * sample_rate - _WHOLE)
        ordered = Gaussian(math.sqrt(uses) / noise_multiplier)
        return max(sampled.self_compose(steps).epsilon(delta), ordered.epsilon(delta))
    per_epoch = training.batches.per_epoch(training.records)
    share = training.batches.share(training.records) if per_epoch is None else 1 / per_epoch
    if not math.isclose(share, sample_rate, rel_tol=1e-9):
        raise AssumptionError(
            f"The loader has a sample rate of {sample_rate:g} (one batch of it), but {training} "
            f"has {share:g}: noise for other batches than those that will run is no noise for "
            "this run. Describe the loader that is there (describe_loader)."
        )
    # Opacus divides by a whole number; the same update per unit of the nominal divisor.
    expected = int(training.records * sample_rate)
    weight = training.batches.divisor(training.records) / expected
    if isinstance(training.step_size, (int, float)):
        sizes: Any = training.step_size
        noises: Any = sizes * noise_multiplier * training.gradient_norm / expected
    else:
        sizes = training.step_sizes
        noises = sizes * (noise_multiplier * training.gradient_norm / expected)
    run = training.replace(steps=steps, step_size=sizes * weight, noise=noises)
    return account(run, loss).epsilon(delta)


def _poisson_loader_follows() -> bool:
    """Whether `PrivacyEngine.make_private_with_epsilon` asks and will make a Poisson loader.

    It tells an accountant nothing about the loader: its own arguments, on the stack, do.
    """
    from opacus import PrivacyEngine

    asking, frame = PrivacyEngine.make_private_with_epsilon.__code__, inspect.currentframe()
    while frame is not None and frame.f_code is not asking:
        frame = frame.f_back
    return frame is not None and frame.f_locals.get("poisson_sampling") is True


def counting_scheduler(scheduler: Any, optimizer: Any) -> str:
    """The name of a scheduler of this optimizer whose rates depend on counts alone; else raises."""
    from torch.optim import lr_scheduler

    name = type(scheduler).__name__
    if type(scheduler) is not getattr(lr_scheduler, name, None) or name not in (
        *_COUNTING,
        *_OF_OTHERS,
    ):
        raise UnsupportedError(
            f"A {name} may choose learning rates by looking at losses, and so at the data: no "
            "theorem covers a step size that tells of them. Use one of torch's schedulers that "
            f"count steps ({', '.join(_COUNTING)}), or give step_size= one value per update."
        )
    if name in _OF_OTHERS:
        inner = [counting_scheduler(each, optimizer) for each in scheduler._schedulers]
        return f"{name}({', '.join(inner)})"
    if scheduler.optimizer not in (optimizer, optimizer.original_optimizer):
        raise AssumptionError(
            f"The {name} sets the learning rate of another optimizer than the one that was given: "
            "recorded rates would not be those that run. Give the scheduler of this optimizer."
        )
    return name
