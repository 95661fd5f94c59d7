"""What people install: a light core, extras that bring what is imported, whole archives."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from architecture import ROOT, libraries_imported, modules

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
DISTRIBUTIONS = packages_distributions()
FOR_DEVELOPERS = {"docs", "browser", "kernels", "notebooks", "dev"}
PINS = {"attrs"}  # listed to bound what another library brings
# Not installed where `make test` runs: `make test-integrations` has them.
ELSEWHERE = {each: {each} for each in ("jax", "lightning", "optax", "pyspark")}
ELSEWHERE["mlflow-skinny"] = {"mlflow"}
# dash is a Flask application, distributed is Dask's scheduler
BROUGHT_ALONG = {"dash": {"flask", "werkzeug"}, "distributed": {"dask"}}


def name(requirement: str) -> str:
    """The distribution of a requirement, in the spelling that all spellings share."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\s\[<>=!~;]", requirement)[0]).lower()


def modules_of(distribution: str) -> set[str]:
    """What a distribution lets one import, as far as it is installed here."""
    found = {module for module, homes in DISTRIBUTIONS.items() if distribution in map(name, homes)}
    return found | BROUGHT_ALONG.get(distribution, set()) | ELSEWHERE.get(distribution, set())


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """Every library that the package imports anywhere."""
    sources = [path.read_text(encoding="utf-8") for path in modules()]
    return {library for source in sources for library in libraries_imported(source)}


def test_the_core_needs_numpy_and_scipy_alone() -> None:
    assert {name(each) for each in PROJECT["dependencies"]} == {"numpy", "scipy"}


def test_every_imported_library_is_brought_by_the_core_or_an_extra(imported: set[str]) -> None:
    listed = [*PROJECT["dependencies"], *(one for extra in EXTRAS.values() for one in extra)]
    brought = {module for one in listed for module in modules_of(name(one))}
    assert imported - brought - {"triton"} == set()  # triton: beside PyTorch, where there is a GPU


@pytest.mark.parametrize("extra", sorted(set(EXTRAS) - FOR_DEVELOPERS))
def test_extras_bring_nothing_that_is_not_imported(extra: str, imported: set[str]) -> None:
    for requirement in EXTRAS[extra]:
        if name(requirement) not in PINS:
            assert modules_of(name(requirement)) & imported, f"{requirement} is not imported"


def test_the_readme_lists_every_extra_with_what_it_brings() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme.split("| extra |")[1].split("\n\n")[0]
    rows = {}
    for row in table.splitlines()[2:]:
        _, extra, brings, _purpose, _ = row.split("|")
        rows[extra.strip(" `")] = {name(each.strip(" `")) for each in brings.split(",")}
    assert set(rows) == set(EXTRAS) - FOR_DEVELOPERS
    for extra, brings in rows.items():
        assert brings == {name(each) for each in EXTRAS[extra]} - PINS, extra


def test_python_versions_agree() -> None:
    versions = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert versions[0] == PROJECT["requires-python"].removeprefix(">=")
    assert versions == [f"3.{minor}" for minor in range(11, 11 + len(versions))]


def test_the_version_is_written_once_in_effect() -> None:
    import lastiterate

    assert lastiterate.__version__ == PROJECT["version"]


