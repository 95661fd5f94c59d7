"""Ledgers against exact laws: what they say, what is released with them, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import os
import pickle
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from scipy.special import ndtr

from lastiterate import (
    L1,
    AssumptionError,
    Certificate,
    CertificateError,
    Cyclic,
    DescriptionError,
    FullBatch,
    Poisson,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    WithoutReplacement,
    compose,
    verify,
)
from lastiterate.losses import Huber, Logistic, Softmax, SquaredError
from lastiterate.noise import SecureSource
from lastiterate.noise.source import repeated, unpredictable
from lastiterate.noise.stream import KeyedStream
from lastiterate.train import EncryptedCheckpoint, MemoryCheckpoint, noisy_descent, unlearn
from lastiterate.train.forgetting import _Remaining, perturbation_grid
from lastiterate.train.settings import Settings
from lastiterate.unlearning import Ledger
from lastiterate.unlearning.distances import Distances

KEY = EncryptedCheckpoint.new_key()
SCHEMA = Path(__file__).parents[2] / "docs" / "certificate.schema.json"
X = np.random.default_rng(0).standard_normal((20, 3))
X /= np.linalg.norm(X, axis=1, keepdims=True) * np.linspace(1, 4, 20)[:, None]
Y = np.where(X[:, 0] > 0, 1.0, -1.0)
RUN = Training(
    records=20,
    steps=40,
    step_size=0.5,
    noise=0.1,
    gradient_norm=1.0,
    adjacency="zero-out",
    batches=Shuffled(5),
)


def trained(ledger, training=RUN, data=X, **settings):
    return noisy_descent(Logistic(), data, training, labels=Y, ledger=ledger, **settings)


def forgotten(ledger, deleted, training=RUN, data=X, **settings):
    return unlearn(Logistic(), data, training, ledger, deleted, labels=Y, **settings)


# ------------------------------------------------------------------ the law of what is released


def stick(p, q, epsilon, step):
    """The larger hockey stick of two densities, both orders."""
    gaps = (np.maximum(a - math.exp(epsilon) * b, 0).sum() * step for a, b in ((p, q), (q, p)))
    return max(gaps)


def random_map(rng):
    """A map and its Lipschitz constant: linear, curved, or clipped; contracting or expanding."""
    slope, turn = float(rng.uniform(-0.5, 1.3)), float(rng.uniform(0, 0.6))
    shift = float(rng.normal())
    kinds = (
        (lambda x: slope * x + shift, abs(slope)),
        (lambda x: slope * x + turn * np.tanh(x - shift), max(abs(slope), abs(slope + turn))),
        (lambda x: np.clip(slope * x, -1, 1), abs(slope)),
    )
    return kinds[int(rng.integers(3))]


def random_gradient(rng):
    """What the deleted records add at x: bounded, without any bound, or with a jump."""
    a, at = float(rng.normal()), float(rng.normal())
    kinds = (
        lambda x: a * np.tanh(x - at),
        lambda x: a * x * np.abs(x),
        lambda x: a * (x > at),
        lambda x: a * (x > at) * np.exp(np.minimum(x, 5)),
    )
    return kinds[int(rng.integers(4))]


def one_instance(rng):
    """The bound over the exact hockey stick of a run of 1 to 4 steps, and how it was served.

    The noise of the run takes finitely many values: it may be anything, and so is summed exactly.
    """
    steps, atoms = int(rng.integers(1, 5)), int(rng.choice([1, 9, 41]))
    weights = rng.dirichlet(np.ones(atoms))
    maps, shares = [], rng.uniform(0.1, 1.0, steps)
    for _ in range(steps):
        maps.append((*random_map(rng), random_gradient(rng)))
    kept = Distances(np.array([c for _, c, _ in maps]), shares, np.zeros(steps), np.ones(atoms))
    with_them = without = np.zeros(atoms)
    for (move, _, gradient), share in zip(maps, shares, strict=True):
        drawn = rng.normal(0, rng.uniform(0, 2), atoms)
        kept.begin()
        kept.note(slice(0, atoms), np.abs(gradient(with_them)))
        with_them = move(with_them) - share * gradient(with_them) + drawn
        without = move(without) + drawn
    zeta = kept.to_arrays()["distances"]
    assert (np.abs(with_them - without) <= zeta + 1e-12 * (1 + np.abs(with_them))).all()
    budget = (
        float(rng.choice(zeta)) if rng.random() < 0.8 else float(zeta.max() * rng.uniform(0, 2))
    )
    noise = float(rng.uniform(0.2, 2)) * max(budget, 1e-3)
    ledger = Ledger(budget, noise)
    served = np.where(zeta <= ledger.budget, with_them, without)
    low, high = min(served.min(), without.min()), max(served.max(), without.max())
    grid = np.linspace(low - 9 * noise, high + 9 * noise, 4001)
    step = grid[1] - grid[0]
    if step > noise / 4:  # too coarse to integrate: the two laws hardly meet
        return None
    # Probabilities of cells: what tells them apart tells the laws apart, so this is never too much.
    p, q = (
        np.diff((weights * ndtr((grid[:, None] - at) / noise)).sum(axis=1))
        for at in (served, without)
    )
    epsilon = float(rng.choice([0.0, rng.uniform(0, 2)]))
    truth, claimed = stick(p, q, epsilon, 1.0), ledger.curve.delta(epsilon)
    assert truth <= claimed + 2e-12
    return claimed / truth if truth > 1e-9 else math.inf, bool((zeta > budget).any())


def test_what_is_released_has_the_claimed_law():
    rng = np.random.default_rng(11)
    found = [each for _ in range(600) if (each := one_instance(rng)) is not None]
    assert len(found) >= 400
    ratios = np.array([ratio for ratio, _ in found])
    assert sum(replayed for _, replayed in found) > 100  # some of their runs were replayed
    assert 1 - 1e-9 <= ratios.min() < 1.001  # and the bound is attained


def test_a_replay_with_fresh_noise_is_unsound():
    """X_1 = Z_1, a gradient only where X_1 > 0, b = 1e-6, noise 0.3: the runs that stay are biased.

    Kept are runs with X_1 <= 0; the others are drawn anew: density 2 on the left half against 1.
    """
    ledger = Ledger(budget=1e-6, noise=0.3)
    claimed = ledger.curve.delta(0.0)
    assert 1.3e-6 < claimed < 1.4e-6
    x = np.linspace(-9, 9, 200_001)
    step, wide = x[1] - x[0], math.hypot(1, 0.3)
    reference = np.exp(-((x / wide) ** 2) / 2) / (wide * math.sqrt(2 * math.pi))
    # N(0, 1) cut to the left of 0, with the perturbation: twice the reference times Phi.
    left = 2 * reference * ndtr(-x / (0.3 * wide))
    fresh = 0.5 * left + 0.5 * reference
    truth = math.atan(1 / 0.3) / (2 * math.pi)  # half of P(sign X_1 = sign of the sum) - 1/2
    assert 0.2036 < truth < 0.2037
    assert abs(stick(fresh, reference, 0.0, step) - truth) < 1e-6
    # With the same noise a run that is replayed ends where the reference ends.
    same = 0.5 * left + 0.5 * (2 * reference - left)
    assert stick(same, reference, 0.0, step) <= claimed


# ------------------------------------------------------- what the ledger says of computed runs

OBJECTIVES = (
    (Logistic(), "none", lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (Logistic(), "gradient", lambda rng, n: rng.choice([-1.0, 1.0], n)),
    (Huber(2.0), "none", lambda rng, n: rng.normal(size=n)),
    (SquaredError(2.0), "margin", lambda rng, n: rng.normal(size=n)),
    (Softmax(3), "none", lambda rng, n: rng.integers(0, 3, n)),
)
SCHEMES = (FullBatch(), Cyclic(2), Shuffled(3), Reshuffled(2), WithoutReplacement(3))


@pytest.mark.parametrize(("objective", "clipping", "labels"), OBJECTIVES)
def test_two_computed_runs_are_never_farther_apart_than_the_ledger_says(
    objective, clipping, labels
):
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(80):
        n, steps = 6, int(rng.integers(1, 20))
        run = Training(
            records=n,
            steps=steps,
            step_size=rng.uniform(0.1, 3.0, steps),
            noise=rng.uniform(1e-6, 0.5, steps),
            gradient_norm=objective.gradient_norm(1.0) * (0.3 if clipping == "gradient" else 1),
            clipping=clipping,
            batches=SCHEMES[int(rng.integers(len(SCHEMES)))],
            diameter=float(rng.choice([math.inf, 1.0])),
            proximal=None if rng.random() < 0.7 else L1(0.05),
        )
        rows = rng.normal(size=(n, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) * rng.uniform(1, 3, (n, 1))
        gone = rng.choice(n, int(rng.integers(1, 3)), replace=False)
        without = rows.copy()
        without[gone] = 0.0
        told = dict(
            labels=labels(rng, n),
            regularization=float(rng.choice([0.0, 0.1])),
            random_state=int(rng.integers(1000)),
            feature_bound=1.0,
        )
        ledger = Ledger(budget=1.0, noise=1.0)
        one = noisy_descent(objective, rows, run, ledger=ledger, **told)
        other = noisy_descent(objective, without, run, **told)
        says = ledger.book().distances.of(gone)
        apart = float(np.linalg.norm(one.parameters - other.parameters))
        assert apart <= says
        ratios.append(apart / says)
        plain = noisy_descent(objective, rows, run, **told)
        assert np.array_equal(plain.parameters, one.parameters)  # a ledger only looks on
    assert max(ratios) > 0.9


def test_along_the_path_it_is_nearer_and_never_too_near():
    """The last iterates, as many as fit, against the two runs and against norms alone."""
    rng = np.random.default_rng(9)
    tight, nearer = [], []
    for case in range(60):
        steps, n = int(rng.integers(1, 25)), 20
        run = RUN.replace(steps=steps, batches=SCHEMES[case % len(SCHEMES)], noise=0.01)
        gone = rng.choice(n, int(rng.integers(1, 6)), replace=False)
        without = X.copy()
        without[gone] = 0.0
        told = dict(labels=Y, regularization=0.1, random_state=case)
        path = int(rng.choice([0, 24 * 4 + 5, 24 * 30]))
        ledger, norms = Ledger(1.0, 1.0, path=path), Ledger(1.0, 1.0)
        one = noisy_descent(Logistic(), X, run, ledger=ledger, **told)
        noisy_descent(Logistic(), X, run, ledger=norms, **told)
        other = noisy_descent(Logistic(), without, run, **told)
        book = ledger.book()
        assert len(book.path) == min(steps, path // 24)
        kept = Settings(labels=Y, regularization=0.1, noise=repeated(book.memory))
        was = _Remaining(Logistic(), X, run, kept, np.zeros(0, np.int64))
        assert was.run.keeping.run == book.run
        says = was.driven(book, np.sort(gone)).of([0])
        alone = norms.book().distances.of(gone)
        apart = np.linalg.norm(one.parameters - other.parameters)
        assert apart <= says <= alone * (1 + 1e-9)
        tight.append(apart / says)
        nearer.append(says / alone)
    assert max(tight) > 0.9
    assert min(nearer) < 0.75


def test_a_path_decides_and_is_erased(tmp_path):
    """Between what norms say and what the path says, only the path saves a replay."""
    gone, seed, found = [3, 5, 8, 11, 17], 4, {}
    ledger = Ledger(1.0, 1.0, path=10**6)
    norms = Ledger(1.0, 1.0)
    for each in (ledger, norms):
        trained(each, random_state=seed)
    kept = Settings(labels=Y, noise=repeated(ledger.book().memory))
    was = _Remaining(Logistic(), X, RUN, kept, np.zeros(0, np.int64))
    near = was.driven(ledger.book(), np.array(gone)).of([0])
    budget = (near + norms.book().distances.of(gone)) / 2
    for path in (0, 10**6):
        kept = dict(requests=2, path=path, folder=tmp_path / str(path), key=KEY)
        ledger = Ledger(budget, 1e-9, **kept)
        base = trained(ledger, random_state=seed).parameters
        size = os.path.getsize(tmp_path / str(path) / "ledger")
        done = forgotten(Ledger.load(tmp_path / str(path), KEY), gone, wait=0.0)
        found[path] = np.abs(done.parameters - base).max() < 1e-6, size
        later = Ledger.load(tmp_path / str(path), KEY)
        assert forgotten(later, [1], wait=0.0).models == 2
        assert later.known().path.size == 0
    assert [served for served, _ in found.values()] == [False, True]
    assert found[10**6][1] - found[0][1] == pytest.approx(40 * 3 * 8, abs=300)
    for path in (-1, 2**31, 0.5):
        with pytest.raises(DescriptionError, match="path"):
            Ledger(1.0, 1.0, path=path)


def test_a_distance_is_never_below_its_exact_recursion():

    rng = np.random.default_rng(2)
    for scale in (1.0, 1e-30, 0.0, 1e30):
        steps, n = 120, 4
        c = rng.uniform(0, 1.2, steps) * scale
        shares, lost = rng.uniform(0, 1, steps), rng.uniform(0, 1e-9, steps)
        units = rng.uniform(0, 3, n)
        kept = Distances(c, shares, lost, units)
        exact, common = [Fraction(0)] * n, Fraction(0)
        for k in range(steps):
            rows, norms = rng.permutation(n)[:2], rng.uniform(0, 1, 2) ** 40
            kept.begin()
            kept.note(rows, norms.copy())
            exact = [each * Fraction(c[k]) for each in exact]
            common = common * Fraction(c[k]) + Fraction(lost[k])
            for i, norm in zip(rows, norms, strict=True):
                exact[i] += Fraction(shares[k]) * Fraction(norm) * Fraction(units[i])
        for some in ([0], [1, 3], range(4)):
            found, truth = kept.of(some), sum(exact[i] for i in some) + common
            assert math.isinf(found) or Fraction(found) >= truth
            if scale <= 1:
                assert found <= float(truth) * (1 + 1e-9) + 1e-300
            else:
                assert math.isinf(found)  # too far for a double: it will be replayed


# ------------------------------------------------------------------------- forgetting for real


@pytest.mark.parametrize("data", [X, X.astype(np.float32), sp.csr_array(X)])
def test_either_way_the_right_run_is_perturbed(data):
    gone = [3, 11, 19]
    without = X.astype(data.dtype).copy()
    without[gone] = 0.0
    for budget, served in ((1e6, data), (0.0, without)):
        ledger = Ledger(budget, noise=1e-3)
        model = trained(ledger, data=data)
        assert not model.experiment
        memory = ledger.book().memory
        known = noisy_descent(Logistic(), served, RUN, labels=Y, noise=repeated(memory)).parameters
        done = forgotten(ledger, gone, data=data)
        assert not done.experiment
        grid = model.training.arithmetic.grid
        assert np.array_equal(done.parameters / grid, np.rint(done.parameters / grid))
        moved = np.abs(done.parameters - known).max()
        assert 1e-6 < moved < 7e-3
        assert done.mu == budget / 1e-3
        assert (served is data) == (np.abs(model.parameters - known).max() == 0)


def test_the_perturbation_has_its_size_and_is_fresh():
    wide = np.zeros((2, 4000))
    run = Training(
        records=2, steps=1, step_size=1.0, noise=1e-6, gradient_norm=1.0, batches=FullBatch()
    )
    drawn = []
    for _ in range(2):
        ledger = Ledger(1.0, 2.0)
        noisy_descent(Logistic(), wide, run, labels=[1, -1], ledger=ledger, random_state=1)
        done = unlearn(Logistic(), wide, run, ledger, [0], labels=[1, -1])
        drawn.append(done.parameters)
        assert done.experiment  # seeded
        assert "EXPERIMENT" in str(done)
    assert abs(np.std(drawn) - 2.0) < 0.1
    assert abs(np.mean(drawn[0] * drawn[1])) < 0.3


def test_noise_too_large_for_the_grid_of_the_run_has_a_grid_of_its_own():
    ledger = Ledger(1.0, noise=1e9)
    own = trained(ledger).training.arithmetic.grid
    coarse, farther = perturbation_grid(1e9, own, 3)
    assert own < coarse == 2.0**-12  # 1e9/2^42, rounded up to a power of two
    assert farther >= math.sqrt(3) * coarse
    done = forgotten(ledger, [19]).parameters
    assert np.array_equal(done / coarse, np.rint(done / coarse))
    assert 1e7 < np.abs(done).max() < 1e10
    rng = np.random.default_rng(3)
    points = rng.normal(size=(2, 500, 3))
    rounded = np.rint(points / coarse) * coarse
    before, after = (np.linalg.norm(a - b, axis=1) for a, b in (points, rounded))
    assert (after <= before + farther).all()
    # No budget is left for the rounding: the record is trained away.
    tight = Ledger(0.0, noise=1e9)
    trained(tight)
    assert forgotten(tight, [19]).mu == 0.0


def test_a_ledger_serves_once():
    ledger = Ledger(1.0, 1.0)
    with pytest.raises(AssumptionError, match="no run to forget from"):
        forgotten(ledger, [1])
    trained(ledger)
    with pytest.raises(AssumptionError, match="for one run"):
        trained(ledger)
    forgotten(ledger, [1])
    with pytest.raises(AssumptionError, match="from the noise of the others"):
        forgotten(ledger, [2])
    for name in ("budget", "noise", "mu", "requests", "served"):
        with pytest.raises(AttributeError):
            setattr(ledger, name, 5.0)


def test_of_many_requests_at_once_one_is_served():
    ledger = Ledger(1.0, 1.0)
    trained(ledger)

    def served(i):
        try:
            return forgotten(ledger, [i]).deleted
        except AssumptionError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(served, range(16))) == 1


def test_another_run_is_refused_and_uses_nothing_up():
    ledger = Ledger(1.0, 1.0)
    trained(ledger)
    other = X.copy()
    other[4] *= 0.5
    for settings in ({"data": other}, {"training": RUN.replace(steps=41)}, {"regularization": 0.1}):
        with pytest.raises(AssumptionError, match="another run"):
            forgotten(ledger, [1], **settings)
    for deleted in ([], [20], [-1], [1, 1], [0.5], [[1]], [True], "1"):
        with pytest.raises(DescriptionError, match="deleted"):
            forgotten(ledger, deleted)
    with pytest.raises(DescriptionError, match="objective"):
        unlearn(lambda *_: 0, X, RUN, ledger, [1])
    assert forgotten(ledger, [1]).deleted == 1


def test_what_no_ledger_can_follow_is_refused():
    for change, why in (
        (dict(noise=0.0), "without noise"),
        (dict(release=TailAverage(3)), "average"),
        (dict(momentum=0.5), "velocity"),
        (dict(batches=Poisson(0.2)), "random size"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            trained(Ledger(1.0, 1.0), RUN.replace(**change))
    with pytest.raises(UnsupportedError, match="smooth"):
        trained(Ledger(1.0, 1.0), RUN.replace(clipping="gradient"), data=100 * X)
    with pytest.raises(UnsupportedError, match="norm of every gradient"):
        trained(Ledger(1.0, 1.0), data=torch.from_numpy(X))
    for settings in (dict(noise=SecureSource()), dict(checkpoint=MemoryCheckpoint())):
        with pytest.raises(DescriptionError, match="absent with a ledger"):
            trained(Ledger(1.0, 1.0), **settings)
    with pytest.raises(DescriptionError, match="Ledger"):
        trained({"budget": 1.0})
    for budget, noise in ((-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0), (1.0, 1e99), (True, 1.0)):
        with pytest.raises(DescriptionError):
            Ledger(budget, noise)


# ----------------------------------------------------------------------------------- on a disk


def test_a_folder_is_read_with_its_key_and_loses_its_secrets_with_the_last_request(tmp_path):
    folder = tmp_path / "state"
    ledger = Ledger(0.5, 1.0, folder=folder, key=KEY)
    trained(ledger)
    path, before = folder / "ledger", ledger.book()
    assert os.stat(path).st_mode & 0o077 == 0
    assert os.stat(folder).st_mode & 0o077 == 0
    text = path.read_bytes()
    assert bytes.fromhex(before.memory["key"]) not in text
    assert before.parameters.tobytes() not in text
    for wrong, bytes_ in ((os.urandom(32), text), (KEY, text[:-1]), (KEY, b""), (KEY, b"x" * 99)):
        path.write_bytes(bytes_)
        with pytest.raises(AssumptionError, match="no ledger of this key"):
            Ledger.load(folder, wrong)
    path.write_bytes(text)  # the file itself, not a copy of it
    one, two = Ledger.load(folder, KEY), Ledger.load(folder, KEY)
    for some in ([0], [3, 4], range(20)):
        found = one.book().distances.of(some)
        assert before.distances.of(some) <= found < before.distances.of(some) * (1 + 1e-9)
    assert (one.budget, one.noise, one.mu) == (0.5, 1.0, 0.5)
    done = forgotten(one, [5])
    assert not done.experiment
    assert len(done.remains) == 1  # row numbers and the model that was released
    for late in (two, ledger):
        with pytest.raises(AssumptionError, match="meanwhile"):
            forgotten(late, [6])
    for spent in (one, Ledger.load(folder, KEY)):
        with pytest.raises(AssumptionError, match="no run to forget from"):
            forgotten(spent, [6])
        assert spent.known().parameters is None
        assert spent.known().memory == {}
        again = forgotten(spent, [5])  # whoever asks again gets what was released
        assert np.array_equal(again.parameters, done.parameters)
        assert again.mu == done.mu
    assert os.listdir(folder) == ["ledger"]
    one.erase()
    assert os.listdir(folder) == []


def test_copies_of_a_folder_are_refused(tmp_path):
    """Two ledgers of one run would release two models under noise that was made for one."""
    folder = tmp_path / "state"
    trained(Ledger(0.5, 1.0, folder=folder, key=KEY))
    shutil.copytree(folder, tmp_path / "copy")
    with pytest.raises(AssumptionError, match="copy"):
        Ledger.load(tmp_path / "copy", KEY)
    old = (folder / "ledger").read_bytes()
    Ledger.load(folder, KEY)
    forgotten(Ledger.load(folder, KEY), [5])
    (folder / "ledger").write_bytes(old)  # a backup of it comes back
    with pytest.raises(AssumptionError, match="copy"):
        Ledger.load(folder, KEY)
    folder.rename(tmp_path / "elsewhere")
    trained(Ledger(0.5, 1.0, folder=folder, key=KEY))
    folder.rename(tmp_path / "moved")
    with pytest.raises(AssumptionError, match="moved"):
        Ledger.load(tmp_path / "moved", KEY)
    (tmp_path / "moved").rename(folder)
    link = tmp_path / "link"
    os.link(folder / "ledger", link)  # a second name of the same file
    with pytest.raises(AssumptionError, match="copy"):
        Ledger.load(folder, KEY)
    link.unlink()
    two = Ledger.load(folder, KEY), Ledger.load(folder, KEY)
    assert forgotten(two[0], [5]).deleted == 1
    with pytest.raises(AssumptionError, match="meanwhile"):
        forgotten(two[1], [6])


def test_the_size_of_the_file_does_not_tell_which_way_it_was(tmp_path):
    sizes = set()
    for budget in (0.0, 1e6):
        folder = tmp_path / str(budget)
        ledger = Ledger(1.0, 1.0, requests=3, path=100, folder=folder, key=KEY)
        trained(ledger, random_state=1)
        ledger._budget = budget  # the numbers of digits are the same
        forgotten(ledger, [4], wait=0.0)
        ledger._budget = 1.0
        book = ledger.book()
        ledger._book = dataclasses.replace(book, seconds=1.0)
        ledger._write()
        sizes.add(os.path.getsize(folder / "ledger"))
    assert len(sizes) == 1


def test_folders_that_are_none(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for folder in ("full", "file", "no/where"):
        with pytest.raises(DescriptionError, match="folder"):
            Ledger(0.5, 1.0, folder=tmp_path / folder, key=KEY)
    for only in (dict(folder=tmp_path / "new"), dict(key=KEY)):
        with pytest.raises(DescriptionError, match="elsewhere"):
            Ledger(0.5, 1.0, **only)
    for key in (b"short", "x" * 32, None):
        with pytest.raises(DescriptionError, match="key"):
            Ledger.load(tmp_path, key)
    with pytest.raises(AssumptionError, match="There is no ledger"):
        Ledger.load(tmp_path, KEY)
    assert not (tmp_path / "new").exists()


def killed_at_random(tmp_path, wanted):
    """Requests that are killed, so many of them; how many models came out."""
    rng = np.random.default_rng(6)
    killed = released = 0
    longest = 0.05
    for number in range(20 * wanted):
        if killed == wanted:
            break
        folder, out = tmp_path / f"ledger{number}", tmp_path / f"out{number}.npy"
        ledger = Ledger(0.0, 1.0, requests=3, folder=folder, key=KEY)
        trained(ledger, random_state=number)  # the longer way: every request is replayed
        began = time.monotonic()
        child = os.fork()
        if not child:
            np.save(out, forgotten(Ledger.load(folder, KEY), [1], wait=0.0).parameters)
            os._exit(0)
        if number:
            time.sleep(rng.uniform(0, longest))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        if not number:  # nobody kills the first: how long it takes
            longest = 1.2 * (time.monotonic() - began)
        killed += os.WIFSIGNALED(status)
        longest *= 1.0 if os.WIFSIGNALED(status) or not number else 0.9
        released += out.exists()
        found = Ledger.load(folder, KEY)  # whole, old or new
        assert found.served == len(found.gone) <= 1
        served = found.served
        assert served or not out.exists()
        again = forgotten(found, [1], wait=0.0)
        assert again.models == found.served == 1  # the request counts once, whatever happened
        if out.exists() and os.path.getsize(out) > 128:
            assert np.array_equal(again.parameters, np.load(out))
        elif served:
            assert np.array_equal(again.parameters, found.released)
        assert forgotten(Ledger.load(folder, KEY), [2], wait=0.0).models == 2
        assert os.listdir(folder) == ["ledger"]
    assert killed == wanted
    return released


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_killed_anywhere_it_is_the_old_state_or_the_new_one(tmp_path):
    assert killed_at_random(tmp_path, 4) > 0


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
def test_killed_at_very_many_points(tmp_path):
    assert killed_at_random(tmp_path, 30) > 0


# ----------------------------------------------------------------- one request after another


def test_many_requests_are_never_farther_than_the_budget_and_end_when_told():
    """What is perturbed is near the run without all of them, by that run itself."""
    rng = np.random.default_rng(8)
    replays = 0
    for case in range(12):
        budget = float(rng.choice([0.0, 0.05, 0.2, 5.0]))
        requests = int(rng.integers(2, 9))
        ledger = Ledger(budget, noise=1e-7, requests=requests)
        trained(ledger, random_state=case)
        memory, data, gone = ledger.book().memory, X.copy(), []
        for r in range(requests):
            asked = rng.choice(np.setdiff1d(np.arange(20), gone), int(rng.integers(1, 3)), False)
            base = ledger.book().parameters
            done = forgotten(ledger, asked, data=data, wait=0.0)
            gone += asked.tolist()
            without = X.copy()
            without[gone] = 0.0
            truth = noisy_descent(Logistic(), without, RUN, labels=Y, noise=repeated(memory))
            apart = np.linalg.norm(done.parameters - truth.parameters)
            assert apart <= budget + 1e-5  # the perturbation itself is tiny here
            replays += np.abs(done.parameters - base).max() > 1e-5
            data[asked] = rng.normal(size=(len(asked), 3)) * 0.1  # erased, and other things there
            assert (done.models, done.deleted) == (r + 1, len(gone))
            assert done.mu >= math.sqrt(r + 1) * budget / 1e-7 * (1 - 1e-15)
        with pytest.raises(AssumptionError, match="no run to forget from"):
            forgotten(ledger, np.setdiff1d(np.arange(20), gone)[:1], data=data, wait=0.0)
    assert replays > 5


@pytest.mark.slow
def test_a_thousand_requests_one_after_the_other():
    """Never farther than the budget from the run without all of them, and never one too many."""
    rng, n = np.random.default_rng(3), 1100
    data = rng.normal(size=(n, 3))
    data /= np.linalg.norm(data, axis=1, keepdims=True) * rng.uniform(1, 3, (n, 1))
    labels = np.where(data[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    run = RUN.replace(records=n, batches=Shuffled(100), step_size=1.0, noise=0.01)
    told = dict(labels=labels, regularization=0.05)
    ledger = Ledger(0.05, 1e-7, requests=1000, path=500)
    noisy_descent(Logistic(), data, run, ledger=ledger, **told)
    memory, now, order, replays = ledger.book().memory, data.copy(), rng.permutation(n), 0
    for r in range(1000):
        base = ledger.book().parameters
        done = unlearn(Logistic(), now, run, ledger, order[r : r + 1], wait=0.0, **told)
        assert done.models == done.deleted == r + 1
        assert done.mu >= math.sqrt(r + 1) * 0.05 / 1e-7 * (1 - 1e-15)
        now[order[r]] = 0.0
        replays += np.abs(done.parameters - base).max() > 1e-5
        if r % 40 == 0 or r > 990:
            truth = noisy_descent(Logistic(), now, run, noise=repeated(memory), **told)
            assert np.linalg.norm(done.parameters - truth.parameters) <= 0.05 + 1e-5
    assert 2 < replays < 500
    with pytest.raises(AssumptionError, match="no run to forget from"):
        unlearn(Logistic(), now, run, ledger, order[1000:1001], wait=0.0, **told)


def test_later_requests_know_who_is_gone():
    ledger = Ledger(10.0, 1.0, requests=9)
    trained(ledger)
    forgotten(ledger, [3, 4])
    with pytest.raises(DescriptionError, match="not forgotten yet"):
        forgotten(ledger, [4, 5])
    with pytest.raises(DescriptionError, match="fewer records"):
        forgotten(ledger, np.setdiff1d(np.arange(20), [3, 4]))
    other = X.copy()
    other[5] *= 0.5  # a record that stays has changed
    with pytest.raises(AssumptionError, match="another run"):
        forgotten(ledger, [6], data=other)
    labels = Y.copy()
    labels[[3, 4]] *= -1  # those of the forgotten may
    done = unlearn(Logistic(), X, RUN, ledger, [6], labels=labels)
    assert (done.models, done.deleted) == (2, 3)
    assert ledger.gone.tolist() == [3, 4, 6]
    assert ledger.book().distances.of([3, 4, 6]) <= ledger.book().distances.of([])  # erased


@pytest.mark.parametrize("push", [0.25, 0.4, 0.5])
def test_models_that_are_seen_together_have_the_claimed_law(push):
    """Two requests, the second made because of the first model, against the exact law of the pair.

    One update in one dimension; each of two records pushes only where the noise of the run is
    positive. Beyond the budget the run is repeated with its noise.
    """
    nu, b = 1.0, 0.5
    z = np.linspace(-8, 8, 801)
    weights = np.exp(-(z**2) / 2)
    weights /= weights.sum()
    pushed = np.where(z > 0, push, 0.0)
    grid = np.linspace(-9, 10, 300)
    step = grid[1] - grid[0]
    asked = grid > 0.5  # only then somebody asks for the second deletion

    def models(first, second):
        """The law of the first model where nothing follows, and of both where it does."""
        one, two = (
            np.exp(-((grid - mean[:, None]) ** 2) / (2 * nu**2)) / math.sqrt(2 * math.pi) / nu
            for mean in (first, second)
        )
        return weights @ one[:, ~asked] * step, (one[:, asked].T * weights) @ two * step**2

    run = z + 2 * pushed
    real = models(
        np.where(pushed <= b, run, z + pushed),
        np.where(2 * pushed <= b, run, z),
    )
    never, mu, ratios = models(z + pushed, z), math.sqrt(2) * b / nu, []
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        claimed = ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu)
        for p, q in ((real, never), (never, real)):
            lost = sum(np.maximum(p[i] - math.exp(epsilon) * q[i], 0).sum() for i in (0, 1))
            assert lost <= claimed
            ratios.append(lost / claimed)
    assert max(ratios) > 0.2  # a claim of one model alone would not do for push = 0.25


def test_the_time_does_not_tell_which_way_it_was():
    for budget in (0.0, 1e6):
        ledger = Ledger(budget, noise=1e6)
        trained(ledger)
        began = time.monotonic()
        forgotten(ledger, [1], wait=0.4)
        assert time.monotonic() - began >= 0.4
        ledger = Ledger(budget, noise=1e6)
        trained(ledger)
        own, began = ledger.book().seconds, time.monotonic()
        forgotten(ledger, [1])  # by default twice as long as the run took, or a multiple of that
        assert time.monotonic() - began >= 2 * own > 0
    with pytest.raises(DescriptionError, match="wait"):
        forgotten(ledger, [1], wait=-1.0)


def test_no_copies():
    ledger = Ledger(0.5, 1.0)
    trained(ledger)
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(AssumptionError, match="not copied"):
            copied(ledger)
    if hasattr(os, "fork"):
        child = os.fork()
        if not child:
            try:
                forgotten(ledger, [1])
            except AssumptionError:
                os._exit(7)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_only_the_first_life_of_a_keyed_stream_is_unpredictable():
    first = SecureSource(KeyedStream())
    assert unpredictable(first)
    again = SecureSource(KeyedStream(first._stream.key))
    assert not unpredictable(again)
    assert np.array_equal(first.rounded_normal(9.0, 999), again.rounded_normal(9.0, 999))
    assert not np.array_equal(copy.deepcopy(first).normal(9), first.normal(9))
    replay = noisy_descent(Logistic(), X, RUN, labels=Y, noise=again)
    assert replay.experiment


# -------------------------------------------------------------------------------- certificates


def resealed(certificate, **changes):
    content = {k: v for k, v in certificate.content.items() if k != "sha256"} | changes
    return Certificate.sealed(content)


def test_a_certificate_says_what_was_forgotten_and_verifies(tmp_path):
    ledger = Ledger(0.5, 1.0)
    trained(ledger)
    done = forgotten(ledger, [5, 6])
    sealed = done.certificate(delta=1e-3, dataset="people")
    sealed.save(tmp_path / "new.json")
    found = verify(tmp_path / "new.json", parameters=done.parameters)
    assert found.epsilon == sealed.epsilon
    assert done.curve.epsilon(1e-3) <= sealed.epsilon * (1 + 1e-6)
    assert sealed.epsilon < done.curve.epsilon(1e-3) * (1 + 1e-6)
    jsonschema.validate(dict(sealed.content), json.loads(SCHEMA.read_text()))
    assert sealed.content["deleted"] == 2
    assert "[5" not in sealed.to_json()  # who it was is not said
    assert "before the first deletion" in str(sealed)
    with pytest.raises(CertificateError, match="another hash"):
        verify(sealed, parameters=done.parameters + 1)


def test_false_certificates_are_refused():
    ledger = Ledger(0.5, 1.0)
    model = trained(ledger)
    sealed = forgotten(ledger, [5]).certificate(delta=1e-3)
    for changes in (
        dict(epsilon=sealed.epsilon * 0.999),
        dict(mu=0.499),
        dict(budget=0.501),
        dict(budget=-0.5),
        dict(noise=0.999),
        dict(noise=0),
        dict(noise=-1.0),
        dict(budget=10**400),
        dict(grid=0.3),
        dict(grid=0.0),
        dict(grid=2.0**-60),
        dict(deleted=0),
        dict(deleted=21),
        dict(deleted=True),
        dict(models=0),
        dict(models=1.0),
        dict(models=2),
        dict(assumptions=[]),
        dict(not_covered=["nothing"]),
        dict(adjacency="replace"),
        dict(release="everything"),
        dict(theorem={**sealed.content["theorem"], "key": "taut-string"}),
        dict(kind="run"),
        dict(kind="composition"),
        dict(more=1),
        dict(exposure={"records": 2}),
        dict(link={"former": "0" * 64, "start": None, "mu": 0.5}),
    ):
        with pytest.raises(CertificateError):
            verify(resealed(sealed, **changes))
    verify(resealed(sealed))  # the harness itself makes good ones
    own = model.certificate(1e-3)
    for pair in ([sealed, own], [own, sealed], [sealed, sealed], [sealed]):
        with pytest.raises(CertificateError, match="does not compose"):
            compose(pair)


def test_experiments_have_no_certificate():
    ledger = Ledger(0.5, 1.0)
    trained(ledger, random_state=1)
    with pytest.raises(AssumptionError, match="no certificate"):
        forgotten(ledger, [5]).certificate(1e-3)


def test_neither_size_nor_time_of_a_file_tells_how_a_request_was_served(tmp_path):
    """Whoever may only look at the folder from outside, or at a list of a backup."""
    sizes, wait = set(), 0.4
    for k, (budget, path) in enumerate(((0.0, 0), (9.0, 0), (0.0, 500), (9.0, 500))):
        folder = tmp_path / str(k)
        ledger = Ledger(budget, 1.0, requests=3, path=path, folder=folder, key=KEY)
        trained(ledger, random_state=1)
        began, before = time.time(), (folder / "ledger").stat().st_size
        forgotten(ledger, [1], wait=wait)
        assert (ledger.book().spent > 0) == (budget > 0)  # replayed, or served
        for place in (folder, folder / "ledger"):
            assert place.stat().st_mtime >= began + wait - 0.05
        sizes.add((path, (folder / "ledger").stat().st_size - before))
        loaded = Ledger.load(folder, KEY).book()
        assert (loaded.spent, loaded.seconds) == (ledger.book().spent, ledger.book().seconds)
    assert len(sizes) == 2


def test_a_model_tells_of_those_who_are_deleted_after_it():
    """The first model of two is no farther from a run that had the second person: words say so."""
    ledger = Ledger(1e-4, 1e-4, requests=2)
    trained(ledger)
    memory = repeated(ledger.book().memory)
    first = forgotten(ledger, [3], wait=0.0)
    without = X.copy()
    without[[3, 7]] = 0.0
    never = noisy_descent(Logistic(), without, RUN, labels=Y, noise=memory).parameters
    assert np.linalg.norm(first.parameters - never) > 20 * ledger.noise  # 7 is still in it
    second = forgotten(ledger, [7], wait=0.0)
    assert np.linalg.norm(second.parameters - never) < 10 * ledger.noise
    assert "all of these from the start, with" not in str(second)
    assert "deleted up to it" in str(second)
    told = " ".join(second.certificate(1e-3).not_covered)
    assert "tells of records that were deleted after it" in told
