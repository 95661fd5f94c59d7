"""Lightning, for real: what its Trainer was set to is what the certificate describes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("lightning", reason="lightning is not installed: make test-integrations")

import torch
from lightning.pytorch import LightningModule, Trainer, callbacks
from lightning.pytorch.callbacks import Callback
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lastiterate import AssumptionError, Cyclic, Reshuffled, UnsupportedError, verify
from lastiterate.frameworks import LightningPrivateHead
from lastiterate.losses import Softmax
from lastiterate.train import noisy_descent

N, D, K = 120, 6, 3
Y = torch.arange(N) % K
X = 2.0 * torch.eye(K, D)[Y] + torch.sin(torch.arange(N * D).reshape(N, D) * 1.7)


class Classifier(LightningModule):
    """A frozen part, a head, and a criterion that can be spoilt."""

    def __init__(self, *, spoil: str = "", lr: float = 0.5, decay: float = 0.0) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(D, 5), nn.Tanh(), nn.Dropout(0.5))
        self.head = nn.Linear(5, K, bias=spoil != "no bias")
        self.body.requires_grad_(spoil == "body")
        self.spoil, self.lr, self.decay = spoil, lr, decay
        self.logged: list[Any] = []

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        scores = self.head(self.body(x))
        if self.spoil == "tanh":
            scores = torch.tanh(scores)
        if self.spoil == "twice":
            scores = scores + self.head(self.body(-x))
        loss = nn.functional.cross_entropy(scores, y)
        self.log("loss", loss, on_step=True)
        return loss

    def configure_optimizers(self) -> Any:
        kind = {"adam": torch.optim.Adam}.get(self.spoil, torch.optim.SGD)
        more = {"momentum": 0.9} if self.spoil == "momentum" else {}
        optimizer = kind(self.parameters(), lr=self.lr, weight_decay=self.decay, **more)
        if self.spoil == "plateau":
            found = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": found, "monitor": "loss"}}
        if self.spoil == "schedule":
            found = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": found}}
        return optimizer


def loader(**settings: Any) -> DataLoader[Any]:
    told = {"batch_size": 30, "shuffle": True, "drop_last": True, **settings}
    return DataLoader(TensorDataset(X, Y), **told)


def fit(
    model: Classifier, callback: Any, data: Any = None, more: Any = (), **settings: Any
) -> Trainer:
    told = {
        "max_epochs": 3,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        **settings,
    }
    where = told.pop("ckpt_path", None)
    trainer = Trainer(callbacks=[callback, *more], **told)
    trainer.fit(model, loader() if data is None else data, ckpt_path=where)
    return trainer


def private(**settings: Any) -> LightningPrivateHead:
    told = {"epsilon": 4.0, "delta": 1e-5, "feature_bound": 2.0, **settings}
    return LightningPrivateHead(**told)


def test_the_certificate_describes_what_the_trainer_was_set_to(tmp_path: Path) -> None:
    torch.manual_seed(1)  # the loader's order would be known; the engine draws its own
    model, callback = Classifier(decay=0.01), private(folder=tmp_path / "run", dataset="toy")
    trainer = fit(model, callback)
    assert trainer.global_step == 0  # no update of its own
    ran = callback.training_
    assert (ran.records, ran.steps, ran.step_size) == (N, 12, 0.5)
    assert ran.batches == Reshuffled(30)
    assert callback.certificate_.loss.regularization == 0.01
    weights = {
        "weight": model.head.weight.detach().numpy(),
        "bias": model.head.bias.detach().numpy(),
    }
    checked = verify(tmp_path / "run" / "certificate.json", parameters=weights)
    assert checked.epsilon <= 4.0
    assert checked.certificate.dataset == "toy"
    assert "verified" in (tmp_path / "run" / "report.html").read_text("utf-8").lower()
    assert "log" not in vars(model)  # what was silenced speaks again


def test_a_loader_in_order_and_a_schedule_are_described() -> None:
    model, callback = Classifier(spoil="schedule"), private()
    fit(model, callback, loader(shuffle=False), max_epochs=4)
    ran = callback.training_
    assert ran.batches == Cyclic(30)
    assert list(ran.step_sizes) == [0.5] * 8 + [0.25] * 8


def test_with_next_to_no_noise_it_is_what_lightning_trains() -> None:
    """The same run twice: by Lightning itself from 0, and handed over at a vast epsilon."""
    torch.manual_seed(0)
    ours = Classifier(decay=0.1)
    theirs = Classifier(decay=0.1)
    theirs.load_state_dict(ours.state_dict())
    theirs.body.eval()
    nn.init.zeros_(theirs.head.weight)
    nn.init.zeros_(theirs.head.bias)
    data = loader(shuffle=False)

    class Eval(Callback):
        def on_train_batch_start(self, trainer: Any, module: Any, *_: Any) -> None:
            module.body.eval()

    fit(theirs, Eval(), data)
    fit(ours, private(epsilon=1e8, feature_bound=3.0), data)
    assert theirs.head.weight.abs().max() > 0.05
    assert torch.allclose(ours.head.weight, theirs.head.weight, atol=2e-3)
    assert torch.allclose(ours.head.bias, theirs.head.bias, atol=2e-3)


def test_features_do_not_depend_on_other_records() -> None:
    """A frozen part that looks at its batch sees one record at a time."""

    class Centred(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - x.mean(0) + x.sum(1, keepdim=True)

    model = Classifier()
    model.body = nn.Sequential(Centred(), nn.Linear(D, 5).requires_grad_(False))
    with pytest.raises(AssumptionError, match="not the mean cross-entropy"):
        fit(model, private())


@pytest.mark.parametrize(
    ("spoil", "error", "match"),
    [
        ("body", AssumptionError, "convex only in one"),
        ("tanh", AssumptionError, "not the mean cross-entropy"),
        ("twice", UnsupportedError, "one vector of each record"),
        ("adam", UnsupportedError, "not plain gradient descent"),
        ("momentum", UnsupportedError, "momentum"),
        ("plateau", UnsupportedError, "ReduceLROnPlateau"),
    ],
)
def test_what_is_not_convex_or_not_described_is_refused(
    spoil: str, error: type[Exception], match: str
) -> None:
    model, callback = Classifier(spoil=spoil), private()
    before = model.head.weight.detach().clone()
    with pytest.raises(error, match=match):
        fit(model, callback)
    assert torch.equal(model.head.weight, before)
    assert not hasattr(callback, "certificate_")


@pytest.mark.parametrize(
    "settings",
    [
        {"accumulate_grad_batches": 2},
        {"gradient_clip_val": 1.0},
        {"min_epochs": 2},
        {"limit_train_batches": 2},
        {"max_epochs": -1},
    ],
)
def test_settings_that_the_engine_does_not_run_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match="Trainer is set to something"):
        fit(Classifier(), private(), **settings)


def test_a_smaller_last_batch_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="smaller batch"):
        fit(Classifier(), private(), loader(batch_size=50, drop_last=False))


def test_whoever_writes_into_the_head_voids_the_certificate(tmp_path: Path) -> None:
    class Meddler(Callback):
        def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
            raise AssertionError("no epoch may run")

        def on_train_start(self, trainer: Any, module: Any) -> None:
            with torch.no_grad():
                module.head.bias += 1.0

    callback = private(folder=tmp_path / "run")
    with pytest.raises(AssumptionError, match="changed after it was released"):
        fit(Classifier(), callback, more=[Meddler()])
    assert not hasattr(callback, "certificate_")
    assert not (tmp_path / "run").exists()


def test_statistics_that_move_are_refused() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.seen += x.sum()
            return x

    model = Classifier()
    model.body = nn.Sequential(Counting(), nn.Linear(D, 5).requires_grad_(False))
    with pytest.raises(AssumptionError, match="buffer"):
        fit(model, private())


def test_a_head_without_bias_is_the_engines_own_run() -> None:
    """Deterministic where nothing is random: the same description by noisy_descent is the same."""
    model, callback = Classifier(spoil="no bias"), private(epsilon=1e8, feature_bound=3.0)
    fit(model, callback, loader(batch_size=N, shuffle=False))
    model.body.eval()
    features = model.body(X).detach().double().numpy()
    told = callback.training_
    again = noisy_descent(Softmax(K), features, told, labels=Y.numpy(), feature_bound=3.0)
    assert np.allclose(again.parameters.T, model.head.weight.detach().numpy(), atol=2e-3)


def test_an_earlier_certificate_does_not_outlive_a_refused_run() -> None:
    callback = private()
    fit(Classifier(), callback)
    assert callback.certificate_.epsilon <= 4.0
    with pytest.raises(AssumptionError):
        fit(Classifier(spoil="body"), callback)
    assert not hasattr(callback, "certificate_")


def test_a_data_set_that_augments_at_random_is_read_once() -> None:
    class Augmented(TensorDataset):
        read = 0

        def __getitem__(self, index: int) -> Any:
            self.read += 1
            x, y = super().__getitem__(index)
            return x + torch.randn(D), y

    records, callback = Augmented(X, Y), private()
    fit(Classifier(), callback, DataLoader(records, batch_size=30))
    assert callback.certificate_.epsilon <= 4.0
    assert records.read == N


def test_loggers_and_checkpoints_see_nothing_but_the_last_iterate(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.loggers import CSVLogger

    def kept(first: Callback, where: Path) -> tuple[Classifier, list[Path], str]:
        model = Classifier()
        saving = ModelCheckpoint(where, every_n_train_steps=1, save_top_k=-1)
        fit(
            model,
            first,
            more=[saving],
            logger=CSVLogger(where),
            log_every_n_steps=1,
            enable_checkpointing=True,
        )
        tables = [each.read_text(encoding="utf-8") for each in where.rglob("metrics.csv")]
        return model, list(where.rglob("*.ckpt")), "".join(tables)

    _, checkpoints, logged = kept(Callback(), tmp_path / "theirs")
    assert len(checkpoints) == 12
    assert "loss" in logged
    model, checkpoints, logged = kept(private(), tmp_path / "ours")
    for path in checkpoints:
        state = torch.load(path, weights_only=True)["state_dict"]
        assert torch.equal(state["head.weight"], model.head.weight)
    assert "loss" not in logged


# --- a trainer that would do something else ------------------------------------------------------


def test_a_frozen_weight_that_follows_the_records_is_refused() -> None:
    """A mean teacher: no buffer, no gradient, and every record moves it without noise."""

    class Teacher(Classifier):
        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            with torch.no_grad():
                self.body[0].weight.mul_(0.9).add_(0.1 * batch[0].mean())
            return super().training_step(batch, index)

    callback = private()
    with pytest.raises(AssumptionError, match=r"body\.0\.weight"):
        fit(Teacher(), callback)
    assert not hasattr(callback, "certificate_")


@pytest.mark.parametrize("name", ["body.0.weight", "body.0.bias"])
def test_whoever_writes_into_the_frozen_part_voids_the_certificate(name: str) -> None:
    class Meddler(Callback):
        def on_train_end(self, trainer: Any, module: Any) -> None:
            with torch.no_grad():
                dict(module.named_parameters())[name].add_(1.0)

    callback = private()
    with pytest.raises(AssumptionError, match="changed after it was released"):
        fit(Classifier(), Meddler(), more=[callback])
    assert not hasattr(callback, "certificate_")


@pytest.mark.parametrize(
    "callback",
    [
        lambda: callbacks.GradientAccumulationScheduler({1: 2}),
        lambda: callbacks.StochasticWeightAveraging(swa_lrs=0.1),
        lambda: callbacks.LearningRateFinder(num_training_steps=3),
        lambda: callbacks.BackboneFinetuning(unfreeze_backbone_at_epoch=1),
    ],
)
def test_callbacks_that_change_what_runs_are_refused(
    callback: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rates chosen by looking at losses, averaged weights, layers unfrozen in the middle."""
    monkeypatch.chdir(tmp_path)
    ours, model = private(), Classifier()
    model.backbone = model.body
    with pytest.raises(UnsupportedError, match="Trainer is set to something"):
        fit(model, callback(), more=[ours])
    assert not hasattr(ours, "certificate_")


