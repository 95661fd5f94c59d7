#!/usr/bin/env python3
"""Compare the size of the source with the ceilings of ``scripts/budgets.toml``.

Per package: files and code lines (lines that hold a token of code; docstrings, comments and blank
lines are free).  For all packages together: functions with eight or more parameters, class names
defined more than once, modules in import cycles, and names that the vocabulary bans.

    scripts/budgets.py            print what is above its ceiling; exit code 1 if anything is
    scripts/budgets.py --all      print every measurement
    scripts/budgets.py --lower    lower the ceilings to the measurements; never raises one

A ceiling is raised by hand only, and CHANGELOG.md then says what users get for it.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lastiterate"
CEILINGS = Path(__file__).with_suffix(".toml")
MANY_PARAMETERS = 8
NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str, tree: ast.Module) -> int:
    """Number of lines with a token of code; docstrings do not count."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, Documented) and node.body and isinstance(node.body[0], ast.Expr):
            first = node.body[0]
            if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                docstrings.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def parameters(function: Function) -> list[str]:
    """Names of the parameters, without ``self`` and ``cls``."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [argument.arg for argument in named if argument.arg not in ("self", "cls")]


def defined_names(tree: ast.Module) -> Iterator[str]:
    """Names of classes, functions, parameters, variables and attributes that a module defines."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def imported_modules(tree: ast.Module, modules: set[str]) -> set[str]:
    """Modules of this library that a module imports when it is loaded."""
    found: set[str] = set()
    pending: list[ast.AST] = [*tree.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue  # imported when called
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            while name and name not in modules:
                name = name.rpartition(".")[0]
            if name:
                found.add(name)
        pending.extend(ast.iter_child_nodes(node))
    return found


def modules_in_cycles(graph: dict[str, set[str]]) -> set[str]:
    """Modules that reach themselves along imports."""

    def reachable(start: str) -> set[str]:
        seen: set[str] = set()
        pending = list(graph[start])
        while pending:
            module = pending.pop()
            if module not in seen:
                seen.add(module)
                pending.extend(graph[module])
        return seen

    return {module for module in graph if module in reachable(module)}


def measure(package: Path, banned: list[str]) -> dict[str, dict[str, int]]:
    """All measurements of a package's source folder, in the layout of ``budgets.toml``."""
    files: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    names: Counter[str] = Counter()
    wide = 0
    trees: dict[str, ast.Module] = {}
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        parts = path.relative_to(package).parts
        part = parts[0] if len(parts) > 1 else "top"
        files[part] += 1
        lines[part] += code_lines(text, tree)
        module = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        trees[module.removesuffix(".__init__")] = tree
        names[path.stem.strip("_")] += 1
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name] += 1
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                wide += len(parameters(node)) >= MANY_PARAMETERS
        names.update(name.strip("_").lower() for name in defined_names(tree))
    modules = set(trees)
    graph = {module: imported_modules(tree, modules) - {module} for module, tree in trees.items()}
    return {
        "code_lines": {**dict(sorted(lines.items())), "total": lines.total()},
        "files": {**dict(sorted(files.items())), "total": files.total()},
        "all": {
            "functions_with_many_parameters": wide,
            "repeated_class_names": sum(count > 1 for count in classes.values()),
            "modules_in_import_cycles": len(modules_in_cycles(graph)),
            "banned_names": sum(names[name] for name in banned),
        },
    }


def excesses(
    measured: dict[str, dict[str, int]], ceilings: dict[str, dict[str, int]]
) -> Iterator[str]:
    """Messages about measurements above their ceiling or without one."""
    for table, values in measured.items():
        for name, value in values.items():
            ceiling = ceilings.get(table, {}).get(name)
            if ceiling is None:
                yield f"{table}.{name} = {value} has no ceiling in {CEILINGS.name}"
            elif value > ceiling:
                yield f"{table}.{name} = {value} is above its ceiling {ceiling}"


def lowered(
    measured: dict[str, dict[str, int]], ceilings: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """The ceilings, each at most the measurement; ceilings of deleted packages are dropped."""
    return {
        table: {
            name: min(value, ceilings.get(table, {}).get(name, value))
            for name, value in rows.items()
        }
        for table, rows in measured.items()
    }


def write(ceilings: dict[str, dict[str, int]], banned: list[str]) -> None:
    """Write ``budgets.toml``."""
    rows = ["# Ceilings that scripts/budgets.py checks; `scripts/budgets.py --lower` lowers them."]
    for table, values in ceilings.items():
        rows += ["", f"[{table}]", *(f"{name} = {value}" for name, value in values.items())]
    rows += [
        "",
        "[vocabulary]",
        "# Names of modules, classes, functions, parameters, variables; outer underscores ignored.",
    ]
    rows += ["banned = [", *(f'  "{name}",' for name in banned), "]", ""]
    CEILINGS.write_text("\n".join(rows), encoding="utf-8")


def main() -> int:
    """Run the check."""
    parser = argparse.ArgumentParser(description="Compare sizes with scripts/budgets.toml.")
    parser.add_argument("--all", action="store_true", help="print every measurement")
    parser.add_argument("--lower", action="store_true", help="lower ceilings to the measurements")
    options = parser.parse_args()
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))
    banned = ceilings.pop("vocabulary")["banned"]
    measured = measure(PACKAGE, banned)
    if options.lower:
        ceilings = lowered(measured, ceilings)
        write(ceilings, banned)
    if options.all:
        for table, values in measured.items():
            for name, value in values.items():
                print(f"{table}.{name}: {value} (ceiling {ceilings.get(table, {}).get(name)})")
    found = list(excesses(measured, ceilings))
    for message in found:
        print(message, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
