"""The Trainer of transformers, for real, on a small BERT that is made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="transformers is not installed: make test-integrations")

import torch
import transformers
from torch.utils.data import Dataset

from lastiterate import AssumptionError, Reshuffled, UnsupportedError, verify
from lastiterate.frameworks import TransformersPrivateHead

N, CLASSES = 48, 3


class Texts(Dataset[Any]):
    """Texts of different lengths: a batch pads them to its longest."""

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index >= N:
            raise IndexError(index)
        return {"input_ids": [1 + index % 7] * (2 + index % 5), "labels": index % CLASSES}


def padded(records: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    longest = max(len(each["input_ids"]) for each in records)
    ids = [each["input_ids"] + [0] * (longest - len(each["input_ids"])) for each in records]
    found = torch.tensor(ids)
    labels = torch.tensor([each["labels"] for each in records])
    return {"input_ids": found, "attention_mask": (found > 0).long(), "labels": labels}


def small_bert() -> Any:
    config = transformers.BertConfig(
        vocab_size=16,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        num_labels=CLASSES,
    )
    model = transformers.BertForSequenceClassification(config)
    model.bert.requires_grad_(False)
    return model


def train(folder: Path, callback: Any, model: Any = None, **settings: Any) -> Any:
    told = {
        "output_dir": str(folder / "out"),
        "num_train_epochs": 2,
        "per_device_train_batch_size": 12,
        "learning_rate": 0.5,
        "optim": "sgd",
        "max_grad_norm": 0.0,
        "dataloader_drop_last": True,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        **settings,
    }
    model = small_bert() if model is None else model
    more, resume = told.pop("more", []), told.pop("resume", None)
    arguments = transformers.TrainingArguments(**told)
    trainer = transformers.Trainer(
        model,
        arguments,
        train_dataset=Texts(),
        eval_dataset=Texts(),
        data_collator=padded,
        callbacks=[callback, *more],
    )
    trainer.train(resume_from_checkpoint=resume)
    return model


def private(**settings: Any) -> TransformersPrivateHead:
    return TransformersPrivateHead(epsilon=4.0, delta=1e-4, feature_bound=3.0, **settings)


def test_the_certificate_describes_what_the_trainer_was_set_to(tmp_path: Path) -> None:
    callback = private()
    model = train(tmp_path, callback)
    ran = callback.training_
    assert (ran.records, ran.steps, ran.batches) == (N, 8, Reshuffled(12))
    assert list(ran.step_sizes) == [0.5 * (8 - k) / 8 for k in range(8)]  # linear, its default
    held = {name: p.detach().numpy() for name, p in model.classifier.named_parameters()}
    assert verify(callback.certificate_, parameters=held).epsilon <= 4.0


@pytest.mark.slow
def test_a_warm_up_starts_from_no_step_at_all(tmp_path: Path) -> None:
    callback = private()
    train(tmp_path, callback, warmup_steps=2, lr_scheduler_type="constant_with_warmup")
    assert list(callback.training_.step_sizes) == [0.0, 0.25] + [0.5] * 6
    assert verify(callback.certificate_).epsilon <= 4.0


@pytest.mark.parametrize(
    "settings",
    [
        {"max_grad_norm": 1.0},
        {"gradient_accumulation_steps": 2},
        {"label_smoothing_factor": 0.1},
        {"optim": "adamw_torch"},
        {"weight_decay": 0.01},  # two groups: none for the bias
        {"per_device_train_batch_size": 10, "dataloader_drop_last": False},
    ],
)
def test_what_the_engine_does_not_run_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    callback = private()
    with pytest.raises(UnsupportedError):
        train(tmp_path, callback, **settings)
    assert not hasattr(callback, "certificate_")


def test_a_network_that_is_trained_as_a_whole_is_refused(tmp_path: Path) -> None:
    model = small_bert()
    model.bert.pooler.requires_grad_(True)
    with pytest.raises(AssumptionError, match="convex only in one"):
        train(tmp_path, private(), model)


# --- a trainer that would do something else ------------------------------------------------------


class Pictures(Dataset[Any]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> dict[str, Any]:
        picture = torch.sin(torch.arange(3 * 32 * 32) * (1 + index % CLASSES)).reshape(3, 32, 32)
        return {"pixel_values": 5.0 + picture, "labels": index % CLASSES}


def test_statistics_of_batches_are_not_those_of_the_trainers_batch(tmp_path: Path) -> None:
    """The Trainer computes one batch in training mode: BatchNorm would keep its means, released
    without noise."""
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 8], depths=[1, 1], num_labels=CLASSES
    )
    model = transformers.ResNetForImageClassification(config)
    model.resnet.requires_grad_(False)
    before = {name: value.clone() for name, value in model.named_buffers()}
    callback = private()
    told = transformers.TrainingArguments(
        str(tmp_path),
        num_train_epochs=1,
        per_device_train_batch_size=12,
        optim="sgd",
        max_grad_norm=0.0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = transformers.Trainer(model, told, train_dataset=Pictures(), callbacks=[callback])
    trainer.train()
    assert before
    for name, value in model.named_buffers():
        assert torch.equal(value, before[name]), name
    assert verify(callback.certificate_).epsilon <= 4.0


@pytest.mark.parametrize(
    "settings",
    [
        {"lr_scheduler_type": "reduce_lr_on_plateau", "eval_strategy": "epoch"},
        {"optim_args": "momentum=0.9"},
        {"train_sampling_strategy": "group_by_length"},
    ],
)
def test_rates_by_losses_momentum_and_sorted_batches_are_refused(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    callback = private()
    try:
        with pytest.raises((UnsupportedError, AssumptionError)):
            train(tmp_path, callback, **settings)
    except TypeError:  # an older or newer Trainer has no such setting
        return
    assert not hasattr(callback, "certificate_")


def test_a_run_that_goes_on_from_a_checkpoint_is_refused(tmp_path: Path) -> None:
    saving = {"save_strategy": "steps", "save_steps": 4}
    train(tmp_path, transformers.TrainerCallback(), **saving)
    callback = private()
    model = small_bert()
    told = {"resume": str(tmp_path / "out" / "checkpoint-4")}
    with pytest.raises(UnsupportedError, match="goes on from a checkpoint"):
        train(tmp_path, callback, model, **saving, **told)
    assert not hasattr(callback, "certificate_")


def test_the_best_model_by_validation_is_the_last_iterate(tmp_path: Path) -> None:
    callback = private()
    kept = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    model = train(tmp_path, callback, load_best_model_at_end=True, **kept)
    held = {name: p.detach().numpy() for name, p in model.classifier.named_parameters()}
    assert verify(callback.certificate_, parameters=held).epsilon <= 4.0


def test_whoever_writes_into_the_network_voids_the_certificate(tmp_path: Path) -> None:
    class Meddler(transformers.TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
            with torch.no_grad():
                given["model"].bert.pooler.dense.bias.add_(1.0)

    callback, model = private(), small_bert()
    with pytest.raises(AssumptionError, match="changed after it was released"):
        train(tmp_path, callback, model, more=[Meddler()])
    assert not hasattr(callback, "certificate_")
