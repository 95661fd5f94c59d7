"""One pass over a stream of batches, each read once.

The number of batches is declared in advance, because the steps shrink over the pass so that every
position costs the same. No coefficients exist until the pass is over: a model that is visible half
way is a release. The order of the stream counts as known to the adversary. A pass may go on from a
model that was released: then its certificate is a link of a chain.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from lastiterate.certificate import CertificateChain
from lastiterate.description import Arithmetic
from lastiterate.description.fields import integer
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses.rounding import up
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.models.ranges import public_ends
from lastiterate.train import noisy_descent
from lastiterate.train.summation import (
    CALLABLE_OVERSHOOT,
    gradient_arithmetic,
    linear_arithmetic,
    score_error,
)
from lastiterate.train.torch_backend import as_array
from lastiterate.verifier.document import Head, parameters_hash

if TYPE_CHECKING:
    from lastiterate.losses import LinearLoss
    from lastiterate.models.base import Array, PrivateLinearModel

    _Model = PrivateLinearModel
else:
    _Model = object


class Streamed(_Model):
    """Adds `fit_stream` to an estimator."""

    def fit_stream(
        self,
        stream: Iterable[tuple[Any, Any]],
        *,
        batches: int,
        batch_size: int,
        classes: Any = None,
        continue_from: PrivateLinearModel | CertificateChain | None = None,
    ) -> Self:
        """Train in one pass over ``stream``, pairs of features and labels.

        Args:
            stream: exactly ``batches`` pairs (X, y) of at most ``batch_size`` records each. A
                shorter batch is divided by ``batch_size`` all the same.
            batches: how many pairs there are; the steps depend on it.
            batch_size: the records of a batch. Every record appears in one batch only.
            classes: of a classifier, in any order, unless the estimator has them; a stream shows
                them too late.
            continue_from: start from a model that was released: a fitted model of this package, or
                a `CertificateChain`, whose last model is taken (none yet: zeros). ``certificate_``
                is then a link; add it by ``chain.add(model.certificate_, model.parameters_)``
                before you publish the model.

        Nothing is fitted if the stream is too short, too long or raises.
        """
        self._refuse_stream()
        before, follows, paid_for = _released(continue_from)
        self._forget()
        batches = integer("batches", batches)
        batch_size = integer("batch_size", batch_size)
        origin = self._declare(classes)
        records = batches * batch_size
        self.delta_ = self._delta(records)
        objective = self._objective()
        heaviest = self._weights(getattr(self, "classes_", np.empty(0)), None)[1]
        reader = _Reader(self, objective, iter(stream), batch_size, batches)
        start = reader.start()
        if before is not None:
            start = _same_shape(self._joined(before), start)
        given = {"steps": batches, "batch_size": batch_size, "dimension": start.size}
        chosen = self._choose(objective, records, heaviest, known_order=True, **given)
        why = "one pass, each batch read once; the order counts as known"
        columns = start.shape[0]
        sums = gradient_arithmetic(chosen.training, start.size, CALLABLE_OVERSHOOT)
        each = linear_arithmetic(chosen.training, objective, columns)
        engine = None
        if sums is not None and each is not None:
            engine = Arithmetic(error=up(Fraction(sums.error) + Fraction(each.error)))
        per_length = score_error(chosen.training, objective, columns, self._rows.norm)
        paid = chosen.because(("stream", why), *origin, *reader.reasons)
        radius = self._pay(paid, engine, start, self._calibrated, per_length)
        released = noisy_descent(
            reader.gradients,
            None,
            self.training_,
            start=start,
            regularization=self.loss_.regularization,
            radius=radius,
            random_state=self.random_state,
        )
        reader.must_be_empty()
        self._finish(released, [] if paid_for else [None], follows)
        return self

    def _declare(self, classes: Any) -> tuple[tuple[str, str], ...]:
        """Fix the classes before the first batch; a regression has none."""
        if classes is not None:
            allowed = "absent: a regression has a target_bound instead"
            raise DescriptionError("classes", classes, allowed, "its targets are numbers")
        return ()

    def _refuse_stream(self) -> None:
        if self.max_records_per_group is not None:
            raise UnsupportedError(
                "max_records_per_group= asks for a guarantee by the person, but a stream does not "
                "say whose records it holds: use fit(X, y, groups=...)."
            )
        if not (self.prepare is None or isinstance(self.prepare, str)):
            raise UnsupportedError(
                "prepare= reads the data before training, but a stream is read once: prepare the "
                "batches with public constants, or use fit."
            )
        if getattr(self, "calibrate", False):
            raise UnsupportedError(
                "calibrate= looks at all records after training, but a stream is read once: use "
                "fit."
            )
        if not np.isfinite(self.epsilon):
            raise UnsupportedError(
                "epsilon=inf asks for convergence, which one pass does not give: use fit."
            )


def _released(source: Any) -> tuple[dict[str, Array] | None, Head | None, bool]:
    """The model to go on from, what a link then follows, and whether that has a certificate."""
    if source is None:
        return None, None, True
    if isinstance(source, CertificateChain):
        head, found = source.head, source.parameters
        if found is not None and not isinstance(found, dict):
            why = "noisy_descent goes on from such a chain"
            allowed = "a chain of models with coef_ and intercept_"
            raise DescriptionError("continue_from", "a chain of plain arrays", allowed, why)
        certified = True
    elif callable(getattr(source, "fit_stream", None)):
        if source._learnt_statistics:
            raise AssumptionError(
                "The model to go on from has a preparation of its own, learnt from other records: "
                "its coefficients mean nothing without it. Go on from a model of fit_stream, or "
                "of fit with prepare=None."
            )
        found, certificate = source.parameters_, source.certificate_
        if certificate is not None and certificate.unit.last_step is not None:
            raise AssumptionError(
                "The certificate of the model to continue from covers records that were deleted "
                "from it, and no record that it still uses. Continue from a model of fit_stream."
            )
        certified = certificate is not None
        head = Head("", None) if certificate is None else certificate.head
    else:
        why = "only a model that was released may depend on other people's data"
        allowed = "a fitted model of this package or a CertificateChain"
        raise DescriptionError("continue_from", type(source).__name__, allowed, why)
    if not certified:
        warnings.warn(
            "This model gets no certificate: it goes on from one that has none, and whoever was "
            "used for that is covered by nothing.",
            PrivacyWarning,
            stacklevel=3,
        )
        return found, None, False
    if head.parameters != (None if found is None else parameters_hash(found)):
        raise AssumptionError(
            "The model to go on from is not the one that its certificate is bound to: it was "
            "changed, another link was added meanwhile, or its preparation has a certificate of "
            "its own. Go on from a model of fit_stream as it was released."
        )
    return found, head, True


def _same_shape(start: Array, wanted: Array) -> Array:
    if start.shape != wanted.shape:
        why = "there is one parameter per feature and output"
        found = f"a model of shape {start.shape}"
        raise DescriptionError("continue_from", found, f"one of shape {wanted.shape}", why)
    return start


class _Reader:
    """Per-record gradients of the next batch, as the engine asks for them."""

    def __init__(
        self,
        model: PrivateLinearModel,
        objective: LinearLoss,
        stream: Iterator[tuple[Any, Any]],
        batch_size: int,
        batches: int,
    ) -> None:
        self._model, self._objective, self._stream = model, objective, stream
        self._size, self._batches = batch_size, batches
        self._read = 0
        self.reasons: tuple[tuple[str, str], ...] = ()
        self._next = self._batch()

    def start(self) -> Array:
        """Zeros: one parameter per feature and output."""
        outputs, features = self._objective.outputs(), self._next[0].shape[1]
        return np.zeros(features if outputs == 1 else (features, outputs))

    def gradients(self, parameters: Array, indices: Array) -> Array:
        """One gradient per record of the batch; absent records have gradient 0."""
        X, y, weights = self._next
        slope = self._objective.slope(X @ parameters, y)
        if weights is not None:
            slope *= weights if slope.ndim == 1 else weights[:, None]
        rows = np.zeros((len(indices), *parameters.shape))
        rows[: len(y)] = (
            X[:, :, None] * slope[:, None, :] if slope.ndim == 2 else X * slope[:, None]
        )
        if self._read < self._batches:
            self._next = self._batch()
        return rows

    def must_be_empty(self) -> None:
        """A stream with more batches than declared was not read to its end."""
        if next(self._stream, None) is not None:
            allowed = f"the number of batches in the stream, which has more than {self._batches}"
            why = "the steps were shrunk for the declared number"
            raise DescriptionError("batches", self._batches, allowed, why)

    def _batch(self) -> tuple[Array, Array, Array | None]:
        pair = next(self._stream, None)
        if pair is None:
            allowed = f"the number of batches in the stream, which has only {self._read}"
            why = "a pass that ends early has not the noise it was promised"
            raise DescriptionError("batches", self._batches, allowed, why)
        some, labels = pair
        X, y = self._model._validated(as_array(some), as_array(labels), first=self._read == 0)
        self._read += 1
        if X.shape[0] > self._size:
            why = "every update is divided by the declared size"
            found = f"{X.shape[0]} records in batch {self._read}"
            raise DescriptionError("batch_size", found, f"at most {self._size}", why)
        if self._read == 1:
            ends = public_ends(self._model.feature_range, some, X.shape[1])
            self.reasons = self._model._prepare(X, y, ends, "a stream is read once")[1]
        rows = self._model._rows.of(self._model._prepared(X))
        dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
        targets = self._model._targets(y)
        return dense, targets, self._model._weights(y, None)[0]
