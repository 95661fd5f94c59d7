"""The help of commands as it was written: brackets are no markup, paragraphs flow.

Rich reads ``[training]`` as a colour and leaves it out. Typer before 0.21 loses the help of
arguments where click is 8.5 or newer; the annotations still have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_type_hints

from rich.markup import escape
from typer.core import TyperCommand


def plain_help(command: Callable[..., None]) -> type[TyperCommand]:
    """The class of a command whose help is shown word for word."""
    hints = get_type_hints(command, include_extras=True)
    written = {name: hint.__metadata__[0].help for name, hint in hints.items() if _told(hint)}

    class Command(TyperCommand):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.help = _flowing(self.help or "")
            for parameter in self.params:
                text = getattr(parameter, "help", None) or written.get(parameter.name or "")
                if text:
                    parameter.help = escape(text)

    return Command


def _told(hint: Any) -> bool:
    return hasattr(hint, "__metadata__") and hasattr(hint.__metadata__[0], "help")


def _flowing(text: str) -> str:
    """Each paragraph on one line: the terminal breaks it."""
    return escape("\n\n".join(" ".join(part.split()) for part in text.split("\n\n")))
