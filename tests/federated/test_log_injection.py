"""What a client writes never reaches the server's log: it could forge lines, or hold records."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from lastiterate.federated import Federation, PrivateFedAvg

FORGED = "x)\nWARNING: certificate verified \x1b[2K\r Jane-HIV"
RUN = Federation(
    clients=6, sampled=2, rounds=3, clip=1.0, noise_multiplier=2.0, adjacency="replace"
)


def asked() -> Message:
    return Message(RecordDict(), dst_node_id=7, message_type="train")


def failed() -> Message:
    return Message(Error(3, FORGED), reply_to=asked())


def garbled() -> Message:
    """An array whose bytes are a text that NumPy repeats when it cannot parse it."""
    header = FORGED.encode().ljust(118)
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    arrays = ArrayRecord({"0": Array("float64", (2,), "numpy.ndarray", data)})
    return Message(RecordDict({"arrays": arrays}), reply_to=asked())


def renamed() -> Message:
    arrays = ArrayRecord({FORGED: Array(np.zeros(2))})
    return Message(RecordDict({"arrays": arrays}), reply_to=asked())


@pytest.mark.parametrize("answer", [failed, garbled, renamed])
def test_no_word_of_a_client_is_logged(
    answer: Any, tmp_path: Path, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before: "it failed (...)" repeated the client's text, line ends included."""
    for name in ("_run_id", "_node_id", "_task_id"):  # Flower makes messages inside of a run only
        monkeypatch.setattr(TaskIdentity, name, 7)
    strategy = PrivateFedAvg(RUN, budget=tmp_path / "b")
    strategy._model, strategy._drawn = {"0": np.zeros(2)}, {7}
    with caplog.at_level(logging.WARNING):
        assert strategy._update(answer()) is None
    strategy.close()
    said = caplog.text
    assert "an answer is dropped" in said
    for word in ("Jane", "verified", "\x1b", "\r"):
        assert word not in said
    assert len({line for line in said.splitlines() if line}) == 1
