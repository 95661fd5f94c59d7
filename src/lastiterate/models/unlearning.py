"""Forgetting records that an estimator was fitted on.

With a `Ledger` that `fit` was given, one perturbation forgets them (`lastiterate.train.unlearn`).
Without one, clean steps do (`plan_unlearning`), where every update saw all records. The rows of the
deleted stay in place and empty, so that nobody else's batch changes.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lastiterate.curves.gaussian import Gaussian
from lastiterate.description import Exposure, FullBatch, Training
from lastiterate.description.failure import promised_delta
from lastiterate.description.validation import whole
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.printing import printed
from lastiterate.train import Forgotten, noisy_descent, unlearn
from lastiterate.train.clean_steps import gone_on
from lastiterate.train.forgetting import emptied, indices_of, some_left
from lastiterate.train.torch_backend import on_device
from lastiterate.unlearning import Ledger, UnlearningPlan, plan_unlearning
from lastiterate.verifier.document import parameters_hash

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
        epsilon: float | None = None,
        delta: float | None = None,
        steps: int = 0,
        wait: float | None = None,
        erased: Any = None,
    ) -> Forgotten | UnlearningPlan:
        """Forget records: the model becomes one that never had them, as far as it is promised.

        ``coef_``, ``intercept_`` and ``certificate_`` are new, and what is returned says what the
        guarantee is (and, of a ledger, what remains on disk). The certificate is for the deleted,
        towards readers who saw no model from before, and only if no request was made because of
        one; for those who stay this is a further model of their data, which the certificate of the
        fit does not cover.

        With a ledger one perturbation does it. With ``epsilon`` instead, and full batches, clean
        steps on what remains: as many as `plan_unlearning` says, from the model as it was released,
        with the noise of the run. Nothing remembers the records then: that X and y are those of
        the fit is yours to see to.

        Args:
            indices: rows of X to forget, by their numbers.
            X, y: exactly as they were fitted, in the same order: the ledger notices. Rows that
                earlier requests have erased may hold anything valid, such as zeros and any class.
            ledger: `Ledger.load(folder, key)` for a model that was pickled or copied since; the one
                that ``fit`` was given is known.
            epsilon: without a ledger: how near the model must come to one that never had them.
            delta: of the certificate; the model's if left out.
            steps: full-batch steps without noise on what remains, after the perturbation. They cost
                the deleted nothing, and hide nothing about those who stay.
            wait: as in `lastiterate.train.unlearn`: when the answer leaves, so that nobody sees in
                the time whether the run had to be repeated; by default twice what the run took.
            erased: with ``epsilon``: the rows that earlier requests have erased, for a model that
                was pickled or copied since.
        """
        check_is_fitted(self, "coef_")
        if epsilon is not None:
            if ledger is not None or self.__dict__.get("_with_ledger"):
                why = "a ledger counts the models of its run, and this would be one that it misses"
                raise DescriptionError("epsilon", epsilon, "absent where a ledger was kept", why)
            for name, given in (("steps", steps or None), ("wait", wait)):
                if given is not None:
                    why = "the plan says how many steps there are, and depends on public numbers"
                    raise DescriptionError(name, given, "left out with epsilon", why)
            return self._cleaned(indices, X, y, epsilon, delta, erased)
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
            raise DescriptionError(
                "ledger", f"of mu = {printed(mu)}", "a budget below its noise", why
            )
        X, y = self._validated(X, y, first=False)
        asked = indices_of(indices, self.training_.records)
        self._check_classes(y, np.union1d(ledger.gone, asked))
        data, targets = self._rows.of(self._prepared(X)), self._targets(y)
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

    def _cleaned(
        self, indices: Any, X: Any, y: Any, epsilon: float, delta: float | None, erased: Any
    ) -> UnlearningPlan:
        """Clean steps on what remains, from the released last iterate."""
        run, told = self.training_, self._told_delta(delta)
        self._cleanable(X)
        asked, before = indices_of(indices, run.records), self._erased_before(erased)
        some_left(asked, before, run.records)
        X, y = self._validated(X, y, first=False)
        gone = np.union1d(before, asked)
        self._check_classes(y, gone)
        data, targets = emptied(self._rows.of(self._prepared(X)), self._targets(y), gone)
        loss = replace(self.loss_, strong_convexity=0.0)  # empty slots curve nothing
        plan = plan_unlearning(run, loss, Exposure(records=len(asked)), epsilon, told)
        released = gone_on(
            self._objective(),
            data,
            plan.continued,
            run.steps,
            self._joined(self.parameters_),
            labels=targets,
            regularization=loss.regularization,
            feature_bound=self._rows.norm,
            radius=self._erasable_run[1],
            experiment=not self._certified,
        )
        self.loss_, self.delta_ = loss, told
        self._finish(replace(released, exposure=plan.deleted), [])
        self._gone, self.erased_ = gone, len(gone)
        return plan

    def _cleanable(self, X: Any) -> None:
        """Raise where clean steps would not be what is accounted."""
        objection = None
        if "_erasable_run" not in self.__dict__ or on_device(X):
            objection = (
                "only the steps of fit, on arrays or sparse matrices and without weights, are gone "
                "on with"
            )
        elif self.per_person is not None:
            objection = "nobody kept which records of a person were dropped"
        elif self._learnt_statistics:
            objection = (
                "the preparation has learnt from all records, and clean steps do not clean that; "
                "prepare=None learns nothing"
            )
        elif getattr(self, "calibrate", False):
            objection = "calibrate= has learnt from all records, and clean steps do not clean that"
        elif self.training_.release != "last":
            objection = (
                "an average of iterates was released, which holds those from before the deletion; "
                "fit with final_noise=1.0 releases the last one"
            )
        if objection is not None:
            raise UnsupportedError(
                f"Clean steps are not possible here: {objection}. Fit again on what remains, or "
                "with a ledger (fit(X, y, ledger=Ledger(...)))."
            )
        held = self.certificate_
        if held is not None and held.content["parameters"] != parameters_hash(self.parameters_):
            raise AssumptionError(
                "The model is not the one that its certificate is bound to: it was changed, and "
                "clean steps would start from somewhere else than the run ended."
            )

    def _check_classes(self, y: Array, gone: Array) -> None:
        """Raise if classes were read off the labels, and what remains would not have them all."""
        if getattr(self, "classes", ()) is not None:
            return
        left = y[~np.isin(np.arange(len(y)), gone)]
        if len(np.unique(left)) < len(self.classes_):
            raise AssumptionError(
                "The classes of this model were read off the labels, and only the deleted had one "
                "of them: it stays in the model, which a run without them could not have. Nothing "
                "was released. Fit again on what remains; with classes= declared that cannot "
                "happen."
            )

    def _erased_before(self, erased: Any) -> Array:
        count, known = self.__dict__.get("erased_", 0), self.__dict__.get("_gone")
        nobody: Array = np.zeros(0, np.int64)
        if erased is None and (known is not None or not count):
            return nobody if known is None else known
        found = nobody if erased is None else indices_of(erased, self.training_.records)
        if len(found) != count or (known is not None and not np.array_equal(found, known)):
            allowed = f"the {count:,} rows that were erased before"
            why = "with an intercept empty features alone would bring them back"
            raise DescriptionError("erased", f"{len(found):,} rows", allowed, why)
        return found

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
