"""Descriptions as text: dictionaries, JSON and TOML, exactly round-trip.

Only plain types are written (numbers, strings, lists, tables). Infinity is ``inf`` in TOML and
``"inf"`` in JSON, which has no word for it.
"""

from __future__ import annotations

import dataclasses
import json
import math
import tomllib
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from lastiterate.description.fields import known_fields, rows
from lastiterate.description.schedule import Schedule
from lastiterate.errors import DescriptionError


class Serializable:
    """A dataclass of `fields.field_` that can be written as a table of plain values and read."""

    table_name: ClassVar[str] = "description"  # in messages

    def to_dict(self) -> dict[str, Any]:
        """Return a table of plain values; defaults are left out."""
        table = {}
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            row, value = field.metadata["row"], getattr(self, field.name)
            if not row.derived and (row.always or row.required or value != field.default):
                table[field.name] = _plain(value)
        return table

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        stored = [name for name, row in rows(cls).items() if not row.derived]
        fields = known_fields(cls.table_name, table, stored)
        for field in dataclasses.fields(cls):  # type: ignore[arg-type]
            required = field.metadata["row"].required or field.default is dataclasses.MISSING
            if required and field.name not in fields:
                raise DescriptionError(f"{cls.table_name}.{field.name}", None, "given")
        return cls(**fields)

    def to_json(self) -> str:
        """Return one JSON object."""
        return json.dumps(_without_infinity(self.to_dict()), indent=2)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read what ``to_json`` wrote."""
        try:
            table = _with_infinity(json.loads(text, object_pairs_hook=_unique_names))
        except (ValueError, RecursionError) as error:
            raise DescriptionError("description", str(error), "valid JSON") from None
        return cls.from_dict(table)

    def to_toml(self) -> str:
        """Return a TOML document."""
        return "".join(f"{key} = {_toml(value)}\n" for key, value in self.to_dict().items())

    @classmethod
    def from_toml(cls, text: str) -> Self:
        """Read what ``to_toml`` wrote."""
        return cls.from_dict(read_toml(text))


def read_toml(text: str) -> dict[str, Any]:
    """Parse TOML, or raise a DescriptionError that says where it breaks."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DescriptionError("description", str(error), "valid TOML") from None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object without repeated names: a person would read one value, a program another."""
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, Schedule)):
        return list(value)
    return value.to_dict() if hasattr(value, "to_dict") else value


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return json.dumps(value) if isinstance(value, (bool, str)) else repr(value)


def _without_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _without_infinity(v) for k, v in value.items()}
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _with_infinity(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _with_infinity(v) for k, v in value.items()}
    return math.inf if value == "inf" else value
