"""Whom an answer speaks of, on the command line and in description files; chains in folders."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lastiterate import (
    Certificate,
    CertificateChain,
    Cyclic,
    LifetimeBudget,
    Loss,
    PrivacyUnit,
    Training,
    account,
    calibrate,
    certify,
    verify,
)
from lastiterate.certificate import AuthenticityError, make_key, revoke
from lastiterate.cli.main import run
from lastiterate.losses import Logistic
from lastiterate.train import noisy_descent

FILE = """
delta = 1e-6
{above}
[training]
adjacency = "replace"
records = 6000
steps = 200
step_size = 1.0
noise = 1.0
gradient_norm = 15.0
batches = {{ scheme = "cyclic", size = 60 }}
[loss]
smoothness = 1.0
{below}
"""
RUN, LOSS = (
    Training(
        records=6000,
        steps=200,
        step_size=1.0,
        noise=1.0,
        gradient_norm=15.0,
        batches=Cyclic(60),
        adjacency="replace",
    ),
    Loss(smoothness=1.0),
)
TABLE = "[unit]\nrecords = 10\nper_batch = 1"


@pytest.fixture
def ask(tmp_path, capsys):
    def asked(command, *flags, below="", above="", code=0, text=False):
        path = tmp_path / "run.toml"
        path.write_text(FILE.format(below=below, above=above))
        with pytest.raises(SystemExit) as end:
            run([command, str(path), *flags, *([] if code or text else ["--json"])])
        said = capsys.readouterr()
        assert end.value.code == code, said
        return said.err if code else said.out if text else json.loads(said.out)

    return asked


@pytest.mark.parametrize(
    ("flags", "below", "unit"),
    [
        ((), "", PrivacyUnit()),
        ((), TABLE, PrivacyUnit(records=10, per_batch=1)),
        (("--unit-records", "10", "--per-batch", "1"), "", PrivacyUnit(10, 1)),
        (("--per-batch", "2"), TABLE, PrivacyUnit(10, 2)),  # a flag lies over the table
        (("--unit-records", "1"), TABLE, PrivacyUnit()),
        (
            ("--first-step", "50", "--last-step", "150"),
            "",
            PrivacyUnit(first_step=50, last_step=150),
        ),
        (("--own-gradient-norm", "3"), "", PrivacyUnit(gradient_norm=3.0)),
        (
            (),
            "[unit]\nlast_step = 100\ngradient_norm = 0.5",
            PrivacyUnit(last_step=100, gradient_norm=0.5),
        ),
    ],
)
def test_flags_and_tables_say_whom(ask, flags, below, unit):
    answer = ask("account", *flags, below=below)
    assert answer["unit"] == unit.to_dict()
    assert answer["epsilon"] == account(RUN, LOSS, unit=unit).epsilon(1e-6)
    if not unit.default:
        assert unit.words(RUN) in " ".join(ask("account", *flags, below=below, text=True).split())


def test_every_command_speaks_of_the_same_person(ask, tmp_path):
    person = PrivacyUnit(records=10, per_batch=1)
    found = account(RUN, LOSS, unit=person)
    compared = ask("compare", below=TABLE)
    assert compared["bounds"][0]["epsilon"] == found.epsilon(1e-6)
    calibrated = ask("calibrate", "--epsilon", "2", "--find", "noise", below=TABLE)
    wanted = calibrate(RUN, LOSS, epsilon=2.0, delta=1e-6, unit=person)
    assert calibrated["training"]["noise"] == wanted.noise
    out = tmp_path / "person.json"
    ask("certify", "--output", str(out), below=TABLE, text=True)
    assert Certificate.load(out).unit == person
    assert verify(out).epsilon == pytest.approx(found.epsilon(1e-6), rel=1e-6)
    full = ("--batches", "full", "--regularization", "0.1")
    ask("plateau", *full, "--unit-records", "3")


def test_releases_and_a_person(ask):
    answer = ask("account", above="releases = [100]", below="[unit]\nlast_step = 100")
    unit = PrivacyUnit(last_step=100)
    assert answer["epsilon"] == account(RUN, LOSS, releases=(100,), unit=unit).epsilon(1e-6)
    assert answer["epsilon"] == pytest.approx(
        account(RUN.replace(steps=100), LOSS).epsilon(1e-6), rel=1e-9
    )


@pytest.mark.parametrize(
    ("flags", "below", "named"),
    [
        (("--unit-records", "0"), "", "unit.records"),
        (("--unit-records", "6001"), "", "unit.records"),
        (("--unit-records", "101", "--per-batch", "1"), "", "unit.records"),
        (("--last-step", "201"), "", "unit.last_step"),
        (("--first-step", "10", "--last-step", "5"), "", "unit.last_step"),
        (("--own-gradient-norm", "16"), "", "unit.gradient_norm"),
        ((), "[unit]\nperson = 1", "unit.person"),
        ((), "[unit]\nrecords = 2.5", "unit.records"),
        ((), "[unit]\nrecords = true", "unit.records"),
        ((), "[[unit]]\nrecords = 2", "unit"),
        (("--batches", "without-replacement", "--first-step", "3"), "", "used from step 3 on"),
    ],
)
def test_what_cannot_be_is_refused(ask, flags, below, named):
    assert named in ask("account", *flags, below=below, code=2)


@pytest.fixture
def chain(tmp_path):
    chain = CertificateChain.create(tmp_path / "model", LifetimeBudget(mu=2.0, days=2))
    X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    day = Training(
        records=40,
        steps=20,
        step_size=1.0,
        noise=0.3,
        gradient_norm=1.0,
        batches=Cyclic(2),
        schedule="equalised",
        adjacency="zero-out",
    )
    for _ in range(2):
        chain.append(noisy_descent(Logistic(), X, day, labels=y, continue_from=chain), 1e-4)
    return chain


def verified(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        run(["verify", *map(str, arguments)])
    said = capsys.readouterr()
    return end.value.code, said.out, said.err


def test_a_chain_is_verified_by_its_folder(chain, capsys):
    code, out, _ = verified(capsys, chain.folder)
    assert code == 0
    assert "verified: 2 links" in out
    assert "used in link 2 alone" in out
    code, out, _ = verified(capsys, chain.folder, "--json")
    answer = json.loads(out)
    assert answer["lifetime_budget"] == {"mu": 2.0, "days": 2}
    assert [link["epsilon"] for link in answer["links"]] == [link.epsilon for link in chain.links]


def test_a_broken_chain_is_refused_by_its_folder(chain, capsys, tmp_path):
    (chain.folder / "000001").rename(tmp_path / "gone")
    code, _, err = verified(capsys, chain.folder)
    assert code == 3
    assert "missing" in err
    code, _, err = verified(capsys, tmp_path)  # a folder without terms
    assert code == 2
    assert "holds neither a run" in err
    (tmp_path / "gone").rename(chain.folder / "000001")
    assert verified(capsys, chain.folder)[0] == 0


def test_a_chain_with_a_revoked_link_is_refused(chain, capsys, tmp_path):
    """Before: a note about a link could not be given at all."""
    private, public, note = (tmp_path / name for name in ("s.pem", "s.pub", "note.json"))
    make_key(private, public)
    assert "not signed" in verified(capsys, chain.folder, "--trusted", public)[2]
    chain.sign(private)
    checked = (chain.folder, "--trusted", public)
    assert verified(capsys, *checked)[0] == 0
    other = certify(RUN, LOSS, 1e-6)
    note.write_text(revoke(other, private, "of another run"))
    assert verified(capsys, *checked, "--revoked", note)[0] == 0
    note.write_text(revoke(chain.links[1], private, "the second day was not clipped"))
    code, _, err = verified(capsys, *checked, "--revoked", note)
    assert code == 3
    assert "Link 2: " in err
    assert "the second day was not clipped" in err
    code, _, err = verified(capsys, *checked, "--revoked", tmp_path / "nowhere.json")
    assert code == 3
    assert verified(capsys, chain.folder, "--revoked", note)[0] == 2  # a note needs a key
    with pytest.raises(AuthenticityError):
        chain.verify(revoked=[note])
    empty = CertificateChain.create(tmp_path / "empty", LifetimeBudget(mu=2.0, days=2))
    with pytest.raises(AuthenticityError):
        empty.verify(revoked=[note])
