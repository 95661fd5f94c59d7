"""Signatures: what a trusted key signed is accepted, and nothing else."""

from __future__ import annotations

import base64
import json
import stat

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_public_key,
)
from described_runs import RIDGE, run

from lastiterate import (
    Arithmetic,
    Certificate,
    CertificateError,
    FullBatch,
    certify,
    compose,
    verify,
)
from lastiterate.certificate import AuthenticityError, MalformedCertificateError, make_key, revoke
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.verifier.document import canonical, fingerprint, parameters_hash

WEIGHTS = [1.0, 2.0]


@pytest.fixture
def keys(tmp_path):
    private, public = tmp_path / "signer.pem", tmp_path / "signer.pub"
    name = make_key(private, public)
    return private, public, name


@pytest.fixture
def other(tmp_path):
    private, public = tmp_path / "other.pem", tmp_path / "other.pub"
    make_key(private, public)
    return private, public


@pytest.fixture(scope="module")
def plain():
    trained = run(FullBatch(), arithmetic=Arithmetic(grid=2.0**-40, coordinates=3))
    return certify(trained, RIDGE, 1e-6, dataset="people", parameters=WEIGHTS)


def test_a_signed_file_is_accepted_and_names_its_signer(keys, plain, tmp_path):
    private, public, name = keys
    path = tmp_path / "a.json"
    plain.sign(private).save(path)
    checked = verify(path, trusted_keys=[public])
    assert checked.signed_by == (name,)
    assert name in str(checked)
    assert verify(path).signed_by == ()  # not asked, not said
    assert "signed" not in str(verify(path))


def test_the_envelope_is_what_other_tools_of_dsse_expect(keys, plain):
    """The specification written down again: lengths, in-toto statement, plain Ed25519."""
    private, public, _ = keys
    table = json.loads(plain.sign(private).envelope())
    body = base64.b64decode(table["payload"])
    kind = table["payloadType"].encode()
    message = b" ".join([b"DSSEv1", str(len(kind)).encode(), kind, str(len(body)).encode(), body])
    key = load_pem_public_key(public.read_bytes())
    key.verify(base64.b64decode(table["signatures"][0]["sig"]), message)
    with pytest.raises(InvalidSignature):
        key.verify(base64.b64decode(table["signatures"][0]["sig"]), message + b" ")
    said = json.loads(body)
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["predicate"] == json.loads(plain.to_json())
    digests = [subject["digest"]["sha256"] for subject in said["subject"]]
    assert digests == [plain.sha256, parameters_hash(WEIGHTS)]
    assert body == json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def test_unsigned_and_strangers_are_refused(keys, other, plain, tmp_path):
    _, public, _ = keys
    path = tmp_path / "a.json"
    plain.save(path)
    with pytest.raises(AuthenticityError, match="not signed"):
        verify(path, trusted_keys=[public])
    plain.sign(other[0]).save(path)
    with pytest.raises(AuthenticityError, match="No trusted key"):
        verify(path, trusted_keys=[public])
    with pytest.raises(AuthenticityError):
        verify(path, trusted_keys=[])  # nobody is trusted
    assert verify(path, trusted_keys=[public, other[1]]).signed_by


def test_a_change_after_signing_is_refused(keys, plain, tmp_path):
    private, public, _ = keys
    content = json.loads(plain.sign(private).to_json())
    for change in ({"dataset": "others"}, {"parameters": "0" * 64}, {"epsilon": 50.0}):
        changed = {**content, **change}
        changed["sha256"] = fingerprint(changed)
        path = tmp_path / "changed.json"
        path.write_text(canonical(changed))
        verify(path)  # true numbers, a good seal: only the signature can tell
        with pytest.raises(AuthenticityError, match="No trusted key"):
            verify(path, trusted_keys=[public])


def test_a_signature_does_not_move_to_another_certificate(keys, plain):
    private, public, _ = keys
    signed = json.loads(plain.sign(private).to_json())
    own = json.loads(certify(run(FullBatch(), noise=0.1), RIDGE, 1e-6).to_json())
    with pytest.raises(AuthenticityError):
        verify(Certificate({**own, "signatures": signed["signatures"]}), trusted_keys=[public])


def test_detached_signatures(keys, plain, tmp_path):
    private, public, name = keys
    path, beside = tmp_path / "a.json", tmp_path / "a.json.sig"
    plain.save(path)
    beside.write_text(plain.sign(private).envelope())
    assert verify(path, trusted_keys=[public]).signed_by == (name,)
    moved = tmp_path / "elsewhere"
    beside.rename(moved)
    assert verify(path, trusted_keys=[public], signature=moved).signed_by == (name,)
    with pytest.raises(AuthenticityError, match="not signed"):
        verify(path, trusted_keys=[public])
    certify(run(FullBatch(), noise=0.1), RIDGE, 1e-6).save(path)
    with pytest.raises(AuthenticityError, match="something else"):
        verify(path, trusted_keys=[public], signature=moved)
    for hostile in (b"", b"[]", b"{}", b'{"payload": 1}', b"[" * 10_000, b"\xff"):
        moved.write_bytes(hostile)
        with pytest.raises(AuthenticityError, match="envelope"):
            verify(path, trusted_keys=[public], signature=moved)
    with pytest.raises(AuthenticityError, match="cannot be read"):
        verify(path, trusted_keys=[public], signature=tmp_path / "nowhere.sig")
    with pytest.raises(CertificateError, match="trusted keys"):
        verify(path, signature=moved)


