"""The statements of the five papers as data, one TOML file per paper.

A row names what a paper states, whether it is true, the function that evaluates it with its
arguments, and the sound replacement. Functions are dotted names, resolved by whoever evaluates the
rows (``make papers``), so that this package imports nothing above it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, Literal

PAPERS = ("chourasia_ye_shokri", "ye_shokri", "chien_li", "he_wang_tao", "heller_fetaya")


@dataclass(frozen=True, eq=False)
class Statement:
    """One definition, theorem, claim, algorithm, figure or table of a paper.

    Args:
        paper: the module of the paper in `lastiterate.published`.
        number: its number in the paper.
        statement: what it says, in formulas and our words.
        status: "sound", "corrected" (its print or its proof had to be mended), "refuted" or "not
            computable".
        reason: what was mended, why it is false, or why it cannot be computed.
        call: dotted name of the function that evaluates it.
        arguments: the arguments of the call; for a refuted statement, those of its counterexample.
        replacement: dotted name of what to use instead.
        replacement_arguments: where given, the replacement is evaluated too.
        test: the test that checks it, as path::name.
    """

    paper: str
    number: str
    statement: str
    status: Literal["sound", "corrected", "refuted", "not computable"]
    reason: str = ""
    call: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    replacement: str = ""
    replacement_arguments: Mapping[str, Any] = field(default_factory=dict)
    test: str = ""


@cache
def statements(paper: str) -> tuple[Statement, ...]:
    """Return the rows of one paper, in the order of the paper.

    >>> statements("ye_shokri")[0].number
    'Theorem 2.1'
    """
    text = files("lastiterate.published").joinpath(f"{paper}.toml").read_text(encoding="utf-8")
    here = f"lastiterate.published.{paper}."
    return tuple(
        Statement(
            **{"paper": paper} | row | {"call": _dotted(row.get("call", ""), here)},
        )
        for row in tomllib.loads(text)["statement"]
    )


def _dotted(name: str, here: str) -> str:
    """A name without a dot is one of the paper's own module."""
    return name if "." in name or not name else here + name
