"""The estimators forget: MNIST 3 v 8 end to end, and ten thousand requests on Adult.

Logistic regression without privacy for those who stay (epsilon = inf), with a ledger. The budget is
fixed before the run, and a request beyond it is replayed. MNIST: twice what 100 random records (or
one) did in the first 44 steps of another run, by their norms or along the path. Adult: twice what
they did in a whole run on other data, the test records, for as many models as are to come before a
replay. Forgetting is epsilon = 1 at delta = 1e-6, and 20 steps on what remains follow. Beside it:
the same fit on what remains, and a restart that is stopped after 20 steps. Seconds are processor
time, and nobody waits (``wait=0``) because nobody watches.
"""

from __future__ import annotations

import itertools
import math
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.datasets import adult, available, mnist
from lastiterate.curves import gaussian
from lastiterate.models import PrivateLogisticRegression
from lastiterate.unlearning import Ledger
from lastiterate.unlearning.ledger import Book

RECORDS, STEPS, EARLY, AFTER, SEEDS = 11_264, 220, 44, 20, 10
EPSILON, DELTA, L2 = 1.0, 1e-6, 0.001
REQUESTS, TOGETHER = 10_000, 100  # on Adult: a model is released after so many requests
SINGLE = 1_000  # of them one by one, without a ledger
# On Adult: the budget is for so many models before a replay. Chosen after a few models of this very
# data had been looked at; the distances themselves come from other records.
BETWEEN = 10
EACH, BEFORE = 200, 10  # on Adult, with a ledger, a model for each of so many; requests to a replay
PATH = 1 << 22  # bytes: all iterates of these runs
Array = np.ndarray


def estimator(steps: int, seed: int) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        epsilon=math.inf, delta=DELTA, regularization=L2, steps=steps, random_state=seed
    )


class Pictures:
    """Threes and eights of MNIST."""

    def __init__(self) -> None:
        data = mnist()
        parts = []
        for x, y in ((data.train, data.labels), (data.test, data.test_labels)):
            chosen = np.flatnonzero((y == 3) | (y == 8))[:RECORDS]
            parts.append((np.asarray(x)[chosen, :-1], y[chosen]))
        (self.x, self.y), (self.test, self.test_y) = parts

    def score(self, model: Any) -> float:
        return float(model.score(self.test, self.test_y))

    def sets(self, rng: np.random.Generator) -> dict[str, Array]:
        """Who is deleted: 1, 10 and 100, at random and of one class."""
        threes = np.flatnonzero(self.y == 3)
        return {
            f"{many} {how}": rng.choice(pool, many, replace=False)
            for how, pool in (("random", np.arange(RECORDS)), ("of one class", threes))
            for many in (1, 10, 100)
        }


def budget(pictures: Pictures, many: int) -> float:
    """Twice what so many random records did in the first steps of another run."""
    other = Ledger(budget=1.0, noise=1.0)
    estimator(EARLY, seed=999).fit(pictures.x, pictures.y, ledger=other)
    rng, distances = np.random.default_rng(999), other.book().distances
    done = [distances.of(rng.choice(RECORDS, many, replace=False)) for _ in range(20)]
    other.erase()
    return 2 * float(np.mean(done))


def along_the_path(x: Array, y: Array, groups: list[Array], steps: int) -> float:
    """What such groups did in so many steps of another run, on average, along its path."""
    other = Ledger(budget=1e3, noise=1e3, requests=len(groups) + 1, path=PATH)
    model = estimator(steps, seed=999).fit(x, y, ledger=other)
    for gone in groups:
        model.unlearn(gone, x, y, wait=0.0)
    done = other.book().spent / len(groups)
    other.erase()
    return done


def groups_of(pool: Array, many: int, groups: int) -> list[Array]:
    """Some groups of different ones of these records."""
    order = np.random.default_rng(999).permutation(pool)
    return list(order[: many * groups].reshape(groups, many))


