"""The report in a real browser: alone, offline, valid, accessible, printable."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from lastiterate.cli.demo import file_a_model
from lastiterate.cli.main import run as command
from lastiterate.report.page import Report

HOSTILE = '</title></script><script>document.title="owned"</script><img src=x onerror=alert(1)>'
MOST_BYTES = 1_000_000


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's folder: a certified run with an audit, and its page."""
    folder = tmp_path_factory.mktemp("pages") / "demo"
    with contextlib.redirect_stdout(io.StringIO()):
        file_a_model(folder, models=200)
    return folder


@pytest.fixture(scope="module")
def pages(demo: Path) -> dict[str, Path]:
    """A page of every kind: verified, refused, an experiment, and one with hostile words."""
    made = {"verified": demo / "report.html"}
    run = demo / "run"

    def page(name: str) -> Path:
        made[name] = demo / f"{name}.html"
        Report.of(run).save(made[name])
        return made[name]

    public = json.loads((run / "run.json").read_text())
    kept = {path.name: path.read_bytes() for path in run.iterdir()}
    public["certified"] = False  # words that no seal covers are shown of experiments alone
    (run / "certificate.json").unlink()
    (run / "run.json").write_text(
        json.dumps(public | {"model": HOSTILE, "warnings": [HOSTILE], "choice": [[HOSTILE] * 2]})
    )
    page("hostile")
    (run / "run.json").write_text(json.dumps(public))
    page("experiment")
    (run / "certificate.json").write_bytes(kept["certificate.json"].replace(b"3.9", b"2.9"))
    (run / "run.json").write_bytes(kept["run.json"])
    page("refused")
    (run / "certificate.json").write_bytes(kept["certificate.json"])
    return made


KINDS = ("verified", "refused", "experiment", "hostile")


def opened(page: Page, path: Path) -> None:
    page.goto(path.as_uri(), wait_until="load")
    assert page.locator(".plot svg").count() == page.locator(".plot").count()


@pytest.mark.parametrize("kind", KINDS)
def test_it_opens_alone(
    kind: str, pages: dict[str, Path], page: Page, requested: list[str], complaints: list[str]
) -> None:
    opened(page, pages[kind])
    assert requested == [pages[kind].as_uri()]
    assert complaints == []
    assert pages[kind].stat().st_size < MOST_BYTES


def test_it_draws_every_figure(pages: dict[str, Path], page: Page, screenshots: Path) -> None:
    opened(page, pages["verified"])
    names = {"Privacy curve", "Best attack", "Growth", "Comparison", "Taut string"}
    headings = page.locator(".drawn h3").all_inner_texts()
    assert {heading.split(":")[0] for heading in headings} == names | {"Audit"}
    for k in range(len(headings)):
        box = page.locator(".plot").nth(k).bounding_box()
        assert box is not None
        assert 300 < box["width"] <= 560
        picture = page.locator(".plot svg").nth(k)
        assert picture.locator("path").count() > 10
        described = picture.get_attribute("aria-labelledby")
        assert described is not None
        for name in described.split():
            assert page.locator(f"#{name}").text_content()
    # the tables of numbers are folded away, and open
    assert page.locator("details.numbers[open]").count() == 0
    page.locator("details.numbers summary").first.click()
    assert page.locator("details.numbers table").first.is_visible()
    page.screenshot(path=screenshots / "report.png", full_page=True)


@pytest.mark.parametrize("kind", ["refused", "experiment"])
def test_what_is_not_promised_is_said_in_words_and_colour(
    kind: str, pages: dict[str, Path], page: Page, screenshots: Path
) -> None:
    opened(page, pages[kind])
    box = page.locator(f".status.{kind}")
    assert kind.upper() in box.inner_text()
    colour = box.evaluate("box => getComputedStyle(box).borderLeftColor")
    red, green, blue = (int(part) for part in colour.strip("rgb()").split(","))
    assert (red > 2 * green and red > 2 * blue) is (kind == "refused")
    assert page.locator("#sign").count() == 0
    page.screenshot(path=screenshots / f"report-{kind}.png", full_page=True)


