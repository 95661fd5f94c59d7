"""Sums in whole numbers against rational numbers, in every order, and against their enemies.

The exact map is computed beside it: features as the fixed point has them, scores in rationals,
slopes in 60 digits. What the run charges must cover the distance, and neighbouring data sets must
not be farther apart than is charged.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from lastiterate import Arithmetic, Cyclic, FullBatch, Poisson, Training, certify
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.losses import (
    CappedLogistic,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    SmoothedHinge,
    Softmax,
    SquaredError,
    SquaredHinge,
)
from lastiterate.train import noisy_descent
from lastiterate.train.grid import Grid
from lastiterate.train.settings import Settings
from lastiterate.train.summation import gamma

torch = pytest.importorskip("torch")

from lastiterate.torch import Shards  # noqa: E402
from lastiterate.train.torch_backend import fixed_point  # noqa: E402
from lastiterate.train.torch_backend.exact import ExactGradients  # noqa: E402
from lastiterate.train.torch_backend.fixed_point import Units, exp_minus, to_units  # noqa: E402
from lastiterate.train.torch_backend.kernels import Head  # noqa: E402

torch.set_num_threads(1)

LOSSES = [
    Logistic(),
    CappedLogistic(0.3),
    Softmax(3),
    CappedSoftmax(5, 0.4),
    OneVsRest(Logistic(), 3),
    Huber(0.7),
    SmoothedHinge(0.25),
    SquaredHinge(1.5),
]
EXACT = ("exact", "exact8")


def one_update(loss, records, R=1.0, **changes):
    settings = {
        "records": records,
        "steps": 1,
        "step_size": 1.0,
        "noise": 0.0,
        "gradient_norm": loss.gradient_norm(R),
        "batches": FullBatch(),
        "adjacency": "zero-out",
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def labels_for(loss, rng, records):
    if loss.outputs() > 1:
        return rng.integers(0, loss.outputs(), records)
    if isinstance(loss, Huber):
        return rng.normal(0.0, 2.0, records)
    return rng.choice([-1.0, 1.0], records)


def fixed_features(X, R, entry, bits):
    """What the run says it does with features, in rationals."""
    unit = Fraction(2) ** (math.ceil(math.log2(min(entry, R))) - bits + 1)
    top = 127 if bits == 8 else 32639

    def rounded(value):
        whole = int(Fraction(float(value)) / unit)  # towards zero
        return max(-top, min(top, whole)) * unit

    return [[rounded(value) for value in row] for row in X]


def sigmoid(m):
    return 1 / (1 + mpmath.exp(-m))


def exact_slope(loss, scores, y):
    """In 60 digits, from the definition of every loss."""
    scores = [mpmath.mpf(s.numerator) / s.denominator for s in scores]
    if isinstance(loss, Softmax):
        total = sum(mpmath.exp(s) for s in scores)
        slope = [mpmath.exp(s) / total - (o == y) for o, s in enumerate(scores)]
        cap = mpmath.mpf(getattr(loss, "cap", 1.0))
        wrong = -slope[int(y)]
        return [s * (cap / wrong if wrong > cap else 1) for s in slope]
    if isinstance(loss, OneVsRest):
        signs = [1 if o == y else -1 for o in range(len(scores))]
        return [exact_slope_of_one(loss.binary, s, t) for s, t in zip(scores, signs, strict=True)]
    return [exact_slope_of_one(loss, scores[0], mpmath.mpf(float(y)))]


def exact_slope_of_one(loss, s, y):
    if isinstance(loss, Huber):
        return max(-mpmath.mpf(loss.threshold), min(mpmath.mpf(loss.threshold), s - y))
    if isinstance(loss, SmoothedHinge):
        return -y * max(0, min(1, (1 - s * y) / mpmath.mpf(loss.width)))
    if isinstance(loss, SquaredHinge):
        return -y * max(0, min(mpmath.mpf(loss.clip), 1 - s * y))
    return -y * min(sigmoid(-s * y), mpmath.mpf(getattr(loss, "cap", 1.0)))


def exact_mean(loss, X, y, theta):
    """The mean gradient at theta, in 60 digits."""
    theta = theta.reshape(len(theta), -1)
    outputs = theta.shape[1]
    columns = [[Fraction(float(v)) for v in theta[:, o]] for o in range(outputs)]
    total = [[mpmath.mpf(0)] * outputs for _ in range(len(theta))]
    for row, label in zip(X, y, strict=True):
        scores = [sum(a * b for a, b in zip(row, column, strict=True)) for column in columns]
        for o, slope in enumerate(exact_slope(loss, scores, label)):
            for c, value in enumerate(row):
                total[c][o] += slope * mpmath.mpf(value.numerator) / value.denominator
    return [[value / len(X) for value in row] for row in total]


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("products", EXACT)
def test_the_computed_mean_is_within_its_error(loss, products):
    """At random parameters, far out and near, features large and small."""
    rng = np.random.default_rng(5)
    with mpmath.workdps(60):
        for R, entry, radius in ((1.0, 1.0, 3.0), (0.3, 0.11, 40.0), (1000.0, 300.0, 1e-3)):
            records, columns = 12, 4
            X = rng.standard_normal((records, columns))
            X *= R * 0.999 / np.linalg.norm(X, axis=1, keepdims=True)
            y = labels_for(loss, rng, records)
            shape = (columns,) if loss.outputs() == 1 else (columns, loss.outputs())
            start = rng.standard_normal(shape)
            start *= radius / np.linalg.norm(start)
            got = noisy_descent(
                loss,
                torch.from_numpy(X),
                one_update(loss, records, R),
                labels=y,
                start=start,
                radius=1e2 * radius + 2 * R,  # the update stays inside
                feature_bound=R,
                entry_bound=entry,
                products=products,
            )
            fixed = fixed_features(X, R, entry, 8 if products == "exact8" else 16)
            told = exact_mean(loss, fixed, y, start)
            moved = (start - got.parameters).reshape(columns, -1)
            gap = mpmath.sqrt(
                sum(
                    (told[c][o] - mpmath.mpf(float(moved[c, o]))) ** 2
                    for c in range(columns)
                    for o in range(moved.shape[1])
                )
            )
            # The update itself is rounded once more, as start − mean is.
            room = mpmath.mpf(got.training.arithmetic.error) + 2.0**-50 * np.abs(start).max()
            assert gap <= room, (R, float(gap / room))
            assert not got.experiment


def test_every_order_and_every_cut_gives_the_same_bits():
    rng = np.random.default_rng(2)
    loss, records, columns = CappedSoftmax(4, 0.5), 1000, 9
    X = rng.standard_normal((records, columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.01
    y, start = rng.integers(0, 4, records), rng.standard_normal((columns, 4))
    run = one_update(loss, records)
    settings = {"start": start, "radius": 9.0, "feature_bound": 1.0, "products": "exact"}

    def mean(data, labels):
        return noisy_descent(loss, data, run, labels=labels, **settings).parameters

    expected = mean(torch.from_numpy(X), y)
    for _ in range(3):
        order = rng.permutation(records)
        np.testing.assert_array_equal(mean(torch.from_numpy(X[order]), y[order]), expected)
    np.testing.assert_array_equal(mean(Shards([X[:300], X[300:]]), y), expected)
    other = fixed_point.MOST_ROWS
    try:
        fixed_point.MOST_ROWS = 7
        np.testing.assert_array_equal(mean(torch.from_numpy(X), y), expected)
    finally:
        fixed_point.MOST_ROWS = other


def squared_move(first, second):
    pairs = zip(first.parameters.ravel(), second.parameters.ravel(), strict=True)
    return sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in pairs)


def test_a_lead_that_doubles_does_not_double_here():
    """The data on which a running float32 sum moves by more than 50 records' shares."""
    parts, lead, first = [np.ones(2**11)], 1.0, 11
    for binade in range(first, first + 6):
        half = 2.0**binade * 2.0**-24 * (1 + 2.0**-6)
        parts += [np.full(math.ceil(lead / half), half), np.ones(int(2**binade - 2 * lead))]
        lead *= 2
    X = np.concatenate(parts[:-1]).astype(np.float32)[:, None]
    neighbour = X.copy()
    neighbour[0] = 0.0
    assert np.cumsum(X[:, 0])[-1] - np.cumsum(neighbour[:, 0])[-1] > 50  # the attack has power
    loss, y = Huber(1.0), np.full(len(X), -10.0)
    run = one_update(loss, len(X))
    for products in EXACT:
        both = [
            noisy_descent(
                loss, torch.from_numpy(data), run, labels=y, radius=1.0, products=products
            )
            for data in (X, neighbour)
        ]
        assert squared_move(*both) <= Fraction(both[0].training.impulse) ** 2


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("products", EXACT)
def test_neighbours_of_hostile_data_move_by_what_is_charged(products, dtype):
    """Subnormals, huge cancellations, edges of binades, zero and negative zero."""
    rng = np.random.default_rng(11)
    for trial in range(40):
        loss = LOSSES[trial % len(LOSSES)]
        records, columns = int(rng.integers(2, 60)), int(rng.integers(1, 6))
        R = float(2.0 ** rng.integers(-6, 7))
        exponents = rng.choice([0, -1, -7, -8, -24, -130, -1060], (records, columns))
        X = rng.choice([-1.0, 1.0], (records, columns)) * 2.0**exponents
        X *= 1 + rng.choice([0.0, 2.0**-9, -(2.0**-10)], X.shape)
        data = torch.from_numpy(R * X).to(dtype)
        y = labels_for(loss, rng, records)
        shape = (columns,) if loss.outputs() == 1 else (columns, loss.outputs())
        start = rng.standard_normal(shape) * float(2.0 ** rng.integers(-4, 6))
        other = data.clone()
        other[int(rng.integers(records))] = 0.0
        both = [
            noisy_descent(
                loss,
                some,
                one_update(loss, records, R),
                labels=y,
                start=start,
                radius=float(4 * np.linalg.norm(start)) + 1.0,
                feature_bound=R,
                rows=["shorten", "rescale"][trial % 2],
                products=products,
            )
            for some in (data, other)
        ]
        # start − mean is rounded to a double once, in both worlds.
        room = Fraction(both[0].training.impulse)
        room += start.size * Fraction(2.0**-51) * Fraction(float(np.abs(start).max()) + 1)
        assert squared_move(*both) <= room**2, (loss, trial)


