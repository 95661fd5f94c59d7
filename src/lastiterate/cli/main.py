"""The entry point of the command `lastiterate`: run one command, leave with an exit code.

Errors become one message on stderr, never a traceback. Exit codes: 0 done, 2 bad input, 3 a check
failed (`verify`, `audit`). Typer is imported late, so that its absence gets a message too. Commands
of the program that read strangers' files run in a second process (`confined`).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from lastiterate._internal.folder_replacement import finish_replacement
from lastiterate.cli import confined
from lastiterate.errors import EstimateWarning, LastIterateError

BAD_INPUT = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells report it
READER_GONE = 1  # what Typer itself says when its output is cut

_NO_TYPER = (
    "The command line needs typer and rich, which are not installed. "
    'Run: pip install "lastiterate[cli]"'
)


def run(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments, run the command, exit."""
    alone = arguments is None and sys.argv[1:2] and sys.argv[1] in confined.CONFINED
    given = list(sys.argv[1:] if arguments is None else arguments)
    confined.program = arguments is None
    for word in given:  # before a command looks for a folder whose replacement was interrupted
        path = word.partition("=")[2] if word.startswith("-") else word
        finish_replacement(path)
        finish_replacement(os.path.dirname(path))
    if arguments is None:  # our second process and workers start as `python -m` or `-c`, which
        os.environ["PYTHONSAFEPATH"] = "1"  # would import what a stranger's working folder holds
    leave(lambda: confined.confined(given) if alone else invoke(given or ["--help"]))


def leave(command: Callable[[], int]) -> NoReturn:
    """Exit with the command's code, or with that of what interrupted it."""
    try:
        code = command()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    sys.exit(code)


def invoke(arguments: list[str]) -> int:
    """Run one command in this process."""
    try:
        import rich  # noqa: F401
        import typer
    except ImportError:
        return complain(_NO_TYPER)
    from lastiterate.cli.application import application

    # The base class of everything that parsing raises; old and new Typer keep it elsewhere.
    parsing_error: Any = typer.BadParameter.__mro__[2]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EstimateWarning)  # the commands say it themselves
            result = application()(args=arguments, prog_name="lastiterate", standalone_mode=False)
    except LastIterateError as error:
        return complain(str(error))
    except parsing_error as error:
        message = error.format_message().rstrip(".")
        return complain(f"{message}. See: lastiterate {_command(error)}--help")
    except typer.Abort:
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else 0


def _command(error: Any) -> str:
    """The command whose flags were wrong, if parsing got that far."""
    context = getattr(error, "ctx", None)
    return f"{context.info_name} " if context is not None and context.parent is not None else ""


def complain(message: str) -> int:
    """Bad input, in one message on stderr."""
    from lastiterate.cli.output import escaped

    print(f"lastiterate: {escaped(message)}", file=sys.stderr)
    return BAD_INPUT
