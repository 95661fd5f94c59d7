"""`PrivateFedAvg`: federated averaging in Flower that keeps what its guarantee promises.

The server draws clients as described from a secure source, clips what they send, adds the noise,
divides by the nominal number and writes every round down before its noise exists. Clients' metrics
and evaluations carry no noise, so none is asked for and none is passed on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from lastiterate.certificate import Certificate
from lastiterate.description.fields import checked_delta
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.federated.accounting import Audience, FederatedGuarantee
from lastiterate.federated.aggregation import UnusableUpdateError, Vector, bounded, next_model
from lastiterate.federated.budget import Arrays, Budget
from lastiterate.federated.federation import Federation
from lastiterate.noise import Source, source, unpredictable

log = logging.getLogger("lastiterate.federated")

ARRAYS, CONFIG = "arrays", "config"  # where Flower's own strategies keep them in a message


class PrivateFedAvg(Strategy):
    """Federated averaging with user-level privacy, for Flower's ``ServerApp``.

    Clients answer a ``train`` message with their new weights under "arrays", as for Flower's own
    ``FedAvg``; whatever else they send is ignored. With several local steps they include the L2
    term of the federation's loss in each, and the server takes its part off (`Federation`).

    Args:
        federation: the run; what is accounted is what is done.
        budget: a file that survives the server. A server that is killed and started again with the
            same file goes on with the rounds that are left, from the last model that was kept.
        patience: seconds to wait for all clients to be connected before the first draw.
        random_state: a seed makes the run reproducible, worthless as protection, and uncertified.

    >>> import tempfile
    >>> run = Federation(clients=9, sampled=3, rounds=2, clip=1.0, noise_multiplier=6.0)
    >>> strategy = PrivateFedAvg(run, budget=tempfile.mkdtemp() + "/rounds.sqlite")
    >>> strategy.rounds_left
    2
    """

    def __init__(
        self,
        federation: Federation,
        *,
        budget: str | Path,
        patience: float = 60.0,
        random_state: int | None = None,
    ) -> None:
        self.federation = federation
        self.patience = patience
        self._source: Source = source(random_state)
        self._batches = federation.training.batches.rows(federation.clients, self._source)
        self._budget = Budget(budget, federation, secure=unpredictable(self._source))
        self._model: Arrays | None = self._budget.model()
        self._drawn: set[int] = set()

    # --- what may be asked -------------------------------------------------------------------

    @property
    def rounds_left(self) -> int:
        """Rounds that may still be run, those lost in a crash taken off."""
        return self._budget.left

    @property
    def guarantee(self) -> FederatedGuarantee:
        """What the rounds that were spent cost, against clients and against outsiders."""
        if self._budget.left > 0:
            raise AssumptionError(
                f"{self._budget.left} of {self.federation.rounds} rounds are still to come: a "
                f"guarantee for part of a run would be relied on for the rest. Finish the run."
            )
        run = self.federation
        if self._model is not None:
            run = run.replace(parameters=_size(self._model))
        return FederatedGuarantee(
            run, self._budget.releases, self._budget.kept, self._budget.spoiled
        )

    def certificate(
        self, delta: float, against: Audience = "clients", *, dataset: str = ""
    ) -> Certificate:
        """What the run promises to one audience; after the last round, with a secure source."""
        if not self._budget.secure:
            raise AssumptionError(
                "The noise came from a seeded generator, and whoever knows the seed can subtract "
                "it: such a run is not certified. Leave random_state out."
            )
        delta = checked_delta(delta, self.federation.clients)
        return self.guarantee.certificate(delta, against, dataset=dataset)

    def release(self, *, intermediate: bool = False) -> ArrayRecord:
        """The model, for outsiders.

        Before the last round this is refused, unless ``intermediate=True`` says that it is meant:
        then the round is first written down as shown, and the guarantee against outsiders will
        count it.
        """
        if self._model is None:
            raise AssumptionError("There is no model yet: no round is over.")
        if self._budget.left > 0:
            if not intermediate:
                raise AssumptionError(
                    f"The model after round {self._budget.kept} is not the last one. Showing it "
                    f"makes the guarantee against outsiders weaker; if that is meant, ask with "
                    f"intermediate=True, and it will be accounted."
                )
            self._budget.show(self._budget.kept)
        return _record(self._model)

    # --- Flower's side -----------------------------------------------------------------------

    def summary(self) -> None:
        """Log what will be done."""
        log.info("%s", self.federation)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Run all rounds that are left; ``initial_arrays`` only matter if no model was kept.

        ``evaluate_fn`` sees the model of every round. Whatever it prints or stores may be seen by
        outsiders, so with it they get no better number than clients.

        Args:
            grid: Flower's connection to the clients.
            initial_arrays: the model to start from.
            num_rounds: all rounds of the budget by default.
            timeout: seconds to wait for the answers of a round.
            train_config, evaluate_config: sent to the clients, as in Flower.
            evaluate_fn: evaluates the model on the server.
        """
        left = self._budget.left
        if num_rounds is not None and num_rounds != left:
            why = "the guarantee is that of the whole run, and its last model is the released one"
            raise DescriptionError("num_rounds", num_rounds, f"{left}, the rounds left", why)
        if left == 0:
            raise AssumptionError("All rounds of this run are spent; its model can be released.")
        if evaluate_fn is not None:
            self._budget.spoil("the model of every round was given to evaluate_fn")
        start = initial_arrays if self._model is None else _record(self._model)
        self._wait_for_clients(grid)
        return super().start(grid, start, left, timeout, train_config, evaluate_config, evaluate_fn)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Draw clients and send them the model.

        The draw is over all clients of the description, connected or not: a client's chance must
        not grow because others are away. A drawn client who is away counts as zero.
        """
        self._model = _floating(arrays)
        self._look_at_the_grid(self._model)
        present = sorted(grid.get_node_ids())
        if len(present) > self.federation.clients:
            log.warning(
                "%d clients are connected but %d were described; the others are never drawn",
                len(present),
                self.federation.clients,
            )
        self._drawn = {present[place] for place in self._draw() if place < len(present)}
        settings = ConfigRecord({**config, "server-round": server_round})
        content = RecordDict({ARRAYS: _record(self._model), CONFIG: settings})
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node)
            for node in sorted(self._drawn)
        ]

    def _look_at_the_grid(self, model: Arrays) -> None:
        """The model must be the described one; what a short type rounds is hidden from nobody."""
        size, told = _size(model), self.federation.parameters
        if told is not None and told != size:
            why = "the grid that noise is added on depends on it"
            raise DescriptionError("federation.parameters", told, f"{size}, the model's", why)
        if any(values.dtype.itemsize < 8 for values in model.values()):
            self._budget.spoil(
                "the model has less than double precision, and what that rounds in a round is "
                "remembered by the next"
            )

    def _draw(self) -> list[int]:
        chosen: list[int] = np.arange(self.federation.clients)[next(self._batches)].tolist()
        return chosen

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Write the round down, then make the noisy model."""
        if self._model is None:
            raise AssumptionError("No clients were drawn for this round: configure_train first.")
        updates = [update for update in map(self._update, replies) if update is not None]
        if self._drawn:
            log.warning("%d drawn clients sent nothing that counts", len(self._drawn))
        if not unpredictable(self._source):
            self._budget.distrust()
        self._budget.spend()
        self._model = next_model(self._model, updates, self.federation, self._source)
        self._budget.keep(self._model)
        return _record(self._model), None

    def _update(self, reply: Message) -> Vector | None:
        """The bounded update in a reply, or None (logged) if there is none to be had."""
        assert self._model is not None
        try:
            node = reply.metadata.src_node_id
            if node not in self._drawn:
                raise UnusableUpdateError("it was not drawn, or has answered already")
            if reply.has_error():
                raise UnusableUpdateError(f"it failed (code {int(reply.error.code)})")
            run, model = self.federation, self._model
            update = bounded(_sent(reply, model), model, run.clip, run.shrink)
        except UnusableUpdateError as problem:
            log.warning("an answer is dropped: %s", problem)
            return None
        except Exception as problem:  # whatever a client sends, the round goes on
            # Not its words: a client's text could forge lines of the log, or hold records.
            log.warning("an answer is dropped: it cannot be read (%s)", type(problem).__name__)
            return None
        self._drawn.discard(node)
        if update.clipped and self.federation.clipping == "none":
            self._budget.spoil("a client sent an update longer than its objective allows")
        return update.vector

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Nobody: what clients measure on their data would come back without noise."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing."""
        return None

    def _wait_for_clients(self, grid: Grid) -> None:
        end = time.monotonic() + self.patience
        while (here := len(list(grid.get_node_ids()))) < self.federation.clients:
            if time.monotonic() >= end:
                log.warning("only %d of %d clients are here", here, self.federation.clients)
                return
            time.sleep(0.2)

    def close(self) -> None:
        """Let go of the budget file."""
        self._budget.close()


def _sent(reply: Message, model: Arrays) -> dict[str, Any]:
    """The arrays in a reply; their declared shapes are checked before anything is unpacked."""
    record = reply.content.array_records.get(ARRAYS)
    if record is None or list(record) != list(model):
        raise UnusableUpdateError("its arrays are not those of the model")
    for name, array in model.items():
        if tuple(record[name].shape) != array.shape:
            raise UnusableUpdateError(f"{name} has another shape than the model's")
    return {name: array.numpy() for name, array in record.items()}


def _floating(arrays: ArrayRecord) -> Arrays:
    """The model as NumPy arrays; everything in it must be able to carry noise."""
    model = {name: array.numpy() for name, array in arrays.items()}
    for name, values in model.items():
        if values.dtype.kind != "f" or not np.all(np.isfinite(values)):
            why = "noise is added to every parameter; counters and masks would leave without it"
            raise DescriptionError(f"arrays[{name!r}]", values.dtype, "finite floats", why)
    return model


def _size(model: Arrays) -> int:
    return sum(values.size for values in model.values())


def _record(model: Arrays) -> ArrayRecord:
    return ArrayRecord({name: Array(values) for name, values in model.items()})
