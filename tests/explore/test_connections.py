"""Connections that trickle, stand still or do not read: they end, and others are answered."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from patience import HANG_SECONDS
from waitress.server import create_server

from lastiterate.explore import connections
from lastiterate.explore.connections import Connection

LARGE = b"x" * (4 << 20)


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A server with small limits, in a thread."""
    monkeypatch.setattr(connections, "EXCHANGE_LIMIT", 1.0)
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 20)

    def application(environ, start):
        if environ["PATH_INFO"] == "/patient":
            time.sleep(1.5)
        body = LARGE if environ["PATH_INFO"] == "/large" else b"here"
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    listener = socket.create_server(("127.0.0.1", 0))
    server = create_server(
        application, sockets=[listener], connection_limit=40, asyncore_use_poll=True
    )
    server.channel_class = Connection
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    server.pull_trigger()
    server.asyncore.close_all(server._map)
    server.task_dispatcher.shutdown()
    thread.join(timeout=HANG_SECONDS)


def get(port: int, path: str = "/") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    connection.request("GET", path)
    return connection.getresponse().read()


def ended(peer: socket.socket) -> bool:
    """Whether the server has let go within a few seconds."""
    peer.settimeout(HANG_SECONDS)
    try:
        while peer.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def test_a_request_has_its_time_as_a_whole(port: int) -> None:
    """Every byte counted as a sign of life, so that a trickle never ended."""
    with socket.create_connection(("127.0.0.1", port)) as slow:
        start, refused = time.monotonic(), False
        while time.monotonic() - start < HANG_SECONDS and not refused:
            try:
                slow.send(b"G")
            except OSError:
                refused = True
            time.sleep(0.05)
        assert refused
        assert time.monotonic() - start > 0.9
    with socket.create_connection(("127.0.0.1", port)) as silent:
        assert ended(silent)
    with socket.create_connection(("127.0.0.1", port)) as body:
        body.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        assert ended(body)


def test_who_does_not_read_the_answer_is_dropped(port: int) -> None:
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect(("127.0.0.1", port))
        deaf.send(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        time.sleep(3)
        received = 0
        deaf.settimeout(HANG_SECONDS)
        try:
            while part := deaf.recv(1 << 16):
                received += len(part)
        except ConnectionError:
            pass
        assert received < len(LARGE)


def test_long_answers_and_pauses_between_requests_are_none_of_that(port: int) -> None:
    kept = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    for path, pause in (("/", 1.5), ("/patient", 0), ("/large", 1.5), ("/", 0)):
        kept.request("GET", path)
        assert kept.getresponse().read() == (LARGE if path == "/large" else b"here")
        time.sleep(pause)


def test_many_slow_ones_do_not_keep_others_out(port: int) -> None:
    """Three times as many as there is room for, and a regular guest who stays."""
    guest = http.client.HTTPConnection("127.0.0.1", port, timeout=HANG_SECONDS)
    slow = []
    for number in range(60):
        slow.append(socket.create_connection(("127.0.0.1", port)))
        slow[-1].send(b"GET / HT")
        if number % 10 == 0:
            assert get(port) == b"here"
        guest.auto_open = number == 0  # the same connection, always
        guest.request("GET", "/")
        assert guest.getresponse().read() == b"here"
    for each in slow:
        each.close()
