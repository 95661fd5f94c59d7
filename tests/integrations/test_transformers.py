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
    arguments = transformers.TrainingArguments(**told)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=Texts(), data_collator=padded, callbacks=[callback]
    )
    trainer.train()
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
