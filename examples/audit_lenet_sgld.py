r"""How private is SGLD before it has converged? The experiment of Heller and Fetaya, section V.

LeNet-5 on MNIST by SGLD (effective step 0.001, batches of 4). A crafted record, pushed over the
decision boundary of reference models, replaces an ordinary one; a linear classifier on four
probabilities tells at every epoch which models were trained on it. All epochs are looked at, so
each gets its share of the error.

    python examples/audit_lenet_sgld.py --models 1000 --epochs 12 --first 103 --out DIR     (a GPU)
    python examples/audit_lenet_sgld.py --models 8 --epochs 2 --records 2000 --references 2 \
        --step 0.005 --out DIR                                          (a processor, a taste)

The first of these made results/heller_fetaya_figure2.json, in six minutes on one GPU; the paper's
accuracy (98.6 %) needs more epochs. Whoever looks at the attack on several records (``--first``)
before choosing one says how many with ``--hypotheses``: the error is divided by it.

Needs NumPy, SciPy and PyTorch. MNIST is looked for under $LASTITERATE_DATA, else beside the
repository. DIR receives the canary, one row per model (models.sqlite) and the result (audit.json);
the same command goes on after a crash, and draws a finished audit with --plot.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lenet.networks import LeNets, LeNetSGLD, forward, probabilities

from lastiterate.audit import AuditResult, Store, audit, audit_scores
from lastiterate.audit.attacks.canaries import replaced
from lastiterate.audit.attacks.deepfool import craft, torch_logits
from lastiterate.audit.attacks.four_features import LinearClassifier

FOLDER = Path(
    os.environ.get("LASTITERATE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data")
)
DELTA, CONFIDENCE, CHOOSING = 1e-5, 0.9, 0.5  # as in the paper
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


class Observed(LeNetSGLD):
    """The trainer, which says when an epoch is over."""

    def observe(self, nets: LeNets) -> Any:
        print(f"  {time.strftime('%H:%M:%S')} {nets.models} models, an epoch more", flush=True)
        return super().observe(nets)


def sgld(probes: Any, given: argparse.Namespace, epochs: int) -> LeNetSGLD:
    """The trainer: one look per epoch."""
    epoch = max(1, given.records // 4)
    return Observed(
        probes, steps=epochs * epoch, every=epoch, step=given.step, batch=4, clip=given.clip
    )


def canary(data: Data, given: argparse.Namespace) -> dict[str, Any]:
    """A record that all reference models misclassify, and how accurate they are each epoch."""
    path = given.out / "canary.npz"
    if path.exists():
        with np.load(path) as kept:
            return dict(kept)
    test, accuracy = mnist("t10k", given.test_images), []

    def watch(nets: LeNets) -> None:
        accuracy.append(right(nets, test))
        print(f"  {time.strftime('%H:%M:%S')} references: accuracy {accuracy[-1]:.4f}", flush=True)

    nets = sgld(data[0][:1], given, given.epochs).train(data, range(given.references), watch)

    def model(m: int) -> Any:
        p = {name: value[m : m + 1] for name, value in nets.p.items()}
        return torch_logits(lambda x: forward(p, x[None])["logits"][0], nets.flat.device)

    references = [model(m) for m in range(nets.models)]
    candidates = data[0][given.first :]
    made = craft(references, candidates, low=0.0, high=1.0, overshoot=given.overshoot)
    found = {**asdict(made), "record": made.record + given.first, "accuracy": np.array(accuracy)}
    np.savez(path, **found)
    return found


def right(nets: LeNets, test: Data) -> float:
    """Mean accuracy of all networks."""
    images, labels = (torch.as_tensor(part, device=nets.flat.device) for part in test)
    good = 0.0
    for k in range(0, len(images), 50):  # few at once: every network sees them
        guesses = probabilities(nets, images[k : k + 50].to(nets.flat.dtype)).argmax(-1)
        good += float((guesses == labels[k : k + 50]).sum())
    return good / len(images) / nets.models


class FourFeatures:
    """The score: from (epochs, probes, classes) to (epochs, 4)."""

    def __init__(self, label: int) -> None:
        self.label = label

    def __call__(self, shown: np.ndarray) -> np.ndarray:
        """p(y*|x*), p(y0|x*), p(y*|x0), p(y0|x0) at every epoch (y* = y0, as in the paper)."""
        return shown[:, [0, 0, 1, 1], self.label]


def run(given: argparse.Namespace) -> tuple[AuditResult, dict[str, Any]]:
    """The audit, and what is written about it."""
    given.out.mkdir(parents=True, exist_ok=True)
    data = mnist("train", given.records)
    made = canary(data, given)
    label, record = int(made["label"]), int(made["record"])
    # y0 is the label on which the references agree; the replaced record keeps it.
    outside = replaced(data, record, made["original"], label)
    inside = replaced(data, record, made["canary"], label)
    probes = np.stack([made["canary"], made["original"]]).astype(np.float32)
    store, begun = given.out / "models.sqlite", time.time()
    result = audit(
        sgld(probes, given, given.epochs),
        inside,
        outside,
        models=given.models,
        score=FourFeatures(label),
        attack=LinearClassifier(),
        choosing=CHOOSING,
        delta=DELTA,
        confidence=CONFIDENCE,
        searched=given.hypotheses,
        cohort=min(given.cohort, max(1, given.models // 2)),
        random_state=given.seed,
        store=store,
        progress=True,
    )
    report = {
        "settings": {k: str(v) if isinstance(v, Path) else v for k, v in vars(given).items()},
        "seconds": time.time() - begun,
        "accuracy": made["accuracy"].tolist(),
        "each_epoch_alone": alone(store),
        "audit": {**result.to_dict(), "epsilon_lower": result.epsilon_lower},
    }
    return result, report


def alone(store: Path) -> list[float]:
    """The bound of every epoch as if no other had been looked at: what the paper plots.

    The best of these numbers is no 90 % bound.
    """
    with Store(store) as kept:
        rows = kept.scores()
    inside, outside = (np.stack([rows[k] for k in range(w, len(rows), 2)]) for w in (0, 1))
    options = {"delta": DELTA, "confidence": CONFIDENCE, "choosing": CHOOSING}
    return [
        audit_scores(
            inside[:, k], outside[:, k], attack=LinearClassifier(), **options
        ).epsilon_lower
        for k in range(inside.shape[1])
    ]


def options(clip: float | None, out: str) -> argparse.Namespace:
    """What can be chosen on the command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", type=int, default=1000, help="both worlds together")
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--records", type=int, default=60_000)
    parser.add_argument("--references", type=int, default=10)
    parser.add_argument("--overshoot", type=float, default=5.0, help="of DeepFool")
    parser.add_argument("--first", type=int, default=0, help="the first record that may be moved")
    parser.add_argument("--hypotheses", type=int, default=1, help="records tried, this one included")
    parser.add_argument("--step", type=float, default=0.001)
    parser.add_argument("--clip", type=float, default=clip)
    parser.add_argument("--cohort", type=int, default=500, help="models trained at once")
    parser.add_argument("--test-images", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(out), help="a folder")
    parser.add_argument("--plot", help="a figure to write: .png, .svg, .pdf")
    return parser.parse_args()


def show(result: AuditResult, report: dict[str, Any], guarantee: Any = None) -> None:
    """One row per epoch, and the reading; everything else goes into audit.json."""
    certified = report.get("certified")
    upper = "" if certified is None else " certificate <="
    print(f"{'epoch':>5} {'accuracy':>9} {'audit >=':>9} {'alone':>9}{upper}")
    for k, look in enumerate(result.looks):
        bound = "" if certified is None else f" {certified[k]:14.4f}"
        print(
            f"{k + 1:5d} {report['accuracy'][k]:9.4f} {look.epsilon_lower:9.3f} "
            f"{report['each_epoch_alone'][k]:9.3f}{bound}"
        )
    print(result)
    path = Path(report["settings"]["out"]) / "audit.json"
    path.write_text(json.dumps(report, indent=1) + "\n")
    print(f"written to {path}")
    if (plot := report["settings"]["plot"]) is not None:
        from lastiterate.report import audit_bracket

        audit_bracket(result, guarantee).plot().figure.savefig(plot)


if __name__ == "__main__":
    show(*run(options(clip=None, out="audit_lenet_sgld")))
