"""Shuffled logistic regression on handwritten digits, audited against its certificate.

Digits of scikit-learn, even against odd, batches shuffled once and hidden; the loss is capped as
in `PrivateLogisticRegression`. The record that is looked for has one label inside and the other
outside, and lies where the other images are dark: every update moves it by nearly all that the
sensitivity allows. The bracket is [audit, certificate].

    python examples/audit_shuffled_logistic.py --models 10000 [--plot bracket.html]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from lastiterate import Loss, Shuffled, Training, account
from lastiterate.audit import audit
from lastiterate.audit.attacks.canaries import replaced
from lastiterate.audit.attacks.thresholds import DirectionScore
from lastiterate.audit.shadow import LinearCohort
from lastiterate.losses import CappedLogistic

DELTA, BATCH, REGULARIZATION = 1e-3, 599, 0.05  # three batches
LOSS = CappedLogistic(0.5)


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of norm at most 1 with labels -1, +1; and the canary, where other images are dark."""
    X, digit = load_digits(return_X_y=True)
    dark = np.argmin(X.var(axis=0))
    X = X / (1.0001 * np.linalg.norm(X, axis=1)[:, None])
    canary = np.zeros(X.shape[1])
    canary[dark] = 1.0
    return X, np.where(digit % 2 == 0, 1.0, -1.0), canary


def described(epochs: int, noise: float) -> tuple[Training, Loss]:
    """The run, and what is proved about its loss."""
    records = len(data()[0])
    run = Training(
        records=records,
        steps=epochs * (records // BATCH),
        step_size=1.0,
        noise=noise,
        gradient_norm=LOSS.gradient_norm(1.0),
        batches=Shuffled(BATCH),
        adjacency="replace",
    )
    return run, LOSS.regularity(1.0, REGULARIZATION)


def bracket(epochs: int, models: int, noise: float, seed: int) -> dict[str, Any]:
    """The audited and the certified epsilon after so many epochs."""
    X, y, canary = data()
    run, loss = described(epochs, noise)
    found = audit(
        LinearCohort(LOSS, run, regularization=REGULARIZATION),
        replaced((X, y), 0, canary, 1.0),
        replaced((X, y), 0, canary, -1.0),
        models=models,
        score=DirectionScore(canary),
        delta=DELTA,
        random_state=seed,
        cohort=500,
        workers=2,
    )
    guarantee = account(run, loss)
    assert not found.contradicts(guarantee)
    return {
        "epochs": epochs,
        "steps": run.steps,
        "audited": found.epsilon_lower,
        "certified": guarantee.epsilon(DELTA),
        "composition": account(run, Loss.unknown()).epsilon(DELTA),
    }


def plot(rows: list[dict[str, Any]], noise: float, path: str) -> None:
    """All bounds against the number of steps, and what the audits found."""
    from lastiterate.report import epsilon_growth

    ax = epsilon_growth(*described(rows[-1]["epochs"], noise), DELTA).plot()
    steps, audited = ([row[name] for row in rows] for name in ("steps", "audited"))
    ax.plot(steps, audited, "k^", markersize=9, zorder=9)
    ax.annotate("audit: at least this", (steps[-1], audited[-1]), ha="right", va="top")
    ax.figure.savefig(path)


def main() -> None:
    """Print one row per number of epochs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--noise", type=float, default=0.002)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="a file to write: .html, .png, .svg")
    given = parser.parse_args()
    print(f"epsilon at delta = {DELTA:g}, {given.models:,} models, confidence 0.95")
    print(f"{'epochs':>6} {'audit >=':>9} {'certificate <=':>15} {'all iterates <=':>16}")
    rows = []
    for epochs in sorted(given.epochs):
        row = bracket(epochs, given.models, given.noise, given.seed)
        rows.append(row)
        print(
            f"{epochs:6d} {row['audited']:9.3f} {row['certified']:15.3f} "
            f"{row['composition']:16.3f}",
            flush=True,
        )
    if given.plot:
        plot(rows, given.noise, given.plot)


if __name__ == "__main__":
    main()
