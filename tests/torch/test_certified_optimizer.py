"""Opacus' own loop with our updates: the engine's run bit by bit, and stopped where it is not."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest

from lastiterate import Loss, account, verify
from lastiterate.errors import (
    AssumptionError,
    DescriptionError,
    LastIterateError,
    UnsupportedError,
)

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
from opacus import PrivacyEngine  # noqa: E402
from opacus.schedulers import ExponentialGradClip, ExponentialNoise  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, StackDataset, TensorDataset  # noqa: E402

from lastiterate.torch import (  # noqa: E402
    BoundedSoftmax,
    CertifiedOptimizer,
    noisy_module_descent,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:Secure RNG", "ignore:Full backward hook", "ignore:Detected call of `lr_scheduler"
)
_X = torch.from_numpy(np.random.default_rng(5).standard_normal((60, 4))).float()
DATA = TensorDataset(_X, (_X[:, 0] > 0).long())
CRITERION = nn.CrossEntropyLoss()


def deep():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def probe():
    return nn.Sequential(nn.Linear(4, 3).requires_grad_(False), nn.Tanh(), nn.Linear(3, 2))


def private(
    model=lambda: nn.Linear(4, 2), poisson=False, shuffle=True, noise=1.0, data=DATA, **settings
):
    network = model()
    clip, kind = settings.pop("clip", 0.7), settings.pop("kind", torch.optim.SGD)
    opacus = {k: settings.pop(k) for k in ("clipping", "grad_sample_mode") if k in settings}
    trained = [p for p in network.parameters() if p.requires_grad]
    return PrivacyEngine().make_private(
        module=network,
        optimizer=kind(trained, **{"lr": 0.5, **settings}),
        data_loader=DataLoader(data, batch_size=20, shuffle=shuffle, drop_last=not poisson),
        noise_multiplier=noise,
        max_grad_norm=clip,
        poisson_sampling=poisson,
        **opacus,
    )[:3]


def certified(steps=6, loss=None, told=(), **settings):
    model, optimizer, loader = private(**settings)
    loss = loss or Loss.unknown()
    made = CertifiedOptimizer(
        model, optimizer, loader, CRITERION, loss=loss, steps=steps, **dict(told)
    )
    return model, made


def one_update(model, optimizer, batch):
    optimizer.zero_grad()
    CRITERION(model(batch[0]), batch[1]).backward()
    optimizer.step()


def train(model, optimizer, epochs=2):
    for _ in range(epochs):
        for batch in optimizer.loader:
            one_update(model, optimizer, batch)
    return optimizer.released()


@pytest.mark.parametrize("poisson", [True, False])
@pytest.mark.parametrize("model", [lambda: nn.Linear(4, 2), deep, probe])
def test_it_is_the_run_of_the_engine_bit_by_bit(model, poisson):
    """The same seed draws the same batches and the same noise: so the proof is the engine's."""
    network, optimizer = certified(model=model, poisson=poisson, told={"random_state": 3})
    start = copy.deepcopy(optimizer._own)
    done = train(network, optimizer)
    assert done.experiment  # a seed
    with pytest.raises(AssumptionError, match="seeded"):
        done.certificate(1e-5)
    run = done.training.replace(arithmetic="exact")
    same = noisy_module_descent(start, CRITERION, *DATA.tensors, run, random_state=3)
    assert np.array_equal(done.parameters, same.parameters)
    assert done.training == same.training
    inside = [p.detach().reshape(-1) for p in network.parameters() if p.requires_grad]
    assert np.array_equal(torch.cat(inside).numpy(), done.parameters.astype(np.float32))


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_without_noise_it_is_opacus_own_update(decay):
    torch.manual_seed(1)
    network = nn.Linear(4, 2)
    torch.seed()
    found = []
    for ours in (False, True):
        made = {"model": lambda: copy.deepcopy(network), "shuffle": False, "noise": 0.0}
        model, optimizer, loader = private(**made, weight_decay=decay)
        if ours:
            loss = Loss(smoothness=100.0, regularization=decay)
            optimizer = CertifiedOptimizer(model, optimizer, loader, CRITERION, loss=loss, steps=6)
            loader = optimizer.loader
        for _ in range(2):
            for batch in loader:
                one_update(model, optimizer, batch)
        found.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy())
    assert found[0] == pytest.approx(found[1], abs=2e-6)  # Opacus adds 1e-6 to every norm
    assert not np.allclose(
        found[0], torch.cat([p.reshape(-1) for p in network.parameters()]).detach()
    )


