"""``prepare="auto"``: ranges, means and deviations of raw columns, found privately and paid for.

Up to three mechanisms come before the model, each one noisy full-batch step, certified as such:
which powers of two the values of a column reach (`found_ranges`), where nobody declared it, then
`PrivateStandardScaler` within these ranges, then `Whitening`, where records are many enough. (What
`Bends` appends is computed of these and costs nothing.) The targets of a regression are one more
column. All add up in mu: each has a share of what (epsilon, delta) allows one Gaussian, by a rule
from public numbers alone, and the model has what is left.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from lastiterate._internal.formatting import printed
from lastiterate.accounting import account
from lastiterate.accounting.calibration import calibrate
from lastiterate.curves import gaussian
from lastiterate.curves.coupled_labels import CoupledLabels
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.mixture import Mixture
from lastiterate.description import Training
from lastiterate.errors import UnsupportedError
from lastiterate.losses import SquaredError
from lastiterate.losses.rounding import root_up
from lastiterate.models.bends import Bends, used_numbers
from lastiterate.models.choose import Choice
from lastiterate.models.noisy_mean import ANY_LOSS, RANGES, mu_of, noisy_mean
from lastiterate.models.reached import RARE, SURE, reached
from lastiterate.models.scaler import PrivateStandardScaler
from lastiterate.models.unsealed import Unsealed
from lastiterate.models.whitening import Whitening, blur
from lastiterate.noise.seeded import another
from lastiterate.train import noisy_descent
from lastiterate.train.summation import linear_arithmetic

Array = NDArray[Any]
_LEAST, _MOST = -24, 40  # binary exponents that are told apart
_BINS = 2 * (_MOST - _LEAST + 1) + 1
_BLUR = 0.01  # what noise may move a mean by, of half the range
_VAGUE = 0.25  # noise on means, of half a declared range, from which on they are not asked for
_LARGEST = (0.1, 0.1)  # of mu squared: for the ranges, for means and deviations
_WITH_TARGETS = 0.2  # of mu squared: for the ranges, where those of targets may be among them
_WHITENING = 0.05  # of mu squared at most: for how columns go together
_SHARP = (0.02, 3.0)  # noise on eigenvalues, of their mean: asked for, and too much
_MOST_COLUMNS = 300  # whose products are whitened, and along which answers bend
_BENDS = (20.0, 80.0)  # mu · records for a column, from which on it has one wave, and two
_SHORT = 40.0  # mu · records for a column, up to which rows are shortened to their usual length
_MOST_DEVIATIONS = 16.0  # of squared norms, that rows may be longer
_MOST_NUMBERS = 10**8  # in a table that is made so much wider
_TARGET = 9  # columns that targets weigh as much as, or as all columns if they are more
_POWER = 0.75  # of deviations, which rare values would otherwise rule
_WIDE = 4.0  # deviations on both sides of the mean that the targets' range holds
_SMALLEST = 1e-3  # of epsilon
_TRIES, _ROOM, _NEARLY = 30, 1e-6, 0.99


@dataclass(frozen=True)
class Promise:
    """What everything together may cost, how its noise is drawn, and what rows are to be like."""

    epsilon: float
    delta: float
    adjacency: str
    seed: Any
    row_norm: float | None = None
    whiten: bool = True
    curved: bool | str = "auto"


@dataclass(frozen=True)
class Preparation:
    """What was found, and what it cost: ``mu`` of all mechanisms together.

    ``columns`` and ``target_range`` are None where they were not asked for.
    """

    columns: PrivateStandardScaler | Whitening | Bends | None
    target_range: tuple[float, float] | None
    mu: float
    certificates: tuple[Unsealed | None, ...]
    found: tuple[Array, Array] | None
    reasons: tuple[tuple[str, str], ...]


def beside(mu: float, choice: Choice, epsilon: float, delta: float) -> Training:
    """The run with the noise for which it and Gaussian mechanisms of mu keep the promise."""
    left = max(gaussian.mu(epsilon, delta) ** 2 - mu**2, 0.0)
    target = gaussian.epsilon(math.sqrt(left), delta)
    kept: Training | None = None
    for _ in range(_TRIES):
        if not target > 0:
            break
        training = calibrate(choice.training, choice.loss, target, delta)
        curve = account(training, choice.loss).best_at(delta).at(delta).curve
        if isinstance(curve, CoupledLabels):  # its masses are chosen for this run alone
            curve = curve.average
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
        "calibrate= out, and use prepare=None, or declare feature_range."
    )


def prepared(
    X: Array | None, low: Array, high: Array, y: Array | None, promise: Promise
) -> Preparation:
    """Find ranges (where the ends are infinite), means and deviations with their shares.

    Args:
        X: the columns, with their ends ``low`` and ``high``; None if they stay as they are.
        y: targets whose range is to be found, or None.
        promise: what preparation and model may cost together.
    """
    if y is not None:
        low, high = np.append(low, -np.inf), np.append(high, np.inf)
    table = np.column_stack([part for part in (X, y) if part is not None])
    epsilon, delta = promise.epsilon, promise.delta
    unknown = np.isinf(low)
    weights = np.ones(int(unknown.sum()))
    if y is not None:
        weights[-1] = math.sqrt(max(_TARGET, len(weights) - 1))
    first, second = _shares(len(table), float(weights @ weights), len(low), promise)
    costs, runs, paid, ends = [], [], [], None
    if unknown.any():
        told = (first, delta, promise.adjacency, promise.seed, weights)
        found = found_ranges(table[:, unknown], *told, closed=promise.row_norm is None)
        low, high = low.copy(), high.copy()
        low[unknown], high[unknown] = ends = found[:2]
        runs, paid = [found[2]], [found[3]]
        _warn_if_vague(float(found[2].noises[0]), weights, of_targets=y is not None)
        costs = [f"{printed(first)} of epsilon by itself for the powers of two that values reach"]
    scaler = PrivateStandardScaler(
        second,
        delta,
        low=low,
        high=high,
        power=_POWER,
        together=promise.row_norm is None,
        adjacency=promise.adjacency,
        random_state=promise.seed,
    )
    scaler._learn(table, delta)
    target = None if y is None else _target_range(scaler)
    columns: PrivateStandardScaler | Whitening | None = None
    count, why_bends = 0, ""
    if X is not None:
        count, why_bends = waves(len(X), X.shape[1], promise)
        columns = _first_columns(scaler, X, promise, count)
    runs, paid = [*runs, scaler.training_], [*paid, scaler.__dict__["certificate_"]]
    costs.append(f"{printed(second)} for means and deviations")
    reasons: tuple[tuple[str, str], ...] = ()
    if X is not None:
        third, why = whitening_share(len(X), X.shape[1], promise)
        reasons = (("whitening", why), ("bends", why_bends))
        if third:
            columns = kept = Whitening(scaler).learn(X, third, delta, promise.seed)
            runs, paid = [*runs, kept.training_], [*paid, kept.certificate]
            costs.append(f"{printed(third)} for how columns go together")
    why = f"{', '.join(costs)}; the model has what is left of {printed(epsilon)}, and certificate_ "
    why += "covers everything"
    return Preparation(
        Bends(columns, count) if count and columns is not None else columns,
        target,
        mu_of(*runs),
        tuple(paid),
        ends,
        (("preparation", why), *reasons),
    )


def prepared_exactly(
    X: Array, low: Array, high: Array, promise: Promise
) -> PrivateStandardScaler | Bends:
    """Exact means and deviations within exact ranges: without noise nothing is paid for.

    >>> X = np.array([[0.0, 5.0], [4.0, 5.0]])
    >>> promise = Promise(math.inf, 0.0, "zero-out", None)
    >>> prepared_exactly(X, np.full(2, -np.inf), np.full(2, np.inf), promise).transform(X).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    low = np.where(np.isinf(low), X.min(axis=0), low)
    high = np.where(np.isinf(high), X.max(axis=0), high)
    flat = ~(low < high)
    low, high = np.where(flat, low - 1, low), np.where(flat, high + 1, high)
    scaler = PrivateStandardScaler(
        math.inf,
        low=low,
        high=high,
        row_norm=promise.row_norm,
        adjacency=promise.adjacency,
        random_state=promise.seed,
    )
    scaler._learn(X, 0.0)
    count, _ = waves(len(X), X.shape[1], promise)
    found = Bends(scaler, count) if count else scaler
    if promise.row_norm is not None:  # no row is shortened
        longest = float(np.linalg.norm(found.transform(X), axis=1).max())
        scaler.longest = max(promise.row_norm, longest * (1 + 1e-12))
    return found


