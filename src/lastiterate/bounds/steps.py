"""What a theorem reads of a run: c, s and nu of every step, as one value.

Each is one number for all steps or one number per step. A number is kept as a view that takes no
memory, so that 10^12 equal steps are as small as one, and a stretch of them is a slice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lastiterate.description.validation import whole
from lastiterate.errors import DescriptionError

Array = npt.NDArray[np.float64]
PerStep = float | Sequence[float] | Array


def alike(*values: Array) -> bool:
    """Whether each of these was given as one number for all steps."""
    return all(each.strides == (0,) for each in values)


def once(values: Array) -> Array:
    """The values, a number that stands for all steps only once."""
    return values[:1] if alike(values) else values


@dataclass(frozen=True, eq=False)
class Steps:
    """``count`` updates, by what they do to the distance of two runs; slices are stretches of them.

    Args:
        c: the Lipschitz constant of each update; infinite if none is known.
        s: the impulse, what the differing record adds where it is used.
        nu: the noise.
        count: how many steps there are.
        drift: what rounding adds to the distance of two runs without the record's help.
        reach: no update adds more than this to a distance (2 eta K with gradients up to K).
        gap: what an update adds to a distance where that is not the impulse it is charged for.

    >>> steps = Steps(0.9, [3.0, 2.0, 1.0], 1.0, 3)
    >>> steps[1:].s.tolist(), steps[1:].c.tolist(), steps.constant
    ([2.0, 1.0], [0.9, 0.9], False)
    >>> Steps(0.9, 1.0, 1.0, 10**12)[10**6 :].count
    999999000000
    """

    c: Array
    s: Array
    nu: Array
    count: int
    drift: Array
    reach: Array
    gap: Array

    def __init__(
        self,
        c: PerStep,
        s: PerStep,
        nu: PerStep,
        count: int,
        *,
        drift: PerStep = 0.0,
        reach: PerStep = math.inf,
        gap: PerStep | None = None,
    ) -> None:
        given = {"c": c, "s": s, "nu": nu, "drift": drift, "reach": reach}
        given["gap"] = s if gap is None else gap
        count = whole("count", count, "it counts the steps", at_least=0)
        object.__setattr__(self, "count", count)
        for name, value in given.items():
            object.__setattr__(self, name, _of_every_step(name, value, count))

    @property
    def constant(self) -> bool:
        """Whether every step is the same by construction: closed forms then apply."""
        return alike(self.c, self.s, self.nu, self.drift, self.reach, self.gap)

    @property
    def one(self) -> tuple[float, float, float]:
        """c, s and nu of the first step: of every step, where they are constant."""
        return float(self.c[0]), float(self.s[0]), float(self.nu[0])

    def __getitem__(self, stretch: slice) -> Steps:
        kept = {name: value[stretch] for name, value in self._values().items()}
        return Steps(**kept, count=len(range(self.count)[stretch]))

    def replace(self, **changes: PerStep) -> Steps:
        """The same steps with other values; a new impulse is also a new gap unless one is given."""
        if "s" in changes:
            changes = {"gap": changes["s"], **changes}
        return Steps(**{**self._values(), **changes}, count=self.count)

    def _values(self) -> dict[str, Array]:
        return {name: value for name, value in vars(self).items() if name != "count"}


def _of_every_step(name: str, value: PerStep, count: int) -> Array:
    array = np.asarray(value, dtype=np.float64).view()
    array.flags.writeable = False
    if array.ndim == 0:
        array = np.broadcast_to(array, (count,))
    if array.shape != (count,):
        why = "every step needs its own"
        raise DescriptionError(f"{name} of the steps", array.shape, f"{count} numbers", why)
    if not np.all(once(array) >= 0):
        why = "a privacy bound from anything else would mean nothing"
        raise DescriptionError(f"{name} of the steps", value, "at least 0 at every step", why)
    return array
