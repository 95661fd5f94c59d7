"""What a run rests on, in words: pure functions of the description and the loss.

Guarantees print these sentences, certificates carry them, and the verifier derives them again: a
certificate whose words were softened does not verify.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from lastiterate.description.arithmetic import Arithmetic
from lastiterate.description.loss import Loss
from lastiterate.description.training import Training
from lastiterate.description.unit import PrivacyUnit

SENSITIVITY_STATEMENT = "one record changes the sum of gradients by at most"


RELEASED_CLASSES = (
    "the set of classes that occur among the labels, released unless all classes were declared"
)
NOT_COVERED = (
    "choices made by looking at the private data: hyper-parameters, feature bounds, categories",
    "intermediate models: a checkpoint that leaves or that others can read is a release",
    "other runs on the same data (compose their certificates)",
    "the number of records, which is treated as public",
    RELEASED_CLASSES,
    "noise from a seeded or predictable generator",
)
_GRADIENTS = (
    "the gradient of a record is that of its loss: the rounding above is that of sums, and what "
    "computing one gradient rounds is nothing, or was added to the error that was told"
)
_ALONE = (
    "what is computed as the gradient of a record is the same to the last bit, whichever records "
    "share its batch"
)
_LAST_BITS = "the last bits of released numbers, which are doubles with noise added and not rounded"
_MACHINE = (
    "what else a machine shows or does: timing, memory, faulty hardware, compilers that reassociate"
)


def not_covered(training: Training) -> tuple[str, ...]:
    """What no guarantee for this run speaks of.

    Numbers on a grid have no last bits that could tell; what is left is outside of arithmetic.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch())
    >>> not_covered(run)[-1][:13], not_covered(run.replace(arithmetic=Arithmetic(0.5)))[-1][:20]
    ('the last bits', 'what else a machine ')
    """
    return (*NOT_COVERED, _MACHINE if training.grid_rounding else _LAST_BITS)


@dataclass(frozen=True)
class Assumption:
    """Something a guarantee rests on, and who vouches for it."""

    statement: str
    vouched_by: str

    def __str__(self) -> str:
        return f"{self.statement} [{self.vouched_by}]"


def assumptions(
    training: Training,
    loss: Loss,
    *,
    hidden_state: bool,
    unit: PrivacyUnit | None = None,
    head: tuple[str, str | None] | None = None,
) -> tuple[Assumption, ...]:
    """Everything a theorem's numbers rest on; ``hidden_state``: it needs iterates to stay secret.

    ``head``: of a link of a chain, the hashes of the certificate and of the model that it follows.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch(), clipping="gradient")
    >>> print(assumptions(run, Loss(smoothness=1.0), hidden_state=False)[0])
    no record's gradient is longer than 1 [per-record gradient clipping in the trainer]
    """
    vouched = provenances(training, loss, hidden_state=hidden_state)
    found = [*_gradient_assumptions(training, loss, vouched["gradient_norm"])]
    if hidden_state:
        provenance = _provenance_row(loss, vouched["regularity"])
        found.append(Assumption(f"the loss of a record is {loss}", provenance))
        found.append(Assumption("intermediate iterates stay secret", "whoever runs the training"))
    if training.batches.hidden:
        found.append(Assumption("the random batches stay secret", "whoever runs the training"))
    if math.isfinite(training.diameter):
        domain = f"parameters are projected on a convex set of diameter {training.diameter:g}"
        found.append(Assumption(domain, "the trainer"))
    if training.proximal is not None:
        after = f"after every update comes {training.proximal}, which does not depend on the data"
        found.append(Assumption(after, "the trainer"))
    found += _started(head)
    found.append(_arithmetic(training))
    if isinstance(training.arithmetic, Arithmetic) and _computed_elsewhere(loss):
        if hidden_state and loss.kind != "unknown":
            found.append(Assumption(_GRADIENTS, "whoever computes them"))
        elif training.batches.moves_other_records:
            found.append(Assumption(_ALONE, "whoever computes it"))
    found.append(Assumption("the noise is Gaussian and unpredictable", "the noise source"))
    if training.correlation is not None:
        back = f"of every step's noise the next {len(training.correlation) - 1:,} take back a part"
        found.append(Assumption(f"{back}, as described", "the trainer"))
    if unit is not None:
        found += _exposed(unit, training)
    return tuple(found)


def _computed_elsewhere(loss: Loss) -> bool:
    """Whether nobody here knows how a gradient is computed.

    Linear losses of this library are charged for what their scores and slopes round; gradient
    functions and networks round as they like. A theorem that knows nothing of the loss needs no
    map, but another record must not change what a record's gradient is.
    """
    return loss.origin is None or loss.origin.bounded_head


def _started(head: tuple[str, str | None] | None) -> Iterator[Assumption]:
    """Where the run starts: somewhere public, or from the released model of a chain's last link."""
    if head is None or head[1] is None:
        yield Assumption("the starting point does not depend on the data", "the trainer")
    else:
        start = f"the run starts from the released model with the hash {head[1]}"
        yield Assumption(start, "the trainer")
    if head is not None:
        others = (
            "the records in question are used in this link of the chain alone: for others the "
            f"lifetime budget of the chain holds (this link follows {head[0]})"
        )
        yield Assumption(others, "whoever loads the data")


