"""A real PrivacyEngine, real loaders, real updates."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Poisson, Reshuffled, Training, account
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
pytest.importorskip("sklearn")
from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants.utils import get_noise_multiplier  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from lastiterate.torch import (  # noqa: E402
    BoundedSoftmax,
    HiddenStateAccountant,
    describe_loader,
)
from lastiterate.torch.opacus_calls import planned_epsilon  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")


def digits():
    X, y = load_digits(return_X_y=True)
    X = torch.from_numpy(X / np.linalg.norm(X, axis=1, keepdims=True) * 0.999).float()
    return TensorDataset(X, torch.from_numpy(y))


DATA = digits()


def bounded():
    return BoundedSoftmax(features=64, classes=10, radius=1.0)


def linear():
    return nn.Linear(64, 10, bias=False)


def private(
    batch=128,
    poisson=True,
    rate=0.5,
    noise=1.5,
    clip=1.0,
    optimizer=torch.optim.SGD,
    mode="hooks",
    model=linear,
    wrap=True,
    **settings,
):
    torch.manual_seed(0)
    model = model()
    torch.seed()
    engine = PrivacyEngine(accountant="lastiterate")
    loader = DataLoader(DATA, batch_size=batch, shuffle=True, drop_last=not poisson)
    module, stepper, loader = engine.make_private(
        module=model,
        optimizer=optimizer(model.parameters(), lr=rate, **settings),
        data_loader=loader,
        noise_multiplier=noise,
        max_grad_norm=clip,
        poisson_sampling=poisson,
        grad_sample_mode=mode,
        wrap_model=wrap,
    )
    module = module if wrap else model
    return engine, module, stepper, loader


def train(module, stepper, loader, epochs=3, weight=1.0):
    criterion, steps = (lambda out, y: weight * nn.functional.cross_entropy(out, y)), 0
    for _ in range(epochs):
        for X, y in loader:
            stepper.zero_grad()
            criterion(module(X), y).backward()
            stepper.step()
            steps += 1
    return steps


def test_three_epochs_of_poisson_batches():
    engine, module, stepper, loader = private(weight_decay=0.2)
    q, expected = 1 / 15, 1797 // 15
    loss = Loss(smoothness=0.5, regularization=0.2 * expected / (q * 1797))
    batches = Poisson(q)
    engine.accountant.describe(
        loss=loss, batches=batches, step_size=0.5, loader=loader, optimizer=stepper
    )
    steps = train(module, stepper, loader)
    assert steps == 45
    assert len(engine.accountant) == 45
    # Opacus divides by 119, not by 119.8: the update in the description's words.
    described = Training(
        records=1797,
        steps=45,
        step_size=0.5 * q * 1797 / expected,
        noise=0.5 * 1.5 * 1.0 / expected,
        gradient_norm=1.0,
        batches=batches,
        adjacency="zero-out",
        clipping="gradient",
    )
    told = account(described, loss).epsilon(1e-5)
    assert engine.get_epsilon(delta=1e-5) == pytest.approx(told, rel=1e-9)
    composed = account(described, Loss.unknown()).epsilon(1e-5)
    assert engine.get_epsilon(delta=1e-5) <= composed
    other = PrivacyEngine(accountant="prv")
    other.accountant.history = [(1.5, q, 45)]
    assert composed == pytest.approx(other.get_epsilon(1e-5), rel=0.02)


def test_three_epochs_of_a_shuffling_loader():
    # No gradient of this head is longer than √2, so a clip of 1.5 never does anything.
    engine, module, stepper, loader = private(
        poisson=False, batch=120, rate=0.2, clip=1.5, model=bounded
    )
    loss = Loss(smoothness=0.5)
    described = {"loss": loss, "batches": Reshuffled(120), "step_size": 0.2}
    engine.accountant.describe(**described, loader=loader, optimizer=stepper, clipping="none")
    steps = train(module, stepper, loader)
    expected = int(1797 / 14)
    run = Training(
        records=1797,
        steps=steps,
        step_size=0.2 * 120 / expected,
        noise=0.2 * 1.5 * 1.5 / expected,
        gradient_norm=1.5,
        batches=Reshuffled(120),
        adjacency="zero-out",
    )
    assert engine.get_epsilon(1e-5) == pytest.approx(account(run, loss).epsilon(1e-5), rel=1e-9)
    public = account(run.replace(batches=Cyclic(120)), Loss.unknown()).epsilon(1e-5)
    assert engine.get_epsilon(1e-5) < 0.9 * public


def test_three_epochs_of_ghost_clipping():
    """Opacus' two backward passes are one update."""
    model = nn.Linear(64, 10, bias=False)
    engine = PrivacyEngine(accountant="lastiterate")
    module, stepper, criterion, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(DATA, batch_size=128),
        noise_multiplier=1.5,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
    )
    loss, batches = Loss(smoothness=0.5), Poisson(1 / 15)
    engine.accountant.describe(
        loss=loss, batches=batches, step_size=0.5, loader=loader, optimizer=stepper
    )
    for _ in range(3):
        for X, y in loader:
            stepper.zero_grad()
            criterion(module(X), y).backward()
            stepper.step()
    expected = 1797 // 15
    described = Training(
        records=1797,
        steps=45,
        step_size=0.5 * 1797 / 15 / expected,
        noise=0.5 * 1.5 / expected,
        gradient_norm=1.0,
        batches=batches,
        adjacency="zero-out",
        clipping="gradient",
    )
    assert engine.accountant.training == described
    assert engine.get_epsilon(1e-5) == account(described, loss).epsilon(1e-5)


