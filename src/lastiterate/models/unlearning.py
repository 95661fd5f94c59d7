"""Deleting records that an estimator was fitted on, by clean steps on what remains.

As many as `plan_unlearning` says, where every update used all records. The rows of the deleted stay
in place and empty, so that nobody else's batch changes.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lastiterate.description import PrivacyUnit
from lastiterate.description.fields import checked_delta
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.train.clean_steps import emptied, gone_on, indices_of, some_left
from lastiterate.train.torch_backend import on_device
from lastiterate.unlearning import UnlearningPlan, plan_unlearning
from lastiterate.verifier.document import parameters_hash

if TYPE_CHECKING:
    from lastiterate.models.base import Array, PrivateLinearModel

    _Model = PrivateLinearModel
else:
    _Model = object


class Erasing(_Model):
    """Adds `unlearn` to an estimator."""

    def unlearn(
        self,
        indices: Any,
        X: Any,
        y: Any,
        *,
        epsilon: float,
        delta: float | None = None,
        erased: Any = None,
    ) -> UnlearningPlan:
        """Delete records by clean steps on what remains, from the model as it was released.

        As many steps as `plan_unlearning` says, with the noise of the run, where every update used
        all records. ``coef_``, ``intercept_``, ``training_`` and ``certificate_`` are new; the plan
        that is returned has the alternatives beside it. The certificate is for the deleted, towards
        readers who saw no model from before, and only if no request was made because of one; for
        those who stay this is a further model of their data, which the certificate of the fit does
        not cover. That X and y are those of the fit is not checked.

        Args:
            indices: rows of X to delete, by their numbers.
            X, y: exactly as they were fitted, in the same order. Rows that earlier requests have
                deleted may hold anything valid, such as zeros and any class.
            epsilon: how near the model must come to one that never had them.
            delta: of the certificate; the model's if left out.
            erased: the rows that earlier requests have deleted, for a model that was pickled or
                copied since.
        """
        check_is_fitted(self, "coef_")
        run, told = self.training_, self._told_delta(delta)
        self._cleanable(X)
        asked, before = indices_of(indices, run.records), self._erased_before(erased)
        some_left(asked, before, run.records)
        X, y = self._validated(X, y, first=False)
        gone = np.union1d(before, asked)
        self._check_classes(y, gone)
        data, targets = emptied(self._rows.of(self._prepared(X)), self._targets(y), gone)
        loss = replace(self.loss_, strong_convexity=0.0)  # empty slots curve nothing
        plan = plan_unlearning(run, loss, PrivacyUnit(records=len(asked)), epsilon, told)
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
        self._finish(replace(released, unit=plan.deleted), [])
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
        elif self.max_records_per_group is not None:
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
                f"Clean steps are not possible here: {objection}. Fit again on what remains."
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

    def _told_delta(self, delta: float | None) -> float:
        records = self.training_.records
        if delta is not None:
            return checked_delta(delta, records)
        if self.delta_:
            return self.delta_
        warnings.warn(
            "delta was not given; 1 / (10 * records) is used for the certificate of unlearning. It "
            "is the probability with which epsilon may fail: choose it well below 1/records.",
            PrivacyWarning,
            stacklevel=3,
        )
        return 1 / (10 * records)
