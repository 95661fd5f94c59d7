"""What the page shows, as texts: one per field. In the link, and in nothing else.

Reading a link never fails: what cannot be a text of a field is named in a notice, and what is a
bad text stays in its field, where `read` marks it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from lastiterate.explore.fields import DEFAULTS, FIELDS

State = dict[str, str]

LONGEST_TEXT = 60  # characters of a field
_LONGEST_LINK = 8_000
_MOST_PAIRS = 200


def from_query(query: object) -> tuple[State, list[str]]:
    """The state that a link describes (defaults where it is silent), and what it got wrong."""
    state, notices = dict(DEFAULTS), list[str]()
    if not isinstance(query, str) or not query.strip("?"):
        return state, notices
    if len(query) > _LONGEST_LINK:
        return state, ["The link is longer than any this page writes; it was not read."]
    try:
        pairs = parse_qsl(
            query.removeprefix("?"), keep_blank_values=True, max_num_fields=_MOST_PAIRS
        )
    except ValueError:
        return state, ["The link has more fields than this page; it was not read."]
    for name, text in pairs:
        problem = _problem(name, text)
        if problem:
            notices.append(problem)
        else:
            state[name] = text
    return state, notices


def from_values(values: object) -> State:
    """The state in what a browser sent; whatever is no text of a field is left at its default."""
    given = values if isinstance(values, Mapping) else {}
    return DEFAULTS | {
        name: value
        for name, value in given.items()
        if isinstance(name, str) and isinstance(value, str) and not _problem(name, value)
    }


def _problem(name: str, text: str) -> str | None:
    field = FIELDS.get(name)
    if field is None:
        return f"The link has a field {name[:LONGEST_TEXT]!r}, which this page does not know."
    if len(text) > LONGEST_TEXT:
        return f"{field.label}: a text of {len(text)} characters is not a value; it was left out."
    if field.kind == "choice" and text not in dict(field.options):
        options = ", ".join(repr(value) for value, _ in field.options)
        return (
            f"{field.label}: the link says {text!r}, but must say one of {options}; "
            f"{field.default!r} is shown instead."
        )
    return None
