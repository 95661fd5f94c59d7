"""The server: loopback, a free port, a token in the link, an end on Ctrl-C."""

from __future__ import annotations

import contextlib
import ctypes
import html
import logging
import os
import secrets
import select
import socket
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from waitress.server import create_server

from lastiterate.errors import LastIterateError
from lastiterate.explore.connections import MOST_CONNECTIONS, Connection
from lastiterate.explore.page import build
from lastiterate.explore.pool import Pool

HOST = "127.0.0.1"
_THREADS = 32
_MMAP_THRESHOLD = -3  # glibc's number for the size from which a piece is one of its own
_START_LIMIT = 60.0  # seconds for the workers to load


class Server:
    """The explorer on a port of this machine.

    >>> with Server() as server:
    ...     server.address.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, port: int = 0) -> None:
        self._listener = _listen(port)
        _give_memory_back()
        self.pool = Pool()
        self.token = secrets.token_urlsafe(24)
        self.app = build(self.pool, self.token)
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._waitress: Any = create_server(
            self.app.server,
            sockets=[self._listener],
            threads=_THREADS,
            connection_limit=2 * MOST_CONNECTIONS,  # of which half is asked to leave before
            asyncore_use_poll=hasattr(select, "poll"),
            channel_timeout=60,
            max_request_header_size=64 << 10,
            max_request_body_size=16 << 20,
            expose_tracebacks=False,
            ident=None,
        )
        self._waitress.channel_class = Connection

    @property
    def address(self) -> str:
        """Where the page is, for browsers that were let in."""
        return f"http://{HOST}:{self._listener.getsockname()[1]}/"

    @property
    def link(self) -> str:
        """The address with the token, which lets a browser in; other users of this machine do not
        know it.
        """
        return f"{self.address}?token={self.token}"

    def run(self) -> None:
        """Serve until interrupted."""
        self.pool.wait_until_ready(_START_LIMIT)
        self._waitress.run()

    def close(self) -> None:
        """Stop listening and end the workers."""
        self._waitress.close()
        self.pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(port: int = 0, *, browser: bool = True) -> None:
    """Run the explorer until Ctrl-C.

    Args:
        port: 0 takes any free one.
        browser: open the page.
    """
    with Server(port) as server, _redirecting_file(server.link) as file:
        print(f"lastiterate explore: {server.link}  (Ctrl-C ends it)", flush=True)
        if browser:
            threading.Timer(0.5, webbrowser.open, (file.as_uri(),)).start()
        server.run()


@contextlib.contextmanager
def _redirecting_file(link: str) -> Iterator[Path]:
    """A page that only this user can read and that leads to ``link``; deleted at the end.

    The arguments of the browser's process, which every user of the machine can list, name the file
    and not the token.
    """
    handle, name = tempfile.mkstemp(prefix="lastiterate-explore-", suffix=".html")  # mode 0600
    file = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as page:
            page.write(
                '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
                f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">'
                f'<a href="{html.escape(link)}">lastiterate explore</a>\n'
            )
        yield file
    finally:
        file.unlink(missing_ok=True)


def _give_memory_back() -> None:
    """Let glibc return large pieces to the system: else threads keep what uploads once needed."""
    with contextlib.suppress(OSError, AttributeError):  # other C libraries know what they do
        ctypes.CDLL("libc.so.6").mallopt(_MMAP_THRESHOLD, 1 << 20)


def _listen(port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or "a port is a number from 0 to 65535"
        raise LastIterateError(
            f"Cannot listen on port {port}: {reason}. Leave --port out to take any free one."
        ) from None
    return listener
