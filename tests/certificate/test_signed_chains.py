"""Chains with trusted keys: nothing verifies that a trusted key did not sign from terms to end."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading

import numpy as np
import pytest
from patience import HANG_SECONDS

from lastiterate import (
    Certificate,
    CertificateChain,
    CertificateError,
    Cyclic,
    LifetimeBudget,
    PrivacyUnit,
    Training,
    certify,
)
from lastiterate.certificate import AuthenticityError, make_key, revoke
from lastiterate.certificate.signatures import signature_of
from lastiterate.cli.main import run
from lastiterate.errors import DescriptionError
from lastiterate.losses import Logistic
from lastiterate.train import noisy_descent
from lastiterate.verifier.authenticity import encoded, payload
from lastiterate.verifier.chain import Terms, verify_chain
from lastiterate.verifier.document import canonical

DELTA = 1e-4
DAY = Training(
    records=40,
    steps=20,
    step_size=1.0,
    noise=1.0,
    gradient_norm=1.0,
    batches=Cyclic(2),
    adjacency="zero-out",
)


def trained(chain):
    X = np.resize(np.eye(3), (40, 3))
    y = np.resize([1.0, -1.0], 40)
    return noisy_descent(Logistic(), X, DAY, labels=y, continue_from=chain)


def begun(folder, key, links=2, **given):
    chain = CertificateChain.create(folder, LifetimeBudget(mu=2.0), key=key)
    for _ in range(links):
        chain.append(trained(chain), DELTA, **given)
    return chain


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    names = {
        name: make_key(folder / f"{name}.pem", folder / f"{name}.pub") for name in ("own", "other")
    }
    return folder, names


@pytest.fixture(scope="module")
def kept(keys, tmp_path_factory):
    folder = tmp_path_factory.mktemp("signed") / "model"
    begun(folder, keys[0] / "own.pem")
    return folder


@pytest.fixture
def signed(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "copy")
    return CertificateChain(tmp_path / "copy")


@pytest.fixture
def own(keys):
    return [keys[0] / "own.pub"]


@pytest.fixture
def verified(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run(["verify", *map(str, arguments)])
        return left.value.code, capsys.readouterr()

    return call


def refused(folder, trusted, **given):
    with pytest.raises(CertificateError) as caught:
        CertificateChain(folder).verify(trusted_keys=trusted, **given)
    return str(caught.value)


def rewritten(folder, **changes):
    path = folder / "terms.json"
    path.write_text(canonical({**json.loads(path.read_text()), **changes}))


def test_a_signed_chain_verifies_and_names_its_signer(signed, own, keys):
    checked = signed.verify(trusted_keys=own)
    assert checked.signed_by == (keys[1]["own"],)
    assert keys[1]["own"] in str(checked)
    assert signed.verify().signed_by == ()  # not asked, not said
    assert signed.terms.head == Terms(signed.terms.name, signed.lifetime_budget).head


def test_self_written_terms_without_links_are_refused(tmp_path, own, verified):
    (tmp_path / "forged").mkdir()
    terms = Terms("a name of sixteen letters", LifetimeBudget(mu=0.1))
    (tmp_path / "forged" / "terms.json").write_text(terms.to_json())
    assert "not signed" in refused(tmp_path / "forged", own)
    code, said = verified(tmp_path / "forged", "--trusted-key", own[0], "--json")
    assert code == 3
    assert json.loads(said.out)["verified"] is False


def test_signed_terms_without_links_are_refused(keys, tmp_path, own, verified):
    begun(tmp_path / "empty", keys[0] / "own.pem", links=0)
    assert "no links" in refused(tmp_path / "empty", own)
    assert verified(tmp_path / "empty", "--trusted-key", own[0])[0] == 3
    CertificateChain(tmp_path / "empty").verify()  # nobody asked who wrote it


def test_signed_links_after_unsigned_terms_are_refused(signed, own):
    terms = Terms(signed.terms.name, signed.lifetime_budget)
    (signed.folder / "terms.json").write_text(terms.to_json())
    signed.verify()
    assert "terms.json is not signed" in refused(signed.folder, own)


def test_one_unsigned_link_is_refused(signed, own):
    for number in (1, 2):
        path = signed.folder / f"00000{number}" / "certificate.json"
        before = path.read_bytes()
        Certificate.load(path).unsigned().save(path)
        signed.verify()
        assert f"Link {number}" in refused(signed.folder, own)
        path.write_bytes(before)
    signed.verify(trusted_keys=own)


def test_another_key_is_no_trusted_key(signed, keys, own):
    trusted = [keys[0] / "other.pub"]
    assert "No trusted key" in refused(signed.folder, trusted)
    assert refused(signed.folder, [])
    signed.sign(keys[0] / "other.pem")
    assert signed.verify(trusted_keys=trusted).signed_by == (keys[1]["other"],)
    assert len(signed.verify(trusted_keys=[*trusted, *own]).signed_by) == 2
    path = signed.folder / "000002" / "certificate.json"
    stripped = [one for one in signed.links[1].signatures if one["keyid"] == keys[1]["own"]]
    Certificate({**signed.links[1].content, "signatures": stripped}).save(path)
    assert "Link 2" in refused(signed.folder, trusted)


def test_a_chain_that_was_begun_without_a_key_can_be_signed(tmp_path, keys, own):
    chain = begun(tmp_path / "model", None)
    assert "not signed" in refused(chain.folder, own)
    before = chain.head
    chain.sign(keys[0] / "own.pem")
    assert chain.head == before
    assert CertificateChain(chain.folder).verify(trusted_keys=own).signed_by == (keys[1]["own"],)
    chain.append(trained(chain), DELTA)  # this object has no key
    assert "Link 3" in refused(chain.folder, own)
    again = CertificateChain(chain.folder, key=keys[0] / "own.pem")
    again.sign(keys[0] / "own.pem")
    again.append(trained(again), DELTA)
    assert len(again.verify(trusted_keys=own).links) == 4


def test_a_key_that_cannot_sign_is_refused_before_anything_is_made(tmp_path, keys):
    with pytest.raises(DescriptionError, match="Ed25519 private key"):
        begun(tmp_path / "model", keys[0] / "own.pub")
    assert not (tmp_path / "model").exists()


# --- what an enemy tries ----------------------------------------------------------------------


def test_terms_of_another_signed_chain_do_not_fit(signed, tmp_path, keys, own):
    other = begun(tmp_path / "other", keys[0] / "own.pem", links=1)
    shutil.copy(other.folder / "terms.json", signed.folder / "terms.json")
    assert "does not follow" in refused(signed.folder, own)


def test_links_of_another_signed_chain_do_not_fit(signed, tmp_path, keys, own):
    other = begun(tmp_path / "other", keys[0] / "own.pem", links=2)
    shutil.rmtree(signed.folder / "000002")
    shutil.copytree(other.folder / "000002", signed.folder / "000002")
    assert "does not follow" in refused(signed.folder, own)
    for number in ("000001", "000002"):
        shutil.rmtree(signed.folder / number, ignore_errors=True)
        shutil.copytree(other.folder / number, signed.folder / number)
    assert "does not follow" in refused(signed.folder, own)


def test_reordered_and_repeated_signed_links_are_refused(signed, own):
    a, b = signed.links
    for order in ([b, a], [b], [a, a], [a, b, b]):
        with pytest.raises(CertificateError, match="does not follow"):
            verify_chain(signed.terms, order, trusted_keys=own)
    signed.folder.joinpath("000001").rename(signed.folder / "x")
    signed.folder.joinpath("000002").rename(signed.folder / "000001")
    signed.folder.joinpath("x").rename(signed.folder / "000002")
    assert "does not follow" in refused(signed.folder, own)


@pytest.mark.parametrize(
    "changes",
    [
        {"lifetime_budget": {"mu": 20.0}},
        {"lifetime_budget": {"mu": 2.0, "days": 3}},
        {"name": "another name of a chain"},
        {"format": "lastiterate-certificate"},
        {"version": 2},
        {"more": 1},
    ],
)
def test_signed_terms_cannot_be_changed(signed, own, changes):
    """Here without links that name them: only the signature can tell."""
    rewritten(signed.folder, **changes)
    try:
        terms = CertificateChain(signed.folder).terms
    except CertificateError:
        return
    with pytest.raises(AuthenticityError, match="No trusted key"):
        verify_chain(terms, signed.links, trusted_keys=own)


@pytest.mark.parametrize("signatures", [[], None, "", {}, [1], [{"keyid": "x"}], [[]], 0, [None]])
def test_malformed_signatures_of_terms_are_refused(signed, own, signatures):
    rewritten(signed.folder, signatures=signatures)
    refused(signed.folder, own)


def test_too_many_signatures_are_refused(signed, own):
    one = signed.terms.signatures[0]
    junk = {"keyid": "0" * 64, "sig": "AAAA"}
    rewritten(signed.folder, signatures=[junk] * 15 + [one])
    CertificateChain(signed.folder).verify(trusted_keys=own)
    rewritten(signed.folder, signatures=[junk] * 16 + [one])
    refused(signed.folder, own)


def test_a_signature_of_something_else_does_not_sign_the_terms(signed, keys, own):
    """Neither that of a link, nor one of the same content as another kind of statement."""
    key = keys[0] / "own.pem"
    as_certificate = json.loads(signed.terms.payload)
    as_certificate["predicateType"] = "urn:lastiterate:certificate:1"
    for stolen in (
        signed.links[0].signatures[0],
        signature_of(encoded(signed.terms.content), key),
        signature_of(encoded(as_certificate), key),
        signature_of(payload(signed.links[0]), key),
    ):
        rewritten(signed.folder, signatures=[stolen])
        assert "No trusted key" in refused(signed.folder, own)


def test_a_signature_of_terms_does_not_sign_a_link(signed, own):
    path = signed.folder / "000002" / "certificate.json"
    content = {**signed.links[1].content, "signatures": list(signed.terms.signatures)}
    Certificate(content).save(path)
    assert "Link 2" in refused(signed.folder, own)


def test_names_twice_and_trailing_data_in_terms_are_refused(signed, own):
    path = signed.folder / "terms.json"
    text = path.read_text()
    twice = text.replace(
        '"lifetime_budget": {', '"lifetime_budget": {"mu": 9.0},\n "lifetime_budget": {', 1
    )
    assert json.loads(twice) == json.loads(text)  # the last one counts for most readers
    for bad in (twice, text + "{}", text + "\0", text + " ", " " + text, text[:-1], text * 2):
        path.write_text(bad)
        refused(signed.folder, own)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    refused(signed.folder, own)
    path.write_text(text)
    signed.verify(trusted_keys=own)


def test_names_twice_and_trailing_data_in_links_are_refused(signed, own):
    path = signed.folder / "000001" / "certificate.json"
    text = path.read_text()
    for bad in (
        text.replace('"epsilon":', '"epsilon": 0.1,\n "epsilon":', 1),
        text + "{}",
        text + " ",
        text * 2,
    ):
        path.write_text(bad)
        refused(signed.folder, own)


def test_a_revoked_link_refuses_the_whole_chain(signed, own, keys, tmp_path):
    note = tmp_path / "note.json"
    note.write_text(revoke(signed.links[0], keys[0] / "own.pem", "a mistake"))
    assert "a mistake" in refused(signed.folder, own, revoked=[note])
    note.write_text(revoke(signed.links[0], keys[0] / "other.pem", "by a stranger"))
    assert "No trusted key" in refused(signed.folder, own, revoked=[note])
    with pytest.raises(AuthenticityError):
        signed.verify(revoked=[note])


def test_a_key_that_is_no_longer_trusted_signs_nothing(signed, keys):
    """One key signed the terms and a link, another the other link: both must be trusted."""
    path = signed.folder / "000002" / "certificate.json"
    Certificate(signed.links[1].unsigned().content).sign(keys[0] / "other.pem").save(path)
    both = [keys[0] / "own.pub", keys[0] / "other.pub"]
    assert len(signed.verify(trusted_keys=both).signed_by) == 2
    for one in both:
        refused(signed.folder, [one])


def not_a_trusted_key(kind, folder):
    """Something in the place of the public key of whoever signed."""
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa, x25519

    def written(public, encoding=form.Encoding.PEM):
        return public.public_bytes(encoding, form.PublicFormat.SubjectPublicKeyInfo)

    own, other = ((folder / f"{name}.pub").read_bytes() for name in ("own", "other"))
    return {
        "x25519": lambda: written(x25519.X25519PrivateKey.generate().public_key()),
        "ed448": lambda: written(ed448.Ed448PrivateKey.generate().public_key()),
        "rsa": lambda: written(rsa.generate_private_key(65537, 2048).public_key()),
        "elliptic": lambda: written(ec.generate_private_key(ec.SECP256R1()).public_key()),
        "der": lambda: written(form.load_pem_public_key(own), form.Encoding.DER),
        "private": lambda: (folder / "own.pem").read_bytes(),
        "cut off": lambda: own[:-30],
        "empty": lambda: b"",
        "another one first": lambda: other + own,
        "a name": lambda: str(folder / "own.pub"),  # its letters are no files
    }[kind]()


@pytest.mark.parametrize(
    "kind",
    [
        *("x25519", "ed448", "rsa", "elliptic", "der", "private", "cut off", "empty"),
        *("another one first", "a name"),
    ],
)
def test_what_is_no_trusted_key_signs_nothing(signed, keys, kind, verified):
    given = not_a_trusted_key(kind, keys[0])
    with pytest.raises((CertificateError, DescriptionError)):
        signed.verify(trusted_keys=given if kind == "a name" else [given])
    if kind == "a name":
        return
    path = signed.folder.parent / "given.pub"
    path.write_bytes(given)
    assert verified(signed.folder, "--trusted-key", path)[0] != 0


def test_links_through_symbolic_links_are_what_they_point_to(signed, own, tmp_path):
    """A file behind a link counts by what it holds, and no message shows any of it."""
    secret = tmp_path / "secret.txt"
    secret.write_text("a line of a private file")
    for name in ("certificate.json", "parameters.npz"):
        path = signed.folder / "000002" / name
        path.rename(tmp_path / name)
        path.symlink_to(tmp_path / name)
        signed.verify(trusted_keys=own)
        path.unlink()
        path.symlink_to(secret)
        assert "private file" not in refused(signed.folder, own)
        path.unlink()
        path.symlink_to(tmp_path / "missing")
        refused(signed.folder, own)
        path.unlink()
        path.symlink_to(signed.folder / "000001" / name)
        refused(signed.folder, own)
        path.unlink()
        (tmp_path / name).rename(path)
    signed.verify(trusted_keys=own)


def test_without_its_last_link_a_chain_is_what_it_was_before_it(signed, own):
    """It is whole and signed; only the model that is in use shows that a link is missing."""
    last = signed.folder / "000002"
    model = signed.parameters
    shutil.rmtree(last)
    earlier = CertificateChain(signed.folder)
    assert len(earlier.verify(trusted_keys=own).links) == 1
    assert not np.array_equal(earlier.parameters, model)


def test_a_model_beside_signed_links_is_compared(signed, own):
    shutil.copy(
        signed.folder / "000001" / "parameters.npz", signed.folder / "000002" / "parameters.npz"
    )
    assert "model of link 2" in refused(signed.folder, own)


def test_terms_that_are_a_pipe_or_huge_are_refused_at_once(signed):
    path = signed.folder / "terms.json"
    path.write_text(path.read_text() + " " * 100_000)
    refused(signed.folder, None)
    path.unlink()
    os.mkfifo(path)
    found = []

    def read():
        try:
            CertificateChain(signed.folder)
        except CertificateError as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)  # a reader of a pipe waits for ever
    thread.start()
    thread.join(HANG_SECONDS)
    assert found


def test_other_folders_and_links_to_folders_are_no_links(signed, own):
    extra = signed.folder / "000003"
    extra.mkdir()
    refused(signed.folder, own)  # an empty one
    extra.rmdir()
    extra.symlink_to(signed.folder / "000002")
    assert "does not follow" in refused(signed.folder, own)
    extra.unlink()
    for name in ("0000003", "3", "\uff10\uff10\uff10\uff10\uff10\uff13", "000000"):
        shutil.copytree(signed.folder / "000002", signed.folder / name)
        refused(signed.folder, own)
        shutil.rmtree(signed.folder / name)
    signed.verify(trusted_keys=own)


def test_a_signature_beside_a_link_or_the_terms_does_not_count(signed, own, keys):
    """Each carries its own: a file beside it is not looked at."""
    path = signed.folder / "000002" / "certificate.json"
    (path.parent / "certificate.json.sig").write_text(signed.links[1].envelope())
    signed.links[1].unsigned().save(path)
    assert "Link 2" in refused(signed.folder, own)


def test_a_signed_certificate_that_is_no_link_is_refused(signed, own, keys):
    alone = certify(DAY, Logistic().regularity(1.0), DELTA).sign(keys[0] / "own.pem")
    with pytest.raises(CertificateError, match="does not follow"):
        verify_chain(signed.terms, [alone], trusted_keys=own)


def test_a_signed_link_of_real_numbers_is_refused(signed, own, keys):
    """Whoever holds a key may sign theory; it covers no model, so it is no link."""
    content = json.loads(signed.links[0].to_json())
    content["training"]["arithmetic"] = "exact"
    for field in ("signatures", "sha256"):
        del content[field]
    theory = Certificate.sealed(content).sign(keys[0] / "own.pem")
    with pytest.raises(CertificateError, match="theory"):
        verify_chain(signed.terms, [theory], trusted_keys=own)


def unnamed(raw):
    """The text without signatures: they were good, and several texts stand for one."""
    return re.sub(rb'"(keyid|sig)": "[^"\n]*"', b"", raw)


@pytest.mark.parametrize("count", [60, pytest.param(1500, marks=pytest.mark.fuzz)])
def test_damaged_signed_chains_are_refused(signed, own, count):
    """Bytes changed, cut off, put in or said twice, in terms and certificates."""
    damage = np.random.default_rng(count)
    files = sorted(path for path in signed.folder.rglob("*.json"))
    for _ in range(count):
        path = files[damage.integers(len(files))]
        before = path.read_bytes()
        raw, at = bytearray(before), int(damage.integers(len(before)))
        match damage.integers(4):
            case 0:
                raw[at] ^= 1 << int(damage.integers(8))
            case 1:
                del raw[at:]
            case 2:
                raw[at:at] = bytes(damage.integers(0, 256, 3, dtype=np.uint8))
            case _:
                lines = before.splitlines(keepends=True)
                line = int(damage.integers(len(lines)))
                raw = bytearray(b"".join([*lines[: line + 1], *lines[line:]]))
        path.write_bytes(bytes(raw))
        try:
            CertificateChain(signed.folder).verify(trusted_keys=own)
        except CertificateError:
            pass
        else:  # names of keys are hints, and nothing else may differ
            assert unnamed(bytes(raw)) == unnamed(before)
        path.write_bytes(before)
    signed.verify(trusted_keys=own)


# --- what the command says --------------------------------------------------------------------


def test_the_command_says_signed_or_not_and_for_whom(signed, own, keys, verified):
    name = keys[1]["own"]
    code, said = verified(signed.folder, "--trusted-key", own[0], "--json")
    answer = json.loads(said.out)
    assert code == 0
    assert (answer["verified"], answer["signed"], answer["signed_by"]) == (True, True, [name])
    assert answer["unit"]["text"] == "a single record"
    assert answer["unit"]["records"] == 1
    answer = json.loads(verified(signed.folder, "--json")[1].out)
    assert (answer["signed"], answer["signed_by"]) == (False, [])
    text = " ".join(verified(signed.folder)[1].out.split())
    assert "signature that was not checked" in text
    assert "for a single record" in text
    assert name in "".join(verified(signed.folder, "--trusted-key", own[0])[1].out.split())


def test_the_command_says_the_unit_of_people(tmp_path, verified):
    begun(tmp_path / "people", None, links=1, unit=PrivacyUnit(records=3, per_batch=1))
    answer = json.loads(verified(tmp_path / "people", "--json")[1].out)
    assert (answer["unit"]["records"], answer["unit"]["per_batch"]) == (3, 1)
    assert answer["signed"] is False
    text = " ".join(verified(tmp_path / "people")[1].out.split())
    assert "up to 3 records" in text
    assert "sealed, not signed" in text
