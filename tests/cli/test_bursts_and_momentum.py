"""Bursts, momentum and exponential averages on the command line and in description files."""

from __future__ import annotations

import json

import pytest

from lastiterate import Loss, Shuffled, Training, account, calibrate
from lastiterate.accounting import best_burst
from lastiterate.cli.described import combine
from lastiterate.cli.main import run

FILE = """
[training]
adjacency = "replace"
records = 4000
steps = 200
step_size = 0.5
noise = 0.005
gradient_norm = 1.0
batches = {{ scheme = "shuffled", size = 100 }}
{extra}
[loss]
smoothness = 1.0
"""
PLAIN = Training(
    records=4000,
    steps=200,
    step_size=0.5,
    noise=0.005,
    gradient_norm=1.0,
    batches=Shuffled(100),
    adjacency="replace",
)
LOSS = Loss(smoothness=1.0)


@pytest.fixture
def ask(tmp_path, capsys):
    def asked(command, *flags, extra="", code=0):
        path = tmp_path / "run.toml"
        path.write_text(FILE.format(extra=extra))
        with pytest.raises(SystemExit) as end:
            run([command, str(path), *flags, *(["--json"] if code == 0 else [])])
        assert end.value.code == code
        said = capsys.readouterr()
        return json.loads(said.out) if code == 0 else said.err

    return asked


def test_a_number(ask):
    burst = PLAIN.replace(final_noise=9.0)
    for answer in (ask("account", "--final-noise", "9"), ask("account", extra="final_noise = 9")):
        assert answer["training"] == burst.to_dict()
        assert answer["epsilon"] == account(burst, LOSS).epsilon(1e-5)


def test_the_best_for_the_epsilon_the_run_has(ask):
    epsilon = account(PLAIN, LOSS).epsilon(1e-5)
    best = PLAIN.replace(final_noise=best_burst(PLAIN, LOSS, epsilon, 1e-5))
    for answer in (
        ask("account", "--final-noise", "best"),
        ask("account", extra='final_noise = "best"'),
    ):
        assert answer["training"] == best.to_dict()
        assert answer["epsilon"] == account(best, LOSS).epsilon(1e-5) < epsilon
    assert ask("account", "--final-noise", "1", extra='final_noise = "best"')["epsilon"] == epsilon


def test_the_best_for_a_target(ask):
    answer = ask("calibrate", "--epsilon", "2", extra='final_noise = "best"')
    expected = calibrate(PLAIN, LOSS, 2.0, 1e-5, final_noise="best")
    assert answer["training"] == expected.to_dict()
    assert answer["epsilon"] <= 2.0


def test_the_optimal_schedule_of_a_target(ask):
    full = ("--batches", "full", "--steps", "16", "--schedule", "optimal")
    answer = ask("calibrate", *full, "--epsilon", "1")
    found = Training.from_dict(answer["training"])
    assert len(found.step_size) == len(found.noise) == len(answer["value"]) == 16
    assert 0.999 <= account(found, LOSS).epsilon(1e-5) <= 1.0
    assert "calibrate" in ask("account", *full, code=2)
    assert "full batches" in ask("calibrate", "--schedule", "optimal", code=2)


def test_momentum(ask):
    answer = ask("account", "--momentum", "0.9")
    assert answer["training"]["momentum"] == 0.9
    assert answer["theorem"]["key"] == "gaussian-composition"
    assert ask("account", extra="momentum = 0.9")["epsilon"] == answer["epsilon"]
    assert "nothing hides it" in ask(
        "account", "--momentum", "0.9", "--final-noise", "best", code=2
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--final-noise", "much"], "a number, or best"),
        (["--final-noise", "0"], "final_noise"),
        (["--momentum", "2"], "momentum"),
    ],
)
def test_bad_input(ask, flags, message):
    assert message in ask("account", *flags, code=2)


def test_the_flags_are_the_description():
    described = combine(
        None,
        {
            "records": 10,
            "steps": 20,
            "step_size": 0.1,
            "noise": 1.0,
            "gradient_norm": 1.0,
            "batches": "shuffled",
            "batch_size": 2,
            "smoothness": 1.0,
            "final_noise": "3.5",
        },
    )
    assert described.training == described.plain
    assert described.training.final_noise == 3.5
