"""A verifier one can trust by its imports: nothing that proposed a number is loaded to check it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from architecture import PACKAGE, imports, libraries_imported

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    certify,
    compose,
    theorems,
)
from lastiterate.theory.registry import UNIT_FIELDS
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.words import THEOREMS

OWN = (
    *("lastiterate.description", "lastiterate.errors", "lastiterate.verifier"),
    *("lastiterate.kernel", "lastiterate._internal.json_size"),
)
# The package finds its names by the one, descriptions round what they print by the other.
WITH_OWN = (*OWN, "lastiterate._internal.lazy", "lastiterate._internal.formatting")
LOSS = Loss(smoothness=1.0, strong_convexity=0.5)
SCHEMES = (
    FullBatch(),
    Cyclic(5),
    Shuffled(5),
    Reshuffled(5),
    Poisson(0.25),
    WithoutReplacement(5),
)
# Prints every module of this package, and every third-party package, that a program loaded.
LOADED = """
own = sorted(name for name in sys.modules if name.split(".")[0] == "lastiterate")
top = {name.split(".")[0] for name in sys.modules} - before - set(sys.stdlib_module_names)
files = [name for name in top - {"lastiterate"} if getattr(sys.modules.get(name), "__file__", "")]
print(*own, "|", *sorted(files))  # what has no file is made by a compiler: cython_runtime
"""


def loaded(program: str, *arguments: str) -> tuple[set[str], set[str]]:
    """Modules of this package and names of other packages that a fresh process loads."""
    start = "import sys\nbefore = {name.split('.')[0] for name in sys.modules}\n"
    command = [sys.executable, "-c", start + program + LOADED, *arguments]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    own, others = found.split("|")
    return set(own.split()), set(others.split())


def strangers(modules: set[str]) -> set[str]:
    return {name for name in modules - {"lastiterate"} if not name.startswith(WITH_OWN)} - {
        "lastiterate._internal"
    }


def test_the_room_loads_descriptions_errors_numpy_and_flint_alone() -> None:
    own, others = loaded("import lastiterate.verifier\n")
    assert not strangers(own)
    assert "lastiterate.verifier.checks" in own
    assert others == {"flint", "numpy"}


def test_a_file_is_checked_without_the_accountant(tmp_path: Path) -> None:
    """Not at import and not later: one certificate of every scheme, and a composition."""
    files = []
    run = Training(
        records=20,
        steps=8,
        step_size=0.2,
        noise=0.3,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    sealed = [
        certify(run.replace(batches=scheme, adjacency="zero-out"), LOSS, delta=1e-3)
        for scheme in SCHEMES
    ]
    for k, certificate in enumerate([*sealed, compose(sealed[:3])]):
        files.append(str(tmp_path / f"{k}.json"))
        certificate.save(files[-1])
    program = (
        "from lastiterate import verify\n"
        "for path in sys.argv[1:]:\n"
        "    assert verify(path).epsilon < 50\n"
    )
    own, others = loaded(program, *files)
    assert not strangers(own)
    assert others == {"flint", "numpy"}


def test_the_test_sees_a_stranger() -> None:
    own, others = loaded("import lastiterate.verifier, lastiterate.curves.gaussian\n")
    assert "lastiterate.curves.gaussian" in strangers(own)
    assert "scipy" in others


@pytest.mark.parametrize("path", sorted((PACKAGE / "verifier").glob("*.py")), ids=lambda p: p.stem)
def test_no_module_of_the_room_names_another_room(path: Path) -> None:
    """Late imports count too."""
    source = path.read_text(encoding="utf-8")
    rooms = {name for name in imports(source) if name.startswith("lastiterate.")}
    assert not {name for name in rooms if not name.startswith(OWN)}
    assert libraries_imported(source) <= {"flint", "numpy", "cryptography"}


def test_the_table_of_theorems_is_the_registry_s() -> None:
    """The verifier's words about a theorem are those of the registry's row with the same key."""
    rows = {theorem.key: theorem for theorem in theorems()}
    for key, named in THEOREMS.items():
        theorem = rows[key]
        row = (theorem.name, theorem.reference, theorem.status, theorem.hidden_state)
        row = (*row, theorem.supports & UNIT_FIELDS)
        assert tuple(named) == row
        assert theorem.status != "refuted"


def test_every_theorem_that_is_named_has_a_check() -> None:
    assert set(THEOREMS) == set(CHECKS)
