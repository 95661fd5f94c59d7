#!/usr/bin/env python3
"""Mutation score of packages whose code decides whether a guarantee holds.

A seeded sample of small changes (another operator, constant, order or branch) is drawn from the
source.  First every fast test runs once and the lines that it executes are recorded, in a folder
that a later run goes on from.  Then, for each mutant, a forked process imports the package with the
change and runs the tests that execute the changed line, shortest first, until one fails.  A mutant
is detected if a test fails that passes on the unchanged source.  The score is a lower bound: some
mutants change nothing that can be seen, and slower tests would detect some of the rest.

    nice -n 19 scripts/mutation.py --mutants 300 --seed 0

It prints every outcome as a line of JSON, and the score of every package.  ``--minutes`` ends the
run early; the mutants that ran are then a smaller sample of the same kind, because they run in the
order in which they were drawn.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("curves", "theory", "verifier")
TESTS = ("curves", "theory", "published", "verifier", "certificate", "composition", "accounting")
PRELOADED = (
    "flint",
    "hypothesis",
    "mpmath",
    "numpy",
    "scipy.integrate",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.special",
    "scipy.stats",
)
SECONDS_PER_TEST = 1.5  # of processor time; slower tests are left out
SECONDS_PER_RECORDED_FILE = 7.0  # the tests behind are left out
EVENTS_PER_FUNCTION = 20_000  # lines that a test runs first so late in a loop are not recorded
SECONDS_PER_MUTANT = 6.0  # of recorded tests; the shortest are taken
SECONDS_PER_FILE = 0.3  # to import a file of tests
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


Lines: TypeAlias = dict[str, list[int]]
Trace: TypeAlias = Callable[[types.FrameType, str, object], object]
T = TypeVar("T")


@dataclass(frozen=True)
class Record:
    """What one test took, and the lines of the packages that it executed."""

    seconds: float
    lines: Lines


class OutOfTimeError(BaseException):
    """A test took more than its share of processor time."""


def out_of_time(*_: object) -> None:
    """End the running test."""
    raise OutOfTimeError


class Tests:
    """A pytest plugin: orders tests, limits their time, and records what they execute."""

    def __init__(self, order: Sequence[str] = (), limit: float = SECONDS_PER_TEST) -> None:
        self.order = {name: place for place, name in enumerate(order)}
        self.limit = limit
        self.recording = not order
        self.records: dict[str, Record] = {}
        self.failed: list[str] = []
        self.slow: list[str] = []
        self.skipped: set[str] = set()
        self._pending: dict[int, set[int]] = {}
        self._events: Counter[int] = Counter()
        self._code: dict[int, types.CodeType] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Run the chosen tests in the chosen order."""
        if self.order:
            items[:] = [item for item in items if item.nodeid in self.order]
            items.sort(key=lambda item: self.order[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Trace one test and end it when its time is over."""
        self._pending, self._code = {}, {}
        self._events.clear()
        before = time.process_time()
        if self.recording:
            sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            if item.nodeid not in {*self.failed, *self.slow, *self.skipped}:
                seconds = time.process_time() - before
                self.records[item.nodeid] = Record(seconds, self._executed())
            if self.recording and time.process_time() > SECONDS_PER_RECORDED_FILE:
                item.session.shouldstop = "the time for this file is over"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Limit the processor time of a test's body."""
        signal.signal(signal.SIGPROF, out_of_time)
        signal.setitimer(signal.ITIMER_PROF, self.limit)
        try:
            return (yield)
        except OutOfTimeError:
            self.slow.append(item.nodeid)
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how a test ended."""
        if report.skipped:
            self.skipped.add(report.nodeid)
        elif report.failed and report.nodeid not in self.slow:
            self.failed.append(report.nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file of tests that cannot be imported is a failure."""
        if report.failed:
            self.failed.append(report.nodeid)

    def _call(self, frame: types.FrameType, *_: object) -> Trace | None:
        code = frame.f_code
        pending = self._pending.get(id(code))
        if pending is None:
            ours = any(f"/src/lastiterate/{name}/" in code.co_filename for name in PACKAGES)
            pending = {line for *_, line in code.co_lines() if line} if ours else set()
            self._pending[id(code)], self._code[id(code)] = pending, code
        more = pending and self._events[id(code)] < EVENTS_PER_FUNCTION
        return self._line if more else None

    def _line(self, frame: types.FrameType, *_: object) -> Trace | None:
        key = id(frame.f_code)
        self._pending[key].discard(frame.f_lineno)
        self._events[key] += 1
        more = self._pending[key] and self._events[key] < EVENTS_PER_FUNCTION
        return self._line if more else None

    def _executed(self) -> Lines:
        found: dict[str, set[int]] = {}
        for key, code in self._code.items():
            if not any(f"/src/lastiterate/{name}/" in code.co_filename for name in PACKAGES):
                continue
            path = str(Path(code.co_filename).relative_to(ROOT))
            every = {line for *_, line in code.co_lines() if line}
            found.setdefault(path, set()).update(every - self._pending[key])
        return {path: sorted(lines) for path, lines in found.items()}


class MutatedLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module from its changed source."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(ROOT / mutant.path))
        self.mutant = mutant

    def get_code(self, *_: object) -> types.CodeType:
        """The code of the changed module; nothing is cached."""
        text = self.mutant.applied(Path(self.path).read_text(encoding="utf-8"))
        code = compile(text, self.path, "exec")
        assert isinstance(code, types.CodeType)
        return code


class MutatedFinder(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        path = Path(mutant.path).with_suffix("")
        self.name = ".".join(path.parts[1:]).removesuffix(".__init__")

    def find_spec(self, fullname: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """The changed module, None for every other one."""
        if fullname != self.name:
            return None
        loader = MutatedLoader(fullname, self.mutant)
        return importlib.util.spec_from_file_location(fullname, loader.path, loader=loader)


def forked(work: Callable[[], T], seconds: int) -> T | None:
    """The result of a function in a forked process; None if it ran out of processor time."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        process = os.fork()
        if process == 0:
            try:
                resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, 1)
                os.dup2(null, 2)
                sys.dont_write_bytecode = False
                Path(file.name).write_text(json.dumps(work()), encoding="utf-8")
            finally:
                os._exit(0)
        os.waitpid(process, 0)
        text = file.read()
        return json.loads(text) if text else None


def pytest_run(arguments: Sequence[str], plugin: Tests) -> None:
    """Run fast tests in this process."""
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:doctest", "-p", "no:randomly"]
    options += ["-m", "not slow and not fuzz", "-o", "addopts=-p no:dash --import-mode=importlib"]
    os.chdir(ROOT)
    pytest.main([*options, *arguments], plugins=[plugin])


def record_tests(folder: Path) -> None:
    """Record the fast tests of every file in a process of its own; what is recorded stays."""
    for name in ("lastiterate", *(f"lastiterate.{package}" for package in PACKAGES)):
        importlib.import_module(name)
    for name in TESTS:
        for file in sorted((ROOT / "tests" / name).rglob("test_*.py")):
            path = folder / f"{name}-{file.stem}.json"
            if not path.exists():
                found = forked(functools.partial(recorded, file), 600) or {}
                path.write_text(json.dumps(found), encoding="utf-8")


def recorded(file: Path) -> dict[str, dict[str, object]]:
    """Seconds and executed lines of every test of a file that passes in time."""
    plugin = Tests()
    pytest_run([str(file.relative_to(ROOT))], plugin)
    return {name: asdict(record) for name, record in plugin.records.items()}


def every_record(folder: Path) -> dict[str, Record]:
    """What the tests execute, as recorded."""
    folder.mkdir(parents=True, exist_ok=True)
    forked(functools.partial(record_tests, folder), 24 * 3600)
    records = {}
    for path in sorted(folder.glob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        records.update({name: Record(**values) for name, values in found.items()})
    return records


def executing(mutant: Mutant, records: dict[str, Record]) -> list[str]:
    """Tests that execute the changed expression, shortest first, as many as fit in the time."""
    lines = set(range(mutant.line, mutant.end_line + 1))
    inside = mutant.line in lines_of_functions(ROOT / mutant.path)
    chosen = [
        name
        for name, record in records.items()
        if mutant.path in record.lines and (not inside or lines & set(record.lines[mutant.path]))
    ]
    chosen.sort(key=lambda name: records[name].seconds)
    seconds, files = 0.0, set[str]()
    taken: list[str] = []
    for name in chosen:
        file = name.split("::")[0]
        seconds += records[name].seconds + (file not in files) * SECONDS_PER_FILE
        files.add(file)
        if taken and seconds > SECONDS_PER_MUTANT:
            break
        taken.append(name)
    return taken


def lines_of_functions(path: Path) -> set[int]:
    """Lines that run when a function is called, not when the module is imported."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            found.update(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return found


def outcome(mutant: Mutant, records: dict[str, Record]) -> tuple[str, str]:
    """How the tests end on a mutant, and the test that failed."""
    chosen = executing(mutant, records)
    if not chosen:
        return "not executed", ""

    def work() -> tuple[str, str]:
        sys.meta_path.insert(0, MutatedFinder(mutant))
        plugin = Tests(chosen, 2 * SECONDS_PER_TEST)
        pytest_run(["-x", *dict.fromkeys(name.split("::")[0] for name in chosen)], plugin)
        if plugin.failed:
            return "detected", plugin.failed[0]
        if plugin.slow:
            return "out of time", plugin.slow[0]
        return "passed" if plugin.records else "not executed", ""

    ended = forked(work, int(4 * SECONDS_PER_MUTANT))
    return (ended[0], ended[1]) if ended else ("out of time", "")


def unreliable(names: Sequence[str]) -> set[str]:
    """Tests that fail on the unchanged source when they run alone."""

    def work() -> list[str]:
        plugin = Tests(names, limit=60.0)
        pytest_run(list(dict.fromkeys(name.split("::")[0] for name in names)), plugin)
        return [*plugin.failed, *plugin.slow]

    if not names:
        return set()
    found = forked(work, 3600)
    return set(names if found is None else found)


def main() -> int:
    """Run the sample and print the score."""
    parser = argparse.ArgumentParser(description="Mutation score of the packages that certify.")
    parser.add_argument("--mutants", type=int, default=300, help="size of the sample")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--minutes", type=float, default=1e9, help="end after that many minutes")
    parser.add_argument(
        "--lines",
        type=Path,
        default=ROOT / "build" / "mutation",
        help="folder of recorded lines; empty it when tests change",
    )
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    sys.path[:0] = [str(ROOT / "src")]
    for name in PRELOADED:
        importlib.import_module(name)
    records = every_record(options.lines)
    print(f"{len(records)} tests take {sum(r.seconds for r in records.values()):.0f} s")
    every = mutants(PACKAGES)
    ended: list[tuple[Mutant, str, str]] = []
    for mutant in random.Random(options.seed).sample(every, options.mutants):
        if time.monotonic() > end:
            break
        word, test = outcome(mutant, records)
        ended.append((mutant, word, test))
        print(json.dumps({"outcome": word, "test": test, **asdict(mutant)}), flush=True)
    failing = {test for _, word, test in ended if word == "detected" and "::" in test}
    doubtful = unreliable(sorted(failing))
    counts = {name: Counter[str]() for name in (*PACKAGES, "all")}
    for mutant, word, test in ended:
        for name in (mutant.package, "all"):
            counts[name]["unreliable" if test in doubtful else word] += 1
    for name, count in counts.items():
        print(f"{name}: {count['detected']} of {count.total()} detected; {dict(count)}")
    print(f"{len(every)} mutants possible")
    return 0


if __name__ == "__main__":
    sys.exit(main())
