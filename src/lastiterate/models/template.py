"""A schema to fill in: the names of a table's columns and the types they are stored with.

Ranges and categories are left to whoever knows what is public. Not a cell is looked at: a CSV keeps
no types, and guessing them from its cells would let one record decide what the schema says.
"""

from __future__ import annotations

import unicodedata

from lastiterate.errors import DescriptionError
from lastiterate.models.cells import Cells, MomentCells, NumberCells, TextCells
from lastiterate.models.columns import BLANK
from lastiterate.models.table import Source, read_header

_HEAD = """\
# What the columns mean. Fill in every "?" with what is publicly known, not with what you find
# in the records: the largest age in a private table is private. One of
#   {{ low = 0, high = 120 }}                     numbers, clipped to this range
#   {{ low = 1920-01-01, high = 2030-01-01 }}     dates, or times of a day, clipped likewise
#   {{ categories = ["a", "b"], other = true }}   texts; with other, unlisted ones share a feature
#   {{ boolean = true }}                          true or false
#   "drop"                                      no feature
# Add missing = true where a cell may be empty: that becomes a feature of its own.{note}
"""
_NO_TYPES = """
# These are the words of the first line. If they look like a record, the table has no header."""


def template(source: Source, target: str | None = None) -> str:
    """A schema in TOML, to be filled in.

    Args:
        source: a table: a path or a data frame.
        target: the column to predict, if it is known.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "people.csv"
    ...     _ = path.write_text("age,income\\n41,high\\n")
    ...     print(template(path, "income").split("header.\\n")[1])
    <BLANKLINE>
    [target]
    name = "income"
    classes = ["?"] # or low = 0, high = 100 for a number
    <BLANKLINE>
    [columns]
    age = "?"
    <BLANKLINE>
    """
    names, cells = read_header(source)
    if target is not None and target not in names:
        why = "the table has no such column, or no header"
        allowed = f"one of the {len(names)} names of the table"
        raise DescriptionError("target", target, allowed, why)
    lines = [
        _HEAD.format(note=_NO_TYPES if cells is None else ""),
        "[target]",
        f"name = {_quoted(BLANK if target is None else target)}",
        f'classes = ["{BLANK}"] # or low = 0, high = 100 for a number',
        "",
        "[columns]",
    ]
    for place, name in enumerate(names):
        if name != target:
            known = f'"{BLANK}"' if cells is None else _blank(cells[place])
            lines.append(f"{_key(name)} = {known}")
    return "\n".join(lines) + "\n"


def _blank(cells: Cells) -> str:
    """What is left to say about a column of this type."""
    ends = f'{{ low = "{BLANK}", high = "{BLANK}" }}'
    if cells.stored == "bool":
        return "{ boolean = true }"
    if isinstance(cells, NumberCells | MomentCells):
        return f"{ends} # {cells.stored}"
    if cells.stored == "null":  # objects of any type, as far as anybody has said
        return f'"{BLANK}"'
    if isinstance(cells, TextCells):
        return f'{{ categories = ["{BLANK}"], other = true }}'
    return f'"drop" # {cells.stored}'


def _key(name: str) -> str:
    plain = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if plain else _quoted(name)


def _quoted(text: str) -> str:
    r"""A text of TOML, in which no control character can hide or move anything.

    >>> _quoted('a"b\x1b\u202e\n')
    '"a\\"b\\u001b\\u202e\\u000a"'
    """
    return '"' + "".join(_sign(sign) for sign in text) + '"'


def _sign(sign: str) -> str:
    if sign in '"\\':
        return f"\\{sign}"
    if unicodedata.category(sign)[0] not in "CZ" or sign == " ":
        return sign
    return f"\\u{ord(sign):04x}" if ord(sign) < 0x10000 else f"\\U{ord(sign):08x}"
