"""Results as small pieces of HTML, for notebooks: escaped, and nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape as _escape

from lastiterate._internal.formatting import escaped


def escape(text: str) -> str:
    """No markup, and no sign that hides or turns others."""
    return _escape(escaped(text))


_CELL = "text-align:left;vertical-align:top;padding:0.1em 0.8em 0.1em 0"


def html_table(
    heading: str, rows: Iterable[Sequence[str]], *, warning: str = "", details: str = ""
) -> str:
    """A heading, a warning in bold if there is one, a table, and text that opens on demand.

    >>> html_table("epsilon <= 1", [("by", "a < b")]).count("&lt;")
    2
    """
    lines = [f"<p><strong>{escape(warning)}</strong></p>"] if warning else []
    lines.append(f"<p>{escape(heading)}</p>")
    cells = ["".join(f'<td style="{_CELL}">{escape(text)}</td>' for text in row) for row in rows]
    if cells:
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        lines.append(f"<table><tbody>{body}</tbody></table>")
    if details:
        whole = f'<pre style="white-space:pre-wrap">{escape(details)}</pre>'
        lines.append(f"<details><summary>in full</summary>{whole}</details>")
    return f"<div>{''.join(lines)}</div>"
