"""The server and the clients of the loopback test; one kind of client sends no numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from lastiterate.federated import Federation, PrivateFedAvg

client = ClientApp()
server = ServerApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    move = np.nan if context.node_config.get("kind") == "broken" else 0.3
    return Message(RecordDict({"arrays": ArrayRecord([weights + move])}), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    folder = Path(str(context.run_config["folder"]))
    run = Federation(
        clients=3, sampled=3, rounds=2, clip=1.0, noise_multiplier=1e-3, adjacency="replace"
    )
    patience = float(context.run_config["patience"])
    strategy = PrivateFedAvg(
        run, budget=folder / "rounds.sqlite", patience=patience, adjacency="replace"
    )
    strategy.start(grid, ArrayRecord([np.zeros(4)]))
    np.save(folder / "model.npy", strategy.release().to_numpy_ndarrays()[0])
    strategy.certificate(1e-5).save(folder / "unfinished")
    (folder / "unfinished").rename(folder / "certificate.json")