@pytest.mark.parametrize("poisson", [True, False])
def test_its_certificate_is_verified(poisson):
    loss = Loss(smoothness=2.0, regularization=0.4)
    network, optimizer = certified(
        poisson=poisson, shuffle=False, loss=loss, weight_decay=0.4, noise=2.0
    )
    done = train(network, optimizer)
    assert not done.experiment
    assert optimizer.released() is done
    certificate = done.certificate(1e-5)
    assert verify(certificate, parameters=done.parameters).epsilon == certificate.epsilon
    real = account(done.training.replace(arithmetic="exact"), loss).epsilon(1e-5)
    assert real <= certificate.epsilon <= 1.001 * real


def test_a_bounded_head_is_not_clipped_and_a_scheduler_follows_its_plan():
    rates = [0.5 * 0.9**k for k in range(6)]
    network, optimizer = certified(
        model=lambda: BoundedSoftmax(4, 2, radius=1.0),
        loss=Loss(smoothness=0.5, provenance="proved"),
        told={"clipping": "none", "step_size": rates},
        clip=1.5,
        noise=4.0,
        shuffle=False,
    )
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in range(2):
        for batch in optimizer.loader:
            one_update(network, optimizer, batch)
            scheduler.step()
    done = optimizer.released()
    assert list(done.training.step_sizes) == pytest.approx([rate * 20 / 20 for rate in rates])
    assert done.loss.provenance == "declared"
    certificate = done.certificate(1e-5)
    assert any("smooth" in told and "declared" in told for told in certificate.assumptions)
    assert certificate.epsilon < done.certificate(1e-5, loss=Loss.unknown()).epsilon
    stronger = dataclasses.replace(done.loss, strong_convexity=0.1)
    for claimed in (stronger, done.loss.with_regularization(0.5)):  # said after the run
        with pytest.raises(DescriptionError, match="loss"):
            done.certificate(1e-5, loss=claimed)


def test_convexity_is_not_claimed_after_the_run_either():
    """The constructor refuses a convex loss of this network; `released` took it afterwards."""
    done = train(*certified(model=deep, shuffle=False))
    with pytest.raises(AssumptionError, match="layers are trained"):
        done.certificate(1e-5, loss=Loss(smoothness=2.0))
    assert done.certificate(1e-5, loss=Loss.unknown()).epsilon > 0
    linear = train(*certified(shuffle=False))
    assert linear.certificate(1e-5, loss=Loss(smoothness=2.0)).loss.convex


def test_dropout_is_refused_before_the_run():
    """Its draws depend on who shares the batch."""

    def dropping():
        return nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))

    with pytest.raises(UnsupportedError, match="to the last bit"):
        certified(model=dropping, poisson=True)


def test_a_loop_that_is_cut_short_goes_on_with_the_next_batch():
    """The loader hands out the run's batches: a `break` does not begin an epoch again."""
    network, optimizer = certified(shuffle=False, steps=3)
    seen = []
    for _ in range(3):
        for batch in optimizer.loader:
            seen.append(batch[0])
            one_update(network, optimizer, batch)
            break
    assert torch.equal(torch.cat(seen), _X)
    assert list(optimizer.loader) == []
    assert not optimizer.released().experiment


