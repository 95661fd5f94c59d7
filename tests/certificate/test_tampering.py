"""Nothing in a certificate can be changed without being noticed; nothing can hang the reader."""

from __future__ import annotations

import base64
import copy
import json
import os
import time
import zlib

import numpy as np
import pytest
from described_runs import RUNS

from lastiterate import Certificate, CertificateError, Loss, certify, verify
from lastiterate.certificate import (
    ClaimError,
    TamperedCertificateError,
    UnreadableCertificateError,
    compose,
)
from lastiterate.verifier.document import MOST_BYTES, canonical, fingerprint
from lastiterate.verifier.witness import pack, unpack

DELTA = 1e-6


def content_of(name):
    training, loss, releases = RUNS[name]
    return json.loads(certify(training, loss, DELTA, dataset="people", releases=releases).to_json())


CONTENTS = {
    name: content_of(name)
    for name in ("full, schedule", "shuffled, released", "reshuffled, bounded", "Poisson")
}


def leaves(value, path=()):
    """Every place in a document that holds a plain value."""
    if isinstance(value, dict):
        for key in value:
            yield from leaves(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(len(value)):
            yield from leaves(value[index], (*path, index))
    else:
        yield path, value


def put(content, path, value):
    changed = copy.deepcopy(content)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed


def other(value):
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return float(np.nextafter(value, np.inf))
    if value is None:
        return "x" * 32
    return value[:-2] + ("A" if value[-2:-1] != "A" else "B") + value[-1:] if value else "x"


def write(tmp_path, content):
    path = tmp_path / "changed.json"
    path.write_text(canonical(content))
    return path


@pytest.mark.parametrize("name", CONTENTS)
def test_every_field_is_guarded_by_the_hash(name, tmp_path):
    content = CONTENTS[name]
    places = list(leaves(content))
    assert len(places) > 25
    for place, value in places:
        with pytest.raises(CertificateError):
            Certificate.load(write(tmp_path, put(content, place, other(value))))
    for field in content:
        missing = {key: value for key, value in content.items() if key != field}
        with pytest.raises(CertificateError):
            Certificate.load(write(tmp_path, missing))
    with pytest.raises(CertificateError):
        Certificate.load(write(tmp_path, {**content, "extra": 1}))


def rehashed(content):
    """What somebody writes who can compute a hash."""
    return {**content, "sha256": fingerprint(content)}


def scaled(field, factor):
    return lambda content: put(content, (field,), content[field] * factor)


def thinner(content):
    """A witness of distances that are not those of the cheapest path."""
    witness = unpack(content["witness"])
    for family in witness["families"]:
        family["paths"]["z"] = [z * 0.9 for z in family["paths"]["z"]]
    return {**content, "witness": pack(witness)}


def training(**changes):
    return lambda content: {**content, "training": {**content["training"], **changes}}


DISHONEST = {
    "less epsilon": scaled("epsilon", 1 - 1e-6),
    "less delta": scaled("delta", 1 - 1e-5),
    "less mu": scaled("mu", 1 - 1e-6),
    "better curve": lambda content: put(content, ("curve", 2, 1), content["curve"][2][1] * 0.999),
    "curve at a smaller delta": lambda content: put(content, ("curve", 2, 0), 1e-30),
    "fewer records": training(records=99),
    "longer gradients": training(gradient_norm=1.001),
    "other adjacency in words": lambda content: {**content, "adjacency": "zero-out"},
    "other adjacency in the run": training(adjacency="zero-out"),
    "clipped": training(clipping="gradient"),
    "other batches": training(batches={"scheme": "cyclic", "size": 10}),
    "less noise": training(noise=0.001),
    "momentum": training(momentum=0.1),
    "negative momentum": training(momentum=-0.1),
    "other steps": training(steps=61),
    "negative noise": training(noise=-1.0),
    "coarser arithmetic": training(arithmetic={"grid": 0.0, "error": 2e-6}),
    "exact arithmetic": training(arithmetic="exact"),
    "negative error": training(arithmetic={"grid": 0.0, "error": -1e-6}),
    "a grid that nobody charged": training(arithmetic={"grid": 2.0**-20, "error": 1e-6}),
    "unknown arithmetic": training(arithmetic={"error": 1e-6, "engine": "any"}),
    "another release": lambda content: {**content, "release": "everything"},
    "a hidden release": lambda content: {**content, "releases": [20]},
    "softer words": lambda content: {**content, "not_covered": []},
    "fewer assumptions": lambda content: {**content, "assumptions": []},
    "rougher loss": lambda content: {
        **content,
        "loss": {**content["loss"], "smoothness": 40.0, "strong_convexity": 0.0},
    },
    "estimated": lambda content: {
        **content,
        "loss": {**content["loss"], "provenance": "estimated"},
    },
    "other provenance": lambda content: {
        **content,
        "loss": {**content["loss"], "provenance": "proved"},
    },
    "other theorem": lambda content: put(content, ("theorem", "key"), "gaussian-composition"),
    "refuted theorem": lambda content: put(
        content, ("theorem", "key"), "chien-li-2025-3.12-printed"
    ),
    "other name": lambda content: put(content, ("theorem", "name"), "Wishful thinking"),
    "unknown theorem": lambda content: put(content, ("theorem", "key"), "wishful-thinking"),
    "better status": lambda content: put(content, ("theorem", "status"), "corrected"),
    "a nonce out of place": lambda content: {**content, "nonce": "a" * 32},
    "thinner witness": thinner,
    "no witness": lambda content: {**content, "witness": {}},
    "witness of nonsense": lambda content: {**content, "witness": {"stretches": [3]}},
    "future version": lambda content: {**content, "version": 2},
    "boolean version": lambda content: {**content, "version": True},
    "other kind": lambda content: {**content, "kind": "wish"},
    "infinite epsilon": lambda content: {**content, "epsilon": "inf"},
    "negative epsilon": lambda content: {**content, "epsilon": -1.0},
    "empty curve entry": lambda content: {**content, "curve": [[]]},
}


@pytest.mark.parametrize("change", DISHONEST)
def test_a_liar_who_can_hash_is_caught(change, tmp_path):
    content = CONTENTS["full, schedule"]
    changed = DISHONEST[change](content)
    assert canonical(changed) != canonical(content)
    with pytest.raises(CertificateError):
        verify(write(tmp_path, rehashed(changed)))


@pytest.mark.parametrize("name", ["shuffled, released", "reshuffled, bounded", "Poisson"])
@pytest.mark.parametrize(
    "change", ["less epsilon", "longer gradients", "hidden", "less noise", "thinner"]
)
def test_a_liar_about_other_batches_is_caught(name, change, tmp_path):
    content = CONTENTS[name]
    witness = unpack(content["witness"])
    if change == "thinner" and "levels" in witness:
        none = [0.0] * len(witness["levels"])  # as if all iterates were public
        lower = {"levels": none, "cap_levels": none}
        changed = {**content, "witness": pack({**witness, **lower})}
        changed["witness"].pop("exchange", None)
    elif change == "thinner" and "menu" in witness:
        menu = [[low * 0.99, high * 0.99] for low, high in witness["menu"]]
        changed = {**content, "witness": pack({**witness, "menu": menu}), "epsilon": 1e-3}
    elif change in ("hidden", "thinner"):
        changed = {**content, "nonce": None}
    elif change == "less epsilon":
        changed = scaled("epsilon", 0.999)(content)
    else:
        changed = DISHONEST[change](content)
    with pytest.raises(CertificateError):
        verify(write(tmp_path, rehashed(changed)))


def test_parts_of_a_composition_are_guarded(tmp_path):
    run, loss, _ = RUNS["full"]
    joint = json.loads(compose([certify(run, loss, DELTA), certify(run, loss, DELTA)]).to_json())
    verify(write(tmp_path, joint))
    one_less = {**joint, "parts": joint["parts"][:1]}
    quieter = put(joint, ("parts", 0, "training", "noise"), 0.06)
    nested = {**joint, "parts": [joint, joint]}
    for changed in (one_less, quieter, nested, {**joint, "parts": []}, scaled("mu", 0.9)(joint)):
        with pytest.raises(CertificateError):
            verify(write(tmp_path, rehashed(changed)))


@pytest.mark.parametrize(
    "claim", [{"epsilon": 1e-9}, {"curve": [[1e-10, 1e-9]]}, {"mu": 1e-9}, {"delta": 1e-30}]
)
def test_what_a_part_of_a_composition_claims_is_recomputed(claim, tmp_path):
    """The joint numbers do not rest on those of the parts, but whoever reads it reads them all."""
    run, loss, _ = RUNS["full"]
    joint = json.loads(compose([certify(run, loss, DELTA), certify(run, loss, DELTA)]).to_json())
    flattered = rehashed({**joint["parts"][1], **claim})
    with pytest.raises(ClaimError, match="does not hold"):
        verify(write(tmp_path, rehashed({**joint, "parts": [joint["parts"][0], flattered]})))


def test_every_byte_counts(tmp_path):
    raw = canonical(CONTENTS["full, schedule"]).encode()
    random = np.random.default_rng(0)
    for place in random.choice(len(raw), 300, replace=False):
        changed = bytearray(raw)
        changed[place] ^= 1 << int(random.integers(8))
        with pytest.raises(CertificateError):
            Certificate.from_json(bytes(changed))
    for end in [0, 1, len(raw) // 2, len(raw) - 1, *random.choice(len(raw), 50)]:
        with pytest.raises(CertificateError):
            Certificate.from_json(raw[:end])
    with pytest.raises(TamperedCertificateError, match="canonical"):
        Certificate.from_json(raw + b" ")


def quickly(action):
    start = time.process_time()
    with pytest.raises(UnreadableCertificateError) as caught:
        action()
    assert time.process_time() - start < 5.0  # processor time: a busy machine changes little
    return str(caught.value)


def test_hostile_files(tmp_path):
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(1 << 30)  # a sparse gigabyte
    assert "not read" in quickly(lambda: verify(huge))
    assert "is not a file" in quickly(lambda: verify(tmp_path))
    os.mkfifo(tmp_path / "pipe")  # opening it would wait for ever
    assert "is not a file" in quickly(lambda: verify(tmp_path / "pipe"))
    assert "cannot be read" in quickly(lambda: verify(tmp_path / "missing.json"))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", "not a certificate"),
        (b"{", "not a certificate"),
        (b"[]", "not a certificate"),
        (b"null", "not a certificate"),
        (b'{"format": "other"}', "not a certificate"),
        (b"[" * 100_000, "nested"),
        (b"[" * 1000 + b"]" * 1000, "nested"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested"),
        (b"[" + b"[]," * (MOST_BYTES // 8) + b"[]]", "values"),
        (b"\xff\xfe\x00", "not a certificate"),
        (b"1" * 10_000, "not a certificate"),
        (b'{"format": "lastiterate-certificate", "version": 1e400}', "1e400 is not a number"),
        (b'{"format": "lastiterate-certificate", "version": NaN}', "not a certificate"),
    ],
)
def test_hostile_texts(raw, message):
    assert message in quickly(lambda: Certificate.from_json(raw))


def test_hostile_lists():
    bomb = base64.b64encode(zlib.compress(bytes(10**7))).decode()
    for length in (10, 10**6, 10**12, -1):
        quickly(lambda length=length: unpack({"float64": bomb, "length": length}))
    quickly(lambda: unpack({"float64": "***", "length": 1}))
    quickly(lambda: unpack({"float64": bomb, "length": True}))
    quickly(lambda: unpack([{"float64": "", "length": 39_000_000}] * 2))


def test_failed_claims_are_named(tmp_path):
    content = CONTENTS["full, schedule"]
    changed = rehashed({**content, "epsilon": content["epsilon"] / 2})
    with pytest.raises(ClaimError, match=r"epsilon = .* at delta = 1e-06 does not hold"):
        verify(write(tmp_path, changed))


def with_momentum(name):
    """The same certificate for a run with momentum, resealed by a liar."""
    content = content_of(name)
    return rehashed({**content, "training": {**content["training"], "momentum": 0.5}})


# One run whose certificate rests on each theorem that hides the state.
HIDDEN = {
    "full": "taut-string",
    "cyclic": "worst-position",
    "shuffled": "exchange",
    "reshuffled, bounded": "reshuffled-exchange",
    "Poisson": "poisson-deferral",
    "without replacement": "chien-li-2025-3.12",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_momentum_is_covered_by_composition_alone(name, tmp_path):
    changed = with_momentum(name)
    assert changed["theorem"]["key"] == HIDDEN[name]
    with pytest.raises(ClaimError, match="momentum"):
        verify(write(tmp_path, changed))
    # Composition charges the same with and without: the certificate of one covers the other.
    training, _, releases = RUNS[name]
    plain = certify(training.replace(diameter=np.inf), Loss.unknown(), DELTA, releases=releases)
    moved = {**plain.content, "training": {**plain.content["training"], "momentum": 0.5}}
    assert verify(write(tmp_path, rehashed(moved))).epsilon == plain.epsilon


def test_certificates_written_before_momentum_still_verify(tmp_path):
    """A run without momentum is described as it always was: the field is absent."""
    content = CONTENTS["full, schedule"]
    assert "momentum" not in content["training"]
    assert Certificate.load(write(tmp_path, content)).training.momentum == 0.0
