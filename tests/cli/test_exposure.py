"""Whom an answer speaks of, on the command line and in description files; chains in folders."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lastiterate import (
    Allowance,
    Certificate,
    Chain,
    Cyclic,
    Exposure,
    Loss,
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
RUN, LOSS = Training(6000, 200, 1.0, 1.0, 15.0, Cyclic(60)), Loss(smoothness=1.0)
TABLE = "[exposure]\nrecords = 10\nper_batch = 1"


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
    ("flags", "below", "exposure"),
    [
        ((), "", Exposure()),
        ((), TABLE, Exposure(records=10, per_batch=1)),
        (("--records-per-person", "10", "--per-batch", "1"), "", Exposure(10, 1)),
        (("--per-batch", "2"), TABLE, Exposure(10, 2)),  # a flag lies over the table
        (("--records-per-person", "1"), TABLE, Exposure()),
        (("--joined", "50", "--left", "150"), "", Exposure(joined=50, left=150)),
        (("--own-gradient-norm", "3"), "", Exposure(gradient_norm=3.0)),
        ((), "[exposure]\nleft = 100\ngradient_norm = 0.5", Exposure(left=100, gradient_norm=0.5)),
    ],
)
def test_flags_and_tables_say_whom(ask, flags, below, exposure):
    answer = ask("account", *flags, below=below)
    assert answer["exposure"] == exposure.to_dict()
    assert answer["epsilon"] == account(RUN, LOSS, exposure=exposure).epsilon(1e-6)
    if not exposure.default:
        assert exposure.words(RUN) in " ".join(
            ask("account", *flags, below=below, text=True).split()
        )


def test_every_command_speaks_of_the_same_person(ask, tmp_path):
    person = Exposure(records=10, per_batch=1)
    found = account(RUN, LOSS, exposure=person)
    compared = ask("compare", below=TABLE)
    assert compared["bounds"][0]["epsilon"] == found.epsilon(1e-6)
    calibrated = ask("calibrate", "--epsilon", "2", "--find", "noise", below=TABLE)
    wanted = calibrate(RUN, LOSS, epsilon=2.0, delta=1e-6, exposure=person)
    assert calibrated["training"]["noise"] == wanted.noise
    out = tmp_path / "person.json"
    ask("certify", "--output", str(out), below=TABLE, text=True)
    assert Certificate.load(out).exposure == person
    assert verify(out).epsilon == pytest.approx(found.epsilon(1e-6), rel=1e-6)
    full = ("--batches", "full", "--regularization", "0.1")
    ask("plateau", *full, "--records-per-person", "3")


def test_releases_and_a_person(ask):
    answer = ask("account", above="releases = [100]", below="[exposure]\nleft = 100")
    exposure = Exposure(left=100)
    assert answer["epsilon"] == account(RUN, LOSS, releases=(100,), exposure=exposure).epsilon(1e-6)
    assert answer["epsilon"] == pytest.approx(
        account(RUN.replace(steps=100), LOSS).epsilon(1e-6), rel=1e-9
    )


@pytest.mark.parametrize(
    ("flags", "below", "named"),
    [
        (("--records-per-person", "0"), "", "exposure.records"),
        (("--records-per-person", "6001"), "", "exposure.records"),
        (("--records-per-person", "101", "--per-batch", "1"), "", "exposure.records"),
        (("--left", "201"), "", "exposure.left"),
        (("--joined", "10", "--left", "5"), "", "exposure.left"),
        (("--own-gradient-norm", "16"), "", "exposure.gradient_norm"),
        ((), "[exposure]\nperson = 1", "exposure.person"),
        ((), "[exposure]\nrecords = 2.5", "exposure.records"),
        ((), "[exposure]\nrecords = true", "exposure.records"),
        ((), "[[exposure]]\nrecords = 2", "exposure"),
        (("--batches", "without-replacement", "--joined", "3"), "", "used from step 3 on"),
    ],
)
def test_what_cannot_be_is_refused(ask, flags, below, named):
    assert named in ask("account", *flags, below=below, code=2)


@pytest.fixture
def chain(tmp_path):
    chain = Chain.begin(tmp_path / "model", Allowance(mu=2.0, days=2))
    X, y = np.eye(40)[:, :3], np.resize([1.0, -1.0], 40)
    day = Training(40, 20, 1.0, 0.3, 1.0, Cyclic(2), schedule="equalised", adjacency="zero-out")
    for _ in range(2):
        chain.seal(noisy_descent(Logistic(), X, day, labels=y, continue_from=chain), 1e-4)
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
    assert answer["allowance"] == {"mu": 2.0, "days": 2}
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
    empty = Chain.begin(tmp_path / "empty", Allowance(mu=2.0, days=2))
    with pytest.raises(AuthenticityError):
        empty.verify(revoked=[note])
