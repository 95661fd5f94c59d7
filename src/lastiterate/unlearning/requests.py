"""Requests one after the other: how many clean steps each of them takes, for ever if need be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lastiterate._internal.formatting import printed
from lastiterate.accounting.guarantee import NOT_A_GUARANTEE, warn_if_estimated, weakest_provenance
from lastiterate.curves import gaussian
from lastiterate.curves.bracket import last_good
from lastiterate.description import Loss, PrivacyUnit, Training
from lastiterate.description.fields import checked_delta, integer, number, one_of
from lastiterate.description.unit import emptied, read_unit
from lastiterate.errors import DescriptionError, TargetError, UnsupportedError
from lastiterate.theory import BY_KEY, Run, dynamics, inapplicable_reason
from lastiterate.theory.dynamics import Array
from lastiterate.theory.taut_string import taut_string
from lastiterate.unlearning.going_on import base, unlearnable
from lastiterate.unlearning.planning import REFERENCES, WHAT_IT_SAYS, WHO_SAW_NOTHING, WHY_REFERENCE

_MOST = 2**24  # clean steps of one request
_UP = 1 + 1e-9  # far more than the rounding of a closed form


@dataclass(frozen=True)
class RequestsPlan:
    """The clean steps of each request; print it. Made by `plan_requests`.

    Attributes:
        steps: of each request; one number for all of them, if they go on for ever.
        requests: how many there are.
        reference: what the model is compared with after each of them.
        epsilon: of the target.
        delta: of the target.
        provenance: who vouches for what it rests on: "proved", "declared" or "estimated".
    """

    steps: tuple[int, ...]
    requests: float
    reference: str
    epsilon: float
    delta: float
    provenance: str = "proved"

    @property
    def total(self) -> float:
        """Clean steps of all requests together."""
        return math.inf if math.isinf(self.requests) else float(sum(self.steps))

    def __str__(self) -> str:
        often = (
            f"{self.steps[0]:,} clean steps after every request, for ever"
            if math.isinf(self.requests)
            else f"{sum(self.steps):,} clean steps for {self.requests:,} requests"
        )
        target = f"epsilon = {printed(self.epsilon)}, delta = {printed(self.delta)}"
        warning = f"{NOT_A_GUARANTEE}\n" if self.provenance == "estimated" else ""
        return f"{warning}{often}\n{target}, {WHAT_IT_SAYS[self.reference]}.\n{WHO_SAW_NOTHING}"


def plan_requests(
    training: Training,
    loss: Loss,
    deleted: PrivacyUnit | None = None,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    *,
    requests: float = math.inf,
    reference: str = "retrained",
) -> RequestsPlan:
    """The fewest clean steps after each of several requests; full batches, constant steps.

    *Statement.* Step k has the impulse s times the number of records that are there at step k and
    that the reference lacks. "retrained": all whom this and earlier requests deleted; for one
    request every K steps for ever, μ = (s/ν)·c^K/(1 − c^K)·√((1 + c)/(1 − c)). "never joined":
    those of this request alone, for ever μ = (s/ν)·c^K·√((1 + c)/(1 − c)). Fewer requests or a
    younger run cost no more: shifts that serve the longer string serve its end, from distance 0.
    *Proof.* Σ_i Σ_{j≥iK} c^j = c^K/((1 − c)(1 − c^K)) against variance 1/(1 − c²); impulses fall,
    so the string is one block. ∎ Rounding adds its own string, (d/ν)·√((1 + c)/(1 − c)).

    Args:
        training, loss: the run up to the first request.
        deleted: the records of one request.
        epsilon, delta: the target for the model after each request.
        requests: how many; infinity: for ever.
        reference: "retrained" or "never joined".

    >>> from lastiterate import FullBatch
    >>> run = Training(records=1000, steps=500, step_size=0.5, noise=0.01, gradient_norm=1.0,
    ...                batches=FullBatch(), adjacency="zero-out")
    >>> known = Loss(smoothness=1.0, regularization=0.02)
    >>> plan_requests(run, known).steps, plan_requests(run, known, requests=3).steps
    ((129,), (96, 129, 128))
    """
    warn_if_estimated(training, loss)
    person = read_unit(deleted)
    unlearnable(training, person)
    epsilon = number("epsilon", epsilon, at_least=0.0)
    delta = checked_delta(delta, training.records)
    meant = one_of("reference", reference, REFERENCES, WHY_REFERENCE)
    if not (training.batches.full and training.constant) or person.timed:
        raise UnsupportedError(
            "Requests one after the other are planned for full batches, constant steps and records "
            "that were there from the start: elsewhere it matters where each request finds its "
            "records. Plan each request when it comes: plan_unlearning(..., reference='never "
            "first_step') of the run as it is by then."
        )
    ever = requests == math.inf
    many = 0 if ever else integer("requests", requests)
    if many * person.records > training.records:
        allowed = f"at most {training.records // person.records} requests"
        raise DescriptionError("requests", many, allowed, "nobody is left to delete after them")
    gone = training.records if ever else many * person.records
    run = Run(training, emptied(loss, training, gone))
    reason = inapplicable_reason(
        BY_KEY["taut-string"], Run(training.replace(steps=max(training.steps, 1)), loss)
    )
    if reason is not None or not run.regular:
        reason = reason or "no Lipschitz constant of the updates is known"
        raise UnsupportedError(
            f"Nothing says how fast this run forgets: {reason}. Declare smoothness (and an L2 "
            "term), plan each request with plan_unlearning, or start again."
        )
    strings = _Strings(run, person, gaussian.mu(epsilon, delta), retrained=meant == "retrained")
    steps = (strings.for_ever(),) if ever else tuple(strings.one_by_one(many))
    vouched = weakest_provenance(training, loss, (True,))
    return RequestsPlan(steps, requests, meant, epsilon, delta, vouched)


@dataclass(frozen=True)
class _Strings:
    """The strings of one run under requests, and the mu that each has to keep to."""

    run: Run
    person: PrivacyUnit
    allowed: float
    retrained: bool

    def impulse(self, groups: int) -> float:
        """s of a step that uses so many groups which the reference lacks."""
        if not groups:
            return float(self.run.rounding_drifts[0])
        training = self.run.training
        change = groups * self.person.records * self.person.sensitivity(training)
        return float(dynamics.step_sensitivities(self.run.etas, training, change)[0])

    def for_ever(self) -> int:
        """K by the closed form."""
        c, nu = self.step
        if not (c < 1 and nu > 0):
            raise TargetError(
                f"Requests for ever need steps that forget and noise that hides: c = {c:g}, noise "
                f"{nu:g}. Add an L2 term (regularization > 0), or start again."
            )
        wide = math.sqrt((1 + c) / (1 - c)) / nu * _UP
        s, drift = self.impulse(1) * wide, self.impulse(0) * wide

        def enough(clean: int) -> bool:
            left = c**clean
            again = -math.expm1(clean * math.log(c)) if c else 1.0
            return s * left * _UP / (again if self.retrained else 1.0) + drift <= self.allowed

        if drift > self.allowed:
            raise TargetError("Rounding alone drives the runs farther apart than the target.")
        return _fewest(enough, least=1)

    def one_by_one(self, requests: int) -> list[int]:
        """For each request the fewest steps, those of the earlier ones as they are."""
        (c, nu), training, found = self.step, self.run.training, list[int]()
        before = np.zeros(training.steps, dtype=int)  # of each step: requests that came before it
        for now in range(1, requests + 1):
            lacked = now - before if self.retrained else np.ones(len(before), dtype=int)
            levels = np.array([self.impulse(level) for level in range(now + 1)])

            def enough(clean: int, used: Array = levels[lacked], none: float = levels[0]) -> bool:
                s = np.concatenate([used, np.full(clean, none)])
                return taut_string(c, s, nu).mu <= self.allowed

            found.append(_fewest(enough, least=0))
            before = np.concatenate([before, np.full(found[-1], now)])
        return found

    @property
    def step(self) -> tuple[float, float]:
        """c and nu of every step."""
        assert self.run.contraction is not None
        return float(self.run.contraction[0]), base(self.run.training)[1]


def _fewest(enough: Callable[[int], bool], least: int) -> int:
    """The smallest number of clean steps from ``least`` on; what is returned was asked."""
    if enough(least):
        return least
    bad, good = least, max(2 * least, 1)
    while not enough(good):
        bad, good = good, 2 * good
        if bad >= _MOST:
            raise TargetError(
                f"{_MOST:,} clean steps after a request are not enough. Start again instead, add "
                "noise, or an L2 term."
            )
    return last_good(enough, good, bad)
