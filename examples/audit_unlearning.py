"""An audit of forgetting: shadow models with and without a deleted record, after clean steps.

Logistic regression with noise, full batches, one record with the label of the other side. Inside it
is used until the deletion, and its slot is empty afterwards; outside it was never there. The score
is how far the model leans towards it. After the planned clean steps the measured mu must stay below
the certificate; the model from before the deletion is far above it, so the test has power.

    python examples/audit_unlearning.py --models 4000
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from lastiterate import FullBatch, Guarantee, Loss, Training, account
from lastiterate.audit import AuditResult, audit
from lastiterate.unlearning import UnlearningPlan, plan_unlearning

RECORDS, STEPS, EPSILON, DELTA = 40, 60, 1.0, 1e-5
L2 = 0.05
LOSS = Loss(smoothness=0.25, regularization=L2)
RUN = Training(
    records=RECORDS,
    steps=STEPS,
    step_size=0.5,
    noise=0.03,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="zero-out",
)


class Forgetting:
    """Trains cohorts: a dataset says whether the first record was there until the deletion."""

    def __init__(self, clean: int) -> None:
        rng = np.random.default_rng(7)
        rows = rng.standard_normal((RECORDS, 3))
        self.rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        self.labels = np.sign(self.rows @ [2.0, -1.0, 0.5])
        self.labels[0] *= -1
        self.steps = STEPS + clean

    def __call__(self, joined: bool, seed: int) -> float:
        return float(self.cohort(joined, [seed])[0])

    def cohort(self, joined: bool, seeds: Sequence[int]) -> NDArray[np.float64]:
        """How far each model leans towards the record."""
        signed = self.rows * self.labels[:, None]
        noise = np.random.default_rng(list(seeds))
        w = np.zeros((len(seeds), 3))
        for step in range(self.steps):
            slopes = expit(-w @ signed.T)
            slopes[:, 0] *= joined and step < STEPS
            normals = noise.standard_normal(w.shape)
            w += 0.5 * (slopes @ signed / RECORDS - L2 * w) + RUN.noises[0] * normals
        return np.asarray(w @ signed[0])


def audited(models: int, seed: int) -> tuple[UnlearningPlan, dict[int, AuditResult]]:
    """The plan, and the audits after none, a few and all of its clean steps."""
    plan = plan_unlearning(RUN, LOSS, None, EPSILON, DELTA)
    found = {}
    for clean in (0, 10, plan.steps or 0):
        found[clean] = audit(
            Forgetting(clean),
            True,
            False,
            models=models,
            delta=DELTA,
            method="gdp",
            random_state=seed,
            cohort=1000,
        )
    return plan, found


def certified(plan: UnlearningPlan, clean: int) -> Guarantee:
    """What is proved after so many clean steps."""
    return account(RUN.replace(steps=STEPS + clean), LOSS, unit=plan.deleted)


def main() -> None:
    """Print the audits beside the certificates."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    plan, found = audited(given.models, given.seed)
    print(f"promised after {plan.steps} clean steps: mu <= {plan.guarantee.mu:.3f}")
    for clean, result in found.items():
        proved = certified(plan, clean).mu
        print(f"{clean:3d} clean steps: audited {result.mu_lower:.3f}, certified {proved:.3f}")


if __name__ == "__main__":
    main()
