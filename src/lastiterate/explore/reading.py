"""From texts to a description, or to complaints that stand at their fields.

Every field is read by itself, so that all bad ones are marked at once; then the description is
built and may object to fields that contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from lastiterate.description import FullBatch, Loss, Poisson, TailAverage, Training
from lastiterate.description.batches import SCHEMES, Batches
from lastiterate.description.epochs import steps_of_epochs
from lastiterate.description.validation import number, whole
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.explore.fields import FIELDS, LOSS, RELEASE, RUN, SGLD
from lastiterate.explore.state import LONGEST_TEXT

# What the page is ready to wait for; Python has no such limits.
MOST_STEPS = 10**9
MOST_SEARCHED_STEPS = 10**6  # of schemes whose steps are looked at one by one
MOST_RECORDS = 10**12
MOST_POSITIONS = 10**5
MOST_EPOCHS = 500

# Names that descriptions use for what this page calls otherwise.
_PAGE_NAME = {
    "steps": "length",
    "epochs": "length",
    "batches.size": "size",
    "batches.rate": "rate",
    "release.window": "window",
    "sensitivity": "gradient_norm",
}


@dataclass(frozen=True)
class Description:
    """A run, its loss and the delta that is asked about."""

    training: Training
    loss: Loss
    delta: float


@dataclass(frozen=True)
class Hump:
    """The counterexample of Heller and Fetaya at these parameters."""

    records: int
    exponent: float
    scale: float
    epochs: int
    delta: float


@dataclass
class Reading:
    """What the form says: a description, or complaints by field; the same for the SGLD panel."""

    description: Description | None = None
    hump: Hump | None = None
    complaints: dict[str, str] = field(default_factory=dict)

    def complain(self, error: LastIterateError, fallback: str) -> None:
        """Put the words of an error at its field."""
        name = getattr(error, "field", fallback)
        name = _PAGE_NAME.get(name, name)
        self.complaints.setdefault(name if name in FIELDS else fallback, str(error))


def shown(state: Mapping[str, str]) -> set[str]:
    """The fields that matter for what was chosen; the others are hidden and not read."""
    hidden = {
        "full": {"size", "rate"},
        "poisson": {"size"},
    }.get(state["batches"], {"rate"})
    hidden = (
        hidden
        | {
            "convex": {"exponent"},
            "nonconvex": {"exponent", "strong_convexity"},
            "holder": {"strong_convexity"},
            "unknown": {"exponent", "strong_convexity", "smoothness"},
        }[state["loss"]]
    )
    if state["release"] == "last":
        hidden = hidden | {"window"}
    return set(FIELDS) - hidden


def read(state: Mapping[str, str]) -> Reading:
    """The description in a state, and everything that keeps it from being one.

    >>> from lastiterate.explore.fields import DEFAULTS
    >>> read(DEFAULTS).description.training.steps
    2000
    >>> read({**DEFAULTS, "records": "none"}).complaints["records"]
    "records is 'none', but must be a whole number such as 5000 or 5e3: it is counted."
    """
    reading = Reading()
    values = _numbers(state, reading)
    if not any(f.name in reading.complaints for f in (*RUN, *LOSS, *RELEASE)):
        try:
            reading.description = _description(state, values)
        except DescriptionError as error:
            reading.complain(error, "length")
    if not any(f.name in reading.complaints for f in SGLD):
        try:
            reading.hump = _hump(values)
        except DescriptionError as error:
            reading.complain(error, "sgld_records")
    return reading


def _numbers(state: Mapping[str, str], reading: Reading) -> dict[str, float]:
    values: dict[str, float] = {}
    visible = shown(state)
    for name, spec in FIELDS.items():
        if spec.kind == "choice" or name not in visible:
            continue
        counted = spec.kind == "whole" or (name == "length" and state["unit"] == "steps")
        try:
            values[name] = _number(name, state[name] or spec.blank, counted=counted)
        except DescriptionError as error:
            reading.complain(error, name)
    return values


def _number(name: str, text: str, *, counted: bool) -> float:
    """A number in the words of a person: 60000, 6e4, 60_000; never 60,000, which may mean 60."""
    given = text.strip()
    try:
        value = float(given) if len(given) <= LONGEST_TEXT else math.nan
    except ValueError:
        value = math.nan
    if math.isnan(value) and not counted:
        raise DescriptionError(name, text, "a number such as 0.05 or 5e-2", "it is measured")
    if counted:
        if not value.is_integer():
            raise DescriptionError(
                name, text, "a whole number such as 5000 or 5e3", "it is counted"
            )
        return int(given) if given.lstrip("+-").isdecimal() else int(value)
    return value


def _description(state: Mapping[str, str], values: Mapping[str, float]) -> Description:
    records = whole("records", int(values["records"]), "a guarantee for nobody protects nobody")
    _most("records", records, MOST_RECORDS)
    batches = _batches(state["batches"], values)
    if not isinstance(batches, (FullBatch, Poisson)):
        batches.check(records)
    if state["unit"] == "epochs":
        steps = steps_of_epochs(values["length"], batches, records)
    else:
        steps = int(values["length"])
    searched = batches.name in ("reshuffled", "poisson", "without-replacement")
    _most("steps", steps, MOST_SEARCHED_STEPS if searched else MOST_STEPS)
    training = Training(
        records=records,
        steps=steps,
        step_size=values["step_size"],
        noise=values["noise"],
        gradient_norm=values["gradient_norm"],
        batches=batches,
        diameter=values["diameter"],
        adjacency=state["adjacency"],
        clipping=state["clipping"],
        release=TailAverage(int(values["window"])) if state["release"] == "tail" else "last",
    )
    if (training.batches_per_epoch or 1) > MOST_POSITIONS:
        raise DescriptionError(
            "batches.size",
            values["size"],
            f"large enough for at most {MOST_POSITIONS:,} batches in an epoch",
            "this page looks at every position; Python has no such limit",
        )
    why = "it is the probability with which epsilon may fail"
    delta = number("delta", values["delta"], why, above=0.0, at_most=1.0)
    return Description(training, _loss(state["loss"], values), delta)


def _batches(name: str, values: Mapping[str, float]) -> Batches:
    if name == "full":
        return FullBatch()
    if name == "poisson":
        return Poisson(values["rate"])
    sized = SCHEMES[name]
    return sized(int(values["size"]))  # type: ignore[call-arg]


def _loss(kind: str, values: Mapping[str, float]) -> Loss:
    l2 = values["regularization"]
    if kind == "unknown":
        return Loss.unknown(regularization=l2)
    smoothness = values["smoothness"]
    if kind == "holder":
        return Loss.holder(constant=smoothness, exponent=values["exponent"], regularization=l2)
    if kind == "nonconvex":
        return Loss.nonconvex(smoothness=smoothness, regularization=l2)
    return Loss(smoothness, values["strong_convexity"], l2)


def _hump(values: Mapping[str, float]) -> Hump:
    records = int(values["sgld_records"])
    why = "the chain needs a record and a finite slope"
    if not 1 <= records <= MOST_RECORDS:
        raise DescriptionError("sgld_records", records, f"between 1 and {MOST_RECORDS:,}", why)
    exponent = number("sgld_exponent", values["sgld_exponent"], why, at_least=-5, at_most=5)
    epochs = int(values["sgld_epochs"])
    if not 1 <= epochs <= MOST_EPOCHS:
        raise DescriptionError("sgld_epochs", epochs, f"between 1 and {MOST_EPOCHS}", why)
    limit = 2 * (2 + records * 1.8**2)
    why = "SGLD diverges beyond it"
    scale = number("sgld_scale", values["sgld_scale"], why, above=0, at_most=limit * (1 - 1e-12))
    why = "it is the probability with which epsilon may fail"
    delta = number("sgld_delta", values["sgld_delta"], why, above=0, at_most=0.4)
    return Hump(records, exponent, scale, epochs, delta)


def _most(field: str, value: int, limit: int) -> None:
    if value > limit:
        why = "this page answers at once; Python has no such limit"
        raise DescriptionError(field, value, f"at most {limit:,} here", why)
