"""A description from a TOML file, from flags, or from both: flags win.

The file has the tables [training], [loss] and perhaps [unit] and, above them, `delta` and
`releases`. The
conventions of DP-SGD (noise multiplier, clip) and of Langevin dynamics (sigma, gradient
sensitivity) are understood in both places; contradictions and gaps are named, never guessed away.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lastiterate.cli.output import warn_of
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.batches import BATCH_FIELDS, SCHEMES
from lastiterate.description.fields import checked_delta, known_fields, rows
from lastiterate.description.loss import LOSS_FIELDS
from lastiterate.description.serialization import read_toml
from lastiterate.description.training import DP_SGD, LANGEVIN, NOISE_STYLES, read_training
from lastiterate.description.unit import ONE_RECORD
from lastiterate.errors import DescriptionError, LastIterateError

DEFAULT_DELTA = 1e-5

# Two ways to say how long the run is, three to say how much noise is added (`NOISE_STYLES`). One
# source may use one way; flags that use another one replace the file's.
LENGTHS = (("steps",), ("epochs",))
_TRAINING_FLAGS = tuple(
    name for name, row in (rows(Training) | DP_SGD | LANGEVIN).items() if row.panel
)
_BASIS = ("adjacency", "gradient_norm", "clip", "gradient_sensitivity")  # of a sensitivity
_UNIT_FLAGS = {row.flag or name: name for name, row in rows(PrivacyUnit).items()}
_FIELDS = {
    "training": {
        *(name for name in rows(Training) if name != "sensitivity_basis"),
        *DP_SGD,
        *LANGEVIN,
    },
    "loss": set(rows(Loss)),
}
# What DP-SGD may be told without a step size: nothing that is compared with the parameters.
_WITHOUT_LENGTHS = {
    *("records", "steps", "epochs", "batches", "adjacency", "clipping", "momentum"),
    *NOISE_STYLES[1],
}
_LOSS_FLAGS = tuple(name for name, row in rows(Loss).items() if row.panel and not row.flag)


@dataclass(frozen=True)
class Described:
    """What the flags and the file say together.

    ``final_noise="best"`` is no number yet: `training` has the burst that fits the epsilon which
    `plain`, the run without one, has; `calibrate` chooses it for its target instead. Only
    `calibrate` knows what ``schedule="optimal"`` is. A step size that was not given and cancels is
    1 in `training`.
    """

    plain: Training
    loss: Loss
    delta: float
    releases: tuple[int, ...]
    final_noise: Literal["best"] | None = None
    schedule: Literal["optimal"] | None = None
    unit: PrivacyUnit = ONE_RECORD
    step_size_cancels: bool = False

    @cached_property
    def training(self) -> Training:
        """The run."""
        if self.schedule is not None:
            raise LastIterateError(
                "The optimal schedule is found for a target: `lastiterate calibrate --epsilon` "
                "prints the run that has it. A run with given noise has no such schedule."
            )
        if self.final_noise is None:
            return self.plain
        from lastiterate.accounting import account, best_burst

        epsilon = account(self.plain, self.loss).epsilon(self.delta)
        if not 0 < epsilon < math.inf:
            return self.plain
        found = best_burst(self.plain, self.loss, epsilon, self.delta)
        return self.plain.replace(final_noise=found)

    def to_dict(self) -> dict[str, Any]:
        """The description as plain values, with what follows from it."""
        return {
            "training": self.training.to_dict(),
            "loss": self.loss.to_dict(),
            "adjacency": self.training.adjacency,
            "sensitivity": float(self.training.sensitivity),
            "implied_sensitivity": self.training.implied_sensitivity,
            "declared_sensitivity": self.training.declared_sensitivity,
            "epochs": self.training.epochs,
            "dropped_records": self.training.dropped_records,
            "releases": list(self.releases),
            "unit": self.unit.to_dict(),
        }


def combine(file: Path | None, flags: Mapping[str, Any]) -> Described:
    """Read the file, lay the flags over it, and build the description."""
    document = _read(file)
    training = _lay_over(document["training"], flags)
    training["batches"] = _batches_table(training.get("batches"), flags)
    if "tail_average" in flags:
        training["release"] = {"tail_average": flags["tail_average"]}
    burst = burst_factor(training.pop("final_noise", None))
    if burst not in (None, "best"):
        training["final_noise"] = burst
    optimal = training.get("schedule") == "optimal"
    if optimal:
        del training["schedule"]
    loss = _loss_table(document["loss"], flags)
    cancels = _step_size_cancels(training, loss)
    if cancels:
        training["step_size"] = 1.0
    _require(training, loss)
    delta = checked_delta(flags.get("delta", document.get("delta", DEFAULT_DELTA)))
    described = read_training(training)
    warn_of(delta, described.records)
    return Described(
        described,
        Loss.from_dict(loss),
        delta,
        _steps_list(flags.get("releases", document.get("releases", []))),
        "best" if burst == "best" else None,
        "optimal" if optimal else None,
        _unit(document.get("unit", {}), flags, described),
        cancels,
    )


def _unit(table: Any, flags: Mapping[str, Any], training: Training) -> PrivacyUnit:
    """Whom it is for: the table [unit] of the file with the flags over it."""
    given = {name: flags[flag] for flag, name in _UNIT_FLAGS.items() if flag in flags}
    if isinstance(table, Mapping):
        table = {**table, **given}
    unit = PrivacyUnit.from_dict(table)
    unit.check(training)
    return unit


def _read(file: Path | None) -> dict[str, Any]:
    empty: dict[str, Any] = {"training": {}, "loss": {}}
    if file is None:
        return empty
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LastIterateError(f"Cannot read the description {str(file)!r}: {reason}.") from None
    document = known_fields(
        "description", read_toml(text), {"training", "loss", "delta", "releases", "unit"}
    )
    for name in ("training", "loss"):
        if not isinstance(document.setdefault(name, {}), Mapping):
            why = "a description has a table for the run and one for the loss"
            raise DescriptionError(name, document[name], f"a table [{name}]", why)
        known_fields(name, document[name], _FIELDS[name])  # a misspelt field is not a missing one
    return document


def _lay_over(table: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The file's table with the flags over it; a way chosen by flags ousts the file's way.

    A sensitivity of the file was declared for the file's gradients and neighbours: flags that
    change these leave it out.
    """
    given = {name: flags[name] for name in _TRAINING_FLAGS if name in flags}
    merged = dict(table)
    if any(name in given and given[name] != table.get(name) for name in _BASIS):
        merged.pop("sensitivity", None)
    for ways in (NOISE_STYLES, LENGTHS):
        _only_one(ways, given, table, spelled=_as_flag)
        _only_one(ways, table, {}, spelled=str)
        if any(_used(way, given, table) for way in ways):
            ousted = {name for way in ways if not _used(way, given, table) for name in way}
            merged = {name: value for name, value in merged.items() if name not in ousted}
    return merged | given


