"""A run as something to type: the Python and the TOML that give its number again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from lastiterate.description import Loss, PrivacyUnit, TailAverage, Training
from lastiterate.description.unit import ONE_RECORD

LONGEST_LIST = 64  # values; a longer schedule is read from the certificate instead


def writable(training: Training) -> bool:
    """Whether the description is short enough to be read by a person."""
    lists = [value for value in training.to_dict().values() if isinstance(value, list)]
    return all(len(values) <= LONGEST_LIST for values in lists)


def python_recipe(
    training: Training,
    loss: Loss,
    delta: float,
    *,
    releases: Iterable[int] = (),
    unit: PrivacyUnit = ONE_RECORD,
) -> str:
    """A Python program that prints epsilon; it uses public names only.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=2, step_size=0.1, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> print(python_recipe(run, Loss(smoothness=1.0), 1e-5))
    from lastiterate import FullBatch, Loss, Training, account
    <BLANKLINE>
    training = Training(
        records=9,
        steps=2,
        step_size=0.1,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency='zero-out',
    )
    loss = Loss(smoothness=1.0)
    print(account(training, loss).epsilon(delta=1e-05))
    <BLANKLINE>
    """
    names = {"Loss", "Training", "account", type(training.batches).__name__}
    fields = training.to_dict() | {"batches": training.batches}
    if isinstance(training.release, TailAverage):
        names.add("TailAverage")
        fields["release"] = training.release
    lines = [f"    {name}={_literal(value)}," for name, value in fields.items()]
    checkpoints = tuple(releases)
    also = f", releases={checkpoints}" if checkpoints else ""
    if not unit.default:
        names.add("PrivacyUnit")
        also += f", unit=PrivacyUnit({_arguments(unit.to_dict())})"
    return "\n".join(
        (
            f"from lastiterate import {', '.join(sorted(names))}",
            "",
            "training = Training(",
            *lines,
            ")",
            f"loss = {_loss(loss)}",
            f"print(account(training, loss{also}).epsilon(delta={delta!r}))",
            "",
        )
    )


def toml_recipe(
    training: Training,
    loss: Loss,
    delta: float,
    *,
    releases: Iterable[int] = (),
    unit: PrivacyUnit = ONE_RECORD,
) -> str:
    """A TOML file for `lastiterate account`, `compare`, `calibrate` and their like.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=2, step_size=0.1, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> toml_recipe(run, Loss(smoothness=1.0), 1e-5).splitlines()[:3]
    ['delta = 1e-05', '', '[training]']
    """
    checkpoints = list(releases)
    head = f"delta = {delta!r}\n" + (f"releases = {checkpoints}\n" if checkpoints else "")
    whom = "" if unit.default else f"\n[unit]\n{unit.to_toml()}"
    return f"{head}\n[training]\n{training.to_toml()}\n[loss]\n{loss.to_toml()}{whom}"


def _loss(loss: Loss) -> str:
    fields: dict[str, Any] = loss.to_dict()
    kind = fields.pop("kind", "convex")
    if kind == "holder":
        fields = {"constant": fields.pop("smoothness"), **fields}
    name = "Loss" if kind == "convex" else f"Loss.{kind}"
    return f"{name}({_arguments(fields)})"


def _arguments(fields: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={_literal(value)}" for name, value in fields.items())


def _literal(value: Any) -> str:
    if isinstance(value, float) and math.isinf(value):
        return 'float("inf")'
    return f"{value:_}" if isinstance(value, int) and value >= 10_000 else repr(value)
