"""Scattering coefficients: rows that are short whatever the image, nothing learnt."""

from __future__ import annotations

import math
import pickle
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.linalg import sqrtm
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline

from lastiterate.errors import DescriptionError, MissingExtraError
from lastiterate.models import PrivateSoftmaxRegression, ScatteringFeatures, certificate_of


@pytest.fixture(scope="module")
def digits() -> tuple[np.ndarray, np.ndarray]:
    return load_digits(return_X_y=True)


def test_rows_are_no_longer_than_one_whatever_the_image() -> None:
    rng = np.random.default_rng(0)
    images = np.vstack(
        [
            rng.uniform(0, 1, (4, 64)) * 10.0 ** rng.integers(-300, 300, (4, 1)),
            rng.normal(size=(4, 64)) * 10.0 ** rng.uniform(-9, 9, (4, 64)),
            np.eye(64)[:4],
            np.full((1, 64), 1.7e308),
            np.full((1, 64), 5e-324),
            np.zeros((1, 64)),
            np.where(rng.uniform(size=(2, 64)) < 0.5, -1e308, 1e308),
        ]
    )
    rows = ScatteringFeatures(scale=1).fit(images[:1]).transform(images)
    assert rows.dtype == np.float32
    assert np.isfinite(rows).all()
    squares = [sum(Fraction(float(v)) ** 2 for v in row) for row in rows]
    assert 0.99 < min(squares) <= max(squares) <= 1


@pytest.mark.parametrize(("side", "scale"), [(2, 1), (4, 2), (8, 3)])
def test_images_of_a_single_square_have_rows_too(side: int, scale: int) -> None:
    images = np.random.default_rng(0).uniform(size=(5, side**2))
    rows = ScatteringFeatures(scale=scale, angles=2).fit_transform(images)
    assert np.isfinite(rows).all()
    assert (abs(np.linalg.norm(rows, axis=1) - 1) < 1e-4).all()


def test_an_image_is_transformed_by_itself_and_its_scale_does_not_count(digits: Any) -> None:
    X, _ = digits
    made = ScatteringFeatures(scale=1).fit(X)
    together = made.transform(X[:20])
    alone = np.vstack([made.transform(X[k : k + 1] * 2.0**k) for k in range(20)])
    np.testing.assert_allclose(alone, together, atol=1e-5)
    other = ScatteringFeatures(scale=1).fit(np.zeros((1, 64)))  # nothing was learnt
    assert np.array_equal(other.transform(X[:20]), together)
    assert np.array_equal(pickle.loads(pickle.dumps(made)).transform(X[:20]), together)


def standardised(images: np.ndarray) -> np.ndarray:
    """Kymatio's channels, every three of them standardised; rows of norm 1."""
    from kymatio.scattering2d.frontend.numpy_frontend import ScatteringNumPy2D

    brightest = images.max(axis=(1, 2), keepdims=True)
    channels = ScatteringNumPy2D(J=1, shape=(8, 12), L=4)((images / brightest).astype(np.float32))
    groups = [
        (group - np.mean(group)) / (np.std(group) + 1e-5)
        for image in channels.astype(float)
        for group in (image[:3], image[3:])
    ]
    rows = np.concatenate([group.ravel() for group in groups]).reshape(len(images), -1)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def smooth_noise(count: int, seed: int) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 8, 12))
    across, down = np.meshgrid(np.fft.fftfreq(12), np.fft.fftfreq(8))
    power = (across**2 + down**2) ** 0.75
    power[0, 0] = math.inf
    smooth = np.fft.ifft2(np.fft.fft2(drawn) / power).real
    return np.clip(smooth / smooth.std(axis=(1, 2), keepdims=True) - 0.5, 0.0, 1.5)


def test_rows_are_kymatios_channels_without_what_images_of_noise_share() -> None:
    images = np.random.default_rng(1).uniform(size=(6, 8, 12))
    rows = ScatteringFeatures((8, 12), scale=1, angles=4).fit_transform(images.reshape(6, -1))
    noise = smooth_noise(2000, seed=0)
    mean = standardised(noise).mean(axis=0)
    centred = standardised(noise) - mean
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    variances = centred.T @ centred
    largest = np.linalg.eigvalsh(variances)[-1]
    root = sqrtm(np.eye(len(mean)) + variances / (0.003 * largest))
    expected = np.linalg.solve(root, (standardised(images) - mean).T).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=2e-4)


def test_other_images_of_noise_vary_evenly_around_zero() -> None:
    images = smooth_noise(300, seed=5)
    made = ScatteringFeatures((8, 12), scale=1, angles=4).fit_transform(images.reshape(300, -1))
    before, after = (np.linalg.svd(rows)[1] ** 2 / 300 for rows in (standardised(images), made))
    assert before[0] > 0.1 > 2 * after[0]
    assert np.linalg.norm(made.mean(axis=0)) < 0.15


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (4, 8)},
        {"shape": (8, 8, 1)},
        {"shape": "88"},
        {"shape": (8.0, 8.0)},
        {"shape": (-8, -8)},
        {"shape": (2, 32)},
        {"scale": 4},
        {"scale": 0},
        {"scale": 1.5},
        {"angles": 0},
    ],
)
def test_shapes_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(DescriptionError):
        ScatteringFeatures(**wrong).fit(np.zeros((2, 64)))


@pytest.mark.parametrize("cell", [math.nan, math.inf])
def test_images_with_holes_are_refused(cell: float) -> None:
    with pytest.raises(ValueError, match=r"NaN|inf"):
        ScatteringFeatures(scale=1).fit(np.zeros((2, 64))).transform(np.full((1, 64), cell))


def test_a_pipeline_has_the_certificate_of_its_model(digits: Any) -> None:
    X, y = digits
    pipeline = make_pipeline(
        ScatteringFeatures(scale=1),
        PrivateSoftmaxRegression(
            4.0, 1e-5, classes=range(10), feature_bound=1.0, fit_intercept=False
        ),
    )
    assert certificate_of(pipeline.fit(X, y)).epsilon <= 4.0
    assert pipeline.score(X, y) > 0.85


def test_without_kymatio_the_extra_is_named(monkeypatch: Any) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "kymatio"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kymatio", None)  # as Python marks what is not there
    with pytest.raises(MissingExtraError, match=r"lastiterate\[scattering\]"):
        ScatteringFeatures().fit([[1.0]])
