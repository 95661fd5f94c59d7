"""Correlated noise against exact laws: linear maps, insiders and outsiders, both orders."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from lastiterate import (
    Arithmetic,
    CertificateError,
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Shuffled,
    TailAverage,
    Training,
    account,
    certify,
    compare,
    verify,
)
from lastiterate.accounting import plateau, predicted_risk
from lastiterate.description import fractional
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.kernel.correlated import inverse
from lastiterate.theory.correlated import Toeplitz
from lastiterate.verifier.balls import precision
from lastiterate.verifier.checks import CHECKS
from lastiterate.verifier.document import canonical, fingerprint
from lastiterate.verifier.steps import Case

CONVEX = Loss(smoothness=1.0)


def describe(**changes):
    fields = {
        "records": 6,
        "steps": 12,
        "step_size": 1.0,
        "noise": 2.0,
        "gradient_norm": 1.0,
        "adjacency": "zero-out",
        "batches": Shuffled(1),
        "correlation": fractional(0.5, 12),
    }
    return Training(**{"adjacency": "replace", **fields, **changes})


def taken_back(rng, length):
    """Random coefficients of the class: 1, then nothing above 0, a sum of at least 0."""
    if rng.uniform() < 0.4:
        return fractional(float(rng.uniform(0, 1)), length)
    back = rng.exponential(size=length - 1) * (rng.uniform(size=length - 1) < 0.7)
    scale = float(rng.choice([1.0, rng.uniform(0, 1)])) / max(back.sum(), 1e-9)
    return (1.0, *(-back * scale * (1 - 1e-15)))


def matrix(coefficients, steps):
    """L, written out."""
    found = np.zeros((steps, steps))
    for d, value in enumerate(coefficients[:steps]):
        found += value * np.eye(steps, k=-d)
    return found


class Linear:
    """x <- c'_k x + push of the record + noise: Gaussian, whatever is looked at."""

    def __init__(self, rng):
        self.batches = int(rng.integers(1, 5))
        self.steps = int(rng.integers(1, 4)) * self.batches + int(rng.integers(0, 2))
        self.coefficients = taken_back(rng, int(rng.integers(2, self.steps + 3)))
        self.noise = float(rng.uniform(0.5, 3.0))
        c = rng.uniform(0, 1, self.steps)
        self.c = np.where(rng.uniform(size=self.steps) < rng.choice([0.2, 0.9]), 1.0, c)
        self.L = matrix(self.coefficients, self.steps)
        # What a unit that is added at step k is worth at the end.
        self.worth = np.append(np.cumprod(self.c[:0:-1])[::-1], 1.0)

    def training(self, batches):
        return describe(
            records=3 * self.batches,
            steps=self.steps,
            noise=self.noise,
            batches=batches,
            gradient_norm=float(batches.divisor(3 * self.batches)),
            correlation=self.coefficients,
        )

    def pushes(self, j, used=None):
        found = np.zeros(self.steps)
        found[j :: self.batches if used is None else used] = 1.0
        return found

    def outside(self, pushes):
        """mu of the last iterate."""
        return self.worth @ pushes / (self.noise * np.linalg.norm(self.L.T @ self.worth))

    def inside(self, pushes):
        """mu of all iterates."""
        return np.linalg.norm(np.linalg.solve(self.L, pushes)) / self.noise


def mixed(means, epsilon):
    """delta(epsilon) of (average of N(m, 1)) against N(0, 1), the larger of both orders."""
    x = np.linspace(-12, 12 + max(means), 40_001)

    def bell(m):
        return np.exp(-((x - m) ** 2) / 2) / math.sqrt(2 * math.pi)

    p, q = np.mean([bell(m) for m in means], axis=0), bell(0.0)
    gap = x[1] - x[0]
    return max(np.maximum(a - math.exp(epsilon) * b, 0).sum() * gap for a, b in ((p, q), (q, p)))


