"""The private scaler: what it releases, what it costs, and how the cost joins the model's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from lastiterate.certificate import verify
from lastiterate.curves import gaussian
from lastiterate.errors import CertificateError, DescriptionError, UnsupportedError
from lastiterate.models import (
    PrivateLogisticRegression,
    PrivateStandardScaler,
    certificate_of,
)


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal([10.0, -3.0], [2.0, 0.5], (20_000, 2))
    return X, (X[:, 0] > 10).astype(int)


RANGES: dict[str, Any] = {"low": [0.0, -6.0], "high": [20.0, 0.0]}


def test_statistics_are_near_the_truth(data: Any) -> None:
    X, _ = data
    scaler = PrivateStandardScaler(1.0, 1e-6, **RANGES, random_state=0).fit(X)
    assert scaler.mean_ == pytest.approx([10.0, -3.0], abs=0.05)
    assert scaler.scale_ == pytest.approx([2.0, 0.5], rel=0.05)
    out = scaler.transform(X)
    assert out.mean(axis=0) == pytest.approx([0, 0], abs=0.05)
    assert out.std(axis=0) == pytest.approx([1, 1], abs=0.05)


def test_means_that_are_drawn_together_are_nearer_to_the_truth() -> None:
    """Random tables of truths: less error where noise is large, hardly another where it is not."""
    rng = np.random.default_rng(0)
    for records, columns in [(200, 30), (300, 120), (20_000, 5)]:
        X = (rng.random((records, columns)) < rng.beta(2, 8, columns)).astype(float)
        wrong = []
        for together in (False, True):
            told: dict[str, Any] = {"low": 0.0, "high": 1.0, "together": together}
            fits = (
                PrivateStandardScaler(0.5, 1e-5, **told, random_state=k).fit(X) for k in range(4)
            )
            truth = np.concatenate([X.mean(axis=0), X.std(axis=0)])
            wrong.append(
                np.mean([(np.append(each.mean_, each.deviation_) - truth) ** 2 for each in fits])
            )
        apart, drawn = wrong
        assert drawn < (0.8 if records < 1000 else 1.05) * apart


def test_no_record_contributes_more_than_the_bound() -> None:
    """(v, v² − 1/2) for v in [−1, 1] is longest at the ends: √(5/4)."""
    v = np.linspace(-1, 1, 100_001)
    assert np.hypot(v, v**2 - 0.5).max() == pytest.approx(math.sqrt(1.25))
    X = np.full((10, 3), 1e9)
    scaler = PrivateStandardScaler(1.0, 1e-3, random_state=0).fit(X)
    assert scaler.training_.gradient_norm == pytest.approx(math.sqrt(3 * 1.25))


@pytest.mark.parametrize(("adjacency", "times"), [("zero-out", 1), ("replace", 2)])
def test_the_noise_is_that_of_the_gaussian_mechanism(adjacency: str, times: int) -> None:
    X = np.zeros((50, 2))
    scaler = PrivateStandardScaler(0.5, 1e-4, adjacency=adjacency, random_state=0).fit(X)
    nu = float(scaler.training_.noises[0])
    sensitivity = times * math.sqrt(2 * 1.25) / 50
    assert nu == pytest.approx(sensitivity / gaussian.mu(0.5, 1e-4), rel=2e-3)
    assert nu >= sensitivity / gaussian.mu(0.5, 1e-4) * (1 - 1e-12)


def test_the_cost_joins_the_certificate(data: Any, tmp_path: Any) -> None:
    X, y = data[0][:2000], data[1][:2000]
    scaler = PrivateStandardScaler(0.5, 1e-6, **RANGES)
    model = PrivateLogisticRegression(1.0, 1e-6, prepare=scaler).fit(X, y)
    alone = PrivateLogisticRegression(1.0, 1e-6).fit(X, y).certificate_
    joint = model.certificate_
    assert max(alone.epsilon, 0.5) < joint.epsilon <= 1.5
    assert len(joint.parts) == 2
    joint.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json")
    pipeline = make_pipeline(
        PrivateStandardScaler(0.5, 1e-6, **RANGES), PrivateLogisticRegression(1.0, 1e-6)
    ).fit(X, y)
    assert certificate_of(pipeline).epsilon == pytest.approx(joint.epsilon, rel=0.01)
    assert model.score(X, y) > 0.8


def test_experiments_have_no_certificate(data: Any) -> None:
    X, y = data
    scaler = PrivateStandardScaler(0.5, 1e-6, **RANGES, random_state=0)
    model = PrivateLogisticRegression(1.0, 1e-6, prepare=scaler).fit(X[:500], y[:500])
    assert model.certificate_ is None
    with pytest.raises(CertificateError, match="random_state"):
        certificate_of(model)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (1.0, 1.0),
        (0.0, math.inf),
        (0.0, [1.0, 2.0, 3.0]),
        (2.0, 1.0),
        (-1.7e308, 1.7e308),  # the mean would be infinite
        (0.0, 5e-324),  # half of the range is 0
    ],
)
def test_ranges_are_checked(low: Any, high: Any) -> None:
    with pytest.raises(DescriptionError, match="low, high"):
        PrivateStandardScaler(1.0, 1e-3, low=low, high=high).fit(np.zeros((5, 2)))


def test_only_a_preparation_that_pays_is_taken(data: Any) -> None:
    X, y = data
    with pytest.raises(UnsupportedError, match="without paying"):
        PrivateLogisticRegression(1.0, 1e-6, prepare=StandardScaler()).fit(X, y)

    class Centred(PrivateStandardScaler):
        """A subclass with the certificate of its parent and a mean that nobody pays for."""

        def transform(self, X: Any) -> Any:
            return X - self.exact

        def fit(self, X: Any, y: Any = None) -> Any:
            self.exact = X.mean(axis=0)
            return super().fit(X)

    with pytest.raises(UnsupportedError, match="without paying"):
        PrivateLogisticRegression(1.0, 1e-6, prepare=Centred(0.5, 1e-6, **RANGES)).fit(X, y)
    other = PrivateStandardScaler(0.5, 1e-6, **RANGES, adjacency="replace")
    with pytest.raises(DescriptionError, match="same neighbours"):
        PrivateLogisticRegression(1.0, 1e-6, prepare=other).fit(X, y)


def test_without_noise_it_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(3.0, 2.0, (200, 3)), np.full(200, 7.0)])
    low, high = X.min(axis=0) - 1, X.max(axis=0) + 1
    scaler = PrivateStandardScaler(math.inf, low=low, high=high).fit(X)
    assert scaler.certificate_ is None
    theirs = StandardScaler().fit_transform(X)
    assert scaler.transform(X) == pytest.approx(theirs, abs=1e-6)
    assert PrivateStandardScaler(math.inf, low=low[:1], high=high[:1]).fit(X[:, :1]).scale_ > 0
