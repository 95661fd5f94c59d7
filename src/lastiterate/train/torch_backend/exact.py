"""Gradients of a linear head whose sums are exact: features in fixed point (`fixed_point`).

The features are rounded once, when the run begins; the kernels of a GPU, where there are any,
compute the very numbers that the plain path computes.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from lastiterate.description import Arithmetic, Training
from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import BallSoftmax, LinearLoss
from lastiterate.losses.rounding import root_up, up
from lastiterate.train.grid import Grid, Parameters
from lastiterate.train.settings import Products, Settings
from lastiterate.train.torch_backend import integer_kernels, triton_support
from lastiterate.train.torch_backend.fixed_point import (
    Units,
    fixed_arithmetic,
    gradient_sum,
    to_units,
    units_of,
)
from lastiterate.train.torch_backend.gradients import DeviceGradients, Features
from lastiterate.train.torch_backend.heads import head_of
from lastiterate.train.torch_backend.kernels import Head


class ExactGradients(DeviceGradients):
    """Gradients of a loss on a linear model, features in whole numbers of 8 or 16 bits."""

    def __init__(
        self,
        objective: LinearLoss,
        data: Features,
        labels: ArrayLike | Tensor | None,
        training: Training,
        regularization: float,
        feature_bound: float | None,
        device: torch.device,
        told: Settings,
        records: int | None = None,
    ) -> None:
        _check_supported(objective, training)
        what = (objective, data, labels, training, regularization, feature_bound, device)
        super().__init__(*what, rows=told.rows, records=records)
        self._units = self._chosen(told)
        self.per_length = 0.0  # what scores round is in `among`
        self._packed: integer_kernels.Packed | None = None
        few = objective.outputs() <= integer_kernels.MOST_OUTPUTS
        self._kernels = device.type == "cuda" and triton_support.AVAILABLE and few
        if isinstance(data, Tensor):
            self._X = self._rounded(data)
            self._scale = None  # it is in the numbers now
            if self._kernels:
                self._packed = self._by_columns(self._X)

    def _chosen(self, told: Settings) -> Units:
        training, R = self._training, self._bound
        assert R is not None  # only clipping='gradient' has none
        ball = told.ball(training)
        if math.isinf(ball):
            why = "whole numbers need to know how large parameters can become"
            raise DescriptionError("radius", None, "given with products='exact'", why)
        entry = R if told.entry_bound is None else told.entry_bound
        entry = number("entry_bound", entry, above=0.0)
        centre = told.centre(self.shape)
        grid = Grid.of(training, centre, ball, told.regularization)
        centre = centre if grid is None else grid.on(centre)  # where the run will start
        farthest = Fraction(float(np.abs(centre).max(initial=0.0))) + Fraction(ball)
        longest = max(map(_length_up, centre.reshape(len(centre), -1).T)) + Fraction(ball)
        given = (self._head, training, self.shape[0], R, told.products)
        return _units(*given, entry=entry, farthest=up(farthest), longest=up(longest))

    def _rounded(self, data: Tensor) -> Tensor:
        """The rows in whole numbers, as the kernels want them where there are any."""
        length = max(1, (1 << 24) // max(1, data.shape[1]))
        whole: Tensor | None = None
        for first in range(0, max(1, len(data)), length):
            some = slice(first, first + length)
            block = self._whole(data[some], some)
            if whole is None:
                whole = block.new_empty((len(data), block.shape[1]))
            whole[some] = block
        assert whole is not None
        return whole

    def _whole(self, rows: Tensor, index: slice | Tensor) -> Tensor:
        factors = None if self._scale is None else self._scale[index]
        whole = to_units(rows, factors, self._units)
        return integer_kernels.packed_rows(whole) if self._kernels else whole

    def _by_columns(self, rows: Tensor) -> integer_kernels.Packed:
        return integer_kernels.Packed(rows, self._units.bits // 8, self.shape[0])

    def among(self, ranks: int) -> Arithmetic | None:
        """How far the sums of so many ranks together can be from exact ones."""
        assert self._bound is not None
        columns = self.shape[0]
        return fixed_arithmetic(
            self._training, self._head, self._units, columns, self._bound, ranks
        )

    def _sum(self, X: Tensor, theta: Tensor, index: slice | Tensor) -> Tensor:
        if X.is_floating_point():  # streamed rows are rounded as they come
            X = self._whole(X, index)
        y = self._y[index]
        if not self._kernels:
            return gradient_sum(X, y, theta, self._head, self._units)
        packed = self._packed if isinstance(index, slice) and len(X) == self.records else None
        packed = packed or self._by_columns(X)
        return integer_kernels.gradient_sum(packed, y, theta, self._head, self._units)


def exact_arithmetic(
    objective: LinearLoss,
    training: Training,
    columns: int,
    feature_bound: float,
    products: Products,
    radius: float,
) -> Arithmetic | None:
    """How far the sums of such a run can be off if it starts at 0 and stays in a ball.

    None where the radius is infinite: the run is then refused.
    """
    _check_supported(objective, training)
    if math.isinf(radius):
        return None
    head = head_of(objective)
    given = (head, training, columns, feature_bound, products)
    units = _units(*given, entry=feature_bound, farthest=radius, longest=radius)
    return fixed_arithmetic(training, head, units, columns, feature_bound)


def _check_supported(objective: LinearLoss, training: Training) -> None:
    if training.clipping == "gradient":
        raise UnsupportedError(
            "products='exact' does not shorten whole gradients: use clipping='none' or 'margin', "
            "whose gradients are short by themselves, or products='double'."
        )
    if isinstance(objective, BallSoftmax):
        raise UnsupportedError(
            "products='exact' has no whole numbers for the slopes of BallSoftmax, which come from "
            "an equation: use CappedSoftmax (cap= of an estimator), or products='double'."
        )


def _units(
    head: Head,
    training: Training,
    columns: int,
    feature_bound: float,
    products: Products,
    **limits: float,
) -> Units:
    return units_of(
        head,
        columns,
        bits=8 if products == "exact8" else 16,
        feature_bound=feature_bound,
        records=training.batches.largest(training.records),
        **limits,
    )


def _length_up(column: Parameters) -> Fraction:
    return Fraction(root_up(sum((Fraction(float(v)) ** 2 for v in column), Fraction(0))))
