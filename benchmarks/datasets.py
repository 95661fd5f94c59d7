"""Adult, Census-Income and MNIST with one public preprocessing, the same for every method.

Categories are one-hot with the lists that the data sets document, numeric columns are clipped to
declared ranges and scaled to [0, 1], an intercept column of ones is appended and every row is
rescaled to norm 1. The files are looked for under $LASTITERATE_DATA, else beside the repository.
"""

from __future__ import annotations

import gzip
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

FOLDER = Path(
    os.environ.get("LASTITERATE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
Matrix = Any  # a dense array or a CSR matrix; every method takes both

# column: (low, high, on a logarithmic scale), declared from what the columns mean
ADULT_RANGES = {
    0: (17, 90, False),
    4: (1, 16, False),
    10: (0, 2e4, False),
    11: (0, 4400, False),
    12: (1, 99, False),
}
ADULT_CATEGORIES = (1, 3, 5, 6, 7, 8, 9, 13)
CENSUS_RANGES = {
    0: (0, 90, False),
    5: (0, 1e4, True),
    16: (0, 1e5, True),
    17: (0, 1e4, True),
    18: (0, 1e5, True),
    30: (0, 6, False),
    39: (0, 52, False),
}
CENSUS_LEFT_OUT = (24, 41)  # the survey's weight and the label


@dataclass(frozen=True)
class Data:
    """Training and test records with rows of norm 1, the intercept's column inside."""

    name: str
    delta: float
    train: Matrix
    labels: np.ndarray
    test: Matrix
    test_labels: np.ndarray


def available() -> bool:
    """Whether the three data sets are here."""
    return all((FOLDER / name).is_dir() for name in ("adult", "census-income", "mnist"))


def adult() -> Data:
    """32,561 training records, about 100 columns; the label is an income above 50,000."""
    folder = FOLDER / "adult"
    train = _table(folder / "adult.data.gz", gzip.open)
    test = _table(folder / "adult.test.gz", gzip.open, skip=1)
    x, z = _encode(train, test, ADULT_RANGES, ADULT_CATEGORIES)
    labels = [frame[14].str.startswith(">50K").to_numpy() for frame in (train, test)]
    return Data("Adult", 1e-6, x, labels[0], z, labels[1])


def census() -> Data:
    """199,523 training records, about 500 columns; the label is an income above 50,000."""
    folder = FOLDER / "census-income"
    train, test = (_table(folder / f"{part}.csv.xz", lzma.open) for part in ("train", "test"))
    categories = tuple(c for c in range(41) if c not in CENSUS_RANGES and c not in CENSUS_LEFT_OUT)
    x, z = _encode(train, test, CENSUS_RANGES, categories)
    labels = [frame[41].str.startswith("50000+").to_numpy() for frame in (train, test)]
    return Data("Census-Income", 1e-6, x, labels[0], z, labels[1])


def mnist() -> Data:
    """60,000 training images of 784 pixels, ten classes."""
    folder = FOLDER / "mnist"
    parts = []
    for part in ("train", "t10k"):
        pixels = _bytes(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784) / 255.0
        parts += [_rescaled(pixels), _bytes(folder / f"{part}-labels-idx1-ubyte.gz", 8)]
    return Data("MNIST", 1e-5, *parts)


def _table(path: Path, opened: Callable[..., Any], skip: int = 0) -> pd.DataFrame:
    with opened(path, "rt") as file:
        return pd.read_csv(
            file, header=None, skiprows=skip, skipinitialspace=True, keep_default_na=False
        )


def _encode(
    train: pd.DataFrame,
    test: pd.DataFrame,
    ranges: dict[int, tuple[float, float, bool]],
    categories: tuple[int, ...],
) -> tuple[sparse.csr_matrix, sparse.csr_matrix]:
    both = pd.concat([train, test], ignore_index=True)
    blocks = []
    for column, (low, high, logarithmic) in ranges.items():
        value = both[column].to_numpy(float).clip(low, high)
        scaled = (value - low) / (high - low)
        if logarithmic:
            scaled = np.log1p(value - low) / np.log1p(high - low)
        blocks.append(sparse.csr_matrix(scaled[:, None]))
    for column in categories:  # the lists of the documentation are those of the whole files
        codes = pd.Categorical(both[column].astype(str)).codes
        ones = np.ones(len(codes))
        blocks.append(sparse.csr_matrix((ones, (np.arange(len(codes)), codes))))
    rows = _rescaled(sparse.hstack(blocks, format="csr"))
    return rows[: len(train)], rows[len(train) :]


def _rescaled(x: Matrix) -> Matrix:
    ones = np.ones((x.shape[0], 1))
    if sparse.issparse(x):
        x = sparse.hstack([x, ones], format="csr")
        norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel())
        return sparse.csr_matrix(sparse.diags(1 / norms) @ x)
    x = np.hstack([x, ones])
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _bytes(path: Path, header: int) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), np.uint8, offset=header)
