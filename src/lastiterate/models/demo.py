"""A model trained on bundled data: accuracy, certificate, and what composition would charge."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from lastiterate.accounting import account
from lastiterate.certificate import Certificate
from lastiterate.description import Loss
from lastiterate.models.softmax import PrivateSoftmaxRegression

EPSILON, DELTA = 4.0, 1e-4
LARGEST_PIXEL = 16.0  # of the images by their format, so public


@dataclass(frozen=True)
class Demonstration:
    """What the demo measured."""

    accuracy: float
    certificate: Certificate
    composition: float
    choice: str

    def __str__(self) -> str:
        c = self.certificate
        return "\n".join(
            (
                f"Handwritten digits (1,437 images, softmax regression): test accuracy "
                f"{self.accuracy:.1%}",
                f"Certificate: epsilon = {c.epsilon:.4g} at delta = {c.delta:g}, {c.adjacency} "
                f"adjacency, by {c.theorem}",
                f"The same run charged by composition, as if all iterates were published: epsilon "
                f"= {self.composition:.4g}",
                "What was chosen without looking at the data, and why:",
                *(f"  {line}" for line in self.choice.splitlines()),
            )
        )


def run() -> Demonstration:
    """Train on scikit-learn's digits with secure noise."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X / LARGEST_PIXEL, y, test_size=0.2, random_state=0)
    model = PrivateSoftmaxRegression(epsilon=EPSILON, delta=DELTA).fit(X, y)
    published = account(model.training_, Loss.unknown())
    assert model.certificate_ is not None  # the noise was secure
    return Demonstration(
        accuracy=float(model.score(X_test, y_test)),
        certificate=model.certificate_,
        composition=published.epsilon(DELTA),
        choice=str(model.choice_),
    )


if __name__ == "__main__":
    print(run())
