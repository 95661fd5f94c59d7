"""Every batch scheme, every loss class on a bounded domain: finite, converging, ordered, true."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from batch_laws import truth_from_below

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    Reshuffled,
    Shuffled,
    Training,
    WithoutReplacement,
    account,
    certify,
    verify,
)
from lastiterate.theory import BY_KEY
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.modulus import Modulus, inverse_modulus
from lastiterate.theory.payment_paths import Prices, cheapest_payments
from lastiterate.theory.without_replacement import absorbed, replaced_pair, restarted

DELTA = 1e-5
SCHEMES = {
    "full": FullBatch(),
    "cyclic": Cyclic(5),
    "shuffled": Shuffled(5),
    "reshuffled": Reshuffled(5),
    "poisson": Poisson(0.1),
    "without-replacement": WithoutReplacement(5),
}
LOSSES = {
    "convex": Loss(smoothness=1.0),
    "strongly convex": Loss(smoothness=1.0, strong_convexity=0.5),
    "non-convex": Loss.nonconvex(smoothness=1.0),
    "hoelder": Loss.holder(constant=1.0, exponent=0.5),
    "unknown": Loss.unknown(),
}
SEARCHED = 5e-3  # how far the answers of two searches may be from their order


def bounded_run(batches, **changes):
    fields = {
        "records": 50,
        "steps": 20_000,
        "step_size": 0.1,
        "noise": 0.4,
        "gradient_norm": 2.0,
        "diameter": 0.5,
        "adjacency": "replace",
        "batches": batches,
    }
    return Training(**{**fields, **changes})


# --- the three cases of the theory's table -------------------------------------------------------


@pytest.mark.parametrize(
    ("batches", "most"), [(WithoutReplacement(5), 9.30), (Reshuffled(5), 9.10)]
)
def test_hoelder_losses_stop_growing(batches, most):
    """Plain composition says 252 (without replacement) and more (reshuffled) for the last run."""
    loss = Loss.holder(constant=1.0, exponent=0.5)
    sizes = {"step_size": 0.1, "noise": 0.3, "diameter": 1.0}
    found = [
        account(bounded_run(batches, steps=steps, **sizes), loss).epsilon(DELTA)
        for steps in (40_000, 400_000)
    ]
    assert found[0] == found[1] < most


@pytest.mark.slow
@pytest.mark.parametrize("batches", [WithoutReplacement(5), Reshuffled(5)])
def test_a_hoelder_exponent_near_one_costs_what_smoothness_does(batches):
    sizes = {"step_size": 0.1, "noise": 0.3, "diameter": 1.0}
    nearly = account(
        bounded_run(batches, steps=40_000, **sizes), Loss.holder(constant=1.0, exponent=0.999)
    )
    smooth = account(bounded_run(batches, steps=40_000, **sizes), Loss.nonconvex(smoothness=1.0))
    assert nearly.epsilon(DELTA) == pytest.approx(smooth.epsilon(DELTA), rel=5e-3)


@pytest.mark.parametrize(
    ("loss", "most"), [(Loss(smoothness=1.0), 5.31), (Loss.nonconvex(smoothness=1.0), 30.0)]
)
def test_poisson_batches_on_a_bounded_domain_stop_growing(loss, most):
    """It grew with the logarithm of the steps: every batch of the run had to be below the cap."""
    sizes = {"records": 60, "step_size": 0.5, "noise": 0.5, "diameter": 0.8}
    found = [
        account(bounded_run(Poisson(0.1), steps=steps, **sizes), loss).epsilon(DELTA)
        for steps in (9000, 30_000, 300_000)
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-9) == pytest.approx(found[2], rel=1e-9)
    assert found[0] < most


# --- the whole matrix -----------------------------------------------------------------------------


ORDERED, SEARCHING = (
    ["full", "cyclic", "shuffled"],
    [
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("reshuffled", "poisson", "without-replacement")
    ],
)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("scheme", [*ORDERED, *SEARCHING])
def test_every_loss_class_converges_and_knowing_more_never_costs_more(scheme, adjacency):
    order, values = ("strongly convex", "convex", "non-convex", "unknown"), {}
    for name, loss in LOSSES.items():
        run = bounded_run(SCHEMES[scheme], adjacency=adjacency, steps=10**6)
        first = account(run, loss).epsilon(DELTA)
        values[name] = account(run.replace(steps=2 * 10**6), loss).epsilon(DELTA)
        assert math.isfinite(first), name
        assert values[name] == pytest.approx(first, rel=1e-6), name
    for less, more in itertools.pairwise(order):
        assert values[less] <= values[more] * (1 + SEARCHED), (less, more)


@pytest.mark.parametrize("scheme", [*ORDERED, *SEARCHING])
def test_smoother_losses_never_cost_more_and_nothing_jumps(scheme):
    """On a domain of diameter below 1, z^p falls in p: every exponent implies the smaller ones."""
    run = bounded_run(SCHEMES[scheme])
    exponents = (0.0, 0.3, 0.6, 0.9, 0.999, 1.0)
    values = [account(run, Loss.holder(constant=1.0, exponent=p)).epsilon(DELTA) for p in exponents]
    for rougher, smoother in itertools.pairwise(values):
        assert smoother <= rougher * (1 + SEARCHED)
    if scheme == "full":  # coupling is for Lipschitz updates alone
        values[-1] = BY_KEY["taut-string"].evaluate(run, LOSSES["non-convex"]).epsilon(DELTA)
    assert values[-2] <= values[-1] * 1.02


@pytest.mark.parametrize("scheme", ["poisson", "without-replacement"])
def test_released_checkpoints_cost_their_segments(scheme):
    """Both segments forget: less than composition, more than without the release."""
    run = bounded_run(SCHEMES[scheme], adjacency="replace")
    loss = Loss.holder(constant=1.0, exponent=0.5)
    one = account(run, loss).epsilon(DELTA)
    two = account(run, loss, releases=(9000,)).epsilon(DELTA)
    public = account(run, Loss.unknown()).epsilon(DELTA)
    assert one < two < public + one
    certificate = certify(run, loss, delta=DELTA, releases=(9000,))
    assert verify(certificate).epsilon >= two * (1 - 1e-9)


@pytest.mark.parametrize("name", ["hoelder", "unknown"])
@pytest.mark.parametrize(
    ("scheme", "adjacency"),
    [
        ("reshuffled", "replace"),
        ("poisson", "replace"),
        ("poisson", "zero-out"),
        ("without-replacement", "zero-out"),
    ],
)
def test_certificates(scheme, adjacency, name):
    run = bounded_run(SCHEMES[scheme], adjacency=adjacency, steps=5003)
    found = verify(certify(run, LOSSES[name], delta=DELTA))
    assert account(run, LOSSES[name]).epsilon(DELTA) <= found.epsilon * (1 + 1e-9)


# --- truth ----------------------------------------------------------------------------------------


def _gradients(rng, kind, constant, norm, records):
    """Random gradients of the class; Hoelder ones are clipped roots, |x - a|^p of either sign."""
    found = []
    for _ in range(records + 1):
        a, sign, base = rng.uniform(-0.2, 1.2), rng.choice([-1.0, 1.0]), rng.uniform(-norm, norm)
        if kind == "unknown":
            jump = rng.choice([norm, base])
            found.append(lambda x, a=a, s=sign, j=jump: s * np.where(x > a, norm, -abs(j)))
        elif kind == "convex":
            found.append(lambda x, a=a, b=base: np.clip(constant * (x - a) + b, -norm, norm))
        elif kind == "nonconvex":
            found.append(lambda x, a=a, s=sign: np.clip(s * constant * (x - a), -norm, norm))
        else:
            power = float(kind)
            found.append(
                lambda x, a=a, s=sign, p=power, b=base: np.clip(
                    b + s * constant * np.abs(x - a) ** p, -norm, norm
                )
            )
    return found


def _random_case(rng):
    """A run, its loss, and two neighbouring worlds of gradients."""
    kind = rng.choice(["0.3", "0.5", "0.8", "unknown", "nonconvex", "convex"])
    constant, norm = rng.uniform(0.2, 2.0), rng.uniform(0.3, 1.5)
    l2 = float(rng.choice([0.0, 0.3]))
    records = int(rng.integers(2, 5))
    size = int(rng.integers(1, records))
    batches = [
        Poisson(float(rng.uniform(0.2, 0.8))),
        WithoutReplacement(size),
        Reshuffled(size),
        Shuffled(size),
        Cyclic(size),
        FullBatch(),
    ][rng.choice(6, p=[0.3, 0.25, 0.25, 0.06, 0.06, 0.08])]
    steps = int(rng.choice([1, 3, 8, 15]))
    adjacency = str(rng.choice(["replace", "zero-out"]))
    losses = {
        "unknown": Loss.unknown(regularization=l2),
        "nonconvex": Loss.nonconvex(smoothness=constant, regularization=l2),
        "convex": Loss(smoothness=constant, regularization=l2),
    }
    loss = losses.get(kind) or Loss.holder(
        constant=constant, exponent=float(kind), regularization=l2
    )
    unlike = rng.random() < 0.3
    eta, nu = rng.uniform(0.05, 1.0), rng.uniform(0.15, 0.8)
    run = Training(
        records=records,
        steps=steps,
        step_size=(eta * rng.uniform(0.3, 1.0, steps)) if unlike else eta,
        noise=(nu * rng.uniform(0.5, 1.5, steps)) if unlike else nu,
        gradient_norm=norm,
        diameter=float(rng.uniform(0.1, 1.2)),
        batches=batches,
        adjacency=adjacency,
        clipping="gradient" if kind == "convex" else "none",
    )
    gradients = _gradients(rng, kind, constant, norm, records)
    one = gradients[:-1]
    other = [gradients[-1] if adjacency == "replace" else None, *one[1:]]
    if rng.random() < 0.5:  # adversarial: the record pushes as hard as it may, the others back
        one[0] = lambda x: np.full_like(x, -norm)
        other[0] = (lambda x: np.full_like(x, norm)) if adjacency == "replace" else None
    return run, loss, l2, (one, other)


def _check_truth(seed, cases):
    rng = np.random.default_rng(seed)
    met = 0
    for _ in range(cases):
        run, loss, l2, worlds = _random_case(rng)
        guarantee = account(run, loss)
        epsilons = (0.0, 0.4, 1.5, 4.0)
        truth = truth_from_below(run, l2, worlds, rng.uniform(0, run.diameter), epsilons)
        for epsilon, least in zip(epsilons, truth.tolist(), strict=True):
            assert guarantee.delta(epsilon) >= least - 1e-12, (run, loss, epsilon)
        for theorem in ("poisson-deferral", "poisson-replace-absorption", "chien-li-2025-3.12"):
            _check_theorem(theorem, run, loss, epsilons, truth)
        met += truth[1] > 1e-3
    assert met > cases / 5


def _check_theorem(key, run, loss, epsilons, truth):
    """The theorem alone, where another one has the smaller number."""
    try:
        bound = BY_KEY[key].evaluate(run, loss)
    except ValueError:
        return
    proof = bound.at(1e-2)
    for epsilon, least in zip(epsilons, truth.tolist(), strict=True):
        assert proof.curve.delta(epsilon) >= least - 1e-12, (key, run, loss, epsilon)


def test_never_below_exact_laws():
    _check_truth(5, 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10, 20))
def test_never_below_exact_laws_many(seed):
    _check_truth(seed, 60)


# --- the search -----------------------------------------------------------------------------------


def test_the_inverse_of_a_modulus():
    rng = np.random.default_rng(3)
    for _ in range(200):
        c, h, p = rng.uniform(0, 2), rng.uniform(0, 1) * rng.integers(2), rng.uniform(0.05, 1)
        shape = Modulus(c + 1e-3, h, p, rng.uniform(0, 1.2), rng.uniform(0.05, 2))
        z = np.concatenate([[0.0], np.geomspace(1e-6, 10, 50)])
        back = inverse_modulus(shape.rows(1), shape(z))
        np.testing.assert_allclose(shape(back), shape(z), rtol=1e-6, atol=1e-12)


def test_payments_are_no_dearer_than_any_straight_path():
    """Against paths to 0 along a power of the time that is left, from the same distance."""
    rng = np.random.default_rng(4)
    shifts = np.concatenate([[0.0], np.geomspace(1e-4, 40, 200)])
    for _ in range(20):
        steps = int(rng.integers(2, 40))
        shape = Modulus(1.0, rng.uniform(0.0, 0.3), rng.uniform(0.2, 1.0), 1.0, rng.uniform(0.2, 1))
        run = Steps(math.inf, 1.0, rng.uniform(0.2, 1.0), steps).under(shape)
        own = rng.uniform(0.0, 0.05)
        prices = Prices(np.full(steps, own), shifts, shifts**2)
        pays = cheapest_payments(run, np.full(steps, 1.0), prices)
        assert pays is not None
        nu = float(run.nu[0])
        found = len(pays) * own + float(((pays / nu) ** 2).sum())
        for tail in range(1, steps + 1):
            for power in (0.5, 1.0, 1.5, 2.0):
                z = (1 - np.arange(tail + 1) / tail) ** power
                cost = np.maximum(shape(z[:-1]) - z[1:], 0) / nu
                assert found <= (tail * own + float((cost**2).sum())) * 1.02


def test_payments_that_leave_something_protect_nothing():
    run = Steps(math.inf, 1.0, 1.0, 30).under(Modulus(1.0, 0.1, 0.5))
    found = restarted(replaced_pair(0.1), run, 1e-5, diameter=0.5)
    assert found.pays is not None
    last = run[30 - found.tail :]
    assert absorbed(replaced_pair(0.1), last, 0.5, found.pays).delta(5.0) < 1
    assert absorbed(replaced_pair(0.1), last, 0.5, 0.99 * found.pays).delta(5.0) == 1.0
    assert absorbed(replaced_pair(0.1), last, 0.55, found.pays).delta(5.0) == 1.0
