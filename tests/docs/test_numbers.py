"""The tables and counterexamples of the pages, computed again from what the pages print.

Every value is compared at the digits it is printed with, so a table that is out of date fails.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from sampled_laws import chien_li_as_stated

from lastiterate import Cyclic, FullBatch, Loss, Shuffled, TailAverage, Training, account
from lastiterate.accounting import best_burst, burst_rule, log_uniform, optimal_schedule
from lastiterate.accounting.burst import noise_factor
from lastiterate.accounting.risk import predicted_risk
from lastiterate.composition import chernoff, optimal
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.curves.pairs import SampledPair
from lastiterate.lower.minibatch import linear_lower
from lastiterate.published.he_wang_tao import corollary_2, corollary_3
from lastiterate.sampling.gaussian_pair import renyi
from lastiterate.theory import poisson_paths as poisson
from lastiterate.theory.coupling import Coupling, CouplingProblem
from lastiterate.theory.dynamics import Steps
from lastiterate.theory.taut_string import constant_curve, taut_string

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS.parent / "benchmarks" / "results"


def text_of(page: str) -> str:
    return (DOCS / page).read_text(encoding="utf-8")


def table(page: str, *heads: str) -> list[list[str]]:
    """The rows of the table whose first line holds these words, cell by cell, without markup."""
    lines = text_of(page).splitlines()
    starts = [
        k for k, line in enumerate(lines) if line.startswith("| ") and all(h in line for h in heads)
    ]
    assert len(starts) == 1, f"{page}: {heads}"
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("**", "") for cell in line.strip("|").split("|")])
    assert rows
    return rows


def numbers(cell: str) -> list[float]:
    cell = cell.replace("10⁴", "10000")
    return [float(one) for one in re.findall(r"-?\d*\.?\d+(?:e-?\d+)?", cell)]


def shows(printed: str, value: float) -> bool:
    """Whether the value rounds to what is printed."""
    mantissa, _, exponent = printed.partition("e")
    unit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(value - float(printed)) <= 0.5001 * unit


@pytest.mark.parametrize("page", ["theory/without-replacement.md", "errata.md"])
def test_batches_without_replacement(page: str) -> None:
    for order, stated, true, corrected in table(page, "stated", "true", "corrected"):
        alpha = float(order)
        truth = SampledPair(0.5, 0.0, 2.0).log_moments(alpha - 1)[0] / (alpha - 1)
        assert shows(stated, chien_li_as_stated(alpha, 0.5, 2.0))
        assert shows(true, truth)
        assert shows(corrected, LossDistribution.replaced(0.5, 2.0).rdp(alpha))


def coupling_rows() -> Iterator[object]:
    for head, string, coupled in table("theory/coupling.md", "taut string", "coupling"):
        heavy = numbers(head)[0] >= 10  # a wide domain has many cells
        marks = [pytest.mark.slow] if heavy else []
        yield pytest.param(head, string, coupled, marks=marks, id=head)


@pytest.mark.parametrize(("head", "string", "coupled"), list(coupling_rows()))
def test_bounded_domains(head: str, string: str, coupled: str) -> None:
    diameter, s, steps, c = numbers(head)
    mu = float(constant_curve(c, s, 1.0, int(steps), diameter))
    assert shows(string, gaussian.epsilon(mu, 1e-5))
    found = Coupling(CouplingProblem.of(c, s, 1.0, diameter, int(steps)), mu).epsilon(1e-5)
    assert found == pytest.approx(float(coupled), abs=1e-3)


def poisson_rows() -> Iterator[object]:
    for head, *values in table("theory/poisson.md", "plain composition", "this theorem"):
        marks = [pytest.mark.slow] if numbers(head)[0] > 1000 else []
        yield pytest.param(head, values, marks=marks, id=head)


@pytest.mark.parametrize(("head", "values"), list(poisson_rows()))
def test_poisson_batches(head: str, values: list[str]) -> None:
    steps, c = int(numbers(head)[0]), numbers(head)[1]
    composed, joint, lower = values
    run = Steps(c, 1.0, 1.0, steps)
    assert shows(composed, poisson.plain_curve(run, 0.01).epsilon(1e-6))
    assert shows(joint, poisson.best(run, 0.01, 1e-6).curve.epsilon(1e-6))
    assert 0 <= linear_lower(run, 0.01, 1e-6) - float(lower) < 1e-3  # rounded down


def test_windows() -> None:
    for head, linear, window, composed in table("theory/schedules.md", "plain average", "window"):
        c, steps, k = numbers(head)
        T, k = int(steps), int(k)
        run = Training(
            records=T,
            steps=T,
            step_size=1 - c,
            noise=1 - c,
            gradient_norm=T / 2,
            batches=FullBatch(),
            release=TailAverage(k),
            adjacency="replace",
        )
        mu = account(run, Loss(smoothness=1.0, strong_convexity=1.0)).mu
        assert mu is not None
        assert shows(window, mu**2)
        assert shows(composed, T)
        # what step t adds to the average of the last k iterates of x <- c x + impulse + noise
        weights = [sum(c ** (j - t) for j in range(max(t, T - k), T)) / k for t in range(T)]
        assert shows(linear, sum(weights) ** 2 / np.sum(np.square(weights)))


def test_bursts() -> None:
    for head, known, best, rho, rule in table("theory/schedules.md", "known order", "best burst"):
        condition, epochs, step = numbers(head)
        loss = Loss(smoothness=1.0, strong_convexity=1 / condition)
        spectrum = log_uniform(loss, 20)
        run = Training(
            records=40,
            steps=40 * int(epochs),
            step_size=step,
            noise=1.0,
            gradient_norm=0.5,
            batches=Shuffled(1),
            adjacency="replace",
        )

        def risk(trial: Training, loss: Loss = loss, spectrum: np.ndarray = spectrum) -> float:
            scaled = trial.scale_noise(noise_factor(trial, loss, 2.0, 1e-5))
            return predicted_risk(scaled, loss, spectrum).noise

        plain = risk(run)
        factor = best_burst(run, loss, 2.0, 1e-5, spectrum)
        by_rule = burst_rule(run, loss, spectrum)
        assert shows(known, risk(run.replace(batches=Cyclic(1))) / plain)
        assert float(rho) == pytest.approx(factor, abs=0.06)  # the bottom of the valley is flat
        assert shows(best, risk(run.replace(final_noise=factor)) / plain)
        value, rule_rho = re.findall(r"[\d.]+", rule)
        assert shows(value, risk(run.replace(final_noise=by_rule)) / plain)
        assert shows(rule_rho, by_rule)


@pytest.mark.slow
def test_risks_of_schedules() -> None:
    mu = gaussian.mu(1.0, 1e-5)
    for head, _, scheduled, _, floor in table("theory/schedules.md", "optimal schedule, 64 steps"):
        condition, noise = numbers(head)
        loss = Loss(smoothness=1.0, strong_convexity=1 / condition)
        spectrum = log_uniform(loss, 20)
        run = Training(
            records=1,
            steps=64,
            step_size=1.0,
            noise=1.0,
            gradient_norm=float(np.sqrt(noise) * mu),
            batches=FullBatch(),
            adjacency="zero-out",
        )
        best = optimal_schedule(run, loss, 1.0, 1e-5, spectrum=spectrum)
        risk = predicted_risk(best, loss, spectrum).total
        assert shows(scheduled, risk)
        assert shows(floor, float(np.sum(noise * spectrum / (spectrum**2 + noise))) / 2)


def test_real_data_is_what_was_measured() -> None:
    measured = (RESULTS / "own_results_real_data.md").read_text(encoding="utf-8").splitlines()
    for head, batches, *values in table("theory/schedules.md", "data, ε", "batches, epochs"):
        data, epsilon = head.split(", ")
        count, epochs = batches.split(", ")
        start = f"| {data} | {float(epsilon)} | {count} | {epochs} |"
        (line,) = [line for line in measured if line.startswith(start)]
        cells = [cell.replace("**", "").split("±")[0].strip() for cell in line.split("|")[5:8]]
        assert cells == values, line


def test_the_trap_of_cyclic_batches() -> None:
    """c = 0.9, four batches, five epochs, last position, s = nu = 1."""
    s = np.where(np.arange(20) % 4 == 3, 1.0, 0.0)
    powers = 0.9 ** np.arange(19, -1, -1)
    attained = taut_string(0.9, s, 1.0).mu ** 2
    formula = float(s @ powers) ** 2 / float(powers @ powers)
    late = float(s @ powers) ** 2 / float(powers[3:] @ powers[3:])
    for page in ("theory/mini-batches.md", "theory/shifted-interpolation.md"):
        assert f"{attained:.4f}" in text_of(page)
        assert f"{formula:.4f}" in text_of(page)
    for value in (attained, late):
        assert f"{value:.4f}" in text_of("errata.md")
    assert formula < late < attained


def test_counterexamples_of_composition() -> None:
    errata = text_of("errata.md")
    claim = corollary_2(1.0, 1e-5, 1000, 1e-6)
    truth = optimal(1.0, 1e-5, 1000, target=claim.epsilon)
    assert f"$ε' = {claim.epsilon:.2f}$" in errata
    assert f"**{claim.delta:.3e}**".replace("e-0", "e-") in errata
    assert f"**{truth:.3e}**".replace("e-0", "e-") in errata
    assert claim.delta < truth
    claim = corollary_3(0.1, 0.0, 100, 1e-5)
    truth = optimal(0.1, 0.0, 100, target=claim.epsilon)
    mended = chernoff(0.1, 100, claim.epsilon)
    assert claim.delta < truth < mended
    section = errata.split("### He, Wang & Tao 2020, Corollary 3")[1].split("###")[0]
    for value in (claim.delta, truth, mended):
        assert f"{value:.1e}".replace("e-0", "e-") in section


def test_counterexample_of_gaussian_divergences() -> None:
    """Deviations 1 and 1.1, order 5: in units of the second deviation."""
    truth = float(renyi(0.0, 1 / 1.1**2 - 1, 5.0))
    printed = np.log(1 / 1.1) + np.log(1.1**2 / (5 * 1.1**2 - 4)) * 4 / 2
    heading = "### Heller & Fetaya 2022, Renyi divergence"
    section = text_of("errata.md").split(heading)[1].split("###")[0]
    assert f"true {truth:.4f}" in section
    assert f"**${printed:.2f}$**" in section


def test_people_on_real_data() -> None:
    saved = json.loads((RESULTS / "people.json").read_text(encoding="utf-8"))["rows"]
    measured = [
        numbers(row["measured"].replace(",", "")) for row in saved if "alike" not in row["name"]
    ]
    shown = table("how-to/people.md", "noise / impulse", "accuracy")
    assert len(shown) == len(measured)
    for (_, _, noise, accuracy), values in zip(shown, measured, strict=True):
        assert shows(noise, values[-1])
        assert shows(accuracy.removesuffix(" %"), values[0])
