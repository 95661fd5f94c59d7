"""Proximal steps: exact on the grid or as near as is charged, in every engine, said everywhere."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from sklearn.linear_model import ElasticNet, LogisticRegression

from lastiterate import (
    L1,
    Arithmetic,
    Box,
    CertificateError,
    FullBatch,
    GroupLasso,
    Loss,
    Shuffled,
    Simplex,
    TailAverage,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.accounting import predicted_risk
from lastiterate.audit.shadow import LinearCohort
from lastiterate.errors import DescriptionError, LastIterateError, UnsupportedError
from lastiterate.losses import Logistic, Softmax
from lastiterate.models import PrivateLogisticRegression, PrivateRidge, PrivateSoftmaxRegression
from lastiterate.torch import noisy_module_descent
from lastiterate.train import MemoryCheckpoint, noisy_descent
from lastiterate.train.grid import length
from lastiterate.train.proximal import proximal_step
from lastiterate.verifier.document import canonical, fingerprint

STEPS = [
    L1(0.1, spared=1),
    GroupLasso(0.2, sizes=(2, 1), spared=1),
    GroupLasso(0.2),
    Box(-0.125, 0.3),
    Simplex(0.7),
]


def describe(**changes):
    fields = {
        "records": 40,
        "steps": 12,
        "step_size": 0.5,
        "noise": 0.05,
        "gradient_norm": 1.0,
        "batches": FullBatch(),
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


def table(seed=0, n=40, d=4):
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, d))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X, np.where(X[:, 0] + 0.1 * random.standard_normal(n) > 0, 1.0, -1.0)


# --- the maps -------------------------------------------------------------------------------------


def exact(step, v, eta):
    """The proximal step in rational numbers; lengths as doubles, good to 1e-15."""
    v = [Fraction(x) for x in v]
    if isinstance(step, L1):
        t, last = Fraction(eta) * Fraction(step.weight), len(v) - step.spared
        soft = [max(abs(x) - t, 0) * (1 if x > 0 else -1) for x in v]
        return np.array([float(x) for x in soft[:last] + v[last:]])
    if isinstance(step, Box):
        return np.array([float(min(max(x, Fraction(step.low)), Fraction(step.high))) for x in v])
    if isinstance(step, GroupLasso):
        done, first = [float(x) for x in v], 0
        for size in step.sizes or [1] * (len(v) - step.spared):
            group = v[first : first + size]
            norm = math.sqrt(float(sum(x * x for x in group)))
            factor = max(0.0, 1 - eta * step.weight / norm) if norm else 0.0
            done[first : first + size] = [float(x) * factor for x in group]
            first += size
        return np.array(done)
    falling = sorted(v, reverse=True)
    sums = [sum(falling[: k + 1]) - Fraction(step.total) for k in range(len(v))]
    tau = max(sums[k] / (k + 1) for k in range(len(v)) if falling[k] > sums[k] / (k + 1))
    return np.array([float(max(x - tau, 0)) for x in v])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("step", STEPS)
def test_the_step_is_the_described_one_on_the_grid(step, seed):
    random, grid = np.random.default_rng(seed), 2.0**-20
    v = np.rint(random.standard_normal(4) * 10.0 ** random.integers(-4, 2) / grid) * grid
    done = proximal_step(step, v, 0.5, grid, length)
    assert np.array_equal(np.rint(done / grid) * grid, done)
    assert not np.signbit(done[done == 0]).any()
    assert np.abs(done - exact(step, v, 0.5)).max() <= 1.02 * grid
    plain = proximal_step(step, v, 0.5, 0.0, length)
    assert np.allclose(plain, exact(step, v, 0.5), rtol=0, atol=1e-11)


@pytest.mark.parametrize("step", STEPS)
def test_two_points_get_no_farther_apart_than_is_charged(step):
    """Grids of every size against the step, points that are near, far, equal or huge."""
    random = np.random.default_rng(9)
    for _ in range(400):
        grid, d = 2.0 ** int(random.integers(-30, 1)), 4
        far = 2.0 ** int(random.integers(0, 45)) * grid
        x = np.rint(random.uniform(-far, far, d) / grid) * grid
        y = x + np.rint(random.standard_normal(d) * random.choice([0, 1, 1e3])) * grid
        if isinstance(step, Box) and grid > 0.25:
            continue  # no multiple of the grid is inside
        a, b = (proximal_step(step, v, 0.5, grid, length) for v in (x, y))
        slack = 2 * grid * math.sqrt(d) if step.rounds else 0.0
        assert np.linalg.norm(a - b) <= np.linalg.norm(x - y) * (1 + 1e-12) + slack
        if np.array_equal(x, y):
            assert np.array_equal(a, b)
        if step.constrains:
            assert np.linalg.norm(a - b) <= step.width(d)
        if isinstance(step, Simplex):
            assert a.min() >= 0
            assert math.fsum(a) <= step.total


# --- the run --------------------------------------------------------------------------------------


@pytest.mark.parametrize("batches", [FullBatch(), Shuffled(8)])
@pytest.mark.parametrize("step", STEPS)
def test_every_engine_takes_the_same_steps(step, batches):
    X, y = table()
    run = describe(batches=batches, proximal=step)
    done = [
        noisy_descent(Logistic(), data, run, labels=labels, random_state=3)
        for data, labels in ((X, y), (sp.csr_matrix(X), y), (torch.from_numpy(X), y))
    ]
    for other in done[1:]:
        near = 4 * done[0].training.arithmetic.grid * run.steps
        assert np.abs(other.parameters - done[0].parameters).max() <= near
    grid = done[0].training.arithmetic.grid
    assert np.array_equal(np.rint(done[0].parameters / grid) * grid, done[0].parameters)
    after = proximal_step(step, done[0].parameters, 0.0, grid, length)
    if step.constrains:  # it is in the set; a simplex is rounded a little below its total
        assert np.abs(after - done[0].parameters).max() <= 1.01 * grid
    assert done[0].training.proximal == step


def test_networks_take_it_too():
    X, y = table()
    net = torch.nn.Sequential(torch.nn.Linear(4, 2), torch.nn.Tanh(), torch.nn.Linear(2, 2))
    run = describe(clipping="gradient", noise=0.01, proximal=L1(0.1, spared=2))
    labels = torch.from_numpy((y > 0).astype(int))
    loss = torch.nn.CrossEntropyLoss()
    done = noisy_module_descent(net.double(), loss, torch.from_numpy(X), labels, run)
    assert (done.parameters[:-2] == 0).sum() >= 3
    assert (done.parameters[-2:] != 0).all()
    assert done.training.proximal == run.proximal
    assert not done.experiment


def test_zeros_are_exactly_zero_and_spared_rows_are_not():
    X, y = table()
    run = describe(steps=50, noise=0.01, proximal=L1(0.3, spared=1))
    done = noisy_descent(Logistic(), X, run, labels=y, random_state=0).parameters
    assert (done[1:3] == 0).all()
    assert done[-1] != 0
    group = describe(steps=50, noise=0.01, gradient_norm=2.0, proximal=GroupLasso(0.2))
    labels = (y > 0).astype(int)
    done = noisy_descent(Softmax(2), X, group, labels=labels, random_state=0).parameters
    rows = (done == 0).all(axis=1)
    assert rows.any()
    assert ((done == 0).any(axis=1) == rows).all()


def test_an_average_is_sparse_too():
    X, y = table()
    run = describe(steps=50, noise=0.01, proximal=L1(0.15), release=TailAverage(20))
    done = noisy_descent(Logistic(), X, run, labels=y, random_state=0).parameters
    last = noisy_descent(Logistic(), X, run.replace(release="last"), labels=y, random_state=0)
    assert (done == 0).sum() >= 2
    assert 0 != done[0] != last.parameters[0]


def test_a_run_that_diverges_says_so():
    run = describe(noise=0.0, step_size=1e300, proximal=Simplex(), gradient_norm=1e300)
    with np.errstate(all="ignore"), pytest.raises(LastIterateError, match="diverged"):
        noisy_descent(lambda x, rows: np.full((len(rows), 4), 1e299), None, run, start=np.zeros(4))


def test_a_resumed_run_goes_on_with_the_same_step():
    X, y = table()

    def stopping(parameters, rows, left=[7]):  # noqa: B006
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return X[rows] * Logistic().slope(X[rows] @ parameters, y[rows])[:, None]

    run, kept = describe(proximal=Simplex()), MemoryCheckpoint(every=1)
    settings = {"start": np.zeros(4), "random_state": 1}
    with pytest.raises(KeyboardInterrupt):
        noisy_descent(stopping, None, run, checkpoint=kept, **settings)
    with pytest.raises(LastIterateError, match="another run"):
        noisy_descent(stopping, None, run.replace(proximal=None), checkpoint=kept, **settings)
    resumed = noisy_descent(stopping, None, run, checkpoint=kept, **settings)
    at_once = noisy_descent(stopping, None, run, **settings)
    assert np.array_equal(resumed.parameters, at_once.parameters)


# --- what it costs, and who says so ---------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_no_privacy_price_but_the_grid(step):
    loss = Loss(smoothness=0.25, regularization=0.05)
    run = describe(noise=0.1)
    assert account(run.replace(proximal=step), loss).epsilon(1e-5) == account(run, loss).epsilon(
        1e-5
    )
    rounded = run.replace(arithmetic=Arithmetic(2.0**-20, 1e-9, 4))
    after = rounded.replace(proximal=step)
    assert after.grid_rounding == (
        rounded.grid_rounding if not step.rounds else pytest.approx(1.5 * rounded.grid_rounding)
    )
    assert account(after, loss).epsilon(1e-5) >= account(rounded, loss).epsilon(1e-5)
    assert account(after, loss).lower(1e-5) == 0.0  # no linear map is known to be reachable
    assert str(step) in str(account(after, loss))
    for row in compare(run.replace(proximal=step), loss).rows:  # others speak of plain updates
        assert "proximal" in row.theorem.supports


@pytest.mark.parametrize("step", STEPS)
def test_certificates_say_it_and_verify(step, tmp_path):
    X, y = table()
    run = noisy_descent(Logistic(), X, describe(proximal=step), labels=y)
    sealed = certify(run.training, run.loss, 1e-3, parameters={"w": run.parameters})
    sealed.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json")
    assert Training.from_json(run.training.to_json()) == run.training
    assert Training.from_toml(run.training.to_toml()) == run.training
    document = json.loads((tmp_path / "c.json").read_text())
    assert document["training"]["proximal"]["kind"] == step.kind
    for changed in ({"kind": "l1", "weight": 9.0}, {"kind": "nuclear"}, None):
        if changed is None:
            del document["training"]["proximal"]
        else:
            document["training"]["proximal"] = changed
        document["fingerprint"] = fingerprint(document)
        (tmp_path / "m.json").write_text(canonical(document))
        with pytest.raises(CertificateError):
            verify(tmp_path / "m.json", parameters=None)


def test_what_is_hostile_or_unknown_is_refused():
    class Child(L1):
        pass

    bad = [Child(1.0), "l1", {"kind": "l1"}, {"kind": ["l1"]}, {"kind": "l1", "weight": "x"}, 3.0]
    bad += [{"kind": "box", "low": 1, "high": 1}, {"kind": "simplex", "total": -1}]
    bad += [
        {"kind": "l1", "weight": 1, "other": 1},
        {"kind": "group-lasso", "weight": 1, "sizes": 3},
    ]
    for step in bad:
        with pytest.raises(DescriptionError):
            describe(proximal=step)
    for weight in (-1.0, math.nan, math.inf, True):
        with pytest.raises(DescriptionError):
            L1(weight)
    with pytest.raises(DescriptionError, match="momentum"):
        describe(proximal=L1(1.0), momentum=0.5)
    X, y = table()
    for run, words in (
        (describe(proximal=L1(1.0, spared=5)), "rows"),
        (describe(proximal=GroupLasso(1.0, sizes=(2, 1))), "rows"),
        (describe(proximal=Simplex(), diameter=1.0), "diameter"),
        (describe(proximal=Box(1e-3, 1e-3 + 1e-13)), "multiple of the grid"),
    ):
        with pytest.raises(DescriptionError, match=words):
            noisy_descent(Logistic(), X, run, labels=y)
    run = describe(proximal=L1(1.0))
    for engine in (
        lambda: LinearCohort(Logistic(), run),
        lambda: predicted_risk(run, Loss(smoothness=1.0), spectrum=[0.5]),
    ):
        with pytest.raises(UnsupportedError, match="proximal"):
            engine()


@pytest.mark.parametrize("weight", [0.0, 1e-300, 1e300])
def test_extreme_weights(weight):
    X, y = table()
    done = noisy_descent(Logistic(), X, describe(proximal=L1(weight)), labels=y, random_state=0)
    assert np.isfinite(done.parameters).all()
    assert weight < 1 or (done.parameters == 0).all()


# --- estimators -----------------------------------------------------------------------------------


def test_without_noise_the_solutions_are_those_of_scikit_learn():
    random = np.random.default_rng(0)
    X = random.standard_normal((300, 6)) / 4
    y = X[:, 0] - X[:, 1] + 0.1 * random.standard_normal(300) > 0
    common = {"epsilon": math.inf, "feature_bound": 2.5, "regularization": 0.02}
    for fit_intercept in (True, False):
        ours = PrivateLogisticRegression(
            penalty="l1", fit_intercept=fit_intercept, steps=20_000, **common
        ).fit(X, y)
        theirs = LogisticRegression(
            l1_ratio=1.0, C=1 / (300 * 0.02), solver="saga", fit_intercept=fit_intercept,
            tol=1e-10, max_iter=100_000,
        ).fit(X, y)  # fmt: skip
        assert np.allclose(ours.coef_, theirs.coef_, atol=1e-5)
        assert np.array_equal(ours.coef_ == 0, theirs.coef_ == 0)
        assert (ours.coef_ == 0).any()
    target = np.clip(X[:, 0] - X[:, 1], -0.9, 0.9)
    net = PrivateRidge(
        penalty="elasticnet",
        l1_ratio=0.5,
        fit_intercept=False,
        steps=20_000,
        target_range=(-1.0, 1.0),
        **common,
    ).fit(X, target)
    other = ElasticNet(alpha=0.02, l1_ratio=0.5, fit_intercept=False, tol=1e-12).fit(X, target)
    assert np.allclose(net.coef_, other.coef_, atol=1e-6)


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateSoftmaxRegression])
def test_private_models_are_exactly_sparse_and_certified(kind):
    random = np.random.default_rng(1)
    X = random.standard_normal((3000, 20))
    y = X[:, 0] > 0
    settings = {"epsilon": 2.0, "delta": 1e-5, "regularization": 0.02, "steps": 300}
    sparse = kind(penalty="l1", **settings).fit(X, y)
    dense = kind(**settings).fit(X, y)
    assert (sparse.coef_ == 0).mean() > 0.5
    assert (dense.coef_ != 0).all()
    assert sparse.certificate_.epsilon <= 2.0
    assert "proximal step" in str(sparse.choice_)
    assert sparse.score(X, y) > 0.85


def test_penalties_that_make_no_sense_are_refused():
    X, y = table()
    for settings in (
        {"penalty": "l1"},
        {"penalty": "l3", "regularization": 1.0},
        {"penalty": "elasticnet", "regularization": 1.0},
        {"penalty": "elasticnet", "regularization": 1.0, "l1_ratio": 2.0},
        {"penalty": "l1", "regularization": 1.0, "l1_ratio": 0.5},
        {"l1_ratio": 0.5},
    ):
        with pytest.raises(DescriptionError):
            PrivateLogisticRegression(epsilon=1.0, delta=1e-3, **settings).fit(X, y)
