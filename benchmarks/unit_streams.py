"""Streams, releases and personal numbers: epsilon against the reference tables, to their digits.

A model that is released every day, one pass over the day's batches, s/nu = 0.5, delta = 1e-6; the
README's run for people who join late, leave early or have short gradients; the story in which a
released model decides how the run goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lastiterate import (
    Cyclic,
    FullBatch,
    LifetimeBudget,
    Loss,
    PrivacyUnit,
    Shuffled,
    Training,
    account,
)
from lastiterate.curves import gaussian
from lastiterate.theory import BY_KEY

DELTA = 1e-6
CONVEX = Loss(smoothness=1.0)
# (batches a day, schedule, order) -> epsilon of somebody who is used on one day, for ever
DAYS = {
    (10, None, Cyclic): 2.254,
    (10, None, Shuffled): 1.993,
    (100, None, Shuffled): 1.698,
    (1000, None, Shuffled): 1.354,
    (10, "equalised", Cyclic): 0.648,
    (100, "equalised", Cyclic): 0.189,
    (1000, "equalised", Cyclic): 0.0551,
}
REPLAYED = {1: 0.189, 7: 0.535, 30: 1.170, 365: 4.639}  # days -> epsilon, equalised, 100 batches
PEOPLE = {
    PrivacyUnit(): 3.483,
    PrivacyUnit(gradient_norm=2.5): 1.567,
    PrivacyUnit(gradient_norm=0.5): 0.263,
    PrivacyUnit(first_step=1600): 2.374,
    PrivacyUnit(last_step=1600): 2.379,
    PrivacyUnit(last_step=400): 0.483,
    PrivacyUnit(first_step=1000, last_step=1040): 0.0595,
}
README = Training(
    records=60_000,
    steps=2_000,
    step_size=0.05,
    noise=0.0005,
    gradient_norm=5.0,
    batches=Shuffled(1500),
    adjacency="replace",
)


def day(batches: int, schedule: str | None, order: type[Cyclic] | type[Shuffled]) -> Training:
    """One pass over a day's batches of 60 records with s/nu = 1/2."""
    return Training(
        records=60 * batches,
        steps=batches,
        step_size=1.0,
        noise=1.0,
        gradient_norm=15.0,
        batches=order(60),
        schedule=schedule,
        adjacency="replace",
    )


def rows() -> list[dict[str, Any]]:
    """Every number of the tables, with what is computed; ok: no more than its last digit above."""
    return [_row(*each) for each in (*_streams(), *_individual(), *_stories())]


def _row(name: str, printed: float, found: float) -> dict[str, Any]:
    digits = max(len(repr(printed).partition(".")[2]), 3)
    return {
        "name": name,
        "goal": printed,
        "measured": found,
        "ok": bool(found <= printed + 0.5 * 10.0**-digits),
    }


def _streams() -> Iterator[tuple[str, float, float]]:
    seen = account(day(10, None, Cyclic), CONVEX, releases=range(1, 10)).epsilon(DELTA)
    yield "all steps public", 2.254, seen
    for (batches, schedule, order), printed in DAYS.items():
        run = day(batches, schedule, order)
        how = schedule or order.__name__.lower()
        # The record pays at the first release after it: ten more days cost it nothing.
        forever = run.replace(steps=3 * batches, step_size=[*run.step_sizes] * 3, schedule=None)
        releases = (batches, 2 * batches)
        once = PrivacyUnit(last_step=batches)
        found = account(forever, CONVEX, releases=releases, unit=once).epsilon(DELTA)
        yield f"{batches} batches a day, {how}, used on one day", printed, found
    daily = account(day(100, "equalised", Cyclic), CONVEX).mu
    assert daily is not None
    for days, printed in REPLAYED.items():
        allowed = LifetimeBudget(mu=daily * math.sqrt(365) * (1 + 1e-12), daily=daily).person(days)
        yield f"equalised, used on {days} days", printed, gaussian.epsilon(allowed, DELTA)


def _individual() -> Iterator[tuple[str, float, float]]:
    loss = Loss(smoothness=1.0, regularization=0.002)
    for person, printed in PEOPLE.items():
        yield str(person), printed, account(README, loss, unit=person).epsilon(1e-5)


def _stories() -> Iterator[tuple[str, float, float]]:
    """A released model decides how others go on: the sum over stretches, at epsilon 0 and 1."""
    run = Training(
        records=1,
        steps=50,
        step_size=1.0,
        noise=1.0,
        gradient_norm=0.5,
        batches=FullBatch(),
        adjacency="zero-out",
    )
    loss, person = Loss(smoothness=0.0, regularization=0.2), PrivacyUnit(last_step=10)
    curve = BY_KEY["adaptive-segments"].evaluate(run, loss, (10,), person).curve
    assert curve.mu is not None
    yield "mu of the adaptive story, c = 0.8", 1.3467, curve.mu
    for epsilon, printed in ((0.0, 0.4993), (1.0, 0.2593)):
        yield f"its delta at epsilon {epsilon:g}", printed, curve.delta(epsilon)


if __name__ == "__main__":
    for row in rows():
        print(row["name"], row["goal"], row["measured"], row["ok"])
