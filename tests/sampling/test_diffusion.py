"""Langevin diffusion and its tracing version against their exact Gaussian laws."""

import numpy as np
import pytest
from scipy.linalg import expm

from lastiterate.errors import DescriptionError
from lastiterate.sampling import langevin_diffusion

H = np.array([[2.0, 0.6], [0.6, 1.0]])
CENTRE = np.array([1.0, -2.0])
PARTICLES = 20_000


def gradient(theta):
    return (theta - CENTRE) @ H


def assert_law(states, mean, cov):
    m = len(states)
    assert np.all(np.abs(states.mean(0) - mean) < 4.5 * np.sqrt(np.diag(cov) / m))
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / m)
    assert np.all(np.abs(np.cov(states.T) - cov) < 4.5 * error)


def test_euler_maruyama_has_its_exact_discrete_law_at_every_time() -> None:
    start, sigma, dt = np.array([3.0, 0.0]), 0.7, 0.1
    path = langevin_diffusion(
        gradient,
        np.tile(start, (PARTICLES, 1)),
        time=1.2,
        substeps=12,
        sigma=sigma,
        random_state=0,
    )
    mean, cov, step = start - CENTRE, np.zeros((2, 2)), np.eye(2) - dt * H
    for k in range(1, 13):
        mean, cov = step @ mean, step @ cov @ step + 2 * dt * sigma**2 * np.eye(2)
        assert_law(path.states[k], mean + CENTRE, cov)
    assert path.times[-1] == pytest.approx(1.2)


def test_fine_steps_reach_the_ornstein_uhlenbeck_law() -> None:
    start, sigma, time = np.array([3.0, 0.0]), 0.7, 0.8
    path = langevin_diffusion(
        gradient,
        np.tile(start, (PARTICLES, 1)),
        time=time,
        substeps=600,
        sigma=sigma,
        random_state=1,
    )
    decay = expm(-time * H)
    cov = sigma**2 * (np.eye(2) - decay @ decay) @ np.linalg.inv(H)
    assert_law(path.last, decay @ (start - CENTRE) + CENTRE, cov)


def test_tracing_diffusion_passes_through_noisy_gradient_descent() -> None:
    """Exact at multiples of the step size whatever the substeps, and known in between."""
    start, sigma, eta = np.array([3.0, 0.0]), 0.5, 0.3
    path = langevin_diffusion(
        gradient,
        np.tile(start, (PARTICLES, 1)),
        time=0.9,
        substeps=9,
        sigma=sigma,
        step_size=eta,
        random_state=2,
    )
    mean, cov, step = start - CENTRE, np.zeros((2, 2)), np.eye(2) - eta * H
    for k in range(1, 4):
        inner = np.eye(2) - eta / 3 * H  # one third into the step: gradient still the old one
        third = inner @ cov @ inner + 2 * eta / 3 * sigma**2 * np.eye(2)
        assert_law(path.states[3 * k - 2], inner @ mean + CENTRE, third)
        mean, cov = step @ mean, step @ cov @ step + 2 * eta * sigma**2 * np.eye(2)
        assert_law(path.states[3 * k], mean + CENTRE, cov)


def test_coupled_pair_jumps_by_the_half_sum_and_drifts_by_the_half_difference() -> None:
    eta, start = 0.3, np.array([[3.0, 0.0]])

    def neighbour(theta):
        return (theta + 1) @ H

    kinds = {"time": eta, "substeps": 3, "step_size": eta, "sigma": 0.0}
    one = langevin_diffusion(gradient, start, neighbour=neighbour, **kinds)
    other = langevin_diffusion(neighbour, start, neighbour=gradient, **kinds)
    half_sum = (gradient(start) + neighbour(start)) / 2
    half_difference = (gradient(start) - neighbour(start)) / 2
    for k in range(1, 4):
        np.testing.assert_allclose(
            one.states[k], start - eta * half_sum - k / 3 * eta * half_difference
        )
        np.testing.assert_allclose(
            one.states[k] - other.states[k], -2 * k * eta / 3 * half_difference
        )
    np.testing.assert_allclose(one.last, start - eta * gradient(start))


@pytest.mark.parametrize(
    "change", [{"time": 0.0}, {"substeps": 0}, {"sigma": -1.0}, {"step_size": 0.25}]
)
def test_bad_settings_are_refused(change) -> None:
    with pytest.raises(DescriptionError, match=next(iter(change))):
        langevin_diffusion(gradient, np.zeros(2), **({"time": 1.0, "substeps": 10} | change))
    with pytest.raises(DescriptionError, match="step_size"):
        langevin_diffusion(gradient, np.zeros(2), time=1.0, substeps=2, neighbour=gradient)
