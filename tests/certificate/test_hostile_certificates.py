"""Whatever stands in a certificate, the verifier answers with a refusal, never with a traceback."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
from described_runs import RUNS

from lastiterate import Certificate, CertificateError, certify, compose, verify
from lastiterate.certificate import MalformedCertificateError
from lastiterate.verifier.document import canonical, fingerprint

DELTA = 1e-6
MISSING = object()
EMPTY_LIST = {"float64": "eJwDAAAAAAE=", "length": 0}
HOSTILE = [
    10**400,
    -(10**400),
    -1,
    0,
    2**53,
    2**63,
    1e308,
    5e-324,
    -0.0,
    "inf",
    "-inf",
    "nan",
    "",
    None,
    True,
    [],
    [[[[1]]]],
    {},
    {"a": {"b": [{}]}},
    EMPTY_LIST,
    ["inf"],
    [1.0] * 20,
    "x" * 50,
    MISSING,
]
# Fields whose change leaves every claim true: labels, hashes, and claims that only grow weaker.
FREE = {"library", "dataset", "nonce", "parameters", "epsilon", "mu", "curve", "releases"}


def content_of(name):
    training, loss, releases = RUNS[name]
    return json.loads(certify(training, loss, DELTA, dataset="people", releases=releases).to_json())


def nodes(value, path=()):
    """Every place of a document, of long lists the first few."""
    if path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from nodes(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield from nodes(value[index], (*path, index))


def changed(content, path, value):
    """The document with another value there, and the hash that a liar would repair."""
    copied = copy.deepcopy(content)
    place = copied
    for key in path[:-1]:
        place = place[key]
    if value is MISSING:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    if path != ("sha256",):
        copied["sha256"] = fingerprint(copied)
    return copied


def weaker(content):
    """Whether a document that was verified claims no more than is true of the run it describes."""
    run = Certificate(content)
    with np.errstate(all="ignore"):
        fresh = certify(run.training, run.loss, run.delta, releases=content["releases"])
    return run.epsilon >= fresh.epsilon * (1 - 1e-6)


def attack(name, share=1):
    """Every place, every value; with ``share`` = k one k-th of the values, others at each place."""
    content = content_of(name)
    refused = 0
    for number, path in enumerate(nodes(content)):
        for value in HOSTILE[number % share :: share]:
            document = changed(content, path, value)
            try:
                with np.errstate(all="ignore"):
                    verify(Certificate.from_json(canonical(document)))
            except CertificateError:
                refused += 1
            else:
                assert path[0] in FREE or weaker(document), (path, value)
    return refused


@pytest.mark.parametrize("name", ["full", "full, schedule, restart", "shuffled, released"])
def test_every_field_of_a_certificate_may_be_hostile(name):
    assert attack(name) > 800


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_every_field_of_every_scheme_may_be_hostile(name):
    assert attack(name, share=4) > 200


def test_a_huge_number_is_refused_with_a_reason():
    content = content_of("full")
    with pytest.raises(MalformedCertificateError, match="finite"):
        Certificate(changed(content, ("epsilon",), 10**400))
    with pytest.raises(MalformedCertificateError, match="theorem"):
        Certificate(changed(content, ("theorem", "key"), MISSING))


def test_hostile_parts_of_a_composition():
    part = content_of("full")
    joint = json.loads(compose([Certificate(part), Certificate(part)]).to_json())
    for value in HOSTILE:
        for path in [("parts",), ("parts", 0), ("parts", 0, "epsilon"), ("parts", 1, "kind")]:
            document = changed(joint, path, value)
            try:
                verify(Certificate.from_json(canonical(document)))
            except CertificateError:
                continue
            raise AssertionError(f"{path} = {value!r} was verified")


def test_composing_hostile_certificates_is_refused():
    document = changed(content_of("full"), ("training", "noise"), "nan")
    with pytest.raises(CertificateError):
        compose([Certificate(document)])


def test_a_number_too_large_for_a_double_is_no_number():
    text = canonical(content_of("full"))
    for place in ('"noise": 0.05', '"step_size": 0.1'):
        assert place in text
        with pytest.raises(CertificateError, match="not a number"):
            Certificate.from_json(text.replace(place, place.split(":")[0] + ": 1e999"))


@pytest.mark.parametrize("nonce", ["", "x", "x" * 15, "x" * 129, None, MISSING])
def test_a_name_that_two_runs_may_share_by_chance_is_refused(nonce):
    content = content_of("shuffled")
    with pytest.raises(CertificateError):
        verify(Certificate(changed(content, ("nonce",), nonce)))
    verify(Certificate(changed(content, ("nonce",), "x" * 16)))


@pytest.mark.parametrize("nonce", ["", "x", "x" * 32])
def test_full_batches_have_nothing_to_name(nonce):
    with pytest.raises(CertificateError):
        verify(Certificate(changed(content_of("full"), ("nonce",), nonce)))
