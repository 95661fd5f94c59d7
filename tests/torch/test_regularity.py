"""Estimates: right where the answer is known, and never certified."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from lastiterate import FullBatch, Training, account
from lastiterate.certificate import certify
from lastiterate.errors import AssumptionError, DescriptionError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lastiterate.torch import estimate_holder  # noqa: E402
from lastiterate.torch.regularity import _around  # noqa: E402


def test_a_quadratic_has_the_curvature_it_has():
    """½‖Aw‖²/n: gradients differ by AᵀA(w − w')/n, so the ratio lies below its norm, and near."""
    torch.manual_seed(0)
    A = torch.randn(40, 2)
    top = float(torch.linalg.eigvalsh(A.T @ A / 40).max())
    found = estimate_holder(
        lambda: nn.Linear(2, 1, bias=False),
        lambda out, y: 0.5 * (out[:, 0] - y).square().mean(),
        (A, torch.zeros(40)),
        [0.5, 1.0],
        steps=5,
        initialisations=3,
        radius=2.0,
        seed=1,
    )
    assert 0.99 * top < found.losses[1.0].smoothness <= top * (1 + 1e-4)
    # distance^½ instead of distance: the largest ratio is at the rim of the ball.
    rim = top * math.sqrt(2.0)
    assert 0.97 * rim < found.losses[0.5].smoothness <= rim * (1 + 1e-4)
    assert found.points == 5 * 3 * 100


def test_points_fill_the_ball():
    torch.manual_seed(0)
    r = torch.linalg.vector_norm(_around(20_000, 3, 2.0, None).double(), dim=1)
    for share in (0.1, 0.5, 0.9):
        assert float((r <= 2.0 * share ** (1 / 3)).double().mean()) == pytest.approx(
            share, abs=0.02
        )
    assert float(r.max()) <= 2.0 + 1e-6
    r = torch.linalg.vector_norm(_around(20_000, 300, 2.0, 0.02).double(), dim=1)
    assert float(r.min()) >= 0.02 - 1e-6
    assert float((r <= 0.2).double().mean()) == pytest.approx(0.5, abs=0.02)


def test_estimates_are_accounted_with_but_never_certified():
    torch.manual_seed(0)
    data = torch.randn(30, 4), torch.arange(30) % 3
    found = estimate_holder(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)),
        lambda out, y: 0.1 * nn.functional.cross_entropy(out, y),
        data,
        [0.5, 1.0],
        steps=10,
        initialisations=2,
        points=20,
        seed=3,
    )
    run = Training(
        records=5,
        steps=50,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )
    for loss in found.losses.values():
        assert loss.provenance == "estimated"
        assert account(run, loss).provenance == "estimated"
        with pytest.raises(AssumptionError, match="only estimated"):
            certify(run, loss, 1e-5)
    again = estimate_holder(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)),
        lambda out, y: 0.1 * nn.functional.cross_entropy(out, y),
        data,
        [0.5, 1.0],
        steps=10,
        initialisations=2,
        points=20,
        seed=3,
    )
    assert again == found


def test_refusals():
    with pytest.raises(DescriptionError, match="exponents"):
        estimate_holder(nn.Identity, nn.CrossEntropyLoss(), (None, None), [1.5])
    with pytest.raises(DescriptionError, match="points"):
        estimate_holder(nn.Identity, nn.CrossEntropyLoss(), (None, None), [1.0], points=0)


@pytest.mark.slow
def test_the_example_of_the_paper():
    script = Path(__file__).parents[2] / "examples" / "holder_iris.py"
    command = [sys.executable, str(script), "--initialisations", "2", "--epochs", "20"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in out.splitlines() if line.strip().startswith("200")]
    values = [float(v) for v in rows[-1][1:]]
    assert all(v <= values[0] + 1e-9 for v in values[1:])  # never above composition
    assert min(values) < 0.9 * values[0]