@pytest.mark.parametrize("mode", ["hooks", "ew"])
def test_the_described_update_is_the_one_that_runs(mode):
    """Follow one update by hand, with the noise switched off."""
    engine, module, stepper, loader = private(noise=0.0, mode=mode, weight_decay=0.3, clip=0.4)
    expected, q = 1797 // 15, 1 / 15
    l2 = 0.3 * expected / (q * 1797)
    engine.accountant.describe(
        loss=Loss(smoothness=0.5, regularization=l2),
        batches=Poisson(q),
        step_size=0.5,
        loader=loader,
        optimizer=stepper,
    )
    before = module._module.weight.detach().double().clone()
    X, y = next(iter(loader))
    stepper.zero_grad()
    nn.CrossEntropyLoss()(module(X), y).backward()
    stepper.step()
    run = engine.accountant.training
    scores = X.double() @ before.T
    slope = torch.softmax(scores, 1) - nn.functional.one_hot(y, 10)
    norms = slope.norm(dim=1) * X.double().norm(dim=1)
    slope *= (0.4 / norms.clamp(min=0.4))[:, None]
    mean = slope.T @ X.double() / run.batches.divisor(run.records)
    after = before - run.step_sizes[0] * (mean + l2 * before)
    torch.testing.assert_close(module._module.weight.double(), after, rtol=0, atol=2e-6)
    assert (norms > 0.4).any()


def test_an_unknown_loss_is_composition_and_says_so():
    engine, module, stepper, loader = private(optimizer=torch.optim.Adam, rate=0.01)
    engine.accountant.describe(
        loss=Loss.unknown(), batches=Poisson(1 / 15), loader=loader, optimizer=stepper
    )
    train(module, stepper, loader, epochs=1)
    with pytest.warns(UserWarning, match="that of composition"):
        epsilon = engine.get_epsilon(1e-5)
    other = PrivacyEngine(accountant="prv")
    other.accountant.history = [(1.5, 1 / 15, 15)]
    assert epsilon == pytest.approx(other.get_epsilon(1e-5), rel=0.02)


def test_memory_manager_does_not_change_the_count():
    engine, module, stepper, loader = private()
    engine.accountant.describe(
        loss=Loss(smoothness=0.5),
        batches=Poisson(1 / 15),
        step_size=0.5,
        loader=loader,
        optimizer=stepper,
    )
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=32, optimizer=stepper
    ) as small:
        train(module, stepper, small, epochs=1)
    assert len(engine.accountant) == 15


KNOWN = {"loss": Loss(smoothness=0.5), "step_size": 0.5}


def test_a_shuffling_loader_under_a_poisson_description_raises():
    engine, _module, stepper, loader = private(poisson=False, batch=100)
    with pytest.raises(AssumptionError, match=r"runs Reshuffled\(size=100\)"):
        engine.accountant.describe(
            **KNOWN, batches=Poisson(1 / 15), loader=loader, optimizer=stepper
        )
    engine, _module, stepper, loader = private()
    for batches in (Reshuffled(120), Cyclic(120), FullBatch(), Poisson(1 / 16)):
        with pytest.raises(AssumptionError, match="loader runs Poisson"):
            engine.accountant.describe(**KNOWN, batches=batches, loader=loader, optimizer=stepper)


