"""Writes the reference when the documentation is built: a page per room, every public name.

What is public is what a room lists in ``__all__``, or defines without a leading underscore. The
text is the docstring's.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import lastiterate
from lastiterate.description.fields import rows

PAGES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "description": (
        "Describing a run",
        "what a run does, in words that are checked",
        ("description",),
    ),
    "accounting": (
        "Accounting",
        "guarantees, comparisons, calibration, the registry of theorems",
        ("accounting", "theory", "lower"),
    ),
    "curves": (
        "Curves",
        "conversions between mu, Renyi divergence and (epsilon, delta)",
        ("curves", "curves.gaussian", "curves.mixture", "curves.renyi", "curves.loss_distribution"),
    ),
    "composition": ("Composition", "how (epsilon, delta) guarantees add up", ("composition",)),
    "generalization": (
        "Generalisation",
        "what privacy says about unseen data",
        ("generalization",),
    ),
    "certificate": ("Certificates", "seal, verify, sign, compose", ("certificate", "verifier")),
    "unlearning": ("Unlearning", "forgetting records that a run has used", ("unlearning",)),
    "train": ("Training", "the engine that runs what is described", ("train",)),
    "losses": ("Losses and noise", "proved constants; secure randomness", ("losses", "noise")),
    "models": ("Models", "scikit-learn estimators with a certificate", ("models",)),
    "torch": ("PyTorch", "linear probes, Opacus, loaders, networks", ("torch",)),
    "jax": ("JAX", "descent on pytrees, noise for Optax", ("jax",)),
    "frameworks": ("Frameworks", "Lightning, transformers, MLflow, model cards", ("frameworks",)),
    "sampling": ("Sampling", "SGLD, posterior samples, propose-test-sample", ("sampling",)),
    "audit": ("Audit", "lower bounds from shadow models", ("audit",)),
    "federated": ("Federated", "user-level privacy, Flower", ("federated",)),
    "dp_accounting": (
        "dp-accounting",
        "a run as an event, and an accountant that takes it",
        ("dp_accounting",),
    ),
    "published": (
        "Published bounds",
        "as printed, one paper per file, for comparison and study",
        (
            "published",
            "published.chien_li",
            "published.chourasia_ye_shokri",
            "published.equalised",
            "published.he_wang_tao",
            "published.heller_fetaya",
            "published.ye_shokri",
        ),
    ),
    "report": ("Reports", "figures and pages", ("report",)),
    "errors": ("Errors", "what goes wrong, and why it matters", ("errors",)),
}

SECTIONS = {f"lastiterate.{room}" for _, _, rooms in PAGES.values() for room in rooms}


def public_names(room: ModuleType) -> list[str]:
    """What the room offers. Listed names are not looked up: some would import heavy libraries."""
    listed = getattr(room, "__all__", None)
    if listed is not None:
        return [name for name in listed if f"{room.__name__}.{name}" not in SECTIONS]
    return [
        name
        for name, thing in vars(room).items()
        if not name.startswith("_") and getattr(thing, "__module__", None) == room.__name__
    ]


def anchor(name: str) -> str:
    """Where the reference says what `from lastiterate import name` gives."""
    for page, (_, _, rooms) in PAGES.items():
        for room in rooms:
            if name in public_names(importlib.import_module(f"lastiterate.{room}")):
                return f"{page}.md#lastiterate.{room}.{name}"
    raise LookupError(name)


def page(title: str, rooms: tuple[str, ...]) -> str:
    parts = [f"# {title}"]
    for name in rooms:
        room = importlib.import_module(f"lastiterate.{name}")
        full = f"lastiterate.{name}"
        parts.append(f"## `{full}`\n\n{first_lines(room)}")
        for one in public_names(room):
            parts.append(f"::: {full}.{one}\n    options:\n      heading_level: 3")
            if full == "lastiterate.description":
                parts += fields_table(getattr(room, one))
    return "\n\n".join(parts) + "\n"


def fields_table(described: Any) -> list[str]:
    """The fields of a description as a table, from their rows; nothing for other objects."""
    if not (dataclasses.is_dataclass(described) and dataclasses.fields(described)):
        return []
    names = {row.flag or name: row for name, row in rows(described).items() if row.panel}
    flags = {id(row): f"`--{name.replace('_', '-')}`" for name, row in names.items()}
    lines = [
        f"| `{name}` | {row.help} | {flags.get(id(row), '')} |"
        for name, row in rows(described).items()
    ]
    return ["\n".join(["| field | meaning | flag |", "|---|---|---|", *lines])]


def first_lines(room: ModuleType) -> str:
    return (room.__doc__ or "").strip().split("\n\n")[0].replace("``", "`")


def modules(rooms: tuple[str, ...]) -> str:
    return ", ".join(f"`lastiterate.{room}`" for room in rooms)


def overview() -> str:
    rows = "\n".join(
        f"| [{title}]({name}.md) | {modules(rooms)} | {what} |"
        for name, (title, what, rooms) in PAGES.items()
    )
    names = "\n".join(f"- [`{name}`]({anchor(name)})" for name in sorted(lastiterate.__all__))
    return (
        "# Reference\n\nGenerated from the docstrings; the examples in them are run as tests.\n\n"
        f"| page | modules | what lives there |\n|---|---|---|\n{rows}\n\n"
        f"## `from lastiterate import ...`\n\n{names}\n"
    )


def pages() -> Iterator[tuple[str, str]]:
    yield "reference/index.md", overview()
    for name, (title, _, rooms) in PAGES.items():
        yield f"reference/{name}.md", page(title, rooms)
