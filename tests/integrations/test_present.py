"""What is installed is what we say we work with, and nothing of it is imported unless used."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version

import pytest
from architecture import PACKAGE, ROOT
from packaging.requirements import Requirement

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
EXTRAS = ("cluster", "jax", "lightning", "mlflow", "notebooks", "spark", "transformers")
NEEDED = [Requirement(one) for each in EXTRAS for one in PROJECT["optional-dependencies"][each]]
PEERS = [one for one in NEEDED if one.name != "cryptography"]  # no framework
MODULES = (
    *("jax", "optax", "lightning", "pytorch_lightning", "transformers", "mlflow"),
    *("pyspark", "ray", "distributed", "dask"),
)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_versions_are_ranges_and_what_runs_is_inside(peer: Requirement) -> None:
    assert {each.operator for each in peer.specifier} == {">=", "<"}
    try:
        found = version(peer.name)
    except PackageNotFoundError:
        pytest.skip(f"{peer.name} is not installed: make test-integrations")
    assert peer.specifier.contains(found)


def test_the_environment_of_make_has_them_all() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    listed = makefile.split("INTEGRATION_EXTRAS := ")[1].split("\n")[0].split(",")
    assert set(listed) >= set(EXTRAS)


def test_importing_a_room_loads_no_framework() -> None:
    rooms = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    program = "import sys, importlib\n" + "".join(
        f"try:\n    importlib.import_module('lastiterate.{room}')\nexcept ImportError:\n    pass\n"
        for room in rooms
    )
    program += f"print(sorted(set({MODULES!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