def as_fitted(book: Book, b: float, noise: float, path: int) -> Ledger:
    """A ledger as the same fit would have left it; the fits of a seed differ in nothing else.

    Nobody asks for its second model: it keeps the book open, which tells whether it was replayed.
    """
    ledger = Ledger(budget=b, noise=noise, requests=2, path=path)
    ledger.begin(book)
    assert book.parameters is not None
    ledger.end(book.parameters, book.seconds)
    return ledger


def clocked(work: Any, *given: Any, **options: Any) -> float:
    start = time.process_time()
    work(*given, **options)
    return time.process_time() - start


def end_to_end() -> list[dict[str, Any]]:
    """Accuracy and seconds of forgetting, of the whole fit again and of a short one."""
    pictures, found = Pictures(), dict[tuple[str, str], list[tuple[float, float]]]()
    mu = gaussian.mu(EPSILON, DELTA)
    groups = groups_of(np.arange(RECORDS), 100, 5)
    budgets = {
        "budget for 100": (budget(pictures, 100), 0),
        "budget for 1": (budget(pictures, 1), 0),
        "path, budget for 100": (2 * along_the_path(pictures.x, pictures.y, groups, EARLY), PATH),
    }
    replays: dict[tuple[str, str], int] = {}
    for seed in range(SEEDS):
        sets = pictures.sets(np.random.default_rng(seed))
        books = dict[int, Book]()
        for path in (0, PATH):
            fitted = Ledger(budget=1.0, noise=1.0, path=path)
            model = estimator(STEPS, seed).fit(pictures.x, pictures.y, ledger=fitted)
            books[path] = fitted.book()
        for (planned, (b, path)), (who, gone) in itertools.product(budgets.items(), sets.items()):
            if planned == "budget for 1" and "class" in who:
                continue
            ledger = as_fitted(books[path], b, b / mu, path)
            options = {"ledger": ledger, "steps": AFTER, "wait": 0.0}
            seconds = clocked(model.unlearn, gone, pictures.x, pictures.y, **options)
            case = (planned, who)
            replays[case] = replays.get(case, 0) + (ledger.book().spent == 0.0)
            found.setdefault(case, []).append((pictures.score(model), seconds))
        for who, gone in sets.items():
            kept = np.delete(np.arange(RECORDS), gone)
            for name, steps in (("fitted again", STEPS), ("stopped restart", AFTER)):
                again = estimator(steps, seed)
                seconds = clocked(again.fit, pictures.x[kept], pictures.y[kept])
                found.setdefault((name, who), []).append((pictures.score(again), seconds))
    rows = []
    for (name, who), values in found.items():
        accuracy, seconds = np.mean(values, axis=0)
        again = np.mean(found["fitted again", who], axis=0)
        repeated = f", {replays[name, who]} replayed" if (name, who) in replays else ""
        rows.append(
            {
                "name": f"MNIST 3 v 8, delete {who}: {name}",
                "goal": f"{again[0]:.4f} in {again[1]:.2f} s, fitted again",
                "measured": f"{accuracy:.4f} in {seconds:.2f} s{repeated}",
                "ok": None,
            }
        )
    return rows


class People:
    """Adult, and those who leave it."""

    def __init__(self) -> None:
        data = adult()
        self.x, self.y = data.train.toarray()[:, :-1], data.labels
        self.test, self.test_y = data.test.toarray()[:, :-1], data.test_labels
        self.order = np.random.default_rng(0).permutation(len(self.x))[:REQUESTS]

    def score(self, model: Any) -> float:
        return float(model.score(self.test, self.test_y))

    def budget(self, many: int, models: int) -> float:
        """For so many models, each after so many left; there a record is one of fewer."""
        groups = groups_of(np.arange(len(self.test)), many, 40)
        done = along_the_path(self.test, self.test_y, groups, STEPS)
        return 2 * models * done * len(self.test) / len(self.x)

    def left(self, ledger: Ledger, many: int, models: int) -> tuple[float, int, float, float]:
        """Seconds of all models, replays, and the accuracies: all of them, and of the fit."""
        model, x = estimator(STEPS, 0), self.x.copy()
        model.fit(x, self.y, ledger=ledger)
        total, replayed, scores, before = 0.0, 0, [], self.score(model)
        for gone in self.order[: many * models].reshape(models, many):
            total += clocked(model.unlearn, gone, x, self.y, steps=AFTER, wait=0.0)
            replayed += ledger.book().spent == 0.0
            scores.append(self.score(model))
            x[gone] = 0.0
        return total, replayed, float(np.mean(scores)), before


