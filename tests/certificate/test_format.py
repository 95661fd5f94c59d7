"""Version 1 of the file format: documented field by field, and read for ever.

``kept/`` holds certificates as they were written. From the first release on they are never made
again: a change that breaks one of them breaks the files of users. A new theorem or scheme adds one.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from lastiterate import Certificate, CertificateError, Loss, PrivacyUnit, Training, verify
from lastiterate.kernel.balls import MalformedError
from lastiterate.kernel.run import read_run
from lastiterate.verifier import document
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.joint import THEOREM as JOINT
from lastiterate.verifier.words import THEOREMS

ROOT = Path(__file__).parents[2]
KEPT = sorted(Path(__file__).parent.glob("kept/*.json"))
PAGE = (ROOT / "docs" / "certificate-format.md").read_text(encoding="utf-8")
SCHEMA = json.loads((ROOT / "docs" / "certificate.schema.json").read_text(encoding="utf-8"))


def table(heading: str) -> dict[str, list[str]]:
    """The rows of a section's table, by what stands in backticks in their first cell."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            first, *rest = [cell.strip() for cell in line.strip("|").split(" | ")]
            for name in re.findall(r"`([^`]+)`", first):
                found[name] = rest
    return found


def content(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="ascii"))
    return found


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_certificate_is_read_and_verified(path):
    key = path.parent / "signer.pub"
    trusted = [key] if "signatures" in content(path) else None
    checked = verify(path, trusted_keys=trusted)
    assert checked.epsilon == content(path)["epsilon"]
    assert (trusted is None) == (checked.signed_by == ())
    loaded = Certificate.load(path)
    assert loaded.to_json().encode() == path.read_bytes()
    for run in loaded.parts or (loaded,):
        assert run.training is not None
        assert Training.from_dict(run.training.to_dict()) == run.training


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_certificate_that_leaves_the_adjacency_out_is_refused(path):
    """A default of this version must not decide what a file of another one means."""
    changed = content(path)
    changed.pop("signatures", None)
    for run in changed.get("parts", [changed]):
        read_run(run)
        del run["training"]["adjacency"]
        run["sha256"] = document.fingerprint({k: v for k, v in run.items() if k != "sha256"})
        with pytest.raises(MalformedError, match="training has missing"):
            read_run(run)
    changed["sha256"] = document.fingerprint({k: v for k, v in changed.items() if k != "sha256"})
    with pytest.raises(CertificateError):
        verify(Certificate(changed))


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_kept_certificate_with_a_smaller_claim_is_refused(path):
    changed = content(path)
    changed.pop("signatures", None)
    changed["epsilon"] = 0.9 * changed["epsilon"]
    changed["sha256"] = document.fingerprint(changed)
    with pytest.raises(CertificateError, match="does not hold"):
        verify(Certificate(changed))


def test_kept_certificates_cover_every_theorem_and_scheme():
    runs = [
        run for path in KEPT for run in (Certificate.load(path).parts or [Certificate.load(path)])
    ]
    assert {run.theorem_key for run in runs} == set(CHECKS)
    schemes = {run.content["training"]["batches"]["scheme"] for run in runs}
    assert schemes == {name for name in re.findall(r"`([a-z-]+)`", SCHEMES)}
    assert {content(path)["kind"] for path in KEPT} == {"run", "composition"}
    assert {content(path)["theorem"]["key"] for path in KEPT} > {JOINT["key"]}


SCHEMES = re.search(r"`scheme` \(([^)]*)\)", PAGE)[1]  # type: ignore[index]


def test_every_field_is_documented():
    common = set(table("Every certificate"))
    assert common == {*document._COMMON, *document._OPTIONAL, "signatures"}
    assert set(table("A run")) == set(document._OWN["run"])
    assert set(table("A composition")) == set(document._OWN["composition"])
    assert set(table("The theorem")) == document._THEOREM
    assert list(table("The link")) == list(document.Link._fields)
    assert set(SCHEMA["properties"]["link"]["properties"]) == set(document.Link._fields)
    documented = common | set(table("A run")) | set(table("A composition"))
    assert set(SCHEMA["properties"]) == documented


def test_words_of_provenance_are_documented():
    allowed = SCHEMA["properties"]["provenance"]["properties"]
    assert set(table("The provenance")) == set(allowed)
    for name, (words,) in table("The provenance").items():
        assert re.findall(r"`(\w+)`", words) == allowed[name]["enum"]


@pytest.mark.parametrize(
    ("heading", "described"), [("training", Training), ("loss", Loss), ("unit", PrivacyUnit)]
)
def test_defaults_of_descriptions_are_part_of_the_format(heading, described):
    documented = table(f"The description: {heading}")
    stored = [field for field in dataclasses.fields(described) if not field.metadata["row"].derived]
    assert list(documented) == [field.name for field in stored]
    for field in stored:
        default, row = documented[field.name][0].strip("`"), field.metadata["row"]
        if default in ("–", "implied"):  # always written, or derived from other fields
            derived = field.default in (None, dataclasses.MISSING)
            assert derived or row.always or row.required
        else:
            assert default == str(field.default).replace("None", "none")


def test_every_witness_is_documented():
    documented = table("The witness")
    assert set(documented) == set(CHECKS) == set(THEOREMS)
    for path in KEPT:
        for run in Certificate.load(path).parts or [Certificate.load(path)]:
            fields, _ = documented[run.theorem_key]
            named = set(re.findall(r"`(\w+)`", fields))
            witness = run.content["witness"]
            optional = set(re.findall(r"`(\w+)` \(optional\)", fields))
            assert named - optional <= set(witness) <= named, path
            for part in [
                row
                for name in ("stretches", "segments", "families")
                for row in witness.get(name, ())
            ]:
                assert set(part) <= set(re.findall(r"`(\w+)`", WITNESS)), path


WITNESS = PAGE.split("\n## The witness\n")[1].split("\n## ")[0]


@pytest.mark.parametrize("version", [0, 2, "1", None, True, 1.0])
def test_another_version_is_refused(version, tmp_path):
    changed = content(KEPT[0]) | {"version": version}
    changed["sha256"] = document.fingerprint(changed)
    path = tmp_path / "other.json"
    path.write_text(document.canonical(changed))
    with pytest.raises(CertificateError, match="reads version 1"):
        verify(path)


def test_a_new_field_needs_a_new_version(tmp_path):
    changed = content(KEPT[0]) | {"surprise": 1}
    changed["sha256"] = document.fingerprint(changed)
    path = tmp_path / "other.json"
    path.write_text(document.canonical(changed))
    with pytest.raises(CertificateError, match="unknown fields"):
        verify(path)
