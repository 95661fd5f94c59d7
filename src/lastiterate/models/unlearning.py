"""Forgetting records that an estimator was fitted on.

With a `Ledger` that `fit` was given, one perturbation forgets them (`lastiterate.train.unlearn`).
The rows of the deleted stay in place and empty, so that nobody else's batch changes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import FullBatch, Training
from lastiterate.description.failure import promised_delta
from lastiterate.description.validation import whole
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.train import Forgotten, noisy_descent, unlearn
from lastiterate.train.forgetting import emptied
from lastiterate.unlearning import Ledger

if TYPE_CHECKING:
    from lastiterate.models.base import Array, PrivateLinearModel
    from lastiterate.models.choose import Choice

    _Model = PrivateLinearModel
else:
    _Model = object

_LARGEST_EPSILON = 1e4  # of a certificate that says anything
_LITTLE = 2.0**-10  # of an impulse: the noise of a run that asks for none


class Erasing(_Model):
    """Adds `unlearn` to an estimator."""

    def unlearn(
        self,
        indices: Any,
        X: Any,
        y: Any,
        *,
        ledger: Ledger | None = None,
        delta: float | None = None,
        steps: int = 0,
        wait: float | None = None,
    ) -> Forgotten:
        """Forget records: the model becomes one that never had them, as far as its ledger says.

        ``coef_``, ``intercept_`` and ``certificate_`` are new, and what is returned says what the
        guarantee is and what remains on disk. The certificate is for the deleted, towards readers
        who saw no model from before; for those who stay this is a further model of their data,
        which the certificate of the fit does not cover.

        Args:
            indices: rows of X to forget, by their numbers.
            X, y: exactly as they were fitted, in the same order: the ledger notices. Rows that
                earlier requests have erased may hold anything valid, such as zeros and any class.
            ledger: `Ledger.load(folder, key)` for a model that was pickled or copied since; the one
                that ``fit`` was given is known.
            delta: of the certificate; the model's if left out.
            steps: full-batch steps without noise on what remains, after the perturbation. They cost
                the deleted nothing, and hide nothing about those who stay.
            wait: as in `lastiterate.train.unlearn`: when the answer leaves, so that nobody sees in
                the time whether the run had to be repeated; by default twice what the run took.
        """
        check_is_fitted(self, "coef_")
        ledger = self.__dict__.get("ledger_") if ledger is None else ledger
        if ledger is None or "_erasable_run" not in self.__dict__:
            raise AssumptionError(
                "No ledger is known here: without it nobody knows what the records did to the "
                "model. Give one to fit(X, y, ledger=Ledger(...)) before training; if this model "
                "is a copy of one that had it in a folder, give unlearn(ledger=Ledger.load(folder, "
                "key)). Otherwise fit again on what remains."
            )
        if not isinstance(ledger, Ledger):
            why = "it says what the records did"
            raise DescriptionError("ledger", ledger, "the Ledger of the fit", why)
        if steps:
            steps = whole("steps", steps, "it counts updates after the perturbation")
        told = self._told_delta(delta)
        mu = ledger.mu_of(ledger.served + 1)
        if not Gaussian(mu).epsilon(told) < _LARGEST_EPSILON:
            why = "no certificate says something about so little noise; nothing was released"
            raise DescriptionError("ledger", f"of mu = {mu:g}", "a budget below its noise", why)
        X, y = self._validated(X, y, first=False)
        data, targets = self._rows.of(X), self._targets(y)
        training, radius = self._erasable_run
        l2, longest = self.loss_.regularization, self._rows.norm
        forgotten = unlearn(
            self._objective(),
            data,
            training,
            ledger,
            indices,
            labels=targets,
            regularization=l2,
            feature_bound=longest,
            radius=radius,
            wait=wait,
        )
        parameters = forgotten.parameters
        if steps:
            some, labels = emptied(data, targets, ledger.gone)
            parameters = self._descended(parameters, some, labels, steps)
        self.certificate_ = None
        self._store(parameters)
        if not forgotten.experiment:
            self.certificate_ = forgotten.certificate(told, parameters=self.parameters_)
        return forgotten

    def _descended(self, start: Array, data: Any, labels: Array, steps: int) -> Array:
        """Plain gradient descent on what remains; slots stay empty and the divisor is kept."""
        curvature = (self.loss_.smoothness or 0.0) + self.loss_.regularization
        run = Training(
            records=self.training_.records,
            steps=steps,
            step_size=1 / curvature,
            noise=0.0,
            gradient_norm=self.training_.gradient_norm,
            batches=FullBatch(),
        )
        return noisy_descent(
            self._objective(),
            data,
            run,
            labels=labels,
            start=start,
            regularization=self.loss_.regularization,
            feature_bound=self._rows.norm,
        ).parameters

    def _told_delta(self, delta: float | None) -> float:
        records = self.training_.records
        if delta is not None:
            return promised_delta(delta, records)
        if self.delta_:
            return self.delta_
        warnings.warn(
            "delta was not given; 1 / (10 * records) is used for the certificate of forgetting. It "
            "is the probability with which epsilon may fail: choose it well below 1/records.",
            PrivacyWarning,
            stacklevel=3,
        )
        return 1 / (10 * records)

    def _erasable(
        self, chosen: Choice, with_noise: Callable[[Choice], Training]
    ) -> tuple[Choice, Callable[[Choice], Training]]:
        """The last iterate is released, and every step has a little noise: it fixes the grid."""
        if chosen.training.release != "last":
            why = "only the last iterate is released, which is what a ledger follows"
            reasons = tuple(each for each in chosen.reasons if each[0] != "the end")
            chosen = type(chosen)(
                chosen.training.replace(release="last"), chosen.loss, reasons, chosen.exposure
            ).because(("the end", why))
        if math.isfinite(self.epsilon):
            return chosen, with_noise

        def a_little(choice: Choice) -> Training:
            run = choice.training
            return run.replace(noise=_LITTLE * run.impulse * float(np.max(run.step_sizes)))

        return chosen, a_little