@pytest.mark.parametrize("bits", [8, 16])
def test_features_are_rounded_towards_zero(bits):
    rng = np.random.default_rng(3)
    values = rng.standard_normal((200, 7)) * 10.0 ** rng.integers(-12, 3, (200, 1))
    for entry in (1.0, 0.7, 3.0):
        unit = 2.0 ** (math.ceil(math.log2(entry)) - bits + 1)
        units = Units(bits, unit, 1.0, 4, 0, 1.0, 1.0, 1.0, 1.0, 1.0, entry)
        fixed = to_units(torch.from_numpy(values), None, units).double().numpy() * unit
        assert (np.abs(fixed) <= np.abs(values)).all()
        assert (fixed * values >= 0).all()
        inside = np.abs(values) < entry * 0.99
        assert (np.abs(fixed - values)[inside] < unit).all()


def test_four_signed_bytes_hold_every_slope_and_int32_their_sums():
    digits = [127 * 256**b for b in range(4)]
    assert sum(digits) >= fixed_point.SLOPE_TOP
    assert fixed_point.MOST_ROWS * 128 * 128 < 2**31
    assert 2 * fixed_point.MOST_COLUMNS * 128 * 128 < 2**31


def test_the_exponential_within_its_bound():
    rng = np.random.default_rng(0)
    edges = np.log(2) * (np.arange(0, 92) + 0.5)
    t = np.concatenate([rng.uniform(0, 64, 3000), 10.0 ** rng.uniform(-20, 1.8, 500), edges, [0.0]])
    got = exp_minus(torch.from_numpy(t)).numpy()
    with mpmath.workdps(40):
        worst = max(
            abs(mpmath.mpf(float(g)) / mpmath.exp(-mpmath.mpf(float(v))) - 1)
            for g, v in zip(got, t, strict=True)
        )
    assert worst < 2.0**-38