@pytest.mark.parametrize(
    "signatures",
    [
        None,
        {},
        [],
        "x",
        [1],
        [{}],
        [{"keyid": "a"}],
        [{"keyid": 1, "sig": "a"}],
        [[]],
        [{"keyid": "a", "sig": "b" * 1000}],
        [{"keyid": "a", "sig": "b", "more": "c"}],
        [{"keyid": "a", "sig": "b"}] * 17,
    ],
)
def test_malformed_signatures_are_refused(plain, signatures):
    content = {**json.loads(plain.to_json()), "signatures": signatures}
    with pytest.raises(MalformedCertificateError, match="signatures"):
        Certificate.from_json(canonical(content))


@pytest.mark.parametrize("sig", ["", "!", "AAAA", "A" * 88, "\ud800"])
def test_nonsense_is_nobodys_signature(keys, plain, sig):
    content = {**json.loads(plain.to_json()), "signatures": [{"keyid": keys[2], "sig": sig}]}
    with pytest.raises(AuthenticityError, match="No trusted key"):
        verify(Certificate.from_json(canonical(content)), trusted_keys=[keys[1]])


def test_signatures_of_two_keys_and_of_compositions(keys, other, plain):
    twice = plain.sign(keys[0]).sign(other[0])
    for public in (keys[1], other[1]):
        assert len(verify(twice, trusted_keys=[public]).signed_by) == 1
    assert len(verify(twice, trusted_keys=[keys[1], other[1]]).signed_by) == 2
    assert twice.unsigned() == plain
    joint = compose([twice, plain])
    assert joint.signatures == ()
    assert all(part.signatures == () for part in joint.parts)
    verify(joint.sign(keys[0]), trusted_keys=[keys[1]])


def test_keys_are_private_and_never_overwritten(keys, tmp_path):
    private, public, _ = keys
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert b"PRIVATE KEY" in private.read_bytes()
    assert b"PRIVATE" not in public.read_bytes()
    before = private.read_bytes(), public.read_bytes()
    for pair in ((private, tmp_path / "new.pub"), (tmp_path / "new.pem", public)):
        with pytest.raises(DescriptionError, match="does not exist yet"):
            make_key(*pair)
    assert (private.read_bytes(), public.read_bytes()) == before
    with pytest.raises(DescriptionError, match="two different"):
        make_key(tmp_path / "same", tmp_path / "same")
    with pytest.raises(DescriptionError, match="written"):
        make_key(tmp_path / "no" / "folder", tmp_path / "new.pub")
    (tmp_path / "dangling").symlink_to(tmp_path / "target")
    with pytest.raises(DescriptionError):
        make_key(tmp_path / "dangling", tmp_path / "new.pub")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dangling", private.name, public.name]


def test_half_a_key_pair_is_no_key_pair(tmp_path, monkeypatch):
    import os

    calls = []
    real = os.fsync

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:  # the private file, its folder, then the public file
            raise OSError(28, "No space left on device")
        real(descriptor)

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DescriptionError, match="No space"):
        make_key(tmp_path / "a.pem", tmp_path / "a.pub")
    assert list(tmp_path.iterdir()) == []


def test_other_keys_are_refused_by_name(keys, plain, tmp_path):
    private, public, _ = keys
    strange = generate_private_key(SECP256R1())
    pem = strange.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = strange.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    locked = Ed25519PrivateKey.generate().private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    for key in (pem, locked, public, b"", b"\x00" * 99, tmp_path / "nowhere", tmp_path, 7, None):
        with pytest.raises(LastIterateError, match="Ed25519"):
            plain.sign(key)
    signed = plain.sign(private)
    for key in (shown, private, b"", tmp_path / "nowhere", 7, None):
        with pytest.raises(LastIterateError, match="Ed25519"):
            verify(signed, trusted_keys=[key])


def test_a_revoked_certificate_is_refused(keys, other, plain, tmp_path):
    """Before: an old certificate, truly signed, was good for ever."""
    private, public, _ = keys
    signed = plain.sign(private)
    note, foreign = tmp_path / "note.json", tmp_path / "foreign.json"
    note.write_text(revoke(plain, private, "the gradients were not clipped"))
    with pytest.raises(AuthenticityError, match=r"revoked.*the gradients were not clipped"):
        verify(signed, trusted_keys=[public], revoked=[note])
    joint = compose([plain, plain]).sign(private)
    with pytest.raises(AuthenticityError, match="revoked"):
        verify(joint, trusted_keys=[public], revoked=[note])
    another = certify(run(FullBatch(), steps=7), RIDGE, 1e-6).sign(private)
    assert verify(another, trusted_keys=[public], revoked=[note]).signed_by
    # A note that no trusted key signed neither revokes nor clears, and is not passed over.
    foreign.write_text(revoke(plain, other[0], "a stranger's wish"))
    for bad in (foreign, tmp_path / "nowhere", public):
        with pytest.raises(AuthenticityError):
            verify(signed, trusted_keys=[public], revoked=[bad])
    envelope = json.loads(note.read_text())
    body = base64.b64decode(envelope["payload"]).replace(plain.sha256.encode(), b"0" * 64)
    note.write_text(json.dumps(envelope | {"payload": base64.b64encode(body).decode()}))
    with pytest.raises(AuthenticityError, match="No trusted key signed the note"):
        verify(signed, trusted_keys=[public], revoked=[note])
    note.write_text(signed.envelope())  # signed by the right key, and about something else
    with pytest.raises(AuthenticityError, match="no note"):
        verify(signed, trusted_keys=[public], revoked=[note])
    with pytest.raises(AuthenticityError, match="trusted keys"):
        verify(signed, revoked=[note])


def test_no_message_shows_a_private_key(keys, plain):
    private, _, _ = keys
    secret = private.read_bytes().splitlines()[1].decode()
    with pytest.raises(LastIterateError) as caught:
        verify(plain.sign(private), trusted_keys=[private.read_bytes()])
    assert secret not in str(caught.value)
