"""Connections that end: whoever sends or reads byte by byte does not keep others out.

Waitress takes every byte for a sign of life, and stops accepting when it has enough connections. So
an exchange (a request that arrives, an answer that leaves) has a time limit as a whole, and where
there are too many connections the one that was last of use to anybody makes room.
"""

from __future__ import annotations

import math
import socket
import time
from contextlib import suppress
from typing import Any

from waitress.channel import HTTPChannel

EXCHANGE_LIMIT = 10.0  # seconds for a request to arrive, and for its answer to leave
MOST_CONNECTIONS = 512


class Connection(HTTPChannel):  # type: ignore[misc]  # Waitress has no types
    """One connection, with its deadline."""

    def __init__(self, server: Any, *rest: Any, **named: Any) -> None:
        self.useful = False  # whether it has ever sent a whole request
        self._since = time.monotonic()
        super().__init__(server, *rest, **named)
        others = (each for each in server.active_channels.values() if each is not self)
        waiting = [each for each in others if not (each.requests or each.will_close)]
        if len(waiting) >= MOST_CONNECTIONS:
            min(waiting, key=lambda each: (each.useful, each.last_activity)).drop()

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way, in either direction."""
        return self.useful and self.request is None and not self.total_outbufs_len

    def received(self, data: bytes) -> bool:
        """Something arrived."""
        if self.idle:
            self._since = time.monotonic()
        taken: bool = super().received(data)
        self.useful = self.useful or bool(self.requests)
        return taken

    def service(self) -> None:
        """Answer what was asked, for as long as that takes; then the time of the answer begins."""
        self._since = math.inf
        super().service()
        self._since = time.monotonic()

    def readable(self) -> bool:
        """Whether to read on; asked of every connection whenever anything happens."""
        late = time.monotonic() - self._since > EXCHANGE_LIMIT
        if late and not (self.idle or self.requests or self.will_close):
            self.drop()
        answer: bool = super().readable()
        return answer

    def drop(self) -> None:
        """End it; a socket that is shut down wakes the loop, which closes it."""
        self.will_close = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