@pytest.mark.parametrize("cap", [1.0, 0.3, 1e-3])
@pytest.mark.parametrize("outputs", [32, 33, 64, 100])
def test_softmax_slopes_whose_classes_are_added_in_groups(outputs, cap):
    """Against 60 digits: groups alike, groups far apart, ties, ends of the range of scores."""
    rng, loss = np.random.default_rng(outputs), CappedSoftmax(outputs, cap)
    head = Head("softmax", outputs, cap=cap)
    public = {"entry": 1.0, "feature_bound": 1.0, "records": 1000}
    units = fixed_point.units_of(head, 4, bits=8, farthest=50.0, longest=50.0, **public)
    end = fixed_point.SCORE_TOP
    scores = (
        rng.integers(-end, end, (8, outputs))
        // np.array([1, 2, 10, 50, 10**3, 10**6, 1, 1])[:, None]
    )
    scores[6] = rng.choice([-end, end], outputs)
    scores[7] = -end  # one group has all the weight, another nearly as much
    scores[7, -1], scores[7, 0] = end, end - int(1e-9 / units.score)
    y = rng.integers(0, outputs, 8)
    got = fixed_point.slopes(torch.from_numpy(scores), torch.from_numpy(y), head, units)
    unit = Fraction(units.score)
    moved = fixed_point._moved(Fraction(1) * (1 + 4 * gamma(12)), 4, Fraction(units.parameter))
    allowed = fixed_point.slope_error(head, units, 4, 1.0) - moved - unit / 2
    with mpmath.workdps(60):
        for row, label, found in zip(scores, y, got.tolist(), strict=True):
            told = exact_slope(loss, [int(s) * unit for s in row], label)
            gap = [f / mpmath.mpf(units.slope) - t for f, t in zip(found, told, strict=True)]
            assert mpmath.norm(gap) <= float(allowed)
            assert max(map(abs, found)) <= fixed_point.SLOPE_TOP + 2


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(50), Poisson(0.3)], ids=repr)
def test_a_run_in_whole_numbers_is_the_run_in_doubles(batches):
    """On the rounded features, up to what is charged; and it can be certified."""
    rng = np.random.default_rng(8)
    loss, records, columns = Softmax(3), 200, 5
    X = rng.standard_normal((records, columns))
    X /= np.linalg.norm(X, axis=1, keepdims=True) * 1.001
    X = X.astype(np.float32).astype(np.float64)
    y = rng.integers(0, 3, records)
    run = Training(
        records=records,
        steps=30,
        step_size=0.5,
        noise=0.01,
        gradient_norm=loss.gradient_norm(1.0),
        batches=batches,
        diameter=4.0,
        adjacency="zero-out",
    )
    fixed = np.trunc(X * 2.0**15).clip(-32639, 32639) / 2.0**15
    same = {"labels": y, "random_state": 4, "feature_bound": 1.0}
    doubles = noisy_descent(loss, torch.from_numpy(fixed), run, **same)
    got = noisy_descent(loss, torch.from_numpy(X).float(), run, products="exact", **same)
    np.testing.assert_allclose(got.parameters, doubles.parameters, rtol=0, atol=1e-7)
    same.pop("random_state")
    ran = noisy_descent(loss, torch.from_numpy(X), run, products="exact", **same)
    assert ran.training.arithmetic.error > 0
    assert not ran.experiment
    certificate = certify(ran.training, loss=ran.loss, delta=1e-5)
    assert certificate.epsilon >= certify(run, loss=ran.loss, delta=1e-5).epsilon


