"""No answer of a client moves the sum by more than the clip, and the divisor never changes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lastiterate import Loss
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.federated.aggregation import BOX, UnusableUpdateError, bounded, flat, next_model
from lastiterate.federated.federation import Federation
from lastiterate.noise import SecureSource, SeededSource
from lastiterate.noise.rounded import LARGEST_SCALE

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
        adjacency="replace",
    )
    model = {"a": np.ones((2, 2)), "b": np.full(1, 2.0)}
    updates = [np.arange(5.0), np.ones(5)]  # two answered of ten: the divisor stays ten
    new = next_model(model, updates, run, SeededSource(0))
    expected = flat(model) * (1 - 0.5 * 0.2 * 0.1) + 0.5 * (np.arange(5.0) + 1) / 10
    np.testing.assert_allclose(flat(new), expected, rtol=1e-14)
    assert new["a"].shape == (2, 2)


def test_noise_has_the_described_size() -> None:
    run = Federation(
        clients=50,
        sampled=10,
        rounds=1,
        clip=3.0,
        noise_multiplier=2.0,
        server_step=0.5,
        adjacency="replace",
    )
    new = next_model({"w": np.zeros(200_000)}, [], run, SeededSource(0))["w"]
    assert np.std(new) == pytest.approx(0.5 * 2.0 * 3.0 / 10, rel=0.01)
    assert np.std(new) == pytest.approx(run.training.noise, rel=0.01)


def test_types_of_the_model_are_kept_and_overflow_is_not_infinite() -> None:
    run = Federation(
        clients=1, sampled=1, rounds=1, clip=1e30, noise_multiplier=1.0, adjacency="replace"
    )
    new = next_model({"w": np.zeros(50, dtype=np.float16)}, [], run, SeededSource(0))["w"]
    assert new.dtype == np.float16
    assert np.all(np.isfinite(new))


class Fixed(SeededSource):
    """Noise that is the same whatever it is added to."""

    def __init__(self, size: int) -> None:
        super().__init__(0)
        self.drawn = super().rounded_normal(2.0**20, size)

    def rounded_normal(self, scale, shape):
        return self.drawn


@settings(max_examples=200, deadline=None)
@given(
    model=arrays(np.float64, 4, elements=st.floats(-1e4, 1e4)),
    scales=st.lists(st.integers(-40, 0), min_size=2, max_size=12),
    seed=st.integers(0, 2**32 - 1),
    multiplier=st.sampled_from([1e-3, 0.3, 1.0, 40.0]),
    step=st.sampled_from([1.0, 0.3, 1e-6, 7.7]),
)
def test_one_client_moves_the_computed_model_by_what_is_charged(
    model, scales, seed, multiplier, step
) -> None:
    """With the same noise, in exact arithmetic: two neighbours' models and the impulse."""
    rng = np.random.default_rng(seed)
    run = Federation(
        clients=len(scales),
        sampled=len(scales),
        rounds=1,
        clip=1.0,
        noise_multiplier=multiplier,
        server_step=step,
        parameters=4,
        adjacency="replace",
    )
    if np.abs(model).max() > BOX * run.spacing(4):
        model = model / 2.0**40
    raw = [2.0**scale * rng.standard_normal(4) for scale in scales]
    updates = [bounded({"w": u}, {"w": np.zeros(4)}, 1.0).vector for u in raw]
    changed = [bounded({"w": -1e9 * raw[0]}, {"w": np.zeros(4)}, 1.0).vector, *updates[1:]]
    noise = Fixed(4)
    one = next_model({"w": model}, updates, run, noise)["w"]
    other = next_model({"w": model}, changed, run, noise)["w"]
    moved = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(one, other, strict=True))
    charged = run.training.impulse * run.training.step_size + run.training.grid_rounding
    assert moved <= Fraction(charged) ** 2
    for value in one:
        assert Fraction(value) / Fraction(run.spacing(4)) % 1 == 0


def test_models_end_at_the_box_and_begin_inside_of_it() -> None:
    run = Federation(
        clients=1, sampled=1, rounds=1, clip=1.0, noise_multiplier=1.0, adjacency="replace"
    )
    box = BOX * run.spacing(2)
    with pytest.raises(DescriptionError, match="arrays"):
        next_model({"w": np.array([2 * box, 0.0])}, [], run, SecureSource())
    new = next_model({"w": np.array([box, -box])}, [np.array([1.0, -1.0])] * 100, run, Fixed(2))
    assert np.abs(new["w"]).max() <= box
    with pytest.raises(UnsupportedError, match="another unit"):
        run.replace(clip=1e-290).spacing(2)


def test_a_wild_decay_stays_in_the_box() -> None:
    """decay = 1e12: the product leaves the box, and its rounding would be seen in the sum."""
    loss = Loss(smoothness=1.0, regularization=1e12)
    run = Federation(
        clients=2,
        sampled=2,
        rounds=1,
        clip=1.0,
        noise_multiplier=1.0,
        loss=loss,
        adjacency="replace",
    )
    start, noise, box = np.full(3, 1e3), Fixed(3), BOX * run.spacing(3)
    moved = [
        next_model({"w": start}, [np.full(3, share)], run, noise)["w"] for share in (0.5, -0.5)
    ]
    assert np.abs(moved).max() <= box
    assert np.linalg.norm(moved[0] - moved[1]) <= run.training.impulse * run.training.step_size


@pytest.mark.parametrize("multiplier", [0.01, 1.0, 300.0])
def test_knowing_the_size_never_costs_more(multiplier) -> None:
    """And the grid fits every size: finer for more parameters, never finer than can be drawn."""
    run = Federation(
        clients=50, sampled=9, rounds=1, clip=3.0, noise_multiplier=multiplier, adjacency="replace"
    )
    for size in (1, 2, 3, 1000, 2**20 + 1, 2**34):
        known = run.replace(parameters=size).training
        unknown = run.training
        assert (
            known.impulse * known.step_size + known.grid_rounding
            <= unknown.impulse * unknown.step_size
        )
        assert known.noise / run.spacing(size) <= LARGEST_SCALE
    with pytest.raises(DescriptionError, match="parameters"):
        run.replace(parameters=0)
