"""`audit`: train models of two worlds, tell them apart, report what that refutes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._internal.progress import Progress
from lastiterate.audit.fanout import run_cohorts
from lastiterate.audit.one_run import judge
from lastiterate.audit.result import AuditResult
from lastiterate.audit.scores import CHOOSING, Attack, _probabilities, audit_scores
from lastiterate.audit.store import Store
from lastiterate.description.fields import integer, one_of
from lastiterate.errors import DescriptionError

Array = NDArray[np.float64]
Train = Callable[[Any, int], Any]

COHORT = 100
"""Models that a worker trains at once; fixed, so that results do not depend on the backend."""

_METHODS = ("clopper-pearson", "gdp", "one-run", "credible")


def audit(
    train: Train,
    inside: Any,
    outside: Any,
    *,
    models: int = 1000,
    score: Callable[[Any], Any] | None = None,
    delta: float = 1e-5,
    confidence: float = 0.95,
    method: str = "clopper-pearson",
    backend: str | None = None,
    random_state: int | None = None,
    attack: Attack | None = None,
    choosing: float = CHOOSING,
    searched: int = 1,
    workers: int | None = None,
    cohort: int = COHORT,
    store: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> AuditResult:
    """A lower bound on the privacy loss of ``train`` between two neighbouring datasets.

    Args:
        train: (dataset, seed) -> a number (higher or lower with the record, one direction), an
            array of numbers (one per epoch), or a model together with ``score``. If it has a
            method ``cohort(dataset, seeds)``, that trains many models at once.
        inside, outside: the dataset with the record, and without it (or with another one).
        models: trained in total, half in each world.
        score: model -> number or array; see `audit_scores` for shapes.
        delta: of the epsilon that is bounded.
        confidence: joint, over both rates and all looks (each rate gets half of the error).
        method: "clopper-pearson"; "gdp" (under a Gaussian hypothesis, for certificates that are
            Gaussian); "one-run" (one model; the datasets are aligned arrays, every row where they
            differ is a canary taken from either on a coin flip, and there is one score per
            canary); "credible" (Bayesian, no confidence bound).
        backend: where cohorts run: None, a backend of joblib, "ray" or "dask".
        random_state: a seed for the models' seeds; fresh if None.
        attack: turns features into a score (see `lastiterate.audit.attacks`).
        choosing: share of the models that fit the attack and choose the threshold.
        searched: how many audits the caller chooses the best of; the error is divided by it.
        workers: processes; None is one without a backend, all processors with one.
        cohort: models that a worker trains at once.
        store: an SQLite file that keeps every finished model: the same call after a crash goes on
            from there. Beside it lies its key (`Store`). Without one, scores are kept in memory.
        progress: a line with rate and time left; by default only on a terminal.

    >>> def train(data, seed):        # a noisy sum
    ...     return sum(data) + np.random.default_rng(seed).normal()
    >>> result = audit(train, [1, 1, 3], [1, 1], models=2000, random_state=0, delta=1e-3)
    >>> 2 < result.epsilon_lower < 12.2       # the truth at delta = 1e-3, mu = 3, is 12.2
    True
    """
    one_of("method", method, _METHODS)
    _probabilities(delta, confidence)
    integer("searched", searched)
    if random_state is not None:
        integer("random_state", random_state, at_least=0)
    entropy = np.random.SeedSequence(random_state).entropy
    assert isinstance(entropy, int)
    if method == "one-run":
        return _one_run(train, inside, outside, score, delta, confidence, searched, entropy)
    found = shadow_scores(
        train,
        inside,
        outside,
        models=models,
        score=score,
        backend=backend,
        entropy=entropy,
        workers=workers,
        cohort=cohort,
        store=store,
        progress=progress,
        fixed=random_state is not None,
    )
    return audit_scores(
        *found,
        delta=delta,
        confidence=confidence,
        method=method,
        attack=attack,
        choosing=choosing,
        searched=searched,
    )


def shadow_scores(
    train: Train,
    inside: Any,
    outside: Any,
    *,
    models: int,
    score: Callable[[Any], Any] | None,
    backend: str | None,
    entropy: int,
    workers: int | None,
    cohort: int,
    store: str | os.PathLike[str] | None,
    progress: bool | None,
    fixed: bool = True,
) -> tuple[Array, Array]:
    """Scores of the models of both worlds, trained or found in the store."""
    models = _models(models, inside, outside)
    size = integer("cohort", cohort)
    worlds = {"inside": inside, "outside": outside}
    with Store(store) as kept:
        description = _description(train, score, worlds, models, size, kept.digest)
        first = kept.settle(description, entropy)
        if fixed and first != entropy:
            allowed = f"{first}, with which the store was started (or None)"
            why = "models of two audits must not be mixed"
            raise DescriptionError("random_state", entropy, allowed, why)
        done = kept.finished()
        todo = [c for c in _cohorts(models, size, first) if not done.issuperset(c.numbers)]
        bar = Progress("models audited", len(done), models, progress)
        work = _Work(train, score, worlds)
        for k, rows in run_cohorts(work, todo, backend=backend, workers=workers):
            numbers, seeds = todo[k].numbers, todo[k].seeds
            kept.add(zip(numbers, [todo[k].world] * len(rows), seeds, rows, strict=True))
            bar.add(len(rows))
        bar.close()
        scores = kept.scores()
    assert set(scores) == set(range(models)), "every requested model, and no other"
    each = [_stacked([scores[k] for k in range(world, models, 2)]) for world in (0, 1)]
    return each[0], each[1]


@dataclass(frozen=True)
class _Cohort:
    """Some models of one world. Even numbers are inside, odd ones outside."""

    world: str
    numbers: tuple[int, ...]
    seeds: tuple[int, ...]


def _cohorts(models: int, size: int, entropy: int) -> list[_Cohort]:
    """A fixed partition of the models; seeds depend on entropy and number alone."""
    found = []
    for world, name in enumerate(("inside", "outside")):
        numbers = range(world, models, 2)
        for start in range(0, len(numbers), size):
            chosen = tuple(numbers[start : start + size])
            found.append(_Cohort(name, chosen, tuple(model_seed(entropy, k) for k in chosen)))
    return found


def model_seed(entropy: int, number: int) -> int:
    """The seed of one model: 62 bits (they fit a signed word, also halved)."""
    words = np.random.SeedSequence(entropy, spawn_key=(number,)).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(2))


@dataclass(frozen=True)
class _Work:
    """What a worker does: train a cohort and score it."""

    train: Train
    score: Callable[[Any], Any] | None
    worlds: dict[str, Any]

    def __call__(self, cohort: _Cohort) -> list[Array]:
        data = self.worlds[cohort.world]
        together = getattr(self.train, "cohort", None)
        if together is not None:
            models = together(data, cohort.seeds)
        else:
            models = [self.train(data, seed) for seed in cohort.seeds]
        rows = [self._row(model) for model in models]
        if len(rows) != len(cohort.seeds):
            found = f"{len(rows)} models for {len(cohort.seeds)} seeds"
            allowed = "one per seed"
            why = "every model is counted once"
            raise DescriptionError("train.cohort", found, allowed, why)
        return rows

    def _row(self, model: Any) -> Array:
        value = model if self.score is None else self.score(model)
        try:
            return np.array(value, dtype=np.float64)
        except (TypeError, ValueError) as wrong:
            raise DescriptionError(
                "train" if self.score is None else "score",
                f"a function that returned {type(value).__name__}",
                "one that returns a number or an array of numbers"
                + (" (or give score=)" if self.score is None else ""),
                "worlds are told apart by numbers",
            ) from wrong


def _models(models: int, inside: Any, outside: Any) -> int:
    for name, world in (("inside", inside), ("outside", outside)):
        if world is None:
            raise DescriptionError(
                name, None, "a dataset", "an error rate is measured in each of the two worlds"
            )
    return integer("models", models, at_least=4)


def _stacked(rows: list[Array]) -> Array:
    if len({row.shape for row in rows}) > 1:
        raise DescriptionError(
            "scores", "of different shapes", "of one shape", "all models are observed alike"
        )
    return np.stack(rows)


def _description(
    train: Any,
    score: Any,
    worlds: dict[str, Any],
    models: int,
    cohort: int,
    digest: Callable[[bytes], str],
) -> dict[str, Any]:
    """What must not change between two starts of one audit; records are in it as digests only."""
    return {
        "models": models,
        "cohort": cohort,
        "train": _name(train, digest),
        "score": None if score is None else _name(score, digest),
        **{name: _content(data, digest) for name, data in worlds.items()},
    }


def _name(function: Any, digest: Callable[[bytes], str]) -> str:
    """Of a function its name; of an object its class and its settings."""
    if hasattr(function, "__qualname__"):
        return f"{function.__module__}.{function.__qualname__}"
    kind = type(function)
    return f"{kind.__module__}.{kind.__qualname__} {_content(function, digest)}"


def _content(data: Any, digest: Callable[[bytes], str]) -> str:
    """A digest of the content, where it can be pickled."""
    import pickle

    try:
        return digest(pickle.dumps(data, protocol=5))
    except Exception:
        return type(data).__name__


def _one_run(
    train: Train,
    inside: Any,
    outside: Any,
    score: Callable[[Any], Any] | None,
    delta: float,
    confidence: float,
    searched: int,
    entropy: int,
) -> AuditResult:
    """Rows where the two datasets differ are the canaries."""
    _models(4, inside, outside)
    one, two = _columns(inside), _columns(outside)
    if len(one) != len(two) or any(a.shape != b.shape for a, b in zip(one, two, strict=True)):
        allowed = "aligned arrays (or tuples of arrays)"
        why = "a canary is a row in which they differ"
        raise DescriptionError("inside, outside", "datasets of different shapes", allowed, why)
    differ = np.zeros(len(one[0]), bool)
    for a, b in zip(one, two, strict=True):
        differ |= (a != b).reshape(len(a), -1).any(axis=1)
    canaries = np.flatnonzero(differ)
    if len(canaries) < 2:
        allowed = "at least 2 rows in which inside and outside differ"
        why = "one run has as many coins to guess as canaries"
        raise DescriptionError("canaries", len(canaries), allowed, why)
    rng = np.random.default_rng(entropy)
    included = rng.random(len(canaries)) < 0.5
    mixed = tuple(b.copy() for b in two)
    for column, a in zip(mixed, one, strict=True):
        column[canaries[included]] = a[canaries[included]]
    model = train(mixed if isinstance(inside, tuple) else mixed[0], model_seed(entropy, 0))
    scores = np.asarray(model if score is None else score(model), float)
    return judge(scores, included, delta, confidence, searched)


def _columns(data: Any) -> tuple[NDArray[Any], ...]:
    columns = data if isinstance(data, tuple) else (data,)
    return tuple(np.asarray(column) for column in columns)