def test_changed_records_outside_do_not_matter():
    data = TensorDataset(_X.clone(), DATA.tensors[1])
    network, optimizer = certified(data=data)
    data.tensors[0].zero_()
    assert not train(network, optimizer).experiment


# --- a loop that does something else -----------------------------------------------------------


def first(network, optimizer):
    batch = next(iter(optimizer.loader))
    optimizer.zero_grad()
    return batch


def backward(network, batch, factor=1.0):
    (factor * CRITERION(network(batch[0]), batch[1])).backward()


def another_batch(network, optimizer):
    batch = first(network, optimizer)
    backward(network, (batch[0].flip(1), batch[1]))
    optimizer.step()


def part_of_a_batch(network, optimizer):
    batch = first(network, optimizer)
    backward(network, (batch[0][:7], batch[1][:7]))
    optimizer.step()


def accumulated(network, optimizer):
    batch = first(network, optimizer)
    network.allow_grad_accumulation()
    backward(network, batch)
    backward(network, batch)
    optimizer.step()


def scaled(network, optimizer):
    backward(network, first(network, optimizer), 1.01)
    optimizer.step()


def class_weights(network, optimizer):
    batch = first(network, optimizer)
    weights = torch.tensor([1.0, 3.0])
    nn.CrossEntropyLoss(weight=weights)(network(batch[0]), batch[1]).backward()
    optimizer.step()


def mixed_precision(network, optimizer):
    batch = first(network, optimizer)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        backward(network, batch)
    optimizer.step()


def twice(network, optimizer):
    backward(network, first(network, optimizer))
    optimizer.step()
    optimizer.step()


def no_backward(network, optimizer):
    first(network, optimizer)
    optimizer.step()


def the_loader_of_opacus(network, optimizer):
    one_update(network, optimizer, (_X[:20], DATA.tensors[1][:20]))


def a_batch_left_out(network, optimizer):
    for batch in optimizer.loader:
        if len(batch[0]) == 20:
            continue


def two_loaders(network, optimizer):
    next(iter(optimizer.loader))
    next(iter(optimizer.loader))


def written_weights(network, optimizer):
    with torch.no_grad():
        next(network.parameters()).add_(1e-6)
    backward(network, first(network, optimizer))
    optimizer.step()


def opacus_below(network, optimizer):
    batch = first(network, optimizer)
    backward(network, batch)
    optimizer.original_optimizer.step()
    optimizer.step()


def setting(name, value):
    def changed(network, optimizer):
        for group in optimizer.param_groups:
            group[name] = value
        backward(network, first(network, optimizer))
        optimizer.step()

    changed.__name__ = f"{name}_{value}"
    return changed


def noise_scheduler(network, optimizer):
    scheduler = ExponentialNoise(optimizer, gamma=0.9)
    for batch in optimizer.loader:
        one_update(network, optimizer, batch)
        scheduler.step()


def clip_scheduler(network, optimizer):
    scheduler = ExponentialGradClip(optimizer, gamma=1.1)
    for batch in optimizer.loader:
        one_update(network, optimizer, batch)
        scheduler.step()


def frozen_in_the_middle(network, optimizer):
    batch = first(network, optimizer)
    backward(network, batch)
    network._module.bias.requires_grad_(False)
    optimizer.step()


def evaluating(network, optimizer):
    batch = first(network, optimizer)
    backward(network, batch)
    network.eval()
    optimizer.step()


def closed(network, optimizer):
    batch = first(network, optimizer)
    optimizer.step(lambda: backward(network, batch))


def resumed(network, optimizer):
    optimizer.load_state_dict(optimizer.state_dict())


def memory_manager(network, optimizer):
    optimizer.signal_skip_step()