def _only_one(
    ways: tuple[tuple[str, ...], ...],
    table: Mapping[str, Any],
    under: Mapping[str, Any],
    spelled: Callable[[str], str],
) -> None:
    used = [spelled(_used(way, table, under)[0]) for way in ways if _used(way, table, under)]
    if len(used) > 1:
        raise LastIterateError(
            f"{used[0]} contradicts {used[1]}: they belong to different ways of saying the same "
            f"thing. Use one of: {'; '.join(' with '.join(map(spelled, way)) for way in ways)}."
        )


def _used(
    way: tuple[str, ...], table: Mapping[str, Any], under: Mapping[str, Any] = {}
) -> list[str]:
    """The names of a way that a table uses; a gradient_norm beside or over a sigma chooses none."""
    aside = {"gradient_norm"} if set(NOISE_STYLES[2]) & {*table, *under} else set[str]()
    return [name for name in way if name in table and name not in aside]


def _batches_table(table: Any, flags: Mapping[str, Any]) -> dict[str, Any]:
    names = {name for scheme in SCHEMES.values() for name in rows(scheme)}
    merged = known_fields("batches", table or {}, {"scheme", *names})
    scheme = flags.get("batches", merged.get("scheme"))
    if scheme != merged.get("scheme"):  # what only the file's scheme needed goes with it
        used = BATCH_FIELDS.get(scheme, {"size", "rate"})
        merged = {name: value for name, value in merged.items() if name in used}
        merged["scheme"] = scheme
    if {"rate", "batch_size"} & set(flags):
        merged = {name: merged[name] for name in merged if name not in ("rate", "batch_size")}
    size = "batch_size" if scheme == "poisson" else "size"
    flag_of = {size: "batch_size", "rate": "rate"}
    return merged | {name: flags[flag] for name, flag in flag_of.items() if flag in flags}