def longest_row(records: int, columns: int, promise: Promise) -> float | None:
    """What rows of a regression are shortened to, where their root mean square is ``row_norm``.

    Of independent normal columns the squared norm has the deviation √(2/columns) of its mean.
    Rows may be longer by as many such deviations as noise matters little: noise grows with the
    longest row, and shortened rows bend predictions.

    >>> promise = Promise(1.0, 1e-5, "zero-out", None, row_norm=2.0)
    >>> longest_row(1000, 10, promise), longest_row(100_000, 2, promise) > 4
    (2.0, True)
    """
    if promise.row_norm is None:
        return None
    weight = 2 if promise.adjacency == "replace" else 1
    clear = gaussian.mu(promise.epsilon, promise.delta) / weight * records / columns
    times = min(max(math.log2(clear / _SHORT), 0.0), _MOST_DEVIATIONS) if clear > 0 else 0.0
    return promise.row_norm * math.sqrt(1 + times * math.sqrt(2 / columns))


def worth_paying(records: int, columns: int, promise: Promise) -> bool:
    """Whether means within declared ranges can be known better than by the ranges themselves.

    Where they are drawn together, what all columns have in common is enough; the mean of so many
    means has their noise over √columns.

    >>> promise = Promise(1.0, 1e-5, "zero-out", None)
    >>> worth_paying(30, 20, promise), worth_paying(100, 20, promise)
    (False, True)
    >>> worth_paying(100, 20, replace(promise, row_norm=2.0))  # each by itself
    False
    """
    _, epsilon = _shares(records, 0, columns, promise)
    weight = 2 if promise.adjacency == "replace" else 1
    mu = gaussian.mu(epsilon, promise.delta)
    alone = 1 if promise.row_norm is None else columns
    return weight * math.sqrt(1.25 * alone) / records <= _VAGUE * mu


