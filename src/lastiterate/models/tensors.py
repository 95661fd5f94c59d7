"""Estimators on tensors and shards: reading them, making rows and scores where they are.

Features are not copied, unless an intercept asks for one more column: a factor beside each row
makes it as short as it has to be (`rows=` of `noisy_descent`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.train.torch_backend import as_array
from lastiterate.train.torch_backend.gradients import Features, features
from lastiterate.train.torch_backend.norms import row_lengths
from lastiterate.train.torch_backend.shards import Shards

if TYPE_CHECKING:
    from lastiterate.models.rows import Rows

_WHOLE = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_AT_ONCE = 1 << 23  # numbers that are scored at once


def read_features(model: Any, X: Features, first: bool) -> Features:
    """The features as a table of floating-point numbers, as many columns as the model has."""
    learnt = vars(model).get("prepare_") is not None and not first
    if learnt or not (model.prepare is None or isinstance(model.prepare, str)):
        raise UnsupportedError(
            "prepare= reads arrays in host memory: pass X.numpy(), or prepare the tensor by public "
            "constants."
        )
    if isinstance(X, Tensor):
        X = X.detach()
        whole = X.dtype in _WHOLE and X.layout is torch.strided
        X = features(X.double() if whole else X, X.device)  # what is no table is refused there
    columns = int(X.shape[1])
    if first:
        model.n_features_in_ = columns
        model.__dict__.pop("feature_names_in_", None)
    elif columns != model.n_features_in_:
        why = "the model has one coefficient per column"
        raise DescriptionError("X", f"{columns} columns", f"{model.n_features_in_}", why)
    return X


def read_labels(y: Any, records: int) -> NDArray[Any]:
    """One label per record, in host memory."""
    labels = np.asarray(as_array(y))
    if labels.shape != (records,):
        why = "every record has one label"
        raise DescriptionError("y", f"of shape {labels.shape}", f"of shape ({records},)", why)
    return labels


def rows_of(X: Features, rule: Rows) -> Features:
    """The features with the intercept's column, if there is one; see `Rows.of`."""
    if not rule.fit_intercept:
        return X
    if isinstance(X, Shards):
        raise UnsupportedError(
            "fit_intercept=True adds a column, and shards are not copied: write them with a column "
            "of ones, or use fit_intercept=False."
        )
    with_ones = torch.ones((len(X), X.shape[1] + 1), dtype=X.dtype, device=X.device)
    with_ones[:, :-1] = X
    if rule.feature_bound is not None:
        norms = row_lengths(X)
        # A hair below the bound, so that rounding to the type of X cannot cross it.
        target = rule.feature_bound * (1 - 4 * torch.finfo(X.dtype).eps)
        factors = torch.where(norms > target, target / norms, 1.0)
        with_ones[:, :-1] *= factors.to(X.dtype)[:, None]
    return with_ones


def scores_of(X: Features, parameters: NDArray[Any], rule: Rows) -> NDArray[np.float64]:
    """Rows times parameters (outputs, columns), on the device of the features."""
    theta = torch.from_numpy(np.array(parameters.T, dtype=np.float64))
    scores = np.empty((X.shape[0], theta.shape[1]))
    for cut, block in _blocks(X):
        rows = rows_of(block.float() if block.is_cuda else block.double(), rule)
        assert isinstance(rows, Tensor)
        norms = row_lengths(rows)
        factor = rule.norm / norms.clamp(min=rule.norm)
        if rule.feature_bound is None:
            factor = torch.where(norms > 0, 1 / norms, 1.0)
        scores[cut] = (rows @ theta.to(rows) * factor.to(rows)[:, None]).cpu().numpy()
    return scores


def _blocks(X: Features) -> Iterator[tuple[slice, Tensor]]:
    length = max(1, _AT_ONCE // max(1, X.shape[1]))
    if isinstance(X, Tensor):
        return ((slice(k, k + length), X[k : k + length]) for k in range(0, len(X), length))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return X.blocks(0, len(X), device, length)
