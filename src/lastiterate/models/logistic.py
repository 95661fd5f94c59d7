"""Logistic regression: two classes by one score, more classes each against the rest.

With noise, the loss is capped: no record pushes harder than with slope 1/2, as a record of unknown
class does. That halves the noise and costs little, as only records on the wrong side feel it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from lastiterate.losses import CappedLogistic, LinearLoss, OneVsRest
from lastiterate.models.base import Array
from lastiterate.models.choose import cap_in_force
from lastiterate.models.confidence import ProbableClassifier


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(ProbableClassifier):
    """Logistic regression with a privacy certificate.

    Args:
        epsilon: how much one record may change what is released; inf trains without noise.
        delta: the probability with which epsilon may fail; 1/(10 n) with a warning.
        feature_bound: rows of features longer than this are shortened. Missing: every row is
            rescaled to norm 1, the intercept's column inside, because a bound measured on the
            private rows would itself leak.
        cap: how hard one record may push: the probability of its wrong class counts up to here.
            Missing: 1/2 with noise, 1 (the plain logistic loss) without.
        regularization: coefficient of the penalty; an L2 term is on the intercept too, and 0.1/n
            if missing (scikit-learn's C is 1/(n * regularization)).
        penalty: "l2"; "l1", whose zeros are exactly zero; or "elasticnet", both. An L1 term spares
            the intercept, needs a regularization and costs no privacy.
        l1_ratio: of "elasticnet": the share of the L1 term, as in scikit-learn.
        steps: number of updates; chosen if missing.
        batch_size: records per update; chosen if missing, full batches if at least n.
        learning_time: steps times step size times smoothness, how far the run gets: longer learns
            more and is noisier; chosen if missing. Steps follow from it, or with ``steps`` their
            size, up to 1.9 over the smoothness.
        quality: "fast" makes as many passes over the records as take about a second, at least ten;
            full batches for small tables. "best" makes at least a hundred: less noise at the same
            epsilon, most where parameters are many and records few.
        final_noise: factor on the variance of the last step's noise, or "best"; if missing, a
            burst or an equalised last epoch, whichever has the less predicted risk.
        fit_intercept: append a column of ones.
        adjacency: "zero-out" (a record's contribution removed) or "replace".
        prepare: "auto": ranges that are not declared, means and deviations of the columns are found
            privately with a share of epsilon, and with many records of three classes or more how
            columns go together, so that rows can be whitened; certificate_ covers everything,
            choice_ says what was paid. "whiten": also of two classes; "scale": never. Where nothing
            can be paid (sparse tables, tensors, streams, people, `tune`, epsilon=inf) or
            feature_bound is given, columns are taken as they are, or mapped by their declared
            ranges. None: taken as they are. Or a `PrivateStandardScaler` to fit first, whose
            epsilon comes on top.
        curved: whether answers may bend along the columns: beside every prepared column stand one
            or two waves of it, cosine and sine. It costs no privacy, but noise has three or five
            times as many coefficients to fall on. "auto": where records are many enough for that
            (a rule from public numbers; choice_ says how many waves, and why). False: never. True:
            always, which is refused where columns are taken as they are.
        feature_range: (low, high), each a number or one per column, infinite where unknown: public
            ranges of the columns, to which they are clipped. Columns of the type bool have the
            range [0, 1]. "dtype": integers of 8 and 16 bits have the range of their type. Say so
            only if the types are public (pixels): readers that downcast, as
            ``pandas.to_numeric(downcast=...)``, choose the type by the largest private value.
        max_records_per_group: with ``fit(X, y, groups=owners)``: epsilon is for a person with up to
            so many records. Others of theirs are dropped at random, and shuffled batches keep a
            person's records apart.
        max_sample_weight: with ``fit(X, y, sample_weight=weights)``: no weight is larger. Declared,
            because the largest one is private; noise is made for it.
        class_weight: a dictionary of how often a record of each class counts, 1 if not named. The
            numbers are public: shares counted in y must not be in them, so "balanced" is refused.
        calibrate: find, with a small share of epsilon, the scale at which `predict_proba` is right
            on average; models that stop in time are less sure than they could be. The predicted
            classes stay as they are.
        classes: the classes that a label can have, whether or not they occur: they fix the shape
            of the model, and another label is refused. Missing: the classes that occur in y,
            whose set is then released beside the certificate.
        random_state: a seed makes a reproducible experiment, without a certificate; None draws
            cryptographically secure noise.

    Attributes:
        coef_, intercept_: the model. Where answers bend (``curved``), coef_ has the coefficients of
            all columns, then of their cosines, then of their sines, and with a second wave of its
            cosines and sines: it is three or five times as wide as the table.
        classes_: the classes, sorted: those declared, or else those that occur, which is then a
            release that certificate_ does not cover.
        certificate_: the privacy that was spent, checkable by anybody, sealed when it is first
            read; None for experiments.
        training_, loss_: what ran, as the accountant sees it.
        choice_: what was chosen and why (print it).
        sharpness_: with ``calibrate``, the power that probabilities are raised to.
        n_iter_: number of updates.
        delta_: the delta in force.

    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = PrivateLogisticRegression(epsilon=2.0, delta=1e-4, random_state=0).fit(X, y)
    >>> model.training_.adjacency, model.certificate_ is None
    ('zero-out', True)
    """

    _: KW_ONLY
    cap: float | None = None

    def _binary(self) -> CappedLogistic:
        return CappedLogistic(cap_in_force(self.cap, self.epsilon))

    def _objective(self) -> LinearLoss:
        one = self._binary()
        return one if self._one_score else OneVsRest(one, len(self.classes_))

    def _linked(self, X: Any) -> Array:
        scores = self.decision_function(X)
        chance = self._binary().probability(scores)
        if chance.ndim == 1:
            return np.column_stack([1 - chance, chance])
        return np.asarray(chance / chance.sum(axis=1, keepdims=True))
