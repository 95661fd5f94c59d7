"""The table of checks: for each theorem, how its bound is recomputed from a certificate.

A check sees the description, the loss, the releases and the witness, and nothing of the fast path.
It returns the profile that the theorem proves for this run, or raises a CertificateError.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lastiterate.description import (
    Cyclic,
    Reshuffled,
    Shuffled,
)
from lastiterate.errors import CertificateError
from lastiterate.kernel.balls import KernelError, MalformedError
from lastiterate.kernel.coins import check_poisson, check_without_replacement
from lastiterate.kernel.correlated import check_correlated
from lastiterate.kernel.document import Table
from lastiterate.kernel.epoch_paths import check_epoch_paths
from lastiterate.kernel.epochs import check_boundary_policy
from lastiterate.kernel.exchange import check_exchange, check_reshuffled_exchange
from lastiterate.kernel.positions import (
    check_composition,
    check_full_batch,
    check_hidden_position,
    check_worst_position,
)
from lastiterate.kernel.run import Run, read_run
from lastiterate.verifier import allocated, epochs, placed, strings
from lastiterate.verifier.balanced import Balanced
from lastiterate.verifier.balls import Ball, above, arb, proved
from lastiterate.verifier.by_kernel import by_kernel, content_of
from lastiterate.verifier.coupled import Coupled
from lastiterate.verifier.profile import Profile
from lastiterate.verifier.refusals import MalformedCertificateError
from lastiterate.verifier.steps import Case
from lastiterate.verifier.strings import infinite, ratio
from lastiterate.verifier.witness import pack

Witness = Mapping[str, Any]
Check = Callable[[Case, Witness], Profile]

MOST_REPLAYED = 10**7  # steps that a replay may walk one by one


def _demand(condition: bool, what: str) -> None:
    if not condition:
        raise CertificateError(f"the theorem of the certificate does not cover this run: {what}")


def _scheme(case: Case, *schemes: type) -> None:
    name = case.training.batches.name
    _demand(isinstance(case.training.batches, schemes), f"its batches are {name}")


def _bounded_replay(case: Case) -> None:
    if not case.constant and case.training.steps > MOST_REPLAYED:
        raise CertificateError(f"more than {MOST_REPLAYED:,} steps cannot be replayed")
    if (case.training.batches_per_epoch or 1) > MOST_REPLAYED:
        raise CertificateError(f"more than {MOST_REPLAYED:,} positions cannot be replayed")


def _published(case: Case, first: int, last: int) -> Ball:
    """sum (s/nu)^2 over steps that all use the record."""
    count = last - first
    if count <= 0:
        return arb(0)
    if case.constant:
        return ratio(case.impulses(first, last)[0], case.noises(first, last)[0]) ** 2 * count
    pairs = zip(case.impulses(first, last), case.noises(first, last), strict=True)
    return sum((ratio(s, nu) ** 2 for s, nu in pairs), arb(0))


def coupling(case: Case, witness: Witness) -> Profile:
    """Full batches on a bounded domain: the string of the witness, and the recursion on a grid."""
    training = case.training
    string = by_kernel(check_full_batch)(case, {"families": witness["families"]})
    alone = case.releases == () and case.window == 1
    _demand(case.constant and training.steps > 0 and alone, "its steps are not all alike")
    factors = case.factors(0, 1)
    _demand(factors is not None and proved(factors[0] <= 1), "its updates may expand")
    assert factors is not None
    c, s = (_double_above(x) for x in (factors[0], case.impulses(0, 1)[0]))
    nu, cells = float(training.noises[0]), int(witness["cells"])
    coupled = Coupled(min(c, 1.0), s, nu, training.diameter, training.steps, cells)
    return replace(string, coupled=coupled)


def _double_above(ball: Ball) -> float:
    return math.nextafter(float(above(ball)), math.inf)


def _drift_root(case: Case) -> Ball:
    """mu of what steps drift where computed sums are off without the record too.

    It is paid on top, at once or by a string of its own: by Minkowski the root of the sum of all
    squares grows by at most that of the drifts.
    """
    if not case.rounds:
        return arb(0)
    steps = case.training.steps
    pairs = zip(case.slips(0, steps), case.noises(0, steps), strict=True)
    times = steps if case.constant else 1
    extra = sum((ratio(slip, nu) ** 2 for slip, nu in pairs), arb(0)) * times
    extra = extra.min(_drift_strings(case))
    return above(extra).sqrt() if extra.is_finite() else infinite()


def _drifted(case: Case, squares: Sequence[Ball]) -> list[Ball]:
    """mu^2 and what steps drift; see `_drift_root`."""
    if not case.rounds:
        return list(squares)
    root = _drift_root(case)
    return [
        (above(square).max(arb(0)).sqrt() + root) ** 2
        if square.is_finite() and root.is_finite()
        else infinite()
        for square in squares
    ]


def _drift_strings(case: Case) -> Ball:
    """mu^2 of what the hidden steps drift, as if it were all that happened; see `_drifted`."""
    total = arb(0)
    for first, last in case.segments:
        c, s, nu = case.factors(first, last), case.slips(first, last), case.noises(first, last)
        if c is None:
            return infinite()
        alike = case.constant
        total += (
            strings.constant(c[0], s[0], nu[0], last - first) if alike else strings.pooled(c, s, nu)
        )
    return total


def _published_positions(case: Case) -> list[Ball]:
    """sum (s/nu)^2 over the steps of each position."""
    steps, batches = case.training.steps, case.training.batches_per_epoch or 1
    if case.constant:
        one = _published(case, 0, min(steps, 1))
        return [one * (steps // batches + (j < steps % batches)) for j in range(batches)]
    totals = [arb(0)] * batches
    pairs = zip(case.impulses(0, steps), case.noises(0, steps), strict=True)
    for k, (s, nu) in enumerate(pairs):
        totals[k % batches] += ratio(s, nu) ** 2
    return totals


def _published_group(case: Case) -> Ball:
    """sum m_j^2 (s/nu)^2 for the dearest placement of a person's records, in every epoch."""
    steps, batches = case.training.steps, case.training.batches_per_epoch or 1
    records, most = case.unit.records, case.unit.most_in_a_batch(case.training)
    if case.constant:
        return _published(case, 0, min(steps, 1)) * (records * most * -(-steps // batches))
    if case.training.batches.repeated:
        rows = [_published_positions(case)]
    else:
        pairs = zip(case.impulses(0, steps), case.noises(0, steps), strict=True)
        costs = [ratio(s, nu) ** 2 for s, nu in pairs]
        rows = [costs[k : k + batches] for k in range(0, steps, batches)]
    total = arb(0)
    for row in rows:
        for held, cost in _placed(row, records, most):
            total += held * held * cost
    return total


def _placed(values: Sequence[Ball], records: int, most: int) -> list[tuple[int, Ball]]:
    """The largest values with the number of records each, as many as one place can hold."""
    full, rest = divmod(records, most)
    largest = sorted((above(value) for value in values), key=float, reverse=True)
    # Floats may tie what balls tell apart: the larger of two that tie is taken for both.
    for k in range(len(largest) - 1, 0, -1):
        largest[k - 1] = largest[k - 1].max(largest[k])
    placed = [(most, value) for value in largest[:full]]
    return placed + [(rest, value) for value in largest[full : full + 1] if rest]


def known_groups(case: Case, witness: Witness) -> Profile:
    """A person's records in ordered batches, wherever they are: the least of three bounds."""
    _scheme(case, Cyclic, Shuffled, Reshuffled)
    _demand(case.factors(0, 1) is not None, "the updates have no known Lipschitz constant")
    _bounded_replay(case)
    alone = dataclasses.replace(case.unit, records=1, per_batch=None)
    one = case.exposed(alone)
    records, most = case.unit.records, case.unit.most_in_a_batch(case.training)
    always = dataclasses.replace(alone, first_step=0, last_step=None)  # pays no less
    closed = _closed_group(case.exposed(always), records, most)
    least = _every_step(one, most).min(closed)
    if case.training.batches.repeated:
        roots = [above(square).sqrt() for square in epochs.position_squares(one)]
        sizes = (held * mu for held, mu in _placed(roots, records, most))
        least = least.min(sum(sizes, arb(0)) ** 2)
    return Profile.gaussian(_drifted(one, [least])[0].min(_published_group(case)))


def superposed_groups(case: Case, witness: Witness) -> Profile:
    """A person's records in hidden places: the law of the sum of their single strings."""
    _hidden_places(case, Shuffled)
    _demand(case.factors(0, 1) is not None, "the updates have no known Lipschitz constant")
    _bounded_replay(case)
    alone = dataclasses.replace(case.unit, records=1, per_batch=None)
    one = case.exposed(alone)
    mus = [above(square).sqrt() for square in epochs.position_squares(one)]
    law = placed.superposed(mus, *_places(case), float(witness["reach"]), int(witness["cells"]))
    squares = _drifted(one, [mu**2 for mu, _ in law])
    return Profile(tuple(squares), tuple(weight for _, weight in law))


def cycle_law(case: Case, witness: Witness) -> Profile:
    """A person's records in hidden places of equal steps: the law of the faces of one epoch."""
    always = dataclasses.replace(case.unit, first_step=0, last_step=None)  # pays no less
    case = case.exposed(always)
    _hidden_places(case, Shuffled, Reshuffled)
    training, batches = case.training, case.training.batches_per_epoch or 1
    whole, left_over = divmod(training.steps, batches)
    last_only = case.releases == () and case.window == 1
    _demand(case.constant and last_only, "its steps are not all alike, or more is released")
    _demand(whole >= 1 and not left_over, "its epochs are not whole")
    factors = case.factors(0, 1)
    _demand(factors is not None and proved(factors[0] <= 1), "its updates may expand")
    cut = int(witness["cells"]), int(witness["circle"]), float(witness["tilt"])
    law = placed.cycles(batches, *_places(case), *cut)
    alone = dataclasses.replace(case.unit, records=1, per_batch=None)
    one = case.exposed(alone)
    records, most = case.unit.records, case.unit.most_in_a_batch(training)
    drawn, moved = 1 if training.batches.repeated else whole, 0
    if drawn > 1:
        law, moved = placed.summed(law, drawn)
    unit, base = _published(one, 0, 1), arb(whole - drawn) / batches * records**2
    costs = [arb(cell) / cut[0] for cell, _ in law]
    # Costs are below their cell by less than one cell per record and epoch; g <= r k.
    lift, worst = arb(drawn * records + moved) / cut[0], arb(drawn * most * records)
    tops = [(cost + lift).min(worst) for cost in costs]
    weights = tuple(weight for _, weight in law)
    above_all = _drifted(one, [unit * (base + cost) for cost in tops])
    # (sqrt(q) + d)^2 <= (1 + t) q + (1 + 1/t) d^2 keeps the law balanced; any t will do.
    drift, typical = _drift_root(one), above((unit * (base + 1)).sqrt())
    t = above(ratio(drift, typical)).min(arb(1)) if drift != 0 else arb(0)
    more = (1 + 1 / t) * drift**2 if t != 0 else arb(0)
    squares = [(1 + t) * unit * (base + cost) + more for cost in costs]
    return Profile(tuple(above_all), weights, coupled=Balanced(squares, weights))


def _hidden_places(case: Case, *schemes: type) -> None:
    """The law of where a person's records are is known, or the certificate is refused."""
    _scheme(case, *schemes)
    known = case.unit.per_batch in (None, 1)
    _demand(known, f"it has at most {case.unit.per_batch} records of a person in a batch")


def _places(case: Case) -> tuple[int, int, bool]:
    """Records of the person, slots of a batch, whether no two of them share a batch."""
    size = case.training.batches.largest(case.training.records)
    return case.unit.records, size, case.unit.per_batch == 1


def _every_step(one: Case, most: int) -> Ball:
    """mu^2 if every batch held ``most`` records of the person."""
    total = arb(0)
    for first, last in one.segments:
        c, nu = one.factors(first, last), one.noises(first, last)
        s = [most * impulse for impulse in one.impulses(first, last)]
        assert c is not None
        if one.constant:
            common = strings.constant(c[0], s[0], nu[0], last - first)
            width = one.training.diameter
            total += common.min(strings.restarted(c[0], s[0], nu[0], last - first, width))
        else:
            total += strings.pooled(c, s, nu)
    return total + most * most * _published(one, one.end, one.training.steps)


def _closed_group(one: Case, records: int, most: int) -> Ball:
    """(s/nu)^2 ((E-1) k^2/B + r k) where the updates do not expand, else infinity."""
    training, batches = one.training, one.training.batches_per_epoch or 1
    whole, left_over = divmod(training.steps, batches)
    last_only = one.releases == () and one.window == 1
    factors = one.factors(0, min(training.steps, 1))
    if not (training.batches.repeated and one.constant and last_only and whole and factors):
        return infinite()
    if left_over or not proved(factors[0] <= 1):
        return infinite()
    cost = arb(whole - 1) / batches * records * records + most * records
    return _published(one, 0, 1) * cost


def _in_kernel(check: Callable[[Run, Table, bool], Any], hidden: bool) -> Callable[..., Any]:
    """A check of the kernel, which sees JSON alone."""

    def checked(case: Case, witness: Witness) -> Any:
        try:
            plain = json.loads(json.dumps(pack(witness)))
            return check(read_run(content_of(case)), plain, hidden)
        except MalformedError as error:
            raise MalformedCertificateError(f"The certificate is malformed: {error}.") from None
        except KernelError as error:
            raise CertificateError(str(error)) from None

    return checked


def _by_kernel(check: Callable[[Run, Table, bool], Any], hidden: bool) -> Check:
    """The pairs of all steps, and a failure."""
    found = _in_kernel(check, hidden)

    def checked(case: Case, witness: Witness) -> Profile:
        pairs, failure = found(case, witness)
        return Profile.sampled(pairs, failure if failure > 0 else None)

    return checked


def _correlated(hidden: bool) -> Check:
    """mu^2 of all positions, or of the dearest."""
    found = _in_kernel(check_correlated, hidden)

    def checked(case: Case, witness: Witness) -> Profile:
        squares = found(case, witness)
        shuffled = case.training.batches.hidden
        return Profile.average(squares) if shuffled else Profile.gaussian(squares[0])

    return checked


def allocation_composition(case: Case, witness: Witness) -> Profile:
    """Random allocation, all iterates published."""
    return Profile.sampled(_counted(allocated.public(case, witness)))


def allocation_deferral(case: Case, witness: Witness) -> Profile:
    """Random allocation: the payments of deferred labels."""
    steps = _counted(allocated.deferred(case, witness))
    failure = allocated.overcrowded(case, int(witness["cap"]))
    return Profile.sampled(steps, failure if proved(above(failure) > 0) else None)


def _counted(steps: allocated.Counted) -> allocated.Counted:
    """Equal pairs counted together."""
    counts: dict[Any, int] = {}
    for step, count in steps:
        counts[step] = counts.get(step, 0) + count
    return list(counts.items())


def _plain_descent(check: Check) -> Check:
    """A check whose theorem follows the parameters alone: the velocity of momentum breaks it."""

    def checked(case: Case, witness: Witness) -> Profile:
        _demand(case.training.momentum == 0, f"it has momentum {case.training.momentum:g}")
        return check(case, witness)

    return checked


# Momentum is covered where every noisy update is paid for in full: the composition theorems.
_INDEPENDENT: dict[str, Check] = {
    "taut-string": by_kernel(check_full_batch),
    "stopped-coupling": _plain_descent(coupling),
    "worst-position": by_kernel(check_worst_position),
    "exchange": by_kernel(check_exchange),
    "hidden-position": by_kernel(check_hidden_position),
    "reshuffled-exchange": by_kernel(check_reshuffled_exchange),
    "boundary-policy": by_kernel(check_boundary_policy),
    "boundary-policy-concave": by_kernel(check_epoch_paths),
    "known-groups": _plain_descent(known_groups),
    "cycle-law": _plain_descent(cycle_law),
    "superposed-groups": _plain_descent(superposed_groups),
    "gaussian-composition": by_kernel(check_composition),
    "allocation-composition": allocation_composition,
    "allocation-deferral": _plain_descent(allocation_deferral),
    "poisson-composition": _by_kernel(check_poisson, hidden=False),
    "poisson-deferral": _by_kernel(check_poisson, hidden=True),
    "poisson-replace-composition": _by_kernel(check_poisson, hidden=False),
    "poisson-replace-absorption": _by_kernel(check_poisson, hidden=True),
    "chien-li-2025-3.12": _by_kernel(check_without_replacement, hidden=True),
    "without-replacement-composition": _by_kernel(check_without_replacement, hidden=False),
}


def _independent_noise(check: Check) -> Check:
    """A check whose theorem is about noise that is drawn afresh in every step."""

    def checked(case: Case, witness: Witness) -> Profile:
        _demand(case.training.correlation is None, "later steps take back some of its noise")
        return check(case, witness)

    return checked


CHECKS: dict[str, Check] = {
    **{key: _independent_noise(check) for key, check in _INDEPENDENT.items()},
    "correlated-composition": _correlated(hidden=False),
    "correlated-last-iterate": _correlated(hidden=True),
}
