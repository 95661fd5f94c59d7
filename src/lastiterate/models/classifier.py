"""Classes as scores: one score for two classes, one per class for more."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from lastiterate.errors import DescriptionError
from lastiterate.models.base import Array, PrivateLinearModel
from lastiterate.models.stream import Streamed


class PrivateClassifier(ClassifierMixin, Streamed, PrivateLinearModel):  # type: ignore[misc]
    """A classifier; the classes that occur are treated as public."""

    _score_per_class: ClassVar[bool] = False  # even for two classes

    def _see_labels(self, y: Array) -> None:
        check_classification_targets(y)
        self._set_classes(np.unique(y))

    def _set_classes(self, classes: Array) -> None:
        if len(classes) < 2:
            raise DescriptionError(
                "y", f"of one class, {classes.tolist()}", "of at least two classes",
                "a classifier that sees one class learns nothing and still spends privacy",
            )  # fmt: skip
        self.classes_ = classes

    @property
    def _one_score(self) -> bool:
        return len(self.classes_) == 2 and not self._score_per_class

    def _targets(self, y: Array) -> Array:
        place = np.searchsorted(self.classes_, y)
        known = self.classes_[np.minimum(place, len(self.classes_) - 1)] == y
        if not np.all(known):
            why = "the loss is bounded only for classes it knows"
            allowed = f"one of the declared classes {self.classes_.tolist()}"
            raise DescriptionError("y", "something else in places", allowed, why)
        return np.where(place == 1, 1.0, -1.0) if self._one_score else place

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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on 50 records noise is most of the answer
        return tags
