"""Which ending is better on real data: an equalised last epoch or a burst of noise?

    python examples/endings_real_data.py

For the run that the estimators would choose, at equal (epsilon, delta), test scores of both
endings over three seeds (Adult: area under the curve; MNIST: accuracy; in percent) beside the one
that the predicted risk chooses. tests/models/test_ending.py holds the rule against these numbers.
"""

from __future__ import annotations

import numpy as np
from own_results_real_data import area_under_curve, loaded, objective

from lastiterate import calibrate
from lastiterate.models.choose import choose
from lastiterate.train import noisy_descent

SETTINGS = ((10, 1), (40, 1), (40, 3), (40, 10), (150, 2))  # batches, passes


def score(data, loss, training, l2, seed):
    """Of one run, on the test records."""
    labels = data.labels if loss.outputs() > 1 else np.where(data.labels, 1.0, -1.0)
    theta = noisy_descent(
        loss,
        data.train,
        training,
        labels=labels,
        regularization=l2,
        random_state=seed,
        feature_bound=1.0,
        progress=False,
    ).parameters
    margins = data.test @ theta
    if loss.outputs() > 1:
        return np.mean(np.argmax(margins, axis=1) == data.test_labels)
    return area_under_curve(np.ravel(margins), data.test_labels)


def main() -> None:
    """Print one line per setting."""
    for name in ("adult", "mnist"):
        data, loss = loaded(name), objective(name)
        n, columns = data.train.shape
        for epsilon in (0.1, 1.0):
            for batches, passes in SETTINGS:
                facts = {
                    "records": n,
                    "row_norm": 1.0,
                    "epsilon": epsilon,
                    "delta": data.delta,
                    "batch_size": n // batches,
                    "steps": passes * (n // (n // batches)),
                    "dimension": columns * loss.outputs(),
                }
                chosen = choose(loss, **facts)
                burst = choose(loss, **facts, final_noise="best").training
                found = {}
                for ending, run in (
                    ("equalised", burst.replace(final_noise=1.0, schedule="equalised")),
                    ("burst", burst),
                ):
                    run = calibrate(run, chosen.loss, epsilon, data.delta)
                    l2 = chosen.loss.regularization
                    found[ending] = np.mean([score(data, loss, run, l2, s) for s in range(3)])
                taken = "equalised" if chosen.training.schedule else "burst"
                print(
                    f"{name} epsilon {epsilon:g}, {batches} batches, {passes} passes: equalised "
                    f"{100 * found['equalised']:.2f}, burst {100 * found['burst']:.2f}; "
                    f"chosen: {taken}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