def check(rng):
    one = Linear(rng)
    full = one.training(FullBatch())
    every = one.pushes(0, used=1)
    assert account(full, CONVEX).mu >= one.outside(every) * (1 - 1e-12)
    assert account(full, Loss.unknown()).mu >= one.inside(every) * (1 - 1e-12)
    cyclic = account(one.training(Cyclic(3)), CONVEX).mu
    public = account(one.training(Cyclic(3)), Loss.unknown()).mu
    seen = [one.outside(one.pushes(j)) for j in range(min(one.batches, one.steps))]
    assert cyclic >= max(seen) * (1 - 1e-12)
    assert public >= max(one.inside(one.pushes(j)) for j in range(len(seen))) * (1 - 1e-12)
    hidden = account(one.training(Shuffled(3)), CONVEX)
    means = seen + [0.0] * (one.batches - len(seen))
    for epsilon in (0.0, 0.5, 2.0):
        assert hidden.delta(epsilon) >= mixed(means, epsilon) * (1 - 1e-6) - 1e-12
    return cyclic / max(seen)


def test_no_number_is_below_the_law_of_linear_maps():
    for seed in range(30):
        check(np.random.default_rng([1, seed]))


@pytest.mark.slow
def test_many_linear_maps():
    assert min(check(np.random.default_rng([2, seed])) for seed in range(500)) < 1.001


def test_closed_forms_are_those_of_matrices():
    """One pass: the least length of Ca with Σa = 1 by Lagrange, its shifts never negative."""
    for seed in range(20):
        rng = np.random.default_rng([3, seed])
        steps = int(rng.integers(1, 30))
        noise = Toeplitz(taken_back(rng, 12), steps)
        for j, (out, inside) in enumerate(
            zip(noise.outsiders(steps), noise.insiders(steps), strict=True)
        ):
            L = matrix(noise.coefficients, steps - j)
            C = np.linalg.inv(L)
            shifts = np.linalg.solve(C.T @ C, np.ones(steps - j))
            shifts /= shifts.sum()
            assert shifts.min() >= -1e-9
            assert C.min() >= -1e-12
            assert out == pytest.approx(np.linalg.norm(C @ shifts) ** 2, rel=1e-8)
            assert inside == pytest.approx(np.linalg.norm(C[:, 0]) ** 2, rel=1e-8)
            assert out <= inside * (1 + 1e-9)
        # The first record of maps x -> x suffers all of it.
        total = matrix(noise.coefficients, steps).sum(axis=0)
        assert noise.outsiders(steps)[0] == pytest.approx(1 / (total @ total), rel=1e-8)


def test_the_reference_table():
    """T = 1000, one pass, s/noise = 0.5, delta = 1e-6: insiders and outsiders."""
    for power, inside, outside, first in ((0.5, 4.195, 1.455, 0.306), (1.0, 186.2, 2.254, 1.0)):
        run = describe(records=1000, steps=1000, correlation=fractional(power, 1000))
        rows = {row.theorem.key: row.epsilon for row in compare(run, CONVEX, delta=1e-6)}
        assert round(rows["correlated-last-iterate"], 3) == outside
        assert float(f"{rows['correlated-composition']:.4g}") == pytest.approx(inside)
        assert account(run, CONVEX).epsilon(1e-6) == rows["correlated-last-iterate"]
        assert Toeplitz(fractional(power, 1000), 1000).outsiders(1000)[0] == pytest.approx(
            first, abs=5e-4
        )
    plain = describe(records=1000, steps=1000, correlation=fractional(0.0, 1000))
    assert plain.correlation is None
    rows = {row.theorem.key: row.epsilon for row in compare(plain, CONVEX, delta=1e-6)}
    assert round(rows["hidden-position"], 3) == 1.354
    assert account(plain, CONVEX).epsilon(1e-6) == rows["exchange"] < 0.164
    public = plain.replace(release=TailAverage(1000))
    assert round(account(public, Loss.unknown()).epsilon(1e-6), 3) == 2.254


def test_clipped_or_curved_runs_get_the_insiders_number():
    run = describe()
    inside = account(run.replace(release=TailAverage(12)), Loss.unknown())
    for changed, loss in (
        (run.replace(clipping="gradient"), CONVEX),
        (run, Loss.nonconvex(smoothness=0.1)),
        (run.replace(step_size=2.5), CONVEX),
    ):
        found = account(changed, loss)
        assert found.theorem.key == "correlated-composition"
    assert account(run, Loss.unknown()).epsilon(1e-5) == inside.epsilon(1e-5)
    assert account(run, CONVEX).epsilon(1e-5) < inside.epsilon(1e-5)
    assert account(run, CONVEX).lower(1e-5) == 0.0


