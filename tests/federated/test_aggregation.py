"""No answer of a client moves the sum by more than the clip, and the divisor never changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lastiterate import Loss
from lastiterate.federated.aggregation import UnusableUpdateError, bounded, flat, next_model
from lastiterate.federated.federation import Federation
from lastiterate.noise import SeededSource

any_double = st.floats(allow_nan=True, allow_infinity=True)


@settings(max_examples=300)
@given(
    answer=arrays(np.float64, 6, elements=any_double),
    start=arrays(np.float64, 6, elements=st.floats(-1e3, 1e3)),
    clip=st.floats(1e-6, 1e6),
)
def test_no_update_is_longer_than_the_clip(answer, start, clip) -> None:
    try:
        vector = bounded({"w": answer}, {"w": start}, clip).vector
    except UnusableUpdateError:
        with np.errstate(over="ignore", invalid="ignore"):
            assert not np.all(np.isfinite(answer - start))
        return
    exact = sum(Fraction(float(x)) ** 2 for x in vector)  # no rounding in the check
    assert exact <= Fraction(clip) ** 2


@settings(max_examples=100)
@given(update=arrays(np.float64, 5, elements=st.floats(-1, 1)), clip=st.floats(0.1, 4.0))
def test_clipping_keeps_the_direction_and_short_updates(update, clip) -> None:
    found = bounded({"w": update}, {"w": np.zeros(5)}, clip)
    length = np.linalg.norm(update)
    expected = update * min(1.0, clip / length) if length else update
    np.testing.assert_allclose(found.vector, expected, rtol=1e-8)
    if abs(length - clip) > 1e-6:
        assert found.clipped == (length > clip)


@pytest.mark.parametrize(
    "answer",
    [
        {"w": np.array([np.nan, 0.0])},
        {"w": np.array([np.inf, 0.0])},
        {"w": np.zeros(3)},
        {"v": np.zeros(2)},
        {},
        {"w": np.array(["a", "b"])},
        {"w": np.zeros(2, dtype=complex)},
        {"w": np.zeros(2), "more": np.zeros(2)},
    ],
)
def test_unusable_answers(answer) -> None:
    with pytest.raises(UnusableUpdateError):
        bounded(answer, {"w": np.zeros(2)}, 1.0)


def test_the_update_is_the_one_described() -> None:
    run = Federation(
        clients=50,
        sampled=10,
        rounds=1,
        clip=3.0,
        noise_multiplier=0.0,
        server_step=0.5,
        local_step=0.2,
        loss=Loss(smoothness=1.0, regularization=0.1),
    )
    model = {"a": np.ones((2, 2)), "b": np.full(1, 2.0)}
    updates = [np.arange(5.0), np.ones(5)]  # two answered of ten: the divisor stays ten
    new = next_model(model, updates, run, SeededSource(0))
    expected = flat(model) * (1 - 0.5 * 0.2 * 0.1) + 0.5 * (np.arange(5.0) + 1) / 10
    np.testing.assert_allclose(flat(new), expected, rtol=1e-14)
    assert new["a"].shape == (2, 2)


def test_noise_has_the_described_size() -> None:
    run = Federation(
        clients=50, sampled=10, rounds=1, clip=3.0, noise_multiplier=2.0, server_step=0.5
    )
    new = next_model({"w": np.zeros(200_000)}, [], run, SeededSource(0))["w"]
    assert np.std(new) == pytest.approx(0.5 * 2.0 * 3.0 / 10, rel=0.01)
    assert np.std(new) == pytest.approx(run.training.noise, rel=0.01)


def test_types_of_the_model_are_kept_and_overflow_is_not_infinite() -> None:
    run = Federation(clients=1, sampled=1, rounds=1, clip=1e30, noise_multiplier=1.0)
    new = next_model({"w": np.zeros(50, dtype=np.float16)}, [], run, SeededSource(0))["w"]
    assert new.dtype == np.float16
    assert np.all(np.isfinite(new))
