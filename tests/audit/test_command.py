"""`lastiterate audit`: folders, estimators, functions; exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lastiterate import FullBatch, Loss, PrivacyUnit, Training, certify
from lastiterate.audit.targets import named
from lastiterate.certificate import Certificate
from lastiterate.cli.main import run
from lastiterate.errors import DescriptionError


@pytest.fixture
def command(capsys):
    """Run a command: exit code, stdout, stderr."""

    def call(*arguments):
        with pytest.raises(SystemExit) as left:
            run([str(a) for a in arguments])
        said = capsys.readouterr()
        return left.value.code, said.out, said.err

    return call


FUNCTION = """
import numpy as np

def noisy(world, seed):
    return 4.0 * (world == "inside") + np.random.default_rng(seed).normal()

def on_data(dataset, seed):
    X, y = dataset
    return 90 * (y == 1).mean() + np.random.default_rng(seed).normal()

number = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FUNCTION)
    return path


@pytest.fixture
def arrays(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    path = tmp_path / "data.npz"
    np.savez(path, X=X, y=(X[:, 0] > 0).astype(int))
    return path


def test_a_function(command, file):
    code, out, _ = command("audit", f"{file}:noisy", "--models", 600, "--seed", 1, "--json")
    found = json.loads(out)
    assert code == 0
    assert 3 < found["epsilon_lower"] < 24.5
    assert found["contradicted"] is False
    code, out, _ = command(
        "audit", f"{file}:noisy", "--models", 600, "--seed", 1, "--claim-epsilon", 2
    )
    assert code == 3
    assert "CONTRADICTED" in out
    assert "refutes any claim" in out


def test_a_function_of_data(command, file, arrays):
    code, out, _ = command(
        "audit",
        f"{file}:on_data",
        "--data",
        arrays,
        "--models",
        400,
        "--seed",
        1,
        "--json",
        "--method",
        "gdp",
    )
    assert code == 0
    assert 2.0 < json.loads(out)["mu_lower"] <= 3.0


def test_an_estimator(command, arrays):
    """A deterministic fit tells the worlds apart with certainty."""
    code, out, _ = command(
        "audit",
        "sklearn.linear_model:LogisticRegression",
        "--data",
        arrays,
        "--models",
        100,
        "--claim-epsilon",
        1,
        "--json",
    )
    found = json.loads(out)
    assert code == 3
    assert found["fpr"] == found["fnr"] == 0
    # the same claim about removed contributions says less about a replaced record
    code, out, _ = command(
        "audit",
        "sklearn.linear_model.LogisticRegression",
        "--data",
        arrays,
        "--models",
        100,
        "--claim-epsilon",
        1.3,
        "--claim-adjacency",
        "zero-out",
        "--json",
    )
    assert 1.3 < json.loads(out)["epsilon_lower"] < 2.6
    assert code == 0


CSV_ROWS = 120


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, CSV_ROWS)
    label = np.where(x + rng.normal(0, 0.3, CSV_ROWS) > 0, "yes", "no")
    path = tmp_path / "people.csv"
    path.write_text(
        "x,z,label\n"
        + "".join(
            f"{a:.4f},{b:.4f},{c}\n"
            for a, b, c in zip(x, rng.uniform(0, 1, CSV_ROWS), label, strict=True)
        )
    )
    return path


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_a_folder(command, table, tmp_path, adjacency):
    folder = tmp_path / "run"
    code, _, err = command(
        "train",
        table,
        "--target",
        "label",
        "--epsilon",
        6,
        "--delta",
        1e-3,
        "--out",
        folder,
        "--numeric",
        "x=-1:1",
        "--numeric",
        "z=0:1",
        "--classes",
        "no,yes",
        "--steps",
        20,
        "--adjacency",
        adjacency,
        "--prepare",
        "none",
    )
    assert code == 0, err
    audited = ("audit", folder, "--data", table, "--models", 6000, "--seed", 0, "--json")
    code, out, err = command(*audited)
    found = json.loads(out)
    claimed = Certificate.load(folder / "certificate.json")
    assert code == 0, err
    assert found["delta"] == claimed.delta
    assert found["claimed_epsilon"] == claimed.epsilon
    assert 0.1 < found["epsilon_lower"] <= claimed.epsilon
    # somebody claims ten times less
    code, out, _ = command(*audited, "--claim-epsilon", found["epsilon_lower"] * 0.9)
    assert code == 3


def filed(table, folder, **settings):
    """A folder with a logistic regression of these settings."""
    from lastiterate.models import PrivateLogisticRegression
    from lastiterate.models.saved import TableModel, about, report, save
    from lastiterate.models.schema import Schema
    from lastiterate.models.table import read_table

    schema = Schema.of_flags("label", ["x=-1:1", "z=0:1"], (), (), "no,yes", None)
    X, y = schema.encode(read_table(table))
    model = PrivateLogisticRegression(**{"delta": 1e-3, "prepare": None} | settings).fit(X, y)
    trained = TableModel(schema, model)
    save(folder, trained, report(trained, len(y), []), about(trained, len(y), []))
    return model


