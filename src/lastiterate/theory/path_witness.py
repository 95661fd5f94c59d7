"""Paths of distances for certificates: z at some steps, from which a reader recomputes mu.

The kernel takes any z >= 0 and computes what it costs, so nothing here can make a certificate
wrong, only a little larger. A path is a list of steps and of distances before these steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lastiterate.theory.dynamics import Steps
from lastiterate.theory.modulus import Modulus
from lastiterate.theory.positions import epoch_windows
from lastiterate.theory.replay import Floats
from lastiterate.theory.taut_string import TautString, best_restart, constant, constant_restart
from lastiterate.theory.taut_string import best as best_string

_WIDER = 1 + 2.0**-50  # a distance is rounded up where nothing is paid
_FAR = 500  # uses of the record, from the end, after which restarts of expanding steps are tried


class LazyWitness(Mapping[str, Any]):
    """A witness that is computed when it is read: accounting does not need it."""

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self._compute = compute

    @cached_property
    def _found(self) -> Mapping[str, Any]:
        return self._compute()

    def __getitem__(self, key: str) -> Any:
        return self._found[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


class DistancePath(NamedTuple):
    """Distances before some steps; the last step is the end of the segment, where z = 0."""

    steps: Sequence[int]
    z: Sequence[float] | Floats


def paths_table(paths: Sequence[DistancePath]) -> dict[str, Floats]:
    """All paths one after the other, and how long each is."""
    empty = np.zeros(0)
    return {
        "lengths": np.array([len(path.steps) for path in paths], dtype=float),
        "steps": np.concatenate([empty, *(np.asarray(p.steps, dtype=float) for p in paths)]),
        "z": np.concatenate([empty, *(np.asarray(path.z, dtype=float) for path in paths)]),
    }


def public_path(first: int, last: int, *, equal: bool) -> DistancePath:
    """z = 0 at every step: everything is paid for at once."""
    if equal or last - first == 1:
        return DistancePath([first, last], [0.0, 0.0])
    return DistancePath(range(first, last + 1), np.zeros(last - first + 1))


def string_path(steps: Steps, first: int, diameter: float = math.inf) -> DistancePath:
    """The taut string of a segment of steps that all use the record."""
    last = first + steps.count
    if not steps.constant:
        string = best_string(steps.c, steps.s, steps.nu, diameter)
        return walked(steps.c, steps.s, steps.nu, string, first)
    common = constant(*steps.one, steps.count)
    if common <= constant_restart(*steps.one, steps.count, diameter):
        return DistancePath([first, last], [0.0, 0.0])
    left = best_restart(*steps.one, steps.count, diameter)
    return DistancePath([last - left, last], [diameter, 0.0])


def walked(c: Floats, s: Floats, nu: Floats, string: TautString, first: int) -> DistancePath:
    """The distances that shifts leave, rounded up; after the last noise they are 0."""
    begin, z, found = string.restart, string.start, [string.start]
    values = (np.broadcast_to(v, nu.shape)[begin:].tolist() for v in (c, s, string.shifts))
    for factor, arrived, shift in zip(*values, strict=True):
        z = max((factor * z + arrived) * _WIDER - shift, 0.0)
        found.append(z)
    return _ended(found, nu[begin:], first + begin)


def walked_modulus(
    modulus: Modulus, s: Floats, nu: Floats, string: TautString, first: int
) -> DistancePath:
    """`walked` under the moduli of the steps."""
    begin, z, found = string.restart, string.start, [string.start]
    rows = modulus.rows(len(s))[:, begin:].tolist()
    for c, h, p, e, cap, arrived, shift in zip(
        *rows, s[begin:].tolist(), string.shifts[begin:].tolist(), strict=True
    ):
        reach = min(c * z + h * z**p, e * z + cap) if z > 0 else 0.0
        z = max((reach + arrived) * _WIDER - shift, 0.0)
        found.append(z)
    return _ended(found, nu[begin:], first + begin)


def _ended(z: list[float], nu: Floats, first: int) -> DistancePath:
    noisy = np.flatnonzero(nu)
    end = int(noisy[-1]) + 1 if len(noisy) else len(nu)
    distances = np.minimum(np.array(z), 1e300)
    distances[end:] = 0.0
    return DistancePath(range(first, first + len(z)), distances)


# --- a record in one batch of the epoch ---------------------------------------------------------


class PathBlock(NamedTuple):
    """Consecutive steps: product of c, and what arrives and the noise, at their end."""

    c: float
    s: float
    v: float


def pooled(blocks: Sequence[PathBlock]) -> tuple[list[float], float]:
    """The distances before every block on the cheapest path from 0 to 0, and its mu^2."""
    stack: list[tuple[PathBlock, int]] = []
    for index in range(len(blocks) - 1, -1, -1):
        now, end = blocks[index], index + 1
        while stack and now.s * stack[-1][0].v > stack[-1][0].c * stack[-1][0].s * now.v:
            later, end = stack.pop()
            now = _joined(now, later)
        stack.append((now, end))
    distances, start = list[float](), 0
    for block, end in reversed(stack):
        rate = block.s / block.v if block.v > 0 else 0.0
        products = [1.0]
        for each in reversed(blocks[start + 1 : end]):
            products.append(products[-1] * each.c)
        z = 0.0
        for each, product in zip(blocks[start:end], reversed(products), strict=True):
            distances.append(z)
            paid = rate * each.v * product
            z = max(each.c * z + each.s - paid, 0.0) * (1.0 if paid else _WIDER)
        start = end
    total = sum(_ratio(block) for block, _ in stack)
    if not (math.isfinite(total) and all(map(math.isfinite, distances))):
        return [0.0] * len(blocks), math.inf
    return distances, total


def opened(
    start: int,
    z: float,
    opening: PathBlock,
    uses: Sequence[int],
    blocks: Sequence[PathBlock],
    end: int,
) -> tuple[float, DistancePath]:
    """mu^2 and the path from a distance z before some step; ``opening``: up to the first use."""
    if uses and uses[0] == start:
        first = blocks[0]._replace(s=blocks[0].s + blocks[0].c * z)
        distances, cost = pooled([first, *blocks[1:]])
        return cost, DistancePath([*uses, end], [z, *distances[1:], 0.0])
    distances, cost = pooled([opening._replace(s=opening.c * z), *blocks])
    return cost, DistancePath([start, *uses, end], [z, *distances[1:], 0.0])


def string_of_uses(
    uses: Sequence[int],
    blocks: Sequence[PathBlock],
    rests: Sequence[PathBlock],
    end: int,
    diameter: float,
    common: tuple[float, DistancePath] | None = None,
) -> DistancePath:
    """The taut string through uses of the record, from 0 or from the diameter after a use.

    Args:
        uses: the steps of the uses.
        blocks: from each use to the step before the next.
        rests: the same without their first step.
        end: the end of the segment.
        diameter: of the domain.
        common: mu^2 and the path from a common start, if they are known.
    """
    if common is None:
        distances, cost = pooled(blocks)
        common = cost, DistancePath([*uses, end], [*distances, 0.0])
    if math.isfinite(diameter) and uses:
        cost, k = cheapest_restart(blocks, rests, diameter)
        if cost < common[0] and uses[k] + 1 < end:
            later = slice(k + 1, None)
            return opened(uses[k] + 1, diameter, rests[k], uses[later], blocks[later], end)[1]
    return common[1]


def cheapest_restart(
    blocks: Sequence[PathBlock], rests: Sequence[PathBlock], diameter: float
) -> tuple[float, int]:
    """The least mu^2 of a start from the diameter right after a use, and which use it is."""
    stack: list[tuple[PathBlock, float]] = []  # with the cost of everything from there on
    best, chosen = math.inf, 0

    def merged(block: PathBlock) -> tuple[PathBlock, int, float]:
        depth = len(stack)
        while depth and block.s * stack[depth - 1][0].v > (
            stack[depth - 1][0].c * stack[depth - 1][0].s * block.v
        ):
            depth -= 1
            block = _joined(block, stack[depth][0])
        return block, depth, _ratio(block) + (stack[depth - 1][1] if depth else 0.0)

    for index in range(len(blocks) - 1, -1, -1):
        rest = rests[index]
        cost = merged(rest._replace(s=rest.c * diameter))[2]
        if blocks[index].s > 0 and cost < best:
            best, chosen = cost, index
        block, depth, cost = merged(blocks[index])
        del stack[depth:]
        stack.append((block, cost))
    return best, chosen


def _joined(first: PathBlock, then: PathBlock) -> PathBlock:
    return PathBlock(
        first.c * then.c, then.c * first.s + then.s, first.v * then.c * then.c + then.v
    )


def _ratio(block: PathBlock) -> float:
    if block.s == 0:
        return 0.0
    return block.s * block.s / block.v if block.v > 0 else math.inf


def position_paths(
    steps: Steps, first: int, batches: int, diameter: float, positions: Sequence[int]
) -> list[DistancePath]:
    """The taut string of every position, in the hidden steps of a segment that begins at ``first``.

    From a common start, or from the diameter right after a use of the record.
    """
    if steps.constant:
        equal = _Equal(*steps.one, first, first + steps.count, batches, diameter)
        return [equal.path(j) for j in positions]
    return _scheduled(steps, first, batches, diameter, positions)


class _Equal(NamedTuple):
    c: float
    s: float
    nu: float
    first: int
    last: int
    batches: int
    diameter: float

    def path(self, position: int) -> DistancePath:
        """The best path of a position."""
        use = self.first + (position - self.first) % self.batches
        if use >= self.last:
            return DistancePath([], [])
        full, left = divmod(self.last - 1 - use, self.batches)
        left += 1
        uses = [use, use + full * self.batches] if full else [use]
        blocks = [*([self._windows(full)] if full else []), self._window(left)]
        best = DistancePath([*uses, self.last], [*pooled(blocks)[0], 0.0])
        if self.c > 1:
            best = DistancePath([*uses, self.last], [0.0] * (len(uses) + 1))
        if math.isinf(self.diameter) or self.s == 0:
            return best
        tried = [self._restarted(count, left) for count in self._counts(full, left)]
        cost, path = min(tried, key=lambda pair: pair[0], default=(math.inf, best))
        return path if cost < self._common(blocks, full) else best

    @property
    def noise(self) -> float:
        """The noise of a step in units of itself: no decision here depends on its size."""
        return 1.0 if self.nu > 0 else 0.0

    def _common(self, blocks: Sequence[PathBlock], full: int) -> float:
        if self.c <= 1:
            return pooled(blocks)[1]
        return full * _ratio(self._window(self.batches)) + _ratio(blocks[-1])

    def _window(self, length: int) -> PathBlock:
        lead = _power(self.c, length - 1)
        noise = self.noise * _geometric(self.c * self.c, length)
        return PathBlock(self.c * lead, self.s * lead, noise)

    def _windows(self, count: int) -> PathBlock:
        one = self._window(self.batches)
        arrived = one.s * _geometric(one.c, count)
        return PathBlock(_power(one.c, count), arrived, one.v * _geometric(one.c * one.c, count))

    def _restarted(self, count: int, left: int) -> tuple[float, DistancePath]:
        """From the diameter after a use; then so many full windows, and the last one."""
        last_use = self.last - left
        start = last_use - count * self.batches - self.batches + 1
        if count < 0:
            start, rest, blocks, uses = last_use + 1, left - 1, [], []
        elif self.c <= 1:
            rest = self.batches - 1
            blocks = [*([self._windows(count)] if count else []), self._window(left)]
            uses = [last_use - count * self.batches, last_use][: len(blocks)]
        else:
            rest = self.batches - 1
            blocks = [*[self._window(self.batches)] * count, self._window(left)]
            uses = [last_use - k * self.batches for k in range(count, -1, -1)]
        if not blocks and not rest:
            return math.inf, DistancePath([], [])
        noise = self.noise * _geometric(self.c * self.c, rest)
        opening = PathBlock(_power(self.c, rest), 0.0, noise)
        return opened(start, self.diameter, opening, uses, blocks, self.last)

    def _counts(self, full: int, left: int) -> Sequence[int]:
        """How many full windows to leave after a restart: a search by doubling, then by halving."""
        most = min(full, _FAR if self.c > 1 else full)

        def cost(count: int) -> float:
            return self._restarted(count, left)[0]

        place, best = 1, 0
        while place < most:
            best, place = min(best, place, key=cost), max(place + 1, math.ceil(place * 1.1))
        stride = max(best // 8, 1)
        while stride and most:
            other = min(max(best - stride, 0), min(best + stride, most - 1), key=cost)
            best, stride = (other, stride) if cost(other) < cost(best) else (best, stride // 2)
        return [-1, *(n for n in range(best - 2, best + 3) if 0 <= n < most)]


def _power(base: float, exponent: int) -> float:
    return math.exp(min(exponent * math.log(base), 700.0)) if base > 0 else float(exponent == 0)


def _geometric(base: float, count: int) -> float:
    if abs(base - 1) * count < 1e-9:
        return float(count) * (1 + (count - 1) * (base - 1) / 2)
    log = math.log(base) if base > 0 else -math.inf
    return math.expm1(min(count * log, 700.0)) / (base - 1)


def _scheduled(
    steps: Steps, first: int, batches: int, diameter: float, positions: Sequence[int]
) -> list[DistancePath]:
    window, rest = epoch_windows(steps.c, steps.s, steps.nu, batches, first % batches)
    last, start = first + steps.count, first // batches * batches
    paths = list[DistancePath]()
    for j in positions:
        uses = range(start + j if start + j >= first else start + j + batches, last, batches)
        if not uses:
            paths.append(DistancePath([], []))
            continue
        rows = slice((uses[0] - start) // batches, (uses[-1] - start) // batches + 1)
        blocks, rests = (
            list(map(PathBlock, *(_exp(v[rows, j]) for v in (each.G, each.A, each.V))))
            for each in (window, rest)
        )
        paths.append(string_of_uses(uses, blocks, rests, last, diameter))
    return paths


def _exp(values: Floats) -> list[float]:
    with np.errstate(over="ignore", under="ignore"):
        return np.exp(values).tolist()  # type: ignore[no-any-return]
