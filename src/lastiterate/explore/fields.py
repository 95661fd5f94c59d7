"""The fields of the page: names, labels, words, and the range of each slider.

One table that the form, the link and the validation share. A field's text is read by the same
validators as any description; a slider only proposes texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lastiterate.description import Loss, Poisson, PrivacyUnit, Shuffled, Training
from lastiterate.description.fields import rows

Kind = Literal["whole", "number", "choice"]


@dataclass(frozen=True)
class Field:
    """One thing to fill in."""

    name: str
    label: str
    default: str
    low: float = 0.0  # where its slider begins
    high: float = 0.0  # and ends; choices have none
    words: str = ""
    kind: Kind = "number"
    log: bool = True  # equal distances on the slider are equal factors
    options: tuple[tuple[str, str], ...] = ()  # value and label
    blank: str = ""  # what an empty field means, where it may be empty


def _described(described: type, name: str, *slider: Any, shown: str = "", **others: Any) -> Field:
    """A field with the help of its row; slider: label, default, low, high; shown: its own name."""
    row = rows(described)[name]
    kind: Kind = "whole" if row.type is int else "number"
    label, default, low, high = slider
    return Field(shown or name, label, default, low, high, row.help, kind, **others)


RUN = (
    _described(Training, "records", "Records", "60000", 10, 1e7),
    Field(
        "batches",
        "Batches",
        "shuffled",
        kind="choice",
        options=(
            ("full", "full"),
            ("cyclic", "cyclic, known order"),
            ("shuffled", "shuffled once"),
            ("reshuffled", "reshuffled every epoch"),
            ("poisson", "Poisson"),
            ("without-replacement", "drawn without replacement"),
        ),
    ),
    _described(Shuffled, "size", "Batch size", "1500", 1, 1e5),
    _described(Poisson, "rate", "Sampling rate", "0.025", 1e-5, 1),
    Field(
        "unit",
        "Length counted in",
        "epochs",
        kind="choice",
        options=(("steps", "steps"), ("epochs", "epochs")),
    ),
    Field(
        "length", "Length of the run", "50", 1, 1e5, "how many steps (updates) or epochs (passes)"
    ),
    Field(
        "told",
        "Noise",
        "deviation",
        kind="choice",
        options=(
            ("multiplier", "noise multiplier and clip"),
            ("target", "how much do I need?"),
            ("deviation", "deviation of one update"),
        ),
    ),
    Field(
        "multiplier",
        "Noise multiplier",
        "3",
        1e-2,
        100,
        "noise of one update = step size × this × clip / batch size",
    ),
    Field("clip", "Clip", "5", 1e-2, 1e3, "no record's gradient is longer"),
    Field(
        "target",
        "Target epsilon",
        "1",
        1e-2,
        20,
        "the least noise is found whose guarantee meets it",
    ),
    _described(Training, "noise", "Deviation of the noise", "0.0005", 1e-7, 100),
    _described(Training, "gradient_norm", "Gradient norm", "5", 1e-2, 1e3),
    Field("step_size", "Step size", "0.05", 1e-4, 10),
    Field(
        "schedule",
        "Step sizes",
        "constant",
        kind="choice",
        options=(("constant", "constant"), ("equalised", "equalised in the last epoch")),
    ),
    Field(
        "clipping",
        "Gradient norm enforced by",
        "none",
        kind="choice",
        options=(
            ("none", "the loss itself"),
            ("gradient", "clipping gradients"),
            ("margin", "clipping margins"),
        ),
    ),
    Field(
        "diameter",
        "Diameter of the domain",
        "",
        1e-2,
        1e3,
        rows(Training)["diameter"].help + " Empty: no projection.",
        blank="inf",
    ),
    Field(
        "adjacency",
        "One record is",
        "zero-out",
        kind="choice",
        options=(("zero-out", "left out (zeroed)"), ("replace", "replaced by another")),
    ),
)

LOSS = (
    Field(
        "loss",
        "The loss of one record is",
        "convex",
        kind="choice",
        options=(
            ("convex", "convex and smooth"),
            ("nonconvex", "smooth, not convex"),
            ("holder", "Hölder"),
            ("unknown", "unknown"),
        ),
    ),
    _described(Loss, "smoothness", "Smoothness", "0.25", 1e-3, 1e3),
    _described(Loss, "strong_convexity", "Strong convexity", "0", 1e-5, 100),
    _described(Loss, "exponent", "Hölder exponent", "0.5", 0, 1, log=False),
    _described(Loss, "regularization", "L2 term", "0.002", 1e-6, 10),
)

RELEASE = (
    Field(
        "release",
        "What is released",
        "last",
        kind="choice",
        options=(("last", "the last iterate"), ("tail", "an average of the last iterates")),
    ),
    Field("window", "Iterates in the average", "10", 1, 1e4, kind="whole"),
    Field("delta", "Delta", "1e-5", 1e-10, 1e-1, "the probability with which epsilon may fail"),
)

PERSON = (
    _described(
        PrivacyUnit, "records", "Records of one person", "1", 1, 100, shown="person_records"
    ),
    _described(PrivacyUnit, "per_batch", "Of them in one batch", "", 1, 100, blank="0"),
    _described(PrivacyUnit, "first_step", "Used from step", "0", 1, 1e5),
    _described(PrivacyUnit, "last_step", "Used before step", "", 1, 1e5, blank="0"),
    _described(
        PrivacyUnit,
        "gradient_norm",
        "The person's gradient norm",
        "",
        1e-3,
        1e3,
        shown="own_norm",
        blank="0",
    ),
)

ERASE = (
    Field(
        "forget_epsilon",
        "Epsilon for the erased",
        "1",
        1e-2,
        20,
        "how near to a model that never saw their records; delta as above",
    ),
)

SGLD = (
    Field(
        "sgld_records",
        "Records",
        "17864389",
        10,
        1e9,
        "all alike but one, which is half as long",
        kind="whole",
    ),
    Field(
        "sgld_exponent",
        "Slope exponent",
        "1.145578",
        0.5,
        1.5,
        "the slope y/x is records to this power",
        log=False,
    ),
    Field("sgld_scale", "Step size times A²", "2", 0.1, 10, "A is the precision of the posterior"),
    Field("sgld_epochs", "Epochs", "60", 1, 200, kind="whole"),
    Field("sgld_delta", "Delta", "0.001", 1e-10, 1e-1),
)

FIELDS = {field.name: field for field in (*RUN, *LOSS, *RELEASE, *PERSON, *ERASE, *SGLD)}
DEFAULTS = {name: field.default for name, field in FIELDS.items()}