def _exposed(unit: PrivacyUnit, training: Training) -> Iterator[Assumption]:
    """What must hold of a person, where the guarantee is not for one record all the time."""
    if unit.records > 1:
        spread = ""
        if unit.per_batch is not None:
            spread = f", at most {unit.per_batch:,} of them in one batch"
            if unit.per_batch == 1 and training.batches.hidden:
                spread += ", and every choice of different batches is equally likely"
        most = f"nobody has more than {unit.records:,} records{spread}"
        yield Assumption(most, "whoever loads the data")
    if unit.timed:
        when = str(PrivacyUnit(first_step=unit.first_step, last_step=unit.last_step)).partition(
            ", "
        )[2]
        fixed = f"the records in question are {when}, whatever secret iterates say"
        yield Assumption(fixed, "whoever runs the training")
    if unit.gradient_norm is not None:
        norm = f"the records in question have no gradient longer than {unit.gradient_norm!r}"
        yield Assumption(norm, "whoever asks for this person")


def _arithmetic(training: Training) -> Assumption:
    if not isinstance(training.arithmetic, Arithmetic):
        theory = "the description: arithmetic='exact' is theory"
        return Assumption("updates are those of real numbers, not rounded", theory)
    error = f"{training.arithmetic.error:.3g} per unit of step size"
    rounding = f"rounding moves no mean gradient by more than {error}"
    if training.arithmetic.grid:
        grid, size = training.arithmetic.grid, training.arithmetic.coordinates
        rounding += f"; noise is rounded and added to multiples of {grid!r} in {size:,} coordinates"
    return Assumption(rounding, "the trainer")


def provenances(training: Training, loss: Loss, *, hidden_state: bool) -> dict[str, str]:
    """Who vouches for the regularity, the gradient norm and the sensitivity of a run.

    "proved" is never taken on trust: it is derived again from the loss that the constants came
    from. "enforced" is what the trainer does itself, "implied" what follows from the other two,
    "unused" what the theorem does not need.

    >>> from lastiterate import FullBatch
    >>> run = Training(records=9, steps=1, step_size=1.0, noise=1.0, gradient_norm=1.0,
    ...                batches=FullBatch(), clipping="gradient", sensitivity=0.5)
    >>> provenances(run, Loss(smoothness=1.0, provenance="proved"), hidden_state=True)
    {'regularity': 'declared', 'gradient_norm': 'enforced', 'sensitivity': 'declared'}
    """
    origin = loss.origin
    inside = origin is None or origin.covers(2 * training.radius)
    regularity: str = loss.provenance if inside or loss.provenance != "proved" else "declared"
    norm: str = regularity
    if training.clipping != "none":
        norm = "enforced"
    elif math.isinf(training.gradient_norm):
        norm = "unused"
    elif norm == "proved":
        derived = origin is not None and origin.bounds_gradients(training.gradient_norm)
        norm = "proved" if derived else "declared"
    return {
        "regularity": regularity if hidden_state else "unused",
        "gradient_norm": norm,
        "sensitivity": "implied" if training.declared_sensitivity is None else "declared",
    }


def _gradient_assumptions(training: Training, loss: Loss, by: str) -> Iterator[Assumption]:
    """How long a gradient is, and how much one record changes a sum of them."""
    if math.isfinite(training.gradient_norm):
        bound = f"no record's gradient is longer than {training.gradient_norm:g}"
        enforced = {
            "none": f"the loss itself; {_provenance_row(loss, by)}",
            "gradient": "per-record gradient clipping in the trainer",
            "margin": "clipping of the margin derivative in the trainer",
        }[training.clipping]
        yield Assumption(bound, enforced)
    if training.declared_sensitivity is not None:
        yield Assumption(_sensitivity_words(training), "declared by the user")


def _sensitivity_words(training: Training) -> str:
    change = f"{SENSITIVITY_STATEMENT} {training.sensitivity!r} ({training.adjacency})"
    if math.isinf(training.gradient_norm):
        return f"{change}; no bound on a single gradient is given"
    return (
        f"{change}, less than the {training.implied_sensitivity!r} that gradient_norm and "
        "adjacency imply"
    )


def _provenance_row(loss: Loss, by: str) -> str:
    proved = "proved by this library"
    if loss.origin is not None:
        proved += f" for the {loss.origin}"
        if loss.origin.bounded_head:  # a network in float32, whose gradients nobody charges
            proved += ", up to what its network rounds"
    return {
        "proved": proved,
        "declared": "declared by the user",
        "estimated": "only estimated: not a guarantee",
        "enforced": "the trainer",
    }[by]
