"""A model trained on bundled data, filed as `lastiterate train` would: public data, real noise."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from lastiterate._internal.formatting import printed
from lastiterate.accounting import account
from lastiterate.certificate import Certificate
from lastiterate.description import Loss
from lastiterate.models.columns import Categorical, Numeric
from lastiterate.models.logistic import PrivateLogisticRegression
from lastiterate.models.saved import Score, TableModel, about, report, save
from lastiterate.models.schema import Schema
from lastiterate.models.table import read_table

EPSILON, DELTA = 4.0, 1e-4
LARGEST_PIXEL = 16.0  # of the images by their format, so public
SIDE = 8  # pixels
_PIXELS = tuple(f"pixel {row}.{column}" for row in range(SIDE) for column in range(SIDE))
_SCHEMA = Schema(
    {name: Numeric(0.0, LARGEST_PIXEL) for name in _PIXELS}, "digit", Categorical(("even", "odd"))
)


@dataclass(frozen=True)
class Demonstration:
    """What the demo measured."""

    score: Score
    records: int
    certificate: Certificate
    composition: float
    choice: str

    def __str__(self) -> str:
        c = self.certificate
        return "\n".join(
            (
                f"Is a handwritten digit odd? ({self.records:,} images, logistic regression): "
                f"test accuracy {self.score.value:.1%}",
                f"Certificate: epsilon = {printed(c.epsilon)} at delta = {printed(c.delta)}, "
                f"{c.adjacency} "
                f"adjacency, by {c.theorem}",
                f"The same run charged by composition, as if all iterates were published: epsilon "
                f"= {printed(self.composition)}",
                "What was chosen without looking at the data, and why:",
                *(f"  {line}" for line in self.choice.splitlines()),
            )
        )


def write_tables(folder: Path) -> tuple[Path, Path]:
    """Scikit-learn's digits as two tables: to train on, and other records."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.2, random_state=0)
    return (
        _write(folder / "digits.csv", X, y),
        _write(folder / "digits-test.csv", X_test, y_test),
    )


def run(folder: Path, table: Path, test: Path) -> Demonstration:
    """Train with secure noise; model, certificate and reports appear in the folder."""
    X, y = _SCHEMA.encode(read_table(table))
    classes = ["even", "odd"]
    model = PrivateLogisticRegression(
        epsilon=EPSILON,
        delta=DELTA,
        classes=classes,
        batch_size=128,  # hidden batches: full ones would be the default for so few records
        prepare=None,  # the schema scales them
    ).fit(X, y)
    assert model.certificate_ is not None  # the noise was secure
    trained = TableModel(_SCHEMA, model)
    score = Score.of(model, *_SCHEMA.encode(read_table(test)))
    save(folder, trained, report(trained, len(y), [], score), about(trained, len(y), [], score))
    return Demonstration(
        score=score,
        records=len(y),
        certificate=model.certificate_,
        composition=account(model.training_, Loss.unknown()).epsilon(DELTA),
        choice=str(model.choice_),
    )


def _write(path: Path, X: Any, y: Any) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([*_PIXELS, "digit"])
        for pixels, digit in zip(X, y, strict=True):
            rows.writerow([*(f"{pixel:g}" for pixel in pixels), ("even", "odd")[digit % 2]])
    return path