def test_units_hold_where_the_grid_moves_the_start():
    """A description may bring a coarse grid; parameters are then around the rounded start."""
    loss, X = Logistic(), torch.eye(3, dtype=torch.float64)
    start = np.array([0.24, -0.26, 0.0])
    run = one_update(loss, 3, noise=1.0, steps=3, arithmetic=Arithmetic(grid=0.5, coordinates=3))
    told = Settings(labels=[1, -1, 1], start=start, radius=0.125, products="exact")
    held = ExactGradients.told(loss, X, run, told, torch.device("cpu"))
    grid = Grid.of(run, start, 0.125, 0.0)
    assert grid.spacing == 0.5
    assert held._units.largest >= np.abs(grid.on(start)).max() + 0.125 > np.abs(start).max() + 0.125


def test_what_has_no_units_is_refused():
    X, y = torch.eye(3, dtype=torch.float64), np.array([1.0, -1.0, 1.0])
    loss = Logistic()
    run = one_update(loss, 3)

    def descend(training=run, objective=loss, data=X, **settings):
        settings = {"labels": y, "radius": 1.0, "products": "exact", **settings}
        return noisy_descent(objective, data, training, **settings)

    with pytest.raises(DescriptionError, match="radius"):
        descend(radius=None)
    with pytest.raises(UnsupportedError, match="clipping"):
        descend(run.replace(clipping="gradient"))
    with pytest.raises(DescriptionError, match="entry_bound"):
        descend(products="double", entry_bound=0.5)
    with pytest.raises(DescriptionError, match="entry_bound"):
        descend(entry_bound=0.0)
    with pytest.raises(DescriptionError, match="entry_bound"):
        descend(entry_bound=math.nan)
    with pytest.raises(UnsupportedError, match="no units"):
        descend(radius=1e200)
    with pytest.raises(UnsupportedError, match="no units"):
        descend(entry_bound=1e-30)
    with pytest.raises(AssumptionError, match="norm above"):
        descend(data=2 * X)
    with pytest.raises(AssumptionError, match="NaN"):
        descend(data=X * math.nan)
    with pytest.raises(DescriptionError, match="products"):
        descend(products="exact16")
    with pytest.raises(DescriptionError, match="entry_bound"):
        noisy_descent(loss, X.numpy(), run, labels=y, entry_bound=0.5)
    wide = torch.zeros(3, fixed_point.MOST_COLUMNS + 1)
    with pytest.raises(UnsupportedError, match="features"):
        descend(data=wide)
    unbounded = SquaredError(1.0)
    assert descend(one_update(unbounded, 3), unbounded).parameters.shape == (3,)
