"""Every code block of every page runs, in order, and prints what the page says it prints.

Python blocks of a page share one namespace and one temporary folder. A `text` block after one is
its output; so is a comment behind `print(...)`. A block with a title becomes a file of that name.
A `py` block is a program for the environment of another library (`integrations/test_coming_from`).
In `console` blocks, lines with a dollar sign run, and what follows them is their output.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lastiterate.cli.main import run

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LANGUAGES = {"python", "py", "text", "console", "toml", "csv", "sh", ""}
# Pages about libraries that `make test` need not have; `make test-integrations` runs them.
NEEDS = {
    "frameworks.md": ("lightning", "transformers"),
    "jax.md": ("jax", "optax"),
    "publishing.md": ("mlflow",),
}
ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


class Block(NamedTuple):
    language: str
    title: str
    code: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[1], found[2] or "", found[3], text.count("\n", 0, found.start()) + 2)
        for found in FENCE.finditer(text)
    ]


def commands(code: str) -> Iterator[tuple[str, str]]:
    """Each command of a console block with the output shown below it."""
    for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
        line, _, output = part.replace("\\\n", " ").partition("\n")
        yield line, output


def check(shown: str, printed: str, where: str) -> None:
    alike = doctest.OutputChecker().check_output(shown, printed, ALIKE)
    assert alike, f"{where}: the page shows\n{shown}\nand the code prints\n{printed}"


def execute(block: Block, page: Path, namespace: dict[str, object]) -> str:
    printed = io.StringIO()
    code = compile("\n" * (block.line - 1) + block.code, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    promised = re.findall(r"^print\(.*\)  # (.*)$", block.code, re.MULTILINE)
    if promised:
        assert printed.getvalue().splitlines() == promised, f"{page.name}:{block.line}"
    return printed.getvalue()


def command(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run one command of the console; its exit code must be 0 unless a comment says otherwise."""
    words = shlex.split(line, comments=True)
    expected = re.search(r"# exit code (\d)", line)
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        run(words[1:])
    said = capsys.readouterr()
    assert ended.value.code == (int(expected[1]) if expected else 0), f"{line}: {said.err}"
    return said.out + said.err


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if blocks(page)],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
@pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")
def test_page(
    page: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for library in NEEDS.get(page.name, ()):
        pytest.importorskip(library, reason=f"{library} is not installed: make test-integrations")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    namespace: dict[str, object] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.title:
            (tmp_path / block.title).write_text(block.code, encoding="utf-8")
        if block.language == "python":
            printed = execute(block, page, namespace)
            continue
        if block.language == "text" and printed is not None:
            check(block.code, printed, where)
        if block.language == "console":
            for line, shown in commands(block.code):
                assert line.startswith("lastiterate "), f"{where}: only our own commands are run"
                said = command(line, capsys)
                if shown.strip():
                    check(shown, said, f"{where}: {line}")
        printed = None


@pytest.mark.parametrize("page", [*sorted(NEEDS), "coming-from.md", "opacus.md"])
def test_an_integration_is_a_screenful(page: str) -> None:
    for block in blocks(ROOT / "docs" / "how-to" / page):
        lines = [line for line in block.code.splitlines() if line.strip()]
        assert len(lines) <= 24, f"{page}:{block.line}"


def test_there_is_code_to_run() -> None:
    """The collector would find nothing in pages written in another style."""
    found = {page: len(blocks(page)) for page in PAGES}
    assert found[ROOT / "README.md"] >= 5
    assert sum(found.values()) > 100
    for page in PAGES:
        fences = len(re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert fences == 2 * found[page], f"{page}: a block is not collected"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_languages_are_known(page: Path) -> None:
    """A block in an unknown language would be shown and never run."""
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{page.name}:{block.line}"
        if block.language == "":
            assert "lastiterate " not in block.code, f"{page.name}:{block.line}: use console"


def test_make_targets_exist() -> None:
    """Shell blocks hold what a newcomer types before anything is installed."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for page in PAGES:
        for block in blocks(page):
            for target in re.findall(r"^make ([\w-]+)", block.code, re.MULTILINE):
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page.name}: {target}"


def test_a_false_promise_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)  # 3\n```\n", encoding="utf-8")
    (block,) = blocks(page)
    with pytest.raises(AssertionError):
        execute(block, page, {})
    with pytest.raises(AssertionError):
        check("epsilon 1.00\n", "epsilon 1.01\n", "here")
