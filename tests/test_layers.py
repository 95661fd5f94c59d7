"""The architecture, enforced: lower layers never import higher ones, heavy libraries stay home."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from architecture import (
    PACKAGE,
    ROOT,
    floors,
    libraries_imported,
    modules,
    room_of,
    rooms_imported,
    unreadable_imports,
)

import lastiterate

# CONTRIBUTING.md draws the floors; there is no second list.
FLOORS = floors((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
THE_WAY_UP = ("_internal", "report")  # objects that draw themselves; nothing else goes up

# Where a library is imported, and nowhere else. The core needs NumPy and SciPy alone.
HOMES = {
    "arviz": {"sampling"},
    "attr": {"dp_accounting"},
    "cryptography": {"_internal", "noise", "verifier", "certificate"},
    "dash": {"explore"},
    "dask": {"cluster"},
    "distributed": {"cluster"},
    "dp_accounting": {"curves", "dp_accounting"},
    "flask": {"explore"},
    "flint": {"kernel", "verifier"},
    "flwr": {"federated"},
    "jax": {"jax"},
    "jinja2": {"report"},
    "markupsafe": {"report"},
    "matplotlib": {"report"},
    "joblib": {"audit"},
    "kymatio": {"models"},
    "lightning": {"frameworks"},
    "onnx": {"models"},
    "opacus": {"torch"},
    "mlflow": {"frameworks"},
    "optax": {"jax"},
    "pyarrow": {"cluster", "models", "train"},
    "pyspark": {"cluster"},
    "ray": {"cluster"},
    "rich": {"cli"},
    "sklearn": {"models", "audit"},
    "threadpoolctl": {"train"},
    "torch": {"torch", "train", "models", "sampling", "audit", "frameworks"},
    "transformers": {"frameworks"},
    "triton": {"train"},
    "typer": {"cli"},
    "waitress": {"explore"},
    "werkzeug": {"explore"},
}
ALWAYS = {"numpy", "scipy"}


def too_high(room: str, source: str) -> set[str]:
    """Rooms imported that are not on a floor below; a room may import itself."""
    return {
        other
        for other in rooms_imported(source) - {room}
        if FLOOR[other] >= FLOOR[room] and (room, other) != THE_WAY_UP
    }


def strangers(room: str, source: str) -> set[str]:
    libraries = libraries_imported(source) - ALWAYS
    return {library for library in libraries if room not in HOMES.get(library, set())}


def test_every_room_has_a_floor_and_every_floor_its_rooms() -> None:
    assert {room_of(path) for path in modules()} == set(FLOOR)


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_every_module_stays_in_its_place(path: Path) -> None:
    room, source = room_of(path), path.read_text(encoding="utf-8")
    assert not too_high(room, source)
    assert not strangers(room, source)


def test_no_permission_is_stale() -> None:
    """Each library is imported in each of its homes, and the way up is used."""
    used: dict[str, set[str]] = {}
    for path in modules():
        for library in libraries_imported(path.read_text(encoding="utf-8")) - ALWAYS:
            used.setdefault(library, set()).add(room_of(path))
    assert used == HOMES
    room, above = THE_WAY_UP
    plotting = (PACKAGE / room / "plotting.py").read_text(encoding="utf-8")
    assert above in rooms_imported(plotting)


def test_what_is_loaded_by_name_can_be_read() -> None:
    """A name of a module that is not written in the file escapes every rule here."""
    found = {
        str(path.relative_to(PACKAGE)): calls
        for path in modules()
        if (calls := unreadable_imports(path.read_text(encoding="utf-8")))
    }
    assert found == {
        "audit/targets.py": ["importlib.import_module(module)"],  # the user's own
        "frameworks/__init__.py": ["find_spec(_NEEDED[n])"],  # whether it is there
        "_internal/lazy.py": [
            "importlib.import_module(home[name])"
        ],  # from the table of its caller
    }


def test_the_rules_catch_what_breaks_them() -> None:
    source = (
        "import torch.nn\nfrom rich import table\nimport unheard_of\nimport numpy, json\n"
        "def late():\n"
        "    from lastiterate.cli.main import run\n    from lastiterate import account\n"
    )
    assert too_high("theory", source) == {"cli", "accounting"}
    assert too_high("cli", source) == set()
    assert strangers("theory", source) == {"torch", "rich", "unheard_of"}
    assert strangers("cli", source) == {"torch", "unheard_of"}


@pytest.mark.parametrize(
    "source",
    [
        "def __getattr__(name):\n    from lastiterate.report import page\n    return page",
        "HOME = {'page': 'lastiterate.report.page'}",
        "import importlib\nroom = importlib.import_module('lastiterate.report')",
        "room = __import__('lastiterate.report')",
        "import lastiterate\ndef draw():\n    return lastiterate.report.page",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from lastiterate import report",
    ],
)
def test_no_way_of_importing_is_overlooked(source: str) -> None:
    assert too_high("theory", source) == {"report"}
    assert too_high("report", source) == set()
    assert too_high("cli", source) == set()


def test_words_about_modules_are_not_imports() -> None:
    assert rooms_imported('"""lastiterate.report"""\nx = "see lastiterate.report, page 3"') == set()
    assert strangers("theory", "x = importlib.import_module('arviz')") == {"arviz"}
    assert unreadable_imports("import_module(name)") == ["import_module(name)"]
    assert unreadable_imports("import_module('json')") == []


def test_rooms_of_one_floor_do_not_import_each_other() -> None:
    together = next(floor for floor in FLOORS if len(floor) > 1)
    one, other = sorted(together)[:2]
    assert too_high(one, f"import lastiterate.{other}.part") == {other}
    assert too_high(one, f"import lastiterate.{one}.part") == set()


def test_a_room_cannot_stand_on_two_floors() -> None:
    with pytest.raises(AssertionError, match="two floors"):
        floors("## Layers\n\n    a, b < c\n    < b\n")
    assert floors("## Layers\n\n    a, b < c\n      < d\n\nWords < more.\n\n## Next\n") == [
        {"a", "b"},
        {"c"},
        {"d"},
    ]


def test_import_is_quick_and_light() -> None:
    """Importing loads nobody else's module at all, not even NumPy: names come when used."""
    program = (
        "import sys, time\n"
        "before = set(sys.modules)\n"
        "start = time.process_time()\n"
        "import lastiterate\n"
        "seconds = time.process_time() - start\n"
        "loaded = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "foreign = loaded - {'lastiterate'} - set(sys.stdlib_module_names)\n"
        "assert not foreign, foreign\n"
        "print(seconds)"
    )
    command = [sys.executable, "-c", program]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(3)]
    assert min(float(run.stdout) for run in runs) < 0.3


def test_public_names_exist() -> None:
    for name in lastiterate.__all__:
        assert getattr(lastiterate, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'acount'"):
        _ = lastiterate.acount
