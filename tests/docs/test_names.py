"""Papers are named by authors and year wherever a person reads: no letter stands for one."""

import inspect
import re
from pathlib import Path

import pytest

from lastiterate import theorems

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
READ = [*PAGES, *EXAMPLES, *(ROOT / "src").rglob("*.py")]
SHORT = {"c", "y", "l", "h", "f", "hf", "hwt"}

PLACE = (
    r"(?:Theorem|Thm|Corollar|Proposition|Lemma|Figure|Fig|Definition|Claim|Algorithm|Remark|"
    r"[Aa]ppendix|[Ss]ection|eq\b|equation|\((?:[1-9]\d{1,2})\)|\[)"
)
VERB = r"(?:find|say|quote|describe|plot|print|claim|state|prove|is Ch|is Ye|= Ch|= Ye|= He)"
LETTER = re.compile(
    rf"\b(?:HWT|HF)\b|\b[CYLHF](?:'s)?,? (?:{PLACE}|{VERB})|\b[CYL]'s [a-z]|(?:\||#) [CYL](?:,| \|)"
    r"|\(C, Y\)|\b[CY] and [YL]\b|\bpapers? [CYL]\b"
)


def letters(text: str) -> list[str]:
    """Places where a letter stands for a paper; code in backticks may use any letter."""
    prose = re.sub(r"`[^`\n]*`", "", text)
    return [prose[max(0, m.start() - 30) : m.end() + 10] for m in LETTER.finditer(prose)]


@pytest.mark.parametrize(
    "old",
    [
        "Corrected L Theorem 3.12",
        "Y's Proposition F.2",
        "(C (60), Y (157))",
        "| HF counterexample |",
        "## C, Figure 2",
        "L quote it without constants",
        "C = Chourasia, Ye, Shokri",
    ],
)
def test_the_scan_sees_a_letter_that_names_a_paper(old):
    assert letters(old)


def test_theorems_are_named_by_authors_and_year():
    for theorem in theorems():
        texts = (theorem.name, theorem.reference, theorem.statement, theorem.correction)
        for text in (*texts, *theorem.assumptions, inspect.getdoc(type(theorem)) or ""):
            assert not letters(text), (theorem.key, text)
        if year := re.search(r"-(\d{4})-", theorem.key):
            assert year[1] in theorem.name, theorem.key
            authors = theorem.key[: year.start()].split("-")
            assert all(author in theorem.name.lower() for author in authors), theorem.key


def test_what_people_read_names_papers_by_authors_and_year():
    """Docstrings, messages, presets and titles of figures all stand in the code."""
    found = {path: letters(path.read_text(encoding="utf-8")) for path in READ}
    assert {str(path.relative_to(ROOT)): places for path, places in found.items() if places} == {}


def test_presets_and_scripts_are_named_by_authors():
    pytest.importorskip("dash")
    from lastiterate.explore.presets import PRESETS

    for name, preset in PRESETS.items():
        assert not letters(f"{preset.label} {preset.words}")
        assert name.split("-")[0] not in SHORT, name
    for path in EXAMPLES:
        assert not SHORT & set(path.stem.split("_")), path
