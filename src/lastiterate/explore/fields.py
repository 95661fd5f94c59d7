"""The fields of the page: names, labels, words, and the range of each slider.

One table that the form, the link and the validation share. A field's text is read by the same
validators as any description; a slider only proposes texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


RUN = (
    Field("records", "Records", "60000", 10, 1e7, "how many records the data has", kind="whole"),
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
    Field("size", "Batch size", "1500", 1, 1e5, "records in one batch", kind="whole"),
    Field("rate", "Sampling rate", "0.025", 1e-5, 1, "probability that a record joins a batch"),
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
    Field(
        "noise",
        "Deviation of the noise",
        "0.0005",
        1e-7,
        100,
        "standard deviation of the Gaussian added to the parameters in one update",
    ),
    Field("gradient_norm", "Gradient norm", "5", 1e-2, 1e3, "no record's gradient is longer"),
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
        "parameters are projected on a convex set of this diameter; empty: no projection",
        blank="inf",
    ),
    Field(
        "adjacency",
        "One record is",
        "replace",
        kind="choice",
        options=(("replace", "replaced by another"), ("zero-out", "left out (zeroed)")),
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
    Field(
        "smoothness",
        "Smoothness",
        "0.25",
        1e-3,
        1e3,
        "Lipschitz (or Hölder) constant of the gradient",
    ),
    Field(
        "strong_convexity",
        "Strong convexity",
        "0",
        1e-5,
        100,
        "without the L2 term; 0: merely convex",
    ),
    Field("exponent", "Hölder exponent", "0.5", 0, 1, "between 0 and 1", log=False),
    Field(
        "regularization",
        "L2 term",
        "0.002",
        1e-6,
        10,
        "coefficient of the data-free penalty; 0: none",
    ),
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
    Field(
        "person_records",
        "Records of one person",
        "1",
        1,
        100,
        "the guarantee is for all of them together; 1: it is for each record",
        kind="whole",
    ),
    Field(
        "per_batch",
        "Of them in one batch",
        "",
        1,
        100,
        "at most, if the loader sees to it; empty: any number",
        kind="whole",
        blank="0",
    ),
    Field("first_step", "Used from step", "0", 1, 1e5, "steps are counted from 0", kind="whole"),
    Field(
        "last_step", "Used before step", "", 1, 1e5, "empty: to the end", kind="whole", blank="0"
    ),
    Field(
        "own_norm",
        "The person's gradient norm",
        "",
        1e-3,
        1e3,
        "no gradient of the person's records is longer; empty: as for everybody",
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