@pytest.mark.parametrize(
    ("settings", "changes", "error", "says"),
    [
        ({"rate": 0.4}, {}, AssumptionError, "learning rate"),
        ({"weight_decay": 0.1}, {}, AssumptionError, "weight_decay"),
        ({}, {"loss": Loss(smoothness=1.0, regularization=0.1)}, AssumptionError, "weight_decay"),
        ({"momentum": 0.9}, {}, UnsupportedError, "momentum"),
        ({"optimizer": torch.optim.Adam}, {}, UnsupportedError, "Adam"),
        (
            {"optimizer": torch.optim.Adam},
            {"loss": Loss.unknown(regularization=0.1)},
            UnsupportedError,
            "Adam",
        ),
        ({}, {"step_size": None}, DescriptionError, "step_size"),
        ({}, {"loss": 0.5}, DescriptionError, "loss"),
    ],
)
def test_what_disagrees_with_the_optimizer(settings, changes, error, says):
    engine, _module, stepper, loader = private(**settings)
    told = {**KNOWN, "batches": Poisson(1 / 15), **changes}
    with pytest.raises(error, match=says):
        engine.accountant.describe(**told, loader=loader, optimizer=stepper)


def test_a_change_during_the_run_raises():
    engine, module, stepper, loader = private()
    engine.accountant.describe(**KNOWN, batches=Poisson(1 / 15), loader=loader, optimizer=stepper)
    train(module, stepper, [next(iter(loader))], epochs=1)
    stepper.param_groups[0]["lr"] = 0.1
    with pytest.raises(AssumptionError, match="learning rate"):
        train(module, stepper, [next(iter(loader))], epochs=1)
    assert len(engine.accountant) == 1


def test_step_size_schedules():
    engine, module, stepper, loader = private()
    told = {**KNOWN, "step_size": [0.5, 0.25]}
    engine.accountant.describe(**told, batches=Poisson(1 / 15), loader=loader, optimizer=stepper)
    train(module, stepper, [next(iter(loader))], epochs=1)
    stepper.param_groups[0]["lr"] = 0.25
    train(module, stepper, [next(iter(loader))], epochs=1)
    sizes = engine.accountant.training.step_sizes
    assert sizes[1] / sizes[0] == pytest.approx(0.5)
    assert math.isfinite(engine.get_epsilon(1e-5))
    with pytest.raises(AssumptionError, match="number of updates"):
        train(module, stepper, [next(iter(loader))], epochs=1)


def test_without_a_description_there_is_no_number():
    engine, module, stepper, loader = private()
    with pytest.raises(AssumptionError, match="was not described"):
        train(module, stepper, loader, epochs=1)
    with pytest.raises(AssumptionError, match="was not described"):
        engine.get_epsilon(1e-5)


