"""What the page wants to know, one question per task; answered in worker processes.

Answers are plain values that travel between processes. A task is hashable: it is also the key
under which its answer is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

from lastiterate.accounting import account
from lastiterate.accounting.growth import plateau
from lastiterate.curves.base import Curve
from lastiterate.curves.range_of_doubles import OUT_OF_RANGE
from lastiterate.errors import UnsupportedError
from lastiterate.explore.reading import Description, Erasing, Hump, Sought
from lastiterate.lower import lower_reference
from lastiterate.theory import BY_KEY, Run, Theorem

if TYPE_CHECKING:
    from lastiterate.certificate import Verification

MOST_CERTIFICATE_BYTES = 8 << 20
FALSE_ALARMS = 0.01  # where the page says what the best test notices
FIGURES = ("growth", "string", "curve")


@dataclass(frozen=True)
class Task:
    """One question: what about, and the theorem where that matters."""

    kind: str
    about: Description | Sought | Erasing | Hump | bytes
    theorem: str = ""
    heavy: bool = False  # expected to take longer than a page may wait
    urgency: int = 0  # smaller is answered first
    limit: float = 20.0  # seconds after which nobody waits any longer

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Computed once: many threads look for the same task again and again."""
        return hash((self.kind, self.theorem, self.about))

    @property
    def weight(self) -> int:
        """Bytes of a file that it is about."""
        return len(self.about) if isinstance(self.about, bytes) else 0

    def __getstate__(self) -> dict[str, Any]:
        """Without the hash, which means nothing in another process."""
        return {name: value for name, value in vars(self).items() if name != "_hash"}


@dataclass(frozen=True)
class Outcome:
    """An answer, or words why there is none."""

    value: Any = None
    refused: str = ""
    overrun: bool = False
    weight: int = 0  # bytes, as it travels


@dataclass(frozen=True)
class Bounded:
    """What one theorem says at the page's delta."""

    epsilon: float
    mu: float | None
    note: str
    detected: float  # the share of runs that the best test notices, at FALSE_ALARMS


@lru_cache(maxsize=512)
def tasks(description: Description) -> tuple[Task, ...]:
    """Everything there is to ask about a description, most wanted first."""
    run = description.run
    best = {theorem.key for theorem in description.candidates}
    able = [theorem for theorem, reason in description.inapplicable_reasons if reason is None]
    bounds = [_bound_task(theorem, description, run, theorem.key in best) for theorem in able]
    batches = description.training.batches
    full, closed = batches.full, batches.repeated
    smooth = run.regular
    others = [
        Task("lower", description, heavy=not full, urgency=1),
        Task("plateau", description, heavy=not (closed and smooth), urgency=2, limit=6.0),
        *(
            Task(name, description, heavy=not (closed and smooth), urgency=1)
            for name in FIGURES
            # Figures of a run are about a record that is there from the first step to the last.
            if name == "curve" or description.unit.default
        ),
    ]
    return tuple(sorted([*bounds, *others], key=lambda task: (task.heavy, task.urgency)))


# Searches and optimisations that can take seconds, each in some corner of the descriptions.
_SEARCHING = {
    "stopped-coupling",
    "boundary-policy",
    "reshuffled-exchange",
    "poisson-deferral",
    "poisson-replace-absorption",
    "chien-li-2025-3.12",
}


def _bound_task(theorem: Theorem, about: Description, run: Run, best: bool) -> Task:
    searching = theorem.key in _SEARCHING or (theorem.hidden_state and not run.regular)
    long = about.training.steps > 20_000 and run.contraction is not None
    expanding = long and math.isfinite(about.training.diameter)
    if best or not theorem.hidden_state:  # compositions are there first, while others search
        return Task("bound", about, theorem.key, searching or expanding)
    return Task("bound", about, theorem.key, searching or expanding, urgency=3, limit=8.0)


def search_noise(sought: Sought) -> Task:
    """The question for the least noise: before everything else, which waits for it."""
    batches = sought.about.training.batches
    return Task("noise", sought, heavy=not (batches.full or batches.repeated), urgency=-1)


