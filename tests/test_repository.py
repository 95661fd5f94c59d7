"""The files around the code say what is so: workflows, pre-commit, citation, forms for issues."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from architecture import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*"))
CONDA_EXTRAS = ("cli", "models", "verify", "report")
CONDA_NAMES = {"matplotlib>=3.8": "matplotlib-base>=3.8"}  # without a toolkit for windows
KINDS = {"markdown", "textarea", "input", "dropdown", "checkboxes"}


class Strict(yaml.SafeLoader):
    """YAML in which a key that is given twice is an error, as it is for GitHub."""


def _table(loader: Strict, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    assert len(keys) == len(set(keys)), f"a key is given twice: {keys}"
    return dict(loader.construct_pairs(node, deep=True))


Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _table)


def read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), Strict)


def workflow(path: Path) -> dict[str, Any]:
    table = read(path)
    table["on"] = table.pop(True)  # YAML 1.1 reads the word `on` as a truth value
    return table


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


def test_the_reader_refuses_a_key_given_twice() -> None:
    with pytest.raises(AssertionError, match="twice"):
        yaml.load("a: 1\nb: {c: 1, c: 2}", Strict)


def test_there_are_workflows_and_forms() -> None:
    assert {path.name for path in WORKFLOWS} == {"test.yml", "slow.yml"}
    assert {path.name for path in FORMS} == {
        "below-the-truth.yml",
        "bug.yml",
        "config.yml",
        "feature.yml",
    }


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_are_well_formed(path: Path) -> None:
    found = workflow(path)
    assert set(found) <= {"name", "on", "permissions", "concurrency", "jobs", "env"}
    assert found["permissions"] == {"contents": "read"}, "a test needs no right to write"
    for name, job in found["jobs"].items():
        assert re.fullmatch(r"[a-z_][a-z0-9_-]*", name)
        known = {"runs-on", "timeout-minutes", "strategy", "env", "steps", "needs"}
        assert {"runs-on", "timeout-minutes", "steps"} <= set(job) <= known
    for step in steps(path):
        assert ("uses" in step) != ("run" in step), step
        assert set(step) <= {"name", "uses", "with", "run", "env", "if"}
        if "uses" in step:
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", step["uses"]), "a tag can move"
    assert path.read_text().count("${{") == len(
        re.findall(r"\$\{\{ (?:github|matrix|vars)\.[\w.-]+ \}\}", path.read_text())
    )


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_targets_and_scripts_that_exist(path: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))
    job = workflow(path)["jobs"].get("slow", {})
    from_matrix = job.get("strategy", {}).get("matrix", {}).get("target", [])
    commands = "\n".join(step["run"] for step in steps(path) if "run" in step)
    wanted = set(re.findall(r"\bmake ([\w-]+)", commands)) | set(from_matrix)
    assert wanted
    assert wanted <= targets
    for script in re.findall(r"scripts/[\w-]+", commands):
        assert (ROOT / script).stat().st_mode & 0o111, f"{script} cannot be run"


def test_the_action_and_the_image_are_built_of_fixed_parts() -> None:
    action = read(ROOT / ".github/actions/verify-certificate/action.yml")
    used = [step["uses"] for step in action["runs"]["steps"] if "uses" in step]
    assert all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", each) for each in used)
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (base,) = re.findall(r"^FROM (\S+)", dockerfile, re.MULTILINE)
    assert re.fullmatch(r"python:3\.12-slim@sha256:[0-9a-f]{64}", base)


def test_the_image_gets_nothing_but_the_package() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert allowed == {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "src"}


def test_every_supported_python_is_tested() -> None:
    matrix = workflow(ROOT / ".github/workflows/test.yml")["jobs"]["test"]["strategy"]["matrix"]
    promised = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["python-version"] == promised  # as words: 3.10 as a number would be 3.1


def test_lint_docs_and_archives_are_checked_on_every_change() -> None:
    found = workflow(ROOT / ".github/workflows/test.yml")
    checked = {"lint", "test", "integrations", "vulnerabilities", "docs", "package"}
    assert checked == set(found["jobs"])
    assert "pull_request" in found["on"]


def test_the_lock_has_a_version_for_whatever_is_asked_for() -> None:
    """One that the project allows, with a hash; and nothing else, such as somebody's index."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    entry = re.compile(r"([\w.-]+)==([\w.!]+) --hash=sha256:[0-9a-f]{64}")
    entries = [entry.fullmatch(line) for line in lines]
    assert all(entries)
    locked = {canonicalize_name(each[1]): each[2] for each in entries if each is not None}
    assert len(locked) == len(lines)
    extras = re.search(r"^TEST_EXTRAS := (.*)$", MAKEFILE, re.MULTILINE)
    assert extras is not None
    asked = [
        each for name in extras[1].split(",") for each in PROJECT["optional-dependencies"][name]
    ]
    for each in map(Requirement, [*PROJECT["dependencies"], *asked]):
        if each.marker is None or each.marker.evaluate():
            assert each.specifier.contains(locked[canonicalize_name(each.name)]), each


