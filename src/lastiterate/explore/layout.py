"""The page as a tree of components: the answer first, the form beside it, the reasons below.

Sliders are made by the page's own script beside their fields: a slider proposes a text, and the
text is what counts. Every field has a label, a place for its complaint, and words that explain it.
"""

from __future__ import annotations

from typing import Any

from dash import dcc, html

from lastiterate.explore.fields import (
    DEFAULTS,
    ERASE,
    FIELDS,
    LOSS,
    PERSON,
    RELEASE,
    RUN,
    SGLD,
    Field,
)
from lastiterate.explore.presets import PRESETS

POLL = 700  # milliseconds between two questions for what is still being computed

_CAPTIONS = {
    "growth": "Epsilon against steps",
    "string": "The taut string",
    "curve": "Privacy curve",
}


def layout() -> Any:
    """The whole page."""
    return html.Div(
        [
            dcc.Location(id="url", refresh=False),
            dcc.Store(id="names", data=list(FIELDS)),
            dcc.Store(id="state"),
            dcc.Store(id="shown"),
            dcc.Store(id="uploaded"),
            dcc.Store(id="marked"),
            dcc.Interval(id="tick", interval=POLL, disabled=True),
            dcc.Interval(id="upload-tick", interval=POLL, disabled=True),
            html.A("Skip to the answer", href="#answer", className="skip"),
            html.Header(
                [
                    html.H1("lastiterate explore"),
                    html.P(
                        "Describe a noisy training run; see what its last iterate gives away. "
                        "Everything is computed on this machine, nothing leaves it."
                    ),
                ]
            ),
            html.Main([_answer(), _form(), _answers()]),
        ],
        id="page",
    )


def _attributes(**texts: str) -> dict[str, Any]:
    """Attributes whose names have a hyphen."""
    return {name.replace("_", "-"): text for name, text in texts.items()}


def _form() -> Any:
    return html.Section(
        [
            html.H2("The run"),
            _presets("Start from", paper=False),
            html.Details(
                [html.Summary("From the papers"), _presets("Presets from the papers", paper=True)],
                className="papers",
            ),
            html.P(id="notice", className="notice", role="status"),
            *(_field(field) for field in RUN),
            html.H2("The loss"),
            *(_field(field) for field in LOSS),
            html.H2("The release"),
            *(_field(field) for field in RELEASE),
            html.H2("For whom"),
            *(_field(field) for field in PERSON),
            html.Button(
                "Copy a link to this page",
                type="button",
                className="copy",
                **_attributes(data_copy="link"),
            ),
        ],
        id="form",
        **_attributes(aria_label="Describe the run"),
    )


def _presets(label: str, *, paper: bool) -> Any:
    return html.Div(
        [
            html.Button(preset.label, id=f"preset-{name}", title=preset.words, type="button")
            for name, preset in PRESETS.items()
            if preset.paper is paper
        ],
        className="presets",
        role="group",
        **_attributes(aria_label=label),
    )


def _answer() -> Any:
    return html.Section(
        html.Div(id="answer", className="card", tabIndex="-1"),
        id="first",
        **_attributes(aria_label="What the run gives away"),
    )


def _field(field: Field) -> Any:
    complaint = html.P(id=f"message-{field.name}", className="message", role="alert")
    if field.kind == "choice":
        control: Any = html.Fieldset(
            [
                html.Legend(field.label),
                dcc.RadioItems(
                    id=f"field-{field.name}",
                    options=[{"value": v, "label": label} for v, label in field.options],
                    value=DEFAULTS[field.name],
                    className="choices",
                ),
            ]
        )
    else:
        control = html.Div(
            [
                html.Label(field.label, htmlFor=f"field-{field.name}"),
                dcc.Input(
                    id=f"field-{field.name}",
                    type="text",
                    value=DEFAULTS[field.name],
                    autoComplete="off",
                    spellCheck="false",
                    placeholder="none" if field.blank else "",
                ),
                _slider(field),
                html.P(field.words, id=f"words-{field.name}", className="words"),
            ]
        )
    return html.Div([control, complaint], id=f"wrap-{field.name}", className="field")


def _slider(field: Field) -> Any:
    return html.Div(
        className="slider",
        **_attributes(
            data_field=field.name,
            data_label=f"{field.label}, slider",
            data_low=repr(field.low),
            data_high=repr(field.high),
            data_log=str(field.log).lower(),
            data_whole=str(field.kind == "whole" or field.name == "length").lower(),
        ),
    )


def _answers() -> Any:
    return html.Section(
        [
            _figure("growth"),
            html.Div(id="comparison", className="card"),
            _figure("string"),
            _figure("curve"),
            _code(),
            _erase(),
            _certificate(),
            _sgld(),
        ],
        id="answers",
        **_attributes(aria_label="Why, and what follows"),
    )


def _figure(name: str) -> Any:
    return html.Figure(
        [html.P(id=f"waiting-{name}", className="waiting"), html.Div(id=f"picture-{name}")],
        id=f"box-{name}",
        className="card figure empty",
        **_attributes(aria_label=_CAPTIONS[name]),
    )


def graph(name: str, figure: Any) -> Any:
    """A picture, at a size that it can be drawn in, under its finding in words."""
    said = figure["layout"]["meta"]
    return [
        html.H3(said["heading"], id=f"heading-{name}"),
        dcc.Graph(
            id=f"figure-{name}",
            figure=figure,
            responsive=True,
            config={"displaylogo": False, "displayModeBar": False},
            style={"height": "24rem"},
        ),
        html.P(said["detail"], className="words"),
    ]


def _code() -> Any:
    return html.Div(
        [
            html.H2("Reproduce it"),
            _copied("Python", "python"),
            _copied("TOML, for the command lastiterate account FILE", "toml"),
        ],
        className="card",
    )


def _copied(title: str, name: str) -> Any:
    return html.Div(
        [
            html.H3(title),
            html.Button(
                "Copy",
                type="button",
                className="copy",
                **_attributes(data_copy=name, aria_label=f"Copy the {title}"),
            ),
            html.Pre(html.Code(id=name), tabIndex="0"),
        ],
        className="code",
    )


def _certificate() -> Any:
    return html.Div(
        [
            html.H2("Check a certificate"),
            html.P("A file written by certify is recomputed here, trusting nobody."),
            dcc.Upload(
                html.Button("Choose a certificate, or drop it here", type="button"),
                id="upload",
                multiple=False,
                className="upload",
            ),
            html.Div(id="verdict", role="status"),
        ],
        className="card",
        id="certificate",
    )


def _erase() -> Any:
    return html.Div(
        [
            html.H2("Erase somebody"),
            html.P(
                "After this run: how many steps on what remains bring the model as near as you ask "
                "to one that never saw the records; beside it, what the untouched model tells and "
                "whether starting again is better."
            ),
            html.Div([_field(field) for field in ERASE], className="row"),
            html.Div(id="erasing", role="status"),
        ],
        className="card",
        id="erase",
    )


def _sgld() -> Any:
    return html.Div(
        [
            html.H2("SGLD between start and convergence"),
            html.P(
                "Heller and Fetaya 2022: Bayesian linear regression on equal records, one of which "
                "may be half as long. One exact posterior sample gives away next to nothing; the "
                "chain on its way there does. These are lower bounds on epsilon: no proof can "
                "promise less."
            ),
            html.Div([_field(field) for field in SGLD], className="row"),
            html.Div(id="hump-words", role="status"),
        ],
        className="card",
        id="sgld",
    )
