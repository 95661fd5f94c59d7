"""The fields of the page: names, labels, words, and the range of each slider.

One table that the form, the link and the validation share. A field's text is read by the same
validators as any description; a slider only proposes texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["whole", "number", "choice"]


@dataclass(frozen=True)
class Slider:
    """Where a slider begins and ends; ``log``: equal distances are equal factors."""

    low: float
    high: float
    log: bool = True


@dataclass(frozen=True)
class Field:
    """One thing to fill in."""

    name: str
    label: str
    default: str
    words: str = ""
    kind: Kind = "number"
    options: tuple[tuple[str, str], ...] = ()  # value and label
    slider: Slider | None = None
    blank: str = ""  # what an empty field means, where it may be empty


RUN = (
    Field(
        "records",
        "Records",
        "60000",
        "how many records the data has",
        "whole",
        slider=Slider(10, 1e7),
    ),
    Field(
        "unit",
        "Length counted in",
        "epochs",
        kind="choice",
        options=(("steps", "steps"), ("epochs", "epochs")),
    ),
    Field(
        "length",
        "Length of the run",
        "50",
        "how many steps (updates) or epochs (passes)",
        slider=Slider(1, 1e5),
    ),
    Field("step_size", "Step size", "0.05", slider=Slider(1e-4, 10)),
    Field(
        "noise",
        "Noise",
        "0.0005",
        "standard deviation of the Gaussian added to the parameters in one update",
        slider=Slider(1e-7, 100),
    ),
    Field(
        "gradient_norm",
        "Gradient norm",
        "5",
        "no record's gradient is longer",
        slider=Slider(1e-2, 1e3),
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
    Field("size", "Batch size", "1500", "records in one batch", "whole", slider=Slider(1, 1e5)),
    Field(
        "rate",
        "Sampling rate",
        "0.025",
        "probability that a record joins a batch",
        slider=Slider(1e-5, 1),
    ),
    Field(
        "diameter",
        "Diameter of the domain",
        "",
        "parameters are projected on a convex set of this diameter; empty: no projection",
        slider=Slider(1e-2, 1e3),
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
        "Lipschitz (or Hölder) constant of the gradient",
        slider=Slider(1e-3, 1e3),
    ),
    Field(
        "strong_convexity",
        "Strong convexity",
        "0",
        "without the L2 term; 0: merely convex",
        slider=Slider(1e-5, 100),
    ),
    Field("exponent", "Hölder exponent", "0.5", "between 0 and 1", slider=Slider(0, 1, log=False)),
    Field(
        "regularization",
        "L2 term",
        "0.002",
        "coefficient of the data-free penalty; 0: none",
        slider=Slider(1e-6, 10),
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
    Field("window", "Iterates in the average", "10", "", "whole", slider=Slider(1, 1e4)),
    Field(
        "delta",
        "Delta",
        "1e-5",
        "the probability with which epsilon may fail",
        slider=Slider(1e-10, 1e-1),
    ),
)

SGLD = (
    Field(
        "sgld_records",
        "Records",
        "17864389",
        "all alike but one, which is half as long",
        "whole",
        slider=Slider(10, 1e9),
    ),
    Field(
        "sgld_exponent",
        "Slope exponent",
        "1.145578",
        "the slope y/x is records to this power",
        slider=Slider(0.5, 1.5, log=False),
    ),
    Field(
        "sgld_scale",
        "Step size times A²",
        "2",
        "A is the precision of the posterior",
        slider=Slider(0.1, 10),
    ),
    Field("sgld_epochs", "Epochs", "60", "", "whole", slider=Slider(1, 200)),
    Field("sgld_delta", "Delta", "0.001", "", slider=Slider(1e-10, 1e-1)),
)

FIELDS = {field.name: field for field in (*RUN, *LOSS, *RELEASE, *SGLD)}
DEFAULTS = {name: field.default for name, field in FIELDS.items()}