# Only NumPy and SciPy can be imported: what the core promises must work.
ALONE = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top not in allowed and not top.startswith("_"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
allowed = {"lastiterate", "numpy", "scipy", *sys.stdlib_module_names}
allowed |= {module.split(".")[0] for module in sys.modules}  # what the interpreter's start loads
sys.meta_path.insert(0, Refuse())
"""
CORE = """
import lastiterate
from lastiterate import *
run = Training(
    records=1000, steps=50, step_size=0.1, noise=0.01, gradient_norm=1.0, batches=FullBatch()
)
loss = Loss(smoothness=0.25, regularization=0.1)
assert 0 < account(run, loss).epsilon(1e-5) < 100
assert len(compare(run, loss)) > 1
assert calibrate(run, loss, epsilon=1.0, delta=1e-5) is not None
assert plateau(run, loss, 1e-5) is not None
assert account(run.replace(batches=Poisson(0.02), adjacency="zero-out"), loss).epsilon(1e-5) > 0
assert theorems()
try:
    certify(run, loss, delta=1e-5)
except CertificateError as error:
    assert "lastiterate[verify]" in str(error)
else:
    raise AssertionError("signed without ball arithmetic")
"""


def test_the_core_works_with_nothing_but_numpy_and_scipy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALONE + CORE], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_strategy_without_flower_says_what_to_install() -> None:
    program = (
        "import sys\n"
        "sys.modules['flwr'] = None  # as if it were not installed\n"
        "from lastiterate.errors import MissingExtraError\n"
        "from lastiterate.federated import account_federated\n"
        "assert account_federated(9, 3, 2, 1.0, 6.0).epsilon(1e-5) > 0\n"
        "try:\n"
        "    from lastiterate.federated import PrivateFedAvg\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "flwr is not installed" in done.stdout
    assert "pip install 'lastiterate[federated]'" in done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree as it is published: building leaves traces, and people keep notes."""
    copy = tmp_path_factory.mktemp("tree") / "lastiterate"
    for name in published():
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    return copy


def published() -> list[str]:
    """What git tracks; outside of git, what a source archive says it holds."""
    listing = ROOT / "src" / "lastiterate.egg-info" / "SOURCES.txt"
    if not (ROOT / ".git").exists():
        names = listing.read_text(encoding="utf-8").splitlines()
    else:
        command = ["git", "ls-files", "-z"]
        found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        names = found.stdout.split("\0")[:-1]
    made = (".ci/", ".gitignore", "src/lastiterate.egg-info/")  # not published, or made anew
    return [name for name in names if not name.startswith(made) and name != "setup.cfg"]


def build(kind: str, tree: Path, out: Path) -> Path:
    """An archive made by the build backend, as `python -m build` would ask for it."""
    program = f"import setuptools.build_meta as b, sys; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(out)],
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
    )
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def unpacked(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is in the source archive."""
    out = tmp_path_factory.mktemp("sdist")
    with tarfile.open(build("sdist", tree, out)) as archive:
        archive.extractall(out, filter="data")
    return out / f"lastiterate-{PROJECT['version']}"


@pytest.fixture(scope="module")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, made from the source archive alone."""
    return build("wheel", unpacked, tmp_path_factory.mktemp("wheel"))


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_the_source_archive_is_the_whole_tree(tree: Path, unpacked: Path) -> None:
    wanted, found = files(tree), files(unpacked)
    assert {
        "tests/test_packaging.py",
        "Makefile",
        "benchmarks/__main__.py",
        "docs/index.md",
    } <= found
    assert {each for each in wanted - found if ".egg-info/" not in each} == set()
    made = {each for each in found - wanted if ".egg-info/" not in each}
    assert made == {"PKG-INFO", "setup.cfg"}


def test_tests_run_from_the_source_archive(unpacked: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "tests/description/test_loss.py",
        ],
        cwd=unpacked,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(unpacked / "src")},
    )
    assert done.returncode == 0, done.stdout


def test_the_wheel_holds_the_package_and_nothing_else(tree: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {each for each in archive.namelist() if ".dist-info/" not in each}
    source = tree / "src"
    assert found == {each for each in files(source) if ".egg-info/" not in each}


def fresh(folder: Path, wheel: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A program of a new environment that has the wheel, run in an empty folder."""
    venv.create(folder / "fresh", with_pip=True)
    alone = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    (folder / "empty").mkdir()

    def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(folder / "fresh" / "bin" / program), *arguments],
            env=alone,
            cwd=folder / "empty",
            capture_output=True,
            text=True,
            check=False,
        )

    installed = run("python", "-m", "pip", "install", "--quiet", wheel)
    if "No matching distribution" in installed.stderr or "onnection" in installed.stderr:
        pytest.skip(f"no package index can be reached: {installed.stderr[-300:]}")
    assert installed.returncode == 0, installed.stderr
    return run


@pytest.mark.slow
def test_a_fresh_environment_gets_three_packages(wheel: Path, tmp_path: Path) -> None:
    run = fresh(tmp_path, str(wheel))
    packages = {
        each["name"]
        for each in json.loads(run("python", "-m", "pip", "list", "--format=json").stdout)
    }
    assert packages - {"pip", "setuptools"} == {"lastiterate", "numpy", "scipy"}
    program = (
        "import time; t = time.process_time(); import lastiterate; print(time.process_time() - t)"
    )
    assert min(float(run("python", "-c", program).stdout) for _ in range(3)) < 0.3
    works = run("python", "-c", CORE)
    assert works.returncode == 0, works.stderr


@pytest.mark.slow
def test_the_demo_runs_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """As a newcomer would: install, ask for the version, have it examined, run the demo."""
    run = fresh(tmp_path, f"{wheel}[cli,models,verify,report]")
    assert run("lastiterate", "--version").stdout.strip() == PROJECT["version"]
    examined = run("lastiterate", "doctor", "--json")
    assert examined.returncode == 0, examined.stdout + examined.stderr
    assert json.loads(examined.stdout)["engines"]["NumPy"] == "certified"
    shown = run("lastiterate", "demo", "--out", "demo")
    assert shown.returncode == 0, shown.stderr
    report = tmp_path / "empty" / "demo" / "report.html"
    assert "epsilon" in report.read_text(encoding="utf-8")
    checked = run("lastiterate", "verify", "demo/run/certificate.json")
    assert checked.returncode == 0, checked.stderr
