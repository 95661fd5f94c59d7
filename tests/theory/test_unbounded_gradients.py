"""Runs whose gradients nobody bounds: only the change that one record makes is known.

The exact law: on [-D/2, D/2] the update sends x to A·sign(x) ± s/2 before its noise, whatever A is.
The two runs' gradients differ by S_g everywhere and are as long as A/step_size. The sign of the
iterate is a Markov chain on two states, so that its law after any number of steps is closed.
"""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from lastiterate import (
    AssumptionError,
    Cyclic,
    DescriptionError,
    FullBatch,
    Loss,
    Shuffled,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.accounting.utility import excess_risk
from lastiterate.description import Batches
from lastiterate.theory import THEOREMS, inapplicable_reason
from lastiterate.theory.run import Run

MISSING = "gradient_norm"


def sign_is_positive(height: float, drift: float, noise: float, steps: int) -> float:
    """P(x > 0) at the end, started at the positive end, drift towards it."""
    falls = float(ndtr(-(height + drift) / noise))
    rises = float(ndtr(-(height - drift) / noise))
    settled = rises / (rises + falls)
    memory = math.exp(steps * math.log1p(-rises - falls)) if rises + falls < 1 else 0.0
    return settled + (1 - settled) * memory


def true_delta(run: Training, height: float, epsilon: float) -> float:
    """A delta that this loss really has: the event that the iterate is positive."""
    drift = float(run.step_size) * run.sensitivity / run.records / 2  # type: ignore[arg-type]
    noise = float(run.noise)  # type: ignore[arg-type]
    p, q = (sign_is_positive(height, side * drift, noise, run.steps) for side in (1, -1))
    return p - math.exp(epsilon) * q


def langevin(**changes: object) -> Training:
    fields: dict[str, object] = {
        "records": 1,
        "steps": 10**7,
        "step_size": 1.0,
        "sigma": math.sqrt(0.5),
        "gradient_sensitivity": 1.0,
        "diameter": 0.01,
    }
    return Training.langevin(**({"adjacency": "replace"} | fields | changes))  # type: ignore[arg-type]


def test_a_sensitivity_is_no_bound_on_gradients() -> None:
    """.187 was reported here; the loss above, with A = 5, has .883."""
    run = langevin()
    truth = true_delta(run, 5.0, 3.0)
    assert truth == pytest.approx(0.883, abs=1e-3)
    assert run.gradient_norm == math.inf
    assert run.sensitivity == 1.0
    assert account(run, Loss.unknown()).delta(3.0) >= truth


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.5, 7.0),
    st.floats(0.1, 3.0),
    st.floats(1e-3, 2.0),
    st.integers(1, 10**7),
    st.floats(0.0, 4.0),
    st.sampled_from(["unknown", "rough"]),
    st.booleans(),
)
def test_never_below_the_exact_law(
    height: float, change: float, diameter: float, steps: int, epsilon: float, kind: str, told: bool
) -> None:
    height = max(height, diameter / 2)
    loss = Loss.unknown() if kind == "unknown" else Loss.nonconvex(smoothness=math.inf)
    longest = {"gradient_norm": height + change / 2} if told else {}
    run = langevin(steps=steps, gradient_sensitivity=change, diameter=diameter, **longest)
    truth = true_delta(run, height, epsilon)
    assert account(run, loss).delta(epsilon) >= truth * (1 - 1e-9)


@pytest.mark.parametrize(
    "loss", [Loss.unknown(), Loss(math.inf), Loss.nonconvex(smoothness=math.inf)]
)
@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(2), Shuffled(2)])
def test_theorems_that_need_the_norm_say_so(loss: Loss, batches: Batches) -> None:
    run = Training.langevin(
        records=4,
        steps=6,
        step_size=0.1,
        sigma=1.0,
        gradient_sensitivity=1.0,
        diameter=1.0,
        batches=batches,
        adjacency="replace",
    )
    told = run.replace(gradient_norm=0.5)
    table = compare(run, loss)
    assert [row.theorem.hidden_state for row in table] == [False] * len(table)
    for theorem in THEOREMS:  # whatever speaks once the norm is there names it when it is not
        if inapplicable_reason(theorem, Run(told, loss)) is None and theorem.hidden_state:
            assert MISSING in str(inapplicable_reason(theorem, Run(run, loss)))


