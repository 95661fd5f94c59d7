"""The flags that describe a run, shared by every command that takes one.

The shared signature is written once, as that of `describe`; `describes_a_run` adds it to a command.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.described import DEFAULT_DELTA, Described, combine
from lastiterate.description.batches import SCHEMES
from lastiterate.description.tables import LOSS_FIELDS

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Seconds = Annotated[
    float,
    typer.Option(
        help="Of computing on files that may be a stranger's; more is refused.", min=1, max=10**6
    ),
]
Megabytes = Annotated[
    int, typer.Option(help="Of memory for such files; more is refused.", min=100, max=10**7)
]
Revoked = Annotated[
    list[Path] | None,
    typer.Option(help="A note of revoked certificates (lastiterate revoke); several in turn."),
]
TrustedKeys = Annotated[
    list[Path] | None,
    typer.Option(
        "--trusted-key",
        "--trusted",
        help="A public key that must have signed it (several: one of them is enough).",
        show_default=False,
    ),
]


def flag(help: str, panel: str) -> Any:
    """An option of a command, in a panel of its help."""
    return typer.Option(help=help, rich_help_panel=panel, show_default=False)


_RUN, _NOISE, _LOSS, _OUT = "The run", "Noise and gradients", "The loss of one record", "Released"
_WHOM = "Whom it is for"


def describes_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all the flags of `describe`; it receives the result as ``described``."""
    own = list(inspect.signature(command).parameters.values())[1:]
    shared = list(inspect.signature(describe).parameters.values())
    hints = get_type_hints(command, include_extras=True) | get_type_hints(
        describe, include_extras=True
    )

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        flags = {parameter.name: values.pop(parameter.name) for parameter in shared}
        command(describe(**flags), **values)

    del with_flags.__wrapped__  # Typer must see the new signature
    parameters = [p.replace(annotation=hints[p.name]) for p in (*shared, *own)]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_flags


def describe(
    file: Annotated[
        Path | None,
        typer.Argument(help="A TOML file with the tables training and loss.", show_default=False),
    ] = None,
    records: Annotated[int | None, flag("Number of records.", _RUN)] = None,
    steps: Annotated[int | None, flag("Number of updates.", _RUN)] = None,
    epochs: Annotated[float | None, flag("Passes over the data, instead of steps.", _RUN)] = None,
    step_size: Annotated[
        float | None, flag("Step size (one per step: list it in the file).", _RUN)
    ] = None,
    batches: Annotated[str | None, flag(" | ".join(SCHEMES), _RUN)] = None,
    batch_size: Annotated[int | None, flag("Records in one batch.", _RUN)] = None,
    rate: Annotated[
        float | None, flag("Probability that a record joins a Poisson batch.", _RUN)
    ] = None,
    diameter: Annotated[
        float | None, flag("Of the convex set that parameters are projected on.", _RUN)
    ] = None,
    schedule: Annotated[
        str | None, flag("equalised: the last epoch's steps shrink (calibrate: or optimal).", _RUN)
    ] = None,
    momentum: Annotated[
        float | None, flag("Of the velocity; accounted by composition only.", _RUN)
    ] = None,
    noise: Annotated[
        float | None, flag("Standard deviation added to the parameters in one update.", _NOISE)
    ] = None,
    gradient_norm: Annotated[
        float | None, flag("No gradient of one record is longer.", _NOISE)
    ] = None,
    final_noise: Annotated[
        str | None, flag("Factor on the variance of the last step's noise, or best.", _NOISE)
    ] = None,
    noise_multiplier: Annotated[
        float | None, flag("DP-SGD: noise = step size * this * clip / batch.", _NOISE)
    ] = None,
    clip: Annotated[float | None, flag("DP-SGD: clipping norm of a gradient.", _NOISE)] = None,
    sigma: Annotated[
        float | None, flag("Langevin: noise variance = 2 * step size * sigma^2.", _NOISE)
    ] = None,
    gradient_sensitivity: Annotated[
        float | None, flag("Langevin: change of the summed gradients by one record.", _NOISE)
    ] = None,
    clipping: Annotated[
        str | None, flag("How the norm is enforced: none | gradient | margin.", _NOISE)
    ] = None,
    sensitivity: Annotated[
        float | None, flag("A smaller one than the norm implies; you vouch for it.", _NOISE)
    ] = None,
    adjacency: Annotated[
        str | None, flag("Neighbouring datasets: replace | zero-out.", _NOISE)
    ] = None,
    loss: Annotated[str | None, flag(" | ".join(LOSS_FIELDS), _LOSS)] = None,
    smoothness: Annotated[
        float | None, flag("Lipschitz (or Hoelder) constant of the gradient.", _LOSS)
    ] = None,
    strong_convexity: Annotated[
        float | None, flag("Strong convexity, without the L2 term.", _LOSS)
    ] = None,
    regularization: Annotated[
        float | None, flag("Coefficient of the L2 term, which no clip touches.", _LOSS)
    ] = None,
    exponent: Annotated[float | None, flag("Hoelder exponent of the gradient.", _LOSS)] = None,
    tail_average: Annotated[
        int | None, flag("The average of this many last iterates is released.", _OUT)
    ] = None,
    releases: Annotated[
        str | None, flag("Steps whose iterates are released too, as 500,1000.", _OUT)
    ] = None,
    unit_records: Annotated[int | None, flag("Records that one person has at most.", _WHOM)] = None,
    per_batch: Annotated[
        int | None, flag("At most so many of them are in one batch (the loader sees to it).", _WHOM)
    ] = None,
    first_step: Annotated[
        int | None, flag("The person's records are used from this step on (from 0).", _WHOM)
    ] = None,
    last_step: Annotated[
        int | None, flag("The person's records are used before this step only.", _WHOM)
    ] = None,
    own_gradient_norm: Annotated[
        float | None, flag("No gradient of the person's records is longer.", _WHOM)
    ] = None,
    delta: Annotated[float | None, flag(f"Default {printed(DEFAULT_DELTA)}.", _OUT)] = None,
) -> Described:
    """Read the file, lay the flags over it, and build the description."""
    flags = {name: value for name, value in locals().items() if value is not None}
    return combine(flags.pop("file", None), flags)
