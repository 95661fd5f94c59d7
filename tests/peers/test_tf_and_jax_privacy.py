"""Values that the tests of TF Privacy (0.9.0) and jax_privacy (2.0.0) expect, as facts.

TF Privacy: privacy/analysis/compute_dp_sgd_privacy_test; jax_privacy: accounting/analysis_test. By
distributions (PLD) they are ours; by Renyi divergences (RDP) they are upper bounds. Microbatches
double the sensitivity there.
"""

from __future__ import annotations

import math

import pytest

from lastiterate import Loss, Poisson, PrivacyUnit, Training, WithoutReplacement, account
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.renyi import Linear, Renyi

GRID = 3e-5  # relative: what the grid of our distributions may add

# epochs, shift over noise, delta -> by PLD, by RDP; a record once per epoch, 2 and 5 passes
ORDERED = [
    (2, 1 / 0.7, 1e-5, 10.1224946, 10.8602036),
    (2, 2 / 0.7, 1e-5, 24.7160779, 26.2880374),
    (5, 1.0, 1e-6, 12.595, 13.376),
]


@pytest.mark.parametrize(("epochs", "shift", "delta", "pld", "rdp"), ORDERED)
def test_a_record_once_per_epoch(epochs, shift, delta, pld, rdp):
    digits = 5e-4 if pld == 12.595 else 5e-6
    assert gaussian.epsilon(math.sqrt(epochs) * shift, delta) == pytest.approx(pld, abs=digits)
    by_renyi = Renyi(Linear(epochs * shift**2 / 2)).epsilon(delta)
    assert pld < by_renyi <= rdp + digits  # they search among fewer orders


# rate, noise, steps, delta -> by PLD (None: not stated), by RDP
SAMPLED = [
    (0.01, 0.7, 120, 1e-5, 2.4612381, 3.2391922),
    (0.01, 0.35, 120, 1e-5, 18.6977407, 22.5970358),
    (0.0064, 1.0, 782, 1e-6, 1.199, 1.616),
    (1024 / 50_000, 4.0, 10_000, 1e-5, 2.09245, 2.27535),
    (150 / 60_000, 1.3, 6_000, 1e-5, None, 0.7242234026109595),
    (0.001, 1.0, 30_000, 1e-7, None, 1.4154988495444845),
]


@pytest.mark.parametrize(("rate", "noise", "steps", "delta", "pld", "rdp"), SAMPLED)
def test_poisson_batches(rate, noise, steps, delta, pld, rdp):
    epsilon = LossDistribution.sampled_gaussian(rate, 1 / noise).self_compose(steps).epsilon(delta)
    assert 0.6 * rdp < epsilon < rdp
    if pld is not None:
        assert epsilon == pytest.approx(pld, rel=GRID, abs=5e-4 if pld == 1.199 else 2e-5)


def run(noise, batches, **settings):
    return Training.dp_sgd(
        records=50_000,
        steps=10_000,
        step_size=0.1,
        noise_multiplier=noise,
        clip=1.0,
        batches=batches,
        **settings,
    )


def test_batches_of_a_fixed_size():
    """Twice the noise for a replaced record: 2.27535 there, as of Poisson batches, by Renyi.

    Ours composes a pair that bounds a step in both orders, which costs a percent more.
    """
    told = run(8.0, WithoutReplacement(1024), adjacency="replace")
    assert 2.09245 < account(told, Loss.unknown()).epsilon(1e-5) < 1.015 * 2.27535


def test_two_records_of_a_person():
    """5.00008 there, on a grid of 0.01 that rounds up in each of 10,000 steps; on one of 0.001
    dp-accounting itself is within a promille of ours."""
    told = run(4.0, Poisson(1024 / 50_000))
    epsilon = account(told, Loss.unknown(), unit=PrivacyUnit(records=2)).epsilon(1e-5)
    assert 2 * 2.09245 < epsilon < 5.00008
    pytest.importorskip("dp_accounting")
    from dp_accounting.dp_event import MixtureOfGaussiansDpEvent
    from dp_accounting.pld import PLDAccountant

    q = 1024 / 50_000
    both = MixtureOfGaussiansDpEvent(4.0, [0.0, 1.0, 2.0], [(1 - q) ** 2, 2 * q * (1 - q), q**2])
    finer = PLDAccountant(value_discretization_interval=1e-3).compose(both, 10_000)
    assert 0.999 * finer.get_epsilon(1e-5) < epsilon <= finer.get_epsilon(1e-5)
