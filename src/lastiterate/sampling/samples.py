"""What a sampler returns: draws of many chains, in the form ArviZ reads.

ArviZ (the ``sampling`` extra) computes the diagnostics; it is imported only when they are asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.description import Training

Floats = NDArray[np.float64]


class Samples(dict[str, Floats]):
    """A dictionary ``{"theta": array of shape (chains, draws, d)}``, ready for any ArviZ function.

    ``last``: the final iterates in the sampler's own array type. ``training``: what an accountant
    needs to know about the run, or None for an unclipped run, about which nothing can be promised.

    >>> draws = np.random.default_rng(0).standard_normal((4, 500, 2))
    >>> samples = Samples(draws, last=draws[:, -1])
    >>> samples.mean().shape, bool(np.all(samples.rhat() < 1.05))
    ((2,), True)
    """

    def __init__(self, draws: Floats, last: Any, training: Training | None = None) -> None:
        super().__init__(theta=draws)
        self.last = last
        self.training = training

    @property
    def draws(self) -> Floats:
        """Shape (chains, draws, d)."""
        return self["theta"]

    def mean(self) -> Floats:
        """Over chains and draws."""
        return np.asarray(self.draws.mean(axis=(0, 1)))

    def covariance(self) -> Floats:
        """Over chains and draws."""
        return np.atleast_2d(np.cov(self.draws.reshape(-1, self.draws.shape[-1]), rowvar=False))

    def rhat(self) -> Floats:
        """Rank-normalised split R-hat of every coordinate."""
        return self._diagnostic("rhat")

    def ess(self) -> Floats:
        """Bulk effective sample size of every coordinate."""
        return self._diagnostic("ess")

    def to_inference_data(self) -> Any:
        """An ``arviz.InferenceData`` whose posterior group holds the draws."""
        return import_module("arviz").from_dict(dict(self))

    def _diagnostic(self, name: str) -> Floats:
        return np.asarray(getattr(import_module("arviz"), name)(dict(self))["theta"].values)
