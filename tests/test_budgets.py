"""The size of the source: what ``scripts/budgets.py`` counts, and that ceilings are respected."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "budgets.py"
_spec = importlib.util.spec_from_file_location("budgets", SCRIPT)
assert _spec is not None
assert _spec.loader is not None
budgets = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(budgets)

FIRST = '''"""A docstring
of two lines."""

from library.part.second import Repeated as Other  # a comment


class Repeated:
    """Not code."""

    def method(self, a, b, c, d, e, f, g, whole_=1):
        text = """a text
        is code"""
        return text
'''
SECOND = """import library.part.first

class Repeated:
    told = 1

def late():
    from library.third import nothing
"""
THIRD = "import library.part.second\n"


@pytest.fixture
def measured(tmp_path):
    package = tmp_path / "library"
    (package / "part").mkdir(parents=True)
    for name, text in {"part/first": FIRST, "part/second": SECOND, "third": THIRD}.items():
        (package / f"{name}.py").write_text(text)
    return budgets.measure(package, ["whole", "told"])


def test_docstrings_comments_and_blank_lines_are_free(measured) -> None:
    assert measured["code_lines"] == {"part": 11, "top": 1, "total": 12}
    assert measured["files"] == {"part": 2, "top": 1, "total": 3}


def test_wide_functions_repeated_classes_cycles_and_banned_names_are_counted(measured) -> None:
    assert measured["all"] == {
        "functions_with_many_parameters": 1,
        "repeated_class_names": 1,
        "modules_in_import_cycles": 2,
        "banned_names": 2,
    }


def test_a_measurement_above_or_without_a_ceiling_is_reported(measured) -> None:
    equal = budgets.lowered(measured, {})
    assert list(budgets.excesses(measured, equal)) == []
    equal["code_lines"]["part"] -= 1
    del equal["files"]["top"]
    assert len(list(budgets.excesses(measured, equal))) == 2


def test_ceilings_are_lowered_and_never_raised(measured) -> None:
    lower = budgets.lowered(measured, {"files": {"part": 1, "top": 5, "gone": 7}})
    assert lower["files"] == {"part": 1, "top": 1, "total": 3}


def test_the_source_respects_its_ceilings() -> None:
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
