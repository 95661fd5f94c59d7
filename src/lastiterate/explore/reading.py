"""From texts to a description, or to complaints that stand at their fields.

Every field is read by itself, so that all bad ones are marked at once; then the description is
built and may object to fields that contradict each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from lastiterate.accounting.accountant import candidates
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.batches import BATCH_FIELDS
from lastiterate.description.fields import checked_delta, integer, number, rows
from lastiterate.description.loss import LOSS_FIELDS
from lastiterate.description.training import read_training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import DescriptionError, LastIterateError
from lastiterate.explore.fields import ERASE, FIELDS, LOSS, PERSON, RELEASE, RUN, SGLD
from lastiterate.explore.state import LONGEST_TEXT
from lastiterate.theory import THEOREMS, Run, Theorem, inapplicable_reason

# What the page is ready to wait for; Python has no such limits.
MOST_STEPS = 10**9
MOST_SEARCHED_STEPS = 10**6  # of schemes whose steps are looked at one by one
MOST_RECORDS = 10**12
MOST_POSITIONS = 10**5
MOST_EPOCHS = 500

_DEALT_OUT = ("cyclic", "shuffled", "reshuffled")  # batches that can keep records apart

# How the noise is told, by which fields.
_TOLD_BY = {
    "deviation": {"noise", "gradient_norm"},
    "multiplier": {"multiplier", "clip"},
    "target": {"target", "gradient_norm"},
}
_NOISE_FIELDS = set[str]().union(*_TOLD_BY.values())

# Fields of the page that a description has under the same name, with names that it uses otherwise.
_SAME = tuple(name for name in (*rows(Training), "clip") if getattr(FIELDS.get(name), "high", 0))
_PAGE_NAME = {
    "noise_multiplier": "multiplier",
    "steps": "length",
    "epochs": "length",
    "batches.size": "size",
    "batches.rate": "rate",
    "release.window": "window",
    "sensitivity": "gradient_norm",
    "unit.records": "person_records",
    "unit.per_batch": "per_batch",
    "unit.first_step": "first_step",
    "unit.last_step": "last_step",
    "unit.gradient_norm": "own_norm",
}


@dataclass(frozen=True)
class Description:
    """A run, its loss, the delta that is asked about, and for whom."""

    training: Training
    loss: Loss
    delta: float
    unit: PrivacyUnit = ONE_RECORD

    @cached_property
    def run(self) -> Run:
        """What theorems are asked about."""
        return Run(self.training, self.loss, (), self.unit)

    @cached_property
    def candidates(self) -> tuple[Theorem, ...]:
        """Theorems that can be the tightest here."""
        return tuple(candidates(self.run))

    @cached_property
    def inapplicable_reasons(self) -> tuple[tuple[Theorem, str | None], ...]:
        """Every theorem, and what stands in its way."""
        return tuple((theorem, inapplicable_reason(theorem, self.run)) for theorem in THEOREMS)

    def __getstate__(self) -> dict[str, Any]:
        """The description alone: whoever gets it computes what follows where it is needed."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


@dataclass(frozen=True)
class Sought:
    """A run whose noise is to be found: the least that meets a target epsilon."""

    about: Description
    epsilon: float


@dataclass(frozen=True)
class Erasing:
    """What it takes to forget somebody after a run."""

    about: Description
    epsilon: float


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
    sought: Sought | None = None
    hump: Hump | None = None
    forget: float | None = None  # the epsilon that the erased are to get
    complaints: dict[str, str] = field(default_factory=dict)

    def complain(self, error: LastIterateError, fallback: str, told: str = "deviation") -> None:
        """Put the words of an error at its field: the one that this way of telling shows."""
        name = getattr(error, "field", fallback)
        name = _PAGE_NAME.get(name, name)
        if told == "multiplier":
            name = {"noise": "multiplier", "gradient_norm": "clip"}.get(name, name)
        self.complaints.setdefault(name if name in FIELDS else fallback, str(error))


def shown(state: Mapping[str, str]) -> set[str]:
    """The fields that matter for what was chosen; the others are hidden and not read."""
    hidden = {"size", "rate"} - BATCH_FIELDS[state["batches"]]
    hidden |= _NOISE_FIELDS - _TOLD_BY[state["told"]]
    if state["batches"] not in _DEALT_OUT:
        hidden.add("schedule")
    if _step_size_cancels(state):
        hidden.add("step_size")
    hidden |= {"smoothness", "strong_convexity", "exponent"} - LOSS_FIELDS[state["loss"]]
    if state["release"] == "last":
        hidden.add("window")
    if state["batches"] not in _DEALT_OUT:
        hidden.add("per_batch")
    return set(FIELDS) - hidden


