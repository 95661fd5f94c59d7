#!/usr/bin/env python3
"""Mutation score of packages whose code decides whether a guarantee holds.

A seeded sample of small changes (another operator, constant, order or branch) is drawn from the
source.  For each mutant the fast tests that name the mutated module run until the first failure.  A
mutant is detected if a test fails within the time limit, so the score is a lower bound: some
mutants change nothing that can be seen, and other tests would detect some of the rest.

    scripts/mutation.py --mutants 300 --seed 0 --workers 2

It prints the score of every package and each mutant that no test detected.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import queue
import random
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("curves", "theory", "verifier")
TESTS = ("curves", "theory", "published", "verifier", "certificate", "composition", "accounting")
COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
RENAMED = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
    "above": "below",
    "any": "all",
    "all": "any",
}


@dataclass(frozen=True)
class Mutant:
    """One changed expression: where it stands, what it was and what it becomes."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    before: str
    after: str

    @property
    def package(self) -> str:
        """The package of the mutated module."""
        return Path(self.path).parts[2]

    def applied(self, text: str) -> str:
        """The source with the expression changed; columns count bytes of UTF-8."""
        lines = text.encode().splitlines(keepends=True)
        start = sum(map(len, lines[: self.line - 1])) + self.column
        end = sum(map(len, lines[: self.end_line - 1])) + self.end_column
        raw = b"".join(lines)
        return (raw[:start] + f"({self.after})".encode() + raw[end:]).decode()


def changed(node: ast.AST) -> ast.expr | None:
    """The expression that replaces a node; None if it has no mutant."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and type(new.ops[0]) in COMPARED:
        new.ops[0] = COMPARED[type(new.ops[0])]()
    elif isinstance(new, ast.BinOp) and type(new.op) in COMPUTED:
        new.op = COMPUTED[type(new.op)]()
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, ast.Not | ast.USub):
        return new.operand
    elif isinstance(new, ast.IfExp):
        new.body, new.orelse = new.orelse, new.body
    elif isinstance(new, ast.Constant) and isinstance(new.value, bool):
        new.value = not new.value
    elif isinstance(new, ast.Constant) and isinstance(new.value, int | float):
        new.value = 2 * new.value if new.value else 1
    elif isinstance(new, ast.Name) and new.id in RENAMED:
        new.id = RENAMED[new.id]
    elif isinstance(new, ast.Attribute) and new.attr in RENAMED:
        new.attr = RENAMED[new.attr]
    else:
        return None
    assert isinstance(new, ast.expr)
    return new


def expressions(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes of executed code: no messages, annotations, docstrings or imports."""
    skipped = (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom)
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, skipped):
                yield child
                yield from expressions(child)


def mutants(packages: tuple[str, ...]) -> list[Mutant]:
    """All mutants of the packages, in the order of the source."""
    found = []
    for package in packages:
        for path in sorted((ROOT / "src" / "lastiterate" / package).rglob("*.py")):
            for node in expressions(ast.parse(path.read_text(encoding="utf-8"))):
                new = changed(node)
                if new is not None and isinstance(node, ast.expr):
                    end = (node.end_lineno or 0, node.end_col_offset or 0)
                    where = (str(path.relative_to(ROOT)), node.lineno, node.col_offset, *end)
                    found.append(Mutant(*where, ast.unparse(node), ast.unparse(new)))
    return found


def test_files(mutant: Mutant, folder: Path) -> list[str]:
    """Test files that name the mutated module; where there are none, those of its package."""
    path = Path(mutant.path)
    module = ".".join(path.with_suffix("").parts[1:])
    files = [
        file for name in TESTS for file in sorted((folder / "tests" / name).rglob("test_*.py"))
    ]
    named = [
        file
        for file in files
        if module in file.read_text(encoding="utf-8") or path.stem.strip("_") in file.stem
    ]
    chosen = named or [file for file in files if file.parent.name == mutant.package]
    return [
        str(file.relative_to(folder)) for file in sorted(chosen, key=lambda f: f.stat().st_size)
    ]


def detected(mutant: Mutant, folder: Path, seconds: float) -> str:
    """How the tests end on a mutant: "detected", "passed" or "out of time"."""
    path = folder / mutant.path
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.applied(original), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["-m", "not slow and not fuzz", *test_files(mutant, folder)]
    environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, timeout=seconds
        )
        return "detected" if done.returncode else "passed"
    except subprocess.TimeoutExpired:
        return "out of time"
    finally:
        path.write_text(original, encoding="utf-8")


def run(sample: list[Mutant], workers: int, seconds: float) -> list[str]:
    """The outcome of every mutant of a sample."""
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for index in range(len(sample)):
        waiting.put(index)
    outcomes = [""] * len(sample)

    def work(folder: Path) -> None:
        while True:
            try:
                index = waiting.get_nowait()
            except queue.Empty:
                return
            outcomes[index] = detected(sample[index], folder, seconds)
            print(f"{outcomes[index]}: {json.dumps(asdict(sample[index]))}", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        threads = []
        for number in range(workers):
            folder = Path(temporary) / str(number)
            for name in ("src", "tests", "examples"):
                shutil.copytree(ROOT / name, folder / name)
            shutil.copy(ROOT / "pyproject.toml", folder)
            threads.append(threading.Thread(target=work, args=(folder,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return outcomes


def main() -> int:
    """Run the sample and print the score."""
    parser = argparse.ArgumentParser(description="Mutation score of the packages that certify.")
    parser.add_argument("--mutants", type=int, default=300, help="size of the sample")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--part", default="1/1", help="K/N: the K-th of N parts of the sample")
    parser.add_argument("--workers", type=int, default=2, help="processes at the same time")
    parser.add_argument("--seconds", type=float, default=60.0, help="time limit for one mutant")
    options = parser.parse_args()
    every = mutants(PACKAGES)
    sample = random.Random(options.seed).sample(every, options.mutants)
    part, parts = map(int, options.part.split("/"))
    sample = sample[part - 1 :: parts]
    outcomes = run(sample, options.workers, options.seconds)
    total, survived = Counter[str](), Counter[str]()
    for mutant, outcome in zip(sample, outcomes, strict=True):
        total[mutant.package] += 1
        survived[mutant.package] += outcome != "detected"
    for package in PACKAGES:
        print(f"{package}: {total[package] - survived[package]} of {total[package]} detected")
    print(f"{len(sample) - survived.total()} of {len(sample)} detected, {len(every)} possible")
    return 0


if __name__ == "__main__":
    sys.exit(main())
