"""The architecture, enforced: lower layers never import higher ones, heavy libraries stay home."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lastiterate

PACKAGE = Path(lastiterate.__file__).parent

# Rooms from the ground up. A room may import from its own floor or from below.
FLOORS = (
    {"errors"},
    {"description", "curves"},
    {"theorems", "composition"},
    {"guarantee", "generalization"},
    {"accounting", "published"},
    {"growth", "utility", "calibration"},
    {"certificate"},
    {"train", "models", "sampling", "audit", "federated", "report", "torch", "recommend"},
    {"cli"},
)
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# Where a heavy library may be imported. Everything else needs NumPy, SciPy and dp-accounting alone.
HOMES = {
    "typer": {"cli"},
    "rich": {"cli"},
    "torch": {"torch", "train", "models", "federated"},
    "opacus": {"torch"},
    "sklearn": {"models", "audit", "train"},
    "pandas": {"models"},
    "joblib": {"models", "audit", "sampling"},
    "ray": {"audit"},
    "distributed": {"audit"},
    "flwr": {"federated"},
    "arviz": {"sampling"},
    "plotly": {"report"},
    "kaleido": {"report"},
    "dash": {"report"},
    "flint": {"certificate"},
    "jsonschema": {"certificate"},
    "cryptography": {"train", "models", "sampling", "certificate"},
    "dp_accounting": {"curves", "theorems", "composition", "federated"},
}
ALWAYS = {"numpy", "scipy"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    """Every imported name in full, lazy and typing-only imports included."""
    package = ["lastiterate", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def rooms_imported(path: Path) -> Iterator[str]:
    """Rooms of this package that a module imports; names of the root count as their home."""
    for name in imports(path):
        parts = name.split(".")
        if parts[0] != "lastiterate" or len(parts) == 1 or parts[1].startswith("__"):
            continue
        home = lastiterate._HOME.get(parts[1], "") if len(parts) == 2 else ""
        yield home.split(".")[1] if home else parts[1]


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in modules()} <= set(FLOOR)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_lower_layers_never_import_higher_ones(path: Path) -> None:
    room = room_of(path)
    above = {other for other in rooms_imported(path) if FLOOR[other] > FLOOR[room]}
    assert not above, f"{room} is below {above}"


def test_rooms_do_not_import_each_other_in_circles() -> None:
    needs: dict[str, set[str]] = {room: set() for room in FLOOR}
    for path in modules():
        needs[room_of(path)] |= set(rooms_imported(path)) - {room_of(path)}
    while needs:
        free = {room for room, others in needs.items() if not others & set(needs)}
        assert free, f"a circle among {sorted(needs)}"
        needs = {room: others for room, others in needs.items() if room not in free}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    for name in imports(path):
        library = name.split(".")[0]
        if library in sys.stdlib_module_names or library in ALWAYS | {"lastiterate"}:
            continue
        assert library in HOMES, f"{library} is imported, but belongs to no room"
        assert room_of(path) in HOMES[library], f"{library} does not belong in {room_of(path)}"


def test_the_rules_can_fail(tmp_path: Path) -> None:
    """The reader of imports sees each way of writing one."""
    source = tmp_path / "module.py"
    source.write_text(
        "import torch.nn\nfrom rich import table\n"
        "def late():\n    from lastiterate.cli.main import run\n    from lastiterate import account\n"
    )
    copy = PACKAGE / "theorems" / source.name  # where it would live; only its text is read
    tree = source.read_text()
    found = {
        name
        for node in ast.walk(ast.parse(tree))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in [getattr(node, "module", None) or node.names[0].name]
    }
    assert found == {"torch.nn", "rich", "lastiterate.cli.main", "lastiterate"}
    assert not copy.exists()
