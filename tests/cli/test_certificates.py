"""certify, verify, compose and calibrate from the command line, with their exit codes."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from patience import HANG_SECONDS

from lastiterate.cli.main import run

DESCRIPTION = """
delta = 1e-6
[training]
adjacency = "replace"
records = 1000
steps = 100
step_size = 0.1
noise = 0.05
gradient_norm = 1.0
batches = { scheme = "shuffled", size = 50 }
[loss]
smoothness = 1.0
"""


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """The command in this process: what it says and how it ends, without a start a call."""
    (tmp_path / "run.toml").write_text(DESCRIPTION)
    monkeypatch.chdir(tmp_path)

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run(arguments)
        return subprocess.CompletedProcess(arguments, left.value.code, *capsys.readouterr())

    return call


@pytest.fixture
def program(tmp_path):
    """The program as a user starts it; it reads strangers' files in a second process."""
    (tmp_path / "run.toml").write_text(DESCRIPTION)

    def call(*arguments):
        return subprocess.run(
            [sys.executable, "-c", "from lastiterate.cli.main import run; run()", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    return call


def test_a_certificate_from_birth_to_composition(program):
    signed = program("certify", "run.toml", "-o", "a.json", "--dataset", "people", "--json")
    assert signed.returncode == 0, signed.stderr
    epsilon = json.loads(signed.stdout)["epsilon"]
    checked = program("verify", "a.json")
    assert checked.returncode == 0
    assert f"verified: epsilon <= {epsilon!r} at delta = 1e-06" in checked.stdout
    assert program("certify", "run.toml", "-o", "b.json", "--dataset", "people").returncode == 0
    joint = program("compose", "a.json", "b.json", "-o", "c.json", "--json")
    assert joint.returncode == 0, joint.stderr
    assert epsilon < json.loads(joint.stdout)["epsilon"] < 2 * epsilon
    answer = program("verify", "c.json", "--json")
    assert answer.returncode == 0
    assert json.loads(answer.stdout)["verified"] is True


def test_a_failed_check_exits_with_3(command, program, tmp_path):
    assert command("certify", "run.toml", "-o", "a.json").returncode == 0
    path = tmp_path / "a.json"
    path.write_text(path.read_text().replace('"records": 1000', '"records": 1001'))
    failed = program("verify", "a.json")
    assert failed.returncode == 3
    assert "SHA-256" in failed.stderr
    as_json = program("verify", "a.json", "--json")
    assert as_json.returncode == 3
    assert json.loads(as_json.stdout)["verified"] is False


@pytest.mark.parametrize(
    ("table", "field", "value"),
    [
        ("training", "records", 10**400),
        (None, "epsilon", 10**400),
        ("theorem", "name", None),
        ("training", "noise", "inf"),
    ],
)
def test_hostile_values_exit_with_3_and_a_reason(command, program, tmp_path, table, field, value):
    from lastiterate.verifier.document import canonical, fingerprint

    assert command("certify", "run.toml", "-o", "a.json").returncode == 0
    path = tmp_path / "a.json"
    content = json.loads(path.read_text())
    place = content if table is None else content[table]
    assert place.pop(field)
    place.update({} if value is None else {field: value})
    path.write_text(canonical({**content, "sha256": fingerprint(content)}))
    failed = program("verify", "a.json")
    assert failed.returncode == 3, failed
    assert failed.stderr.startswith("lastiterate: not verified: ")
    assert "Traceback" not in failed.stderr
    assert failed.stdout == ""


def test_signatures_from_the_command_line(command, tmp_path):
    made = command("keygen", "signer.pem", "--json")
    assert made.returncode == 0, made.stderr
    name = json.loads(made.stdout)["keyid"]
    assert (tmp_path / "signer.pem").stat().st_mode & 0o777 == 0o600
    again = command("keygen", "signer.pem")
    assert again.returncode == 2
    assert "does not exist yet" in again.stderr
    assert command("keygen", "other.pem").returncode == 0
    signed = command("certify", "run.toml", "-o", "a.json", "--key", "signer.pem")
    assert signed.returncode == 0, signed.stderr
    assert "Signed with the key" in signed.stdout
    good = command("verify", "a.json", "--trusted-key", "signer.pub", "--json")
    assert good.returncode == 0, good.stderr
    assert json.loads(good.stdout)["signed_by"] == [name]
    stranger = command("verify", "a.json", "--trusted-key", "other.pub")
    assert stranger.returncode == 3
    assert "No trusted key" in stranger.stderr
    assert stranger.stdout == ""
    assert command("verify", "a.json", "--trusted-key", "signer.pem").returncode == 2


def test_detached_and_missing_signatures_from_the_command_line(command, tmp_path):
    assert command("keygen", "signer.pem").returncode == 0
    answer = command("certify", "run.toml", "-o", "d.json", "--key", "signer.pem", "--detached")
    assert answer.returncode == 0, answer.stderr
    assert "signatures" not in json.loads((tmp_path / "d.json").read_text())
    assert command("verify", "d.json", "--trusted-key", "signer.pub").returncode == 0
    (tmp_path / "d.json.sig").unlink()
    refused = command("verify", "d.json", "--trusted-key", "signer.pub")
    assert refused.returncode == 3
    assert "not signed" in refused.stderr
    plain = command("verify", "d.json")
    assert plain.returncode == 0
    assert "sealed, not signed" in " ".join(plain.stdout.split())
    assert command("certify", "run.toml", "--detached").returncode == 2
    assert command("certify", "run.toml", "--key", "run.toml").returncode == 2


def test_compose_never_overwrites(command, tmp_path):
    assert command("certify", "run.toml").returncode == 0  # certificate.json, the default name
    assert command("certify", "run.toml", "-o", "x.json").returncode == 0
    kept = (tmp_path / "certificate.json").read_bytes()
    unasked = command("compose", "certificate.json", "x.json")
    assert unasked.returncode == 2
    assert "--out" in unasked.stderr
    for target in ("certificate.json", "x.json", "./x.json"):
        answer = command("compose", "certificate.json", "x.json", "--out", target)
        assert answer.returncode == 2
        assert "overwritten" in answer.stderr
    assert (tmp_path / "certificate.json").read_bytes() == kept
    assert command("compose", "certificate.json", "x.json", "--out", "new.json").returncode == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "missing.json"),
        ("verify", "run.toml"),
        ("certify", "run.toml", "-o", "no/such/folder/a.json"),
        ("certify", "run.toml", "--delta", "2"),
        ("compose", "run.toml"),
        ("compose", "run.toml", "--epsilon", "1"),
        ("compose",),
        ("calibrate", "run.toml", "--epsilon", "-1"),
        ("calibrate", "run.toml", "--find", "luck"),
        ("calibrate", "run.toml", "--epsilon", "1e-9", "--find", "steps"),
    ],
)
def test_bad_input_exits_with_2(command, arguments):
    answer = command(*arguments)
    assert answer.returncode == 2, answer
    assert answer.stderr.startswith("lastiterate: ")
    assert "Traceback" not in answer.stderr


def test_calibrate(command):
    answer = command("calibrate", "run.toml", "--epsilon", "0.5", "--json")
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    assert 0.4995 <= found["epsilon"] <= 0.5
    assert found["training"]["noise"] == found["value"]
    text = command("calibrate", "run.toml", "--epsilon", "2", "--find", "regularization")
    assert text.returncode == 0
    assert "regularization = 0" in text.stdout
