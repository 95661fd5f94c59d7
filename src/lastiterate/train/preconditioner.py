"""A public preconditioner: the run of y, where θ = √P·y.

**Statement.** θ ← θ − η·P·∇f(θ) + N(0, ν²P) is the plain run y ← y − η·∇h(y) + N(0, ν²I) of
h(y) = f(√P·y), and θ is computed from its y. So the guarantee of the description of y holds, with
the constants of h: no gradient √P·∇ℓ longer than K, curvature that of √P·∇²f·√P, and an L2 term
λ‖y‖² = λ·θᵀP⁻¹θ. For a linear model √P·∇ℓ is the gradient of the same loss on features that are
multiplied by √P: **scaling features is preconditioning**.

The noise is preconditioned with the step. A preconditioned step with isotropic noise is another
run: in directions that P stretches it hides too little, and no guarantee here speaks of it. P must
be public; one that was read off the data (second moments, Adam) is a release of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description.validation import number
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]
_WHY = "each direction is stretched by its own public factor"


@dataclass(frozen=True)
class Preconditioner:
    """A diagonal P, public; describe and train y, and release θ = √P·y.

    Args:
        diagonal: of P, one positive number per row of the parameters.

    >>> from lastiterate import FullBatch, Training
    >>> from lastiterate.losses import Logistic
    >>> from lastiterate.train import noisy_descent
    >>> X, y = np.array([[1.0, 0.0], [0.0, 0.25]]), np.array([1.0, -1.0])
    >>> stretched = Preconditioner([1.0, 16.0])
    >>> run = Training(records=2, steps=50, step_size=1.0, noise=0.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> found = noisy_descent(Logistic(), stretched.features(X), run, labels=y)
    >>> stretched.parameters(found.parameters).round(3)
    array([  3.156, -12.625])
    """

    diagonal: tuple[float, ...]

    def __post_init__(self) -> None:
        given: Any = self.diagonal
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            raise DescriptionError("diagonal", given, "a list of positive numbers", _WHY)
        values = tuple(number("diagonal", value, _WHY, above=0.0) for value in given)
        if not values:
            raise DescriptionError("diagonal", given, "at least one number", _WHY)
        object.__setattr__(self, "diagonal", values)

    @property
    def root(self) -> Array:
        """√P."""
        return np.asarray(np.sqrt(self.diagonal), dtype=np.float64)

    def features(self, X: Any) -> Any:
        """The features whose plain run is the preconditioned one of these: the columns times √P.

        Arrays, sparse matrices and tensors. ``feature_bound`` speaks of what is returned.
        """
        if X.shape[1] != len(self.diagonal):
            allowed = f"of {len(self.diagonal)} columns"
            raise DescriptionError("X", f"of shape {tuple(X.shape)}", allowed, _WHY)
        if hasattr(X, "tocsr"):
            return X.tocsr().multiply(self.root[None, :]).tocsr()
        if hasattr(X, "new_tensor"):  # PyTorch's
            return X * X.new_tensor(self.root)
        return np.asarray(X) * self.root

    def gradients(self, function: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Array]:
        """The gradients in y of a gradient function (parameters, indices) of θ: √P·g(√P·y)."""

        def transformed(y: Array, rows: Array) -> Array:
            found = np.asarray(function(self.parameters(y), rows), dtype=np.float64)
            return found * self._beside(found[0] if len(found) else y)

        return transformed

    def parameters(self, y: Any) -> Array:
        """θ = √P·y: what is released, computed from what was trained."""
        y = np.asarray(y, dtype=np.float64)
        return np.asarray(y * self._beside(y))

    def start(self, theta: Any) -> Array:
        """The y of a θ to start from."""
        theta = np.asarray(theta, dtype=np.float64)
        return np.asarray(theta / self._beside(theta))

    def _beside(self, values: Array) -> Array:
        if values.ndim == 0 or len(values) != len(self.diagonal):
            allowed = f"of {len(self.diagonal)} rows"
            raise DescriptionError("parameters", f"of shape {values.shape}", allowed, _WHY)
        return self.root.reshape(-1, *[1] * (values.ndim - 1))
