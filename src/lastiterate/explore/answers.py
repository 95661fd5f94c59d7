"""Findings in words and tables.

Epsilon is always the smallest of the bounds that have been proved so far, so it is a guarantee at
every moment; while a search is still running the page says that it may become smaller.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from dash import html

from lastiterate._internal.formatting import escaped, percent, printed, printed_down
from lastiterate.certificate.certificate import weakness
from lastiterate.description.assumptions import not_covered
from lastiterate.description.fields import large_delta
from lastiterate.explore.findings import FALSE_ALARMS, Bounded, HumpFound, Outcome, Task
from lastiterate.explore.reading import Description
from lastiterate.theory import BY_KEY

Outcomes = Mapping[Task, Outcome | None]


def answer(description: Description, outcomes: Outcomes, *, sought: bool = False) -> Any:
    """Epsilon, in a number and in words; what a loss really suffers; where growth ends.

    ``sought``: the noise was to be found, and is shown first.
    """
    bounds = {task.theorem: outcome for task, outcome in outcomes.items() if task.kind == "bound"}
    wanted = [theorem.key for theorem in description.candidates]
    if not wanted:
        whom = description.unit.words(description.training)
        words = f"No theorem covers {whom} in this run; below is what each one misses."
        return [html.H2("No guarantee"), html.P(words, id="not-covered")]
    waiting = _names(key for key in wanted if bounds.get(key) is None)
    given_up = _names(key for key in wanted if (o := bounds.get(key)) and o.value is None)
    # Until the tightest ones are there, any other sound bound is a guarantee too.
    pool = bounds if waiting or given_up else wanted
    proved = {k: o.value for k in pool if (o := bounds.get(k)) and isinstance(o.value, Bounded)}
    if not proved:
        return [html.H2("Epsilon"), html.P("Searching: " + ", ".join(waiting or given_up) + " …")]
    key, best = min(proved.items(), key=lambda item: item[1].epsilon)
    lower = _single(outcomes, "lower")
    parts: list[Any] = [
        html.H2("Privacy of what is released"),
        *([_noise_words(description)] if sought else []),
        _numbers(description, BY_KEY[key].name, best, lower),
        html.P(_in_words(description, min(bound.detected for bound in proved.values()))),
        html.P(_plateau_words(outcomes, best), id="plateau"),
    ]
    if said := large_delta(description.delta, description.training.records):
        parts.insert(1, html.P(_sentence(said), className="searching", id="large-delta"))
    if waiting:
        parts.append(
            html.P(
                f"This holds already. {', '.join(waiting)} may still make it smaller: searching …",
                className="searching",
                id="searching",
            )
        )
    if given_up:
        parts.append(
            html.P(
                f"{', '.join(given_up)} was not finished in time for a page and may give a smaller "
                "epsilon: run the Python below.",
                className="searching",
            )
        )
    if best.note:
        parts.append(html.P(best.note))
    parts.append(
        html.Details(
            [
                html.Summary("What this does not cover"),
                html.Ul([html.Li(text) for text in not_covered(description.training)]),
            ]
        )
    )
    return parts


def _names(keys: Iterable[str]) -> list[str]:
    return [BY_KEY[key].name for key in keys]


def _numbers(description: Description, name: str, best: Bounded, lower: Outcome | None) -> Any:
    if lower is None:
        below = "searching …"
    elif lower.value is None:
        below = "not known here"
    else:
        below = printed_down(lower.value) if lower.value else "not known"
    return html.Dl(
        [
            html.Div([html.Dt("epsilon at most"), html.Dd(printed(best.epsilon), id="epsilon")]),
            html.Div([html.Dt("at delta"), html.Dd(f"{printed(description.delta)}")]),
            html.Div([html.Dt("for"), html.Dd(str(description.unit), id="whom", className="name")]),
            html.Div([html.Dt("some loss really suffers"), html.Dd(below, id="lower")]),
            html.Div(
                [html.Dt("mu"), html.Dd("–" if best.mu is None else printed(best.mu), id="mu")]
            ),
            html.Div([html.Dt("by"), html.Dd(name, id="theorem", className="name")]),
        ],
        className="numbers",
    )


def _noise_words(description: Description) -> Any:
    """The noise that was found, in both ways of telling it; rounded up, which is safe."""
    training = description.training
    if not isinstance(training.noise, float) or not isinstance(training.step_size, float):
        deviation = "one for each step: see the Python below"
        return html.P(["Noise you need: ", html.B(deviation, id="noise-needed")])
    said: list[Any] = ["Noise you need: ", html.B(printed(training.noise), id="noise-needed")]
    scale = training.step_size * training.gradient_norm
    if 0 < scale < math.inf:
        multiplier = training.noise * training.batches.divisor(training.records) / scale
        said += [" in one update, a noise multiplier of ", html.B(printed(multiplier))]
    return html.P([*said, "."])


def seeking(outcome: Outcome | None) -> Any:
    """While the noise is not found, or where there is none."""
    words = "Searching for the least noise …"
    if outcome is not None:
        words = outcome.refused or "The search takes longer than a page waits: use calibrate."
    return [html.H2("Noise you need"), html.P(words, id="seeking")]


def erasing_words(outcome: Outcome | None) -> Any:
    """The plan, line by line."""
    if outcome is None:
        return html.P("Searching …")
    if not isinstance(outcome.value, str):
        words = outcome.refused or "Not finished in time for a page: use plan_unlearning."
        return html.P(words)
    return [html.P(line) for line in outcome.value.splitlines()]


def _in_words(description: Description, found: float) -> str:
    training = description.training
    what = {"replace": "was replaced by another", "zero-out": "was left out"}[training.adjacency]
    whose = "one record"
    if not description.unit.default:
        whose = f"{description.unit},"
        what = {"replace": "had all data replaced", "zero-out": "had all data left out"}[
            training.adjacency
        ]
    sees = (
        "the last iterate"
        if training.release == "last"
        else "the average of the last iterates (or all of them)"
    )
    return (
        f"Somebody who sees {sees} and nothing else of the run, and who knows every other record, "
        f"wants to tell whether {whose} {what}. Any test that is wrong about "
        f"{percent(FALSE_ALARMS)} of the untouched runs notices at most {percent(found)} of the "
        "others. The constants of the loss are declared by you; the guarantee is as true as they "
        "are."
    )


def _plateau_words(outcomes: Outcomes, best: Bounded) -> str:
    found = _single(outcomes, "plateau")
    if not math.isfinite(best.epsilon):
        return "No plateau: no finite epsilon holds. A step that uses a record needs noise."
    if found is None:
        return "Plateau: searching …"
    if found.refused:
        return f"Plateau: {found.refused}"
    if found.overrun:
        return "Plateau: not found in time for a page."
    if found.value is None:
        return "No plateau: epsilon keeps growing with the steps."
    return (
        f"Plateau: after step {found.value:,} epsilon grows by less than 1 % for ever; "
        "more training costs nothing."
    )


def _single(outcomes: Outcomes, kind: str) -> Outcome | None:
    return next((outcome for task, outcome in outcomes.items() if task.kind == kind), None)


def comparison(description: Description, outcomes: Outcomes) -> Any:
    """Every theorem: its epsilon, or its objection."""
    rows = []
    for task, outcome in outcomes.items():
        if task.kind == "bound":
            value, text = _bound_text(outcome)
            rows.append((value, text, BY_KEY[task.theorem]))
    rows.sort(key=lambda row: row[0])
    objections = [
        (t, reason) for t, reason in description.inapplicable_reasons if reason is not None
    ]
    return [
        html.H2("Every bound side by side"),
        html.Table(
            [
                html.Thead(
                    html.Tr(
                        [
                            html.Th(name, scope="col")
                            for name in ("epsilon", "theorem", "status", "reference")
                        ]
                    )
                ),
                html.Tbody(
                    [
                        html.Tr(
                            [
                                html.Td(text, className="number"),
                                html.Th(theorem.name, scope="row", title=theorem.statement),
                                html.Td(theorem.status),
                                html.Td(theorem.reference),
                            ]
                        )
                        for _, text, theorem in rows
                    ]
                ),
            ]
        ),
        html.Details(
            [
                html.Summary(f"{len(objections)} theorems do not apply, and why"),
                html.Dl(
                    [
                        piece
                        for theorem, reason in objections
                        for piece in (
                            _plain("Dt", f"{theorem.name} ({theorem.status})"),
                            _plain("Dd", _sentence(reason)),
                        )
                    ],
                    className="objections",
                ),
            ]
        ),
    ]


def _plain(kind: str, words: str) -> Any:
    """An element as the browser gets it: a component for each of so many takes most of the time."""
    return {"namespace": "dash_html_components", "type": kind, "props": {"children": words}}


def _bound_text(outcome: Outcome | None) -> tuple[float, str]:
    if outcome is None:
        return math.inf, "searching …"
    if isinstance(outcome.value, Bounded):
        return outcome.value.epsilon, printed(outcome.value.epsilon)
    return math.inf, outcome.refused or "not finished in time for a page"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")


def hump_words(outcome: Outcome | None) -> Any:
    """The peak of the hump in a sentence."""
    if outcome is None:
        return html.P("Searching …")
    found = outcome.value
    if not isinstance(found, HumpFound):
        return html.P(outcome.refused or "Not finished in time for a page.")
    return html.P(
        [
            "The chain leaks most after epoch ",
            html.B(f"{found.peak}", id="hump-peak"),
            ": epsilon is at least ",
            html.B(f"{printed_down(found.exact, 5)}", id="hump-exact"),
            " (best threshold, exact mixture); the published Chernoff bound gives ",
            html.B(f"{printed_down(found.chernoff, 5)}", id="hump-chernoff"),
            f". One exact posterior sample has epsilon at most {printed(found.posterior)}."
            if found.posterior is not None
            else ".",
        ]
    )


def verdict(outcome: Outcome | None, name: str) -> Any:
    """What an uploaded certificate is worth."""
    name = escaped(name)
    if outcome is None:
        return html.Div(
            [html.Strong("CHECKING"), html.P(f"Recomputing {name} …")], className="status"
        )
    if outcome.value is None:
        why = outcome.refused or (
            "The check takes longer than a page waits. Use: lastiterate verify FILE"
        )
        heading = "REFUSED" if outcome.refused else "NOT CHECKED"
        return html.Div(
            [html.Strong(heading), html.P(f"{name}: {escaped(why)}")], className="status refused"
        )
    found = outcome.value
    certificate = found.certificate
    label = f", data {certificate.dataset!r}" if certificate.dataset else ""
    weak = weakness(certificate)
    return html.Div(
        [
            html.Strong("VERIFIED, BUT A WEAK PROMISE" if weak else "VERIFIED"),
            *([html.P(_sentence(weak))] if weak else []),
            html.P(
                f"{name}: epsilon <= {found.epsilon!r} at delta = {found.delta!r}, "
                f"{certificate.adjacency} adjacency{label}. {certificate.theorem}."
            ),
            html.P(f"Released: {certificate.release}."),
            html.P("It rests on: " + "; ".join(certificate.assumptions) + "."),
            html.P("Not covered: " + "; ".join(certificate.not_covered) + "."),
        ],
        className="status refused" if weak else "status verified",
    )