def _loss_table(table: Mapping[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    if "loss" in flags and flags["loss"] != merged.get("kind", "convex"):
        keep = LOSS_FIELDS.get(flags["loss"], frozenset()) | {"regularization", "provenance"}
        merged = {name: value for name, value in merged.items() if name in keep}
    if "loss" in flags:
        merged["kind"] = flags["loss"]
    return merged | {name: flags[name] for name in _LOSS_FLAGS if name in flags}


def _step_size_cancels(training: Mapping[str, Any], loss: Mapping[str, Any]) -> bool:
    """Whether a missing step size changes no number.

    DP-SGD's noise and one record's share of an update are both multiples of it. Of a loss that
    nothing is known of only their ratio counts, unless something is measured in parameters: a
    domain, an L2 term, a schedule.
    """
    return (
        "step_size" not in training
        and _WITHOUT_LENGTHS.issuperset(training)
        and "noise_multiplier" in training
        and loss.get("kind") == "unknown"
        and not loss.get("regularization")
    )


def _require(training: Mapping[str, Any], loss: Mapping[str, Any]) -> None:
    """Name everything that is missing at once."""
    missing = [_as_flag(name) for name in ("records", "step_size") if name not in training]
    if "steps" not in training and "epochs" not in training:
        missing.append("--steps (or --epochs)")
    style = next((way for way in NOISE_STYLES if _used(way, training)), None)
    if style is None:
        missing.append(
            "--noise with --gradient-norm (or --noise-multiplier with --clip, or --sigma with "
            "--gradient-sensitivity)"
        )
    else:
        known = set(training) | ({"gradient_norm"} if "sensitivity" in training else set[str]())
        missing += [_as_flag(name) for name in style if name not in known]
    batches = training["batches"]
    if "scheme" not in batches:
        missing.append(f"--batches ({', '.join(SCHEMES)})")
    else:
        given = {*batches, *({"rate"} if "batch_size" in batches else ())}
        needed = BATCH_FIELDS.get(str(batches["scheme"]), frozenset()) - given
        missing += ["--batch-size" if name == "size" else "--rate" for name in needed]
    kind = loss.get("kind", "convex")
    if kind in ("convex", "nonconvex", "holder") and "smoothness" not in loss:
        missing.append("--smoothness (or --loss unknown)")
    if kind == "holder" and "exponent" not in loss:
        missing.append("--exponent")
    if missing:
        raise LastIterateError(
            f"The description is incomplete. Missing: {'; '.join(missing)}. Give them as flags, or "
            "in a TOML file with the tables [training] and [loss]."
        )


def burst_factor(given: Any) -> Any:
    """The factor of a burst, also from text; "best" and other types stay what they are."""
    if not isinstance(given, str) or given == "best":
        return given
    try:
        return float(given)
    except ValueError:
        why = "it multiplies the variance of the last step's noise"
        raise DescriptionError("final_noise", given, "a number, or best", why) from None


def _steps_list(given: Any) -> tuple[int, ...]:
    parts = given.split(",") if isinstance(given, str) else given
    try:
        return tuple(int(part) if isinstance(part, str) else part for part in parts)
    except (TypeError, ValueError):
        why = "only iterates of the run can be released"
        raise DescriptionError("releases", given, "steps such as 500,1000", why) from None


def _as_flag(name: str) -> str:
    return "--" + name.replace("_", "-")