def test_a_smooth_loss_needs_no_norm() -> None:
    for loss in (Loss(1.0, 0.5), Loss.nonconvex(smoothness=1.0)):
        run = Training.langevin(
            records=10,
            steps=50,
            step_size=0.1,
            sigma=1.0,
            gradient_sensitivity=2.0,
            adjacency="replace",
        )
        told = run.replace(gradient_norm=1.0)
        assert account(run, loss).epsilon(1e-5) == account(told, loss).epsilon(1e-5)
    rough = Loss.holder(constant=1.0, exponent=0.5)
    run = run.replace(diameter=1.0)
    without, with_ = account(run, rough), account(run.replace(gradient_norm=1.0), rough)
    assert with_.epsilon(1e-5) <= without.epsilon(1e-5) * (1 + 1e-6)
    assert account(run, Loss.unknown()).epsilon(1e-5) >= without.epsilon(1e-5) * (1 - 1e-6)


@pytest.mark.parametrize(
    "loss",
    [Loss(1.0, 1.0), Loss.holder(constant=1.0, exponent=0.5), Loss.unknown(), Loss(math.inf)],
)
@pytest.mark.parametrize("step_size", [0.1, [0.1, 0.0, 0.1, 0.2]])
def test_certificates_without_a_norm(loss: Loss, step_size: object) -> None:
    run = langevin(records=10, steps=4, step_size=step_size, diameter=2.0, sigma=1.0)
    certificate = certify(run, loss, 1e-5)
    assert verify(certificate)
    again = type(certificate).from_json(certificate.to_json())
    assert again.training == run
    assert again.training.gradient_norm == math.inf


def test_every_form_of_text_keeps_it() -> None:
    run = langevin()
    for again in (
        Training.from_json(run.to_json()),
        Training.from_toml(run.to_toml()),
        Training.from_dict({k: v for k, v in run.to_dict().items() if k != "gradient_norm"}),
    ):
        assert again == run
        assert again.sensitivity == 1.0
        assert again.gradient_norm == math.inf
    assert "unbounded norm" in str(run)


@pytest.mark.parametrize(
    "changes",
    [
        {"sensitivity": None},
        {"sensitivity": math.inf},
        {"sensitivity": math.nan},
        {"clipping": "gradient"},
        {"clipping": "margin"},
        {"adjacency": "zero-out"},
    ],
)
def test_nothing_else_may_be_infinite(changes: dict[str, object]) -> None:
    with pytest.raises(DescriptionError):
        langevin().replace(**changes)


def test_both_may_be_given_and_must_agree() -> None:
    run = langevin(gradient_norm=3.0)
    assert (run.gradient_norm, run.sensitivity) == (3.0, 1.0)
    assert langevin(gradient_norm=0.5).declared_sensitivity is None
    with pytest.raises(DescriptionError):
        langevin(gradient_norm=0.4)  # two gradients that short do not differ by 1
    with pytest.raises(TypeError, match="sensitivity"):
        langevin(sensitivity=0.5)
    removed = langevin(adjacency="zero-out")  # the change is the record's own gradient
    assert (removed.gradient_norm, removed.sensitivity) == (1.0, 1.0)


def test_utility_asks_for_the_norm() -> None:
    run = Training.langevin(
        records=100,
        steps=20,
        step_size=0.05,
        sigma=0.1,
        gradient_sensitivity=2.0,
        adjacency="replace",
    )
    with pytest.raises(AssumptionError, match=MISSING):
        excess_risk(run, Loss(1.0, 0.1), 3)


def test_trainers_ask_for_the_norm() -> None:
    import numpy as np

    from lastiterate.audit.shadow.linear import LinearCohort
    from lastiterate.losses import Logistic
    from lastiterate.train import noisy_descent

    run = langevin(records=2, steps=3)
    X, y = np.eye(2), np.array([1.0, -1.0])
    with pytest.raises(AssumptionError, match=MISSING):
        noisy_descent(Logistic(), X, run, labels=y)
    with pytest.raises(AssumptionError, match=MISSING):
        noisy_descent(lambda theta, rows: X[rows], None, run, start=np.zeros(2))
    with pytest.raises(AssumptionError, match=MISSING):
        LinearCohort(Logistic(), run)
