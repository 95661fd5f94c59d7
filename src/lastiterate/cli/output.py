"""What commands print: tables for people, JSON for machines.

JSON has stable keys and no markup; infinity, for which JSON has no word, is the string "inf".
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lastiterate._internal.formatting import escaped as escaped

if TYPE_CHECKING:
    from lastiterate.theory.registry import Theorem


def print_json(command: str, answer: Mapping[str, Any]) -> None:
    """One JSON object on stdout."""
    print(json_text(command, answer))


def json_text(command: str, answer: Mapping[str, Any]) -> str:
    """What `print_json` prints."""
    from lastiterate import __version__

    head = {"command": command, "version": __version__}
    return json.dumps(_plain({**head, **answer}), indent=2, allow_nan=False)


def print_table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """A table that fits the terminal; plain text when it goes to a file."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in rows:
        table.add_row(
            *(Text(escaped(cell)) for cell in row)
        )  # Text: brackets in a cell are not markup
    Console().print(table)


def print_text(text: str, style: str = "") -> None:
    """A paragraph, wrapped to the terminal."""
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(escaped(text), style=style))


def number(value: float | None) -> str:
    """Four digits, rounded up; "-" for nothing.

    >>> number(1.33601), number(float("inf")), number(None), number(0.0)
    ('1.337', 'inf', '-', '0')
    """
    from lastiterate._internal.formatting import printed

    return "-" if value is None else printed(value)


def standing(provenance: str) -> dict[str, Any]:
    """Whether a number is a guarantee at all, for machines."""
    return {"guarantee": provenance != "estimated", "provenance": provenance}


def print_standing(provenance: str) -> None:
    """The same for people, where there is something to say."""
    from lastiterate.accounting.guarantee import NOT_A_GUARANTEE

    if provenance == "estimated":
        print_text(NOT_A_GUARANTEE, style="bold red")


def theorem_entry(theorem: Theorem) -> dict[str, Any]:
    """A theorem of the ledger as plain values."""
    return {
        "key": theorem.key,
        "name": theorem.name,
        "reference": theorem.reference,
        "status": theorem.status,
        "statement": theorem.statement,
        "assumptions": list(theorem.assumptions),
        "correction": theorem.correction,
    }


def say_warning(text: str) -> None:
    """One line on stderr."""
    print(f"lastiterate: warning: {escaped(text)}", file=sys.stderr)


def warn_of(delta: float, records: int) -> None:
    """Say on stderr that a delta of 1/records or more allows too much."""
    from lastiterate.description.fields import large_delta

    if said := large_delta(delta, records):
        say_warning(said)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value