def test_early_stopping_and_a_choice_by_validation_do_not_choose_an_iterate(tmp_path: Path) -> None:
    """All described updates are made, and every checkpoint holds the last iterate."""

    class Validated(Classifier):
        def validation_step(self, batch: Any, index: int) -> None:
            scores = self.head(self.body(batch[0]))
            self.log("val", nn.functional.cross_entropy(scores, batch[1]))

    model, ours = Validated(), private()
    best = callbacks.ModelCheckpoint(tmp_path, monitor="val", save_top_k=1)
    stop = callbacks.EarlyStopping("val", patience=0, min_delta=1e9, check_on_train_epoch_end=False)
    trainer = Trainer(
        callbacks=[stop, ours, best],
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )
    trainer.fit(model, loader(), loader(shuffle=False))
    assert ours.training_.steps == 12
    for path in tmp_path.rglob("*.ckpt"):
        state = torch.load(path, weights_only=True)["state_dict"]
        assert torch.equal(state["head.weight"], model.head.weight)
    weights = {name: p.detach().numpy() for name, p in model.head.named_parameters()}
    assert verify(ours.certificate_, parameters=weights).epsilon <= 4.0


@pytest.mark.parametrize("precision", ["bf16-mixed", "64-true"])
def test_other_precisions_are_certified_as_they_stand(precision: str) -> None:
    model, ours = Classifier(), private()
    fit(model, ours, precision=precision)
    weights = {name: p.detach().double().numpy() for name, p in model.head.named_parameters()}
    assert verify(ours.certificate_, parameters=weights).epsilon <= 4.0


