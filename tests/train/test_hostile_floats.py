"""The noiseless computed sum of neighbouring data sets, as an enemy of floats would choose them.

One update with step size 1 and no noise is minus the computed mean gradient. For every engine it
may move by at most what is charged, `Descent.training.impulse`: the truth is compared in rational
numbers. The attacks are those that won: norms that underflow, sums at the edge of a binade where
every later record doubles the lead of one, cancellation, types that are too short.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp

from lastiterate import Cyclic, FullBatch, Poisson, Training
from lastiterate.errors import DescriptionError
from lastiterate.losses import (
    BallSoftmax,
    CappedSoftmax,
    Huber,
    Logistic,
    OneVsRest,
    Softmax,
    SquaredError,
)
from lastiterate.losses.rounding import root_up
from lastiterate.models import PrivateStandardScaler
from lastiterate.models.rows import Rows
from lastiterate.noise import source
from lastiterate.train import bound_rows, noisy_descent
from lastiterate.train.features import matrix, row_norms
from lastiterate.train.gradients import LinearGradients
from lastiterate.train.norms import lengths, shortening
from lastiterate.train.settings import Settings

torch = pytest.importorskip("torch")

from lastiterate.federated.aggregation import bounded, next_model  # noqa: E402
from lastiterate.federated.federation import Federation  # noqa: E402
from lastiterate.torch import Shards, noisy_module_descent  # noqa: E402
from lastiterate.train.torch_backend.gradients import DeviceGradients  # noqa: E402

torch.set_num_threads(1)


def one_update(records, **changes):
    settings = {
        "records": records,
        "steps": 1,
        "step_size": 1.0,
        "noise": 0.0,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
        "adjacency": "zero-out",
    }
    return Training(**{"adjacency": "replace", **settings, **changes})


def exact_norm_squared(values):
    return sum(Fraction(float(v)) ** 2 for v in np.ravel(values))


def move(first, second):
    """The squared distance of two updates, exactly, and what is charged, squared."""
    gap = [
        Fraction(float(a)) - Fraction(float(b))
        for a, b in zip(np.ravel(first.parameters), np.ravel(second.parameters), strict=True)
    ]
    assert first.training == second.training
    return sum(each**2 for each in gap), Fraction(first.training.impulse) ** 2


def assert_charged(first, second, context=""):
    moved, charged = move(first, second)
    assert moved <= charged, (context, math.sqrt(moved / charged))


# --- the sums -----------------------------------------------------------------------------------


def binade_attack(records, dtype):
    """Unit rows at the edge of a binade: in the world without the first one, halves round away.

    The sum of the first rows ends just at a power of two; every later row is a little more than
    half of the distance between floats there, which is rounded up in one world and away in the
    other, in a running sum of this type.
    """
    unit = float(np.finfo(dtype).eps)
    head = 2 ** min(math.ceil(math.log2(2 / unit / records)), int(math.log2(records)) - 1)
    x = np.full(records, 0.0)
    x[:head] = 1.0
    x[head:] = head * unit / 2 * (1 + 2.0**-6)
    return x.astype(dtype)


def doubling_attack(doublings, first=11):
    """The same again and again: ones up to the next binade, where the lead doubles once more."""
    parts, lead = [np.ones(2**first)], 1.0
    for binade in range(first, first + doublings):
        half = 2.0**binade * 2.0**-24 * (1 + 2.0**-6)
        parts += [np.full(math.ceil(lead / half), half), np.ones(int(2**binade - 2 * lead))]
        lead *= 2
    return np.concatenate(parts[:-1]).astype(np.float32)


FORMS = {
    "dense": lambda X: X,
    "sparse": sp.csr_array,
    "fortran": np.asfortranarray,
    "tensor": torch.from_numpy,
    "shards": Shards,
}
GPU = ["gpu"] if torch.cuda.is_available() else []  # products="double" on its FP64 units
FORMS.update({name: lambda X: torch.from_numpy(X).cuda() for name in GPU})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_sum_at_the_edge_of_a_binade(form, dtype):
    """A running float32 sum of this data moves by more than a record; ours does not."""
    records = 20_000
    X = binade_attack(records, dtype)[:, None]
    neighbour = X.copy()
    neighbour[0] = 0.0
    if dtype == np.float32:  # the attack has power
        assert np.cumsum(X[:, 0])[-1] - np.cumsum(neighbour[:, 0])[-1] > 1.5
    run, y = one_update(records), np.full(records, -10.0)  # every slope is 1
    both = [noisy_descent(Huber(1.0), FORMS[form](data), run, labels=y) for data in (X, neighbour)]
    assert_charged(*both)
    assert not both[0].experiment


@pytest.mark.parametrize("form", ["dense", "sparse", "tensor", *GPU])
def test_a_lead_that_doubles_and_doubles(form):
    """About 100,000 records, one of which moves a running float32 sum by more than 50 shares."""
    X = doubling_attack(6)[:, None]
    neighbour = X.copy()
    neighbour[0] = 0.0
    assert np.cumsum(X[:, 0])[-1] - np.cumsum(neighbour[:, 0])[-1] > 50
    run, y = one_update(len(X)), np.full(len(X), -10.0)
    assert_charged(
        *(noisy_descent(Huber(1.0), FORMS[form](data), run, labels=y) for data in (X, neighbour))
    )


def million(dtype):
    """10^6 rows: a lead that doubles nine times, a sum that cancels, a sparse one at an edge."""
    records = 10**6
    lead = doubling_attack(9).astype(np.float64)[:records]
    X = np.zeros((records, 3))
    X[: len(lead), 0] = lead
    X[len(lead) :, 0] = 2.0**-6
    X[:, 1] = np.where(np.arange(records) % 2, -1.0, 1.0) * (1 + 2.0**-20 * (X[:, 0] > 0.5))
    X[::3, 2] = binade_attack(-(-records // 3), dtype)
    X[1::2, 1] *= 1 - 2.0**-15  # what is left is small beside what was added
    return (X * 0.5).astype(dtype)  # rows below 1; halves keep the edges where they are


@pytest.mark.slow
@pytest.mark.parametrize("form", ["dense", "sparse", *GPU])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_million_records(form, dtype):
    """Neighbours move by what is charged, and every sum is as near the exact one as is said."""
    X = million(dtype)
    records = len(X)
    lead = X[:, 0].astype(np.float32)
    without = lead.copy()
    without[0] = 0.0
    assert np.cumsum(lead)[-1] - np.cumsum(without)[-1] > 200  # the attack has power
    run, y = one_update(records), np.full(records, -10.0)  # every slope is 1

    def update(data):
        done = noisy_descent(Huber(1.0), FORMS[form](data), run, labels=y)
        assert not done.experiment
        # fsum rounds the exact sum once.
        exact = [Fraction(math.fsum(column)) for column in data.T.astype(np.float64).tolist()]
        off = sum(
            (-Fraction(float(got)) - each / records) ** 2
            for got, each in zip(done.parameters, exact, strict=True)
        )
        once = sum(abs(each) for each in exact) / records / 2**53
        assert off <= (Fraction(done.training.arithmetic.error) + once) ** 2
        return done

    full = update(X)
    assert full.training.arithmetic.charge < 1e-3 / records  # of a record's share
    for k in (0, records // 2, records - 1):
        other = X.copy()
        other[k] = 0.0
        assert_charged(full, update(other), (form, dtype, k))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_tensors_of_every_type(dtype):
    records = 30_000
    X = torch.from_numpy(binade_attack(records, np.float32))[:, None].to(dtype)
    neighbour = X.clone()
    neighbour[0] = 0.0
    run, y = one_update(records), np.full(records, -10.0)
    both = [noisy_descent(Huber(1.0), data, run, labels=y) for data in (X, neighbour)]
    assert_charged(*both)


def test_gradients_of_a_function():
    records = 20_000
    X = binade_attack(records, np.float32)[:, None]
    neighbour = X.copy()
    neighbour[0] = 0.0
    for clipping in ("none", "gradient"):
        run = one_update(records, clipping=clipping)
        assert_charged(
            *(
                noisy_descent(lambda _, rows, X=data: X[rows], None, run, start=[0.0])
                for data in (X, neighbour)
            )
        )


@pytest.mark.parametrize("per_record", ["func", "hooks"])
def test_gradients_of_a_network(per_record):
    """A network in float32, whose gradient is its input: clipped and added in double."""
    if per_record == "hooks":
        pytest.importorskip("opacus")
    records = 6_000
    X = torch.from_numpy(binade_attack(records, np.float32))[:, None]
    neighbour = X.clone()
    neighbour[0] = 0.0
    run, found = one_update(records, clipping="gradient"), []
    for data in (X, neighbour):
        net = torch.nn.Linear(1, 1, bias=False)
        torch.nn.init.zeros_(net.weight)
        found.append(
            noisy_module_descent(
                net,
                lambda out, y: out.sum(),
                data,
                torch.zeros(records),
                run,
                per_record=per_record,
                chunk=4096,
            )
        )
    assert_charged(*found)
    assert not found[0].experiment


def test_ghost_clipping_is_an_experiment_and_says_why():
    pytest.importorskip("opacus")
    net = torch.nn.Linear(2, 1, bias=False)
    run = one_update(8, clipping="gradient", noise=0.1)
    rows = torch.linspace(0.5, 2.0, 16).reshape(8, 2)  # that do not cancel: sums are compared
    done = noisy_module_descent(
        net, lambda out, y: out.sum(), rows, torch.zeros(8), run, per_record="ghost"
    )
    assert done.experiment
    assert "no proved bound" in done.objection
    assert "per_record=" in done.objection


# --- norms, rows and clipping, in rational numbers ---------------------------------------------


HOSTILE = (
    0.0,
    5e-324,
    1.5e-162,
    1.58e-162,
    2.3e-162,
    1e-160,
    2.0**-511,
    1e-30,
    2.0**-24,
    0.1,
    1.0,
    1 + 2.0**-52,
    3.0,
    2.0**511,
    1e154,
    1e160,
    1e170,
    1e300,
    1.7e308,
)


def hostile_rows(random, records, columns, dtype=np.float64, largest=math.inf):
    """Rows whose entries are of one size, or of sizes that have nothing to do with each other."""
    sizes = np.array([h for h in HOSTILE if h <= min(largest, float(np.finfo(dtype).max))])
    rows = random.choice(sizes, (records, columns))
    alike = random.random(records) < 0.5
    rows[alike] = random.choice(sizes, (alike.sum(), 1)) * random.uniform(0.5, 1, (1, columns))
    rows *= random.choice([-1.0, 1.0], rows.shape)
    with np.errstate(over="ignore", under="ignore"):
        return rows.astype(dtype)


def test_the_attack_on_norms():
    """One square survives and the others underflow: the computed norm was 71 times too small."""
    X = np.full((1, 10_000), 1.5e-162)
    X[0, 0] = 2.3e-162
    truth = exact_norm_squared(X)
    assert Fraction(float(row_norms(X)[0])) ** 2 >= truth
    for rows in (Rows(None, False).of(X), Rows(None, False).of(sp.csr_array(X)).toarray()):
        assert exact_norm_squared(rows) <= 1
        assert exact_norm_squared(rows) > Fraction(0.99)


def check_rows_of(random, dtype, records=40, columns=7):
    X = hostile_rows(random, records, columns, dtype, largest=1e300)
    for form in (np.asarray, sp.csr_array):
        norms = row_norms(form(X))
        for row, norm in zip(X, norms, strict=True):
            truth = exact_norm_squared(row)
            found = Fraction(float(norm)) ** 2
            assert truth <= found <= truth * (1 + Fraction(1, 10**12)) + Fraction(1, 2**2100)
        for R in (1.0, 0.3, 1e-20 if dtype == np.float32 else 1e-200, 1e30):
            rows = bound_rows(form(X), R)
            assert rows.dtype == dtype
            for row in rows.toarray() if sp.issparse(rows) else rows:
                assert exact_norm_squared(row) <= Fraction(R) ** 2
        for intercept in (False, True):
            rows = Rows(None, intercept).of(form(X))
            for row in rows.toarray() if sp.issparse(rows) else rows:
                assert exact_norm_squared(row) <= 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_bounded_row_is_too_long(dtype):
    for seed in range(4):
        check_rows_of(np.random.default_rng(seed), dtype)


def test_a_bound_below_what_a_type_resolves_is_refused():
    from lastiterate import DescriptionError

    with pytest.raises(DescriptionError, match="too coarse"):
        bound_rows(np.ones((2, 2), np.float32), 1e-40)


def check_clipping(random, columns):
    vectors = hostile_rows(random, 50, columns)
    norms = lengths(vectors)
    finite = np.isfinite(norms)
    for longest in (1.0, 0.7, 1e-30, 1e100):
        kept = vectors[finite] * shortening(norms[finite], longest)[:, None]
        for row in kept:
            assert exact_norm_squared(row) <= Fraction(longest) ** 2


def test_no_clipped_vector_is_too_long():
    for seed, columns in enumerate((1, 2, 5, 30)):
        check_clipping(np.random.default_rng(seed), columns)


def test_torch_norms_and_factors():
    from lastiterate.train.torch_backend.norms import row_lengths, scaled_lengths
    from lastiterate.train.torch_backend.norms import shortening as torch_shortening

    for dtype in (np.float64, np.float32):
        X = hostile_rows(np.random.default_rng(3), 60, 5, dtype, largest=1e300)
        for measure in (row_lengths, scaled_lengths):
            norms = measure(torch.from_numpy(X))
            for row, norm in zip(X, norms.tolist(), strict=True):
                truth = exact_norm_squared(row)
                found = Fraction(norm) ** 2
                assert truth <= found <= truth * (1 + Fraction(1, 10**12)) + Fraction(1, 2**2100)
            factors = torch_shortening(norms, 0.9)
            for row in (torch.from_numpy(X).double() * factors[:, None]).numpy():
                assert exact_norm_squared(row) <= Fraction(0.9) ** 2


# --- clipped updates through the engines --------------------------------------------------------


@pytest.mark.parametrize("form", ["dense", "sparse", "tensor", "shards", *GPU])
def test_the_attack_on_clipping(form):
    """x = 1.5e-162 and y = 1e170: the gradient is 1.5e8 long, and its norm was computed as 0."""
    run = one_update(2, clipping="gradient")
    worlds = [np.array([[1.5e-162], [0.0]]), np.zeros((2, 1))]
    y = [1e170, 0.0]
    both = [noisy_descent(Huber(1e300), FORMS[form](X), run, labels=y) for X in worlds]
    assert_charged(*both)
    assert abs(float(both[0].parameters[0])) > 0.4  # clipped, not dropped


LOSSES = {
    "huber": (Huber(1e300), "gradient"),
    "logistic": (Logistic(), "gradient"),
    "softmax": (Softmax(3), "gradient"),
    "bounded": (Logistic(), "none"),
    "bounded softmax": (Softmax(4), "none"),
    "capped": (CappedSoftmax(5, cap=1e-9), "none"),
    "ball": (BallSoftmax(5, radius=1e-9), "none"),
    "margin": (SquaredError(1e100), "margin"),
    "rest": (OneVsRest(Logistic(), 3), "none"),
}


def random_worlds(random, loss, clipping, records, columns, dtype):
    bound = clipping != "gradient"
    X = hostile_rows(random, records, columns, dtype, largest=1e300)
    X = bound_rows(X, 1.0) if bound else X
    outputs = loss.outputs()
    if outputs > 1:
        y = random.integers(0, outputs, records)
    elif isinstance(loss, (Huber, SquaredError)):
        y = random.choice([0.0, 1.0, -1e10, 1e170, 1e-300], records)
    else:
        y = random.choice([-1.0, 1.0], records)
    return X, y


def check_engines(random, kind, records=60, columns=3):
    loss, clipping = LOSSES[kind]
    for dtype in (np.float64, np.float32):
        X, y = random_worlds(random, loss, clipping, records, columns, dtype)
        other = X.copy()
        other[int(random.integers(records))] = 0.0
        K = 0.6 if clipping == "gradient" else loss.gradient_norm(1.0)
        bound = {} if clipping == "gradient" else {"feature_bound": 1.0}
        if clipping == "margin":
            K = 0.8
        for batches in (FullBatch(), Cyclic(records // 2), Poisson(0.5)):
            run = one_update(records, clipping=clipping, gradient_norm=K, batches=batches)
            for name, form in FORMS.items():
                both = [
                    noisy_descent(loss, form(data), run, labels=y, random_state=3, **bound)
                    for data in (X, other)
                ]
                assert_charged(*both, (kind, name, dtype, batches))


@pytest.mark.parametrize("kind", LOSSES)
def test_hostile_rows_through_every_linear_engine(kind):
    check_engines(np.random.default_rng(5), kind)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", LOSSES)
def test_many_hostile_rows_through_every_linear_engine(kind):
    for seed in range(60):
        random = np.random.default_rng(seed)
        columns = int(random.choice([1, 2, 5, 17]))
        check_engines(random, kind, int(random.choice([2, 7, 200])), columns)
        check_rows_of(random, np.float64)
        check_rows_of(random, np.float32)
        check_clipping(random, columns)


def test_rows_of_tensors_that_are_rescaled_on_the_fly():
    for dtype in (torch.float64, torch.float32):
        X = torch.from_numpy(hostile_rows(np.random.default_rng(1), 30, 4, largest=1e30)).to(dtype)
        other = X.clone()
        other[4] = 0.0
        run, y = one_update(30), np.full(30, -1e200)
        for rows in ("shorten", "rescale"):
            both = [
                noisy_descent(Huber(1.0), data, run, labels=y, rows=rows) for data in (X, other)
            ]
            assert_charged(*both, (dtype, rows))


# --- scaler, federation -------------------------------------------------------------------------


def test_the_scaler():
    records = 9_000
    X = np.concatenate([np.ones(64), np.full(records - 64, 2.0**-47 * 1.01)])[:, None]
    scaler = PrivateStandardScaler(1.0, 1e-6, low=-1.0, high=1.0).fit(X)
    run = scaler.training_
    assert run.arithmetic.error > 0
    assert scaler.certificate_.epsilon <= 1.0
    assert scaler.certificate_.training == run
    silent = run.replace(noise=0.0)
    values = scaler._contributions(X)
    neighbour = values.copy()
    neighbour[0] = 0.0
    assert_charged(
        *(
            noisy_descent(lambda _, i, v=v: -v[i], None, silent, start=np.zeros(2))
            for v in (values, neighbour)
        )
    )


def test_a_federated_round():
    """Clipped updates are truly short, and their computed sum moves by what is charged."""
    random = np.random.default_rng(2)
    model = {"w": np.zeros(6)}
    clients = 200
    run = Federation(
        clients=clients,
        sampled=clients,
        rounds=1,
        clip=0.7,
        noise_multiplier=0.0,
        adjacency="zero-out",
    )
    answers = hostile_rows(random, clients, 6, largest=1e300)
    updates = [bounded({"w": answer}, model, run.clip).vector for answer in answers]
    for update in updates:
        assert exact_norm_squared(update) <= Fraction(run.clip) ** 2
    full = next_model(model, updates, run, source(1))["w"]
    for k in range(0, clients, 23):
        without = [np.zeros(6) if i == k else u for i, u in enumerate(updates)]
        gap = [
            Fraction(a) - Fraction(b)
            for a, b in zip(full, next_model(model, without, run, source(1))["w"], strict=True)
        ]
        assert run.training.arithmetic.error > 0
        assert sum(g**2 for g in gap) <= Fraction(run.training.impulse) ** 2


# --- what is calibrated and certified is what was computed ---------------------------------------


def test_estimators_pay_for_their_arithmetic():
    from lastiterate.models import PrivateLogisticRegression
    from lastiterate.train.summation import linear_arithmetic

    random = np.random.default_rng(0)
    X, y = random.standard_normal((300, 4)), random.integers(0, 2, 300)
    for dtype in (np.float64, np.float32):
        model = PrivateLogisticRegression(1.0, 1e-4, steps=20, prepare=None)
        model.fit(X.astype(dtype), y)
        run = model.training_
        expected = linear_arithmetic(run, model._objective(), 5)  # an intercept is a column
        assert run.arithmetic == model.choice_.training.arithmetic
        assert expected.error < run.arithmetic.error < 1e-3 * run.impulse
        assert run.arithmetic.grid > 0
        assert run.arithmetic.coordinates == 5
        assert model.certificate_.training == run
        assert model.certificate_.epsilon <= 1.0
        words = " ".join(model.certificate_.assumptions)
        assert "rounding moves no mean gradient" in words


def test_a_description_that_claims_more_precision_than_the_engine_has_is_corrected():
    from lastiterate import Arithmetic

    X, y = np.ones((4, 1)), np.ones(4)
    plain = noisy_descent(Logistic(), X, one_update(4), labels=y).training.arithmetic
    finer = one_update(4, arithmetic=Arithmetic(error=plain.error / 2))
    coarser = one_update(4, arithmetic=Arithmetic(error=1e-3))
    assert noisy_descent(Logistic(), X, finer, labels=y).training.arithmetic == plain
    found = noisy_descent(Logistic(), X, coarser, labels=y).training.arithmetic
    assert found == Arithmetic(grid=plain.grid, error=1e-3)


def test_a_stream_pays_too():
    from lastiterate.models import PrivateLogisticRegression

    random = np.random.default_rng(0)
    stream = [(random.standard_normal((50, 3)), random.integers(0, 2, 50)) for _ in range(4)]
    model = PrivateLogisticRegression(1.0, 1e-4)
    model.fit_stream(stream, batches=4, batch_size=50, classes=[0, 1])
    assert model.training_.arithmetic == model.choice_.training.arithmetic
    assert model.training_.arithmetic.error > 0
    assert model.certificate_.epsilon <= 1.0


def test_a_sparse_matrix_that_points_outside_of_itself_is_refused():
    """Its norms would be read from memory that is no record's."""
    parts = [
        ([0, 1, 500], [0, 1, 2, 3]),
        ([0, 1, -1], [0, 1, 2, 3]),
        ([0, 1, 0], [0, 3, 1, 3]),  # rows that share entries
    ]
    for indices, pointers in parts:
        X = sp.csr_array((3, 2))
        X.data, X.indices = np.ones(3), np.array(indices, dtype=np.int32)
        X.indptr = np.array(pointers, dtype=np.int32)
        for use in (matrix, lambda X: bound_rows(X, 1.0)):
            with pytest.raises(DescriptionError, match="contradict"):
                use(X)


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_rows_that_pass_by_a_hair_turn_no_faster_than_is_charged(kind):
    """Rows that look just short enough, at a step of 2/smoothness: two runs overshoot."""
    records, columns = 64, 2000
    run = Training(
        records=records,
        steps=1,
        step_size=2.0,
        noise=1.0,
        gradient_norm=1.0,
        batches=FullBatch(),
        diameter=2.0,
        adjacency="replace",
    )
    X, labels, theta = np.zeros((records, columns)), np.zeros(records), np.zeros(columns)
    X[:, :2] = np.array([0.6, 0.8]) * (1 + 2.99 * (columns + 8) * 2.0**-53)
    theta[:2] = 0.59999, 0.79999  # no slope is clipped
    loss = Huber(threshold=1.0)
    if kind == "numpy":
        gradients, put = LinearGradients(loss, X, labels, run, 0.0, 1.0), np.array
    else:
        told = Settings(labels=labels, feature_bound=1.0)
        device, put = torch.device("cpu"), torch.tensor
        gradients = DeviceGradients.told(loss, X, run, told, device)
    ended = []
    for start in (theta, -theta):
        total = gradients.total(put(start), slice(0, records))
        pairs = zip(start.tolist(), total.tolist(), strict=True)
        ended.append([Fraction(a) - 2 * Fraction(b) / records for a, b in pairs])
    apart = sum((a - b) ** 2 for a, b in zip(*ended, strict=True))
    before = sum((2 * Fraction(a)) ** 2 for a in theta)
    error = Fraction(gradients.arithmetic(columns).error) + Fraction(gradients.per_length)
    assert apart <= (Fraction(root_up(before)) + 2 * 2 * error) ** 2
