"""Shows the examples of docstrings as code, and their formulas as they are written."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n[ ]*\S.*)*", re.MULTILINE)
PRODUCT = re.compile(r"(?<=[\w)\]²])\*(?=[\w(\[√])")  # 2*eta*K is a product, not emphasis


class Doctests(Extension):
    """Puts every `>>>` example into a fence; elsewhere escapes what Markdown would swallow."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = readable(obj.docstring.value)


def readable(text: str) -> str:
    parts, end = [], 0
    for example in EXAMPLE.finditer(text):
        indent = example[1]
        code = example[0].replace("  # doctest: +SKIP", "")
        parts += [_prose(text[end : example.start()]), f"{indent}```pycon\n{code}\n{indent}```"]
        end = example.end()
    return "".join([*parts, _prose(text[end:])])


def _prose(text: str) -> str:
    """Lines that are indented as code, and code within backticks, stay as they are."""
    lines = []
    for line in text.split("\n"):
        pieces = line.split("`")
        pieces[::2] = [PRODUCT.sub(r"\\*", piece) for piece in pieces[::2]]
        lines.append(line if line.startswith("        ") else "`".join(pieces))
    return "\n".join(lines)
