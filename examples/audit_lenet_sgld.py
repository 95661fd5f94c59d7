r"""How private is SGLD before it has converged? The experiment of Heller and Fetaya, section V.

LeNet-5 on MNIST by SGLD (effective step 0.001, batches of 4). A crafted record, pushed over the
decision boundary of reference models, replaces an ordinary one; a linear classifier on four
probabilities tells at every epoch which models were trained on it. All epochs are looked at, so
each gets its share of the error.

    python examples/audit_lenet_sgld.py --models 1000 --epochs 20          (a GPU)
    python examples/audit_lenet_sgld.py --models 8 --epochs 2 --records 2000 --references 2 \
        --step 0.005                                                    (a processor, a taste)

MNIST is looked for under $LASTITERATE_DATA, else beside the repository.
"""

from __future__ import annotations

import argparse
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate.audit import AuditResult, audit
from lastiterate.audit.attacks.canaries import replaced
from lastiterate.audit.attacks.deepfool import Crafted, craft, torch_logits
from lastiterate.audit.attacks.four_features import LinearClassifier
from lastiterate.audit.shadow.lenet import LeNets, LeNetSGLD, forward

FOLDER = Path(
    os.environ.get("LASTITERATE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
DELTA = 1e-5
Data = tuple[np.ndarray, np.ndarray]


def mnist(part: str, records: int) -> Data:
    """The first images, pixels in [0, 1], and their labels."""
    folder = FOLDER / "mnist"
    pixels = _bytes(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    labels = _bytes(folder / f"{part}-labels-idx1-ubyte.gz", 8)
    return pixels[:records] / np.float32(255), labels[:records].astype(np.int64)


def _bytes(path: Path, header: int) -> np.ndarray:
    if not path.exists():
        raise SystemExit(f"{path} is not here. Set LASTITERATE_DATA to a folder with mnist/.")
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def sgld(probes: Any, given: argparse.Namespace, epochs: int) -> LeNetSGLD:
    """The trainer: one look per epoch."""
    epoch = max(1, given.records // 4)
    return LeNetSGLD(
        probes, steps=epochs * epoch, every=epoch, step=given.step, clip=given.clip
    )


def crafted(data: Data, given: argparse.Namespace) -> Crafted:
    """Reference models trained on the data, and a record that all of them misclassify."""
    nets = sgld(data[0][:1], given, given.epochs).train(data, range(given.references))

    def model(m: int) -> Any:
        p = {name: value[m : m + 1] for name, value in nets.p.items()}
        return torch_logits(lambda x: forward(p, x[None])["logits"][0], nets.flat.device)

    return craft([model(m) for m in range(nets.models)], data[0], low=0.0, high=1.0)


def four_features(label: int, shown: np.ndarray) -> np.ndarray:
    """p(y*|x*), p(y0|x*), p(y*|x0), p(y0|x0) at every epoch (y* = y0, as in the paper)."""
    return shown[:, [0, 0, 1, 1], label]


class Features:
    """The score: from (epochs, probes, classes) to (epochs, 4)."""

    def __init__(self, label: int) -> None:
        self.label = label

    def __call__(self, shown: np.ndarray) -> np.ndarray:
        return four_features(self.label, shown)


def run(given: argparse.Namespace) -> tuple[AuditResult, list[float]]:
    """The audit, and the accuracy after every epoch."""
    data = mnist("train", given.records)
    made = crafted(data, given)
    # y0 is the label on which the references agree; the replaced record keeps it.
    outside = replaced(data, made.record, made.original, made.label)
    inside = replaced(data, made.record, made.canary, made.label)
    probes = np.stack([made.canary, made.original]).astype(np.float32)
    result = audit(
        sgld(probes, given, given.epochs), inside, outside, models=given.models,
        score=Features(made.label), attack=LinearClassifier(), choosing=0.5, delta=DELTA,
        confidence=0.9, cohort=min(given.cohort, max(1, given.models // 2)),
        random_state=given.seed, store=given.store,
    )  # fmt: skip
    return result, accuracies(data, given)


def accuracies(data: Data, given: argparse.Namespace) -> list[float]:
    """Mean test accuracy of a few models after every epoch."""
    test = mnist("t10k", 1000)
    found: list[float] = []
    trainer = sgld(test[0], given, given.epochs)

    def watch(nets: LeNets) -> None:
        found.append(float((trainer.observe(nets).argmax(-1) == test[1]).mean()))

    trainer.train(data, range(4), watch)
    return found


def options(clip: float | None) -> argparse.Namespace:
    """What can be chosen on the command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", type=int, default=1000, help="both worlds together")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--references", type=int, default=10)
    parser.add_argument("--step", type=float, default=0.001)
    parser.add_argument("--clip", type=float, default=clip)
    parser.add_argument("--cohort", type=int, default=500, help="models trained at once")
    parser.add_argument("--store", help="an SQLite file: the same command goes on after a crash")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def show(result: AuditResult, accuracy: list[float], certified: list[float] | None = None) -> None:
    """One row per epoch, and the reading."""
    upper = "" if certified is None else " certificate <="
    print(f"{'epoch':>5} {'accuracy':>9} {'audit >=':>9}{upper}")
    for k, (look, share) in enumerate(zip(result.looks, accuracy, strict=True)):
        bound = "" if certified is None else f" {certified[k]:14.4f}"
        print(f"{k + 1:5d} {share:9.4f} {look.epsilon_lower:9.3f}{bound}")
    print(result)


if __name__ == "__main__":
    show(*run(options(clip=None)))