def whitening_share(records: int, columns: int, promise: Promise) -> tuple[float, str]:
    """Epsilon of the second moments by itself, 0 where they are not asked for; and why.

    Rows of length 1 have eigenvalues of 1/columns on average. With noise of a few times that, the
    few directions that most rows share are told apart from it, if there are any.

    >>> promise = Promise(1.0, 1e-5, "zero-out", None)
    >>> whitening_share(100, 20, promise)[0], whitening_share(100_000, 20, promise)[0] > 0
    (0.0, True)
    """
    if not promise.whiten:
        return 0.0, "off: it has paid with three classes or more; prepare='whiten' asks for it"
    if columns < 2 or columns > _MOST_COLUMNS:
        return 0.0, f"off: it is for 2 to {_MOST_COLUMNS} columns"
    weight = 2 if promise.adjacency == "replace" else 1
    whole = gaussian.mu(promise.epsilon, promise.delta)
    wanted, needed = (
        (blur(weight / records, columns) * columns / sharp / whole) ** 2 for sharp in _SHARP
    )
    if needed > _WHITENING:
        return 0.0, "off: of so few records noise would hide how so many columns go together"
    share = gaussian.epsilon(whole * math.sqrt(min(wanted, _WHITENING)), promise.delta)
    why = "columns that go together are taken apart: records are many enough for so many columns"
    return max(share, _SMALLEST * promise.epsilon), why