def test_saved_and_loaded():
    engine, module, stepper, loader = private()
    told = {**KNOWN, "batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper}
    engine.accountant.describe(**told)
    train(module, stepper, loader, epochs=1)
    again = HiddenStateAccountant()
    again.describe(**told)
    again.load_state_dict(engine.accountant.state_dict())
    assert again.training == engine.accountant.training
    again.history.append((1.5, 1 / 15, 1))
    with pytest.raises(AssumptionError, match="no optimizer made"):
        _ = again.training


def test_a_state_is_loaded_into_the_run_it_comes_from():
    """Updates of shuffled batches must not become updates of Poisson batches, and so on."""
    engine, module, stepper, loader = private()
    told = {**KNOWN, "batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper}
    engine.accountant.describe(**told)
    train(module, stepper, loader, epochs=1)
    state = engine.accountant.state_dict()
    for change in ({"loss": Loss(smoothness=0.25)}, {"adjacency": "replace"}):
        other = HiddenStateAccountant()
        other.describe(**{**told, **change})
        with pytest.raises(AssumptionError, match="described in another way"):
            other.load_state_dict(state)
        assert len(other) == 0
    with pytest.raises(AssumptionError, match="was not described"):
        HiddenStateAccountant().load_state_dict(state)
    again = HiddenStateAccountant()
    again.describe(**told)
    with pytest.raises(AssumptionError, match="described in another way"):
        again.load_state_dict({**state, "described": None})


def by_hand(**settings):
    """An optimizer that no engine made, with the accountant's hook."""
    engine, module, _, loader = private(poisson=False, batch=1797)
    from opacus.optimizers import DPOptimizer

    plain = torch.optim.SGD(module.parameters(), lr=0.5)
    stepper = DPOptimizer(
        plain, noise_multiplier=1.5, max_grad_norm=1.0, expected_batch_size=1797, **settings
    )
    stepper.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=1.0))
    return engine, module, stepper, loader


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"secure_mode": True},
        {"secure_mode": True, "generator": torch.Generator().manual_seed(0)},
        {"generator": torch.Generator().manual_seed(2**62)},
    ],
)
def test_noise_that_can_be_replayed_is_not_certified(settings):
    engine, module, stepper, loader = by_hand(**settings)
    engine.accountant.describe(**KNOWN, batches=FullBatch(), loader=loader, optimizer=stepper)
    train(module, stepper, loader, epochs=2)
    with pytest.raises(AssumptionError, match="seeded noise"):
        engine.accountant.certificate(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.accountant.guarantee.epsilon(1e-5) > 0


def test_secure_mode_with_a_seeded_generator_is_replayed():
    """Why the flag says nothing: the same noise twice."""
    moves = []
    for _ in range(2):
        engine, module, stepper, loader = by_hand(
            secure_mode=True, generator=torch.Generator().manual_seed(5)
        )
        engine.accountant.describe(**KNOWN, batches=FullBatch(), loader=loader, optimizer=stepper)
        train(module, stepper, [next(iter(DataLoader(DATA, 1797)))], epochs=1)
        moves.append(module._module.weight.detach().clone())
    torch.testing.assert_close(*moves, rtol=0, atol=1e-6)


# --- what the network says ----------------------------------------------------------------------


CLIPS_TWO_THIRDS = 0.9458


def test_two_thirds_of_the_gradients_are_clipped():
    """280 updates declared "none" while 67 % were clipped: 3.15 was reported, 6.57 is honest."""
    engine, module, stepper, loader = private(
        poisson=False, batch=1797, clip=CLIPS_TWO_THIRDS, noise=11.83, weight_decay=0.05
    )
    X, y = DATA.tensors
    slope = torch.softmax(X @ module._module.weight.detach().T, 1) - nn.functional.one_hot(y, 10)
    clipped = (slope.norm(dim=1) * X.norm(dim=1) > CLIPS_TWO_THIRDS).double().mean()
    assert clipped == pytest.approx(0.67, abs=0.02)
    loss = Loss(smoothness=0.5, regularization=0.05)
    told = {
        "loss": loss,
        "batches": FullBatch(),
        "step_size": 0.5,
        "loader": loader,
        "optimizer": stepper,
    }
    with pytest.raises(AssumptionError, match="Leave clipping out"):
        engine.accountant.describe(**told, clipping="none")
    engine.accountant.describe(**told)
    train(module, stepper, loader, epochs=280)
    denied = account(engine.accountant.training.replace(clipping="none"), loss)
    assert denied.epsilon(1e-5) == pytest.approx(3.15, abs=0.01)
    assert engine.get_epsilon(1e-5) == pytest.approx(6.57, abs=0.01)


def unclipped(**settings):
    engine, module, stepper, loader = private(model=bounded, poisson=False, batch=100, **settings)
    told = {**KNOWN, "batches": Reshuffled(100), "loader": loader, "optimizer": stepper}
    return engine, module, stepper, loader, told


@pytest.mark.parametrize("physical", [100, 7])
def test_a_gradient_longer_than_proved_ends_the_run(physical):
    """A weighted criterion: the only way to break the proof is to run another loss."""
    engine, module, stepper, loader, told = unclipped(clip=1.5)
    engine.accountant.describe(**told, clipping="none")
    train(module, stepper, loader, epochs=1)
    assert engine.get_epsilon(1e-5) > 0
    before = module._module.weight.detach().clone()
    with (
        BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=physical, optimizer=stepper
        ) as small,
        pytest.raises(AssumptionError, match="No update was made"),
    ):
        train(module, stepper, small, epochs=1, weight=3.0)
    assert torch.equal(module._module.weight, before)
    with pytest.raises(AssumptionError, match="not that of this run"):
        engine.get_epsilon(1e-5)
    again = HiddenStateAccountant()
    again.describe(**told, clipping="none")
    again.load_state_dict(engine.accountant.state_dict())
    with pytest.raises(AssumptionError, match="not that of this run"):
        again.get_epsilon(1e-5)


@pytest.mark.filterwarnings("ignore:invalid value")
def test_gradients_that_are_not_finite_end_the_run():
    engine, module, stepper, loader, told = unclipped(clip=1.5)
    engine.accountant.describe(**told, clipping="none")
    with pytest.raises(AssumptionError, match="No update was made"):
        train(module, stepper, loader, epochs=1, weight=math.nan)