def test_pre_commit_checks_and_formats_with_the_ruff_of_the_tests() -> None:
    (repository,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in repository["hooks"]] == ["ruff-check", "ruff-format"]
    minor = re.fullmatch(r"v(\d+\.\d+)\.\d+", repository["rev"])
    assert minor is not None
    (asked,) = [each for each in PROJECT["optional-dependencies"]["dev"] if each.startswith("ruff")]
    assert asked == f"ruff=={minor[1]}.*"


def test_the_citation_is_valid_and_of_this_version() -> None:
    found = read(ROOT / "CITATION.cff")
    required = {"cff-version", "message", "title", "authors"}
    known = {"abstract", "type", "version", "license", "keywords", "date-released", "doi", "url"}
    assert required <= set(found) <= required | known | {"repository-code", "references"}
    assert found["cff-version"] == "1.2.0"
    assert found["type"] == "software"
    assert found["title"] == PROJECT["name"]
    assert found["version"] == PROJECT["version"]
    assert found["license"] == PROJECT["license"]
    assert found["authors"]
    for author in found["authors"]:
        assert "name" in author or {"family-names", "given-names"} <= set(author)
    assert all(isinstance(word, str) for word in found["keywords"])


def test_the_conda_recipe_brings_what_pip_does() -> None:
    """The core, and the extras of the command line, the estimators, the verifier, the reports."""
    recipe = read(ROOT / "conda" / "recipe.yaml")
    assert recipe["package"] == {"name": PROJECT["name"], "version": PROJECT["version"]}
    (command,) = PROJECT["scripts"].items()
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(command)]
    wanted = {f"python{PROJECT['requires-python']}", *PROJECT["dependencies"]}
    for extra in CONDA_EXTRAS:
        wanted |= set(PROJECT["optional-dependencies"][extra])
    found = {each.replace(" ", "") for each in recipe["requirements"]["run"]}
    assert found == {CONDA_NAMES.get(each, each) for each in wanted}


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_forms_for_issues_are_well_formed(path: Path) -> None:
    form = read(path)
    if path.name == "config.yml":
        assert set(form) <= {"blank_issues_enabled", "contact_links"}
        return
    assert {"name", "description", "body"} <= set(form)
    assert set(form) <= {"name", "description", "title", "labels", "body"}
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids)) > 0
    for part in form["body"]:
        assert part["type"] in KINDS
        assert "value" in part["attributes"] or "label" in part["attributes"]
    assert any(part.get("validations", {}).get("required") for part in form["body"])


@pytest.mark.parametrize(
    "path",
    [ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"],
    ids=lambda path: path.name,
)
def test_links_between_files_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_what_security_calls_a_vulnerability_has_its_form() -> None:
    security = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    form = read(ROOT / ".github/ISSUE_TEMPLATE/below-the-truth.yml")
    assert f"*{form['name']}*" in security
    assert form["name"] in security.split("## How to report")[0]
    bug = (ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8")
    assert f'"{form["name"]}"' in bug


def test_what_tests_share_is_in_two_places() -> None:
    """Exact laws in tests/laws, other tools in tests/shared: no test borrows from another."""
    homes = {path.stem: path.parent.name for path in (ROOT / "tests").rglob("*.py")}
    places = {"laws", "shared"}
    borrowed = {
        f"{path.relative_to(ROOT)} imports {name} from tests/{homes[name]}"
        for path in (ROOT / "tests").rglob("*.py")
        for name in re.findall(r"^\s*(?:from|import) (\w+)", path.read_text("utf-8"), re.MULTILINE)
        if name in homes and homes[name] not in places
    }
    assert not borrowed