def scaled(table, folder, adjacency):
    """A folder whose model was prepared by a private scaler."""
    from lastiterate.models import PrivateStandardScaler

    scaler = PrivateStandardScaler(epsilon=3.0, delta=1e-3, low=0.0, adjacency=adjacency)
    return filed(table, folder, epsilon=60.0, steps=20, adjacency=adjacency, prepare=scaler)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_a_folder_with_a_private_scaler(command, table, tmp_path, adjacency):
    """The scaler is trained again too, and the certificate that is tested covers both."""
    folder = tmp_path / "run"
    scaled(table, folder, adjacency)
    code, out, err = command(
        "audit", folder, "--data", table, "--models", 400, "--seed", 0, "--json"
    )
    found, claimed = json.loads(out), Certificate.load(folder / "certificate.json")
    assert code == 0, err
    assert claimed.epsilon > 60.0
    assert found["claimed_epsilon"] == claimed.epsilon
    assert 0.5 < found["epsilon_lower"] <= claimed.epsilon


def test_repetitions_are_trained_together_as_each_alone(table, tmp_path):
    model = scaled(table, tmp_path / "run", "zero-out")
    target = named(str(tmp_path / "run"), table, 5, "mislabelled")
    seeds = range(7)
    together = target.train.cohort(target.outside, seeds)
    alone = [target.train(target.outside, seed) for seed in seeds]
    for one, other in zip(together, alone, strict=True):
        assert (one.scaler.mean_ == other.scaler.mean_).all()
        np.testing.assert_allclose(one.parameters, other.parameters, rtol=1e-4, atol=1e-5)
    assert len({tuple(one.scaler.mean_) for one in together}) == 7
    spread = np.std([one.parameters for one in together], axis=0)
    assert (spread > 0.1 * model.training_.noises[-1]).all()


def test_a_folder_of_a_sparse_model(command, table, tmp_path):
    """An L1 term follows every update: such models are trained one by one."""
    filed(table, tmp_path / "run", penalty="l1", regularization=0.01, steps=3, epsilon=2.0)
    audited = ("audit", tmp_path / "run", "--data", table, "--models", 20, "--seed", 0)
    code, _, err = command(*audited)
    assert code == 0, err


def test_repeated_scalers_have_the_law_of_the_mechanism(table, tmp_path):
    """Statistics over many repetitions; a removed record is missing in them, not a row of zeros."""
    model = scaled(table, tmp_path / "run", "zero-out")
    target = named(str(tmp_path / "run"), table, 5, "mislabelled")
    noise = float(model.prepare_.training_.noises[0])
    v = np.clip(2 * target.inside.X - 1, -1, 1)
    means = {}
    for world in (target.inside, target.outside):
        found = np.array([one.scaler.mean_ for one in target.train.cohort(world, range(300))])
        rows = v if world.removed is None else np.delete(v, world.removed, axis=0)
        expected = (rows.sum(axis=0) / CSV_ROWS + 1) / 2
        error = noise / 2 / np.sqrt(300)
        assert np.all(np.abs(found.mean(axis=0) - expected) < 4.5 * error)
        np.testing.assert_allclose(found.std(axis=0), noise / 2, rtol=0.2)
        means[world.removed] = expected
    assert np.any(np.abs(means[None] - means[5]) > 1e-4)


def test_a_folder_needs_its_data(command, table, tmp_path):
    code, _, err = command("audit", tmp_path)
    assert code == 2
    assert "written by lastiterate train" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no.such.module:train"], "can be imported"),
        (["json:nothing"], "can be imported"),
        (["math:pi"], "a function, an estimator or a folder"),
        (["sklearn.linear_model:Ridge"], "data must"),
        (["math:sin", "--canary", "yellow"], "canary must"),
        (["math:sin", "--models", "1"], "models must"),
        (["math:sin", "--delta", "0"], "delta must"),
        (["math:sin", "--data", "/nowhere.npz"], "an .npz file"),
    ],
)
def test_bad_input(command, arguments, message):
    code, _, err = command("audit", *arguments)
    assert code == 2
    assert message in err
    assert "Traceback" not in err


def test_a_store_is_resumed(command, file, tmp_path):
    call = ("audit", f"{file}:noisy", "--models", 80, "--store", tmp_path / "a.db", "--json")
    first, second = command(*call)[1], command(*call)[1]
    assert json.loads(first) == json.loads(second)


def test_as_is_swaps_the_record(arrays):
    target = named("sklearn.linear_model:LogisticRegression", arrays, 2, "as-is")
    assert not np.array_equal(target.inside[0][2], target.outside[0][2])
    assert np.array_equal(target.outside[0][2], target.outside[0][3])
    with pytest.raises(DescriptionError, match=r"^record must"):
        named("sklearn.linear_model:LogisticRegression", arrays, 30, "as-is")


def test_a_certificate_for_somebody_else_is_refused_before_anything_is_trained(
    command, file, tmp_path
):
    run_ = Training(
        records=100,
        steps=9,
        step_size=1.0,
        noise=9.0,
        gradient_norm=10.0,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    early, several = tmp_path / "early.json", tmp_path / "several.json"
    loss = Loss(smoothness=0.5)
    certify(run_, loss, 1e-5, unit=PrivacyUnit(last_step=3)).save(early)
    certify(run_, loss, 1e-5, unit=PrivacyUnit(records=2)).save(several)
    asked = ("--models", 600, "--seed", 1, "--certificate")
    code, _, err = command("audit", f"{file}:noisy", *asked, early)
    assert code == 2
    assert "says nothing" in err
    code, out, _ = command("audit", f"{file}:noisy", *asked, several, "--json")
    answer = json.loads(out)
    assert code == 3  # one record costs more than is claimed for two
    assert answer["claimed_for"] == {"records": 2}
    code, out, _ = command("audit", f"{file}:noisy", *asked, several)
    assert "for a person with up to 2 records (audited: one record)" in " ".join(out.split())
