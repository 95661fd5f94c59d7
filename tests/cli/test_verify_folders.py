"""`lastiterate verify` and `report` of folders: what they accept, what they say of it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import sys

import numpy as np
import pytest

from lastiterate import (
    CertificateChain,
    FullBatch,
    LifetimeBudget,
    Loss,
    PrivacyUnit,
    Training,
    account,
    certify,
)
from lastiterate.certificate import make_key
from lastiterate.cli.main import run


@pytest.fixture
def command(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run([str(each) for each in arguments])
        said = capsys.readouterr()
        return left.value.code or 0, said.out, said.err

    return call


@pytest.fixture(scope="module")
def filed(tmp_path_factory):
    """A run that was trained while every new file could be written by everybody."""
    folder = tmp_path_factory.mktemp("filed")
    ages = np.random.default_rng(0).integers(0, 100, 300)
    lines = [f"{age},{'high' if age > 50 else 'low'}" for age in ages]
    (folder / "data.csv").write_text("age,income\n" + "\n".join(lines) + "\n")
    make_key(folder / "signer.pem", folder / "signer.pub")
    flags = ["--epsilon", "1", "--delta", "1e-4", "--numeric", "age=0:100", "--classes", "low,high"]
    more = ["--prepare", "none", "--batch-size", "40", "--key", str(folder / "signer.pem")]
    data = ["train", str(folder / "data.csv"), "--target", "income"]
    before = os.umask(0)
    try:
        with pytest.raises(SystemExit) as left:
            run([*data, *flags, *more, "--out", str(folder / "run")])
    finally:
        os.umask(before)
    assert not left.value.code
    return folder


@pytest.fixture
def folder(filed, tmp_path):
    return shutil.copytree(filed / "run", tmp_path / "run")


def test_the_files_of_a_run_are_written_by_their_owner_alone(filed):
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (filed / "run").iterdir()}
    assert set(modes.values()) == {0o644}, modes
    assert stat.S_IMODE((filed / "run").stat().st_mode) == 0o755


def test_the_folder_of_a_chain_is_written_by_its_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(1.0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(chain.folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((chain.folder / "terms.json").stat().st_mode) == 0o644


def test_verify_takes_the_folder_of_a_run(filed, folder, command):
    code, out, err = command("verify", folder)
    assert code == 0, err
    assert "verified: epsilon" in out
    code, out, _ = command("verify", folder, "--trusted-key", filed / "signer.pub", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["signed"] is True
    assert answer["sha256"] == json.loads((folder / "certificate.json").read_text())["sha256"]


@pytest.mark.parametrize("spoilt", ["run.json", "parameters.npz"])
def test_verify_compares_the_other_files_of_the_folder(folder, command, spoilt):
    path = folder / spoilt
    before = path.read_bytes()
    other = before.replace(b'"title": ""', b'"title": "x"')
    if spoilt == "parameters.npz":
        np.savez(path, coef_=np.zeros((1, 1)), intercept_=np.zeros(1))
    else:
        path.write_bytes(other)
    assert command("verify", folder)[0] == 3
    path.unlink()
    assert command("verify", folder)[0] == 3
    path.write_bytes(before)
    assert command("verify", folder)[0] == 0


def test_a_folder_without_a_certificate_is_not_verified(filed, folder, command, tmp_path):
    (folder / "certificate.json").unlink()
    code, _, err = command("verify", folder, "--trusted-key", filed / "signer.pub")
    assert code == 3
    assert "certificate.json" in err
    (tmp_path / "nothing").mkdir()
    assert command("verify", tmp_path / "nothing")[0] == 2


def test_an_experiment_is_refused_where_a_key_is_trusted(filed, folder, command, tmp_path):
    """A self-written folder without a certificate passed, as an experiment."""
    table = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**table, "certified": False}))
    (folder / "certificate.json").unlink()
    page = ("report", folder, "-o", tmp_path / "page.html", "--summary")
    assert command(*page)[0] == 0
    assert command(*page, "--trusted-key", filed / "signer.pub")[0] == 3


def test_a_folder_that_could_be_a_run_and_a_chain_is_refused(folder, command):
    CertificateChain.create(folder.parent / "other", LifetimeBudget(1.0))
    shutil.copy(folder.parent / "other" / "terms.json", folder / "terms.json")
    code, _, err = command("verify", folder)
    assert code == 2
    assert "terms.json" in err


@pytest.mark.parametrize("name", ["report.md", "audit.json", "certificate.json", "run.json"])
def test_a_report_shows_no_hash_of_a_file_behind_a_link(folder, command, tmp_path, name):
    secret = tmp_path / "secret"
    secret.write_text("a password\n")
    digest = hashlib.sha256(secret.read_bytes()).hexdigest()
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    code, out, err = command("report", folder, "-o", tmp_path / "page.html", "--summary")
    assert code == 2, out
    assert "symbolic link" in err
    assert not (tmp_path / "page.html").exists()
    assert digest not in out + err
    (tmp_path / "alone.json").symlink_to(secret)
    page = ("report", tmp_path / "alone.json", "-o", tmp_path / "page.html", "--summary")
    assert command(*page)[0] == 2
    assert not (tmp_path / "page.html").exists()


CLASSES = "the set of classes that occur"


def test_a_caveat_on_classes_is_printed_only_where_it_applies(folder, command, tmp_path):
    """The classes of this run were declared; of the certificate alone nobody can tell."""
    assert CLASSES not in " ".join(command("verify", folder)[1].split())
    assert CLASSES in " ".join(command("verify", folder / "certificate.json")[1].split())
    assert CLASSES not in (folder / "report.md").read_text()
    assert command("report", folder, "-o", tmp_path / "page.html")[0] == 0
    assert CLASSES not in (tmp_path / "page.html").read_text()


def test_a_bound_on_all_iterates_is_not_said_to_need_secret_ones(command, tmp_path):
    described = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    certify(described, Loss.unknown(), 1e-5).save(tmp_path / "all.json")
    certify(described, Loss(1.0, strong_convexity=1.0), 1e-5).save(tmp_path / "last.json")
    secret = "every other iterate kept secret"
    assert secret not in " ".join(command("verify", tmp_path / "all.json")[1].split())
    assert secret in " ".join(command("verify", tmp_path / "last.json")[1].split())
    for name, expected in (("all", False), ("last", True)):
        page = tmp_path / f"{name}.html"
        assert command("report", tmp_path / f"{name}.json", "-o", page, "--summary")[0] == 0
        assert (secret in " ".join(page.read_text().split())) is expected
    assert "only the last iterate" not in account(described, Loss.unknown()).words()
    assert "only the last iterate" in account(described, Loss(1.0, strong_convexity=1.0)).words()


# --- what is missing is said before the work ----------------------------------------------------


def train(command, table, target, *flags):
    data = ["train", table, "--target", target, "--epsilon", 1, "--out", table.parent / "new"]
    return command(*data, *flags)


def test_a_missing_table_is_said_before_the_schema(command, tmp_path):
    code, _, err = train(command, tmp_path / "none.csv", "income")
    assert code == 2
    assert "No such file" in err
    assert "none.csv" in err
    (tmp_path / "t.csv").write_text("age,income\n1,low\n")
    code, _, err = train(command, tmp_path / "t.csv", "income", "--test", tmp_path / "lost.csv")
    assert code == 2
    assert "lost.csv" in err


def test_a_misspelt_target_is_said_before_the_schema(command, tmp_path):
    (tmp_path / "t.csv").write_text("age,income\n1,low\n")
    code, _, err = train(command, tmp_path / "t.csv", "incme")
    assert code == 2
    assert "no such column" in err
    assert "income" not in err  # without a header the names are cells of the first record
    code, _, err = train(command, tmp_path / "t.csv", "income")
    assert code == 2
    assert "declared" in err


@pytest.mark.parametrize(("output", "extra"), [("p.parquet", "tables"), ("m.onnx", "onnx")])
def test_a_missing_package_is_said_before_the_work(
    filed, folder, command, tmp_path, monkeypatch, output, extra
):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "onnx", None)

    def worked(*_):
        raise AssertionError("the folder was read first")

    monkeypatch.setattr("lastiterate.models.saved.TableModel.load", worked)
    if extra == "tables":
        arguments = ("predict", folder, filed / "data.csv", "-o", tmp_path / output)
    else:
        arguments = ("export", folder, tmp_path / output)
    code, _, err = command(*arguments)
    assert code == 2
    assert f"lastiterate[{extra}]" in err
    assert not (tmp_path / output).exists()


def test_a_table_that_needs_a_missing_package_is_said_before_the_schema(
    command, tmp_path, monkeypatch
):
    (tmp_path / "t.parquet").write_bytes(b"PAR1" + bytes(range(200)) + b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = train(command, tmp_path / "t.parquet", "income")
    assert code == 2
    assert "lastiterate[tables]" in err


def test_verify_says_unit_delta_and_theory(command, tmp_path):
    described = Training(
        records=100,
        steps=10,
        step_size=0.1,
        noise=0.1,
        gradient_norm=1.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    person = PrivacyUnit(records=3)
    certificate = certify(described, Loss(smoothness=1.0), 1e-5, unit=person)
    certificate.save(tmp_path / "c.json")
    answer = json.loads(command("verify", tmp_path / "c.json", "--json")[1])
    assert answer["delta"] == 1e-5
    assert answer["theory"] is True
    assert (answer["unit"]["text"], answer["unit"]["records"]) == (str(person), 3)
    assert answer["signed"] is False
    text = " ".join(command("verify", tmp_path / "c.json")[1].split())
    assert str(person) in text
    certify(described, Loss(smoothness=1.0), 1e-5).save(tmp_path / "one.json")
    assert "For a single record" in " ".join(command("verify", tmp_path / "one.json")[1].split())