def find(task: Task) -> Any:
    """Answer a task (in a worker)."""
    return _FINDERS[task.kind](task)


def _bound(task: Task) -> Bounded:
    about = _description(task)
    theorem = BY_KEY[task.theorem]
    bound = theorem.attempt(about.run)
    if bound is None:
        raise UnsupportedError(f"{theorem.name} proves nothing here: {OUT_OF_RANGE}.")
    epsilon = float(bound.epsilon(about.delta))
    detected = _detected(bound.curve, about.delta, epsilon)
    return Bounded(epsilon, bound.curve.mu, bound.note, detected)


def _detected(curve: Curve, delta: float, epsilon: float) -> float:
    """What the whole curve says about a test, not only its one pair at the page's delta."""
    from lastiterate.report.attacker import deciding_pairs, detection_rate

    pairs = [(delta, epsilon)]
    if curve.mu is None:
        pairs += deciding_pairs(lambda point: float(curve.delta(point)), [FALSE_ALARMS])
    return detection_rate(FALSE_ALARMS, pairs, curve.mu)


def _lower(task: Task) -> float:
    about = _description(task)
    return max(0.0, lower_reference(about.run)(about.delta))


def _plateau(task: Task) -> int | None:
    about = _description(task)
    return plateau(about.training, about.loss, about.delta, unit=about.unit)


def _figure(task: Task) -> dict[str, Any]:
    from lastiterate import report
    from lastiterate.explore.pictures import plotly_figure

    about = _description(task)
    run = about.training, about.loss
    if task.kind == "growth":
        return plotly_figure(report.epsilon_growth(*run, about.delta))
    if task.kind == "curve":
        guarantee = account(*run, unit=about.unit)
        return plotly_figure(report.privacy_curve(guarantee, about.delta))
    return plotly_figure(report.taut_string(*run))


def _noise(task: Task) -> Description:
    """The same run with the least noise whose guarantee meets the target."""
    from lastiterate.accounting import calibrate

    assert isinstance(task.about, Sought)
    about = task.about.about
    found = calibrate(about.training, about.loss, task.about.epsilon, about.delta, unit=about.unit)
    return replace(about, training=found)


def _erasing(task: Task) -> str:
    from lastiterate.unlearning import plan_unlearning

    assert isinstance(task.about, Erasing)
    about = task.about.about
    plan = plan_unlearning(about.training, about.loss, about.unit, task.about.epsilon, about.delta)
    return str(plan)


@dataclass(frozen=True)
class HumpFound:
    """The peak of the hump and its lower bounds there."""

    peak: int
    chernoff: float
    exact: float
    posterior: float | None


def _hump(task: Task) -> HumpFound:
    from lastiterate.sampling import interim_privacy, posterior_privacy

    about = task.about
    assert isinstance(about, Hump)
    slope = float(about.records) ** about.exponent
    model = (about.records, 2.0, 1.0)
    interim = interim_privacy(*model, 1.8, slope, about.epochs, about.delta, about.scale)
    posterior = posterior_privacy(*model, 0.9, 1.8, slope, float(about.records) ** 0.1)
    top = interim.peak - 1
    return HumpFound(
        interim.peak,
        float(interim.chernoff[top]),
        float(interim.exact[top]),
        posterior.epsilon(about.delta),
    )


def _certificate(task: Task) -> Verification:
    from lastiterate.certificate import Certificate, verify

    assert isinstance(task.about, bytes)
    return verify(Certificate.from_json(task.about))


def _description(task: Task) -> Description:
    assert isinstance(task.about, Description)
    return task.about


_FINDERS: dict[str, Callable[[Task], Any]] = {
    "bound": _bound,
    "lower": _lower,
    "plateau": _plateau,
    **dict.fromkeys(FIGURES, _figure),
    "noise": _noise,
    "erasing": _erasing,
    "hump": _hump,
    "certificate": _certificate,
}
