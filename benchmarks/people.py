"""People with several records on real data: accuracy at epsilon 1 for a person, not for a record.

Adult, with made-up people of 1 to 10 records (uniform): "mixed" people own random records, "alike"
people own records that are neighbours when sorted by label and age. Everything is chosen by the
estimators' public rule; only the bound differs. The generic group bound trains for one record at
(1/k, delta') such that k steps of the usual argument give (1, delta). Five seeds: seeds are also
of the people, of who is dropped and of the batches.
"""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np

from benchmarks import datasets
from lastiterate import Exposure, Training, calibrate
from lastiterate.losses import CappedLogistic
from lastiterate.models.choose import choose
from lastiterate.models.ending import ended
from lastiterate.train import noisy_descent

EPSILON, SEEDS, MOST = 1.0, range(5), 10
OBJECTIVE = CappedLogistic(0.5)


def rows() -> list[dict[str, Any]]:
    """All measurements; loud when the data is missing."""
    if not datasets.available():
        name = f"SKIPPED: no data under {datasets.FOLDER}; set LASTITERATE_DATA"
        return [{"name": name, "goal": "data present", "measured": "missing", "ok": False}]
    data, found = datasets.adult(), []
    generic = {}
    for kind in ("mixed", "alike"):
        for name, k, apart in METHODS:
            values, noise = _measured(data, kind, name, k, apart)
            generic.setdefault(kind, statistics.mean(values))  # it comes first
            gain = statistics.mean(values) - generic[kind]
            text = f"{statistics.mean(values):.2f} ± {statistics.stdev(values):.2f} %"
            goal = "no worse than the generic bound" if name.startswith("spread") else ""
            found.append(
                {
                    "name": f"Adult, {kind} people: {name}",
                    "measured": f"{text}, noise {noise:.4f}",
                    "goal": goal,
                    "ok": gain > -0.1 if goal else None,
                }
            )
    return found


METHODS = [
    ("generic group bound, 10 records", 10, None),
    ("plain shuffle, 10 records", 10, False),
    ("spread, 10 records", 10, True),
    ("spread, 3 records, others dropped", 3, True),
    ("spread, 1 record, others dropped", 1, True),
    ("epsilon 1 for a record: protects no person", 0, None),
]


def _measured(
    data: Any, kind: str, name: str, k: int, apart: bool | None
) -> tuple[list[float], float]:
    """Test accuracies in percent, and the noise per step size in units of one record's impulse."""
    training, loss = _described(data, k, apart)
    values = []
    for seed in SEEDS:
        told: dict[str, Any] = {}
        if apart is not None:
            told = {"groups": _people(data, kind, seed), "per_person": k}
            told["per_batch"] = 1 if apart and k > 1 else None
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
        right = (data.test @ done.parameters > 0) == data.test_labels
        values.append(float(100 * np.mean(right)))
    return values, float(training.noises[0] / (training.step_sizes[0] * training.impulse))


def _described(data: Any, k: int, apart: bool | None) -> tuple[Training, Any]:
    """The run that the estimators would choose, with the noise that the bound asks for."""
    epsilon, delta, person = EPSILON, data.delta, Exposure()
    if k and apart is None:  # k times (1/k, delta'): epsilons add, deltas grow geometrically
        epsilon = EPSILON / k
        delta *= math.expm1(epsilon) / math.expm1(EPSILON)
    elif k:
        person = Exposure(k, per_batch=1 if apart else None)
    size = data.train.shape
    target = (epsilon, delta)
    given = {
        "records": size[0],
        "row_norm": 1.0,
        "dimension": size[1],
        "per_person": person.records,
    }
    chosen = choose(OBJECTIVE, epsilon=epsilon, delta=delta, **given)
    plain = chosen.training.replace(schedule=None, final_noise=1.0)
    run, _ = ended(plain, chosen.loss, size[1], *target, None, person)
    return calibrate(run, chosen.loss, *target, exposure=person), chosen.loss


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
