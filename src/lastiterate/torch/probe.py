"""A linear probe: private softmax regression on frozen features in tensors or shards.

The estimator of `lastiterate.models`, which trains on tensors with PyTorch by itself; a probe also
reads arrays and paths of shards, picks the device, and never copies features.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self

import torch
from numpy.typing import NDArray

from lastiterate.description import Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.models.base import Engine
from lastiterate.models.softmax import PrivateSoftmaxRegression
from lastiterate.train.settings import Products
from lastiterate.train.torch_backend.descent import device_of
from lastiterate.train.torch_backend.exact import exact_arithmetic
from lastiterate.train.torch_backend.gradients import features


@dataclass(eq=False, repr=False)
class PrivateLinearProbe(PrivateSoftmaxRegression):
    """Softmax regression on frozen features, on a GPU if there is one.

    Features may be a tensor (float64, float32, bfloat16, float16), an array, `Shards`, or paths
    of .npy, .safetensors or .parquet shards; what does not fit on the device is streamed. There
    is no intercept: append a column of ones to the features if you want one.

    Args:
        epsilon: how much one record may change what is released; inf trains without noise.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        feature_bound: longer rows are shortened. Missing: every row is rescaled to norm 1.
        cap: what the wrong classes of a record may have in all; 1/2 with noise if missing. (The
            kernels know this loss; ``ball`` asks for that of `PrivateSoftmaxRegression`, with
            products="double".)
        ball: see cap.
        regularization, penalty, l1_ratio, steps, batch_size, learning_time, quality: as in
            `PrivateSoftmaxRegression`; batch_size=n asks for full batches.
        final_noise, adjacency, classes: as there.
        max_records_per_group: with ``fit(X, y, groups=owners)``, for a person with up to so many
            records.
        device: where to train; by default where the features are, else a GPU if there is one.
        products: "double" (default), "exact" or "exact8", which are faster on a GPU; see
            `noisy_descent`. All can be certified, and noise is calibrated for what they round.
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
    curved: ClassVar[bool] = False  # type: ignore[misc]
    calibrate: ClassVar[bool] = False  # type: ignore[misc]
    class_weight: ClassVar[None] = None  # type: ignore[misc]
    max_sample_weight: ClassVar[float] = 1.0  # type: ignore[misc]
    feature_range: ClassVar[None] = None  # type: ignore[misc]
    _in_ball = False

    _: KW_ONLY
    device: str | torch.device | None = None
    products: Products = "double"

    def _engine(
        self, training: Training, objective: LinearLoss, columns: int
    ) -> tuple[Engine, float]:
        if self.products not in ("exact", "exact8"):
            return super()._engine(training, objective, columns)
        run = (objective, training, columns, self._rows.norm, self.products)
        return partial(exact_arithmetic, *run), 0.0  # what scores round is in it

    def _device_settings(self) -> dict[str, Any]:
        where = {"device": self.device, "products": self.products}
        return {**super()._device_settings(), **where}

    def _validated(self, X: Any, y: Any, first: bool = True) -> tuple[Any, NDArray[Any]]:
        return super()._validated(features(X, device_of(X, self.device)), y, first)

    def _scores(self, X: Any) -> NDArray[Any]:
        return super()._scores(features(X, device_of(X, self.device)))

    def to_linear(self, dtype: torch.dtype | None = None) -> torch.nn.Linear:
        """The fitted probe as a layer, without a bias, to put on top of the network it probes.

        Its outputs are the probe's scores of rows that are not longer than ``feature_bound``. The
        probe shortens other rows, and without a bound rescales all: scores are then those of the
        layer times a positive number of the row's own, so that the class is the same.

        >>> X, y = torch.randn(200, 4), torch.arange(200) % 3
        >>> probe = PrivateLinearProbe(epsilon=2.0, delta=1e-4, random_state=0).fit(X, y)
        >>> bool((probe.to_linear()(X).argmax(1).numpy() == probe.predict(X)).all())
        True
        """
        weight = torch.from_numpy(self.coef_.copy()).to(dtype or torch.get_default_dtype())
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
        with torch.no_grad():
            layer.weight.copy_(weight)
        return layer

    def fit_stream(self, *args: Any, **settings: Any) -> Self:
        """Not for a probe: shards are streamed in `fit`."""
        raise UnsupportedError(
            "A probe streams its features from shards in fit(); for one pass over batches as they "
            "come use PrivateSoftmaxRegression.fit_stream."
        )
