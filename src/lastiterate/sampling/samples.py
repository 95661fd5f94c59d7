"""What a sampler returns: draws of many chains, in the form ArviZ reads.

ArviZ (the ``sampling`` extra) computes the diagnostics; it is imported only when they are asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.accounting.guarantee import Guarantee
from lastiterate.description import Loss, Training
from lastiterate.errors import AssumptionError
from lastiterate.sampling.returned import Returned

Floats = NDArray[np.float64]


class Samples(dict[str, Floats]):
    """A dictionary ``{"theta": array of shape (chains, draws, d)}``, ready for any ArviZ function.

    Attributes:
        last: the final iterates in the sampler's own array type.
        returned: which iterates of how many chains these are, as an accountant sees them; None for
            an unclipped run, about which nothing can be promised.
        experiment: the run was seeded, drew its noise from a source or took clipped gradients
            from a likelihood that nobody vouches for, or computed in less than double precision:
            nothing is promised.
        training: a description that by itself covers all that is returned; None for several
            chains (ask ``guarantee``) and for unclipped runs.

    >>> draws = np.random.default_rng(0).standard_normal((4, 500, 2))
    >>> samples = Samples(draws, last=draws[:, -1])
    >>> samples.mean().shape, bool(np.all(samples.rhat() < 1.05))
    ((2,), True)
    """

    def __init__(
        self, draws: Floats, last: Any, returned: Returned | None = None, experiment: bool = True
    ) -> None:
        super().__init__(theta=draws)
        self.last = last
        self.returned = returned
        self.experiment = experiment

    @property
    def training(self) -> Training | None:
        """What ran and is returned, if one description can say it."""
        return None if self.returned is None else self.returned.training

    def guarantee(self, loss: Loss | None = None, adjacency: str | None = None) -> Guarantee:
        """What everything in here reveals together: all draws of all chains, and ``last``.

        Args:
            loss: what is known about the loss of one record (minus its log-likelihood), beside
                that its gradients are clipped; nothing by default. Its regularization must be that
                of the run, prior_precision / records; with a prior_gradient of your own nothing
                can be known.
            adjacency: "zero-out" (default) or "replace".

        Raises for experiments and for runs without ``clip``. It rests on a start and a prior that
        do not depend on the data.
        """
        if self.returned is None:
            raise AssumptionError(
                "Nothing can be promised about a sampler whose gradients are not clipped: one "
                "record may move it as far as it likes. Give clip=."
            )
        if self.experiment:
            raise AssumptionError(
                "This was an experiment (random_state or normals were given, the arithmetic has "
                "less than double precision, or a likelihood of your own clips by its own word): "
                "nothing is promised. Run without them, with a function for per-record gradients; "
                "`samples.returned.guarantee()` says what that costs."
            )
        return self.returned.guarantee(loss, adjacency)

    @property
    def draws(self) -> Floats:
        """Shape (chains, draws, d)."""
        return self["theta"]

    def mean(self) -> Floats:
        """Over chains and draws."""
        return np.asarray(self.draws.mean(axis=(0, 1)))

    def rhat(self) -> Floats:
        """Rank-normalised split R-hat of every coordinate."""
        return np.asarray(import_module("arviz").rhat(dict(self))["theta"].values)
