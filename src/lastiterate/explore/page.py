"""The Dash application: what happens when a field changes, a preset is chosen, a file arrives.

One callback answers a change of the form: it waits a moment for the pool and shows what is
there; a timer asks again until nothing is missing. Texts from the browser are never trusted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, html, no_update

from lastiterate.explore import answers, guard
from lastiterate.explore.fields import DEFAULTS, FIELDS
from lastiterate.explore.findings import (
    FIGURES,
    MOST_CERTIFICATE_BYTES,
    Outcome,
    Task,
    search_noise,
    tasks,
)
from lastiterate.explore.layout import graph, layout
from lastiterate.explore.pool import Pool
from lastiterate.explore.presets import PRESETS
from lastiterate.explore.reading import Description, Erasing, Reading, read, shown
from lastiterate.explore.state import from_query, from_values
from lastiterate.report.recipe import python_recipe, toml_recipe

PATIENCE = 0.17  # seconds that one request waits for its answers
_KEPT_UPLOADS, _KEPT_BYTES = 32, 32 << 20  # altogether

_NAMES = list(FIELDS)

# Everything that a change of the form may change, in the order of the callback's outputs.
_OUTPUTS = [
    *(Output(f"wrap-{name}", "className") for name in _NAMES),
    *(Output(f"message-{name}", "children") for name in _NAMES),
    *(Output(f"picture-{name}", "children") for name in FIGURES),
    *(Output(f"waiting-{name}", "children") for name in FIGURES),
    *(Output(f"box-{name}", "className") for name in FIGURES),
    Output("answer", "children"),
    Output("comparison", "children"),
    Output("python", "children"),
    Output("toml", "children"),
    Output("erasing", "children"),
    Output("hump-words", "children"),
    Output("shown", "data"),
    Output("tick", "disabled"),
]


def build(pool: Pool, token: str, patience: float = PATIENCE) -> Dash:
    """The application, with all its callbacks and guards; ``token`` lets a browser in."""
    app = Dash(
        "lastiterate.explore",
        assets_folder=str(Path(__file__).parent / "assets"),
        title="lastiterate explore",
        update_title="",
        serve_locally=True,
        routes_pathname_prefix="/",
        requests_pathname_prefix=guard.secret_room(token),  # what the browser asks for
        add_log_handler=False,
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
        index_string=_INDEX,
    )
    app.layout = layout()
    app.enable_dev_tools(debug=False)
    uploads = Uploads()
    in_the_browser: Any = app.clientside_callback  # which Dash leaves without types

    in_the_browser(
        ClientsideFunction("explore", "gather"),
        Output("state", "data"),
        *(Input(f"field-{name}", "value") for name in _NAMES),
        State("names", "data"),
    )

    in_the_browser(
        ClientsideFunction("explore", "mark"), Output("marked", "data"), Input("shown", "data")
    )

    @app.callback(
        *(Output(f"field-{name}", "value") for name in _NAMES),
        Output("notice", "children"),
        Input("url", "search"),
        *(Input(f"preset-{name}", "n_clicks") for name in PRESETS),
    )
    def fill(search: Any, *_clicks: Any) -> list[Any]:
        """All fields, from the link or from a preset."""
        preset = PRESETS.get(str(ctx.triggered_id).removeprefix("preset-"))
        if preset is None:
            state, notices = from_query(search)
            if state == DEFAULTS and not notices:  # the door, not a link
                state |= PRESETS["logistic"].values
            return [*(state[name] for name in _NAMES), " ".join(notices)]
        return [*(preset.values.get(name, no_update) for name in _NAMES), preset.words]

    @app.callback(
        *_OUTPUTS,
        Input("state", "data"),
        Input("tick", "n_intervals"),
        State("shown", "data"),
        prevent_initial_call=True,
    )
    def refresh(values: Any, _ticks: Any, before: Any) -> list[Any]:
        """Everything that follows from the fields."""
        return change(pool, values, before, patience)

    @app.callback(
        Output("verdict", "children"),
        Output("uploaded", "data"),
        Output("upload-tick", "disabled"),
        Input("upload", "contents"),
        Input("upload-tick", "n_intervals"),
        State("upload", "filename"),
        State("uploaded", "data"),
        prevent_initial_call=True,
    )
    def check(contents: Any, _ticks: Any, filename: Any, token: Any) -> list[Any]:
        """An uploaded certificate, verified."""
        name = str(filename)[:80] if isinstance(filename, str) else "the file"
        if ctx.triggered_id == "upload" or not isinstance(token, str):
            raw, problem = decode_upload(contents)
            if raw is None:
                return [answers.verdict(Outcome(refused=problem), name), None, True]
            token = uploads.keep(raw)
        kept = uploads.get(token)
        if kept is None:
            lost = Outcome(refused="The file is no longer here; please choose it again.")
            return [answers.verdict(lost, name), None, True]
        task = Task("certificate", kept, heavy=True)
        outcome = pool.ask([task], patience)[task]
        return [answers.verdict(outcome, name), token, outcome is not None]

    guard.protect(app, token)
    return app


def change(pool: Pool, values: Any, before: Any, patience: float) -> list[Any]:
    """The outputs for a form, given what the browser shows already."""
    state = from_values(values)
    reading = read(state)
    key = hashlib.sha256(repr(sorted(state.items())).encode()).hexdigest()[:16]
    done = _done(before, key)
    began, noise = time.monotonic(), None
    if reading.sought is not None:
        search = search_noise(reading.sought)
        noise = pool.ask([search], patience)[search]
        if noise is not None and isinstance(noise.value, Description):
            reading.description = noise.value
    wanted = list(tasks(reading.description)) if reading.description else []
    hump = [Task("hump", reading.hump)] if reading.hump else []
    erase = []
    if reading.description is not None and reading.forget is not None:
        asked = Erasing(reading.description, reading.forget)
        erase = [Task("erasing", asked, heavy=True, urgency=3, limit=5.0)]
    left = max(0.0, patience - (time.monotonic() - began))
    found = pool.ask([*wanted, *erase, *hump], left)
    outcomes = {task: found[task] for task in wanted}
    visible = shown(state)
    result: list[Any] = []
    result += [_field_class(name, visible, reading) for name in _NAMES]
    result += [reading.complaints.get(name, "") for name in _NAMES]
    pictures = {task.kind: outcome for task, outcome in found.items() if task.kind in FIGURES}
    for name in FIGURES:
        result.append(_figure(pictures, name, name in done))
    for name in FIGURES:
        result.append(_waiting(pictures, name))
    for name in FIGURES:
        result.append("card figure" if name in pictures else "card figure empty")
    if reading.description is not None:
        about = reading.description
        described = about.training, about.loss, about.delta
        result += [
            answers.answer(reading.description, outcomes, sought=reading.sought is not None),
            answers.comparison(reading.description, outcomes),
            python_recipe(*described, unit=about.unit),
            toml_recipe(*described, unit=about.unit),
        ]
    else:
        waits = reading.sought is not None
        result += [answers.seeking(noise) if waits else _not_yet(reading), [], "", ""]
    result.append(answers.erasing_words(found[erase[0]]) if erase else html.P("Not yet."))
    result.append(answers.hump_words(found[hump[0]]) if hump else html.P("Not yet: see the marks."))
    finished = [name for name, outcome in pictures.items() if outcome is not None]
    result.append({"key": key, "done": finished})
    searching = reading.sought is not None and noise is None
    result.append(not searching and all(outcome is not None for outcome in found.values()))
    return result


def _done(before: Any, key: str) -> set[str]:
    """The pictures of this very state that the browser has already."""
    if not isinstance(before, dict) or before.get("key") != key:
        return set()
    names = before.get("done")
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()


def _field_class(name: str, visible: set[str], reading: Reading) -> str:
    if name not in visible:
        return "field absent"
    return "field invalid" if name in reading.complaints else "field"


def _picture(outcome: Outcome | None) -> dict[str, Any] | None:
    if outcome is None or outcome.value is None:
        return None
    figure: dict[str, Any] = outcome.value
    return figure


def _figure(pictures: dict[str, Outcome | None], name: str, done: bool) -> Any:
    figure = _picture(pictures.get(name))
    if figure is None:
        return []
    return no_update if done else graph(name, figure)


def _waiting(pictures: dict[str, Outcome | None], name: str) -> str:
    if name not in pictures:
        return ""
    outcome = pictures[name]
    if outcome is None:
        return "Drawing …"
    if outcome.overrun:
        return "This picture takes longer than a page waits; the Python below can draw it."
    return outcome.refused


def _not_yet(reading: Reading) -> Any:
    words = "Some fields cannot be read; they are marked, with the reason."
    return [html.H2("No answer yet"), html.P(words, id="not-yet")]


def decode_upload(contents: Any) -> tuple[bytes | None, str]:
    """The bytes of an upload, or words why there are none."""
    if not isinstance(contents, str) or "," not in contents[:200]:
        return None, "No file arrived."
    encoded = contents.split(",", 1)[1]
    if len(encoded) > MOST_CERTIFICATE_BYTES * 4 // 3 + 4:
        return None, (
            f"The file has more than {MOST_CERTIFICATE_BYTES >> 20} MiB, the most this page reads. "
            "Use: lastiterate verify FILE"
        )
    try:
        return base64.b64decode(encoded, validate=True), ""
    except (binascii.Error, ValueError):
        return None, "The file did not arrive whole."


class Uploads:
    """The last few uploaded files, by their hash."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._lock = Lock()

    def keep(self, raw: bytes) -> str:
        """Keep a file; its name here."""
        token = hashlib.sha256(raw).hexdigest()
        with self._lock:
            self._files[token] = raw
            while len(self._files) > _KEPT_UPLOADS or self._bytes() > _KEPT_BYTES:
                self._files.popitem(last=False)
        return token

    def get(self, token: str) -> bytes | None:
        """The file of this name, if it is still here."""
        with self._lock:
            return self._files.get(token)

    def _bytes(self) -> int:
        return sum(map(len, self._files.values()))


_INDEX = """<!DOCTYPE html>
<html lang="en">
<head>{%metas%}<title>{%title%}</title>{%favicon%}{%css%}</head>
<body>{%app_entry%}<footer>{%config%}{%scripts%}{%renderer%}</footer></body>
</html>"""
