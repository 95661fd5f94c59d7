"""Private choice of hyper-parameters: try a random number of random candidates, keep the best.

Trying k candidates and releasing the best costs about k times the privacy. A *random* number of
trials costs only a little more than one (Liu and Talwar 2019; Papernot and Steinke 2022): with the
logarithmic distribution, P(k) ∝ (1 − γ)^k / k, and trials of Renyi divergence r(order), the best
trial has at every order λ > 1 and for every λ' ≥ 1

    r(λ) + (1 − 1/λ')·r(λ') + log(1/γ)/λ' + log(E k)/(λ − 1)

(their Theorem 2 with η = 0). A trial here is a training of mu_t-GDP and a score on the same records
with Gaussian noise of mu_s-GDP, together r(λ) = λ (mu_t² + mu_s²)/2.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid

from lastiterate._internal.formatting import printed
from lastiterate._internal.notebook import html_table
from lastiterate._internal.progress import Working
from lastiterate.accounting import account
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import halved
from lastiterate.curves.renyi import Renyi
from lastiterate.description import Cyclic, Loss, Shuffled, Training
from lastiterate.description.fields import number
from lastiterate.errors import DescriptionError, TargetError, UnsupportedError
from lastiterate.models.base import PrivateLinearModel
from lastiterate.models.choose import Choice
from lastiterate.noise import Source, source, unpredictable
from lastiterate.train.torch_backend import as_array

SCORE_SHARE = 0.1  # of mu² that pays for the noisy score
_NO_WEIGHT = Decimal("1e-90")  # of so many trials
_FIXED = ("epsilon", "delta", "adjacency", "classes", "max_records_per_group", "random_state")


@dataclass(frozen=True)
class Tuned:
    """The best of a random number of trials; how many there were is not told.

    Attributes:
        model: fitted, with the epsilon of one trial; its certificate_ is None, as a certificate
            of one run does not cover a selection.
        parameters: the candidate that won.
        epsilon, delta: what the whole selection spent; epsilon is infinite for an experiment.
        mu: of one trial with secure noise.
        experiment: a seed chose the candidates or made the noise, or the arithmetic of a trial was
            too coarse: nothing is promised.
        with_secure_noise: the epsilon of the same selection once nothing is seeded.
    """

    model: Any
    parameters: Mapping[str, Any]
    epsilon: float
    delta: float
    mu: float
    experiment: bool
    with_secure_noise: float

    def __str__(self) -> str:
        costs = (
            f"at delta = {printed(self.delta)} (random stopping, Papernot and Steinke 2022; each "
            "trial mu "
            f"= {printed(self.mu)})"
        )
        if self.experiment:
            return (
                f"NOT A GUARANTEE, an experiment: {self.parameters} won, but the selection was "
                "seeded or its arithmetic too coarse, and protects nobody (epsilon = inf). With "
                f"secure noise it would spend epsilon = {printed(self.with_secure_noise)} {costs}."
            )
        classes = ""
        if is_classifier(self.model) and self.model.classes is None:
            classes = ", and which classes occur in y: they were not declared (classes=)"
        return (
            f"{self.parameters} won; the selection spent epsilon = {printed(self.epsilon)} {costs}."
            f" Not covered: how long the selection took{classes}."
        )

    def _repr_html_(self) -> str:
        rows = [(name, str(value)) for name, value in self.parameters.items()]
        rows += [("each trial, mu", printed(self.mu))]
        spent = f"epsilon <= {printed(self.epsilon)} at delta = {printed(self.delta)}"
        warning = "NOT A GUARANTEE: this selection is an experiment." if self.experiment else ""
        heading = f"Selected by tune: {spent} for the whole selection"
        return html_table(heading, rows, warning=warning, details=str(self))


def tune(
    model: PrivateLinearModel,
    grid: Mapping[str, Iterable[Any]] | list[Mapping[str, Any]],
    X: Any,
    y: Any,
    *,
    trials: float = 5.0,
    random_state: Any = None,
) -> Tuned:
    """Select hyper-parameters within the model's own epsilon and delta.

    Warnings and lines of progress of the trials are not shown: they would tell their number.

    Args:
        model: an estimator of this package; its epsilon and delta are the budget of everything.
        grid: values by parameter name, as for scikit-learn's GridSearchCV, or a list of settings.
        X, y: the records. Trials are scored on the training records with noise: accuracy, or one
            minus the mean absolute error in units of the target bound.
        trials: how many to expect; more find better candidates and leave less for each.
        random_state: a seed, here or of the model, makes an experiment that protects nobody: the
            result says so, and its epsilon is infinite.
    """
    candidates = list(grid) if isinstance(grid, list) else list(ParameterGrid(grid))
    _refuse(model, candidates)
    delta = model._delta(len(y))
    gamma = _gamma(number("trials", trials, above=1.0))
    mu, epsilon = _trial_mu(model.epsilon, delta, gamma)
    share = mu * math.sqrt(1 - SCORE_SHARE)
    each = gaussian.epsilon(share, delta)  # what one training may spend, for the choice of its run
    draws = source(random_state if random_state is not None else model.random_state)
    best: tuple[int, Any, Mapping[str, Any]] | None = None
    experiment = not unpredictable(draws)
    # What there is to say was said above: a warning or a line per trial would tell their number.
    with Working("selection", hide_parts=True), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(_number_of_trials(gamma, draws)):
            candidate = candidates[int(draws.integers(len(candidates), 1)[0])]
            seed = None if draws.secure else int(draws.integers(2**31, 1)[0])
            trial = clone(model).set_params(
                epsilon=each, delta=delta, random_state=seed, **candidate
            )
            unpaid = "a selection pays for its trials alone"
            trial._fit(X, y, lambda choice: gaussian_run(choice, share), unpaid=unpaid)
            experiment = experiment or not trial._certified
            score = noisy_score(_score(trial, X, y), len(y), mu * math.sqrt(SCORE_SHARE), draws)
            if best is None or score > best[0]:
                best = score, trial, candidate
    assert best is not None  # there is at least one trial
    _, winner, parameters = best
    winner.certificate_ = None
    spent = math.inf if experiment else epsilon
    return Tuned(winner, parameters, spent, delta, mu, experiment, with_secure_noise=epsilon)


def selected(mu: float, gamma: float) -> Renyi:
    """The best of a random number of mu-GDP trials, as a curve."""
    half, log_gamma = mu * mu / 2, math.log(1 / gamma)
    expected = math.log(_expected(gamma))
    other = max(1.0, math.sqrt(log_gamma / half)) if half > 0 else 1.0
    fixed = (other - 1) * half + log_gamma / other

    def bound(order: float) -> float:
        return (order * half + fixed + expected / (order - 1)) * (1 + 1e-12)

    return Renyi(bound)


def gaussian_run(choice: Choice, mu: float) -> Training:
    """The chosen run with the noise that makes it mu-GDP, even if the batches were known."""
    run = choice.training.replace(noise=choice.training.impulse * _largest_step(choice.training))
    run = run.scale_noise(_mu_of(run, choice.loss) / mu)
    while (found := _mu_of(run, choice.loss)) > mu:
        run = run.scale_noise(found / mu * (1 + 1e-9))
    return run


def _largest_step(training: Training) -> float:
    return float(training.step_sizes.max())


def _mu_of(run: Training, loss: Loss) -> float:
    if isinstance(run.batches, Shuffled):
        run = run.replace(batches=Cyclic(run.batches.size))
    mu = account(run, loss).mu
    if mu is None:
        raise UnsupportedError("A selection needs runs whose guarantee is one Gaussian.")
    return mu


def _trial_mu(epsilon: float, delta: float, gamma: float) -> tuple[float, float]:
    """The largest mu of a trial for which the selection meets the target, and what it spends."""
    target = number("epsilon", epsilon, above=0.0)

    def spent(log_mu: float) -> float:
        return selected(math.exp(log_mu), gamma).epsilon(delta)

    low, high = math.log(1e-6), math.log(1e3)
    if spent(low) > target:
        raise TargetError(
            f"epsilon = {printed(target)} at delta = {printed(delta)} cannot be met by any "
            "selection of this "
            "kind. Expect fewer trials, or ask for a larger epsilon."
        )
    found = halved(lambda log_mu: spent(log_mu) <= target, good=low, bad=high, rounds=60)
    return math.exp(found), spent(found)


def _expected(gamma: float) -> float:
    return (1 / gamma - 1) / math.log(1 / gamma)


def _gamma(trials: float) -> float:
    """The parameter of the distribution with this mean."""
    log = brentq(lambda log: _expected(math.exp(log)) - trials, -50.0, -1e-9, xtol=1e-14)
    return math.exp(log)


def _number_of_trials(gamma: float, draws: Source) -> int:
    """One draw of the logarithmic distribution, by its distribution function, in eighty digits.

    Its law is off by less than 10⁻⁷⁰ in all. That of doubles is off by 10⁻¹³, and delta does not
    pay for it.
    """
    with localcontext() as digits:
        digits.prec = 80
        left = Decimal(1) / 2
        for word in draws.integers(2**53, 5).tolist():
            left = (left + word) / 2**53
        rate, count = Decimal(gamma), 1
        weight = (1 - rate) / -rate.ln()
        while left > weight > _NO_WEIGHT:
            left -= weight
            weight *= (1 - rate) * count / (count + 1)
            count += 1
    return count


def noisy_score(score: float, records: int, mu: float, draws: Source) -> int:
    """A score between 0 and 1 with noise that makes it mu-GDP, in multiples of `score_grid`.

    Rounded to the grid, one record moves it by at most `score_sensitivity` and g more. Noise that
    is rounded to the grid as well adds to it exactly, in whole numbers, so the sum is a Gaussian
    mechanism, rounded.

    >>> from lastiterate.noise import SecureSource
    >>> abs(noisy_score(0.9, 1000, 300.0, SecureSource()) * score_grid(1000, 300.0) - 0.9) < 1e-3
    True
    """
    grid = score_grid(records, mu)
    noise = (score_sensitivity(records) + grid) / mu * (1 + 2**-50)
    return round(score / grid) + int(draws.rounded_normal(noise / grid, 1)[0])


def score_grid(records: int, mu: float) -> float:
    """The spacing: a power of two of about 2^-24/n; coarser where noise is vast, to be drawn."""
    return math.ldexp(0.5, math.frexp(2.0**-24 / records * max(1.0, 2.0**-12 / mu))[1])


def score_sensitivity(records: int) -> float:
    """One record moves a computed score by at most this: 1/n, and what two means round.

    A sum of numbers in [0, 1] by halves is off by less than 2^-45 of their number.
    """
    return 1 / records + 2.0**-44


def _score(trial: Any, X: Any, y: Any) -> float:
    """A mean of one number in [0, 1] per record, so one record moves it by at most 1/n."""
    labels = np.ravel(as_array(y))  # a column would be compared with every prediction
    if is_classifier(trial):
        return float(np.mean(trial.predict(X) == labels))
    error = np.abs(trial.predict(X) - labels.astype(np.float64)) / trial._unit
    return float(1 - np.minimum(error, 1).mean())


def _refuse(model: Any, candidates: list[Mapping[str, Any]]) -> None:
    if not isinstance(model, PrivateLinearModel):
        why = "the selection must know what each trial costs"
        raise DescriptionError("model", model, "an estimator of lastiterate.models", why)
    if not candidates:
        why = "there is nothing to choose from"
        raise DescriptionError("grid", candidates, "at least one setting", why)
    for name in _FIXED:
        if any(name in candidate for candidate in candidates):
            why = "all trials must cost the same and answer the same question"
            raise DescriptionError("grid", f"a choice of {name}", f"free of {name}", why)
    if model.max_records_per_group is not None:
        raise UnsupportedError(
            "tune accounts for single records, and max_records_per_group= asks for people. Tune on "
            "public data, and fit once with groups=."
        )
    if getattr(model, "calibrate", False) or any("calibrate" in each for each in candidates):
        raise UnsupportedError("tune does not account for calibrate=: leave it out.")
    asked = [model.prepare, *(each["prepare"] for each in candidates if "prepare" in each)]
    if not all(each is None or isinstance(each, str) for each in asked):
        raise UnsupportedError(
            "tune does not account for prepare=: prepare once, outside, and compose the costs."
        )
