"""Paths of distances: Theorem U without coins.

Two neighbouring runs start together, take T steps of which step k spreads a distance z to at most
g_k(z) (c_k z for Lipschitz updates), adds s_k where it uses the record, and has noise nu_k. Any
z_0, ..., z_T >= 0 proves: the released iterates are mu-GDP, in both orders, with

    mu^2 = sum (alpha_k / nu_k)^2,    alpha_k = (g_k(z_k) + s_k - z_{k+1})_+,

if z = 0 at every release, and the path of a segment between releases begins before the first use
of the record, or at the diameter of the domain, or where the next step forgets everything.

A witness gives z at some steps. Between two of them the cheapest path is taken, `window_cost`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from lastiterate.kernel.balls import (
    Ball,
    arb,
    geometric,
    infinity,
    positive_part,
    ratio,
    repeat,
    require,
)
from lastiterate.kernel.document import fields, numbers, well_formed, wholes
from lastiterate.kernel.run import MOST_STEPS, Run

_ROW = 4096  # steps whose balls are made together where every step uses the record
Sizes = Mapping[int, Ball]  # position in an epoch -> how often s arrives there


class Path(NamedTuple):
    """z at some steps, in order."""

    steps: Sequence[int]
    z: Sequence[float]


class Window(NamedTuple):
    """HiddenSteps that the record uses at the first one alone, or never.

    Product of c; s and sum of nu^2 as they arrive at the end.
    """

    c: Ball
    s: Ball
    v: Ball


def read_paths(value: object) -> list[Path]:
    """The paths of a witness: all lists one after the other, and how long each is."""
    table = fields(value, "paths", ("lengths", "steps", "z"))
    z = numbers(table["z"], "paths.z")
    steps = wholes(table["steps"], "paths.steps", 2**53)
    lengths = wholes(table["lengths"], "paths.lengths", len(z))
    well_formed(sum(lengths) == len(z) == len(steps), "the lengths of the paths are wrong")
    well_formed(len(z) <= MOST_STEPS, f"the paths have more than {MOST_STEPS:,} steps")
    paths, place = [], 0
    for length in lengths:
        paths.append(Path(steps[place : place + length], z[place : place + length]))
        place += length
    return paths


def window_cost(window: Window, x: float, y: float, times: int = 1) -> Ball:
    """sum (alpha/nu)^2 of a path from x to y over ``times`` equal windows.

    All pay at one rate: ((C x + S - y)_+)^2 / V, with C = c^m, S = s sum c^i, V = v sum c^(2i).
    In between this path is >= 0. Within a window nothing arrives after its first step. From window
    to window z / c^i changes by c^-(i+1) (s - rate v c^(m-1-i)): for c <= 1 it rises, then falls;
    for c > 1 it falls all the time if s <= rate v. If not, a path that stays at x = y is taken.
    """
    high, low = arb(x), arb(y)
    if times == 1:
        arrived = window.s + (window.c * high if x else 0)
        return ratio(positive_part(arrived - low) ** 2, window.v)
    if window.c <= 1:
        total = window.c**times * high + window.s * geometric(window.c, times) - low
        return ratio(positive_part(total) ** 2, window.v * geometric(window.c**2, times))
    if x == y:
        growth = (window.c - 1) * high if x else 0
        return times * ratio(positive_part(growth + window.s) ** 2, window.v)
    total = window.c**times * high + window.s * geometric(window.c, times) - low
    noise = window.v * geometric(window.c**2, times)
    require(
        total * window.v >= window.s * noise, "a path between two steps of the witness is negative"
    )
    return ratio(total**2, noise)


class EpochRow:
    """Consecutive steps; those outside the segment do nothing."""

    def __init__(self, steps: HiddenSteps, start: int) -> None:
        low, high = max(start, steps.first), min(start + steps.row, steps.last)
        before, after = low - start, start + steps.row - high
        self._run, self._low, self._high = steps.run, low, high

        def padded(values: Sequence[Ball], idle: Ball) -> list[Ball]:
            return [idle] * before + list(repeat(values, high - low)) + [idle] * after

        c = steps.run.c(low, high)
        self.c = padded([infinity()] if c is None else c, arb(1))
        self.s = padded(steps.arrivals(low, high), arb(0))
        self.v = padded([nu * nu for nu in steps.run.nu(low, high)], arb(0))

    @cached_property
    def g(self) -> Sequence[Callable[[Ball], Ball]]:
        """The modulus of every step of the segment."""
        return self._run.g(self._low, self._high)

    @cached_property
    def after(self) -> list[tuple[Ball, Ball]]:
        """Product of c of the later steps of the row; noise from the step on, at the row's end."""
        found, product, noise = [], arb(1), arb(0)
        for c, v in zip(reversed(self.c), reversed(self.v), strict=True):
            noise += v * product * product
            found.append((product, noise))
            product = c * product
        return found[::-1]

    @cached_property
    def before(self) -> list[tuple[Ball, Ball]]:
        """Product of c, and noise, of the steps before each step of the row, and of them all."""
        found = [(arb(1), arb(0))]
        for c, v in zip(self.c, self.v, strict=True):
            product, noise = found[-1]
            found.append((c * product, c * c * noise + v))
        return found

    @cached_property
    def _doubled(self) -> list[list[tuple[Ball, Ball]]]:
        """Product of c, and noise, of 1, 2, 4, ... steps from each step on."""
        levels = [list(zip(self.c, self.v, strict=True))]
        width = 1
        while 2 * width <= len(self.c):
            now = levels[-1]
            levels.append([_joined(a, b) for a, b in zip(now, now[width:], strict=False)])
            width *= 2
        return levels

    def within(self, first: int, last: int) -> tuple[Ball, Ball]:
        """Product of c, and noise, of the steps first, ..., last - 1 of the row."""
        found = arb(1), arb(0)
        for bit, level in enumerate(self._doubled):
            if (last - first) >> bit & 1:
                found = _joined(found, level[first])
                first += 1 << bit
        return found


