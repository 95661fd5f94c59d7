"""The Python and the TOML that give the numbers of the page without the page."""

from __future__ import annotations

import dataclasses
import math

from lastiterate.description import Loss, TailAverage, Training
from lastiterate.explore.reading import Description


def python(description: Description) -> str:
    """A program that prints the epsilon of the page.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=5, steps=200, step_size=0.1, noise=1.0, gradient_norm=2.0,
    ...                batches=FullBatch())
    >>> program = python(Description(run, Loss(smoothness=1.0), 1e-5))
    >>> program.splitlines()[-1]
    'print(guarantee.epsilon(delta=1e-05))'
    """
    training, loss = description.training, description.loss
    names = ["Loss", "Training", "account", type(training.batches).__name__]
    if isinstance(training.release, TailAverage):
        names.append("TailAverage")
    given = {
        "records": _whole(training.records),
        "steps": _whole(training.steps),
        "step_size": repr(training.step_size),
        "noise": repr(training.noise),
        "gradient_norm": repr(training.gradient_norm),
        "batches": _batches(training),
    }
    if math.isfinite(training.diameter):
        given["diameter"] = repr(training.diameter)
    if isinstance(training.release, TailAverage):
        given["release"] = f"TailAverage({_whole(training.release.window)})"
    given["adjacency"] = repr(training.adjacency)
    given["clipping"] = repr(training.clipping)
    listed = "".join(f"    {name}={value},\n" for name, value in given.items())
    names.sort(key=lambda name: (name.islower(), name))
    return (
        f"from lastiterate import {', '.join(names)}\n\n"
        f"training = Training(\n{listed})\n"
        f"loss = {_loss(loss)}\n"
        f"guarantee = account(training, loss)\n"
        f"print(guarantee.epsilon(delta={description.delta!r}))\n"
    )


def toml(description: Description) -> str:
    """A file for ``lastiterate account FILE`` and the other commands."""
    return (
        f"delta = {description.delta!r}\n\n"
        f"[training]\n{description.training.to_toml()}\n"
        f"[loss]\n{description.loss.to_toml()}"
    )


def _whole(count: int) -> str:
    return f"{count:_}" if count >= 10_000 else str(count)


def _batches(training: Training) -> str:
    batches = training.batches
    given = [
        f"{name}={_whole(value) if isinstance(value, int) else repr(value)}"
        for name, value in dataclasses.asdict(batches).items()
    ]
    return f"{type(batches).__name__}({', '.join(given)})"


def _loss(loss: Loss) -> str:
    constant = "constant" if loss.kind == "holder" else "smoothness"
    given = {
        constant: loss.smoothness,
        "exponent": loss.exponent,
        "strong_convexity": loss.strong_convexity or None,
        "regularization": loss.regularization or None,
    }
    listed = ", ".join(f"{name}={_real(x)}" for name, x in given.items() if x is not None)
    maker = "Loss" if loss.kind == "convex" else f"Loss.{loss.kind}"
    return f"{maker}({listed})"


def _real(value: float) -> str:
    return repr(value) if math.isfinite(value) else f'float("{value}")'
