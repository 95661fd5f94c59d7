"""Proved constants hold on random data, and are not far from what is reached."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lastiterate import FullBatch, Training, account
from lastiterate.description.assumptions import assumptions

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lastiterate.torch import BoundedSoftmax, noisy_module_descent  # noqa: E402


def functions(head, x, y):
    """Gradient and Hessian of one record's loss as functions of all parameters in one vector."""
    names = [name for name, _ in head.named_parameters()]
    shapes = [p.shape for p in head.parameters()]

    def value(vector):
        parts = torch.split(vector, [s.numel() for s in shapes])
        shaped = {n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        out = torch.func.functional_call(head, shaped, (x[None],))
        return nn.functional.cross_entropy(out, y[None])

    return torch.func.grad(value), torch.func.hessian(value)


def climb(measure, start, radius, steps=60, rate=0.3):
    """Gradient ascent in the ball: how large can it get?"""
    vector = start.clone().requires_grad_(True)
    best = 0.0
    for _ in range(steps):
        value = measure(vector)
        best = max(best, float(value.detach()))
        (up,) = torch.autograd.grad(value, vector)
        with torch.no_grad():
            vector += rate * radius * up / up.norm().clamp(min=1e-12)
            vector *= min(1.0, radius / float(vector.norm()))
    return best


@pytest.mark.parametrize(("classes", "bound", "radius"), [(2, 1.0, 1.0), (4, 2.0, 0.7), (10, 1, 5)])
def test_bounded_softmax(classes, bound, radius):
    rng = torch.Generator().manual_seed(0)
    head = BoundedSoftmax(3, classes, radius, bound).double()
    K, beta = head.gradient_norm, head.regularity().smoothness
    assert math.sqrt(2) * bound * (1 + 1e-15) >= K
    longest = sharpest = 0.0
    for _ in range(12):
        x = 5 * torch.randn(3, generator=rng, dtype=torch.float64)
        y = torch.tensor(int(torch.randint(0, classes, (), generator=rng)))
        gradient, hessian = functions(head, x, y)
        start = torch.randn(3 * classes, generator=rng, dtype=torch.float64)
        start *= radius / start.norm()
        longest = max(longest, climb(lambda v, g=gradient: g(v).norm(), start, radius))
        largest = torch.linalg.eigvalsh(hessian(0.01 * start)).max()
        sharpest = max(sharpest, float(largest))
    assert longest <= K
    assert sharpest <= beta
    if classes == 2:
        assert longest > 0.999 * K  # attained
        assert sharpest > 0.99 * beta
    else:
        assert longest > 0.7 * K


def far_head(length=5.0, radius=1.0):
    torch.manual_seed(0)
    head = BoundedSoftmax(4, 3, radius=radius).double()
    with torch.no_grad():
        head.weight.copy_(torch.randn(3, 4))
        head.weight *= length / head.weight.norm()
    return head


def test_constants_asked_after_a_run_hold_for_all_of_it():
    """The run starts at norm 5 and is drawn towards 0: its first gradients are the longest."""
    head = far_head()
    before, smoothness = head.gradient_norm, head.regularity().smoothness
    x, y = torch.randn(20, 4, dtype=torch.float64), torch.arange(20) % 3
    fields = dict(records=20, steps=20, step_size=0.5, noise=1e-3, batches=FullBatch())
    run = Training(
        gradient_norm=before, diameter=2 * head.radius, **({"adjacency": "replace"} | fields)
    )
    noisy_module_descent(head, nn.CrossEntropyLoss(), x, y, run, regularization=1.0)
    assert nn.utils.parameters_to_vector(head.parameters()).norm() < 4.1
    assert head.gradient_norm >= before
    assert head.regularity().smoothness >= smoothness
    assert account(run, head.regularity()).provenance == "proved"


def test_a_wider_ball_than_the_head_knows_is_not_proved():
    """Around a start of norm 5 a diameter of 12 reaches norm 11; constants hold up to 6."""
    head = far_head()
    fields = dict(records=20, steps=20, step_size=0.5, noise=1.0, batches=FullBatch())
    run = Training(
        gradient_norm=head.gradient_norm,
        diameter=2 * head.radius,
        **({"adjacency": "replace"} | fields),
    )
    assert account(run, head.regularity()).provenance == "proved"
    for wider in (2 * head.reach, 2.1 * head.radius):
        assert account(run.replace(diameter=wider), head.regularity()).provenance == "declared"


def test_rows_are_kept_short_and_training_stays_in_the_ball():
    torch.manual_seed(0)
    head = BoundedSoftmax(4, 3, radius=1.0, feature_bound=0.5)
    x = 10 * torch.randn(50, 4)
    assert torch.linalg.vector_norm(head.bounded(x).double(), dim=1).max() <= 0.5
    small = 0.01 * torch.randn(50, 4)
    assert torch.equal(head.bounded(small), small)
    run = Training(
        records=50,
        steps=30,
        step_size=0.5,
        noise=0.02,
        batches=FullBatch(),
        gradient_norm=head.gradient_norm,
        diameter=2 * head.radius,
        adjacency="replace",
    )
    loss = head.regularity()
    before = nn.utils.parameters_to_vector(head.parameters()).detach().numpy().copy()
    got = noisy_module_descent(head, nn.CrossEntropyLoss(), x, torch.arange(50) % 3, run)
    assert np.linalg.norm(got.parameters - before) <= 1 + 1e-9
    long = run.replace(records=5, steps=2000, step_size=0.05, noise=0.5)
    endless = account(long.replace(diameter=math.inf), loss).epsilon(1e-5)
    assert account(long, loss).epsilon(1e-5) < 0.9 * endless


@pytest.mark.parametrize("radius", [1e-3, 0.7, 30.0])
@pytest.mark.parametrize("bound", [0.1, 1.0, 7.0])
def test_their_constants_are_derived_again(radius, bound):
    head = BoundedSoftmax(features=3, classes=4, radius=radius, feature_bound=bound)
    loss = head.regularity()
    assert loss.provenance == "proved"
    assert loss.origin.bounds_gradients(head.gradient_norm)
    assert not loss.origin.bounds_gradients(head.gradient_norm * (1 - 1e-4))
    run = Training(
        records=9,
        steps=2,
        step_size=0.1,
        noise=0.1,
        gradient_norm=head.gradient_norm,
        batches=FullBatch(),
        diameter=2 * radius,
        adjacency="replace",
    )
    [regular] = [
        said for said in map(str, assumptions(run, loss, hidden_state=True)) if "smooth" in said
    ]
    assert "up to what its network rounds" in regular

    class Another(BoundedSoftmax):
        pass

    head = Another(features=3, classes=4, radius=radius, feature_bound=bound)
    assert head.regularity().provenance == "declared"
