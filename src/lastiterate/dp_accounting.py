"""Where dp-accounting's users are: a run as an event, and an accountant that takes it.

A `LastIterateDpEvent` is one whole run, of which only the last iterate is released. The accountant
takes such events beside all of dp-accounting's, so that code that is given an accountant, such as
``calibrate_dp_mechanism``, works unchanged. Needs the extra ``interchange``.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

from lastiterate.accounting import account
from lastiterate.accounting.guarantee import NOT_A_GUARANTEE, Guarantee
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.interchange import to_dp_accounting
from lastiterate.description import Loss, Training
from lastiterate.description.fields import number
from lastiterate.errors import LastIterateError, MissingExtraError

try:
    import attr
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation, PrivacyAccountant
except ModuleNotFoundError as missing:
    what = "An accountant of dp-accounting"
    raise MissingExtraError(what, missing.name, "interchange") from None

__all__ = ["LastIterateAccountant", "LastIterateDpEvent"]

_RELATIONS = {
    "replace": NeighboringRelation.REPLACE_ONE,
    "zero-out": NeighboringRelation.REPLACE_SPECIAL,
}
_SUMS = 1e-12  # kept back from delta: far above what dp-accounting's sums of doubles lose


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LastIterateDpEvent(dp_event.DpEvent):  # type: ignore[misc]
    """One run of noisy gradient descent that releases its last iterate, and nothing else.

    The run is that of `Training`: batches and noise of its own, from a start that is public or was
    released by events before it. Two events are two such runs, one after the other. A run that
    goes on from a state which another one kept hidden is no event: describe both as one run.

    Attributes:
        training: what runs; its adjacency is the accountant's neighbouring relation.
        loss: what is known about the loss of one record.
    """

    training: Training
    loss: Loss


class LastIterateAccountant(PrivacyAccountant):  # type: ignore[misc]
    """An accountant of dp-accounting that also accepts runs which release their last iterate.

    A single run has the epsilon of its guarantee; several runs that are Gaussian have that of one
    Gaussian. Other events are composed by dp-accounting's `PLDAccountant`, whose rounding has no
    proved bound: 1e-12 of delta is reserved for it.

    Args:
        neighboring_relation: REPLACE_SPECIAL is zero-out adjacency, REPLACE_ONE is "replace".
            ADD_OR_REMOVE_ONE changes the number of records, which a description of a run fixes:
            such events are refused.
        value_discretization_interval: of the losses.

    >>> from dp_accounting import GaussianDpEvent
    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=50, step_size=1.0, noise=0.01, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> event = LastIterateDpEvent(run, Loss(smoothness=1.0))
    >>> alone = LastIterateAccountant().compose(event)
    >>> both = LastIterateAccountant().compose(event).compose(GaussianDpEvent(5.0))
    >>> f"{alone.get_epsilon(1e-5):.2f} {both.get_epsilon(1e-5):.2f}"
    '2.94 3.07'
    """

    def __init__(
        self,
        neighboring_relation: Any = NeighboringRelation.REPLACE_SPECIAL,
        value_discretization_interval: float = 1e-4,
    ) -> None:
        super().__init__(neighboring_relation)
        self._interval = value_discretization_interval
        # Held, not inherited: its methods do not account for runs.
        self._other_events: Any = PLDAccountant(neighboring_relation, value_discretization_interval)
        self._has_other_events = False
        self._runs: list[tuple[Guarantee, int]] = []
        self._without_privacy = False

    @property
    def neighboring_relation(self) -> Any:
        """The neighbouring relation of all events."""
        return super().neighboring_relation

    @property
    def ledger(self) -> Any:
        """The composed event of everything composed so far."""
        return super().ledger

    def supports(self, event: Any) -> bool:
        """Whether `compose` accepts the event.

        Args:
            event: an event of dp-accounting, or a `LastIterateDpEvent`.
        """
        return bool(super().supports(event))

    def compose(self, event: Any, count: int = 1) -> LastIterateAccountant:
        """Add an event and return the accountant.

        Args:
            event: an event of dp-accounting, or a `LastIterateDpEvent`.
            count: how often it happens; at least 1.

        Raises:
            ValueError: if ``count`` is below 1.
            UnsupportedEventError: if the event has no guarantee for these neighbours.
        """
        if isinstance(count, int) and count < 1:
            raise ValueError(f"`count` must be at least 1, and is {count}.")
        super().compose(event, count)
        return self

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        number_of = event.count if isinstance(event, dp_event.SelfComposedDpEvent) else count
        if not isinstance(number_of, int) or number_of < 0:
            what = f"a count must be a whole number of at least 0, got {number_of!r:.40}"
            return self.CompositionErrorDetails(invalid_event=event, error_message=what)
        if isinstance(event, dp_event.NoOpDpEvent):
            return None
        if isinstance(event, dp_event.SelfComposedDpEvent):
            return self._maybe_compose(event.event, event.count * count, do_compose)
        if isinstance(event, dp_event.ComposedDpEvent):
            problems = (self._maybe_compose(each, count, do_compose) for each in event.events)
            return next((problem for problem in problems if problem is not None), None)
        if isinstance(event, LastIterateDpEvent):
            return self._maybe_compose_run(event, count, do_compose)
        if not do_compose:
            return self._other_events._maybe_compose(event, count, False)
        if count:
            self._compose_other(event, count)
        return None

    def _maybe_compose_run(self, event: LastIterateDpEvent, count: int, do_compose: bool) -> Any:
        reason = self._obstacle(event)
        if reason is not None:
            return self.CompositionErrorDetails(invalid_event=event, error_message=reason)
        if do_compose and count:
            guarantee = _guarantee(event.training, event.loss)
            if all(math.isinf(bound.epsilon(0.5)) for bound in guarantee.bounds):
                self._without_privacy = True
            self._runs.append((guarantee, count))
        return None

    def _compose_other(self, event: Any, count: int) -> None:
        self._has_other_events = True
        if isinstance(event, dp_event.RandomizedResponseDpEvent):
            # dp-accounting composes this mechanism once, whatever the count.
            once = PLDAccountant(self.neighboring_relation, self._interval).compose(event)
            pld = self._other_events._pld
            self._other_events._pld = pld.compose(once._pld.self_compose(count))
            self._without_privacy |= math.isinf(once.get_epsilon(1.0))
        else:
            self._other_events.compose(event, count)
            self._without_privacy |= math.isinf(self._other_events.get_epsilon(1.0))

    def _obstacle(self, event: LastIterateDpEvent) -> str | None:
        """Why this run has no guarantee for the accountant's neighbours; None if it has."""
        if not isinstance(event.training, Training) or not isinstance(event.loss, Loss):
            return "the event holds no Training and Loss, which describe a run"
        expected = _RELATIONS[event.training.adjacency]
        if self.neighboring_relation is not expected:
            return (
                f"the run counts {event.training.adjacency!r} neighbours, which is {expected}, "
                f"but the accountant has {self.neighboring_relation}: give it neighboring_relation="
                f"{expected}, or describe the run with the other adjacency"
            )
        try:
            guarantee = _guarantee(event.training, event.loss)
        except LastIterateError as refusal:
            return str(refusal)
        return NOT_A_GUARANTEE if guarantee.provenance == "estimated" else None

    def _curves(self) -> list[Curve] | None:
        """What answers for runs alone; None where only their distributions can be added up."""
        if self._has_other_events:
            return None
        if len(self._runs) == 1 and self._runs[0][1] == 1:
            return [bound.curve for bound in self._runs[0][0].bounds]
        mus = [guarantee.mu for guarantee, _ in self._runs]
        return None if None in mus else [Gaussian(_together(self._runs))]

    def _all(self) -> Any:
        """The distribution of everything; Gaussian runs are one Gaussian in it."""
        interval, whole = self._interval, self._other_events._pld
        smooth = [one for one in self._runs if one[0].mu is not None]
        if smooth:
            whole = whole.compose(to_dp_accounting(Gaussian(_together(smooth)), interval=interval))
        for guarantee, count in self._runs:
            if guarantee.mu is None:
                whole = whole.compose(guarantee.to_dp_accounting(interval).self_compose(count))
        return whole

    def get_epsilon(self, target_delta: float) -> float:
        """The smallest epsilon that is proved for everything composed so far.

        Args:
            target_delta: the probability with which epsilon may fail.
        """
        target_delta = number("target_delta", target_delta, at_least=0.0, at_most=1.0)
        if self._without_privacy:
            return math.inf
        if not self._runs:
            return float(self._other_events.get_epsilon(target_delta))
        curves = self._curves()
        if curves is not None:
            return min(curve.epsilon(target_delta) for curve in curves)
        if target_delta <= _SUMS:
            return math.inf
        return float(self._all().get_epsilon_for_delta(target_delta - _SUMS))

    def get_delta(self, target_epsilon: float) -> float:
        """The smallest delta that is proved for everything composed so far.

        Args:
            target_epsilon: the privacy loss that delta allows to exceed.
        """
        target_epsilon = number("target_epsilon", target_epsilon, infinite=True)
        if self._without_privacy:
            return 1.0
        if not self._runs:
            return float(self._other_events.get_delta(target_epsilon))
        curves = self._curves()
        if curves is not None:
            return min(curve.delta(target_epsilon) for curve in curves)
        return min(float(self._all().get_delta_for_epsilon(target_epsilon)) + _SUMS, 1.0)


@lru_cache(maxsize=32)
def _guarantee(training: Training, loss: Loss) -> Guarantee:
    """Asked twice for every event: whether there is one, and what it says."""
    return account(training, loss)


def _together(runs: list[tuple[Guarantee, int]]) -> float:
    """mu of Gaussian runs one after the other, rounded up."""
    squares = math.fsum(count * (guarantee.mu or 0.0) ** 2 for guarantee, count in runs)
    return math.sqrt(squares) * (1 + 2.0**-50)
