"""A linear head that somebody's trainer was to train, trained by this library's engine instead.

The trainer says what it would run: loader, optimizer, schedule, number of updates. The engine runs
just that, with noise, in one piece and in arithmetic that is proved; the trainer makes no update of
its own. So no logger, checkpoint or early stopping ever sees an iterate but the last: the state is
hidden by construction, and the run can be certified.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lastiterate.accounting import calibrate
from lastiterate.certificate import Certificate, certify
from lastiterate.certificate.signing import Computed
from lastiterate.description import Training
from lastiterate.description.fields import checked_delta, number
from lastiterate.errors import AssumptionError, UnsupportedError
from lastiterate.frameworks.frozen_features import (
    COMPARED,
    Step,
    changed,
    compare_criterion,
    digests,
    features_of,
    held,
    put,
    trained_layer,
)
from lastiterate.frameworks.planned_steps import Due, step_sizes, weight_decay
from lastiterate.losses import Softmax
from lastiterate.models.rows import Rows
from lastiterate.torch.loader import scheme_of
from lastiterate.train import Descent, noisy_descent
from lastiterate.train.grid import on_its_grid
from lastiterate.train.summation import linear_arithmetic, score_error

CERTIFICATE, REPORT = "certificate.json", "report.html"


@dataclass(frozen=True)
class Plan:
    """What a trainer would do, in its own words.

    Attributes:
        network, loader, optimizer: as the trainer has them.
        schedulers, due: of the learning rate; which of them step after update 1, 2, ....
        steps: the number of updates.
        loss: a batch -> its mean loss, as the trainer computes it.
        labels: a batch -> its labels.
    """

    network: nn.Module
    loader: Any
    optimizer: Any
    schedulers: list[Any]
    due: Due
    steps: int
    loss: Step
    labels: Callable[[Any], Any]


class PrivateHead:
    """What the callbacks of all trainers share.

    Attributes:
        certificate_: of what was trained; bound to ``parameters_``.
        parameters_: the head's weight and bias, as they stand in the network, as doubles.
        training_: the description that ran.
    """

    certificate_: Certificate
    parameters_: dict[str, NDArray[Any]]
    training_: Training

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        feature_bound: float,
        folder: str | os.PathLike[str] | None = None,
        diameter: float = float("inf"),
        adjacency: str = "zero-out",
        dataset: str = "",
    ) -> None:
        super().__init__()
        self.epsilon = number("epsilon", epsilon, above=0.0)
        self.delta = checked_delta(delta)
        self.folder = None if folder is None else Path(folder)
        self.diameter, self.adjacency, self.dataset = diameter, adjacency, dataset
        self.feature_bound = Rows(feature_bound, False).norm
        self._head: nn.Linear | None = None
        self._network: nn.Module
        self._released: dict[str, str] = {}
        self._buffers: dict[str, Tensor] = {}
        if self.folder is not None:
            _need_report()

    def _hand_over(self, plan: Plan) -> None:
        """Run what the trainer would, with the noise that keeps the promise, and set the head."""
        self._head = None
        vars(self).pop("certificate_", None)  # of an earlier run
        head = trained_layer(plan.network)
        batches = scheme_of(plan.loader, drawn_there=False)
        l2 = weight_decay(plan.optimizer, head)
        rates = step_sizes(plan.optimizer, plan.schedulers, plan.due, plan.steps)
        rows, objective = (
            Rows(self.feature_bound, head.bias is not None),
            Softmax(head.out_features),
        )
        loader = getattr(plan.loader, "base_dataloader", plan.loader)  # as accelerate wraps it
        data, collate = loader.dataset, loader.collate_fn
        labels: list[Any] = []
        few: list[Any] = []  # read once: a data set may augment at random

        def one_by_one() -> Iterator[Any]:
            for index in range(len(data)):
                record = data[index]
                if index < COMPARED:
                    few.append(record)
                batch = collate([record])
                labels.append(np.asarray(torch.as_tensor(plan.labels(batch)).cpu()).reshape(-1))
                yield batch

        features = features_of(plan.network, head, plan.loss, one_by_one())
        y = objective.targets(np.array(labels).reshape(len(features)))
        compare_criterion(plan.network, head, plan.loss, collate(few), features, y, objective)
        run = Training(
            records=len(y),
            steps=plan.steps,
            step_size=rates,
            noise=0.0,
            gradient_norm=objective.gradient_norm(rows.norm),
            batches=batches,
            diameter=self.diameter,
            adjacency=self.adjacency,
        )
        self._train(head, run, rows, l2, features, y)
        self._network, self._released = plan.network, digests(plan.network)
        self._buffers = {name: value.clone() for name, value in plan.network.named_buffers()}

    def _train(
        self,
        head: nn.Linear,
        run: Training,
        rows: Rows,
        l2: float,
        features: NDArray[np.float64],
        labels: NDArray[Any],
    ) -> None:
        """From 0, with the noise that the promise needs on the grid that the run lives on."""
        objective, data = Softmax(head.out_features), rows.of(features)
        loss, columns = objective.regularity(rows.norm, l2), int(data.shape[1])
        training, radius = on_its_grid(
            run,
            linear_arithmetic(run, objective, columns),
            np.zeros(columns * head.out_features),
            loss,
            lambda run: calibrate(run, loss, self.epsilon, self.delta),
            score_error(run, objective, columns, rows.norm),
            objective.at_zero(),
        )
        released = noisy_descent(
            objective,
            data,
            training,
            labels=labels,
            regularization=l2,
            feature_bound=rows.norm,
            radius=radius,
        )
        put(head, released.parameters)
        self._head, self.parameters_, self.training_ = head, held(head), released.training
        self._seal(released)

    def _seal(self, released: Descent) -> None:
        if released.experiment or released.loss is None:  # nothing here is seeded
            raise AssumptionError(f"The run cannot be certified. {released.objection}")
        self.certificate_ = certify(
            released.training,
            released.loss,
            self.delta,
            dataset=self.dataset,
            parameters=Computed(self.parameters_),
            nonce=released.partition_nonce,
        )

    def _no_update(self) -> None:
        """The trainer's own gradients are dropped before its optimizer sees them."""
        for p in () if self._head is None else self._head.parameters():
            p.grad = None

    def _end(self) -> None:
        """Write the certificate and the report, if the network is still what was released.

        A batch that the trainer computed by itself may have moved statistics: they are put back.
        """
        if self._head is None:
            return
        for name, value in self._network.named_buffers():
            if name in self._buffers and value.shape == self._buffers[name].shape:
                value.copy_(self._buffers[name])
        moved = changed(self._released, digests(self._network))
        if moved:
            del self.certificate_
            raise AssumptionError(
                f"The network ({moved}) changed after it was released: another callback, or the "
                "trainer, wrote there without noise. Nothing is certified; train again without it."
            )
        if self.folder is not None:
            from lastiterate.report.page import Report

            self.folder.mkdir(parents=True, exist_ok=True)
            self.certificate_.save(self.folder / CERTIFICATE)
            Report.of(self.folder / CERTIFICATE).save(self.folder / REPORT)


def _need_report() -> None:
    try:
        import lastiterate.report.page  # noqa: F401
    except ModuleNotFoundError as missing:
        raise UnsupportedError(
            f"folder= writes a report, which needs {missing.name}. Run: "
            'pip install "lastiterate[report,verify]", or leave folder out.'
        ) from None
