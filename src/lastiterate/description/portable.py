"""Descriptions as text: dictionaries, JSON and TOML, exactly round-trip.

Only plain types go out (numbers, strings, lists, tables), so that a description can be read by a
person, kept under version control and checked by another program. Infinity is written ``inf`` in
TOML and ``"inf"`` in JSON, which has no word for it.
"""

from __future__ import annotations

import json
import math
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from lastiterate.errors import DescriptionError


class Portable(ABC):
    """Something that can be written as a table of plain values and read back."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """A table of plain values; defaults are left out."""

    @classmethod
    @abstractmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""

    def to_json(self) -> str:
        """One JSON object."""
        return json.dumps(_without_infinity(self.to_dict()), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        try:
            table = _with_infinity(json.loads(text, object_pairs_hook=_said_once))
        except (ValueError, RecursionError) as error:
            raise _unreadable("JSON", error) from None
        return cls.from_dict(table)

    def to_toml(self) -> str:
        """A TOML document."""
        return "".join(f"{key} = {_toml(value)}\n" for key, value in self.to_dict().items())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read what ``to_toml`` wrote."""
        return cls.from_dict(read_toml(text))


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, if no name occurs twice: a reader would see one value, a program another."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return table


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML, or raise a DescriptionError that says where it breaks."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable("TOML", error) from None


def _unreadable(language: str, error: Exception) -> DescriptionError:
    return DescriptionError("description", str(error), f"valid {language}", "nothing can be read")


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return str(value)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_infinity(v) for k, v in value.items()}
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _with_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _with_infinity(v) for k, v in value.items()}
    return math.inf if value == "inf" else value
