"""Sums of per-record gradients of a linear head on a device, each as short as described.

The same two methods as the NumPy backend's gradients. Rows are checked against the bound that the
constants rest on; they are never written: a row that is too long can be shortened on the fly, by a
factor beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lastiterate.description import Arithmetic, Loss, Training
from lastiterate.description.batches import Rows
from lastiterate.description.fields import one_of
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.losses.data import feature_bound_of, targets_of
from lastiterate.train.norms import UNIT
from lastiterate.train.settings import Products, RowRule, Settings
from lastiterate.train.summation import linear_arithmetic, score_error
from lastiterate.train.torch_backend import as_array
from lastiterate.train.torch_backend.heads import head_of
from lastiterate.train.torch_backend.kernels import DTYPES, SAME_LAUNCHES, gradient_sum
from lastiterate.train.torch_backend.norms import row_lengths
from lastiterate.train.torch_backend.shards import Shards

Features = Tensor | Shards

_AT_ONCE = 1 << 23  # numbers that are read at once where nothing is multiplied
_SMALLEST = 2.0**-120  # no factor overflows


def features(data: Any, device: torch.device) -> Features:
    """The data on the device if it fits there, otherwise rows that stay where they are."""
    if isinstance(data, Shards):
        return data
    if isinstance(data, (str, list, tuple)) or hasattr(data, "__fspath__"):
        return Shards(data)
    if not isinstance(data, Tensor):
        values = np.asarray(data)
        values = values.astype(np.float64) if values.dtype.kind in "biu" else values
        if values.dtype.kind != "f":
            raise _no_table(f"an array of shape {values.shape} and type {values.dtype}")
        data = torch.from_numpy(values if values.flags.writeable else values.copy())
    if data.is_nested or data.layout is not torch.strided or data.is_meta:
        raise _no_table(f"a tensor that is {_kept_otherwise(data)}")
    if data.ndim != 2 or data.dtype not in DTYPES:
        raise _no_table(f"a tensor of shape {tuple(data.shape)} and type {data.dtype}")
    if data.device.type != device.type and device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        if data.numel() * data.element_size() > 0.8 * free:
            return Shards(data)
    moved: Tensor = data.to(device)
    return moved


def _no_table(found: str) -> DescriptionError:
    return DescriptionError(
        "data",
        found,
        "a table of floating-point numbers, one row per record (sparse data: a matrix of SciPy)",
        "a gradient bound rests on the norm of every row",
    )


def _kept_otherwise(data: Tensor) -> str:
    if data.is_meta:
        return "on the meta device, without values"
    return "nested" if data.is_nested else f"kept as {data.layout}"


class DeviceGradients:
    """Gradients of a loss on a linear model, features in a tensor or in shards."""

    objection = ""  # their sums have a proved error

    def __init__(
        self,
        objective: LinearLoss,
        data: Features,
        labels: ArrayLike | Tensor | None,
        training: Training,
        regularization: float,
        feature_bound: float | None,
        device: torch.device,
        *,
        rows: RowRule = "check",
        records: int | None = None,
    ) -> None:
        self._X, self._device = data, device
        self.records = training.records if records is None else records
        if data.shape[0] != self.records:
            why = "what is certified must be what runs"
            allowed = f"training.records = {self.records} rows"
            raise DescriptionError("data", f"{data.shape[0]} rows", allowed, why)
        one_of("rows", rows, ("check", "shorten", "rescale"))
        targets = targets_of(objective, as_array(labels), self.records, np.float64)
        self._y = torch.as_tensor(targets).to(device, torch.float64)

        R = feature_bound_of(objective, training, feature_bound)
        norms = self._row_norms()
        self._scale = None if R is None else self._scaling(norms, R, rows)
        clip = training.clipping
        if clip == "gradient" and self._scale is not None:
            norms = norms * self._scale * (1 + 4 * UNIT)
        self._norms = norms if clip == "gradient" else None
        limits = {}
        if clip == "gradient":
            limits["longest"] = training.gradient_norm
        elif clip == "margin":
            assert R is not None
            limits["margin"] = objective.margin_limit(training.gradient_norm, R)
        self._head = head_of(objective, **limits)
        columns, outputs = int(data.shape[1]), objective.outputs()
        self.shape = (columns,) if outputs == 1 else (columns, outputs)
        self._training, self._objective, self._bound = training, objective, R
        self.per_length = score_error(training, objective, columns, R)
        self._placeless = not self.per_length and training.batches.moves_other_records
        unknown = Loss.unknown(regularization=regularization, provenance="proved")
        self.loss = unknown if R is None else objective.regularity(R, regularization)

    @classmethod
    def told(
        cls,
        objective: LinearLoss,
        data: Any,
        training: Training,
        told: Settings,
        device: torch.device,
        *,
        everything: bool = True,
    ) -> DeviceGradients:
        """As a run is told; ``everything``: the data is that of all records of the run."""
        if told.weights is not None:
            raise UnsupportedError(
                "Weights (sample_weight, class_weight) are multiplied in by the NumPy backend "
                "alone: pass arrays instead of tensors (X.numpy()), or leave them out."
            )
        one_of("products", told.products, get_args(Products))
        held = features(data, device)
        what = (objective, held, told.labels, training, told.regularization, told.feature_bound)
        records = None if everything else held.shape[0]
        if told.products in ("exact", "exact8"):
            from lastiterate.train.torch_backend.exact import ExactGradients

            return ExactGradients(*what, device, told, records)
        if told.entry_bound is not None:
            why = "other products take features as they are"
            allowed = "left out unless products='exact' or 'exact8'"
            raise DescriptionError("entry_bound", told.entry_bound, allowed, why)
        return cls(*what, device, rows=told.rows, records=records)

    def arithmetic(self, size: int) -> Arithmetic | None:
        """How far its sums can be off."""
        return self.among(1)

    def among(self, ranks: int) -> Arithmetic | None:
        """Likewise, where so many ranks add up their sums."""
        return linear_arithmetic(self._training, self._objective, self.shape[0], ranks, self._bound)

    @property
    def resident(self) -> bool:
        """Whether the features stay on a GPU, where nothing has to be sent for a full batch."""
        return isinstance(self._X, Tensor) and self._X.is_cuda

    @property
    def same_launches(self) -> bool:
        """Whether the sum over all records is the same launches whatever the parameters are."""
        return self._head.kind in SAME_LAUNCHES

    def content(self) -> Iterator[NDArray[Any]]:
        """Labels and records in their order."""
        yield as_array(self._y)
        length = max(1, _AT_ONCE // max(1, int(self._X.shape[1])))
        for first in range(0, self.records, length):
            last = min(first + length, self.records)
            some = self._X[first:last] if isinstance(self._X, Tensor) else self._X.rows(first, last)
            yield as_array(some)

    def total(self, parameters: Tensor, rows: Rows) -> Tensor:
        """The sum of the (clipped) gradients of the records in ``rows``; float64, on the device."""
        theta = parameters.reshape(parameters.shape[0], -1)
        total = torch.zeros_like(theta)
        if isinstance(self._X, Tensor):
            if isinstance(rows, slice):
                total += self._sum(self._X[rows], theta, rows)
            else:
                index = torch.from_numpy(rows).to(self._device)
                total += self._sum(self._X.index_select(0, index), theta, index)
        elif isinstance(rows, slice):
            for cut, block in self._X.blocks(rows.start, rows.stop, self._device):
                total += self._sum(block, theta, cut)
        elif len(rows):
            length = self._X.block_length()
            ordered = np.sort(rows)
            for first in range(0, len(ordered), length):
                some = ordered[first : first + length]
                block = self._X.gather(some).to(self._device)
                total += self._sum(block, theta, torch.from_numpy(some).to(self._device))
        return total.reshape(parameters.shape)

    def _sum(self, X: Tensor, theta: Tensor, index: slice | Tensor) -> Tensor:
        scale = None if self._scale is None else self._scale[index]
        norms = None if self._norms is None else self._norms[index]
        y = self._y[index]
        return gradient_sum(
            X,
            y,
            theta,
            self._head,
            scale=scale,
            norms=norms,
            placeless=self._placeless,
        )

    def _row_norms(self) -> Tensor:
        """In double precision, on the device; raises if a value is not finite."""
        norms = torch.empty(self.records, dtype=torch.float64, device=self._device)
        finite = True
        if isinstance(self._X, Tensor):
            numbers = 1 << (24 if self._device.type == "cuda" else 18)  # held in double at once
            length = max(1, numbers // max(1, self._X.shape[1]))
            for first in range(0, self.records, length):
                block = self._X[first : first + length]
                norms[first : first + length] = row_lengths(block)
                finite = finite and _finite(block, norms[first : first + length])
        else:
            for cut, block in self._X.blocks(0, self.records, self._device):
                norms[cut] = row_lengths(block)
                finite = finite and _finite(block, norms[cut])
        if not finite:
            raise AssumptionError(
                "The data has rows that hold NaN or infinity: their gradients have no bound. Fill "
                "or drop such rows."
            )
        return norms

    def _scaling(self, norms: Tensor, R: float, rule: RowRule) -> Tensor | None:
        """A factor per row that makes it short enough; None where none is needed."""
        # A hair below, so that rounding the factor cannot cross the bound.
        target = R * (1 - 8 * UNIT)
        if rule == "rescale":  # the tiniest rows stay shorter than the others
            factors = target / norms.clamp(min=_SMALLEST)
            return torch.where(norms > 0, factors, 1.0)
        long = norms > R * (1 + 4 * (self._X.shape[1] + 8) * UNIT)
        if not long.any():
            return None
        if rule == "check":
            raise AssumptionError(
                f"The data has rows with a norm above {R:g}, the bound that "
                "gradient_norm and smoothness rest on: their gradients would be longer "
                "than the noise is made for. Pass rows='shorten', which shortens such rows on the "
                "fly, or declare a larger bound."
            )
        return torch.where(long, target / norms, 1.0)


def _finite(rows: Tensor, norms: Tensor) -> bool:
    """Whether all rows are finite; a norm may be infinite for a row that is."""
    return bool(rows[~norms.isfinite()].isfinite().all())
