"""The certificate of everything that a fitted model or pipeline learnt from the records."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import Any

from lastiterate.certificate import Certificate, compose
from lastiterate.errors import CertificateError
from lastiterate.models.privacy_warning import PrivacyWarning
from lastiterate.models.stateless import Step, costs, own, steps_of

REMEDY = (
    "Use PrivateStandardScaler (its cost is composed), steps that learn nothing ("
    "ScatteringFeatures, Normalizer, Binarizer, PolynomialFeatures, RBFSampler with a number as "
    "gamma, HashingVectorizer, FeatureHasher, encoders with declared categories, constant "
    "imputation, FunctionTransformer of a NumPy function), or transform the data beforehand by "
    "public constants."
)


def certificate_of(model: Any, *, stateless: Collection[str] = ()) -> Certificate:
    """The certificate of a fitted model of this package, or of all that a fitted pipeline learnt.

    Args:
        model: a model or scaler of this package, or a ``Pipeline`` with one. Its other
            steps, also inside of ``ColumnTransformer`` and ``FeatureUnion``, must learn nothing
            (a list of exact classes, see `lastiterate.models.stateless`) or be
            `PrivateStandardScaler`, whose cost is composed. Everything else raises.
        stateless: steps of which you vouch that they learnt nothing from these records, by name
            (nested names joined by "__"): only for functions, frozen estimators and classes of
            other packages, which nobody but their author can judge. The certificate does not
            cover your word, and a `PrivacyWarning` says so.

    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import Normalizer
    >>> from lastiterate.models import PrivateLogisticRegression
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateLogisticRegression(epsilon=1.0, delta=1e-4, classes=[0, 1])
    >>> certificate_of(make_pipeline(Normalizer(), model).fit(X, y)).epsilon <= 1.0
    True
    """
    steps = list(steps_of(model))
    _refuse_learning([*steps, *_learnt_before(steps)], stateless)
    found: list[Certificate | None] = [
        getattr(each.step, "certificate_", None) for each in steps if costs(each.step)
    ]
    if not found:
        raise CertificateError(
            f"{type(model).__name__} is no model of lastiterate and no pipeline with one: there is "
            "no certificate."
        )
    paid = [certificate for certificate in found if certificate is not None]
    if len(paid) < len(found):
        raise CertificateError(
            "A step has no certificate: it was not fitted, was seeded by random_state, or trained "
            "with epsilon=inf. Fit it with random_state=None and a finite epsilon."
        )
    return paid[0] if len(paid) == 1 else compose(paid)


def _learnt_before(steps: list[Step]) -> list[Step]:
    """What stood before this package's steps when they were fitted, and may have learnt then."""
    return [
        before
        for each in steps
        if own(each.step)
        for before in getattr(each.step, "learnt_before_", ())
    ]


def _kind(each: Step) -> str:
    return each.step if isinstance(each.step, str) else type(each.step).__name__


def _refuse_learning(steps: list[Step], stateless: Collection[str]) -> None:
    """Raise for steps that learn from the records, unless the user can and does vouch for them."""
    vouched = {stateless} if isinstance(stateless, str) else set(stateless)
    unknown = vouched - {each.path for each in steps}
    if unknown:
        raise CertificateError(
            f"stateless names {sorted(unknown)}, and there is no such step; the steps are "
            f"{sorted({each.path for each in steps})}."
        )
    for each in steps:
        if each.objection and not (each.undecided and each.path in vouched):
            name = f"The step {each.path!r}" if each.path else "The model"
            hint = f' If it learns nothing, vouch for it: stateless=["{each.path}"].'
            raise CertificateError(
                f"{name} ({_kind(each)}) is not covered by any certificate: "
                f"{each.objection}. {REMEDY}{hint if each.undecided and each.path else ''}"
            )
    taken = sorted({each.path for each in steps if each.objection})
    if taken:
        warnings.warn(
            f"{', '.join(taken)}: that these steps learnt nothing from the records is your word, "
            "which the certificate does not cover.",
            PrivacyWarning,
            stacklevel=3,
        )