def test_long_rows_never_reach_the_clip():
    """The head shortens them: the proof does not rest on the data."""
    engine, module, stepper, _, told = unclipped(clip=1.5)
    engine.accountant.describe(**told, clipping="none")
    X, y = DATA.tensors
    wild = [(X[k : k + 100] * 10.0 ** (k / 50), y[k : k + 100]) for k in range(0, 1700, 100)]
    assert train(module, stepper, wild, epochs=1) == 17
    assert engine.accountant.training.clipping == "none"


@pytest.mark.parametrize(
    ("settings", "changes", "error", "says"),
    [
        ({"clip": 1.4}, {}, AssumptionError, "Opacus would clip"),
        ({"clip": math.sqrt(2)}, {}, AssumptionError, "Opacus would clip"),
        ({"clip": 1.5}, {"loss": Loss(smoothness=0.4)}, AssumptionError, "nothing better"),
        ({"clip": 1.5}, {"loss": Loss(0.6, 0.1)}, AssumptionError, "nothing better"),
        ({"clip": 1.5}, {"loss": Loss.unknown()}, AssumptionError, "nothing better"),
    ],
)
def test_unclipped_runs_that_are_not_proved(settings, changes, error, says):
    engine, _module, _, _, told = unclipped(**settings)
    with pytest.raises(error, match=says):
        engine.accountant.describe(**{**told, **changes}, clipping="none")


def test_another_optimizer_is_not_measured():
    engine, module, stepper, loader, told = unclipped(clip=1.5)
    engine.accountant.describe(**told, clipping="none")
    from opacus.optimizers import DPOptimizer

    other = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.5),
        noise_multiplier=1.5,
        max_grad_norm=1.5,
        expected_batch_size=stepper.expected_batch_size,
    )
    other.attach_step_hook(stepper.step_hook)
    with pytest.raises(AssumptionError, match="nobody measured"):
        train(module, other, loader, epochs=1)


def frozen(*layers):
    for layer in layers:
        layer.requires_grad_(False)
    return layers


def twice():
    layer = nn.Linear(64, 64, bias=False)
    return nn.Sequential(layer, layer)


def weight_normed():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return nn.utils.weight_norm(nn.Linear(64, 10, bias=False))


