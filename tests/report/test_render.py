"""Figures are drawn without a display, alike on every machine, and with a text alternative."""

from __future__ import annotations

import re
import subprocess
import sys
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lastiterate import (
    FullBatch,
    Loss,
    PrivacyUnit,
    Shuffled,
    Training,
    account,
    compare,
    report,
)
from lastiterate.audit.result import AuditResult, Look
from lastiterate.report import FigureData, Series
from lastiterate.report.render import svg
from lastiterate.unlearning import plan_unlearning

LOSS = Loss(smoothness=1.0, regularization=0.1)
RUN = Training(
    records=60,
    steps=30,
    step_size=0.1,
    noise=0.05,
    gradient_norm=2.0,
    batches=Shuffled(10),
    adjacency="replace",
)
FULL = RUN.replace(batches=FullBatch())
LOOKS = tuple(
    Look(e, e, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1 * (k + 1)), (0.0, 0.1))
    for k, e in enumerate((0.3, 1.1, 0.7))
)
FIGURES = {
    "curve": lambda: report.privacy_curve(account(RUN, LOSS)),
    "tradeoff": lambda: report.tradeoff(account(RUN, LOSS)),
    "growth": lambda: report.epsilon_growth(FULL, LOSS),
    "comparison": lambda: report.comparison_bars(compare(RUN, LOSS)),
    "string": lambda: report.taut_string(RUN, LOSS),
    "audit": lambda: report.audit_bracket(
        AuditResult("clopper-pearson", 1e-5, 0.95, LOOKS, 400), account(FULL, LOSS)
    ),
}


@pytest.fixture(params=FIGURES)
def figure(request: pytest.FixtureRequest) -> FigureData:
    return FIGURES[request.param]()


def test_there_are_six_figures() -> None:
    functions = [name for name in report.__all__ if name[0].islower()]
    assert len(functions) == len(FIGURES) == 6


def test_svg_has_a_text_alternative_and_nothing_active(figure: FigureData) -> None:
    text = svg(figure, "figure-1")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    known = {each.get("id"): each.text for each in root.iter() if each.get("id")}
    title, described = (known[name] for name in str(root.get("aria-labelledby")).split())
    assert title == figure.title
    assert described is not None
    for name in (each.name for each in figure.series if each.name):
        assert name in described
    tags = {each.tag.removeprefix(space) for each in root.iter()}
    assert not tags & {"script", "style", "image", "metadata", "foreignObject", "a"}
    assert not re.search(r"\bon\w+=|href=\"[^#]", text)
    assert len(text) < 100_000


def test_svg_is_the_same_bytes_whatever_the_user_has_set(figure: FigureData) -> None:
    plain = svg(figure, "f")
    odd = {"font.size": 30, "text.usetex": True, "axes.grid": False, "svg.fonttype": "path"}
    with matplotlib.rc_context({**odd, "lines.linewidth": 9, "svg.hashsalt": "other"}):
        before = dict(matplotlib.rcParams)
        assert svg(figure, "f") == plain
        assert dict(matplotlib.rcParams) == before
    assert not re.search(r"20\d\d-\d\d-\d\d", plain)


def test_figures_of_one_page_share_no_identifier() -> None:
    names = [
        set(re.findall(r'\bid="([^"]*)"', svg(make(), f"figure-{k}")))
        for k, make in enumerate(FIGURES.values())
    ]
    assert sum(map(len, names)) == len(set().union(*names))


def test_plot_returns_axes(figure: FigureData) -> None:
    own = figure.plot()
    assert isinstance(own, Axes)
    assert isinstance(own.figure, Figure)
    mine = Figure().add_subplot()
    assert figure.plot(ax=mine) is mine
    assert mine.get_title().replace("\n", " ") == figure.title


def test_results_plot_themselves() -> None:
    plan = plan_unlearning(FULL, LOSS, PrivacyUnit(records=2), 1.0, 1e-3)
    for result in (account(RUN, LOSS), compare(RUN, LOSS), plan):
        mine = Figure().add_subplot()
        assert isinstance(result.plot(), Axes)
        assert result.plot(ax=mine) is mine


def test_lines_are_the_numbers() -> None:
    figure = report.privacy_curve(account(FULL, LOSS))
    line = figure.plot().get_lines()[0]
    assert np.array_equal(line.get_xdata(), figure.series[0].x)
    assert np.array_equal(line.get_ydata(), figure.series[0].y)
    assert line.get_drawstyle() == figure.series[0].shape == "steps-pre"


def test_formulas_of_names_are_text() -> None:
    figure = FigureData("$x^{", "a_b", "<i>&", (Series("$\\frac{", [1, 2], [1, 2]),))
    text = svg(figure, "f", titled=True)
    assert "$x^{" in text
    assert "&lt;i&gt;&amp;" in text
    assert "<i>" not in text


def test_values_that_are_infinite_or_missing_are_left_out() -> None:
    for values in ([np.inf, np.inf], [np.nan, 1.0], [0.0, 0.0], [1e-300, 1e308], []):
        for log in ("", "xy"):
            series = Series("s", list(range(1, len(values) + 1)), values)
            assert svg(FigureData("t", "x", "y", (series,), log=log), "f").endswith("</svg>\n")


def run(program: str) -> str:
    head = (
        "from lastiterate import FullBatch, Loss, Training, account\n"
        "run = Training(records=5, steps=2, step_size=0.1, noise=1.0, gradient_norm=2.0,\n"
        "               batches=FullBatch())\n"
        "guarantee = account(run, Loss(smoothness=1.0))\n"
    )
    command = [sys.executable, "-c", head + program]
    env = {"MPLBACKEND": "TkAgg", "PATH": ""}  # a backend that needs a display, and there is none
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    return done.stdout


def test_plot_works_without_a_display_and_leaves_pyplot_alone() -> None:
    out = run(
        "import sys\nprint(type(guarantee.plot()).__name__)\n"
        "guarantee.plot().figure.savefig('/dev/null', format='png')\n"
        "print('matplotlib.pyplot' in sys.modules, 'plotly' in sys.modules)\n"
    )
    assert out.split() == ["Axes", "False", "False"]


def test_without_matplotlib_a_plot_says_what_to_install() -> None:
    out = run(
        "import sys\nsys.modules['matplotlib'] = None\n"
        "try:\n    guarantee.plot()\nexcept ImportError as error:\n    print(error)\n"
    )
    assert "lastiterate[report]" in out


def test_control_characters_of_names_are_spelled_out() -> None:
    odd = "a\u202eb\x1bc"
    text = svg(FigureData(odd, "x", "y", (Series(odd, [1, 2], [1, 2]),), odd), "f", titled=True)
    assert "\u202e" not in text
    assert "\\u202e" in text
    ElementTree.fromstring(text)  # an escape character is not allowed in XML
