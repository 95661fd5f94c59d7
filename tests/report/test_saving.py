"""Figures reach the disk whole or not at all, and a missing browser is said in words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

pytest.importorskip("plotly")

from plotly.io import from_json

from lastiterate import DescriptionError, UnsupportedError
from lastiterate.report import MissingBrowserError, accuracy_against_epsilon, save_figure

BROWSER = os.environ.get("BROWSER_PATH") or next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)
needs_browser = pytest.mark.skipif(
    BROWSER is None, reason="NO CHROMIUM: static pictures were NOT tested (apt install chromium)"
)


@pytest.fixture(scope="module")
def figure():
    return accuracy_against_epsilon([{"epsilon": 1.0, "accuracy": 0.9}])


def test_html_works_offline(figure, tmp_path):
    text = save_figure(figure, tmp_path / "f.html").read_text()
    assert "At epsilon = 1" in text
    assert 'src="http' not in text  # nothing is fetched: Plotly travels with the page
    assert len(text) > 1_000_000


def test_json_is_the_figure(figure, tmp_path):
    again = from_json(save_figure(figure, str(tmp_path / "f.json")).read_text())
    assert again == figure


@needs_browser
@pytest.mark.parametrize(
    ("ending", "beginning"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")]
)
def test_static_pictures(figure, tmp_path, ending, beginning):
    path = save_figure(figure, tmp_path / f"f.{ending}")
    content = path.read_bytes()
    assert content.startswith(beginning)
    assert os.listdir(tmp_path) == [path.name]
    if ending == "svg":
        assert b"At epsilon = 1 the accuracy is 90.0 %" in content


@pytest.mark.parametrize("name", ["f.bmp", "f", "f.eps"])
def test_unknown_endings_are_refused(figure, tmp_path, name):
    with pytest.raises(DescriptionError, match="path"):
        save_figure(figure, tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_without_a_browser_nothing_is_written(figure, tmp_path, monkeypatch):
    pytest.importorskip("kaleido")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "no-such-browser"))
    target = tmp_path / "pictures"
    target.mkdir()
    old = target / "f.png"
    old.write_bytes(b"the old picture")
    with pytest.raises(MissingBrowserError, match="BROWSER_PATH") as caught:
        save_figure(figure, old)
    assert isinstance(caught.value, UnsupportedError)
    assert os.listdir(target) == ["f.png"]
    assert old.read_bytes() == b"the old picture"


def test_a_failed_write_leaves_the_old_file(figure, tmp_path):
    folder = tmp_path / "f.html"
    folder.mkdir()  # cannot be replaced by a file
    with pytest.raises(OSError):  # noqa: PT011
        save_figure(figure, folder)
    assert os.listdir(tmp_path) == ["f.html"]


def test_without_plotly_a_plot_says_what_to_install():
    program = (
        "import sys\n"
        "sys.modules['plotly'] = None\n"
        "from lastiterate import FullBatch, Loss, Training, UnsupportedError, account\n"
        "run = Training(records=5, steps=2, step_size=0.1, noise=1.0, gradient_norm=2.0,\n"
        "               batches=FullBatch())\n"
        "try:\n"
        "    account(run, Loss(smoothness=1.0)).plot()\n"
        "except UnsupportedError as error:\n"
        "    print(error)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "lastiterate[report]" in out.stdout, out.stderr


@needs_browser
def test_no_button_sends_the_figure_away(figure, tmp_path):
    """Plotly offers to upload a chart; a privacy report must not, wherever it is shown."""
    figure.write_html(tmp_path / "plain.html", include_plotlyjs=True)  # with Plotly's own defaults
    save_figure(figure, tmp_path / "saved.html")
    for name in ("plain.html", "saved.html"):
        command = [
            BROWSER,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--virtual-time-budget=5000",
            f"--user-data-dir={tmp_path / 'profile'}",
            f"file://{tmp_path / name}",
        ]
        drawn = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
        assert 'data-title="Download plot as a PNG"' in drawn  # the other buttons are there
        assert 'data-title="Share' not in drawn
