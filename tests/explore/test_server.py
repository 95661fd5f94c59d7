"""The real server: loopback, its end, and a few hurried clients."""

from __future__ import annotations

import importlib.util
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from lastiterate.errors import LastIterateError
from lastiterate.explore.server import Server

PROGRAM = "import sys; from lastiterate.cli.main import run; run(sys.argv[1:])"


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "explore", "--no-browser", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def running() -> Iterator[tuple[subprocess.Popen[str], str]]:
    process = start()
    assert process.stdout is not None
    found = re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())
    assert found is not None
    yield process, found[0]
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=30)


def test_it_listens_on_loopback_and_ends_on_ctrl_c(
    running: tuple[subprocess.Popen[str], str],
) -> None:
    process, address = running
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"lastiterate explore" in answer.read()
    port = int(address.rsplit(":", 1)[1].strip("/"))
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
    _, errors = process.communicate(timeout=30)
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
        _, errors = process.communicate(timeout=60)
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
    took, failed = benchmark().hammer(running[1], clients=5, seconds=3.0)
    assert failed == []
    assert len(took) > 5
