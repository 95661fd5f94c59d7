"""One run, many people: what it costs whoever joins late, leaves early, says little or much."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from lastiterate._internal.formatting import printed
from lastiterate._internal.notebook import html_table
from lastiterate.accounting.accountant import account
from lastiterate.accounting.guarantee import NOT_A_GUARANTEE, REFERENCE_DELTA, Guarantee
from lastiterate.description import PrivacyUnit
from lastiterate.errors import DescriptionError, UnsupportedError

WHO_MAY_SEE_IT = (
    "Who may see it: everybody may see the whole table, which follows from the description of the "
    "run. Which row is somebody's (how many records, since when, until when, how short the "
    "gradients) is about that person: tell it to that person and to nobody else."
)


@dataclass(frozen=True)
class IndividualEpsilon:
    """The epsilon of people who are exposed in one way; infinite if no theorem covers them."""

    unit: PrivacyUnit
    epsilon: float


@dataclass(frozen=True)
class IndividualEpsilons:
    """The epsilons of one run, by how a person's records enter it; print it.

    ``guarantee``: the one that was asked about; its own person comes first.
    """

    guarantee: Guarantee
    delta: float
    rows: tuple[IndividualEpsilon, ...]

    def __iter__(self) -> Iterator[IndividualEpsilon]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def _warning(self) -> str:
        return NOT_A_GUARANTEE if self.guarantee.provenance == "estimated" else ""

    @property
    def _lines(self) -> list[tuple[str, str]]:
        return [
            ("-", f"{row.unit}: no theorem covers it")
            if math.isinf(row.epsilon)
            else (printed(row.epsilon), str(row.unit))
            for row in self
        ]

    def __str__(self) -> str:
        lines = [self._warning] if self._warning else []
        lines += [f"epsilon at delta = {printed(self.delta)}, {self.guarantee.training}"]
        lines += [f"  {epsilon:>10}  {who}" for epsilon, who in self._lines]
        return "\n".join([*lines, WHO_MAY_SEE_IT])

    def _repr_html_(self) -> str:
        heading = f"epsilon at delta = {printed(self.delta)}, {self.guarantee.training}"
        return html_table(heading, self._lines, warning=self._warning, details=WHO_MAY_SEE_IT)


def individual_epsilons(
    guarantee: Guarantee,
    delta: float = REFERENCE_DELTA,
    *,
    first_step: Iterable[int] | None = None,
    last_step: Iterable[int] | None = None,
    gradient_norm: Iterable[float] | None = None,
    records: Iterable[int] | None = None,
    others: Iterable[PrivacyUnit] = (),
) -> IndividualEpsilons:
    """What the run costs other people than the one that the guarantee speaks of.

    Each list changes one thing about that person; a list that is left out has a few values of its
    own, an empty one none.

    Args:
        guarantee: of one run, as `account` returns it.
        delta: the probability with which the epsilons may fail.
        first_step: steps from which on the person's records are used.
        last_step: steps before which alone they are used.
        gradient_norm: bounds on the person's own gradients.
        records: how many records the person has at most.
        others: any other units.

    >>> from lastiterate import FullBatch, Loss, Training
    >>> run = Training(records=100, steps=50, step_size=0.1, noise=0.05, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="replace")
    >>> guarantee = account(run, Loss(smoothness=1.0))
    >>> table = individual_epsilons(guarantee, first_step=[40], last_step=[], records=[2])
    >>> print(str(table).split("Who may")[0])  # doctest: +ELLIPSIS
    epsilon at delta = 1e-05, 50 steps ...
           1.061  a single record
          0.4401  a single record, used from step 40 on
           0.497  a single record, with gradients no longer than 0.5
         0.08582  a single record, with gradients no longer than 0.1
           2.289  a person with up to 2 records
    <BLANKLINE>
    """
    if type(guarantee) is not Guarantee:  # a child may hold more than one run
        found, why = f"of type {type(guarantee).__name__}", "other people are accounted in its run"
        raise DescriptionError("guarantee", found, "what account(training, loss) returns", why)
    training, person = guarantee.training, guarantee.unit
    longest = training.gradient_norm if person.gradient_norm is None else person.gradient_norm
    shorter = [longest / 2, longest / 10] if math.isfinite(longest) else []
    lists: dict[str, Iterable[Any]] = {
        "first_step": _epochs(guarantee, 1, 4) if first_step is None else first_step,
        "last_step": _epochs(guarantee, 4, 1) if last_step is None else last_step,
        "gradient_norm": shorter if gradient_norm is None else gradient_norm,
        "records": [k for k in (2, 10) if k <= training.records] if records is None else records,
    }
    units = [person]
    named = {
        "first_step": first_step,
        "last_step": last_step,
        "gradient_norm": gradient_norm,
        "records": records,
    }
    for name, values in lists.items():
        changed = [dataclasses.replace(person, **{name: value}) for value in values]
        units += changed if named[name] is not None else _possible(changed, guarantee)
    rows = [
        IndividualEpsilon(each, _epsilon(guarantee, each, delta))
        for each in dict.fromkeys([*units, *others])
    ]
    return IndividualEpsilons(guarantee, delta, tuple(rows))


def _possible(units: Iterable[PrivacyUnit], guarantee: Guarantee) -> list[PrivacyUnit]:
    """Those that the run allows, such as a person's records that fit into its batches."""

    def allowed(unit: PrivacyUnit) -> bool:
        try:
            unit.check(guarantee.training)
        except DescriptionError:
            return False
        return True

    return [unit for unit in units if allowed(unit)]


def _epochs(guarantee: Guarantee, *fifths: int) -> list[int]:
    """Steps at so many fifths of the run, at the nearest ends of epochs; none if it has no room."""
    training, person = guarantee.training, guarantee.unit
    unit = training.batches_per_epoch or 1
    found = [round(each * training.steps / unit / 5) * unit for each in fifths]
    last = training.steps if person.last_step is None else person.last_step
    return [step for step in found if person.first_step < step < last]


def _epsilon(guarantee: Guarantee, person: PrivacyUnit, delta: float) -> float:
    run = guarantee.run
    if person == run.unit:
        return guarantee.epsilon(delta)
    try:
        found = account(run.training, run.loss, releases=run.releases[:-1], unit=person)
    except UnsupportedError:
        return math.inf
    return found.epsilon(delta)