def one_after_the_other() -> list[dict[str, Any]]:
    """Ten thousand people leave Adult; every budget is kept or replayed."""
    people, mu, models = People(), gaussian.mu(EPSILON, DELTA), REQUESTS // TOGETHER
    found = dict[str, str]()
    for name, many, released, between, together in (
        (f"a model after {TOGETHER}, all at epsilon 1 together", TOGETHER, models, BETWEEN, True),
        (f"a model after {TOGETHER}, each at epsilon 1", TOGETHER, models, 2, False),
        (f"a model after each, each at epsilon 1, the first {EACH}", 1, EACH, BEFORE, False),
    ):
        b = people.budget(many, between)
        noise = math.sqrt(released if together else 1) * b / mu
        ledger = Ledger(budget=b, noise=noise, requests=released + 1, path=PATH)
        total, replayed, after, before = people.left(ledger, many, released)
        assert ledger.served == released
        assert not together or ledger.mu_of(released) <= mu * (1 + 1e-9)
        found[f"{REQUESTS:,} requests on Adult, path, {name}"] = (
            f"{total:.1f} s, {replayed} of {released} replayed, accuracy {after:.4f} ({before:.4f})"
        )
    x = people.x.copy()
    x[people.order] = 0.0
    for name, steps in (("fitted again", STEPS), ("stopped restart", AFTER)):
        again = estimator(steps, 0)
        seconds = clocked(again.fit, x, people.y)
        found[f"{REQUESTS:,} requests on Adult: {name}"] = (
            f"{seconds:.2f} s: {models} models {models * seconds:.1f} s, {REQUESTS:,} models "
            f"{REQUESTS * seconds:,.0f} s, accuracy {people.score(again):.4f}"
        )
    return [
        {"name": name, "goal": "", "measured": text, "ok": None} for name, text in found.items()
    ]


def one_by_one() -> list[dict[str, Any]]:
    """People leave Adult one at a time, without a ledger: clean steps, by `unlearn(epsilon=1)`."""
    data = adult()
    x, y = data.train.toarray()[:, :-1], data.labels
    settings = {"epsilon": 2.0, "delta": DELTA, "regularization": 0.003, "steps": STEPS}
    model = PrivateLogisticRegression(
        **settings, batch_size=len(x), final_noise=1.0, random_state=0
    )
    fit = clocked(model.fit, x, y)
    before, total = float(model.score(data.test[:, :-1], data.test_labels)), 0.0
    for row in np.random.default_rng(1).permutation(len(x))[:SINGLE].tolist():
        total += clocked(model.unlearn, [row], x, y, epsilon=EPSILON, delta=DELTA)
    steps = model.training_.steps - STEPS
    after = float(model.score(data.test[:, :-1], data.test_labels))
    scale = REQUESTS // SINGLE
    values = (
        (
            f"Adult, private (epsilon 2, L2 0.003), {SINGLE:,} requests one by one: clean steps",
            f"{steps:,} in {total:.0f} s",
        ),
        (
            f"Adult, {REQUESTS:,} requests one by one, from those: clean steps, fitted again each",
            f"{scale * total:,.0f} s, {REQUESTS * fit:,.0f} s",
        ),
        ("Adult, private, test accuracy before and after", f"{before:.4f}, {after:.4f}"),
    )
    return [{"name": name, "goal": "", "measured": value, "ok": None} for name, value in values]


def rows() -> list[dict[str, Any]]:
    """Measurements of this module."""
    if not available():
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return end_to_end() + one_after_the_other() + one_by_one()
