"""The figures of a report, each with its finding in words and its numbers in a table.

A figure that this run does not have is named, with the reason. The table is for whoever wants the
numbers or cannot see the figure.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.accounting import account, compare
from lastiterate.certificate import Certificate
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.errors import LastIterateError, UnsupportedError
from lastiterate.report.figures.audit import audit_bracket
from lastiterate.report.figures.comparison import comparison_bars
from lastiterate.report.figures.curve import privacy_curve, tradeoff
from lastiterate.report.figures.data import FigureData, Series
from lastiterate.report.figures.growth import epsilon_growth
from lastiterate.report.figures.string import taut_string
from lastiterate.report.render import svg
from lastiterate.report.run_folder import RunFolder

_ROWS = 12  # of a table, for each line of the figure
_DIGITS = 5
_QUICK = 0.3  # seconds for one epsilon; a slower bound is not asked dozens of times
_PATIENCE = 3.0  # seconds for one bound; beyond, a figure that needs many would take minutes
_CURVE = (
    "The smaller the probability delta that the promise may fail, the larger the epsilon of the "
    "promise. Every pair on or to the right of the line holds."
)
_DOTS = "The dots are the pairs that the certificate claims, recomputed for this page."
_ATTACK = (
    "A test guesses from what is released whether a record was used. However clever, it makes at "
    "least the false negatives that the line shows. The straight line is blind guessing."
)
_ALONE = (
    "This is about the training alone: what was released beside it (the preparation of the "
    "columns, say) costs more, and the numbers of the certificate cover everything."
)
_CLEAN = (
    "The erased records were used before the deletion; the steps after it are clean, and every one "
    "of them hides more. The line holds towards somebody who saw no model from before the deletion."
)


@dataclass(frozen=True)
class Drawn:
    """A figure for the page: heading, what it says, the SVG, and its numbers."""

    name: str
    heading: str
    caption: str
    svg: str
    columns: tuple[str, str, str]
    rows: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Figures:
    """What could be drawn, and what could not, with the reason."""

    drawn: tuple[Drawn, ...]
    missing: tuple[tuple[str, str], ...]


def figures_of(folder: RunFolder) -> Figures:
    """Every figure that this run has."""
    drawn: list[Drawn] = []
    missing = []
    for name, caption, draw in _wanted(folder):
        try:
            drawn.append(_ready(name, caption, draw(), f"figure-{len(drawn) + 1}"))
        except LastIterateError as error:
            missing.append((name, str(error)))
    return Figures(tuple(drawn), tuple(missing))


def _wanted(folder: RunFolder) -> Iterator[tuple[str, str, Callable[[], FigureData]]]:
    """Name, caption and how to draw it."""
    if folder.description is not None:
        training, loss, delta, releases = folder.description
        yield from _of_a_run(folder, training, loss, delta, releases)
    audited, certificate = folder.audited, folder.certificate
    if folder.description is None and certificate is not None:
        yield from _of_a_certificate(folder, certificate)
    if audited is not None:
        yield (
            "Audit",
            "An attack measured what leaks, from below; the guarantee bounds it from above. The "
            "truth lies between. A low measurement proves nothing: the attack may be weak.",
            lambda: audit_bracket(audited.result, certificate, audited.result.delta),
        )


def _of_a_run(
    folder: RunFolder, training: Training, loss: Loss, delta: float, releases: tuple[int, ...]
) -> Iterator[tuple[str, str, Callable[[], FigureData]]]:
    guarantee = account(training, loss, releases=releases)
    began = time.perf_counter()
    guarantee.epsilon(delta)
    seconds = time.perf_counter() - began
    certificate = folder.certificate
    if certificate is not None and seconds > _QUICK:
        yield from _of_a_certificate(folder, certificate)
    else:
        claimed = _CURVE if certificate is None else f"{_CURVE} {_DOTS}"
        yield (
            "Privacy curve",
            claimed,
            lambda: _with_claims(privacy_curve(guarantee, delta), certificate),
        )
        yield "Best attack", _ATTACK, lambda: tradeoff(guarantee)
    yield from _of_steps(training, loss, delta, releases, seconds)


def _of_steps(
    training: Training, loss: Loss, delta: float, releases: tuple[int, ...], seconds: float
) -> Iterator[tuple[str, str, Callable[[], FigureData]]]:
    """What the steps of a run do; one bound of it takes so many seconds."""

    def growth() -> FigureData:
        if seconds > _PATIENCE:
            raise UnsupportedError(
                f"The bound of this run takes {seconds:.0f} seconds, and the figure needs it for "
                "several numbers of steps. Draw it with lastiterate.report.epsilon_growth."
            )
        return epsilon_growth(training, loss, delta)

    def last_only(draw: Callable[[], FigureData]) -> Callable[[], FigureData]:
        if not releases:
            return draw
        why = "Checkpoints of this run were released too; this figure is about the end alone."
        return lambda: _refuse(why)

    yield (
        "Growth",
        "What the run costs after each number of steps, by every theorem that applies to it. The "
        "lowest line counts.",
        last_only(growth),
    )
    yield (
        "Comparison",
        "The same run, charged by every theorem that applies. All of them are true; the smallest "
        "number says most. A hollow mark is what another algorithm would cost, and no claim "
        "about this run.",
        last_only(lambda: comparison_bars(compare(training, loss, delta))),
    )
    yield (
        "Taut string",
        "Why the number is what it is: one record's influence arrives step by step, and the noise "
        "pays for it. The cheapest way to pay is a string pulled tight.",
        last_only(lambda: taut_string(training, loss)),
    )


def _of_a_certificate(
    folder: RunFolder, certificate: Certificate
) -> Iterator[tuple[str, str, Callable[[], FigureData]]]:
    yield (
        "Privacy curve",
        f"{_CURVE} {_DOTS}",
        lambda: _with_claims(privacy_curve(certificate, proved=folder.proved), certificate),
    )
    yield "Best attack", _ATTACK, lambda: tradeoff(certificate, proved=folder.proved)
    yield from _of_the_training(certificate)
    training, loss, unit = certificate.training, certificate.loss, certificate.unit
    if training is None or loss is None or unit.last_step in (None, training.steps):
        return
    if not certificate.content["releases"]:
        yield "Clean steps", _CLEAN, lambda: _clean_steps(training, loss, unit, certificate)


def _of_the_training(
    certificate: Certificate,
) -> Iterator[tuple[str, str, Callable[[], FigureData]]]:
    """Of runs that are counted together: what the steps of the longest one do."""
    if not certificate.parts:
        return
    longest = max(certificate.parts, key=_steps)
    training, loss = longest.training, longest.loss
    if training is None or loss is None or training.steps == 1 or not longest.unit.default:
        return
    releases = tuple(longest.content["releases"])
    began = time.perf_counter()
    account(training, loss, releases=releases).epsilon(certificate.delta)
    seconds = time.perf_counter() - began
    for name, caption, draw in _of_steps(training, loss, certificate.delta, releases, seconds):
        yield f"{name} of the training alone", f"{caption} {_ALONE}", draw


def _steps(certificate: Certificate) -> int:
    return 0 if certificate.training is None else certificate.training.steps


def _clean_steps(
    training: Training, loss: Loss, unit: PrivacyUnit, certificate: Certificate
) -> FigureData:
    began = time.perf_counter()
    account(training, loss, unit=unit).epsilon(certificate.delta)
    seconds = time.perf_counter() - began
    if seconds > _QUICK:
        raise UnsupportedError(
            f"The bound of this run takes {seconds:.1f} seconds, and the figure needs it for "
            "several numbers of steps. Draw it with lastiterate.report.epsilon_growth."
        )
    return epsilon_growth(training, loss, certificate.delta, unit=unit)


def _refuse(why: str) -> NoReturn:
    raise UnsupportedError(why)


def _with_claims(figure: FigureData, certificate: Certificate | None) -> FigureData:
    if certificate is None:
        return figure
    pairs = sorted([(certificate.delta, certificate.epsilon), *certificate.curve])
    name = "claimed by the certificate, verified"
    epsilons, deltas = [epsilon for _, epsilon in pairs], [delta for delta, _ in pairs]
    claims = Series(name, epsilons, deltas, "points", "reference")
    return dataclasses.replace(figure, series=(*figure.series, claims))


def _ready(name: str, caption: str, figure: FigureData, identifier: str) -> Drawn:
    columns = ("line", figure.x_label, figure.y_label or "theorem")
    rows = tuple(row for series in figure.series if series.name for row in _rows(series))
    if figure.subtitle:
        caption += f" ({figure.subtitle[0].upper()}{figure.subtitle[1:].rstrip('.')}.)"
    return Drawn(name, figure.title, caption, svg(figure, identifier), columns, rows)


def _rows(series: Series) -> Iterator[tuple[str, str, str]]:
    count = min(len(series.x), len(series.y))
    rows = count if series.shape == "bars" else _ROWS
    for k in np.unique(np.linspace(0, count - 1, min(count, rows)).round().astype(int)):
        x, y = (_cell(values[k], not series.lower) for values in (series.x, series.y))
        yield series.name, x, y


def _cell(value: Any, up: bool) -> str:
    """Five digits, rounded up where the line is a guarantee, down where it is a lower bound."""
    if isinstance(value, (int, np.integer)):
        return f"{int(value):,}"
    if not isinstance(value, (float, np.floating)):
        return str(value)
    if not math.isfinite(value):
        return "-" if math.isnan(value) else f"{value:g}"
    exact = float(value)
    return printed(exact, _DIGITS) if up else printed_down(exact, _DIGITS)
