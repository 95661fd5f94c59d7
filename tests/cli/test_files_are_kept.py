"""No command loses a file that somebody filed: not a certificate, a signature or a key."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("typer")

from lastiterate import Certificate, FullBatch, Loss, Training, certify, verify
from lastiterate.cli.main import run

FLAGS = ("--records", "100", "--steps", "10", "--step-size", "0.1", "--noise", "0.1",
         "--gradient-norm", "1", "--batches", "full", "--smoothness", "1")  # fmt: skip
OLD = b"somebody filed this"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    training = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
                        batches=FullBatch(), adjacency="replace")  # fmt: skip
    certify(training, Loss(smoothness=1.0), 1e-5).save("a.json")
    return tmp_path


def command(capsys, *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as left:
        run(arguments)
    return left.value.code, capsys.readouterr().err


CERTIFY = ("certify", *FLAGS, "-o", "new.json")
COMPOSE = ("compose", "a.json", "a.json", "-o", "new.json")


@pytest.mark.parametrize("arguments", [CERTIFY, COMPOSE], ids=["certify", "compose"])
def test_an_older_file_stays_unless_forced(folder, capsys, arguments) -> None:
    (folder / "new.json").write_bytes(OLD)
    code, said = command(capsys, *arguments)
    assert code == 2
    assert "exists already" in said
    assert "--force" in said
    assert (folder / "new.json").read_bytes() == OLD
    assert command(capsys, *arguments, "--force")[0] == 0
    verify("new.json")


def test_the_default_name_is_kept_too(folder, capsys) -> None:
    (folder / "certificate.json").write_bytes(OLD)
    assert command(capsys, "certify", *FLAGS)[0] == 2
    assert (folder / "certificate.json").read_bytes() == OLD


@pytest.mark.parametrize("arguments", [CERTIFY, COMPOSE], ids=["certify", "compose"])
def test_names_that_lead_elsewhere(folder, capsys, arguments) -> None:
    os.symlink("nowhere.json", folder / "new.json")  # to write through it would make that file
    assert command(capsys, *arguments)[0] == 2
    assert not (folder / "nowhere.json").exists()
    os.unlink(folder / "new.json")
    (folder / "new.json").mkdir()
    for force in ((), ("--force",)):
        code, said = command(capsys, *arguments, *force)
        assert (code, "folder" in said) == (2, True)


def test_a_composition_never_replaces_its_parts(folder, capsys) -> None:
    before = (folder / "a.json").read_bytes()
    os.symlink("a.json", folder / "alias.json")
    for name in ("a.json", "./a.json", "alias.json"):
        for force in ((), ("--force",)):
            assert command(capsys, "compose", "a.json", "-o", name, *force)[0] == 2
    assert (folder / "a.json").read_bytes() == before


def test_signatures_and_keys_are_kept(folder, capsys) -> None:
    pytest.importorskip("cryptography")
    assert command(capsys, "keygen", "signer.pem")[0] == 0
    key = (folder / "signer.pem").read_bytes()
    assert command(capsys, "keygen", "signer.pem")[0] == 2
    assert command(capsys, "keygen", "signer.pem", "--force")[0] == 2  # a key is never replaced
    assert (folder / "signer.pem").read_bytes() == key
    (folder / "new.json.sig").write_bytes(OLD)
    signed = (*CERTIFY, "--key", "signer.pem", "--detached")
    assert command(capsys, *signed)[0] == 2
    assert (folder / "new.json.sig").read_bytes() == OLD
    assert not (folder / "new.json").exists()  # nothing was written by halves
    assert command(capsys, *signed, "--force")[0] == 0
    assert Certificate.load("new.json").epsilon > 0