def waves(records: int, columns: int, promise: Promise) -> tuple[int, str]:
    """How many waves stand beside every column (`Bends`), and why.

    More coefficients have more noise together, whatever they say. Without noise the model is linear
    in its columns, as scikit-learn's, unless waves are asked for.

    >>> promise = Promise(1.0, 1e-5, "zero-out", None)
    >>> [waves(records, 20, promise)[0] for records in (1000, 2000, 10_000)]
    [0, 1, 2]
    """
    if promise.curved is False:
        return 0, "off: curved=False"
    if math.isinf(promise.epsilon):
        if promise.curved is not True:
            return 0, "off: without noise a model is linear; curved=True asks for it"
        return 1, "one wave stands beside every column, as asked for"
    weight = 2 if promise.adjacency == "replace" else 1
    clear = gaussian.mu(promise.epsilon, promise.delta) / weight * records / columns
    wanted = sum(clear >= enough for enough in _BENDS)
    wider = _MOST_NUMBERS // (records * columns) if columns <= _MOST_COLUMNS else 1
    count = min(wanted, max(wider - 1, 0) // 2)
    why = "records are many enough for it"
    if not count:
        why = "the table is large" if wanted else "of so few records noise would cost more"
        why += ", with at least three times as many coefficients"
        if promise.curved is not True:
            return 0, f"off: {why}; curved=True asks for it"
        count, why = 1, f"as asked for (else off: {why})"
    told = "one wave stands" if count == 1 else f"{count} waves stand"
    told = f"answers may bend along every column: {told} beside it, cosine and sine, at no price"
    return count, f"{told}; {why}"


def _shares(records: int, weight_of_all: float, columns: int, promise: Promise) -> list[float]:
    """Epsilon of either mechanism by itself: what it needs, up to a part of all."""
    whole = gaussian.mu(promise.epsilon, promise.delta)
    if not whole > 0:
        raise UnsupportedError(
            "This epsilon, with this delta, is beyond the numbers that shares of it are computed "
            "with. Without privacy, epsilon=inf; with it, an epsilon that says something, or "
            "prepare=None, which shares nothing."
        )
    weight = 2 if promise.adjacency == "replace" else 1
    clear = math.sqrt(2 * math.log(_BINS * max(weight_of_all, 1.0))) + SURE
    wanted = [math.sqrt(weight_of_all) * clear / RARE, math.sqrt(1.25 * columns) / _BLUR]
    largest = _LARGEST if promise.row_norm is None else (_WITH_TARGETS, _LARGEST[1])
    parts = [
        min(most, (weight * each / records / whole) ** 2)
        for most, each in zip(largest, wanted, strict=True)
    ]
    alone = [gaussian.epsilon(whole * math.sqrt(part), promise.delta) for part in parts]
    return [max(each, _SMALLEST * promise.epsilon) for each in alone]  # delta may allow so little


def _warn_if_vague(noise: float, weights: Array, of_targets: bool) -> None:
    """Say so where noise, a public number, hides a bin that all values are in."""
    columns = len(weights) - of_targets
    largest = noise * (math.sqrt(2 * math.log(_BINS)) + SURE)
    lost = [
        name
        for name, its in (
            ("feature_range", largest / math.sqrt(columns) if columns else 0.0),
            ("target_range", largest / weights[-1] if of_targets else 0.0),
        )
        if its > 1
    ]
    if lost:
        warnings.warn(
            "So few records, with so small an epsilon, hardly show which values are reached: "
            f"declare {' and '.join(lost)}, which costs nothing.",
            stacklevel=8,
        )


def _target_range(scaler: PrivateStandardScaler) -> tuple[float, float]:
    """Most of the last column, within what was found to be reached."""
    low, high = (float(np.asarray(end)[-1]) for end in (scaler.low, scaler.high))
    mean, reach = float(scaler.mean_[-1]), _WIDE * float(scaler.deviation_[-1])
    return max(low, mean - reach), min(high, mean + reach)


def _first_columns(
    scaler: PrivateStandardScaler, X: Array, promise: Promise, count: int
) -> PrivateStandardScaler:
    """The scaler without the column of targets."""
    columns = X.shape[1]
    for name in ("low", "high", "mean_", "deviation_", "_variance"):
        setattr(scaler, name, getattr(scaler, name)[:columns])
    scaler.n_features_in_ = columns
    scaler.row_norm = promise.row_norm
    scaler.longest = longest_row(len(X), columns, promise)
    scaler._temper()
    held = scaler.__dict__["certificate_"]
    if held is not None:  # bound to what is used; a function of what was released
        used = {name: getattr(scaler, name).copy() for name in used_numbers(count)}
        scaler.certificate_ = replace(held, parameters=used)
    return scaler


def found_ranges(
    X: Array,
    epsilon: float,
    delta: float,
    adjacency: str,
    seed: Any,
    weights: Array | None = None,
    closed: bool = True,
) -> tuple[Array, Array, Training, Unsealed | None]:
    """Low and high ends of the columns, the mechanism as a run, and its certificate.

    A value belongs to one of the bins ±(2^(k−1), 2^k] or to the one around 0, so that truths reach
    from 0 to 1. If not ``closed``, a power of two begins the next bin instead, and truths count as
    half as far apart. A record is a row with one entry per column, its weight w. The mean of the
    rows is one step of the squared error from 0 with labels 1, whose gradients are −x: √Σw² long.
    Bins with more than noise can explain are the range. A column with a weight of its own is looked
    at by itself.

    >>> X = np.random.default_rng(0).uniform(5, 12, (4000, 1))
    >>> low, high, *_ = found_ranges(np.hstack([X, X > 9]), 1.0, 1e-5, "zero-out", 0)
    >>> low.round(6).tolist(), high.tolist()
    ([4.0, -0.0], [16.0, 1.0])
    """
    records, columns = X.shape
    weights = np.ones(columns) if weights is None else weights
    rows = _one_hot(X, weights, closed)
    length = root_up(sum((Fraction(w) ** 2 for w in weights.tolist()), Fraction(0)))
    wide = rows.shape[1]
    described = noisy_mean(
        records,
        length,
        adjacency,
        epsilon,
        delta,
        wide,
        lambda run: linear_arithmetic(run, SquaredError(1.0), wide),
        clipping="margin",
    )
    released = noisy_descent(
        SquaredError(1.0),
        rows,
        described,
        labels=np.ones(records),
        feature_bound=length,
        random_state=another(seed, RANGES),
    )
    shares = released.parameters.reshape(columns, _BINS) / weights[:, None]
    noise, low, high = float(released.training.noises[0]), np.empty(columns), np.empty(columns)
    for weight in np.unique(weights):
        alike = weights == weight
        low[alike], high[alike] = _ends_of(reached(shares[alike], noise / weight))
    certificate = None
    if not released.experiment:
        certificate = Unsealed.of(released, ANY_LOSS, delta, {"low_": low, "high_": high})
    return low, high, released.training, certificate


def _ends_of(seen: Array) -> tuple[Array, Array]:
    """The ends of the bins that are reached, of each column."""
    lows, highs = _edges()
    low = np.where(seen, lows, math.inf).min(axis=1)
    high = np.where(seen, highs, -math.inf).max(axis=1)
    nothing = ~seen.any(axis=1)
    low[nothing], high[nothing] = -1.0, 1.0
    return low, high


def _edges() -> tuple[Array, Array]:
    """The ends of the bins, the negative ones first, the one around 0 in the middle."""
    ends = 2.0 ** np.arange(_LEAST, _MOST + 2)
    edges = np.concatenate([-ends[::-1], ends])
    return edges[:-1], edges[1:]


def _one_hot(X: Array, weights: Array, closed: bool) -> sp.csr_array:
    """One entry per record and column, in the bin of its value, or in the last one."""
    records, columns = X.shape
    mantissa, exponent = np.frexp(X)
    if closed:
        exponent = exponent - (np.abs(mantissa) == 0.5)  # a power of two ends its bin
    exponent = np.clip(exponent, _LEAST, _MOST + 1) - _LEAST  # 0: below the least
    bins = (_BINS // 2 + np.sign(X) * exponent).astype(np.int64)
    places = (np.arange(columns) * _BINS + bins).ravel()
    pointers = np.arange(0, records * columns + 1, columns)
    entries = np.tile(weights, records)
    return sp.csr_array((entries, places, pointers), (records, columns * _BINS))
