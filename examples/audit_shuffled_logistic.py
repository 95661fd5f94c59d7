"""Shuffled logistic regression on handwritten digits, audited against its certificate.

Digits of scikit-learn, even against odd, batches shuffled once and hidden. The record that is
looked for has one label inside and the other outside. The bracket is [audit, certificate].

    python examples/audit_shuffled_logistic.py --models 10000 [--plot bracket.html]
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.datasets import load_digits

from lastiterate import Loss, Shuffled, Training, account
from lastiterate.audit import audit
from lastiterate.audit.attacks.canaries import replaced
from lastiterate.audit.attacks.thresholds import DirectionScore
from lastiterate.audit.shadow import LinearCohort
from lastiterate.losses import Logistic

DELTA, BATCH, REGULARIZATION = 1e-3, 599, 0.05  # three batches


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of norm 1 with labels -1, +1; and the canary, where the other images are dark."""
    X, digit = load_digits(return_X_y=True)
    dark = np.argmin(X.var(axis=0))
    X = X / np.linalg.norm(X, axis=1)[:, None]
    canary = np.zeros(X.shape[1])
    canary[dark] = 1.0
    return X, np.where(digit % 2 == 0, 1.0, -1.0), canary


def bracket(epochs: int, models: int, noise: float, seed: int) -> dict[str, float]:
    """The audited and the certified epsilon after so many epochs."""
    X, y, canary = data()
    run = Training(
        records=len(X), steps=epochs * (len(X) // BATCH), step_size=1.0, noise=noise,
        gradient_norm=1.0 + 1e-9, batches=Shuffled(BATCH),
    )  # fmt: skip
    train = LinearCohort(Logistic(), run, regularization=REGULARIZATION, dtype=np.float32)
    found = audit(
        train, replaced((X, y), 0, canary, 1.0), replaced((X, y), 0, canary, -1.0),
        models=models, score=DirectionScore(canary), delta=DELTA, random_state=seed, cohort=500,
        workers=2,
    )  # fmt: skip
    loss = Loss(smoothness=0.2501, regularization=REGULARIZATION)
    guarantee = account(run, loss)
    assert not found.contradicts(guarantee)
    everything = account(run, Loss.unknown())
    return {
        "epochs": epochs,
        "audited": found.epsilon_lower,
        "certified": guarantee.epsilon(DELTA),
        "composition": everything.epsilon(DELTA),
    }


def plot(rows: list[dict[str, float]], path: str) -> None:
    """The bracket as a picture (needs plotly)."""
    import plotly.graph_objects as go

    figure = go.Figure()
    names = {"composition": "all iterates", "certified": "certificate", "audited": "audit"}
    for key, name in names.items():
        figure.add_scatter(x=[r["epochs"] for r in rows], y=[r[key] for r in rows], name=name)
    figure.update_layout(xaxis_title="epochs", yaxis_title=f"epsilon at delta = {DELTA:g}")
    figure.write_html(path)


def main() -> None:
    """Print one row per number of epochs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=10_000)
    parser.add_argument("--noise", type=float, default=0.001)
    parser.add_argument("--epochs", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", help="an HTML file to write")
    given = parser.parse_args()
    print(f"epsilon at delta = {DELTA:g}, {given.models:,} models, confidence 0.95")
    print(f"{'epochs':>6} {'audit >=':>9} {'certificate <=':>15} {'all iterates <=':>16}")
    rows = []
    for epochs in given.epochs:
        row = bracket(epochs, given.models, given.noise, given.seed)
        rows.append(row)
        print(
            f"{epochs:6d} {row['audited']:9.3f} {row['certified']:15.3f} "
            f"{row['composition']:16.3f}",
            flush=True,
        )
    if given.plot:
        plot(rows, given.plot)


if __name__ == "__main__":
    main()
