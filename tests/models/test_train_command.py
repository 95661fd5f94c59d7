"""`lastiterate train`: results that appear together, and faults named by row and column."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lastiterate.certificate import Certificate, verify
from lastiterate.cli.main import run
from lastiterate.models import saved
from lastiterate.models.saved import TableModel
from lastiterate.verifier.refusals import TamperedCertificateError

SCHEMA = """
drop = ["id"]

[columns.age]
low = 0
high = 100

[columns.job]
categories = ["clerk", "nurse", "none"]

[target]
name = "income"
classes = ["low", "high"]
"""
HEADER = "id,age,job,income\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    lines = []
    for k in range(400):
        age, job = rng.integers(18, 90), rng.choice(["clerk", "nurse", "none"])
        lines.append(f"{k},{age},{job},{'high' if age > 50 and job != 'none' else 'low'}")
    (tmp_path / "data.csv").write_text(HEADER + "\n".join(lines) + "\n")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


@pytest.fixture
def train(folder: Path, capsys: Any) -> Callable[..., tuple[int, str, str]]:
    def call(*flags: str, table: str = "data.csv", schema: bool = True) -> tuple[int, str, str]:
        declared = ["--schema", str(folder / "schema.toml")] if schema else []
        with pytest.raises(SystemExit) as left:
            run(
                [
                    "train",
                    str(folder / table),
                    "--target",
                    "income",
                    "--epsilon",
                    "2",
                    "--delta",
                    "1e-4",
                    "--out",
                    str(folder / "run"),
                    *declared,
                    *flags,
                ]
            )
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call


def test_a_run_writes_model_certificate_and_report(train: Any, folder: Path) -> None:
    code, out, err = train()
    assert (code, err) == (0, "")
    assert {p.name for p in (folder / "run").iterdir()} == {
        "parameters.npz",
        "certificate.json",
        "report.md",
        "run.json",
    }
    certificate = Certificate.load(folder / "run" / "certificate.json")
    assert verify(folder / "run" / "certificate.json")
    assert certificate.epsilon <= 2.01
    trained = TableModel.load(folder / "run")
    predicted = trained.predict(folder / "data.csv")
    assert set(predicted) <= {"low", "high"}
    assert "epsilon = " in out
    assert "Not covered" in (folder / "run" / "report.md").read_text()
    assert not [p for p in folder.iterdir() if p.name.startswith(".")]


def test_json(train: Any) -> None:
    code, out, _ = train("--json", "--seed", "1")
    answer = json.loads(out)
    assert (code, answer["command"], answer["records"], answer["features"]) == (0, "train", 400, 4)
    assert answer["epsilon"] is None  # seeded


def test_other_records_give_a_score(train: Any, folder: Path) -> None:
    rows = (folder / "data.csv").read_text().splitlines()
    (folder / "other.csv").write_text("\n".join(rows[:101]) + "\n")
    code, _, err = train("--test", str(folder / "other.csv"), "--seed", "1")
    assert (code, err) == (0, "")
    public = json.loads((folder / "run" / "run.json").read_text())
    trained = TableModel.load(folder / "run")
    truth = [row.rsplit(",", 1)[1] for row in rows[1:101]]
    assert public["score"] == {
        "name": "accuracy",
        "value": np.mean(trained.predict(folder / "other.csv") == truth),
        "records": 100,
    }
    assert public["certified"] is False  # seeded
    assert "on 100 other records" in (folder / "run" / "report.md").read_text()


def test_flags_declare_the_same_schema(train: Any, folder: Path) -> None:
    code, _, err = train(
        "--numeric",
        "age=0:100",
        "--category",
        "job=clerk,nurse,none",
        "--drop",
        "id",
        "--classes",
        "low,high",
        "--seed",
        "1",
        schema=False,
    )
    assert (code, err) == (0, "")
    by_flags = TableModel.load(folder / "run")
    (folder / "run").rename(folder / "first")
    assert train("--seed", "1")[0] == 0
    by_file = TableModel.load(folder / "run")
    assert by_flags.schema == by_file.schema
    assert np.array_equal(by_flags.model.coef_, by_file.model.coef_)


def test_a_number_is_predicted_by_ridge(train: Any, folder: Path) -> None:
    (folder / "n.csv").write_text("a,income\n" + "".join(f"{k},{2 * k}\n" for k in range(100)))
    flags = ("--numeric", "a=0:100", "--target-range", "0:200")
    assert train(*flags, table="n.csv", schema=False)[0] == 0
    assert type(TableModel.load(folder / "run").model).__name__ == "PrivateRidge"


BAD_TABLES = {
    "": ("empty",),
    HEADER: ("0 records",),
    "id,age,job\n1,2,clerk\n": ("income",),
    HEADER + "1,20,clerk,low\n2,30,nurse\n": ("row 3", "3 cells"),
    HEADER + "1,20,clerk,low\n\n2,30,nurse,high\n": ("row 3", "0 cells"),
    HEADER + "1,20,clerk,low\n2,30,nurse,high,9\n": ("row 3", "5 cells"),
    HEADER + "1,20,clerk,low\n2,,nurse,high\n": ("row 3", "'age'", "empty"),
    HEADER + "1,20,clerk,low\n2,NaN,nurse,high\n": ("row 3", "'age'"),
    HEADER + "1,20,clerk,low\n2,inf,nurse,high\n": ("row 3", "'age'"),
    HEADER + "1,old,clerk,low\n2,30,nurse,high\n": ("row 2", "'age'", "not shown"),
    HEADER + "1,20,pilot,low\n2,30,nurse,high\n": ("row 2", "'job'", "another value"),
    HEADER + "1,20,clerk,low\n2,30,nurse,medium\n": ("row 3", "'income'", "another value"),
    "id,age,job,income,zip\n1,20,clerk,low,9\n": ("column 5", "not declared"),
    "id,age,age,income\n1,20,3,low\n": ("column 2", "repeated"),
    HEADER + '1,20,"clerk,low\n': ("CSV",),
}


@pytest.mark.parametrize("text", BAD_TABLES)
def test_a_bad_table_is_named_by_row_and_column(text: str, train: Any, folder: Path) -> None:
    (folder / "bad.csv").write_text(text)
    code, out, err = train(table="bad.csv")
    assert (code, out) == (2, "")
    for word in BAD_TABLES[text]:
        assert word in err
    assert "Traceback" not in err
    assert not (folder / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("low = 0", 'low = "zero"', "zero"),
        ("low = 0", "low = 100", "below"),
        ("high = 100", "high = inf", "inf"),
        ("low = 0", "", "low and high"),
        ('["clerk", "nurse", "none"]', '["clerk", "clerk"]', "repeats"),
        ("[columns.age]", "[columns.age", "TOML"),
        ('name = "income"', 'name = "wage"', "wage"),
    ],
)
def test_a_bad_schema_is_named(old: str, new: str, word: str, train: Any, folder: Path) -> None:
    (folder / "schema.toml").write_text(SCHEMA.replace(old, new))
    code, _, err = train()
    assert code == 2
    assert word in err


@pytest.mark.parametrize(
    "flags",
    [
        ("--epsilon", "0"),
        ("--epsilon", "-1"),
        ("--delta", "0"),
        ("--steps", "0"),
        ("--adjacency", "both"),
        ("--model", "ridge"),
        ("--model", "forest"),
        ("--batch-size", "0"),
        ("--classes", "low,high"),
        ("--regularization", "-1"),
    ],
)
def test_bad_flags(flags: tuple[str, ...], train: Any, folder: Path) -> None:
    code, _, err = train(*flags)
    assert code == 2
    assert err.startswith("lastiterate: ")
    assert not (folder / "run").exists()


def test_an_undeclared_schema_is_refused(train: Any) -> None:
    code, _, err = train(schema=False)
    assert code == 2
    assert "declared" in err


def test_missing_files_and_existing_results_are_refused(train: Any, folder: Path) -> None:
    code, _, err = train(table="nothing.csv")
    assert code == 2
    assert "nothing.csv" in err
    (folder / "run").mkdir()
    code, _, err = train()
    assert code == 2
    assert "does not exist yet" in err


def test_nothing_is_left_half_written(train: Any, folder: Path) -> None:
    """A report that no file can hold breaks the writing after the model is on disk."""
    assert train()[0] == 0
    trained = TableModel.load(folder / "run")
    before = sorted(folder.iterdir())
    with pytest.raises(UnicodeEncodeError):
        saved.save(folder / "second", trained, "\ud800", {})
    assert sorted(folder.iterdir()) == before


def test_the_help_is_quick_about_heavy_libraries() -> None:
    import subprocess

    program = (
        "import sys\nfrom lastiterate.cli.application import application\napplication()\n"
        "assert not {'sklearn', 'joblib', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def people(folder: Path) -> list[str]:
    """The table with a column of owners: four records each, and one of them has twenty."""
    lines = (folder / "data.csv").read_text().splitlines()
    owners = ["owner", *("heavy" if k < 20 else f"p{k // 4}" for k in range(len(lines) - 1))]
    text = [f"{line},{owner}" for line, owner in zip(lines, owners, strict=True)]
    (folder / "people.csv").write_text("\n".join(text) + "\n")
    return ["--groups", "owner", "--max-records-per-group", "4"]


def test_epsilon_of_a_person(train: Any, folder: Path) -> None:
    code, out, err = train(*people(folder), table="people.csv")
    assert (code, err) == (0, "")
    whom = "a person with up to 4 records, at most one of them in a batch"
    certificate = Certificate.load(folder / "run" / "certificate.json")
    assert verify(certificate)
    assert str(certificate.unit) == whom
    assert certificate.epsilon <= 2.01
    assert f"It is for {whom}" in (folder / "run" / "report.md").read_text()
    assert "Warning: 1 of the people have more than max_records_per_group = 4" in out
    for path in (folder / "run").iterdir():  # told to the operator, and written nowhere
        assert b"of the people have more" not in path.read_bytes(), path
        assert b"heavy" not in path.read_bytes(), path
    trained = TableModel.load(folder / "run")
    assert str(trained.model.choice_.unit) == whom
    assert len(trained.predict(folder / "people.csv")) == 400
    assert len(trained.predict(folder / "data.csv")) == 400  # who is asked about owes no name
    with pytest.raises(SystemExit) as left:
        run(["report", str(folder / "run"), "--output", str(folder / "page.html")])
    assert not left.value.code


def test_a_certificate_of_a_record_beside_a_run_for_people(train: Any, folder: Path) -> None:
    assert train(*people(folder), table="people.csv")[0] == 0
    about = folder / "run" / "run.json"
    table = json.loads(about.read_text())
    about.write_text(json.dumps({**table, "unit": {}}))
    with pytest.raises(TamperedCertificateError):
        TableModel.load(folder / "run")
    with pytest.raises(SystemExit) as left:
        run(["report", str(folder / "run"), "--output", str(folder / "page.html")])
    assert left.value.code == 3


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--groups", "owner"], "max_records_per_group"),
        (["--max-records-per-group", "4"], "groups"),
        (["--groups", "nobody", "--max-records-per-group", "4"], "nobody"),
        (["--groups", "age", "--max-records-per-group", "4"], "neither a feature nor the target"),
        (
            ["--groups", "income", "--max-records-per-group", "4"],
            "neither a feature nor the target",
        ),
        (["--groups", "owner", "--max-records-per-group", "0"], "max_records_per_group"),
        (["--per-batch", "1"], "--max-records-per-group"),
        (
            [
                "--groups",
                "owner",
                "--max-records-per-group",
                "4",
                "--per-batch",
                "1",
                "--batch-size",
                "400",
            ],
            "smaller batches",
        ),
    ],
)
def test_people_who_are_not_told_apart(
    train: Any, folder: Path, flags: list[str], said: str
) -> None:
    people(folder)
    code, _, err = train(*flags, table="people.csv" if "owner" in flags else "data.csv")
    assert (code, said in err) == (2, True), err
    assert not (folder / "run").exists()


def test_an_owner_who_is_missing(train: Any, folder: Path) -> None:
    flags = people(folder)
    text = (folder / "people.csv").read_text()
    (folder / "people.csv").write_text(text.replace(",p90\n", ",\n", 1))
    code, _, err = train(*flags, table="people.csv")
    assert code == 2
    assert "column 'owner'" in err
