"""People with several records on real data: accuracy at epsilon 1 for a person, not for a record.

Adult, with made-up people of 1 to 10 records (uniform): "mixed" people own random records, "alike"
people own records that are neighbours when sorted by label and age. Steps and batches are those of
the estimators' public rule for k records, in ten passes that end as the predicted risk says, or in
one pass of equal steps; only the bound differs. The generic group bound trains for one record at
(1/k, delta') such that k steps of the usual argument give (1, delta). Five seeds: also of the
people, of who is dropped and of the batches.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import datasets
from lastiterate import Loss, PrivacyUnit, Training, calibrate
from lastiterate.losses import CappedLogistic
from lastiterate.models.choose import choose
from lastiterate.models.ending import ended
from lastiterate.train import noisy_descent

EPSILON, SEEDS, MOST = 1.0, range(5), 10
OBJECTIVE = CappedLogistic(0.5)


@dataclass(frozen=True)
class Method:
    """A bound for people with up to k records; ``apart``: spread, or not, or no groups at all."""

    name: str
    k: int
    passes: int
    apart: bool | None


METHODS = [
    Method("epsilon 1 for a record (protects no person)", 1, 10, None),
    Method("1 record each, others dropped", 1, 10, True),
    Method("3 records each, spread, others dropped", 3, 10, True),
    Method("10 records, generic group bound", 10, 10, None),
    Method("10 records, plain shuffle", 10, 10, False),
    Method("10 records, spread", 10, 10, True),
    Method("10 records, one pass, generic group bound", 10, 1, None),
    Method("10 records, one pass, plain shuffle", 10, 1, False),
    Method("10 records, one pass, spread", 10, 1, True),
]


def rows() -> list[dict[str, Any]]:
    """All measurements; loud when the data is missing."""
    if not datasets.available():
        name = f"SKIPPED: no data under {datasets.FOLDER}; set LASTITERATE_DATA"
        return [{"name": name, "goal": "data present", "measured": "missing", "ok": False}]
    data, found = datasets.adult(), []
    for method in METHODS:
        training, loss = _described(data, method)
        ratio = float(training.noises[0] / (training.step_sizes[0] * training.impulse))
        for kind in ("mixed", "alike") if method.apart is not None else ("all",):
            values = [_accuracy(data, training, loss, method, kind, seed) for seed in SEEDS]
            text = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} %"
            found.append(
                {
                    "name": f"Adult, {kind} people: {method.name}",
                    "measured": f"{text}, {training.steps:,} steps, noise/impulse {ratio:.3f}",
                    "goal": "",
                    "ok": None,
                }
            )
    return found


def _described(data: Any, method: Method) -> tuple[Training, Loss]:
    """The run that the estimators would choose, with the noise that the bound asks for."""
    records, columns = data.train.shape
    chosen = choose(
        OBJECTIVE,
        records=records,
        row_norm=1.0,
        epsilon=EPSILON,
        delta=data.delta,
        dimension=columns,
        passes=method.passes,
        max_records_per_group=method.k,
    )
    epsilon, delta, person = EPSILON, data.delta, PrivacyUnit()
    if method.apart is not None:
        person = PrivacyUnit(method.k, per_batch=1 if method.apart else None)
    else:  # k times (1/k, delta'): epsilons add, deltas grow geometrically
        epsilon = EPSILON / method.k
        delta *= math.expm1(epsilon) / math.expm1(EPSILON)
    run = chosen.training.replace(schedule=None, final_noise=1.0)
    if method.passes > 1:
        run, _ = ended(run, chosen.loss, columns, epsilon, delta, None, person)
    return calibrate(run, chosen.loss, epsilon, delta, unit=person), chosen.loss


def _accuracy(
    data: Any, training: Training, loss: Loss, method: Method, kind: str, seed: int
) -> float:
    """On the test records, in percent."""
    told: dict[str, Any] = {}
    if method.apart is not None:
        told = {"groups": _people(data, kind, seed), "max_records_per_group": method.k}
        told["per_batch"] = 1 if method.apart and method.k > 1 else None
    done = noisy_descent(
        OBJECTIVE,
        data.train,
        training,
        labels=np.where(data.labels, 1.0, -1.0),
        regularization=loss.regularization,
        feature_bound=1.0,
        random_state=seed,
        **told,
    )
    return float(100 * np.mean((data.test @ done.parameters > 0) == data.test_labels))


def _people(data: Any, kind: str, seed: int) -> np.ndarray:
    """The owner of each record."""
    rng, n = np.random.default_rng(seed), len(data.labels)
    counts = rng.integers(1, MOST + 1, n)
    owners = np.repeat(np.arange(n), counts)[:n]
    if kind == "mixed":
        return rng.permutation(owners)
    age = np.asarray(data.train[:, [0]].todense()).ravel()
    found = np.empty(n, dtype=int)
    found[np.lexsort((rng.random(n), age, data.labels))] = owners
    return found
