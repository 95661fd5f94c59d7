"""Scattering coefficients: rows that are short whatever the image, nothing learnt."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
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
    assert max(squares) <= 1
    assert all(length > 0.99 for length in squares[:14])
    assert not rows[14].any()


def test_an_image_is_transformed_by_itself_and_its_scale_does_not_count(digits: Any) -> None:
    X, _ = digits
    made = ScatteringFeatures(scale=1).fit(X)
    together = made.transform(X[:20])
    alone = np.vstack([made.transform(X[k : k + 1] * 2.0**k) for k in range(20)])
    np.testing.assert_allclose(alone, together, atol=1e-5)
    other = ScatteringFeatures(scale=1).fit(np.zeros((1, 64)))  # nothing was learnt
    assert np.array_equal(other.transform(X[:20]), together)


def test_channels_are_kymatios_each_group_standardised() -> None:
    from kymatio.scattering2d.frontend.numpy_frontend import ScatteringNumPy2D

    image = np.random.default_rng(0).uniform(size=(1, 16, 24))
    theirs = ScatteringNumPy2D(J=2, shape=(16, 24), L=4)((image / image.max()).astype(np.float32))
    made = ScatteringFeatures((16, 24), angles=4).fit(image.reshape(1, -1))
    rows = made.transform(image.reshape(1, -1))
    assert rows.shape == (1, theirs.size) == (1, len(made.get_feature_names_out()))
    ours = rows.reshape(theirs.shape)[0]
    for first in range(0, theirs.shape[1], 3):
        group, own = theirs[0, first : first + 3], ours[first : first + 3]
        deviations = (group - group.mean()) / group.std()
        slope = (own * deviations).sum() / (deviations**2).sum()
        np.testing.assert_allclose(own, slope * deviations, atol=2e-4)
        assert slope * math.sqrt(theirs.size) == pytest.approx(1, abs=0.02)


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
