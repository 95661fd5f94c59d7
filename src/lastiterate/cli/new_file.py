"""Files that a command was asked to write: never over an older one unless that was said."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lastiterate._internal.atomic_write import write_whole
from lastiterate.errors import LastIterateError

Force = Annotated[bool, typer.Option("--force", help="Write over older files of the same name.")]


def refuse_taken(paths: list[Path], force: bool, flag: str = "--output") -> None:
    """Stop before any work is done where a file would be lost."""
    for path in paths:
        if path.is_dir():
            raise LastIterateError(f"{path} is a folder: give {flag} the name of a file.")
        if not force and (path.exists() or path.is_symlink()):
            raise _taken(path, flag)


def write_new(path: Path, content: str | bytes, force: bool, flag: str = "--output") -> None:
    """Write a whole file; one that appeared in the meantime is not lost either."""
    try:
        raw = content.encode("utf-8") if isinstance(content, str) else content
        write_whole(path, raw, replace=force)
    except FileExistsError:
        raise _taken(path, flag) from None
    except OSError as error:
        raise LastIterateError(f"{path} cannot be written: {error.strerror}.") from None


def _taken(path: Path, flag: str) -> LastIterateError:
    return LastIterateError(
        f"{path} exists already, and it is not overwritten: whoever filed it would lose what it "
        f"says. Choose another name for {flag}, move that file away, or say --force."
    )
