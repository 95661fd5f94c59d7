"""What the estimators share: description → calibration → training → certificate.

An estimator says which loss it minimises and how it reads labels; everything else is here, so that
all of them are accounted, trained and certified in the same way.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from lastiterate._internal.formatting import printed
from lastiterate._internal.progress import Working
from lastiterate.accounting.calibration import calibrate
from lastiterate.certificate import Certificate
from lastiterate.description import Arithmetic, Training
from lastiterate.description.fields import checked_delta, large_delta, number, one_of
from lastiterate.errors import DescriptionError, OperatorWarning, UnsupportedError
from lastiterate.losses import LinearLoss
from lastiterate.models.choose import (
    L2,
    MANY_PASSES,
    PASSES,
    Choice,
    choose,
    passes_in_time,
)
from lastiterate.models.penalty import penalised
from lastiterate.models.preparation import (
    Preparation,
    Promise,
    beside,
    prepared,
    prepared_exactly,
    worth_paying,
)
from lastiterate.models.privacy_warning import PrivacyWarning, warn_if_selected
from lastiterate.models.ranges import DeclaredRanges, ill_placed, public_ends
from lastiterate.models.read_numbers import read_numbers
from lastiterate.models.rows import Rows
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.unsealed import SealedWhenRead, Unsealed
from lastiterate.models.weights import weights_of_records
from lastiterate.train import Descent, noisy_descent
from lastiterate.train.grid import on_its_grid
from lastiterate.train.people import both_or_none
from lastiterate.train.summation import linear_arithmetic, score_error
from lastiterate.train.torch_backend import on_device
from lastiterate.verifier.document import Head

Array = NDArray[Any]
Engine = Arithmetic | Callable[[float], Arithmetic | None] | None  # by radius, or for all of them

HOW = ("auto", "whiten", "scale")  # to prepare columns; whitening where it pays, asked for, never
NO_NOISE = "without noise nothing is paid for"
_CONVERGED = 1e-3  # the gradient at the end, of that at the start
_SECRET = ("_gone",)
_PASSES = {"fast": PASSES, "best": MANY_PASSES}
_PULL = "it is how strongly models are pulled to zero"
_WEIGHTS = (
    "every loss counts by its weight over that, the penalty is divided by it too, and noise is as "
    "without weights; that weights belong to their records alone is yours to see to"
)


@dataclass(eq=False, repr=False)
class PrivateLinearModel(SealedWhenRead, BaseEstimator):  # type: ignore[misc]
    """A linear model trained by noisy gradient descent; subclasses choose the loss.

    The fields are the arguments of the constructor, which only stores them, as scikit-learn asks;
    a subclass adds its own. `PrivateLogisticRegression` explains them.
    """

    epsilon: float = 1.0
    delta: float | None = None
    feature_bound: float | None = None
    _: KW_ONLY
    regularization: float | None = None
    penalty: str = "l2"
    l1_ratio: float | None = None
    steps: int | None = None
    batch_size: int | None = None
    learning_time: float | None = None
    quality: str = "fast"
    final_noise: float | str | None = None
    fit_intercept: bool = True
    adjacency: str = "zero-out"
    prepare: Any = "auto"
    curved: Any = "auto"
    feature_range: Any = None
    max_records_per_group: int | None = None
    max_sample_weight: float = 1.0
    random_state: Any = None

    _numeric_labels: ClassVar[bool] = False
    _row_norm: ClassVar[float | None] = None  # of prepared rows; None: each is rescaled to 1

    # --- what a subclass says -----------------------------------------------------------------

    def _objective(self) -> LinearLoss:
        """The loss, once the classes are known."""
        raise NotImplementedError

    def _see_labels(self, y: Array) -> tuple[tuple[str, str], ...]:
        """Set what is public about the labels, a classifier's classes; where it comes from."""
        return ()

    def _targets(self, y: Array) -> Array:
        """The labels as the loss wants them."""
        raise NotImplementedError

    def _weights(self, y: Array, sample_weight: Any) -> tuple[Array | None, float]:
        """The weights of records with these labels over the largest there can be, and that."""
        if sample_weight is None:
            return None, 1.0
        most = self.max_sample_weight
        return weights_of_records(sample_weight, most, len(y)), float(most)

    def _store(self, parameters: Array) -> None:
        """Turn parameters, the intercept's row last, into fitted attributes."""
        raise NotImplementedError

    def _plan_after(self, records: int) -> tuple[float, tuple[tuple[str, str], ...]]:
        """What is to be released after the model: what it costs, in mu, and why."""
        return 0.0, ()

    def _release_after(self, X: Any, y: Array) -> Sequence[Certificate | None]:
        """Release that, and its certificate."""
        return ()

    # --- fitting ------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        *,
        sample_weight: Any = None,
    ) -> Self:
        """Train with the privacy that the parameters ask for.

        Args:
            X: features, one row per record: an array, a data frame or a sparse matrix; a torch
                tensor or `lastiterate.torch.Shards`, on which PyTorch trains by the same law.
            y: labels.
            groups: the owner of each record, with ``max_records_per_group``: epsilon is then for a
                person with all of their records.
            sample_weight: how often each record counts, between 0 and ``max_sample_weight``. A
                weight belongs to its record: it must not be computed from others. The statistics
                of a preparation count every record once.
        """
        learning = warn_if_selected()
        with Working("fit"):
            self._fit(X, y, self._calibrated, groups, sample_weight)
        self.learnt_before_ = learning  # settings of a pipeline's steps may change after the fit
        return self

    def _fit(
        self,
        X: Any,
        y: Any,
        with_noise: Callable[[Choice], Training],
        groups: Any = None,
        sample_weight: Any = None,
        unpaid: str = "",
    ) -> Self:
        """Train the chosen run; ``with_noise`` decides how much noise it needs.

        ``unpaid``: why no preparation can be paid for.
        """
        self._forget()
        self._check_people(groups)
        as_given = X
        X, y = self._validated(X, y)
        self.delta_ = self._delta(X.shape[0])
        origin = self._see_labels(y)
        objective, targets = self._objective(), self._targets(y)
        weights, heaviest = self._weights(y, sample_weight)
        if math.isinf(self.epsilon) and weights is not None and not weights.any():
            allowed = "at least one record of a weight above 0"
            reason = "without noise, nothing is left to learn from"
            raise DescriptionError("sample_weight", "0 for all records", allowed, reason)
        after, more = self._plan_after(X.shape[0])
        # Nothing is spent on labels, or a loss, that are refused.
        if groups is not None:
            unpaid = "statistics are paid for by the record, not by the person"
        passes = self._passes  # nothing is spent on a wrong quality= either
        ends = public_ends(self.feature_range, as_given, X.shape[1])
        before, why = self._prepare(X, y, ends, unpaid)
        origin = (*origin, *why)
        objective, targets = self._objective(), self._targets(y)  # in the range that was found
        data = self._rows.of(self._prepared(X))
        parameters = data.shape[1] * objective.outputs()
        if groups is None:  # small batches keep a person's records apart
            passes = passes_in_time(passes, X.shape[0], parameters)
        several = self._learnt_statistics and objective.outputs() > 2
        told = {"dimension": parameters, "passes": passes, "columns": several * X.shape[1]}
        chosen = self._choose(objective, X.shape[0], heaviest, **told)
        engine, per_length = self._engine(chosen.training, objective, data.shape[1])
        start = np.zeros(parameters)
        self._mu_beside, origin = after, (*origin, *more)
        if (paid := self._paid_before) is not None:
            self._mu_beside = math.hypot(after, paid.mu)
        radius = self._pay(chosen.because(*origin), engine, start, with_noise, per_length)
        described = self.training_
        released = noisy_descent(
            objective,
            data,
            described,
            labels=targets,
            regularization=self.loss_.regularization,
            feature_bound=self._rows.norm,
            radius=radius,
            random_state=self.random_state,
            groups=groups,
            max_records_per_group=self.max_records_per_group,
            per_batch=chosen.unit.per_batch,
            weights=weights,
            **(self._device_settings() if on_device(data) else {}),
        )
        self._weighted = weights is not None
        if not on_device(data) and not self._weighted:
            self._erasable_run = described, radius
        if after:
            self._store(released.parameters)
            before = [*before, *self._release_after(as_given, y)]
        self._finish(released, before)
        if math.isinf(self.epsilon) and described.proximal is None and not on_device(data):
            self._warn_unless_converged(data, targets, weights, released.parameters)
        return self

    def _warn_unless_converged(
        self, data: Any, targets: Array, weights: Array | None, parameters: Array
    ) -> None:
        """Compare the gradient at the end with that at 0; without noise both may be shown."""
        objective = self._objective()

        def steepness(at: Array) -> float:
            slopes = objective.slope(np.asarray(data @ at), targets)
            if weights is not None:
                slopes = slopes * weights.reshape(-1, *[1] * (slopes.ndim - 1))
            gradient = data.T @ slopes / data.shape[0] + self.loss_.regularization * at
            return float(np.abs(gradient).max())

        left, first = steepness(parameters), steepness(np.zeros_like(parameters))
        if left > _CONVERGED * first:
            warnings.warn(
                f"After {self.training_.steps:,} steps without noise the gradient is still "
                f"{left / first:.2g} times as long as at the start. Ask for more steps (steps=), "
                "or for a larger regularization.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _pay(
        self,
        chosen: Choice,
        engine: Engine,
        start: Array,
        with_noise: Callable[[Choice], Training],
        per_length: float,
    ) -> float:
        """The noise of the run, with what its engine and its grid round; from this start.

        Returns the radius of a ball that it practically never leaves (`train.reach`).
        """
        self.loss_ = chosen.loss

        def paid(training: Training) -> Training:
            self.choice_ = chosen.described(training)
            return with_noise(self.choice_)

        self.training_, radius = on_its_grid(
            chosen.training,
            engine,
            start,
            self.loss_,
            paid,
            per_length,
            self._objective().at_zero(),
        )
        return radius

    def _engine(
        self, training: Training, objective: LinearLoss, columns: int
    ) -> tuple[Engine, float]:
        """How far the sums of the run can be off, and per unit of the parameters' length."""
        per_length = score_error(training, objective, columns, self._rows.norm)
        return linear_arithmetic(training, objective, columns), per_length

    def _device_settings(self) -> dict[str, Any]:
        """How tensors are trained on: too long rows are shortened on the fly."""
        return {"rows": "rescale" if self.feature_bound is None else "shorten"}

    def _validated(self, X: Any, y: Any, first: bool = True) -> tuple[Any, Array]:
        if on_device(X):
            from lastiterate.models import tensors

            X = tensors.read_features(self, X, first)
            return X, tensors.read_labels(y, int(X.shape[0]))
        return read_numbers(  # type: ignore[no-any-return]
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            y_numeric=self._numeric_labels,
            reset=first,
        )

    def _prepare(
        self, X: Any, y: Any, ends: tuple[Array, Array], unpaid: str
    ) -> tuple[list[Certificate | Unsealed | None], tuple[tuple[str, str], ...]]:
        """Fit the preparation, if there is one; what it cost, and why it was chosen."""
        if not (
            isinstance(self.curved, bool)
            or (isinstance(self.curved, str) and self.curved == "auto")
        ):
            why = "it says whether answers may bend along the columns"
            raise DescriptionError("curved", self.curved, "'auto', True or False", why)
        if not isinstance(self.prepare, str):
            self._refuse_to_bend("prepare= is not 'auto', 'whiten' or 'scale'")
        if self.prepare is None:
            self._unknown_range(y, "prepare=None")
            if said := ill_placed(*ends, self.feature_bound):  # by public ranges alone
                warnings.warn(
                    f"Columns are taken as they are: {said}. prepare='auto' maps them to "
                    "their ranges.",
                    stacklevel=5,
                )
            return [], ()
        if isinstance(self.prepare, str) and self.prepare in HOW:
            return self._prepare_automatically(X, y, ends, unpaid)
        if type(self.prepare) is not PrivateStandardScaler:  # a subclass may do anything
            raise UnsupportedError(
                f"prepare={self.prepare!r} may learn from the data without paying for it. Use "
                "'auto', 'whiten', 'scale' or PrivateStandardScaler, or transform the data "
                "beforehand by public constants."
            )
        if self.prepare.adjacency != self.adjacency:
            why = "the two costs compose only if they speak about the same neighbours"
            allowed = f"the model's {self.adjacency!r}"
            raise DescriptionError("prepare.adjacency", self.prepare.adjacency, allowed, why)
        self._unknown_range(y, "prepare= is for the columns alone")
        self.prepare_ = clone(self.prepare).fit(X)
        return [self.prepare_.certificate_], ()

    def _prepare_automatically(
        self, X: Any, y: Any, ends: tuple[Array, Array], unpaid: str
    ) -> tuple[list[Certificate | Unsealed | None], tuple[tuple[str, str], ...]]:
        declared = bool(np.isfinite(ends[0]).all())
        free = math.isinf(self.epsilon)
        as_it_is = ""
        if self.feature_bound is not None:
            as_it_is = "feature_bound says how long rows are"
        elif on_device(X):
            as_it_is = "tensors stay where they are"
        elif unpaid or sp.issparse(X):
            as_it_is = unpaid or "means would fill a sparse table"
        elif declared and not free and not worth_paying(X.shape[0], X.shape[1], self._promise):
            as_it_is = "noise on means of so few records is wider than the ranges are"
        if as_it_is:
            self._refuse_to_bend(as_it_is)
        reason = ("preparation", f"the columns are taken as they are: {as_it_is}")
        if as_it_is and declared and self.feature_bound is None and not on_device(X):
            self.prepare_ = DeclaredRanges(*ends)
            reason = ("preparation", f"declared ranges alone, which are free: {as_it_is}")
        targets = self._unknown_range(y, unpaid or (NO_NOISE if free else ""))
        if free and not as_it_is:
            self.prepare_ = prepared_exactly(X, *ends, self._promise)
            return [], (("preparation", f"exact means and deviations: {NO_NOISE}"),)
        if as_it_is and targets is None:
            return [], (reason,)
        if as_it_is:
            ends = (np.zeros(0), np.zeros(0))
        self._preparation = found = prepared(None if as_it_is else X, *ends, targets, self._promise)
        if found.columns is not None:
            self.prepare_ = found.columns
        if found.target_range is not None:
            self.target_range_ = found.target_range
        return [*found.certificates], (*((reason,) if as_it_is else ()), *found.reasons)

    def _refuse_to_bend(self, why: str) -> None:
        if self.curved is True:
            raise UnsupportedError(
                "curved=True bends answers by deviations of the columns that were found privately, "
                f"and none are found here: {why}. Leave curved= out, or call fit with "
                "prepare='auto' on a table whose preparation can be paid for."
            )

    @property
    def _promise(self) -> Promise:
        kept = (self.epsilon, self.delta_, self.adjacency, self.random_state)
        several = self.prepare == "auto" and len(self.__dict__.get("classes_", ())) > 2
        whiten = several or self.prepare == "whiten"
        return Promise(*kept, row_norm=self._row_norm, whiten=whiten, curved=self.curved)

    def _unknown_range(self, y: Any, unpaid: str) -> Array | None:
        """Targets whose range has to be found; None if there is nothing to find, or to pay with."""
        return None

    @property
    def _learnt_statistics(self) -> bool:
        """Whether anything beside the model was learnt from the records."""
        known, free = self.__dict__, (type(None), DeclaredRanges)
        return "target_range_" in known or not isinstance(known.get("prepare_"), free)

    @property
    def _paid_before(self) -> Preparation | None:
        """What prepare="auto" spent of this model's budget."""
        return self.__dict__.get("_preparation")

    def _prepared(self, X: Any) -> Any:
        before = self.__dict__.get("prepare_")
        if before is None:
            return X
        dense = sp.issparse(X) and not isinstance(before, DeclaredRanges)
        return before.transform(X.toarray() if dense else X)

    @property
    def _rows(self) -> Rows:
        bound = self.feature_bound
        if bound is None:  # a preparation may have made most rows so long
            bound = getattr(self.__dict__.get("prepare_"), "bound", None)
        return Rows(bound, bool(self.fit_intercept))

    def _delta(self, records: int) -> float:
        if math.isinf(number("epsilon", self.epsilon, above=0.0, infinite=True)):
            return 0.0
        if self.delta is None:
            warnings.warn(
                f"delta was not given; 1 / (10 * records) = {printed(1 / (10 * records))} is "
                "used. It "
                "is the probability with which epsilon may fail: choose it well below 1/records.",
                PrivacyWarning,
                stacklevel=3,
            )
            return 1 / (10 * records)
        delta = checked_delta(self.delta)
        if said := large_delta(delta, records):
            warnings.warn(said, PrivacyWarning, stacklevel=3)
        return delta

    def _choose(
        self, objective: LinearLoss, records: int, heaviest: float = 1.0, **known: Any
    ) -> Choice:
        one_of("adjacency", self.adjacency, ("replace", "zero-out"))
        most = 1 if self.max_records_per_group is None else min(self.max_records_per_group, records)
        given = {
            "steps": self.steps,
            "batch_size": self.batch_size,
            "max_records_per_group": most,
            **known,
        }
        given.setdefault("passes", self._passes)
        l2, proximal = penalised(
            self.penalty, self.regularization, self.l1_ratio, spared=int(bool(self.fit_intercept))
        )
        if heaviest != 1:  # every loss is divided by it, and so is what pulls against them
            l2 = L2 / records if l2 is None else number("regularization", l2, _PULL, at_least=0.0)
            l2 /= heaviest
            proximal = proximal and replace(proximal, weight=proximal.weight / heaviest)
        if proximal is not None and given["batch_size"] is None:
            given["batch_size"] = records  # the noise of one small batch is above any threshold
        chosen = choose(
            objective,
            records=records,
            row_norm=self._rows.norm,
            epsilon=self.epsilon,
            delta=self.delta_,
            regularization=l2,
            adjacency=self.adjacency,
            final_noise=self.final_noise,
            learning_time=self.learning_time,
            **given,
        )
        if heaviest != 1:
            chosen = chosen.because((f"weights up to {heaviest:g}", _WEIGHTS))
        if proximal is None:
            return chosen
        free = "it follows every update, at no price: it brings no two models farther apart"
        chosen = chosen.described(chosen.training.replace(proximal=proximal))
        return chosen.because((str(proximal), free))

    @property
    def _passes(self) -> int:
        """Over the records, at least, where nothing says otherwise."""
        one_of("quality", self.quality, tuple(_PASSES))
        return _PASSES[self.quality]

    def _calibrated(self, choice: Choice) -> Training:
        """The chosen run with the smallest noise that keeps the promise."""
        if math.isinf(self.epsilon):
            return choice.training
        target = (self.epsilon, self.delta_)
        if mu := self.__dict__.get("_mu_beside"):
            return beside(mu, choice, *target)
        return calibrate(choice.training, choice.loss, *target, unit=choice.unit)

    def _check_people(self, groups: Any) -> None:
        """Raise unless it can be said whose records are whose, and what everything costs them."""
        both_or_none(groups, self.max_records_per_group)
        if groups is not None and isinstance(self.prepare, PrivateStandardScaler):
            raise UnsupportedError(
                "prepare= is paid for by the record, and groups= asks for a guarantee by the "
                "person. Prepare the records with public constants."
            )

    def _finish(
        self,
        released: Descent,
        before: Sequence[Certificate | Unsealed | None],
        follows: Head | None = None,
    ) -> None:
        if released.above:  # told to the operator; a model that is handed on does not say it
            warnings.warn(
                f"{len(released.above):,} of the people have more than max_records_per_group = "
                f"{self.max_records_per_group} records; the others were dropped at random.",
                OperatorWarning,
                stacklevel=4,
            )
            released = replace(released, above=())
        self.training_ = released.training  # what is certified is what was computed
        self.n_iter_ = self.training_.steps
        self._store(released.parameters)
        if released.experiment and self.random_state is None:
            why = f"This model gets no certificate. {released.objection}"
            warnings.warn(why, PrivacyWarning, stacklevel=4)
        self.certificate_ = None
        if not released.experiment and math.isfinite(self.epsilon) and None not in before:
            paid = [certificate for certificate in before if certificate is not None]
            self.certificate_ = Unsealed.of(
                released, self.loss_, self.delta_, self.parameters_, paid, follows
            )

    @property
    def parameters_(self) -> dict[str, Array]:
        """What the certificate is bound to: the coefficients and the intercept."""
        check_is_fitted(self, "coef_")
        return {"coef_": np.asarray(self.coef_), "intercept_": np.asarray(self.intercept_)}

    @property
    def _certified(self) -> bool:
        """Whether there is a certificate, or will be one when it is read."""
        return self.__dict__.get("certificate_") is not None

    def _forget(self) -> None:
        """An older model must not stand beside the description of a run that failed."""
        told = ("coef_", "intercept_", "certificate_", "n_iter_", "learnt_before_")
        paid = ("prepare_", "_preparation", "target_range_")
        after = ("sharpness_", "_mu_beside", "_mechanism")
        for name in (*told, *paid, *after, "_erasable_run", "erased_", *_SECRET):
            self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        """A copy, or a file, has the model, but not which records were deleted from it."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name not in _SECRET}

    # --- using --------------------------------------------------------------------------------

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self, "coef_")
        parameters = np.atleast_2d(self.coef_)
        if self.fit_intercept:
            column = np.reshape(self.intercept_, (-1, 1))
            parameters = np.hstack([parameters, column])
        if on_device(X):
            from lastiterate.models import tensors

            return tensors.scores_of(tensors.read_features(self, X, False), parameters, self._rows)
        kinds = (np.float64, np.float32)
        X = read_numbers(self, X, accept_sparse="csr", dtype=kinds, reset=False)
        rows = self._rows.of(self._prepared(X))
        return np.asarray(rows @ parameters.T)

    def _split(self, parameters: Array) -> tuple[Array, Array]:
        """Coefficients (outputs, features) and intercepts (outputs,)."""
        # Rows one after the other, as files hold them: sums in another order differ in a bit.
        table = np.array(parameters.reshape(len(parameters), -1).T, order="C")
        if self.fit_intercept:
            return table[:, :-1], table[:, -1]
        return table, np.zeros(len(table))

    def _joined(self, parameters: Mapping[str, Array]) -> Array:
        """The parameters of a run whose `_store` gave these coefficients and intercepts."""
        table = np.atleast_2d(parameters["coef_"])
        if self.fit_intercept:
            table = np.hstack([table, np.reshape(parameters["intercept_"], (-1, 1))])
        return table[0] if len(table) == 1 else table.T

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = not isinstance(self.prepare, PrivateStandardScaler)
        return tags
