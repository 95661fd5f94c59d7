"""The same rule wherever a delta is asked for: said aloud from 1/n, refused from one half."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from lastiterate import (
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Training,
    certify,
    compose,
    recommend,
)
from lastiterate.accounting import best_burst, optimal_schedule
from lastiterate.cli.main import run
from lastiterate.errors import PrivacyWarning
from lastiterate.federated import account_federated
from lastiterate.generalization import generalization
from lastiterate.sampling import posterior_privacy, sgld_training
from lastiterate.sampling.returned import Returned

RUN = Training(records=100, steps=10, step_size=0.1, noise=0.1, gradient_norm=1.0,
               batches=FullBatch(), adjacency="replace")  # fmt: skip
LOSS = Loss(smoothness=1.0)
FEDERATED = account_federated(
    clients=100, sampled=10, rounds=5, clip=1.0, noise_multiplier=3.0, adjacency="replace"
)
CERTIFICATE = certify(RUN, LOSS, 1e-5)
CHAINS = Returned(
    sgld_training(100, 5, 1e-4, clip=1.0, batches=FullBatch(), adjacency="replace"),
    (1, 5),
    chains=3,
)
POSTERIOR = posterior_privacy(100, 2.0, 1.0, 0.9, 1.8, 10.0, 1.0)

ASKED = {
    "federated": FEDERATED.epsilon,
    "federated, outsiders": lambda delta: FEDERATED.epsilon(delta, against="outsiders"),
    "chains": lambda delta: CHAINS.guarantee().epsilon(delta),
    "posterior": POSTERIOR.epsilon,
    "generalization": lambda delta: generalization((1.0, delta), 100),
}
PROMISED = {
    "federated certificate": FEDERATED.certificate,
    "joint certificate": lambda delta: compose([CERTIFICATE, CERTIFICATE], delta),
    "recommend": lambda delta: recommend(100, 2, 1.0, delta, 1),
    "best burst": lambda delta: best_burst(
        RUN.replace(batches=Cyclic(20), steps=5), LOSS, 1.0, delta
    ),
    "optimal schedule": lambda delta: optimal_schedule(
        RUN.replace(steps=2), Loss(smoothness=1.0, strong_convexity=0.5), 1.0, delta
    ),
}


@pytest.mark.parametrize("name", [*ASKED, *PROMISED])
def test_one_in_n_is_said_once_to_whoever_asked(name: str) -> None:
    ask = {**ASKED, **PROMISED}[name]
    with pytest.warns(PrivacyWarning, match="1/100") as seen:
        ask(0.01)
    assert [one.filename for one in seen] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyWarning)
        ask(0.0099)


@pytest.mark.parametrize("name", PROMISED)
@pytest.mark.parametrize("delta", [0.5, 1.0, 0.0, -1.0, float("nan")])
def test_half_is_refused_where_something_is_promised(name: str, delta: float) -> None:
    with pytest.raises(DescriptionError, match="delta"):
        PROMISED[name](delta)


def test_a_selection_refuses_and_warns_once() -> None:
    pytest.importorskip("sklearn")
    from lastiterate.models import PrivateLogisticRegression
    from lastiterate.models.tune import tune

    X, y = np.ones((20, 1)), np.arange(20) % 2
    model = PrivateLogisticRegression(epsilon=5.0, delta=0.05, feature_bound=1.0, classes=(0, 1))
    with pytest.warns(PrivacyWarning) as seen:
        tune(model, {"steps": [2, 3]}, X, y, trials=2.0)
    assert [one.filename for one in seen if "1/20" in str(one.message)] == [__file__]
    for delta in (0.5, 1.0):
        with pytest.raises(DescriptionError, match=r"^delta must be < 0\.5"):
            tune(model.set_params(delta=delta), {"steps": [2]}, X, y)


def command(capsys, *arguments: str) -> tuple[int, str]:
    """The exit code and what stands on stderr."""
    with pytest.raises(SystemExit) as left:
        run(arguments)
    return left.value.code, capsys.readouterr().err


def test_the_command_line(tmp_path, capsys) -> None:
    pytest.importorskip("typer")
    file = tmp_path / "c.json"
    CERTIFICATE.save(file)
    numbers = ("generalize", "--epsilon", "1", "--records", "100", "--delta")
    joint = ("compose", str(file), "--out", str(tmp_path / "new.json"), "--total-delta")
    rounds = ("compose", "--epsilon", "1", "--rounds", "2", "--total-delta")
    advice = ("recommend", "--records", "100", "--dimension", "2", "--epsilon", "1", "--epochs",
              "1", "--delta")  # fmt: skip
    for question in (numbers, joint, rounds, advice):
        code, said = command(capsys, *question, "0.5")
        assert (code, "delta must be < 0.5" in said) == (2, True), (question, said)
    for question in (numbers, joint, advice):
        code, said = command(capsys, *question, "0.02")
        assert (code, said.count("1/100")) == (0, 1), (question, said)
    assert command(capsys, *numbers, "0") == (0, "")
