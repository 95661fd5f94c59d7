"""How the package is built, read from its source: who imports whom, which libraries live where.

An import is an import wherever it stands: at the top, in a function, in a module's `__getattr__`,
under TYPE_CHECKING, by name through `import_module`, or as an attribute of the bare package.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import lastiterate

PACKAGE = Path(lastiterate.__file__).parent
ROOT = Path(__file__).parents[2]
_BY_NAME = ("import_module", "__import__", "find_spec")
_SCOPE = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def floors(text: str) -> list[set[str]]:
    """The rooms from the ground up, as CONTRIBUTING.md draws them: `a, b < c < d`."""
    section = text.split("## Layers\n")[1].split("\n## ")[0]
    drawing = " ".join(line for line in section.splitlines() if line.startswith("    "))
    found = [re.findall(r"\w+", floor) for floor in drawing.split("<")]
    everywhere = [room for floor in found for room in floor]
    assert len(everywhere) == len(set(everywhere)), "a room stands on two floors"
    return [set(floor) for floor in found]


def modules() -> list[Path]:
    """Every module of a room; the root only says where names live."""
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(source: str) -> Iterator[str]:
    """Every imported name in full; lazy, typing-only and named imports count too."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, _SCOPE) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            renamed = [alias.name for alias in node.names if alias.asname]
            assert "lastiterate" not in renamed, "the package is imported under its own name"
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are written in full here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "lastiterate":
                yield f"lastiterate.{node.attr}"
        elif isinstance(node, ast.Constant) and id(node) not in docstrings:
            # tables such as {"name": "lastiterate.room.module"} are what `__getattr__` loads
            if isinstance(node.value, str) and re.fullmatch(r"lastiterate(\.\w+)+", node.value):
                yield node.value
        elif isinstance(node, ast.Call):
            yield from (name for name in _named(node) if name is not None)


def unreadable_imports(source: str) -> list[str]:
    """Calls that load a module whose name is neither written there nor in a table of the file."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    return [ast.unparse(call) for call in calls if None in _named(call)]


def _named(call: ast.Call) -> list[str | None]:
    """What a call of `import_module` and its kin loads; None if that is decided elsewhere."""
    function = call.func
    called = getattr(function, "attr", getattr(function, "id", None))
    if called not in _BY_NAME or not call.args:
        return []
    name = call.args[0]
    written = isinstance(name, ast.Constant) and isinstance(name.value, str)
    return [name.value] if written else [None]


def rooms_imported(source: str) -> set[str]:
    """Rooms of this package that a module imports; names of the root count as their home."""
    found = set()
    for name in imports(source):
        parts = name.split(".")
        if parts[0] == "lastiterate" and len(parts) > 1 and not parts[1].startswith("__"):
            home = lastiterate._HOME.get(parts[1], name) if len(parts) == 2 else name
            found.add(home.split(".")[1])
    return found


def libraries_imported(source: str) -> set[str]:
    """Libraries of other people that a module imports."""
    found = {name.split(".")[0] for name in imports(source)}
    return found - {"lastiterate"} - set(sys.stdlib_module_names)
