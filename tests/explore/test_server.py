"""The real server: loopback, its end, and a few hurried clients."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest
from patience import HANG_SECONDS

from lastiterate.errors import LastIterateError
from lastiterate.explore.server import Server, serve

PROGRAM = "import sys; from lastiterate.cli.main import run; run(sys.argv[1:])"


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "explore", "--no-browser", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def running() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start()
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", process.stdout.readline())
    assert found is not None
    yield process, found[0]
    if process.poll() is None:
        process.send_signal(signal.SIGINT)  # not killed: its workers would compute on for seconds
    process.communicate(timeout=HANG_SECONDS)


def test_the_token_is_no_argument_of_the_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every user of the machine can list the arguments of its processes."""
    opened: list[tuple[str, int, str]] = []
    done = threading.Event()

    def browse(url: str) -> None:
        file = Path(url2pathname(urlsplit(url).path))
        opened.append((url, stat.S_IMODE(file.stat().st_mode), file.read_text()))
        done.set()

    monkeypatch.setattr(webbrowser, "open", browse)
    monkeypatch.setattr(Server, "run", lambda server: done.wait(600))
    serve()
    [(url, mode, page)] = opened
    link = re.search(r"http://\S+", capsys.readouterr().out)
    assert link is not None
    token = link[0].partition("token=")[2]
    assert token
    assert token not in url
    assert (url.partition(":")[0], mode) == ("file", 0o600)
    assert f'content="0; url={link[0]}"' in page
    assert not Path(url2pathname(urlsplit(url).path)).exists()


def test_it_listens_on_loopback_and_ends_on_ctrl_c(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = running
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(address, timeout=HANG_SECONDS) as answer:
        assert b"lastiterate explore" in answer.read()
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(address.partition("?")[0], timeout=HANG_SECONDS)
    port = urlsplit(address).port
    assert port is not None
    table = Path("/proc/net/tcp")
    if table.exists():
        listening = [
            line.split()[1]
            for line in table.read_text().splitlines()[1:]
            if line.split()[3] == "0A"
        ]
        assert [place for place in listening if place.endswith(f":{port:04X}")] == [
            f"0100007F:{port:04X}"
        ]
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode in (0, 130)
    assert "Traceback" not in errors
    with pytest.raises(OSError, match=r"refused|reset"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_taken_port_is_said_in_words() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LastIterateError, match=f"Cannot listen on port {port}"):
            Server(port)
        process = start("--port", str(port))
        _, errors = process.communicate(timeout=HANG_SECONDS)
    assert process.returncode == 2
    assert "Leave --port out" in errors
    assert "Traceback" not in errors


def test_an_impossible_port_is_said_in_words() -> None:
    with pytest.raises(LastIterateError, match="0 to 65535"):
        Server(70_000)


def benchmark() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "explore.py"
    spec = importlib.util.spec_from_file_location("explore_benchmark", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hurried_clients_get_no_errors(running: tuple[subprocess.Popen[str], str]) -> None:
    took, failed = benchmark().hammer(running[1], clients=5, seconds=1.5)
    assert failed == []
    assert len(took) > 5


@pytest.mark.slow
def test_slow_connections_keep_nobody_out(running: tuple[subprocess.Popen[str], str]) -> None:
    """420 of them denied service for minutes. (The benchmark asks for 1 s on an idle machine.)"""
    measured = benchmark()
    with measured.trickling(running[1], 500):
        took, failed = measured.hammer(running[1], clients=3, seconds=20.0)
    assert failed == []
    assert sorted(took)[int(0.95 * len(took))] < 5


@pytest.mark.slow
def test_uploads_do_not_pile_up(running: tuple[subprocess.Popen[str], str]) -> None:
    """120 of them took 1.7 GB, and the next ones would have taken more."""
    process, address = running
    browser = benchmark().Browser(address)

    def resident() -> int:
        pages = Path(f"/proc/{process.pid}/statm").read_text().split()[1]
        return int(pages) * 4096

    if not Path("/proc").exists():
        pytest.skip("memory is read from /proc")
    before = resident()
    for _ in range(40):
        browser.upload(os.urandom((8 << 20) - 10))
    assert resident() - before < 256 << 20