def test_hostile_words_are_only_words(pages: dict[str, Path], page: Page) -> None:
    page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    opened(page, pages["hostile"])
    assert page.title() != "owned"
    assert page.locator("img").count() == 0
    assert HOSTILE in page.locator("h1").inner_text()


def test_even_a_script_that_got_in_would_not_run(
    pages: dict[str, Path], page: Page, complaints: list[str], tmp_path: Path
) -> None:
    """The content security policy, tried out."""
    html = pages["verified"].read_text().replace("</main>", "<script>owned = 1</script></main>")
    (tmp_path / "x.html").write_text(html)
    page.goto((tmp_path / "x.html").as_uri())
    assert page.evaluate("typeof owned") == "undefined"
    assert any("Content Security Policy" in text for text in complaints)


@pytest.mark.parametrize("kind", ["hostile", "refused", "experiment"])
def test_it_is_valid(
    kind: str, pages: dict[str, Path], markup_errors: Callable[[Path], list[str]]
) -> None:
    assert markup_errors(pages[kind]) == []


@pytest.mark.parametrize(
    ("kind", "width"),
    [("hostile", 1280), ("verified", 400), ("refused", 400), ("experiment", 1280)],
)
def test_everybody_can_read_it(
    kind: str,
    width: int,
    pages: dict[str, Path],
    page: Page,
    barriers: Callable[[Page], list[str]],
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, pages[kind])
    assert barriers(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out


def test_without_scripts_everything_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(pages["verified"].as_uri())
    assert page.locator(".drawn").count() == 6
    for k in range(6):
        assert page.locator(".plot svg").nth(k).is_visible()
        page.locator("details.numbers summary").nth(k).click()
        assert page.locator(".drawn").nth(k).locator("table").is_visible()
    context.close()


def test_it_prints(pages: dict[str, Path], page: Page, screenshots: Path) -> None:
    """On paper: no navigation, no folded tables, nothing wider than the page."""
    opened(page, pages["verified"])
    page.pdf(path=screenshots / "report.pdf", prefer_css_page_size=True)
    page.emulate_media(media="print")
    assert not page.locator("nav").is_visible()
    assert not page.locator("details.numbers").first.is_visible()
    assert page.locator("#sign").is_visible()
    paper = 180 / 25.4 * 96  # A4 without its margins, in CSS pixels
    for element in ("figure .plot", "table", "pre"):
        widths = page.locator(element).evaluate_all(
            "found => found.filter(e => e.offsetParent).map(e => e.offsetWidth)"
        )
        assert widths
        if element == "figure .plot":
            assert max(widths) <= paper


def test_the_summary_is_one_page(
    demo: Path,
    page: Page,
    screenshots: Path,
    barriers: Callable[[Page], list[str]],
) -> None:
    path = demo / "summary.html"
    Report.of(demo / "run").save(path, summary=True)
    page.goto(path.as_uri())
    assert barriers(page) == []
    printed = page.pdf(path=screenshots / path.with_suffix(".pdf").name, prefer_css_page_size=True)
    assert printed.count(b"/Type /Page\n") == 1


def test_text_of_figures_fits_a_phone(
    pages: dict[str, Path], page: Page, screenshots: Path
) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    opened(page, pages["verified"])
    found = page.locator(".plot svg").evaluate_all(
        """plots => plots.flatMap(plot => {
          const frame = plot.getBoundingClientRect();
          return [...plot.querySelectorAll("text")].map(text => {
            const box = text.getBoundingClientRect();
            return [text.textContent, Math.min(box.left - frame.left, frame.right - box.right,
                                               box.top - frame.top, frame.bottom - box.bottom),
                    parseFloat(getComputedStyle(text).fontSize) * frame.width / 360];
          });
        })"""
    )
    assert len(found) > 20
    assert [text for text, room, _ in found if room < -1] == []
    assert min(size for *_, size in found) > 8  # pixels
    page.screenshot(path=screenshots / "report-phone.png", full_page=True)


def test_the_command_line_makes_the_same_page(demo: Path, tmp_path: Path, capsys: Any) -> None:
    with pytest.raises(SystemExit) as left:
        command(["report", str(demo / "run"), "-o", str(tmp_path / "report.html"), "--json"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)["status"] == "verified"
