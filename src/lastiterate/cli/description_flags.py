"""The flags that describe a run, made from the fields of the descriptions (`rows`).

`describes_a_run` adds them to a command, which receives the finished description.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from lastiterate._internal.formatting import printed
from lastiterate.cli.described import DEFAULT_DELTA, combine
from lastiterate.description import Loss, Poisson, PrivacyUnit, Shuffled, Training
from lastiterate.description.batches import RUN, SCHEMES
from lastiterate.description.fields import Row, rows
from lastiterate.description.training import DP_SGD, LANGEVIN

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


def _option(row: Row) -> Any:
    return Annotated[row.type | None, flag(row.help, row.panel)]


def _flags() -> dict[str, Any]:
    """Annotations of the flags, by parameter name."""
    file = typer.Argument(help="A TOML file with tables training and loss.", show_default=False)
    flags: dict[str, Any] = {"file": Annotated[Path | None, file]}
    flags["batches"] = Annotated[str | None, flag(" | ".join(SCHEMES), RUN)]
    for described in (Training, Shuffled, Poisson, Loss, PrivacyUnit):
        for name, row in rows(described).items():
            if row.panel:
                flags[row.flag or name] = _option(row)
    flags |= {name: _option(row) for name, row in (DP_SGD | LANGEVIN).items()}
    average = "The average of this many last iterates is released."
    flags["tail_average"] = Annotated[int | None, flag(average, _OUT)]
    released = "Steps whose iterates are released too, as 500,1000."
    flags["releases"] = Annotated[str | None, flag(released, _OUT)]
    flags["delta"] = Annotated[float | None, flag(f"Default {printed(DEFAULT_DELTA)}.", _OUT)]
    return flags


_OUT = "Released"
_FLAGS = _flags()


def describes_a_run(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the flags of a description; it receives the result as ``described``."""
    own = list(inspect.signature(command).parameters.values())[1:]
    hints = get_type_hints(command, include_extras=True) | _FLAGS
    by_name = inspect.Parameter.KEYWORD_ONLY
    shared = [inspect.Parameter(name, by_name, default=None) for name in _FLAGS]

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        given = {name: values.pop(name) for name in _FLAGS}
        file = given.pop("file")
        flags = {name: value for name, value in given.items() if value is not None}
        command(combine(file, flags), **values)

    del with_flags.__wrapped__  # Typer must see the new signature
    parameters = [p.replace(annotation=hints[p.name], kind=by_name) for p in (*shared, *own)]
    with_flags.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    with_flags.__annotations__ = {p.name: p.annotation for p in parameters}
    return with_flags
