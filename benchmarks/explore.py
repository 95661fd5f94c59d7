"""The explorer: how quickly it answers a change, fifty people at once, five hundred slow ones.

A change is a POST to the page's own callback on a real server in a process of its own; what is
timed is the whole request. Schemes whose bounds are searched answer with what is there and say so;
the time until nothing is missing is printed beside.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import json
import math
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

from lastiterate.explore.fields import DEFAULTS, FIELDS
from lastiterate.explore.presets import PRESETS

GOAL = 0.3  # seconds for one change
CLIENTS, SECONDS, P95 = 50, 60.0, 1.0
SLOW = 500  # connections that send byte by byte
_PROGRAM = "from lastiterate.cli.main import run; run(['explore', '--no-browser'])"

Measured = dict[str, Any]


@contextmanager
def server() -> Iterator[str]:
    """A server in a process of its own; its link."""
    command = [sys.executable, "-c", _PROGRAM]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        yield found[0]
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


class Browser:
    """What a browser does, without drawing anything."""

    def __init__(self, address: str) -> None:
        place = urlsplit(address)
        self._connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
        token = place.query.removeprefix("token=")
        self._headers = {"Content-Type": "application/json", "Authorization": f"token {token}"}
        self._get("/")
        self._get("/_dash-layout")
        self._callbacks = json.loads(self._get("/_dash-dependencies"))
        self._shown: Any = None

    def _get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return raw

    def change(self, state: dict[str, str]) -> dict[str, Any]:
        """Post a form; what the page would show."""
        given = {"state.data": state, "shown.data": self._shown}
        raw = self._post("tick.disabled", given)
        if b"could not be computed" in raw:
            raise RuntimeError(f"not computed: {state}")
        response: dict[str, Any] = json.loads(raw)["response"]
        self._shown = response["shown"]["data"]
        return response

    def upload(self, raw: bytes) -> bytes:
        """Post a file to be verified; the first answer."""
        encoded = base64.b64encode(raw).decode()
        contents = f"data:application/json;base64,{encoded}"
        return self._post("verdict.children", {"upload.contents": contents})

    def _post(self, output: str, values: dict[str, Any]) -> bytes:
        """The answer of the callback with this output; the first value is what was changed."""
        known = next(each for each in self._callbacks if output in each["output"])
        pairs = [part.rsplit(".", 1) for part in known["output"].strip(".").split("...")]
        body = {
            "output": known["output"],
            "outputs": [{"id": name, "property": prop} for name, prop in pairs],
            "changedPropIds": list(values)[:1],
            "parsedChangedPropsIds": list(values)[:1],
        }
        for part in ("inputs", "state"):
            body[part] = [each | {"value": values.get(_place(each))} for each in known[part]]
        where = "/_dash-update-component"
        self._connection.request("POST", where, json.dumps(body), self._headers)
        answer = self._connection.getresponse()
        raw = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {raw[:200]!r}")
        return raw


def _place(entry: dict[str, str]) -> str:
    return f"{entry['id']}.{entry['property']}"


_SCHEMES: dict[str, dict[str, str]] = {
    "full": {"batches": "full"},
    "cyclic": {"batches": "cyclic"},
    "shuffled": {"batches": "shuffled"},
    "reshuffled": {"batches": "reshuffled"},
    "poisson": {"batches": "poisson", "adjacency": "zero-out", "gradient_norm": "10"},
    "without-replacement": {"batches": "without-replacement"},
    "full, bounded": {"batches": "full", "diameter": "1"},
    "shuffled, not convex, bounded": {
        "batches": "shuffled",
        "diameter": "1",
        "loss": "nonconvex",
    },
    "full, Hoelder, bounded": {"batches": "full", "diameter": "1", "loss": "holder"},
}


def _cases() -> Iterator[tuple[str, dict[str, str]]]:
    for name, preset in PRESETS.items():
        yield f"preset {name}", DEFAULTS | preset.values
    for length in ("2000", "100000"):
        for name, changes in _SCHEMES.items():
            yield f"{name}, T = {length}", DEFAULTS | {"unit": "steps", "length": length} | changes


def changes(address: str, give_up: float = 10.0) -> list[Measured]:
    """One row per scheme and preset: seconds of the first answer, and until nothing is missing."""
    browser = Browser(address)
    browser.change(DEFAULTS | {"delta": "1e-4"})  # the server's first request loads its files
    rows: list[Measured] = []
    for name, state in _cases():
        time.sleep(3.0)  # what the last case was still searching for is dropped
        start = time.perf_counter()
        slowest, first, final = 0.0, "", math.inf
        while time.perf_counter() - start < give_up:
            began = time.perf_counter()
            answer = browser.change(state)
            slowest = max(slowest, time.perf_counter() - began)
            reading = _reading(answer)
            first = first or reading
            if final == math.inf and reading.endswith(tuple("0123456789")):
                final = time.perf_counter() - start
            if answer["tick"]["disabled"]:
                break
            time.sleep(0.2)
        whole = time.perf_counter() - start
        pictures = f"everything {whole:.2g} s" if whole < give_up else "some pictures missing"
        rows.append(
            {
                "name": f"{name}: slowest answer, seconds",
                "goal": f"<= {GOAL} s; first {first}; final {final:.2g} s; {pictures}",
                "measured": slowest,
                "ok": slowest <= GOAL,
            }
        )
    return rows


def _reading(answer: dict[str, Any]) -> str:
    text = json.dumps(answer["answer"]["children"])
    found = re.search(r'"children": "([^"]+)", "id": "epsilon"', text)
    if found is None:
        return "no epsilon yet"
    return f"epsilon {found[1]}" + (" (searching)" if "still make it" in text else "")


def _moved(state: dict[str, str], random_: random.Random) -> dict[str, str]:
    """The state after one slider was moved to one of its positions."""
    field = random_.choice([f for f in FIELDS.values() if f.high > f.low])
    low, high, share = field.low, field.high, random_.randrange(201) / 200
    value = low * (high / low) ** share if field.log else low + (high - low) * share
    counted = field.kind == "whole" or field.name == "length"
    text = str(max(1, round(float(f"{value:.2g}")))) if counted else f"{value:.2g}"
    return state | {field.name: text}


def hammer(address: str, clients: int, seconds: float) -> tuple[list[float], list[str]]:
    """Seconds of every request of so many clients without a pause, and everything that failed."""
    took: list[float] = []
    failed: list[str] = []

    def one(seed: int) -> None:
        random_ = random.Random(seed)
        try:
            browser = Browser(address)
            state = dict(DEFAULTS)
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                if random_.random() < 0.1:
                    state = DEFAULTS | random_.choice(list(PRESETS.values())).values
                    state |= random_.choice(list(_SCHEMES.values()))
                state = _moved(state, random_)
                start = time.perf_counter()
                browser.change(state)
                took.append(time.perf_counter() - start)
        except Exception as error:
            failed.append(repr(error))

    threads = [threading.Thread(target=one, args=(seed,)) for seed in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, failed


@contextmanager
def trickling(address: str, count: int) -> Iterator[None]:
    """So many connections that send a request byte by byte, each again when it is dropped."""
    place, stop = urlsplit(address), threading.Event()
    request = itertools.cycle(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 200)

    def connect() -> socket.socket:
        slow = socket.socket()
        slow.setblocking(False)
        with suppress(BlockingIOError):
            slow.connect((place.hostname, place.port))
        return slow

    def trickle() -> None:
        slow = [connect() for _ in range(count)]
        while not stop.wait(0.3):
            byte = bytes([next(request)])
            for k, each in enumerate(slow):
                try:
                    each.send(byte)
                except BlockingIOError:
                    pass
                except OSError:
                    each.close()
                    slow[k] = connect()
        for each in slow:
            each.close()

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def rows() -> list[Measured]:
    """Changes one by one, then everybody at once, then beside connections that trickle."""
    with server() as address:
        found = changes(address)
        found += _hammered(f"{CLIENTS} clients without pause", address, CLIENTS)
        with trickling(address, SLOW):
            found += _hammered(f"5 clients beside {SLOW} slow connections", address, 5)
    return found


def _hammered(name: str, address: str, clients: int) -> list[Measured]:
    took, failed = hammer(address, clients, SECONDS)
    took.sort()
    p95 = took[int(0.95 * len(took))]
    name = f"{name} for {SECONDS:g} s"
    return [
        {
            "name": f"{name}: errors",
            "goal": "0",
            "measured": len(failed),
            "ok": not failed,
            "errors": failed[:10],
        },
        {
            "name": f"{name}: p95, seconds",
            "goal": f"<= {P95:g} s",
            "measured": p95,
            "ok": p95 <= P95,
        },
        {
            "name": f"{name}: median, seconds",
            "goal": f"{len(took)} requests",
            "measured": statistics.median(took),
            "ok": None,
        },
    ]