def _joined(a: tuple[Ball, Ball], b: tuple[Ball, Ball]) -> tuple[Ball, Ball]:
    return a[0] * b[0], a[1] * b[0] ** 2 + b[1]


@dataclass
class HiddenSteps:
    """The steps first, ..., last - 1 in epochs of ``batches``; ``drifts``: s is what rounding adds.

    Balls are kept for two rows of steps at a time; paths are therefore walked together.
    """

    run: Run
    first: int
    last: int
    batches: int
    drifts: bool = False

    def __post_init__(self) -> None:
        self.row = self.batches if self.batches > 1 else _ROW
        self._rows: dict[int, EpochRow] = {}
        self._lengths: dict[int, Window] = {}

    def arrivals(self, low: int, high: int) -> list[Ball]:
        """s of every step that uses the record."""
        return self.run.drift(low, high) if self.drifts else self.run.s(low, high)

    @cached_property
    def one(self) -> tuple[Ball, Ball, Ball]:
        """c, s and nu of equal steps."""
        c = self.run.c(self.first, self.last)
        s, nu = self.arrivals(self.first, self.last), self.run.nu(self.first, self.last)
        return infinity() if c is None else c[0], s[0], nu[0]

    def _row(self, start: int) -> EpochRow:
        if start not in self._rows:
            self._rows = {k: row for k, row in self._rows.items() if k >= start - self.row}
            self._rows[start] = EpochRow(self, start)
        return self._rows[start]

    def window(self, first: int, last: int, size: Ball) -> Window:
        """The steps first, ..., last - 1; the record arrives ``size`` times at the first."""
        if self.run.alike:
            found = self._alike(last - first)
            return Window(found.c, size * found.s, found.v)
        start = first // self.row * self.row
        row, i = self._row(start), first - start
        if last == first + 1:
            return Window(row.c[i], size * row.s[i], row.v[i])
        if last < min(start + self.row, self.last) and first == start and size == 0:
            return Window(row.before[last - start][0], arb(0), row.before[last - start][1])
        if last < min(start + self.row, self.last):
            lead, noise = row.within(i + 1, last - start)
            noise += row.v[i] * lead**2
        else:
            lead, noise = row.after[i]
            if last > start + self.row:
                later = self._row(start + self.row).before[last - start - self.row]
                lead, noise = _joined((lead, noise), later)
        return Window(row.c[i] * lead, size * row.s[i] * lead, noise)

    def _alike(self, length: int) -> Window:
        if length not in self._lengths:
            c, s, nu = self.one
            lead = c ** (length - 1) if length > 1 else arb(1)
            noise = geometric(c * c, length) if length > 1 else arb(1)
            self._lengths[length] = Window(c * lead, s * lead, nu * nu * noise)
        return self._lengths[length]

    def next_use(self, step: int, sizes: Sizes) -> int:
        """The first use of the record after a step."""
        return step + 1 + min((place - step - 1) % self.batches for place in sizes)

    def costs(
        self,
        paths: Sequence[Path],
        sizes: Sequence[Sizes],
        moduli: Sequence[bool] = (),
        reached: float = 0.0,
    ) -> list[Ball]:
        """mu^2 of every path; infinite where a number is.

        Args:
            paths: how far apart the runs are at some steps.
            sizes: how often s arrives at the uses of the record, for each path.
            moduli: the paths that list every step and use the moduli g, not only c.
            reached: the distance that the runs have at the first of these steps.
        """
        totals, place = [arb(0)] * len(paths), [0] * len(paths)
        for path, uses in zip(paths, sizes, strict=True):
            self._check_ends(path, uses, reached)
        rows = range(self.first // self.row * self.row, self.last, self.row)
        for until in (self.last,) if self.run.alike else (start + self.row for start in rows):
            for p, path in enumerate(paths):
                k, last = place[p], len(path.steps) - 1
                while k < last and path.steps[k] < until:
                    totals[p] += self._piece(path, k, sizes[p], bool(moduli) and moduli[p])
                    k += 1
                place[p] = k
        return [total if total.is_finite() else infinity() for total in totals]

    def _check_ends(self, path: Path, sizes: Sizes, reached: float) -> None:
        """Raise unless the path begins where two runs may be and ends in 0."""
        first_use = self.next_use(self.first - 1, sizes)
        if not path.steps:
            require(first_use >= self.last and reached == 0, "a path of the witness is missing")
            return
        begin, z = path.steps[0], path.z[0]
        unused = begin == self.first or (reached == 0 and begin <= first_use)
        require(self.first <= begin < self.last, "a path begins outside of its segment")
        require(path.steps[-1] == self.last and path.z[-1] == 0, "a path does not end in 0")
        if not ((unused and z >= reached) or z >= self.run.diameter):
            forgets = self.window(begin, begin + 1, arb(0)).c == 0
            require(forgets, "a path begins neither at a known distance nor at the diameter")

    def _piece(self, path: Path, k: int, sizes: Sizes, modulus: bool) -> Ball:
        first, last, x, y = path.steps[k], path.steps[k + 1], path.z[k], path.z[k + 1]
        size = sizes.get(first % self.batches, arb(0))
        if last == first + 1:
            window = self.window(first, last, size)
            if modulus:
                g = self.modulus(first)
                window = window._replace(s=window.s + g(arb(x)))
                x = 0.0
            return window_cost(window, x, y)
        require(first < last and not modulus, "the steps of a path are not in order")
        if last <= self.next_use(first, sizes):
            return window_cost(self.window(first, last, size), x, y)
        times, rest = divmod(last - first, self.batches)
        equal = self.run.alike and size != 0 and rest == 0
        require(equal, "a path passes a use of the record")
        return window_cost(self._period(first, sizes), x, y, times)

    def _period(self, first: int, sizes: Sizes) -> Window:
        """The steps from a use of the record to the same one in the next epoch, as one window.

        With two uses: the one with the larger s/v, carried to one place, is first. Then a path at
        one rate is >= 0 in between if it is so before and after.
        """
        second = self.next_use(first, sizes)
        one = self.window(first, second, sizes[first % self.batches])
        if second == first + self.batches:
            return one
        two = self.window(second, first + self.batches, sizes[second % self.batches])
        require(len(sizes) == 2, "a path passes a use of the record")
        late = sizes[second % self.batches] * self.one[0] ** (first + self.batches - second - 1)
        early = sizes[first % self.batches] * self.one[0] ** (second - first - 1)
        require(early * two.v >= two.c * late * one.v, "a period begins with the smaller use")
        product, noise = _joined((one.c, one.v), (two.c, two.v))
        return Window(product, two.c * one.s + two.s, noise)

    def modulus(self, step: int) -> Callable[[Ball], Ball]:
        """g of a step."""
        if self.run.alike:
            return self._equal_moduli[0]
        start = step // self.row * self.row
        return self._row(start).g[step - max(start, self.first)]

    @cached_property
    def _equal_moduli(self) -> Sequence[Callable[[Ball], Ball]]:
        return self.run.g(self.first, self.last)