LOOPS = [
    another_batch,
    part_of_a_batch,
    accumulated,
    scaled,
    class_weights,
    mixed_precision,
    twice,
    no_backward,
    the_loader_of_opacus,
    a_batch_left_out,
    two_loaders,
    written_weights,
    opacus_below,
    setting("lr", 0.4),
    setting("weight_decay", 0.1),
    setting("momentum", 0.9),
    setting("nesterov", True),
    setting("maximize", True),
    noise_scheduler,
    clip_scheduler,
    frozen_in_the_middle,
    evaluating,
    closed,
    resumed,
    memory_manager,
]


@pytest.mark.parametrize("loop", LOOPS, ids=lambda loop: loop.__name__)
def test_a_loop_that_is_not_the_described_one_is_stopped(loop):
    network, optimizer = certified()
    with pytest.raises((AssumptionError, UnsupportedError)):
        loop(network, optimizer)
    with pytest.raises(AssumptionError, match="not the described one"):
        optimizer.released()  # never a certificate, whatever is done afterwards


def test_after_a_wrong_update_there_is_none():
    network, optimizer = certified()
    with pytest.raises(AssumptionError, match="other gradients"):
        scaled(network, optimizer)
    with pytest.raises(AssumptionError, match="earlier update"):
        one_update(network, optimizer, first(network, optimizer))


def test_a_larger_batch_manager_of_opacus_is_refused():
    _network, optimizer = certified(poisson=True)
    with (
        pytest.raises(AssumptionError, match="BatchMemoryManager"),
        BatchMemoryManager(
            data_loader=optimizer.loader, max_physical_batch_size=5, optimizer=optimizer
        ) as loader,
    ):
        next(iter(loader))


def test_a_run_that_ends_early_is_another_one():
    network, optimizer = certified()
    one_update(network, optimizer, first(network, optimizer))
    with pytest.raises(AssumptionError, match="1 of 6 updates"):
        optimizer.released()
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(AssumptionError, match="same beginning"):
            copied(optimizer)


@pytest.mark.parametrize("name", ["0.weight", "2.bias"])
def test_a_network_that_changed_is_not_certified(name):
    """A frozen layer that was trained elsewhere, or weights of an earlier iterate put back."""
    network, optimizer = certified(model=probe)
    before = dict(network._module.named_parameters())[name].detach().clone()
    for _ in range(2):
        for batch in optimizer.loader:
            one_update(network, optimizer, batch)
    with torch.no_grad():
        dict(network._module.named_parameters())[name].copy_(before + 1e-3)
    with pytest.raises(AssumptionError, match="changed"):
        optimizer.released()


def test_unfreezing_in_the_middle():
    network, optimizer = certified(model=probe)
    one_update(network, optimizer, first(network, optimizer))
    network._module[0].requires_grad_(True)
    with pytest.raises(AssumptionError, match="exactly what needs a gradient"):
        one_update(network, optimizer, first(network, optimizer))


# --- what is refused before anything runs -------------------------------------------------------

REFUSED = [
    ({"momentum": 0.9}, "momentum"),
    ({"kind": torch.optim.Adam}, "Adam"),
    ({"weight_decay": 0.1}, "weight_decay"),
    ({"clipping": "per_layer", "clip": [1.0, 1.0]}, "flat clipping"),
    ({"grad_sample_mode": "ghost"}, "flat clipping"),
    ({"loss": Loss(smoothness=0.5), "model": deep}, "convex"),
    ({"told": {"clipping": "none"}}, "nothing about this network proves it"),
    ({"told": {"step_size": [0.5]}}, "one for each of 6"),
    ({"told": {"step_size": [0.4] * 6}}, "lr is 0.5 in update 0"),
    ({"model": lambda: nn.Linear(4, 2).bfloat16()}, "bfloat16"),
    ({"data": StackDataset(_X, DATA.tensors[1])}, "TensorDataset"),
    ({"loss": "convex"}, "Loss"),
    ({"steps": 0}, "steps"),
]


@pytest.mark.parametrize(("settings", "match"), REFUSED)
def test_refused_at_once(settings, match):
    with pytest.raises(LastIterateError, match=match):
        certified(**settings)