def test_gradients_in_half_precision_are_too_far_off() -> None:
    ours = private()
    with pytest.raises(AssumptionError, match="cross-entropy"):
        fit(Classifier(), ours, precision="bf16-true")
    assert not hasattr(ours, "certificate_")


def test_a_part_of_an_epoch_and_a_loader_that_is_made_anew() -> None:
    ours = private()
    fit(Classifier(), ours, loader(shuffle=False), max_epochs=None, max_steps=5)
    assert (ours.training_.steps, ours.training_.batches) == (5, Cyclic(30))
    with pytest.raises(UnsupportedError, match="Trainer is set to something"):
        fit(Classifier(), private(), reload_dataloaders_every_n_epochs=1)


def test_a_run_that_goes_on_from_a_checkpoint_is_refused(tmp_path: Path) -> None:
    """Their checkpoint holds a head that was trained without noise, and its number of updates."""
    model = Classifier()
    trainer = fit(model, Callback())
    trainer.save_checkpoint(tmp_path / "theirs.ckpt")
    ours = private()
    with pytest.raises(UnsupportedError, match="goes on from a checkpoint"):
        fit(Classifier(), ours, max_epochs=6, ckpt_path=tmp_path / "theirs.ckpt")
    assert not hasattr(ours, "certificate_")


def test_two_loaders_and_a_sampler_that_draws_twice_are_refused() -> None:
    weighted = torch.utils.data.WeightedRandomSampler(torch.ones(N), N)
    for data in ([loader(), loader()], loader(sampler=weighted, shuffle=None)):
        with pytest.raises(UnsupportedError):
            fit(Classifier(), private(), data)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes of this test are forked")
def test_several_processes_are_refused() -> None:
    """Each would draw its own noise, or train on a part of the records."""
    ours = private()
    with pytest.raises(Exception, match="several processes"):
        fit(Classifier(), ours, devices=2, strategy="ddp_fork")
    assert not hasattr(ours, "certificate_")
