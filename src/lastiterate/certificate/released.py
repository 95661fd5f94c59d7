"""What a trainer released, certified as what ran: its marks, its people, its rounding.

`certify` sees a description and numbers, and cannot know whether the run that made them was seeded,
how its loader placed a person's records, or which slots stayed empty. A run knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate.certificate.certificate import Certificate
from lastiterate.certificate.signing import certify
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.loss import accepted_loss
from lastiterate.description.unit import read_unit
from lastiterate.errors import AssumptionError
from lastiterate.verifier.document import Head


class Released(Protocol):
    """What a run released, as `noisy_descent` returns it."""

    @property
    def parameters(self) -> NDArray[np.float64]:
        """The model."""

    @property
    def training(self) -> Training:
        """What ran."""

    @property
    def loss(self) -> Loss | None:
        """What is proved about the loss."""

    @property
    def regularization(self) -> float:
        """The coefficient of the L2 term of its updates."""

    @property
    def not_convex(self) -> str:
        """The reason why its loss is not convex in the parameters, if one is known."""

    @property
    def experiment(self) -> bool:
        """Whether no certificate may be given."""

    @property
    def objection(self) -> str:
        """Why not."""

    @property
    def partition_nonce(self) -> str | None:
        """Names the hidden batches."""

    @property
    def unit(self) -> PrivacyUnit:
        """Whom it was made for."""

    @property
    def above(self) -> tuple[Any, ...]:
        """Who had more records than count; the others' slots are empty."""

    @property
    def started(self) -> str | None:
        """The hash of the released model that it started from."""


def certify_released(
    released: Released,
    delta: float,
    *,
    loss: Loss | None = None,
    dataset: str = "",
    releases: Iterable[int] = (),
    unit: PrivacyUnit | None = None,
    follows: Head | None = None,
) -> Certificate:
    """The certificate of a run, bound to the model it released; refused for experiments."""
    nothing = released.loss is None and loss is None
    if released.experiment or nothing:
        why = released.objection or "Nothing is known about its loss: give loss=."
        raise AssumptionError(f"The run cannot be certified. {why}")
    l2 = released.regularization
    ran = Loss.unknown() if released.loss is None else released.loss
    known = accepted_loss(loss, ran.with_regularization(l2))
    if known.convex and released.not_convex:
        raise AssumptionError(
            f"loss= claims a convex loss, but {released.not_convex}: no criterion makes such a "
            "loss convex in its parameters. Leave loss= out, or claim Loss.unknown() or "
            "Loss.nonconvex(smoothness=)."
        )
    if released.above and known.strong_convexity > 0:
        raise AssumptionError(
            "Records above max_records_per_group were dropped, and empty slots curve nothing: "
            "batches are less curved than their records. Give loss= with strong_convexity=0; "
            "an L2 term (regularization) stays."
        )
    told, length = released.training.declared_sensitivity, released.training.gradient_norm
    exchanged = released.training.batches.name in ("shuffled", "reshuffled")
    if released.above and exchanged and told is not None and told < length:
        raise AssumptionError(
            "Records above max_records_per_group were dropped, and a record differs from an empty "
            f"slot by up to gradient_norm = {length:g}, not by the declared sensitivity {told:g}: "
            "in a hidden partition a record may change places with such a slot. Leave "
            "sensitivity out."
        )
    person = released.unit if unit is None else read_unit(unit)
    apart = released.unit.per_batch
    if person.per_batch != apart and released.training.batches.hidden:
        # Groups that are kept apart restrict the arrangements, for single records too.
        raise AssumptionError(
            f"The run placed a person's records with per_batch={apart}, and {person} is "
            "somebody else: in hidden batches neither bounds the other. Train with groups=, "
            "max_records_per_group= and per_batch=, and leave unit= out."
        )
    return certify(
        released.training,
        known,
        delta,
        dataset=dataset,
        parameters=released.parameters,
        releases=releases,
        unit=person,
        nonce=released.partition_nonce,
        follows=follows,
        started=released.started,
    )
