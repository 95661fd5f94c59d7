"""The numbers under a report's figures: no digit promises more than was proved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lastiterate import (
    FullBatch,
    Loss,
    Poisson,
    PrivacyUnit,
    Shuffled,
    Training,
    account,
    certify,
    compare,
)
from lastiterate.certificate import Certificate
from lastiterate.curves import gaussian
from lastiterate.report import privacy_curve, tradeoff
from lastiterate.report.page_figures import Drawn, Figures, figures_of
from lastiterate.report.run_folder import RunFolder

LOSS = Loss(smoothness=1.0, regularization=0.3)
RUN = Training(
    records=50,
    steps=40,
    step_size=0.37,
    noise=0.11,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)
SHUFFLED = RUN.replace(batches=Shuffled(10))
DELTA = 3.3e-5


def drawn(run: Training, folder: Path) -> Figures:
    certify(run, LOSS, delta=DELTA).save(folder / "c.json")
    return figures_of(RunFolder.read(folder / "c.json"))


def named(figures: Figures, name: str) -> Drawn:
    return next(figure for figure in figures.drawn if figure.name == name)


def points(figure: Drawn, line: str) -> list[tuple[float, float]]:
    found = [(float(x.replace(",", "")), float(y)) for name, x, y in figure.rows if line in name]
    assert found
    return found


@pytest.mark.parametrize("run", [RUN, SHUFFLED], ids=["full", "shuffled"])
def test_printed_pairs_hold(run: Training, tmp_path: Path) -> None:
    figures, guarantee = drawn(run, tmp_path), account(run, LOSS)
    for line in ("guaranteed", "certificate"):
        for epsilon, delta in points(named(figures, "Privacy curve"), line):
            assert guarantee.delta(epsilon) <= 1.01 * delta


def test_printed_growth_is_not_below_the_accountant(tmp_path: Path) -> None:
    growth = named(drawn(RUN, tmp_path), "Growth")
    for steps, epsilon in points(growth, account(RUN, LOSS).theorem.name):
        truth = account(RUN.replace(steps=int(steps)), LOSS).epsilon(DELTA)
        assert truth <= epsilon <= 1.001 * truth
    for steps, epsilon in points(growth, "suffers"):
        assert epsilon <= account(RUN.replace(steps=int(steps)), LOSS).lower(DELTA)


def test_printed_clean_steps_are_not_below_the_accountant(tmp_path: Path) -> None:
    gone = PrivacyUnit(last_step=25)
    certify(RUN, LOSS, delta=DELTA, unit=gone).save(tmp_path / "c.json")
    line = named(figures_of(RunFolder.read(tmp_path / "c.json")), "Clean steps")
    for clean, epsilon in points(line, "deleted"):
        shorter = RUN.replace(steps=25 + int(clean))
        truth = account(shorter, LOSS, unit=gone).epsilon(DELTA)
        assert truth <= epsilon <= 1.001 * truth
    stayed = drawn(RUN, tmp_path).drawn
    assert "Clean steps" not in [figure.name for figure in stayed]
    joint = certify(RUN, LOSS, delta=DELTA, unit=gone, releases=(20,))
    joint.save(tmp_path / "c.json")
    some = figures_of(RunFolder.read(tmp_path / "c.json")).drawn
    assert "Clean steps" not in [figure.name for figure in some]


def test_printed_comparison_is_not_below_the_accountant(tmp_path: Path) -> None:
    printed = named(drawn(RUN, tmp_path), "Comparison").rows
    for row in compare(RUN, LOSS, DELTA):
        [epsilon] = [
            float(x)
            for line, x, name in printed
            if (line, name) == ("sound bound", row.theorem.name)
        ]
        assert row.epsilon <= epsilon <= 1.001 * row.epsilon


@pytest.mark.parametrize("run", [RUN, SHUFFLED], ids=["full", "shuffled"])
def test_printed_attacks_are_not_too_weak(run: Training, tmp_path: Path) -> None:
    """Against one Gaussian, or against four hundred tangents of the accountant's own curve."""
    figures, guarantee = drawn(run, tmp_path), account(run, LOSS)
    for rate, missed in points(named(figures, "Best attack"), "no test"):
        if guarantee.mu is not None:
            assert missed <= gaussian.tradeoff(guarantee.mu, rate) + 1e-15
        else:
            epsilons = np.linspace(0, 5, 400)
            deltas = np.array([guarantee.delta(e) for e in epsilons])
            below = np.maximum(
                1 - deltas - np.exp(epsilons) * rate, (1 - deltas - rate) * np.exp(-epsilons)
            )
            assert missed <= max(below.max(), 0.0) + 1e-4


def test_a_certificate_alone_is_drawn_from_what_it_proves() -> None:
    """Poisson batches, against the accountant's own curve."""
    run = RUN.replace(batches=Poisson(0.1), adjacency="zero-out")
    guarantee = account(run, Loss.unknown())
    certificate: Certificate = certify(run, Loss.unknown(), delta=1e-5)
    proved = [(certificate.delta, certificate.epsilon), *certificate.curve]
    line = privacy_curve(certificate, proved=proved).series[0]
    for epsilon, delta in zip(line.x, line.y, strict=True):
        assert guarantee.delta(epsilon) <= 1.01 * delta
    attack = tradeoff(certificate, proved=proved).series[0]
    for rate, missed in zip(attack.x, attack.y, strict=True):
        best = max(
            max(1 - delta - np.exp(epsilon) * rate, (1 - delta - rate) / np.exp(epsilon))
            for delta, epsilon in proved
        )
        assert missed <= max(best, 0.0) + 1e-12


def test_what_cannot_be_drawn_is_named(tmp_path: Path) -> None:
    run = RUN.replace(batches=Poisson(0.1), adjacency="zero-out")
    assert "no single string" in dict(drawn(run, tmp_path).missing)["Taut string"]
