"""A real PrivacyEngine, real loaders, real updates."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from lastiterate import Cyclic, FullBatch, Loss, Poisson, Reshuffled, Training, account
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
pytest.importorskip("sklearn")
from opacus import PrivacyEngine  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, TensorDataset  # noqa: E402

from lastiterate.torch import HiddenStateAccountant  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:Secure RNG", "ignore:Full backward hook")


def digits():
    X, y = load_digits(return_X_y=True)
    X = torch.from_numpy(X / np.linalg.norm(X, axis=1, keepdims=True) * 0.999).float()
    return TensorDataset(X, torch.from_numpy(y))


DATA = digits()


def private(batch=128, poisson=True, rate=0.5, noise=1.5, clip=1.0, optimizer=torch.optim.SGD,
            mode="hooks", **settings):  # fmt: skip
    torch.manual_seed(0)
    model = nn.Linear(64, 10, bias=False)
    engine = PrivacyEngine(accountant="lastiterate")
    loader = DataLoader(DATA, batch_size=batch, shuffle=True, drop_last=not poisson)
    module, stepper, loader = engine.make_private(
        module=model, optimizer=optimizer(model.parameters(), lr=rate, **settings),
        data_loader=loader, noise_multiplier=noise, max_grad_norm=clip, poisson_sampling=poisson,
        grad_sample_mode=mode,
    )  # fmt: skip
    return engine, module, stepper, loader


def train(module, stepper, loader, epochs=3):
    criterion, steps = nn.CrossEntropyLoss(), 0
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
    engine.accountant.describe(loss=loss, batches=batches, step_size=0.5, loader=loader,
                               optimizer=stepper)  # fmt: skip
    steps = train(module, stepper, loader)
    assert steps == 45
    assert len(engine.accountant) == 45
    # Opacus divides by 119, not by 119.8: the update in the description's words.
    described = Training(records=1797, steps=45, step_size=0.5 * q * 1797 / expected,
                         noise=0.5 * 1.5 * 1.0 / expected, gradient_norm=1.0, batches=batches,
                         adjacency="zero-out", clipping="gradient")  # fmt: skip
    told = account(described, loss).epsilon(1e-5)
    assert engine.get_epsilon(delta=1e-5) == pytest.approx(told, rel=1e-9)
    composed = account(described, Loss.unknown()).epsilon(1e-5)
    assert engine.get_epsilon(delta=1e-5) <= composed
    other = PrivacyEngine(accountant="prv")
    other.accountant.history = [(1.5, q, 45)]
    assert composed == pytest.approx(other.get_epsilon(1e-5), rel=0.02)


def test_three_epochs_of_a_shuffling_loader():
    # No gradient of these rows is longer than √2, so a clip of 1.5 never does anything.
    engine, module, stepper, loader = private(poisson=False, batch=120, rate=0.2, clip=1.5)
    loss = Loss(smoothness=0.5)
    described = {"loss": loss, "batches": Reshuffled(120), "step_size": 0.2}
    engine.accountant.describe(**described, loader=loader, optimizer=stepper, clipping="none")
    steps = train(module, stepper, loader)
    expected = int(1797 / 14)
    run = Training(records=1797, steps=steps, step_size=0.2 * 120 / expected,
                   noise=0.2 * 1.5 * 1.5 / expected, gradient_norm=1.5, batches=Reshuffled(120),
                   adjacency="zero-out")  # fmt: skip
    assert engine.get_epsilon(1e-5) == pytest.approx(account(run, loss).epsilon(1e-5), rel=1e-9)
    public = account(run.replace(batches=Cyclic(120)), Loss.unknown()).epsilon(1e-5)
    assert engine.get_epsilon(1e-5) < 0.9 * public


def test_three_epochs_of_ghost_clipping():
    """Opacus' two backward passes are one update."""
    torch.manual_seed(0)
    model = nn.Linear(64, 10, bias=False)
    engine = PrivacyEngine(accountant="lastiterate")
    module, stepper, criterion, loader = engine.make_private(
        module=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        criterion=nn.CrossEntropyLoss(), data_loader=DataLoader(DATA, batch_size=128),
        noise_multiplier=1.5, max_grad_norm=1.0, grad_sample_mode="ghost",
    )  # fmt: skip
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
    described = Training(records=1797, steps=45, step_size=0.5 * 1797 / 15 / expected,
                         noise=0.5 * 1.5 / expected, gradient_norm=1.0, batches=batches,
                         adjacency="zero-out", clipping="gradient")  # fmt: skip
    assert engine.accountant.training == described
    assert engine.get_epsilon(1e-5) == account(described, loss).epsilon(1e-5)


@pytest.mark.parametrize("mode", ["hooks", "ew"])
def test_the_described_update_is_the_one_that_runs(mode):
    """Follow one update by hand, with the noise switched off."""
    engine, module, stepper, loader = private(noise=0.0, mode=mode, weight_decay=0.3, clip=0.4)
    expected, q = 1797 // 15, 1 / 15
    l2 = 0.3 * expected / (q * 1797)
    engine.accountant.describe(loss=Loss(smoothness=0.5, regularization=l2), batches=Poisson(q),
                               step_size=0.5, loader=loader, optimizer=stepper)  # fmt: skip
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
    engine.accountant.describe(loss=Loss(smoothness=0.5), batches=Poisson(1 / 15), step_size=0.5,
                               loader=loader, optimizer=stepper)  # fmt: skip
    with BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=32, optimizer=stepper
    ) as small:
        train(module, stepper, small, epochs=1)
    assert len(engine.accountant) == 15


KNOWN = {"loss": Loss(smoothness=0.5), "step_size": 0.5}


def test_a_shuffling_loader_under_a_poisson_description_raises():
    engine, _, stepper, loader = private(poisson=False, batch=100)
    with pytest.raises(AssumptionError, match=r"runs Reshuffled\(size=100\)"):
        engine.accountant.describe(**KNOWN, batches=Poisson(1 / 15), loader=loader,
                                   optimizer=stepper)  # fmt: skip
    engine, _, stepper, loader = private()
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
    engine, _, stepper, loader = private(**settings)
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


def test_only_secure_runs_are_certified():
    pytest.importorskip("flint")
    engine, module, stepper, loader = private(poisson=False, batch=1797)
    engine.accountant.describe(**KNOWN, batches=FullBatch(), loader=loader, optimizer=stepper)
    train(module, stepper, loader, epochs=2)
    with pytest.raises(AssumptionError, match="seeded noise"):
        engine.accountant.certificate(1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert engine.accountant.guarantee.epsilon(1e-5) > 0
