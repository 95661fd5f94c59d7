"""The picture of the README: epsilon against epochs, for light and for dark pages.

    python examples/readme_figure.py docs/figures

Logistic regression on 60,000 records in 40 shuffled batches: charged as if every iterate were
published (composition), charged for the last iterate alone, and what some loss of this kind really
suffers. Written by hand as SVG, so that the files are the same on every machine.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path

from lastiterate import Cyclic, Loss, Shuffled, Training, account

DELTA = 1e-5
BATCHES = 40
EPOCHS = (1, 2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 120, 140, 160, 180, 200)
THEMES = {
    "light": {"ink": "#1f2328", "soft": "#59636e", "grid": "#d1d9e0", "line": "#0a7d6c"},
    "dark": {"ink": "#f0f6fc", "soft": "#9198a1", "grid": "#3d444d", "line": "#3fc1ad"},
}
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 780, 340, 62, 234, 34, 46
LOW, HIGH = 0.3, 110.0


def lines() -> dict[str, list[tuple[int, float]]]:
    """Epsilon after some numbers of epochs: composition, last iterate, lower reference."""
    loss = Loss(smoothness=0.25, regularization=0.002)
    found: dict[str, list[tuple[int, float]]] = {"composition": [], "last": [], "lower": []}
    for epochs in EPOCHS:
        run = Training(
            records=60_000,
            steps=epochs * BATCHES,
            step_size=0.05,
            noise=1e-4,
            gradient_norm=1.0,
            batches=Shuffled(1500),
            adjacency="replace",
        )
        everything = account(run.replace(batches=Cyclic(1500)), Loss.unknown())
        guarantee = account(run, loss)
        found["composition"].append((epochs, everything.epsilon(DELTA)))
        found["last"].append((epochs, guarantee.epsilon(DELTA)))
        found["lower"].append((epochs, guarantee.lower(DELTA)))
    return found


def svg(theme: str, drawn: dict[str, list[tuple[int, float]]]) -> str:
    """The picture in the colours of a theme."""
    colours = THEMES[theme]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'aria-labelledby="t" font-family="system-ui, sans-serif" font-size="13">'
    )
    title = (
        "<title id='t'>Epsilon at delta 1e-5 against epochs: composition rises to "
        f"{_rounded(drawn['composition'][-1][1])}, the last iterate to "
        f"{_rounded(drawn['last'][-1][1])}, and some loss really suffers "
        f"{_rounded(drawn['lower'][-1][1], up=False)}</title>"
    )
    return "\n".join([head, title, *_axes(colours), *_drawn(colours, drawn), "</svg>", ""])


def _axes(colours: dict[str, str]) -> Iterator[str]:
    for epsilon in (0.5, 1, 2, 5, 10, 20, 50, 100):
        y = _y(epsilon)
        yield _line(LEFT, y, WIDTH - RIGHT, y, colours["grid"])
        yield _text(LEFT - 8, y + 4.5, f"{epsilon:g}", colours["soft"], "end")
    for epochs in (1, 50, 100, 150, 200):
        yield _text(_x(epochs), HEIGHT - BOTTOM + 19, str(epochs), colours["soft"], "middle")
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield _text(middle, HEIGHT - 8, "epochs of 40 shuffled batches", colours["soft"], "middle")
    yield _text(LEFT - 46, 18, "epsilon at delta = 1e-5", colours["ink"], "start")


def _drawn(colours: dict[str, str], drawn: dict[str, list[tuple[int, float]]]) -> Iterator[str]:
    words = {
        "composition": ("every iterate charged", "composition, the same batches"),
        "last": ("the last iterate, certified", "what is released"),
        "lower": ("some loss really suffers this", "no proof can go below"),
    }
    pens = {
        "composition": f'stroke="{colours["soft"]}" stroke-width="2"',
        "last": f'stroke="{colours["line"]}" stroke-width="3.5"',
        "lower": f'stroke="{colours["ink"]}" stroke-width="1.6" stroke-dasharray="2 4"',
    }
    lift = {"composition": -4, "last": -18, "lower": 34}
    for name, points in drawn.items():
        path = " ".join(f"{_x(epochs):.1f},{_y(epsilon):.1f}" for epochs, epsilon in points)
        yield f'<polyline points="{path}" fill="none" {pens[name]}/>'
        x, y = WIDTH - RIGHT + 10, _y(points[-1][1]) + lift[name]
        number = _rounded(points[-1][1], up=name != "lower")
        weight = ' font-weight="600"' if name == "last" else ""
        colour = colours["line"] if name == "last" else colours["ink"]
        yield _text(x, y, f"{number}  {words[name][0]}", colour, "start", weight)
        yield _text(x, y + 16, words[name][1], colours["soft"], "start")


def _rounded(epsilon: float, up: bool = True) -> str:
    return f"{(math.ceil if up else math.floor)(epsilon * 10) / 10:.1f}"


def _x(epochs: float) -> float:
    return LEFT + (WIDTH - RIGHT - LEFT) * epochs / EPOCHS[-1]


def _y(epsilon: float) -> float:
    share = math.log(epsilon / LOW) / math.log(HIGH / LOW)
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * share


def _line(x: float, y: float, to_x: float, to_y: float, colour: str) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="1"/>'


def _text(x: float, y: float, words: str, colour: str, anchor: str, more: str = "") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {place}{more}>{words}</text>"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    numbers = lines()
    for theme in THEMES:
        (folder / f"epsilon-{theme}.svg").write_text(svg(theme, numbers), encoding="utf-8")