class Squared(nn.Module):
    """One linear layer inside, and nobody knows what it does with it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 10)

    def forward(self, x):
        return self.layer(x) ** 2


class SquaredLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) ** 2


def hooked():
    layer = nn.Linear(64, 10)
    layer.register_forward_hook(lambda module, x, out: out**2)
    return layer


def overwritten():
    layer = nn.Linear(64, 10)
    layer.forward = lambda x: (x @ layer.weight.T) ** 2
    return layer


NOT_LINEAR = {
    "two layers": lambda: nn.Sequential(nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10)),
    "two layers without a bend": lambda: nn.Sequential(nn.Linear(64, 8), nn.Linear(8, 10)),
    "one layer used twice": twice,
    "a bend at the end": lambda: nn.Sequential(nn.Linear(64, 10), nn.ReLU()),
    "a layer after it": lambda: nn.Sequential(nn.Linear(64, 10), *frozen(nn.Linear(10, 10))),
    "a layer of unknown law": Squared,
    "a subclass": lambda: SquaredLinear(64, 10),
    "a scale": lambda: nn.Sequential(nn.LayerNorm(64), nn.Linear(64, 10)),
    "weight norm": weight_normed,
    "hooks": hooked,
    "another forward": overwritten,
}


@pytest.mark.parametrize("model", NOT_LINEAR.values(), ids=NOT_LINEAR.keys())
def test_what_is_not_linear_is_not_convex(model):
    engine, _module, stepper, loader = private(model=model)
    told = {"batches": Poisson(1 / 15), "step_size": 0.5, "loader": loader, "optimizer": stepper}
    for loss in (Loss(smoothness=0.5), Loss(smoothness=1.0, strong_convexity=0.5)):
        with pytest.raises(AssumptionError, match="says that the loss is convex"):
            engine.accountant.describe(**told, loss=loss)
    for loss in (Loss.unknown(), Loss.nonconvex(smoothness=2.0)):
        engine.accountant.describe(**told, loss=loss)
    with pytest.raises(AssumptionError, match="Leave clipping out"):
        engine.accountant.describe(**told, loss=Loss.nonconvex(smoothness=2.0), clipping="none")


LINEAR = {
    "with a bias": lambda: nn.Linear(64, 10),
    "after frozen layers": lambda: nn.Sequential(
        *frozen(nn.Linear(64, 32)), nn.ReLU(), nn.Sequential(nn.Linear(32, 10)), nn.Flatten()
    ),
    "our own head": bounded,
}


@pytest.mark.parametrize("mode", ["hooks", "functorch"])
@pytest.mark.parametrize("model", LINEAR.values(), ids=LINEAR.keys())
def test_what_is_linear_may_be_convex(model, mode):
    for wrap in (True, False):
        engine, module, stepper, loader = private(model=model, mode=mode, wrap=wrap)
        engine.accountant.describe(
            **KNOWN, batches=Poisson(1 / 15), loader=loader, optimizer=stepper
        )
        train(module, stepper, [next(iter(loader))], epochs=1)
        assert len(engine.accountant) == 1


def normed(**settings):
    layers = frozen(nn.BatchNorm1d(64, **settings))
    return nn.Sequential(*layers, nn.Linear(64, 10, bias=False))


def test_a_frozen_batch_norm_moves_the_gradients_of_others():
    """Opacus lets it pass; one record moves the clipped sum by more than the clip."""
    _, module, stepper, _ = private(model=normed, noise=0.0, clip=0.1)
    X, y = DATA.tensors[0][:20].clone(), DATA.tensors[1][:20]
    sums = []
    for scale in (1.0, 100.0):
        X[0] = DATA.tensors[0][0] * scale
        stepper.zero_grad()
        nn.functional.cross_entropy(module(X), y).backward()
        stepper.clip_and_accumulate()
        sums.append(module._module[1].weight.summed_grad.clone())
    assert (sums[1] - sums[0]).norm() > 2 * 2 * 0.1


@pytest.mark.parametrize("settings", [{}, {"affine": False}, {"track_running_stats": False}])
def test_layers_that_mix_records_are_refused(settings):
    engine, module, stepper, loader = private(model=lambda: normed(**settings))
    told = {"batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper, "step_size": 0.5}
    for loss in (Loss.unknown(), Loss(smoothness=0.5)):
        with pytest.raises(UnsupportedError, match="mixes the records"):
            engine.accountant.describe(**told, loss=loss)
    module._module[0].eval()
    if settings.get("track_running_stats") is False:  # there are no other statistics than these
        with pytest.raises(UnsupportedError, match="mixes the records"):
            engine.accountant.describe(**told, loss=Loss.unknown())
        return
    engine.accountant.describe(**told, loss=Loss.unknown())
    train(module, stepper, [next(iter(loader))], epochs=1)
    module.train()
    with pytest.raises(UnsupportedError, match="mixes the records"):
        train(module, stepper, [next(iter(loader))], epochs=1)
    assert len(engine.accountant) == 1


def test_an_account_of_opacus_says_that_it_is_one_of_real_numbers():
    """Its noise is added in float32: low bits and sums have no proof, whatever is described."""
    from lastiterate import Arithmetic, certify

    engine, _module, stepper, loader = private()
    told = {"batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper, "step_size": 0.5}
    engine.accountant.describe(**told, loss=Loss(smoothness=0.5))
    found = engine.accountant.guarantee
    for said in (str(found), repr(found), found._repr_html_()):
        assert "NOT A GUARANTEE" in said
    assert "noisy_module_descent" in str(found)
    with pytest.warns(UserWarning, match="real numbers"):
        engine.get_epsilon(1e-5)
    with pytest.raises(AssumptionError, match="noisy_module_descent"):
        engine.accountant.certificate(1e-5)
    described = engine.accountant.training
    weights = [p.detach().numpy() for p in _module.parameters()]
    for arithmetic in ("exact", Arithmetic(error=1e-9)):
        run = described.replace(steps=3, noise=0.1, arithmetic=arithmetic)
        with pytest.raises(AssumptionError, match="real numbers"):
            certify(run, Loss(smoothness=0.5), 1e-5, parameters=weights)


def test_who_vouches_for_the_loss():
    engine, _module, stepper, loader = private()
    told = {"batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper, "step_size": 0.5}
    engine.accountant.describe(**told, loss=Loss(smoothness=0.5, provenance="proved"))
    told_loss = engine.accountant.state_dict()["described"]["loss"]
    assert Loss.from_dict(told_loss).provenance == "declared"


def test_an_estimated_loss_warns_where_opacus_says_epsilon():
    engine, _module, stepper, loader = private()
    told = {"batches": Poisson(1 / 15), "loader": loader, "optimizer": stepper, "step_size": 0.5}
    engine.accountant.describe(**told, loss=Loss(smoothness=0.5, provenance="estimated"))
    with pytest.warns(UserWarning, match="NOT A GUARANTEE"):
        engine.get_epsilon(1e-5)


def test_a_split_loader_is_described_with_its_own_optimizer():
    engine, module, stepper, loader = private()
    _, _, other, _ = private()
    for whose in (other, stepper):
        with BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=32, optimizer=whose
        ) as small:
            told = {**KNOWN, "batches": Poisson(1 / 15), "loader": small, "optimizer": stepper}
            if whose is other:
                with pytest.raises(AssumptionError, match="another optimizer"):
                    engine.accountant.describe(**told)
            else:
                engine.accountant.describe(**told)
                train(module, stepper, small, epochs=1)
    assert len(engine.accountant) == 15


# --- Opacus' own calls ------------------------------------------------------------------------


@pytest.mark.parametrize("used", ["", "from lastiterate.torch import HiddenStateAccountant\n"])
def test_importing_registers_also_when_opacus_comes_later_and_loads_nothing(used):
    program = (
        "import lastiterate.torch, sys\n"
        "assert not {'opacus', 'torch', 'dp_accounting'} & {*sys.modules}\n"
        f"{used}"
        "from opacus.accountants import create_accountant\n"
        "print(create_accountant('lastiterate').mechanism())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "lastiterate"


def asked(epsilon=2.0, delta=1e-5, **told):
    told = {"sample_rate": 1 / 15, "epochs": 3} | told
    return get_noise_multiplier(
        target_epsilon=epsilon, target_delta=delta, accountant="lastiterate", **told
    )


def test_noise_for_a_budget_without_a_description_holds_for_every_loader():
    multiplier = asked()
    for batches in (Poisson(1 / 15), Reshuffled(119), Cyclic(119)):
        run = Training.dp_sgd(
            records=1785,
            steps=45,
            step_size=0.5,
            noise_multiplier=multiplier,
            clip=1.0,
            batches=batches,
        )
        assert account(run, Loss.unknown()).epsilon(1e-5) <= 2.0
    worst = max(
        account(run.replace(batches=each), Loss.unknown()).epsilon(1e-5)
        for each in (Poisson(1 / 15), Cyclic(119))
    )
    assert worst > 1.98
    with pytest.raises(DescriptionError, match="both or neither"):
        asked(loss=Loss(smoothness=0.5))


@pytest.mark.parametrize("poisson", [True, False])
def test_noise_for_a_budget_is_that_of_the_loader_that_opacus_makes(poisson):
    """Poisson batches where make_private_with_epsilon draws them, any loader where it does not."""
    model, engine = nn.Linear(64, 10), PrivacyEngine(accountant="lastiterate")
    _module, stepper, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data_loader=DataLoader(DATA, batch_size=120, shuffle=not poisson, drop_last=True),
        target_epsilon=2.0,
        target_delta=1e-5,
        epochs=3,
        max_grad_norm=1.0,
        poisson_sampling=poisson,
    )
    any_loader = asked(sample_rate=1 / 14)
    if not poisson:
        assert stepper.noise_multiplier == any_loader
        return
    assert stepper.noise_multiplier < 0.8 * any_loader
    run = Training.dp_sgd(
        records=len(DATA),
        steps=3 * len(loader),
        step_size=0.2,
        noise_multiplier=stepper.noise_multiplier,
        clip=1.0,
        batches=Poisson(loader.sample_rate),
    )
    assert 1.98 < account(run, Loss.unknown()).epsilon(1e-5) <= 2.0


def test_noise_for_a_budget_and_a_described_run_is_what_the_run_needs():
    """make_private_with_epsilon, for the loader that is there, then trained: within the budget."""
    torch.seed()
    loader = DataLoader(DATA, batch_size=120, shuffle=True, drop_last=True)
    loss = Loss(smoothness=0.5)
    run = Training.dp_sgd(
        records=1797,
        steps=1,
        step_size=0.2,
        noise_multiplier=1.0,
        clip=1.5,
        batches=describe_loader(loader),
        clipping="none",
    )
    model, engine = bounded(), PrivacyEngine(accountant="lastiterate")
    module, stepper, loader = engine.make_private_with_epsilon(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.2),
        data_loader=loader,
        target_epsilon=3.0,
        target_delta=1e-5,
        epochs=3,
        max_grad_norm=1.5,
        poisson_sampling=False,
        training=run,
        loss=loss,
    )
    assert stepper.noise_multiplier < 0.95 * asked(3.0, sample_rate=1 / 14)
    engine.accountant.describe(
        loss=loss,
        batches=Reshuffled(120),
        step_size=0.2,
        clipping="none",
        loader=loader,
        optimizer=stepper,
    )
    train(module, stepper, loader, epochs=3)
    assert 2.9 < engine.get_epsilon(1e-5) <= 3.0
    with pytest.raises(DescriptionError, match="left out"):
        engine.accountant.get_epsilon(1e-5, training=run, loss=loss)
    with pytest.raises(AssumptionError, match="sample rate of 0\\.0666667"):
        asked(training=run, loss=loss)


def test_steps_that_opacus_rounds_down_are_counted():
    """int(3 / (1/75)) is 224, and 3 epochs of 75 batches are 225."""
    assert int(3 / (1 / 75)) == 224
    run = Training.dp_sgd(
        records=7500,
        steps=1,
        step_size=0.5,
        noise_multiplier=1.0,
        clip=1.0,
        batches=Poisson(1 / 75),
    )
    told = (run, Loss.unknown())
    counted = [planned_epsilon(1e-5, 3.0, 1 / 75, steps, *told) for steps in (223, 224, 225)]
    assert counted[0] < counted[1] == counted[2]


@pytest.mark.parametrize("before", [True, False])
def test_a_scheduler_is_recorded(before):
    engine, module, stepper, loader = private()
    of = stepper.original_optimizer if before else stepper
    scheduler = torch.optim.lr_scheduler.ExponentialLR(of, gamma=0.5)
    engine.accountant.describe(
        loss=Loss(smoothness=0.5),
        batches=Poisson(1 / 15),
        scheduler=scheduler,
        loader=loader,
        optimizer=stepper,
    )
    for _ in range(3):
        train(module, stepper, loader, epochs=1)
        scheduler.step()
    sizes = np.asarray(engine.accountant.training.step_sizes)
    scale = 1797 / 15 / (1797 // 15)
    np.testing.assert_allclose(sizes, scale * np.repeat([0.5, 0.25, 0.125], 15), rtol=1e-12)
    assert engine.get_epsilon(1e-5) > 0
    stepper.param_groups[0]["lr"] = 0.3  # not the scheduler's
    with pytest.raises(AssumptionError, match="learning rate"):
        train(module, stepper, [next(iter(loader))], epochs=1)


def test_schedulers_that_are_refused():
    engine, _module, stepper, loader = private()
    told = {"loss": Loss(smoothness=0.5), "batches": Poisson(1 / 15)}
    told |= {"loader": loader, "optimizer": stepper}
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(stepper.original_optimizer)

    class StepLR(torch.optim.lr_scheduler.StepLR):
        pass

    for bad in (plateau, StepLR(stepper.original_optimizer, 3)):
        with pytest.raises(UnsupportedError, match="looking at losses"):
            engine.accountant.describe(**told, scheduler=bad)
    other = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
    with pytest.raises(AssumptionError, match="another optimizer"):
        engine.accountant.describe(
            **told, scheduler=torch.optim.lr_scheduler.ExponentialLR(other, 0.9)
        )
    good = torch.optim.lr_scheduler.ExponentialLR(stepper.original_optimizer, 0.9)
    with pytest.raises(DescriptionError, match="step_size"):
        engine.accountant.describe(**told, scheduler=good, step_size=0.5)
    both = torch.optim.lr_scheduler.ChainedScheduler([good])
    engine.accountant.describe(**told, scheduler=both)
    assert engine.accountant.state_dict()["described"]["scheduler"] == (
        "ChainedScheduler(ExponentialLR)"
    )


def test_every_public_method_is_defined_for_hidden_states():
    """A method that Opacus adds to its accountants would account for another algorithm."""
    base = opacus.accountants.accountant.IAccountant
    public = {name for name in dir(base) if not name.startswith("_")}
    assert public == {
        "get_epsilon",
        "get_optimizer_hook_fn",
        "load_state_dict",
        "mechanism",
        "state_dict",
        "step",
    }
    assert vars(HiddenStateAccountant).keys() >= {*public, "__len__"}
    assert HiddenStateAccountant.__bases__ == (base,)
