"""The architecture, enforced: lower layers never import higher ones, heavy libraries stay home."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lastiterate

PACKAGE = Path(lastiterate.__file__).parent

# Rooms from the ground up. A room may import from its own floor or from below.
FLOORS = (
    {"errors", "doorway"},
    {"description", "curves", "noise"},
    {"theorems", "composition", "losses"},
    {"guarantee", "generalization", "device"},
    {"accounting"},
    {"risk"},
    {"growth", "utility", "schedules", "calibration"},
    {"certificate"},
    {
        "train",
        "models",
        "sampling",
        "audit",
        "federated",
        "published",
        "report",
        "torch",
        "recommendation",
    },
    {"explore"},
    {"cli"},
)
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

# Where a heavy library may be imported. Everything else needs NumPy, SciPy and dp-accounting alone.
HOMES = {
    "typer": {"cli"},
    "rich": {"cli", "train"},  # train: a progress bar
    "torch": {"torch", "device", "train", "models", "federated", "sampling", "audit"},
    "opacus": {"torch"},
    "sklearn": {"models", "audit", "train", "torch"},
    "triton": {"audit", "device"},
    "pyarrow": {"device"},
    "pandas": {"models"},
    "joblib": {"models", "audit", "sampling"},
    "ray": {"audit"},
    "distributed": {"audit"},
    "flwr": {"federated"},
    "arviz": {"sampling"},
    "plotly": {"report"},
    "kaleido": {"report"},
    "jinja2": {"report"},
    "dash": {"explore"},
    "flask": {"explore"},
    "werkzeug": {"explore"},
    "waitress": {"explore"},
    "flint": {"certificate"},
    "jsonschema": {"certificate"},
    "cryptography": {"noise", "train", "models", "sampling", "certificate"},
    "dp_accounting": {"curves", "theorems", "composition", "federated"},
}
ALWAYS = {"numpy", "scipy"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(source: str) -> Iterator[str]:
    """Every imported name in full; lazy and typing-only imports count too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def rooms_imported(source: str) -> Iterator[str]:
    """Rooms of this package that a module imports; names of the root count as their home."""
    for name in imports(source):
        parts = name.split(".")
        if parts[0] == "lastiterate" and len(parts) > 1 and not parts[1].startswith("__"):
            home = lastiterate._HOME.get(parts[1], name) if len(parts) == 2 else name
            yield home.split(".")[1]


def too_high(room: str, source: str) -> set[str]:
    return {other for other in rooms_imported(source) if FLOOR[other] > FLOOR[room]}


def strangers(room: str, source: str) -> set[str]:
    libraries = {name.split(".")[0] for name in imports(source)}
    libraries -= set(sys.stdlib_module_names) | ALWAYS | {"lastiterate"}
    return {library for library in libraries if room not in HOMES.get(library, set())}


def test_every_room_has_a_floor() -> None:
    assert {room_of(path) for path in modules()} <= set(FLOOR)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_stays_in_its_place(path: Path) -> None:
    room, source = room_of(path), path.read_text(encoding="utf-8")
    assert not too_high(room, source)
    assert not strangers(room, source)


def test_rooms_do_not_import_each_other_in_circles() -> None:
    needs: dict[str, set[str]] = {room: set() for room in FLOOR}
    for path in modules():
        needs[room_of(path)] |= set(rooms_imported(path.read_text(encoding="utf-8")))
    for room in needs:
        needs[room].discard(room)
    while needs:
        free = {room for room, others in needs.items() if not others & set(needs)}
        assert free, f"a circle among {sorted(needs)}"
        needs = {room: others for room, others in needs.items() if room not in free}


def named_imports(source: str) -> Iterator[str]:
    """Rooms of this package that a module loads by name, whatever the name of the importer."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            for argument in node.args if called in ("import_module", "__import__") else ():
                if isinstance(argument, ast.Constant) and "lastiterate." in str(argument.value):
                    yield str(argument.value).split(".")[1]


def test_the_doorway_is_the_only_way_up() -> None:
    up = {
        (room_of(path), other)
        for path in modules()
        for other in named_imports(path.read_text(encoding="utf-8"))
        if FLOOR[other] > FLOOR[room_of(path)]
    }
    assert up == {("doorway", "report")}


def test_the_rules_catch_what_breaks_them() -> None:
    source = (
        "import torch.nn\nfrom rich import table\nimport unheard_of\nimport numpy, json\n"
        "def late():\n"
        "    from lastiterate.cli.main import run\n    from lastiterate import account\n"
    )
    assert too_high("theorems", source) == {"cli", "accounting"}
    assert too_high("cli", source) == set()
    assert strangers("theorems", source) == {"torch", "rich", "unheard_of"}
    assert strangers("cli", source) == {"torch", "unheard_of"}


def test_import_is_quick_and_light() -> None:
    program = (
        "import sys, time\n"
        "start = time.perf_counter()\n"
        "import lastiterate\n"
        "seconds = time.perf_counter() - start\n"
        "heavy = {'dp_accounting', 'torch', 'typer', 'rich', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(seconds)"
    )
    command = [sys.executable, "-c", program]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.6


def test_public_names_exist() -> None:
    for name in lastiterate.__all__:
        assert getattr(lastiterate, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'acount'"):
        _ = lastiterate.acount
