"""A linear probe: private softmax regression on frozen features in tensors or shards.

The estimator of `lastiterate.models` with the torch backend: the same choices, the same
calibration, the same certificate. Features are never copied or written: where rows must be
shorter, a factor beside each row does it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lastiterate.description import Training
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.models.choose import Choice
from lastiterate.models.softmax import PrivateSoftmaxRegression
from lastiterate.torch.descent import device_of, noisy_descent
from lastiterate.torch.gradients import features
from lastiterate.torch.kernels import Products


class PrivateLinearProbe(PrivateSoftmaxRegression):
    """Softmax regression on frozen features, on a GPU if there is one.

    Features may be a tensor (float64, float32, bfloat16, float16), an array, `Shards`, or paths
    of .npy, .safetensors or .parquet shards; what does not fit on the device is streamed. There
    is no intercept: append a column of ones to the features if you want one.

    Args:
        epsilon: how much one record may change what is released; inf trains without noise.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        feature_bound: longer rows are shortened. Missing: every row is rescaled to norm 1.
        cap, regularization, steps, batch_size, adjacency: as in `PrivateSoftmaxRegression`;
            batch_size=n asks for full batches.
        device: where to train; by default where the features are, else a GPU if there is one.
        products: how 16-bit features are multiplied, "split" or "fast"; see `noisy_descent`.
            "fast" rounds the parameters to 16 bits and is never certified.
        random_state: a seed makes a reproducible experiment, without a certificate.

    Attributes:
        coef_, classes_, certificate_, training_, loss_, choice_, n_iter_, delta_: as in
            `PrivateSoftmaxRegression`.

    >>> X, y = torch.randn(500, 8, dtype=torch.bfloat16), torch.arange(500) % 3
    >>> probe = PrivateLinearProbe(epsilon=2.0, delta=1e-4, random_state=0).fit(X, y)
    >>> probe.predict(X).shape, probe.certificate_ is None
    ((500,), True)
    """

    fit_intercept: ClassVar[bool] = False  # type: ignore[misc]
    prepare: ClassVar[None] = None  # type: ignore[misc]

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        feature_bound: float | None = None,
        *,
        cap: float | None = None,
        regularization: float | None = None,
        steps: int | None = None,
        batch_size: int | None = None,
        adjacency: str = "zero-out",
        device: str | torch.device | None = None,
        products: Products = "split",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.feature_bound = feature_bound
        self.cap = cap
        self.regularization = regularization
        self.steps = steps
        self.batch_size = batch_size
        self.adjacency = adjacency
        self.device = device
        self.products = products
        self.random_state = random_state

    def _fit(self, X: Any, y: Any, with_noise: Callable[[Choice], Training]) -> Self:
        self._forget()
        device = device_of(X, self.device)
        data = features(X, device)
        labels = _labels(y, data.shape[0])
        self.n_features_in_ = int(data.shape[1])
        self.delta_ = self._delta(data.shape[0])
        self._see_labels(labels)
        objective = self._objective()
        self.choice_ = self._choose(objective, data.shape[0])
        self.loss_ = self.choice_.loss
        self.training_ = with_noise(self.choice_)
        released = noisy_descent(
            objective,
            data,
            self.training_,
            labels=self._targets(labels),
            regularization=self.loss_.regularization,
            feature_bound=self._rows.norm,
            random_state=self.random_state,
            device=device,
            products=self.products,
            rows="rescale" if self.feature_bound is None else "shorten",
        )
        if self.products == "fast":
            # Parameters rounded to 16 bits can jump by more than one record moves them: the
            # guarantee speaks of exact arithmetic, so such a run carries no certificate.
            released = dataclasses.replace(released, experiment=True)
        self._finish(released, [])
        return self

    def fit_stream(self, *args: Any, **settings: Any) -> Self:
        """Not for a probe: shards are streamed in `fit`."""
        raise UnsupportedError(
            "A probe streams its features from shards in fit(); for one pass over batches as they "
            "come use PrivateSoftmaxRegression.fit_stream."
        )

    def _scores(self, X: Any) -> NDArray[Any]:
        if not hasattr(self, "coef_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError("This probe is not fitted yet: call fit first.")
        device = device_of(X, self.device)
        data = features(X, device)
        if data.shape[1] != self.n_features_in_:
            why = "the model has one coefficient per column"
            raise DescriptionError("X", f"{data.shape[1]} columns", f"{self.n_features_in_}", why)
        theta = torch.from_numpy(np.array(self.coef_.T, dtype=np.float64))
        scores = np.empty((data.shape[0], theta.shape[1]))
        length = max(1, (64 << 20) // (8 * data.shape[1]))
        blocks = (
            ((slice(k, k + length), data[k : k + length]) for k in range(0, len(data), length))
            if isinstance(data, Tensor)
            else data.blocks(0, len(data), device, length)
        )
        for cut, block in blocks:
            exact = block.double() if device.type == "cpu" else block.float()
            norms = torch.linalg.vector_norm(exact, dim=1, keepdim=True)
            if self.feature_bound is None:
                factor = torch.where(norms > 0, 1 / norms, 1.0)
            else:
                factor = self.feature_bound / norms.clamp(min=self.feature_bound)
            scores[cut] = (exact @ theta.to(exact) * factor).cpu().numpy()
        return scores


def _labels(y: Any, records: int) -> NDArray[Any]:
    labels = y.detach().cpu().numpy() if isinstance(y, Tensor) else np.asarray(y)
    if labels.shape != (records,):
        why = "every record has one label"
        raise DescriptionError("y", f"of shape {labels.shape}", f"of shape ({records},)", why)
    return labels