def test_no_other_theorem_speaks_of_it_and_these_of_nothing_else():
    run = describe()
    keys = {row.theorem.key for row in compare(run, CONVEX, delta=1e-5)}
    assert keys == {"correlated-last-iterate", "correlated-composition"}
    plain = {row.theorem.key for row in compare(run.replace(correlation=None), CONVEX, delta=1e-5)}
    assert not keys & plain
    for changed in (
        {"batches": Poisson(0.5)},
        {"arithmetic": Arithmetic(error=1e-9)},
        {"arithmetic": Arithmetic(grid=2.0**-20)},
    ):
        with pytest.raises(UnsupportedError):
            account(run.replace(**changed), CONVEX)
    with pytest.raises(UnsupportedError):
        account(run, CONVEX, unit=PrivacyUnit(records=2))
    released = account(run, CONVEX, releases=(5,))
    assert released.theorem.key == "correlated-composition"
    with precision():
        for key, other in CHECKS.items():
            if not key.startswith("correlated"):
                with pytest.raises(CertificateError):
                    other(Case(run, CONVEX), {})


def test_nothing_and_no_noise():
    assert account(describe(steps=0), CONVEX).epsilon(1e-5) == 0.0
    assert account(describe(gradient_norm=0.0), CONVEX).epsilon(1e-5) == 0.0
    assert account(describe(noise=0.0), CONVEX).epsilon(1e-5) == math.inf


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(2), Shuffled(2), Shuffled(1)])
@pytest.mark.parametrize("loss", [CONVEX, Loss.unknown()])
def test_certificates_of_the_mathematics_verify_and_mutations_do_not(batches, loss, tmp_path):
    run = describe(batches=batches, steps=70, records=100, correlation=fractional(0.4, 90))
    sealed = certify(run, loss, 1e-4)
    sealed.save(tmp_path / "c.json")
    assert verify(tmp_path / "c.json").epsilon == sealed.epsilon
    assert sealed.epsilon == pytest.approx(account(run, loss).epsilon(1e-4), rel=1e-6)
    document = json.loads((tmp_path / "c.json").read_text())
    for changed in (fractional(0.6, 90), (1.0, -2.0), (1.0, 0.5), None):
        document["training"]["correlation"] = changed and list(changed)
        document["fingerprint"] = fingerprint(document)
        (tmp_path / "m.json").write_text(canonical(document))
        with pytest.raises(CertificateError):
            verify(tmp_path / "m.json")
    with pytest.raises(Exception, match="real numbers"):
        certify(run, loss, 1e-4, parameters={"w": np.zeros(2)})


def test_the_kernels_inverse_is_the_inverse():
    with precision():
        import flint

        for length in (1, 2, 63, 64, 65, 300):
            l = [flint.arb(x) for x in fractional(0.5, length)]  # noqa: E741
            found = inverse(l, length)
            half = Toeplitz(fractional(0.5, length), length).inverse
            assert len(found) == length
            assert np.allclose([float(c.mid()) for c in found], half, rtol=1e-12)
            assert max(float(c.rad()) for c in found) < 1e-20


@pytest.mark.parametrize(
    "bad", [[], [0.5], [1.0, 0.1], [1.0, -0.7, -0.4], "12", 1.0, [1.0, math.nan], [1.0, -math.inf]]
)
def test_other_correlations_are_refused(bad):
    with pytest.raises(DescriptionError, match="correlation"):
        describe(correlation=bad)


def test_what_correlated_noise_cannot_be_combined_with():
    for changes in ({"momentum": 0.5}, {"noise": [1.0] * 12}, {"final_noise": 2.0}):
        with pytest.raises(DescriptionError, match="correlation"):
            describe(**changes)
    for engine in (
        lambda: predicted_risk(describe(), CONVEX, spectrum=[0.5]),
        lambda: plateau(describe(), CONVEX, 1e-5),
    ):
        with pytest.raises(UnsupportedError, match="correlated"):
            engine()


def test_descriptions_survive_text():
    run = describe()
    assert Training.from_json(run.to_json()) == run
    assert Training.from_toml(run.to_toml()) == run
    assert hash(run) == hash(Training.from_json(run.to_json()))
    assert "take some back" in str(run)