def read(state: Mapping[str, str]) -> Reading:
    """The description in a state, and everything that keeps it from being one.

    >>> from lastiterate.explore.fields import DEFAULTS
    >>> read(DEFAULTS).description.training.steps
    2000
    >>> read({**DEFAULTS, "records": "none"}).complaints["records"]
    "records must be a whole number such as 5000 or 5e3, got 'none': it is counted."
    """
    reading = Reading()
    values = _numbers(state, reading)
    if not any(f.name in reading.complaints for f in (*RUN, *LOSS, *RELEASE, *PERSON)):
        try:
            found = _description(state, values)
            if state["told"] == "target":
                target = number("target", values["target"], above=0.0)
                reading.sought = Sought(found, target)
            else:
                reading.description = found
        except DescriptionError as error:
            reading.complain(error, "length", state["told"])
    if not any(f.name in reading.complaints for f in ERASE):
        try:
            reading.forget = number("forget_epsilon", values["forget_epsilon"], above=0.0)
        except DescriptionError as error:
            reading.complain(error, "forget_epsilon")
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
    """The tables that a file would have, read as a file is; then what this page is ready for."""
    scheme, kind = state["batches"], state["loss"]
    batches = {name: values[name] for name in BATCH_FIELDS[scheme]}
    table: dict[str, Any] = {name: values[name] for name in _SAME if name in values}
    table["step_size"] = values.get("step_size", 1.0)
    if state["told"] == "multiplier":
        table["noise_multiplier"] = values["multiplier"]
    elif state["told"] == "target":
        table["noise"] = table["step_size"]  # of any size: it is to be found
    if state["schedule"] == "equalised" and state["batches"] in _DEALT_OUT:
        table["schedule"] = "equalised"
    table |= {name: state[name] for name in ("adjacency", "clipping")}
    table |= {state["unit"]: values["length"], "batches": {"scheme": scheme, **batches}}
    if state["release"] == "tail":
        table["release"] = {"tail_average": values["window"]}
    training = read_training(table)
    _most("records", training.records, MOST_RECORDS)
    most = MOST_STEPS if training.batches.repeated else MOST_SEARCHED_STEPS
    _most("steps", training.steps, most)
    if (training.batches_per_epoch or 1) > MOST_POSITIONS:
        allowed = f"large enough for at most {MOST_POSITIONS:,} batches in an epoch"
        why = "this page looks at every position; Python has no such limit"
        raise DescriptionError("batches.size", values["size"], allowed, why)
    loss = {name: values[name] for name in (*LOSS_FIELDS[kind], "regularization")}
    delta = checked_delta(values["delta"])
    described = Description(training, Loss.from_dict({"kind": kind, **loss}), delta)
    return replace(described, unit=_unit(state, values, training))


def _step_size_cancels(state: Mapping[str, str]) -> bool:
    """Whether only noise over impulse counts, both of which are multiples of the step size."""
    lengths = (state["diameter"].strip(), state["regularization"].strip().strip("0."))
    told = state["told"] == "multiplier" and state["loss"] == "unknown"
    constant = state["schedule"] == "constant" or state["batches"] not in _DEALT_OUT
    return told and constant and not any(lengths) and not state["own_norm"].strip()


def _unit(state: Mapping[str, str], values: Mapping[str, float], training: Training) -> PrivacyUnit:
    """Whom it is for; an empty field says nothing."""
    told = {
        name.removeprefix("unit."): values[field]
        for name, field in _PAGE_NAME.items()
        if name.startswith("unit.") and field in values and state[field].strip()
    }
    unit = PrivacyUnit.from_dict(told)
    unit.check(training)
    if unit.timed:
        _most("steps", training.steps, MOST_SEARCHED_STEPS)
    return unit


def _hump(values: Mapping[str, float]) -> Hump:
    records = integer("sgld_records", values["sgld_records"], at_most=MOST_RECORDS)
    exponent = number("sgld_exponent", values["sgld_exponent"], at_least=-5, at_most=5)
    epochs = integer("sgld_epochs", values["sgld_epochs"], at_most=MOST_EPOCHS)
    limit = 2 * (2 + records * 1.8**2)
    scale = number("sgld_scale", values["sgld_scale"], above=0, at_most=limit * (1 - 1e-12))
    delta = number("sgld_delta", values["sgld_delta"], above=0, at_most=0.4)
    return Hump(records, exponent, scale, epochs, delta)


def _most(field: str, value: int, limit: int) -> None:
    if value > limit:
        why = "this page answers at once; Python has no such limit"
        raise DescriptionError(field, value, f"at most {limit:,} here", why)
