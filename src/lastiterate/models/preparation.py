"""``prepare="auto"``: ranges, means and deviations of raw columns, found privately and paid for.

Two mechanisms come before the model, each one noisy full-batch step, certified as such: which
powers of two the values of a column reach (`found_ranges`), then `PrivateStandardScaler` within
these ranges. All three add up in mu: both have a share of what (epsilon, delta) allows one
Gaussian, by a rule from the numbers of records and columns alone, and the model has what is left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lastiterate.accounting import account
from lastiterate.certificate import Certificate, certify
from lastiterate.certificate.signing import Computed
from lastiterate.curves import gaussian
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import FullBatch, Loss, Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses import SquaredError
from lastiterate.losses.rounding import root_up
from lastiterate.models.choose import Choice
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.plan.calibration import calibrate
from lastiterate.printing import printed
from lastiterate.train import noisy_descent
from lastiterate.train.grid import on_its_grid
from lastiterate.train.summation import linear_arithmetic

Array = NDArray[Any]
_UNKNOWN = Loss.unknown(provenance="proved")
_LEAST, _MOST = -24, 40  # binary exponents that are told apart
_BINS = 2 * (_MOST - _LEAST + 1) + 1
_RARE = 0.02  # a bin with this share of the records should be seen
_BLUR = 0.01  # what noise may move a mean by, of half the range
_LARGEST = (0.1, 0.15)  # of mu squared: for the ranges, for means and deviations
_SURE = 1.5  # deviations above the largest of so many noises
_SMALLEST = 1e-3  # of epsilon
_TRIES, _ROOM, _NEARLY = 30, 1e-6, 0.99


@dataclass(frozen=True)
class Preparation:
    """What was found, and what it cost: ``mu`` of both mechanisms together."""

    scaler: PrivateStandardScaler
    mu: float
    certificates: tuple[Certificate | None, ...]
    reason: tuple[str, str]


def beside(mu: float, choice: Choice, epsilon: float, delta: float) -> Training:
    """The run with the noise for which it and Gaussian mechanisms of mu keep the promise."""
    left = max(gaussian.mu(epsilon, delta) ** 2 - mu**2, 0.0)
    target = gaussian.epsilon(math.sqrt(left), delta)
    kept: Training | None = None
    for _ in range(_TRIES):
        if not target > 0:
            break
        training = calibrate(choice.training, choice.loss, target, delta)
        curve = account(training, choice.loss).best_at(delta).curve
        if not isinstance(curve, Gaussian | Mixture):
            break
        together = curve.compose(Gaussian(mu)).epsilon(delta)
        if together <= epsilon * (1 - _ROOM):
            kept = training
        if kept is not None and not together < _NEARLY * epsilon:
            return kept
        target *= epsilon / together * (1 - 2 * _ROOM)
    if kept is not None:
        return kept
    raise UnsupportedError(
        "What this run costs together with what is released beside it could not be kept within "
        "epsilon. A larger epsilon or a smaller delta leaves more for the model; or leave "
        "calibrate= out, and use prepare=PrivateStandardScaler(...), whose cost is composed on top."
    )


def prepared(X: Array, epsilon: float, delta: float, adjacency: str, seed: Any) -> Preparation:
    """Find ranges, means and deviations with their shares of the budget."""
    if sp.issparse(X):
        raise UnsupportedError(
            "prepare='auto' subtracts means, which leaves no zeros in a sparse table: pass "
            "X.toarray(), or leave prepare= out."
        )
    records, columns = X.shape
    whole = gaussian.mu(epsilon, delta)
    weight = 2 if adjacency == "replace" else 1
    clear = math.sqrt(2 * math.log(_BINS * columns)) + _SURE
    wanted = [clear / _RARE, math.sqrt(5 / 4) / _BLUR]
    pace = weight * math.sqrt(columns) / records / whole
    shares = [min(most, (pace * each) ** 2) for most, each in zip(_LARGEST, wanted, strict=True)]
    alone = [gaussian.epsilon(whole * math.sqrt(share), delta) for share in shares]
    costs = [max(each, _SMALLEST * epsilon) for each in alone]  # delta alone may allow so little
    low, high, first, certificate = found_ranges(X, costs[0], delta, adjacency, seed)
    scaler = PrivateStandardScaler(
        costs[1], delta, low=low, high=high, adjacency=adjacency, random_state=seed
    ).fit(X)
    each = [account(run, _UNKNOWN).mu for run in (first, scaler.training_)]
    mu = math.hypot(*(m if m is not None else math.inf for m in each)) * (1 + 1e-12)
    why = (
        f"{printed(costs[0])} of epsilon by itself for the powers of two that values reach, "
        f"{printed(costs[1])} for means and deviations; the model has what is left of "
        f"{printed(epsilon)}, and certificate_ covers all three"
    )
    return Preparation(scaler, mu, (certificate, scaler.certificate_), ("preparation", why))


def found_ranges(
    X: Array, epsilon: float, delta: float, adjacency: str, seed: Any
) -> tuple[Array, Array, Training, Certificate | None]:
    """Low and high ends of the columns, the mechanism as a run, and its certificate.

    A value belongs to one of the bins ±[2^(k−1), 2^k) or to the one around 0; a record is a row
    with one 1 per column. The mean of the rows is one step of the squared error from 0 with labels
    1, whose gradients are −x: √columns long. Bins with more than noise can explain are the range.

    >>> X = np.random.default_rng(0).uniform(5, 12, (4000, 1))
    >>> low, high, *_ = found_ranges(X, 1.0, 1e-5, "zero-out", 0)
    >>> low.tolist(), high.tolist()
    ([4.0], [16.0])
    """
    records, columns = X.shape
    rows = _one_hot(X)
    length = root_up(Fraction(columns))
    run = Training(
        records=records,
        steps=1,
        step_size=1.0,
        noise=1.0,
        gradient_norm=length,
        batches=FullBatch(),
        adjacency=adjacency,
        clipping="margin",
    )
    start = np.zeros(rows.shape[1])
    described, _ = on_its_grid(
        run,
        linear_arithmetic(run, SquaredError(1.0), rows.shape[1]),
        start,
        _UNKNOWN,
        lambda told: calibrate(told, _UNKNOWN, epsilon, delta),
    )
    released = noisy_descent(
        SquaredError(1.0),
        rows,
        described,
        labels=np.ones(records),
        feature_bound=length,
        random_state=seed,
    )
    noise = float(released.training.noises[0])
    clear = noise * (math.sqrt(2 * math.log(_BINS * columns)) + _SURE)
    seen = released.parameters.reshape(columns, _BINS) > clear
    lows, highs = _edges()
    low = np.where(seen, lows, math.inf).min(axis=1)
    high = np.where(seen, highs, -math.inf).max(axis=1)
    nothing = ~seen.any(axis=1)
    low[nothing], high[nothing] = -1.0, 1.0
    certificate = None
    if not released.experiment:
        found = Computed({"low_": low, "high_": high})
        certificate = certify(released.training, _UNKNOWN, delta, parameters=found)
    return low, high, released.training, certificate


def _edges() -> tuple[Array, Array]:
    """The ends of the bins, the negative ones first, the one around 0 in the middle."""
    ends = 2.0 ** np.arange(_LEAST, _MOST + 2)
    edges = np.concatenate([-ends[::-1], ends])
    return edges[:-1], edges[1:]


def _one_hot(X: Array) -> sp.csr_array:
    """One 1 per record and column, in the bin of its value; values beyond the last are in it."""
    records, columns = X.shape
    exponent = np.clip(np.frexp(X)[1], _LEAST, _MOST + 1) - _LEAST  # 0: below the least
    bins = (_BINS // 2 + np.sign(X) * exponent).astype(np.int64)
    places = (np.arange(columns) * _BINS + bins).ravel()
    pointers = np.arange(0, records * columns + 1, columns)
    return sp.csr_array((np.ones(places.size), places, pointers), (records, columns * _BINS))
