"""Certificates say whom they speak of; a file that says another person does not verify."""

from __future__ import annotations

import copy
import json

import pytest

from lastiterate import (
    Arithmetic,
    Certificate,
    CertificateError,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    WithoutReplacement,
    account,
    certify,
    compose,
    verify,
)
from lastiterate.verifier.document import canonical, fingerprint
from lastiterate.verifier.witness import unpack
from lastiterate.verifier.words import words

LOSS = Loss(smoothness=1.0, regularization=0.05)


def run(batches, **changes):
    fields = {
        "records": 120,
        "steps": 60,
        "step_size": 0.5,
        "noise": 0.3,
        "gradient_norm": 1.0,
        "batches": batches,
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


CASES = {
    "full": (run(FullBatch()), PrivacyUnit(records=7, first_step=5, last_step=50)),
    "cyclic": (run(Cyclic(12)), PrivacyUnit(records=6, per_batch=2)),
    "cyclic late": (run(Cyclic(12)), PrivacyUnit(records=6, first_step=31)),
    "shuffled": (run(Shuffled(12)), PrivacyUnit(last_step=33, gradient_norm=0.5)),
    "shuffled group": (run(Shuffled(12)), PrivacyUnit(records=3)),
    "shuffled apart": (run(Shuffled(12)), PrivacyUnit(records=4, per_batch=1, gradient_norm=0.7)),
    "shuffled group late": (
        run(Shuffled(12)),
        PrivacyUnit(records=3, first_step=11, gradient_norm=0.5),
    ),
    "shuffled group on a grid": (
        run(Shuffled(12), arithmetic=Arithmetic(2.0**-20, 1e-7, 3)),
        PrivacyUnit(records=3, per_batch=1),
    ),
    "shuffled group late on a grid": (
        run(Shuffled(12), arithmetic=Arithmetic(2.0**-20, 1e-7, 3)),
        PrivacyUnit(records=3, first_step=45),
    ),
    "reshuffled": (run(Reshuffled(12)), PrivacyUnit(first_step=11)),
    "reshuffled group": (run(Reshuffled(12)), PrivacyUnit(records=3, per_batch=1)),
    "reshuffled group on a grid": (
        run(Reshuffled(12), arithmetic=Arithmetic(2.0**-20, 1e-7, 3)),
        PrivacyUnit(records=3),
    ),
    "poisson group": (run(Poisson(0.1), adjacency="zero-out"), PrivacyUnit(records=3)),
    "poisson late": (
        run(Poisson(0.1), adjacency="zero-out"),
        PrivacyUnit(records=2, first_step=20, gradient_norm=0.5),
    ),
    "momentum": (run(Cyclic(12), momentum=0.5), PrivacyUnit(records=3, last_step=31)),
    "grid": (
        run(Cyclic(12), arithmetic=Arithmetic(2.0**-30, 1e-9, 3)),
        PrivacyUnit(records=4, per_batch=1, last_step=40),
    ),
    "bounded": (run(Cyclic(12), diameter=0.2), PrivacyUnit(records=4)),
}


@pytest.fixture(scope="module")
def sealed():
    return {name: certify(t, LOSS, 1e-5, unit=e) for name, (t, e) in CASES.items()}


@pytest.mark.parametrize("name", CASES)
def test_it_verifies_and_says_whom(sealed, name):
    certificate, (_, unit) = sealed[name], CASES[name]
    again = Certificate.from_json(certificate.to_json())
    assert verify(again).epsilon == certificate.epsilon
    assert again.unit == unit
    assert f"For {unit}" in str(again)


def lied(certificate, unit):
    """A liar's file: another person, all words to match, the old numbers, a hash that fits."""
    content = copy.deepcopy(json.loads(certificate.to_json()))
    content.pop("unit", None)
    if unit:
        content["unit"] = unit
    person = PrivacyUnit.from_dict(unit)
    key, releases = content["theorem"]["key"], tuple(content["releases"])
    content.update(words(certificate.training, certificate.loss, releases, key, person))
    content["sha256"] = fingerprint(content)
    return Certificate.from_json(canonical(content))


@pytest.mark.parametrize("name", CASES)
def test_a_person_who_is_exposed_more_is_refused(sealed, name):
    certificate = sealed[name]
    table = certificate.unit.to_dict()
    worse = []
    if "records" in table:
        worse.append({**table, "records": table["records"] + 3})
    if "last_step" in table:
        worse.append({k: v for k, v in table.items() if k != "last_step"})
    if "first_step" in table:
        worse.append({k: v for k, v in table.items() if k != "first_step"})
    if "gradient_norm" in table:
        worse.append({**table, "gradient_norm": 0.9})
    if "per_batch" in table:
        worse.append({k: v for k, v in table.items() if k != "per_batch"})
    assert worse
    for unit in worse:
        with pytest.raises(CertificateError):
            verify(lied(certificate, unit))


@pytest.mark.parametrize(
    "unit",
    [
        {"records": 1},
        {"records": 2.0},
        {"records": "2"},
        {"people": 2},
        {"records": 10**6},
        {"last_step": 99},
    ],
)
def test_hostile_units(sealed, unit):
    content = copy.deepcopy(json.loads(sealed["shuffled"].to_json()))
    content["unit"] = unit
    content["sha256"] = fingerprint(content)
    with pytest.raises(CertificateError):
        verify(Certificate.from_json(canonical(content)))


PLACED = {
    "shuffled group": "cycle-law",
    "shuffled apart": "cycle-law",
    "shuffled group on a grid": "cycle-law",
    "reshuffled group": "cycle-law",
    "reshuffled group on a grid": "cycle-law",
    "shuffled group late": "superposed-groups",
    "shuffled group late on a grid": "superposed-groups",
}


@pytest.mark.parametrize("name", PLACED)
def test_another_witness_of_hidden_places_proves_no_more(sealed, name):
    """A coarser cut proves less than was claimed; what is no cut at all is refused."""
    content = json.loads(sealed[name].to_json())
    assert content["theorem"]["key"] == PLACED[name]
    cut = content["witness"]
    coarser = [{"cells": cells} for cells in (cut["cells"] // 20, 0, 10**12, "many")]
    if PLACED[name] == "cycle-law":
        coarser += [{"circle": circle} for circle in (cut["circle"] // 3, 1, 10**12, None)]
        coarser += [{"tilt": tilt} for tilt in (-1.0, "inf", None)]
    else:
        reach = cut["reach"]
        coarser += [{"reach": r} for r in (8 * reach, reach / 8, 0.0, -reach, "inf", None)]
    for changed in coarser:
        lie = {**content, "witness": {**cut, **changed}}
        lie["sha256"] = fingerprint(lie)
        with pytest.raises(CertificateError):
            verify(Certificate.from_json(canonical(lie)))


@pytest.mark.parametrize("scheme", [Shuffled, Reshuffled])
@pytest.mark.parametrize(
    ("size", "changes", "unit"),
    [
        (120, {}, PrivacyUnit(records=3)),
        (12, {}, PrivacyUnit(records=120)),
        (12, {}, PrivacyUnit(records=10, per_batch=1)),
        (12, {"noise": 1e150}, PrivacyUnit(records=3)),
        (12, {}, PrivacyUnit(records=3, gradient_norm=0.0)),
        (1, {"steps": 240}, PrivacyUnit(records=5)),
        (12, {"release": TailAverage(5)}, PrivacyUnit(records=3)),
    ],
)
def test_extreme_people_are_certified(scheme, size, changes, unit):
    described = run(scheme(size), **changes), Loss(smoothness=1.0)
    certificate = certify(*described, 1e-6, unit=unit)
    assert verify(certificate).epsilon <= account(*described, unit=unit).epsilon(1e-6) * 1.01


def test_another_path_of_a_group_proves_no_more(sealed):
    content = json.loads(sealed["poisson group"].to_json())
    assert content["theorem"]["key"] == "poisson-deferral"
    witness = content["witness"]
    (segment,) = witness["segments"]
    z = unpack(segment["z"])
    for changed in (
        {"segments": [{**segment, "z": [0.5 * each for each in z]}]},  # dearer
        {"segments": [{"first": segment["first"], "last": segment["last"]}]},
        {"segments": [{**segment, "z": [*z[:-1], 0.1]}]},
        {"segments": [{**segment, "z": [-each for each in z]}]},
        {"menu": [[1.0]]},
        {"menu": [[2.0, 1.0, 1.0]]},
        {"menu": None},
        {"cap": 1},
    ):
        lie = {**content, "witness": {**witness, **changed}}
        lie["sha256"] = fingerprint(lie)
        with pytest.raises(CertificateError):
            verify(Certificate.from_json(canonical(lie)))


def test_the_cycle_law_is_believed_for_equal_steps_alone(sealed):
    """A file that names it for steps that change, expand, or end within an epoch."""
    content = json.loads(sealed["shuffled group"].to_json())
    training, loss = content["training"], content["loss"]
    for changed in (
        {"training": {**training, "steps": 59}},
        {"training": {**training, "step_size": [0.5] * 60}},
        {"training": {**training, "batches": {"scheme": "cyclic", "size": 12}}, "nonce": None},
        {"training": {**training, "batches": {"scheme": "reshuffled", "size": 12}}},  # dearer
        {"training": {**training, "momentum": 0.5}},
        {"training": {**training, "clipping": "gradient"}},
        {"loss": {**loss, "smoothness": 5.0}},
        {"loss": {**loss, "kind": "nonconvex"}},
        {"unit": {"records": 3, "per_batch": 2}},
        {"releases": [30]},
    ):
        lie = copy.deepcopy({**content, **changed})
        person = PrivacyUnit.from_dict(lie["unit"])
        said = Training.from_dict(lie["training"]), Loss.from_dict(lie["loss"])
        lie |= words(*said, tuple(lie["releases"]), "cycle-law", person)
        lie["sha256"] = fingerprint(lie)
        with pytest.raises(CertificateError):
            verify(Certificate.from_json(canonical(lie)))


def test_words_without_the_person_are_refused(sealed):
    for name in CASES:
        content = copy.deepcopy(json.loads(sealed[name].to_json()))
        content["assumptions"] = content["assumptions"][:-1]
        content["sha256"] = fingerprint(content)
        with pytest.raises(CertificateError):
            verify(Certificate.from_json(canonical(content)))


def test_a_theorem_that_knows_nothing_of_persons_is_refused():
    """Fresh subsets have no theorem for persons: a file that names one is not believed."""
    certificate = certify(run(WithoutReplacement(12)), LOSS, 1e-5)
    with pytest.raises(CertificateError, match="says nothing about"):
        verify(lied(certificate, {"last_step": 5}))


def test_only_one_person_is_composed(sealed):
    one, other = sealed["cyclic"], sealed["cyclic late"]
    both = compose([one, one])
    assert both.unit == one.unit
    assert verify(both).epsilon > one.epsilon
    with pytest.raises(UnsupportedError, match="unit"):
        compose([one, other])
    long = certify(run(Cyclic(10)), LOSS, 1e-5, unit=PrivacyUnit(gradient_norm=0.2000004))
    short = certify(run(Cyclic(10)), LOSS, 1e-5, unit=PrivacyUnit(gradient_norm=0.2))
    with pytest.raises(UnsupportedError, match=r"0\.2000004"):
        compose([long, short])  # they would read alike
    content = copy.deepcopy(json.loads(both.to_json()))
    del content["unit"]
    content["sha256"] = fingerprint(content)
    with pytest.raises(CertificateError):
        verify(Certificate.from_json(canonical(content)))
