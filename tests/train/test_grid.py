"""Noise on a grid: what the machine computes is what is accounted, to the last bit.

Exact sums against rational arithmetic, the projection against its claims, the two worlds of a
low-bit attack, and the description that comes out of a run.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

from lastiterate import (
    Arithmetic,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    WithoutReplacement,
    account,
    certify,
)
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.losses import Logistic, Softmax
from lastiterate.noise import SeededSource
from lastiterate.train import MemoryCheckpoint, bound_rows, noisy_descent
from lastiterate.train.grid import BOX, INTERIM, Grid, on_its_grid, projection, room
from lastiterate.train.loop import Backend

RARE = 1e-6
SCHEMES = [FullBatch(), Cyclic(4), Shuffled(4), Reshuffled(5), Poisson(0.3), WithoutReplacement(6)]


def describe(**changes):
    settings = {
        "records": 13,
        "steps": 9,
        "step_size": 0.4,
        "noise": 0.05,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def grid_of(run, start=None, radius=math.inf, l2=0.0):
    return Grid.of(run, np.zeros(3) if start is None else start, radius, l2)


def whole(values, spacing):
    """Whether these are multiples of the spacing, without a sign on zeros."""
    values = np.asarray(values)
    multiples = all((Fraction(float(v)) / Fraction(spacing)).denominator == 1 for v in values.flat)
    return multiples and not np.signbit(values[values == 0]).any()


def nearest(value: Fraction, spacing: Fraction) -> Fraction:
    return round(value / spacing) * spacing  # ties to even, as doubles do


# --- the sums are exact ---------------------------------------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.03, 2.0])
def test_every_update_is_that_of_rational_numbers(l2):
    """Gradients are functions of doubles; everything after them is done again in fractions."""
    random = np.random.default_rng(3)
    table = random.standard_normal((13, 5)) * 10.0 ** random.integers(-8, 1, (13, 5))
    table /= 1.01 * np.linalg.norm(table, axis=1).max()
    start = random.standard_normal(5)
    run = describe(noise=[0.3, 0.0, 1e-3, 0.05, 0.3, 0.3, 0.0, 0.2, 0.1])

    def gradient(theta, indices):
        return np.tanh(theta.sum()) * table[indices]

    found = noisy_descent(
        gradient, None, run, start=start, regularization=l2, noise=SeededSource(5)
    )
    grid = grid_of(run, start, l2=l2)
    assert found.training.arithmetic.grid == grid.spacing
    g, source = Fraction(grid.spacing), SeededSource(5)
    theta = [nearest(Fraction(float(v)), g) for v in start]
    for k in range(run.steps):
        at = np.array([float(v) for v in theta])
        assert [Fraction(v) for v in at] == theta
        mean = gradient(at, np.arange(13)).sum(axis=0) / 13
        step = 0.4 * (mean + l2 * at)
        nu = float(run.noises[k])
        noise = source.rounded_normal(nu / grid.spacing, 5) if nu else np.zeros(5)
        for j in range(5):
            moved = theta[j] - nearest(Fraction(float(step[j])), g) + g * int(noise[j])
            theta[j] = max(min(moved, Fraction(grid.box)), -Fraction(grid.box))
    assert [Fraction(float(v)) for v in found.parameters] == theta


@pytest.mark.parametrize("away", [0.0, 2.0**50, 2.0**51])
@pytest.mark.parametrize("step", [0.0, 1.0, 2.0**51 + 3, 2.0**52 - 1, 2.0**53, 2.0**60, math.inf])
@pytest.mark.parametrize("noise", [0.0, 5.0, -(2.0**43), 2.0**51 + 1, -(2.0**53), 2.0**70])
def test_whatever_is_too_far_for_doubles_is_clipped_as_in_real_numbers(away, step, noise):
    backend = Backend()
    for sign in (-1.0, 1.0):
        moved = backend.boxed(np.array([sign * away - step]), INTERIM)
        found = backend.boxed(moved + noise, BOX)[0]
        far = Fraction(2) ** 200 if math.isinf(step) else Fraction(step)
        exact = max(min(Fraction(sign * away) - far, Fraction(INTERIM)), -Fraction(INTERIM))
        exact = max(min(exact + Fraction(noise), Fraction(BOX)), -Fraction(BOX))
        assert Fraction(float(found)) == exact


@pytest.mark.parametrize("batches", SCHEMES, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse", "single", "torch", "softmax"])
@pytest.mark.parametrize("diameter", [math.inf, 0.3])
def test_what_is_released_lies_on_the_grid(batches, kind, diameter):
    random = np.random.default_rng(1)
    X, y = bound_rows(random.standard_normal((13, 3)), 1.0), random.choice([-1.0, 1.0], 13)
    loss = Softmax(3) if kind == "softmax" else Logistic()
    y = random.integers(0, 3, 13) if kind == "softmax" else y
    data = {"sparse": sp.csr_array(X), "single": bound_rows(X.astype(np.float32), 1.0)}.get(kind, X)
    if kind == "torch":
        data = pytest.importorskip("torch").from_numpy(X)
    norm = loss.gradient_norm(1.0)
    run = describe(batches=batches, diameter=diameter, gradient_norm=norm)
    start = random.standard_normal((3, 3) if kind == "softmax" else 3)
    done = noisy_descent(loss, data, run, labels=y, start=start, regularization=0.02)
    assert not done.experiment
    told = done.training.arithmetic
    assert told.coordinates == start.size
    assert told.error > 0
    assert whole(done.parameters, told.grid)
    if math.isfinite(diameter):
        centre = [nearest(Fraction(float(v)), Fraction(told.grid)) for v in start.flat]
        ends = [Fraction(float(v)) for v in done.parameters.flat]
        apart = sum((a - b) ** 2 for a, b in zip(ends, centre, strict=True))
        assert apart <= (Fraction(diameter) / 2) ** 2


def test_networks_live_on_it_too():
    torch = pytest.importorskip("torch")
    from lastiterate.torch import noisy_module_descent

    net = torch.nn.Linear(4, 2)
    run = describe(records=4, clipping="gradient")
    done = noisy_module_descent(
        net, torch.nn.CrossEntropyLoss(), torch.eye(4), torch.tensor([0, 1, 0, 1]), run
    )
    assert not done.experiment
    assert done.training.arithmetic.coordinates == 10
    assert whole(done.parameters, done.training.arithmetic.grid)


def test_noisy_updates_of_momentum_lie_on_the_grid():
    """Everything after them is computed from them, on any numbers."""
    seen = []

    class Watching(MemoryCheckpoint):
        def save(self, state):
            seen.append(state)

    run = describe(momentum=0.9, step_size=0.37)
    given = {"start": np.full(3, 1 / 3), "checkpoint": Watching(every=1)}
    done = noisy_descent(lambda theta, i: np.tile(theta / 9, (len(i), 1)), None, run, **given)
    spacing = done.training.arithmetic.grid
    velocity = np.zeros(3)
    for state in seen:
        noisy = state.velocity - 0.9 * velocity
        velocity = state.velocity
        assert np.abs(noisy / spacing - np.rint(noisy / spacing)).max() < 1e-4
    assert whole(seen[0].velocity, spacing)


def test_an_average_is_one_of_points_on_the_grid():
    run = describe(release=TailAverage(4))
    done = noisy_descent(lambda t, i: np.zeros((len(i), 3)), None, run, start=np.zeros(3))
    assert whole(4 * done.parameters, done.training.arithmetic.grid)


# --- the projection -------------------------------------------------------------------------------


def offsets():
    random = np.random.default_rng(0)
    for size in (1, 2, 3, 17, 1000, 40_000):
        for _ in range(6 if size > 100 else 60):
            length = 2.0 ** random.uniform(0, 46)
            direction = random.standard_normal(size) ** int(random.choice([1, 3, 9]))
            direction /= np.linalg.norm(direction)
            radius = length * 2.0 ** random.uniform(-3, 0.5)
            if random.random() < 0.3:
                radius = float(np.linalg.norm(np.rint(direction * length)))  # on the edge
            yield np.rint(direction * length), min(radius, 2.0**46)


@pytest.mark.parametrize("spacing", [1.0, 2.0**-700, 2.0**800])
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_projection_is_inside_on_the_grid_and_near_the_exact_one(backend, spacing):
    for offset, radius in offsets():
        if spacing != 1.0 and offset.size > 100:
            continue
        if backend == "numpy":
            found = projection(offset * spacing, radius * spacing, spacing)
            found = offset if found is None else found / spacing
        else:
            torch = pytest.importorskip("torch")
            from lastiterate.train.torch_backend.backend import TorchBackend

            theta = torch.from_numpy(offset * spacing)
            engine = TorchBackend(torch.device("cpu"), SeededSource(1))
            found = engine.projected(theta, torch.zeros_like(theta), radius * spacing, spacing)
            found = found.numpy() / spacing
        assert (found == np.rint(found)).all()
        exact = sum(int(v) ** 2 for v in offset)  # whole numbers
        assert sum(int(v) ** 2 for v in found) <= Fraction(radius) ** 2
        factor = min(1.0, radius / math.sqrt(exact)) if exact else 1.0
        off = np.abs(found) - np.abs(offset) * factor
        slack = 4 * room(offset.size) * radius  # of the length; and truncation
        assert (off <= slack).all()
        assert (off >= -1 - slack).all()


def test_a_ball_of_radius_zero_and_points_at_its_centre():
    assert projection(np.zeros(3), 0.0, 1.0) is None
    assert (projection(np.array([3.0, 0.0]), 0.0, 1.0) == 0).all()
    run = describe(diameter=0.0)
    done = noisy_descent(lambda t, i: np.zeros((len(i), 2)), None, run, start=np.array([0.1, 2.0]))
    assert np.abs(done.parameters - [0.1, 2.0]).max() <= done.training.arithmetic.grid


# --- two runs are never farther apart than accounted ----------------------------------------------


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize("radius", [math.inf, 0.5])
def test_one_step_drives_two_points_apart_by_no_more_than_is_charged(l2, radius):
    """Logistic steps are non-expansive in real numbers; computed ones up to 2ηe + 3g√d.

    The fourth g√d of the slip is for the shift that is rounded, in the proof.
    """
    random = np.random.default_rng(8)
    X, y = bound_rows(random.standard_normal((40, 6)), 1.0), random.choice([-1.0, 1.0], 40)
    from lastiterate.train.gradients import LinearGradients
    from lastiterate.train.loop import Run, Updates
    from lastiterate.train.settings import Settings

    for coarse in (0.0, 2.0**-12):
        told = "exact" if not coarse else Arithmetic(grid=coarse, coordinates=6)
        run = describe(
            records=40, step_size=2.0, diameter=2 * radius, arithmetic=told, noise=coarse or 0.05
        )
        gradients = LinearGradients(Logistic(), X, y, run, l2, 1.0)
        settings = Settings(regularization=l2, random_state=1)
        made = Run.of(Logistic(), run, settings, gradients)
        updates = Updates(made, gradients, None, Backend())
        g = made.grid.spacing
        error = made.grid.arithmetic(gradients.arithmetic(6), 6, gradients.per_length).error
        assert coarse in (0.0, g)
        contraction = 1 - 2.0 * l2

        def step(theta, updates=updates):
            updates.theta = theta
            return updates.projected(updates.moved(slice(0, 40), 2.0, None))

        for _ in range(300):
            a = made.grid.on(random.standard_normal(6) * 10.0 ** random.uniform(-4, 1))
            b = made.grid.on(a + random.standard_normal(6) * g * 10.0 ** random.uniform(-1, 6))
            apart = np.linalg.norm(step(a) - step(b))
            allowed = contraction * np.linalg.norm(a - b) + 2 * 2.0 * error
            assert apart <= allowed * (1 + 1e-12) + 3 * g * math.sqrt(6)


def exact_mean(loss, X, y, theta):
    """The mean gradient in 300 bits."""
    from flint import arb, arb_mat, ctx

    before, ctx.prec = ctx.prec, 300
    try:
        rows = arb_mat([[arb(float(v)) for v in row] for row in X])
        table = arb_mat([[arb(float(v)) for v in row] for row in theta.reshape(len(theta), -1)])
        scores, slopes = rows * table, []
        for i in range(len(X)):
            if isinstance(loss, Logistic):
                sign = int(y[i])
                slopes.append([-sign / (1 + (sign * scores[i, 0]).exp())])
                continue
            top = max(float(scores[i, o]) for o in range(theta.shape[1]))
            weights = [(scores[i, o] - arb(top)).exp() for o in range(theta.shape[1])]
            total = sum(weights, arb(0))
            slopes.append([w / total - int(o == y[i]) for o, w in enumerate(weights)])
        mean = rows.transpose() * arb_mat(slopes) / len(X)
        return [[mean[j, o] for o in range(mean.ncols())] for j in range(mean.nrows())]
    finally:
        ctx.prec = before


@pytest.mark.parametrize("loss", [Logistic(), Softmax(3)], ids=str)
@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_computed_mean_gradients_are_as_near_as_is_charged(loss, backend):
    """At parameters of any length, most of it orthogonal to all records: scores cancel."""
    from flint import arb

    from lastiterate.train.gradients import LinearGradients

    random = np.random.default_rng(5)
    worst = 0.0
    for columns in (1, 7, 60):
        n = 40
        X = bound_rows(random.standard_normal((n, columns)) ** 3, 0.9)
        hidden = random.standard_normal(columns)
        hidden /= np.linalg.norm(hidden)
        if columns > 1:
            X -= np.outer(X @ hidden, hidden)
        y = random.choice([-1.0, 1.0], n) if loss.outputs() == 1 else random.integers(0, 3, n)
        run = describe(records=n, gradient_norm=loss.gradient_norm(1.0))
        given = (loss, X, y, run, 0.0, 1.0)
        if backend == "torch":
            torch = pytest.importorskip("torch")
            from lastiterate.train.torch_backend.gradients import DeviceGradients

            gradients = DeviceGradients(
                loss, torch.from_numpy(X), y, run, 0.0, 1.0, torch.device("cpu")
            )
        else:
            gradients = LinearGradients(*given)
        for length in (0.0, 1.0, 1e3, 1e6, 1e9):
            theta = random.standard_normal(gradients.shape)
            theta += length * (hidden if theta.ndim == 1 else np.outer(hidden, np.ones(3)))
            at = theta if backend == "numpy" else torch.from_numpy(theta)
            found = np.asarray(gradients.total(at, slice(0, n))).reshape(columns, -1) / n
            exact = exact_mean(loss, X, y, theta)
            off = sum(
                (arb(float(found[j, o])) - exact[j][o]) ** 2
                for j in range(columns)
                for o in range(found.shape[1])
            )
            off = math.sqrt(float(off.upper()))
            charged = gradients.per_length * float(np.linalg.norm(theta))
            assert off <= gradients.arithmetic(theta.size).error + charged
            worst = max(worst, off)
    assert worst > 1e-10  # the sums alone are charged 1e-12: scores are what counts here


# --- the low-bit attack ---------------------------------------------------------------------------

COORDINATES = 400_000


def one_step(lead, noisy):
    """One update of as many coordinates as there are releases, each moved by ``lead``."""
    return noisy(np.full(COORDINATES, lead))


def plainly(lead):
    return lead + SeededSource(1).normal(lead.size)  # as any library does it


def on_our_grid(lead):
    run = describe(records=1, steps=1, step_size=1.0, noise=1.0, gradient_norm=1e4)
    done = noisy_descent(lambda t, i: -lead[None], None, run, start=np.zeros(lead.size))
    assert not done.experiment
    return done.parameters, done.training.arithmetic.grid


def fine_bits(values, unit):
    """How many small values are no multiples of the unit."""
    small = values[np.abs(values) < 2.0**-9]
    return int((small / unit != np.rint(small / unit)).sum())


def test_low_bits_refute_plain_noise_and_find_nothing_on_the_grid():
    """y = v + noise: near zero it is a multiple of ulp(v), unless v = 0."""
    unit = np.spacing(1.0) / 4
    hit = fine_bits(plainly(np.zeros(COORDINATES)), unit)
    missed = fine_bits(plainly(np.ones(COORDINATES)), unit)
    assert missed == 0
    # A certified delta of 1e-5 and any epsilon would allow 4 of them.
    assert stats.binomtest(hit, COORDINATES, 1e-5, alternative="greater").pvalue < 1e-9
    (without, g), (lead, other) = (
        on_our_grid(np.zeros(COORDINATES)),
        on_our_grid(np.ones(COORDINATES)),
    )
    assert g == other
    assert fine_bits(without, unit) == fine_bits(lead, unit) == 0
    a, b = (np.rint(v / g).astype(np.int64) for v in (without, lead))
    assert (a * g == without).all()
    for distinguish in (
        lambda n: n % 2,
        lambda n: n % 16,
        lambda n: n % 3,
        lambda n: np.log2(np.minimum((n | 4096) & -(n | 4096), 4096)).astype(int),  # trailing zeros
    ):
        one, two = distinguish(a), distinguish(b)
        most = max(one.max(), two.max()) + 1
        table = np.stack([np.bincount(v, minlength=most) for v in (one, two)])
        table = table[:, table.sum(axis=0) > 40]
        assert stats.chi2_contingency(table).pvalue > RARE


# --- the choice of the grid -----------------------------------------------------------------------


def test_the_grid_is_cheap():
    """Accounting for it costs a few parts in ten million."""
    loss = Loss(smoothness=0.25, regularization=0.1)
    run = describe(records=10_000, steps=200, noise=1e-4)
    X = bound_rows(np.random.default_rng(0).standard_normal((10_000, 20)), 1.0)
    done = noisy_descent(Logistic(), X, run, labels=np.ones(10_000), regularization=0.1)
    exact, paid = (account(r, loss).epsilon(1e-6) for r in (run, done.training))
    assert exact < paid < exact * (1 + 1e-5)


def test_long_runs_have_their_grid_at_once():
    import tracemalloc

    run = describe(steps=10**9)
    tracemalloc.start()
    assert grid_of(run, l2=0.1) is not None
    assert tracemalloc.get_traced_memory()[1] < 10**6
    tracemalloc.stop()


def test_a_told_grid_is_used_if_doubles_can():
    own = grid_of(describe()).spacing
    for power in (0, 5, 20):
        told = Arithmetic(grid=own * 2**power, coordinates=3)
        assert grid_of(describe(arithmetic=told)).spacing == own * 2**power
    assert grid_of(describe(arithmetic=Arithmetic(grid=own / 4))).spacing == own / 4
    assert grid_of(describe(arithmetic=Arithmetic(grid=own * 2.0**-40))).spacing == own
    coarse = Arithmetic(grid=2.0**-10, error=0.5, coordinates=50)
    done = noisy_descent(
        lambda t, i: np.zeros((len(i), 3)), None, describe(arithmetic=coarse), start=np.zeros(3)
    )
    assert done.training.arithmetic == coarse
    assert whole(done.parameters, 2.0**-10)


def test_whole_numbers_are_chosen_for_the_ball_around_the_rounded_start():
    torch = pytest.importorskip("torch")
    from lastiterate.train.settings import Settings
    from lastiterate.train.torch_backend.gradients import DeviceGradients

    run = describe(diameter=2.0**-5, arithmetic=Arithmetic(grid=2.0**-3, coordinates=3))
    told = Settings(labels=np.ones(13), start=np.full(3, 0.07), products="exact")
    gradients = DeviceGradients.told(
        Logistic(), torch.full((13, 3), 0.5), run, told, torch.device("cpu")
    )
    assert gradients._units.largest >= 2.0**-3 + 2.0**-6


@pytest.mark.parametrize(
    ("changes", "radius", "l2"),
    [
        ({}, math.inf, 0.0),
        ({}, 1e-30, 0.0),
        ({}, 1e30, 0.0),
        ({"noise": 1e-290}, math.inf, 0.0),
        ({"noise": 1e60}, math.inf, 0.0),
        ({"noise": 1e12}, 3.0, 0.5),
        ({"gradient_norm": 1e-250}, math.inf, 0.0),
        ({"gradient_norm": 1e60}, math.inf, 0.0),
        ({"gradient_norm": 0.0}, math.inf, 0.0),
        ({"step_size": 0.0}, math.inf, 1.0),
        ({"step_size": 1e-300}, math.inf, 0.0),
        ({"step_size": 50.0}, math.inf, 3.0),
        ({"steps": 10**6, "noise": 1.0}, math.inf, 0.0),
        ({"noise": [1e-100] * 8 + [1e60]}, math.inf, 0.0),
    ],
)
def test_the_grid_keeps_what_its_proof_needs(changes, radius, l2):
    run = describe(**changes)
    start = np.array([0.3, -40.0, 0.0])
    grid = grid_of(run, start, radius, l2)
    g = Fraction(grid.spacing)
    assert math.frexp(grid.spacing)[0] == 0.5
    assert Fraction(grid.box) <= 2**51 * g
    assert (Fraction(grid.box) / g).denominator == 1
    assert Fraction(float(run.step_sizes.max())) * Fraction(l2) * Fraction(grid.box) <= 2**49 * g
    assert grid.own == math.isinf(radius)
    assert grid.own or grid.ball == radius
    assert 16 * Fraction(room(3)) * Fraction(grid.ball) <= Fraction(math.sqrt(3)) * g * (1 + RARE)
    assert 40 + Fraction(grid.ball) <= Fraction(grid.box) / 2
    assert Fraction(float(run.noises.max())) / g <= 2**42
    centre = sum(Fraction(float(v)) ** 2 for v in grid.on(start))
    assert (Fraction(grid.longest) - Fraction(grid.ball)) ** 2 >= centre
    assert math.isfinite(1 / grid.spacing)
    assert math.isfinite(grid.box * 2)


def test_where_there_is_no_grid():
    assert grid_of(describe(noise=0.0)) is None
    assert grid_of(describe(steps=0)) is None
    unbounded = describe(gradient_norm=math.inf, sensitivity=1.0)
    assert grid_of(unbounded) is None
    assert grid_of(unbounded, radius=2.0) is not None
    with pytest.raises(UnsupportedError, match="too large for doubles"):
        grid_of(describe(noise=1e300))
    with pytest.raises(UnsupportedError, match="too large for doubles"):
        grid_of(describe(), np.full(3, 1e300))


def test_noise_is_asked_for_until_it_fits_its_grid():
    asked = []

    def vast(described):
        asked.append(described.arithmetic.grid)
        return described.replace(noise=1e9)

    given = (Arithmetic(error=1e-12), np.zeros(3), Loss.unknown())
    run, radius = on_its_grid(describe(noise=0.0), *given, vast)
    assert math.isinf(radius)
    assert len(asked) == 2
    assert run.arithmetic == Arithmetic(grid=asked[1], error=1e-12, coordinates=3)
    assert grid_of(run).spacing == asked[1] > asked[0]
    vast = describe(noise=0.0, gradient_norm=1e200)  # a guess of its noise has no grid
    nothing = (None, np.zeros(3), Loss.unknown(), lambda run: run)
    assert on_its_grid(vast, *nothing) == (vast, math.inf)
    assert on_its_grid(describe(noise=0.0), *nothing) == (describe(noise=0.0), math.inf)


def test_noise_that_is_found_to_a_tolerance_does_not_end_in_a_circle():
    """A little more error, a little less noise: the ball would be halved and doubled for ever."""
    asked = []

    def wobbling(described):
        asked.append(described.arithmetic.error)
        assert len(asked) < 20
        return described.replace(noise=60.0 if len(asked) % 2 else 40.0)

    engine, start = Arithmetic(error=1e-12), np.zeros(3)
    balls = {grid_of(describe(noise=noise)).ball for noise in (40.0, 60.0)}
    assert len(balls) == 2
    unknown = Loss.unknown()
    run, _ = on_its_grid(describe(noise=0.0), engine, start, unknown, wobbling, per_length=1e-15)
    grid = grid_of(run)
    assert run.arithmetic.error >= grid.arithmetic(engine, 3, 1e-15).error
    assert run.arithmetic.error == max(asked)


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_estimators_keep_their_promise_with_the_grid_paid(epsilon):
    from lastiterate.models import PrivateLogisticRegression

    random = np.random.default_rng(0)
    X, y = random.standard_normal((200, 30)), random.integers(0, 2, 200)
    model = PrivateLogisticRegression(epsilon, 1e-5, steps=5, prepare=None).fit(X, y)
    told = model.certificate_.training.arithmetic
    assert told == model.choice_.training.arithmetic
    assert told.coordinates == 31
    assert model.certificate_.epsilon <= epsilon
    if model.training_.release == "last":
        assert whole(model.coef_, told.grid)
        assert whole(model.intercept_, told.grid)


# --- going on, and certifying ---------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "torch"])
def test_a_resumed_run_goes_on_on_its_grid(backend):
    random = np.random.default_rng(1)
    X, y = bound_rows(random.standard_normal((13, 3)), 1.0), random.choice([-1.0, 1.0], 13)
    data = X if backend == "numpy" else pytest.importorskip("torch").from_numpy(X)
    seen = []

    class Stopping(MemoryCheckpoint):
        def save(self, state):
            super().save(state)
            seen.append(state)
            if len(seen) == 1:
                raise KeyboardInterrupt

    run, store = describe(batches=Shuffled(4)), Stopping(every=5)

    def go(**given):
        return noisy_descent(Logistic(), data, run, labels=y, random_state=4, **given)

    whole_run = go()
    with pytest.raises(KeyboardInterrupt):
        go(checkpoint=store)
    assert whole(seen[0].parameters, whole_run.training.arithmetic.grid)
    resumed = go(checkpoint=store)
    assert (resumed.parameters == whole_run.parameters).all()
    assert resumed.training == whole_run.training


def test_a_trained_model_is_certified_with_its_arithmetic_only():
    loss = Loss.unknown()
    model = np.zeros(3)
    for told in ("exact", Arithmetic(), Arithmetic(error=1e-9)):
        with pytest.raises(AssumptionError, match="speaks of real numbers"):
            certify(describe(arithmetic=told), loss, 1e-5, parameters=model)
        certify(describe(arithmetic=told), loss, 1e-5)  # the mathematics can be
    done = noisy_descent(lambda t, i: np.zeros((len(i), 3)), None, describe(), start=model)
    bound = certify(done.training, loss, 1e-5, parameters=done.parameters)
    assert bound.training == done.training
