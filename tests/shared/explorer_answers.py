"""What the page's answer shows, found in its components."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from dash.development.base_component import Component
from patience import HANG_SECONDS

from lastiterate.accounting.accountant import candidates
from lastiterate.explore.findings import Bounded, tasks
from lastiterate.explore.page import _OUTPUTS, change
from lastiterate.explore.pool import Pool
from lastiterate.explore.reading import read


def answered(
    pool: Pool,
    state: dict[str, str],
    until: Callable[[dict[str, Any]], bool] = lambda page: bool(page["tick.disabled"]),
) -> dict[str, Any]:
    """The outputs of the page's callback by name, asked for until they are what is waited for."""
    names = [f"{output.component_id}.{output.component_property}" for output in _OUTPUTS]
    end = time.monotonic() + HANG_SECONDS
    while True:
        page = dict(zip(names, change(pool, state, None, 0.2), strict=True))
        if until(page) or time.monotonic() > end:
            return page


def settled(page: dict[str, Any]) -> bool:
    """Whether epsilon will not become smaller any more."""
    words = text(page["answer.children"])
    return "Searching:" not in words and "still make it smaller" not in words


def compared(page: dict[str, Any]) -> bool:
    """Whether every theorem has had its say."""
    return settled(page) and "searching" not in text(page["comparison.children"])


def components(tree: Any) -> Iterator[Component]:
    if isinstance(tree, (list, tuple)):
        for part in tree:
            yield from components(part)
    elif isinstance(tree, Component):
        yield tree
        yield from components(getattr(tree, "children", None))


def text(tree: Any) -> str:
    """All words of a tree."""
    if isinstance(tree, (list, tuple)):
        return " ".join(text(part) for part in tree)
    if isinstance(tree, Component):
        return text(getattr(tree, "children", None))
    return "" if tree is None else str(tree)


def by_id(tree: Any, name: str) -> str:
    """The words of the component with this id."""
    return next(text(part) for part in components(tree) if getattr(part, "id", None) == name)


def shown_epsilon(pool: Pool, state: dict[str, str]) -> float:
    """The number behind the printed epsilon, in full."""
    description = read(state).description
    assert description is not None
    best = {theorem.key for theorem in candidates(description.run)}
    # A loaded machine may need longer for a number than the page waits; the page asks again, too.
    wanted = [
        replace(task, limit=HANG_SECONDS) for task in tasks(description) if task.theorem in best
    ]
    for _ in range(3):
        found = pool.ask(wanted, HANG_SECONDS)
        values = [outcome.value for outcome in found.values() if outcome is not None]
        if len(values) == len(wanted) and all(isinstance(value, Bounded) for value in values):
            break
        wanted = [replace(task, limit=2 * task.limit) for task in wanted]
    assert len(values) == len(wanted)
    assert all(isinstance(value, Bounded) for value in values), found
    return min(float(value.epsilon) for value in values)
