"""Images as scattering coefficients: fixed wavelets and moduli, nothing learnt.

A scattering transform (Mallat; here Kymatio's) averages an image, the moduli of its wavelet
coefficients, and the moduli of theirs. A linear model of them tells digits apart nearly as well as
a network, and no record is looked at to make them (Tramèr & Boneh 2021, for private models).

Three neighbouring channels at a time have their mean subtracted and are divided by their deviation
over the image, each image by itself: channels of later orders are much smaller, and would drown in
noise. Set on scikit-learn's digits (epsilon 2 and 8: 88.1 and 93.0 % without, 92.7 and 96.8 with).

**Norm.** The row that this makes is divided by its length, computed in doubles, times 1 + 2⁻²⁰:
rounding its entries to float32 lengthens it by less. The row of an image of zeros is 0.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lastiterate.description.validation import whole
from lastiterate.errors import DescriptionError, MissingExtraError
from lastiterate.models.read_numbers import read_numbers

_TOGETHER = 3  # channels that are normalised as one
_FAINT = 1e-5  # of an image whose largest value is 1: what is below stays small
_ROOM = 1 + 2.0**-20
_AT_ONCE = 8  # images whose coefficients stay near


class ScatteringFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scattering coefficients of images, one image per row; rows of norm at most 1.

    Needs the extra ``scattering``. Values may have any scale: only their ratios count.

    Args:
        shape: (height, width) of the images, whose pixels are the columns; square if missing.
        scale: coefficients are averages over squares of 2^scale pixels a side.
        angles: directions of the wavelets.

    In a `Pipeline`, `certificate_of(pipeline)` takes it as it is: it learns nothing. One of its
    channels is the average, so a model of it needs no intercept.

    >>> made = ScatteringFeatures((16, 16)).fit_transform(np.eye(256)[:3])
    >>> made.shape, made.dtype
    ((3, 1296), dtype('float32'))
    """

    def __init__(
        self, shape: tuple[int, int] | None = None, *, scale: int = 2, angles: int = 8
    ) -> None:
        self.shape = shape
        self.scale = scale
        self.angles = angles

    def fit(self, X: Any, y: Any = None) -> Self:
        """Look at the number of columns, and at nothing else."""
        try:
            # The module itself: kymatio.numpy also loads its part for volumes, which new versions
            # of SciPy break.
            from kymatio.scattering2d.frontend.numpy_frontend import ScatteringNumPy2D
        except ImportError as error:
            raise MissingExtraError("Scattering", error.name, "scattering") from None
        read_numbers(self, X, dtype=np.float64)
        scale = whole("scale", self.scale, "coefficients are averages over 2^scale pixels")
        angles = whole("angles", self.angles, "wavelets have so many directions")
        shape = self._shape(2**scale)
        transform = ScatteringNumPy2D(J=scale, shape=shape, L=angles)
        self._transform = transform
        self._channels = 1 + scale * angles + scale * (scale - 1) // 2 * angles**2
        self._n_features_out = self._channels * math.prod(side >> scale for side in shape)
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The coefficients of every image, normalised."""
        check_is_fitted(self, "_transform")
        X = read_numbers(self, X, dtype=np.float64, reset=False)
        rows = np.empty((len(X), self._n_features_out), np.float32)
        for first in range(0, len(X), _AT_ONCE):
            some = X[first : first + _AT_ONCE]
            largest = np.abs(some).max(axis=1, keepdims=True)
            images = some / np.where(largest > 0, largest, 1.0)
            found = self._transform(images.astype(np.float32).reshape(-1, *self._transform.shape))
            rows[first : first + _AT_ONCE] = _normalised(found.astype(np.float64))
        return rows

    def _shape(self, square: int) -> tuple[int, int]:
        """Height and width, as given or of a square."""
        pixels, given = int(self.n_features_in_), self.shape
        side = math.isqrt(pixels)
        sides = (side, side) if given is None else given
        ints = isinstance(sides, tuple | list) and [type(each) for each in sides] == [int, int]
        height, width = sides if ints else (0, 0)
        fits = height > 0 and not (height % square or width % square)
        why = "every column is a pixel, and averages are over whole squares"
        if not fits or height * width != pixels:
            allowed = f"(height, width) of {pixels} pixels, multiples of 2^scale = {square}"
            raise DescriptionError("shape", given, allowed, why)
        return height, width


def _normalised(found: NDArray[np.float64]) -> NDArray[np.float64]:
    """Channels (images, channels, height, width) as rows of norm below 1."""
    for first in range(0, found.shape[1], _TOGETHER):
        group = found[:, first : first + _TOGETHER]
        group -= group.mean(axis=(1, 2, 3), keepdims=True)
        group /= np.sqrt((group**2).mean(axis=(1, 2, 3), keepdims=True)) + _FAINT
    rows = found.reshape(len(found), -1)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths * _ROOM, 1.0))
