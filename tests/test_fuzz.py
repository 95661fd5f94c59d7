"""Soundness on random descriptions: no reported epsilon is below what exact arithmetic shows.

Gaussian curves and averages of them are recomputed in ball arithmetic, which holds the exact value
of the bound: the fast value must not be below, and only a little above. Reshuffled batches are
recomputed by enumerating all sequences of positions. Sampled batches are compared with losses that
are rounded *down* in ball arithmetic, a proved lower bound of the value, and with the exact law of
linear losses (`Guarantee.lower`).
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from flint import arb, fmpz_poly
from kernel_runs import as_json, described
from random_runs import random_run, sometimes_equalised

from lastiterate import UnsupportedError, account
from lastiterate.certificate.signing import checkable
from lastiterate.kernel.epochs import epoch_costs, worst_sequence
from lastiterate.kernel.privacy_loss import Piece, gaussian
from lastiterate.theory.reshuffled import BOUNDARY_POLICY
from lastiterate.verifier.balls import gaussian_delta, precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.steps import Case
from lastiterate.verifier.witness import pack, unpack

# No delta is a share of positions: where delta(epsilon) rests at 2/20, an epsilon is a matter of
# the last digit.
DELTAS = (0.0937, 1.013e-3, 1e-6, 1e-12, 1e-30)


def exact(training, loss, releases, delta):
    """(theorem, fast epsilon, profile in balls, witness) of the tightest bound that has a check."""
    guarantee = account(training, loss, releases=releases)
    able = [bound for bound in guarantee.bounds if checkable(guarantee.run, bound)]
    bound = min(able, key=lambda b: b.curve.epsilon(delta))
    proof = bound.at(delta)
    witness, curve = unpack(pack(proof.witness)), proof.curve
    case = Case(training, loss, guarantee.run.releases[:-1])
    return guarantee, curve, case, CHECKS[bound.theorem.key], witness


def check_balls(random, scheme):
    """Relative excess of the fast epsilon over the exact one; raises if it is below."""
    steps = int(random.integers(1, 12 if scheme == "cyclic" else 40))
    training, loss, releases = random_run(random, scheme, steps)
    delta = float(random.choice(DELTAS))
    _, curve, case, check, witness = exact(training, loss, releases, delta)
    fast = curve.epsilon(delta)
    with precision():
        judge = check(case, witness).judge(delta)
        if math.isinf(fast):
            return 0.0
        assert fast >= 0
        assert judge.holds(fast, delta), (training, loss, releases, delta, fast)
        if fast == 0 or judge.profile.coupled is not None:  # rounded in two ways on two grids
            return 0.0
        if training.release != "last" and training.arithmetic != "exact":
            return 0.0  # inside the window the accountant pays a drift that the check need not
        for excess in (0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3):
            if not judge.holds(fast / (1 + excess) * (1 - 1e-12), delta):
                return excess
    return 1.0


def enumerate_reshuffled(random):
    """All sequences of positions, each cost in balls, no grid."""
    batches = int(random.integers(1, 5))
    whole = int(random.integers(1, 4))
    steps = max(batches * whole - int(random.integers(0, 2)), 1)
    training, loss, _ = random_run(random, "reshuffled", steps, records=12)
    # What sums round comes on top of the levels' costs; it has exact laws of its own.
    plain = training.replace(
        batches=type(training.batches)(12 // batches), schedule=None, arithmetic="exact"
    )
    training = sometimes_equalised(random, plain)
    delta = float(random.choice(DELTAS[:4]))
    _, curve, case, check, witness = exact(training, loss, (), delta)
    if "exchange" in witness:  # a mixture over sequences is the law of the policy alone
        proof = BOUNDARY_POLICY.evaluate(training, loss).at(delta)
        curve, witness = proof.curve, proof.witness
    fast = curve.epsilon(delta)
    if math.isinf(fast) or fast == 0:
        return 0.0
    if "levels" not in witness:
        with precision():
            assert check(case, witness).judge(delta).holds(fast, delta)
        return 0.0
    with precision():
        run = described(case.training, case.loss, case.releases)
        rows, cap = (epoch_costs(run, as_json(witness[key])) for key in ("levels", "cap_levels"))
        cap = worst_sequence(cap)
        total, count = arb(0), 0
        for costs in itertools.product(*rows):
            total += gaussian_delta(sum(costs, arb(0)).min(cap), arb(fast))
            count += 1
        assert total / count <= delta, (training, loss, delta, fast)
        shorter = arb(fast * 0.98)
        sums = (sum(costs, arb(0)).min(cap) for costs in itertools.product(*rows))
        less = sum((gaussian_delta(each, shorter) for each in sums), arb(0))
    return 0.02 if less / count > delta else 1.0


def rounded_down(steps, width, bits=220):
    """A lower bound on delta(epsilon): every loss lowered to its cell's lower end, masses floored.

    Losses beyond the last cell are lowered to it; tails below the first one are dropped.
    """
    unit, laws = 1 << bits, []
    for order in (0, 1):
        law, first = fmpz_poly([unit]), 0
        for pair, count in steps:
            low, masses = _floored(pair, width, order, unit)
            for _ in range(count):
                law = (law * masses) // unit
                first += low
        laws.append((first, law))

    def delta(epsilon):
        answers = []
        for first, law in laws:
            total = arb(0)
            for index, mass in enumerate(law.coeffs()):
                loss = arb((first + index) * width)
                if loss > epsilon:
                    total += arb(mass) * (1 - (epsilon - loss).exp())
            answers.append(total / unit)
        return max(answers, key=float)

    return delta


def _floored(pair, width, order, unit):
    """Masses at the lower ends of cells, in one order."""
    masses = {}

    def put(loss, mass):
        index = math.floor(float(loss.lower()) / width) - 1
        units = max(int(float(mass.lower()) * 2**120), 0) * (unit >> 120)
        masses[index] = masses.get(index, 0) + units

    for piece in pair.pieces:
        if order == 0 or pair.mirrored:
            for loss, mass in _cells(piece):
                put(loss, mass)
        if order == 1 or pair.mirrored:
            for loss, mass in _cells(mirror(piece)):
                put(loss, mass)
    first = min(masses)
    return first, fmpz_poly([masses.get(first + i, 0) for i in range(max(masses) - first + 1)])


def mirror(piece):
    """The other order of a piece, under x -> -x."""
    above, below = (tuple((w, -m) for w, m in law) for law in (piece.above, piece.below))
    start, stop = (None if end is None else -end for end in (piece.start, piece.stop))
    return Piece(below, above, stop, start)


def _cells(piece):
    """(smallest loss, mass) of every cell of a fine grid; the last one has no end."""
    means = [float(m) for _, m in piece.above + piece.below]
    low = min(means) - 9.0 if piece.start is None else float(piece.start)
    high = max(means) + 9.0 if piece.stop is None else float(piece.stop)
    points = [arb(x) for x in np.linspace(low, high, 1200).tolist()]

    def density(law, x):
        return sum(arb(float(w)) * (x * float(m) - arb(float(m)) ** 2 / 2).exp() for w, m in law)

    tails = [
        sum(arb(float(w)) * ((x - float(m)) / arb(2).sqrt()).erfc() / 2 for w, m in piece.above)
        for x in points
    ]
    ends = tails[1:] + ([arb(0)] if piece.stop is None else [tails[-1]])
    for x, here, after in zip(points, tails, ends, strict=True):
        yield (density(piece.above, x) / density(piece.below, x)).log(), here - after


def check_sampled(random, scheme):
    steps = int(random.integers(1, 7))
    training, loss, _ = random_run(random, scheme, steps)
    delta = float(random.choice(DELTAS[:3]))
    try:
        guarantee, curve, case, check, witness = exact(training, loss, (), delta)
    except UnsupportedError:
        return 0.0
    fast = curve.epsilon(delta)
    assert fast >= guarantee.lower(delta) * (1 - 1e-9), (training, loss, delta)
    if math.isinf(fast) or fast == 0 or fast > 20:  # cells are chosen for budgets that people have
        return 0.0
    with precision():
        profile = check(case, witness)
        pairs = list(profile.steps)
        if profile.squares[0] != 0:
            pairs.append((gaussian(math.sqrt(float(profile.squares[0].lower()))), 1))
        least = rounded_down(pairs, width=2.0**-9)(arb(fast))
        failure = profile.failure if profile.failure is not None else arb(0)
        assert not least + failure > delta, (training, loss, delta, fast, float(least))
        judge = profile.judge(delta)
        if fast < 0.05:  # a few cells of the loss grid: sound, but not close in relative terms
            return 0.0
        for excess in (0.0, 1e-4, 1e-3, 3e-3, 1e-2):
            if not judge.holds(fast / (1 + excess) * (1 - 1e-12), delta):
                return excess
    return 1.0


def report(name, excesses):
    print(f"\n{name}: {len(excesses)} descriptions, none below; largest excess {max(excesses):.0e}")


SHARES = {"full": 4000, "cyclic": 2000, "shuffled": 2000}


@pytest.mark.parametrize("scheme", SHARES)
def test_some_gaussian_curves(scheme):
    random = np.random.default_rng(1)
    excesses = [check_balls(random, scheme) for _ in range(40)]
    report(scheme, excesses)
    assert max(excesses) <= 1e-6


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scheme", SHARES)
def test_many_gaussian_curves(scheme, seed):
    random = np.random.default_rng(1000 + seed)
    excesses = [check_balls(random, scheme) for _ in range(SHARES[scheme] // 8)]
    report(scheme, excesses)
    assert max(excesses) <= 1e-6


def test_some_reshuffled_runs():
    random = np.random.default_rng(2)
    excesses = [enumerate_reshuffled(random) for _ in range(6)]
    report("reshuffled", excesses)
    assert max(excesses) <= 0.02


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(8))
def test_many_reshuffled_runs(seed):
    random = np.random.default_rng(2000 + seed)
    excesses = [enumerate_reshuffled(random) for _ in range(100)]
    report("reshuffled", excesses)
    assert max(excesses) <= 0.02


@pytest.mark.parametrize("scheme", ["poisson", "without-replacement"])
def test_some_sampled_runs(scheme):
    random = np.random.default_rng(3)
    excesses = [check_sampled(random, scheme) for _ in range(4)]
    report(scheme, excesses)
    assert max(excesses) <= 1e-2


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("scheme", ["poisson", "without-replacement"])
def test_many_sampled_runs(scheme, seed):
    random = np.random.default_rng(3000 + seed)
    excesses = [check_sampled(random, scheme) for _ in range(75)]
    report(scheme, excesses)
    assert max(excesses) <= 1e-2
