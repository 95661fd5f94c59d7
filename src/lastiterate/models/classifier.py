"""Classes as scores: one score for two classes, one per class for more.

How many classes a model has, and which, is read off the model by whoever gets it. Declared classes
(``classes=``) are public and fix its shape, whatever occurs. Without a declaration the set of the
classes that occur is released beside the certificate: one record with a rare label gives the model
a row of its own, and no noise hides that.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from lastiterate.errors import DescriptionError
from lastiterate.models.base import Array, PrivateLinearModel
from lastiterate.models.elsewhere import Elsewhere
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.models.read_numbers import scored
from lastiterate.models.stream import Streamed
from lastiterate.models.unlearning import Erasing
from lastiterate.models.weights import weights_of_classes

DECLARED = ("classes", "declared, so that the model has the same shape whichever labels occur")
OCCURRING = (
    "classes",
    "NOT DECLARED: those that occur in y, so that the set of occurring classes is released and no "
    "certificate covers it; declare classes= to keep it",
)

UNDECLARED = (
    "The classes were read off the labels: whoever gets the model learns which labels occur, a "
    "rare one (a name, a diagnosis) included, and no certificate covers that. Declare classes=."
)


@dataclass(eq=False, repr=False)
class PrivateClassifier(ClassifierMixin, Erasing, Elsewhere, Streamed, PrivateLinearModel):  # type: ignore[misc]
    """A classifier; its classes are declared, or those that occur are released."""

    _: KW_ONLY
    classes: Any = None
    class_weight: Any = None
    _score_per_class: ClassVar[bool] = False  # even for two classes

    def _see_labels(self, y: Array) -> tuple[tuple[str, str], ...]:
        if self.classes is not None:
            return self._declare(None)
        check_classification_targets(y)
        occurring = np.unique(y)
        if len(occurring) < 2:
            raise DescriptionError(
                "y",
                "of one class (not shown: error messages travel)",
                "of at least two classes",
                "a classifier that sees one class learns nothing and still spends privacy, unless "
                "the others are declared (classes=)",
            )
        self.classes_ = occurring
        if self.random_state is None and np.isfinite(self.epsilon):
            warnings.warn(UNDECLARED, PrivacyWarning, stacklevel=4)
        return (OCCURRING,)

    def _declare(self, classes: Any) -> tuple[tuple[str, str], ...]:
        if classes is None and self.classes is None:
            why = "a class that first occurs late in the stream would change the model"
            raise DescriptionError("classes", None, "all classes, declared in advance", why)
        both = [declared(given) for given in (self.classes, classes) if given is not None]
        if not np.array_equal(both[0], both[-1]):
            why = "two declarations of one model's shape must agree"
            allowed = f"the estimator's {both[0].tolist()}, or left out"
            raise DescriptionError("classes", both[-1].tolist(), allowed, why)
        self.classes_ = both[0]
        return (DECLARED,)

    @property
    def _one_score(self) -> bool:
        return len(self.classes_) == 2 and not self._score_per_class

    def _targets(self, y: Array) -> Array:
        try:
            place = np.searchsorted(self.classes_, y)
            known = self.classes_[np.minimum(place, len(self.classes_) - 1)] == y
        except TypeError:  # labels that cannot be compared with the classes
            known = np.zeros(1, dtype=bool)
        if not np.all(known):
            raise DescriptionError(
                "y",
                "a label outside of the declared classes",
                f"one of {self.classes_.tolist()}",
                "such a record must neither change the model's shape nor be dropped in silence. "
                "Which label it is and where is not said here, because error messages travel; the "
                "refusal itself tells that there is one. Declare every class that a label can "
                "have, or clean the labels by a rule that is public",
            )
        return np.where(place == 1, 1.0, -1.0) if self._one_score else place

    def _weights(self, y: Array, sample_weight: Any) -> tuple[Array | None, float]:
        weights, heaviest = super()._weights(y, sample_weight)
        if self.class_weight is None:
            return weights, heaviest
        each = weights_of_classes(self.class_weight, self.classes_)
        most = float(each.max())
        own = each[np.searchsorted(self.classes_, y)] / most
        return own if weights is None else own * weights, most * heaviest

    def _store(self, parameters: Array) -> None:
        self.coef_, self.intercept_ = self._split(parameters)

    def decision_function(self, X: Any) -> Array:
        """Scores: positive for the second class of two, otherwise one per class."""
        scores = self._scores(X)
        if len(self.classes_) == 2:
            return scores[:, 0] if self._one_score else scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> Array:
        """The class with the highest score."""
        scores = self.decision_function(X)
        place = (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[place])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of right answers; on private records that is a release by itself."""
        score = partial(super().score, X)
        return scored(score, y, sample_weight, f"labels like {self.classes_.tolist()}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on 50 records noise is most of the answer
        return tags


def declared(classes: Any) -> Array:
    """The declared classes, sorted; raises unless they are at least two different ones.

    >>> declared(["no", "yes", "maybe"]).tolist()
    ['maybe', 'no', 'yes']
    """
    try:
        values = [classes] if isinstance(classes, str | bytes) else list(classes)
        found = np.unique(np.asarray(values))
        # An array has one kind: the label 1 must not turn into the label "1".
        same = {*found.tolist()} == {*values} and not any(v != v for v in found.tolist())
    except (TypeError, ValueError):
        same = False
    if not same or not 2 <= len(found) == len(values):
        why = "they fix the shape of the model"
        allowed = "a list of at least two labels of one kind, each named once"
        raise DescriptionError("classes", classes, allowed, why)
    return found
