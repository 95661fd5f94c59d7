"""Tables of privacy by iteration: Bok, Su & Altschuler 2024, and the tutorial of TF Privacy.

The first are the closed forms that fill Tables 1, 3, 7 to 12 and Figures 6 and 8 of the paper, as
its repository (jinhobok/shifted_interpolation_dp) computes them; the second is what
mnist_lr_tutorial.py prints for the share of samples that enjoys an epsilon, by Theorem 34 of
Feldman et al. 2018.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.renyi import Linear, Renyi

ROOM = 1e-9


def full_batch(mu, contraction, steps):
    """n·sigma/L = 1/mu: the shift of one step is mu times its noise."""
    return Training(
        records=1,
        steps=steps,
        step_size=1.0,
        noise=1.0,
        gradient_norm=mu,
        batches=FullBatch(),
        adjacency="zero-out",
    ), Loss(smoothness=1 - contraction, strong_convexity=1 - contraction)


@pytest.mark.parametrize("steps", [10, 100, 1000])
@pytest.mark.parametrize("contraction", [0.92, 0.96, 0.98, 0.99, 0.995])
def test_noisy_gradient_descent_table(contraction, steps):
    """Table 7, and the values behind Figure 6 (delta 1e-3 and 1e-5)."""
    power = contraction**steps
    table = 0.1 * math.sqrt((1 - power) / (1 + power) * (1 + contraction) / (1 - contraction))
    guarantee = account(*full_batch(0.1, contraction, steps))
    assert guarantee.mu == pytest.approx(table, rel=1e-9)
    for delta in (1e-3, 1e-5):
        assert min(b.curve.epsilon(delta) for b in guarantee.bounds) == pytest.approx(
            gaussian.epsilon(table, delta), rel=1e-8
        )


@pytest.mark.parametrize("steps", [10, 20, 40, 80, 160, 320, 640])
def test_composition_column(steps):
    guarantee = account(full_batch(0.1, 0.99, steps)[0], Loss.unknown())
    assert guarantee.mu == pytest.approx(0.1 * math.sqrt(steps), rel=1e-9)


def cyclic(mu, contraction, batches, epochs):
    return Training(
        records=batches,
        steps=batches * epochs,
        step_size=1.0,
        noise=1.0,
        gradient_norm=mu,
        batches=Cyclic(1),
        adjacency="zero-out",
    ), Loss(smoothness=1 - contraction, strong_convexity=1 - contraction)


@pytest.mark.parametrize(
    ("mu", "contraction", "batches", "epochs"),
    [
        *((0.2, c, b, e) for c in (0.98, 0.99, 0.995) for b in (10, 20, 40) for e in (5, 50, 500)),
        *((2 / 3, c, 40, e) for c in (0.9999, 0.9998) for e in (50, 100, 200)),
    ],
)
def test_cyclic_batches_table(mu, contraction, batches, epochs):
    """Tables 1, 3 and 9: theirs is one bound for every position, ours that of the worst one."""
    table = table_of_cycles(mu, contraction, batches, epochs)
    guarantee = account(*cyclic(mu, contraction, batches, epochs))
    assert guarantee.mu <= table * (1 + ROOM)
    assert guarantee.mu >= mu  # the last step of the record is there for everybody to see
    assert guarantee.mu > 0.9 * table


def table_of_cycles(mu, c, b, epochs):
    """What Tables 1, 3 and 9 and Figure 8 hold."""
    last = c ** (b * (epochs - 1))
    earlier = c ** (2 * b - 2) * (1 - c**2) / (1 - c**b) ** 2 * (1 - last) / (1 + last)
    return mu * math.sqrt(1 + earlier)


@pytest.mark.parametrize("epochs", [5, 10, 20, 40, 80, 160, 320])
@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_epsilon_of_cyclic_batches(epochs, delta):
    """Figure 8: contraction 0.99, 20 batches, L/(b sigma) = 0.2; and its composition curve."""
    run, loss = cyclic(0.2, 0.99, 20, epochs)
    found = account(run, loss).epsilon(delta)
    theirs = gaussian.epsilon(table_of_cycles(0.2, 0.99, 20, epochs), delta)
    assert 0.9 * theirs < found <= theirs * (1 + ROOM)
    composed = account(run, Loss.unknown()).epsilon(delta)
    assert composed == pytest.approx(gaussian.epsilon(0.2 * math.sqrt(epochs), delta), rel=1e-8)


@pytest.mark.parametrize("epochs", [50, 100, 200])
@pytest.mark.parametrize("contraction", [0.9999, 0.9998])
def test_renyi_column_of_logistic_regression(contraction, epochs):
    """Table 1: the bound by Renyi divergences for the same run is above the f-DP one, and ours."""
    mu, c, b = 2 / 3, contraction, 40
    rho = 1 + c ** (b - 2) * (1 - c**2) / (1 - c**b) ** 2 * (1 - c ** (b * (epochs - 1)))
    by_renyi = Renyi(Linear(mu**2 / 2 * rho)).epsilon(1e-5)
    theirs = gaussian.epsilon(table_of_cycles(mu, c, b, epochs), 1e-5)
    assert account(*cyclic(mu, c, b, epochs)).epsilon(1e-5) <= theirs * (1 + ROOM) < by_renyi


def constrained(lipschitz, eta, deviation, batches, steps):
    """Diameter 1; L/n or L/b is ``lipschitz``, and the noise of an update eta·deviation."""
    scheme = FullBatch() if batches == 1 else Cyclic(1)
    run = Training(
        records=batches,
        steps=steps,
        step_size=eta,
        noise=eta * deviation,
        gradient_norm=lipschitz,
        batches=scheme,
        diameter=1.0,
        adjacency="zero-out",
    )
    return account(run, Loss(smoothness=1.0))


@pytest.mark.parametrize("lipschitz", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("eta", [0.2, 0.1, 0.05])
def test_constrained_descent_table(lipschitz, eta):
    """Table 8: the plateau and when it is reached, sigma = 8."""
    square = 3 * lipschitz / eta + lipschitz**2 * math.ceil(1 / (lipschitz * eta))
    table, reached = math.sqrt(square) / 8, math.ceil(square / lipschitz**2)
    guarantee = constrained(lipschitz, eta, 8.0, 1, 4 * reached)
    composed = lipschitz / 8 * math.sqrt(4 * reached)
    for delta in (1e-3, 1e-5):
        theirs = gaussian.epsilon(min(table, composed), delta)
        assert gaussian.epsilon(lipschitz / 8, delta) < guarantee.epsilon(delta) <= theirs


@pytest.mark.parametrize("batches", [10, 20, 40])
@pytest.mark.parametrize("eta", [0.04, 0.02, 0.01])
@pytest.mark.parametrize("lipschitz", [0.25, 0.5, 1.0])
def test_constrained_cyclic_tables(lipschitz, eta, batches):
    """Tables 10 to 12, sigma = 3: ours is below, and never below the record's last step."""
    square = 3 * lipschitz / (eta * batches) + lipschitz**2
    square += lipschitz**2 / batches * math.ceil(1 / (lipschitz * eta))
    epochs = 4 * math.ceil(square / lipschitz**2)
    guarantee = constrained(lipschitz, eta, 3.0, batches, batches * epochs)
    assert lipschitz / 3 <= guarantee.mu * (1 + ROOM)
    assert guarantee.mu <= math.sqrt(square) / 3


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99])
def test_shares_of_the_tutorial(share):
    """MNIST, rows of norm 8, noise multiplier 0.05, batches of 5 in a fixed order, 5 epochs."""
    records, batch, epochs, multiplier = 60_000, 5, 5, 0.05
    length = math.sqrt(2 * (8**2 + 1))
    run = Training(
        records=records,
        steps=epochs * records // batch,
        step_size=0.001,
        noise=0.001 * multiplier * length,
        gradient_norm=length,
        batches=Cyclic(batch),
        adjacency="replace",
    )
    per_epoch = records // batch
    place = math.ceil(per_epoch * share)
    coefficient = (epochs - 1) / per_epoch + 1 / (per_epoch - place + 1)
    coefficient *= 2 / (multiplier * batch) ** 2
    orders = np.concatenate([np.linspace(2, 20, 181), np.linspace(20, 100, 81)])
    printed = np.min(
        orders * coefficient
        + np.log1p(-1 / orders)
        - (math.log(1e-5) + np.log(orders)) / (orders - 1)
    )
    guarantee = account(run, Loss(smoothness=0.25 * 65))
    found = guarantee.epsilon_quantile(share)
    assert found <= printed
    assert found > 0.5 * printed
    assert guarantee.epsilon_quantile(1.0) == pytest.approx(guarantee.epsilon(1e-5))
