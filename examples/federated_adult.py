"""Logistic regression on Adult, spread over 200 clients, trained in 50 private rounds.

Every client holds a slice of the census records. Flower's simulation engine runs the clients on
Ray; the server clips, adds noise and hands out a certificate with two numbers: one against the
other clients, who see every round, and one against outsiders, who see the last model only.

    python examples/federated_adult.py [--rounds 50] [--out certificate.json]

The data are looked for in $LASTITERATE_DATA/adult; without them a generated set is used.
"""

from __future__ import annotations

import os

os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")  # Flower would report usage over the network
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import argparse
import gzip
import tempfile
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from lastiterate import Loss
from lastiterate.federated import Federation, PrivateFedAvg

CLIENTS = 200
LOCAL_STEP = 4.0  # rows have norm 1, so a client's mean gradient is at most 1 and smooth by 1/4
DELTA = 1e-3 / CLIENTS

RANGES = {0: (17, 90), 4: (1, 16), 10: (0, 20_000), 11: (0, 4_400), 12: (1, 99)}
CATEGORIES = {
    1: "Private Self-emp-not-inc Self-emp-inc Federal-gov Local-gov State-gov Without-pay",
    5: "Married-civ-spouse Divorced Never-married Separated Widowed Married-spouse-absent",
    6: "Tech-support Craft-repair Other-service Sales Exec-managerial Prof-specialty "
    "Handlers-cleaners Machine-op-inspct Adm-clerical Farming-fishing Transport-moving "
    "Priv-house-serv Protective-serv",
    7: "Wife Own-child Husband Not-in-family Other-relative Unmarried",
    9: "Female Male",
}


@lru_cache(maxsize=1)
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training rows and labels, test rows and labels; public preprocessing, rows of norm 1."""
    here = Path(__file__).resolve().parents[1]
    for folder in (os.environ.get("LASTITERATE_DATA"), here.parent / "shared" / "data"):
        if folder and (Path(folder) / "adult" / "adult.data.gz").exists():
            adult = Path(folder) / "adult"
            return *read(adult / "adult.data.gz"), *read(adult / "adult.test.gz")
    return generated()


def read(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Numbers scaled to [0, 1] by declared ranges, documented categories as indicators."""
    with gzip.open(path, "rt") as file:
        rows = [line.rstrip(".\n").split(", ") for line in file]
    rows = [row for row in rows if len(row) == 15]
    columns = [np.ones(len(rows))]
    for column, (low, high) in RANGES.items():
        values = np.array([float(row[column]) for row in rows])
        columns.append((np.clip(values, low, high) - low) / (high - low))
    for column, names in CATEGORIES.items():
        columns.extend(np.array([row[column] == name for row in rows]) for name in names.split())
    return unit_rows(np.stack(columns, axis=1)), np.array([row[14] == ">50K" for row in rows])


def generated() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """A stand-in of the same size."""
    rng = np.random.default_rng(0)
    x = unit_rows(np.hstack([np.ones((40_000, 1)), rng.random((40_000, 39))]))
    y = rng.random(40_000) < 1 / (1 + np.exp(-40 * (x[:, 1] - x[:, 2])))
    return x[:30_000], y[:30_000], x[30_000:], y[30_000:]


def unit_rows(x: np.ndarray) -> np.ndarray:
    x = x.astype(float)
    return x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1.0)


client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    """One gradient step on the mean logistic loss of this client's records."""
    mine, of = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    x, y = (part[mine::of] for part in data()[:2])
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    sign = np.where(y, 1.0, -1.0)
    gradient = -(x.T @ (sign / (1 + np.exp(sign * (x @ weights))))) / len(y)
    answer = ArrayRecord([weights - LOCAL_STEP * gradient])
    return Message(RecordDict({"arrays": answer}), reply_to=message)


def describe(rounds: int) -> Federation:
    """Half of the clients in a round; the loss of a record is 1/4-smooth, gradients at most 1."""
    return Federation(
        clients=CLIENTS,
        sampled=CLIENTS / 2,
        rounds=rounds,
        clip=LOCAL_STEP,
        noise_multiplier=4.0,
        sampling="poisson",
        local_step=LOCAL_STEP,
        loss=Loss(smoothness=0.25, regularization=0.01, provenance="proved"),
        clipping="none",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    begin = time.perf_counter()
    server = ServerApp()

    @server.main()
    def run(grid: Grid, context: Context) -> None:
        with tempfile.TemporaryDirectory() as folder:
            budget = Path(folder) / "rounds.sqlite"  # a real server keeps this file for good
            strategy = PrivateFedAvg(describe(options.rounds), budget=budget, adjacency="replace")
            start = ArrayRecord([np.zeros(data()[0].shape[1])])
            strategy.start(grid, start)
            (weights,) = strategy.release().to_numpy_ndarrays()
            for_clients = strategy.certificate(DELTA)
            for_outsiders = strategy.certificate(DELTA, against="outsiders")
            strategy.close()
        x, y = data()[2:]
        print(f"Against clients. {for_clients}\nAgainst outsiders. {for_outsiders}")
        right = np.mean((x @ weights > 0) == y)
        print(f"Accuracy on the test records: {right:.4f} (always no: {np.mean(~y):.4f}).")
        if options.out:
            for_clients.save(options.out)
            for_outsiders.save(options.out.with_stem(f"{options.out.stem}-outsiders"))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server, client, num_supernodes=CLIENTS, backend_config=resources)
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    from federated_adult import main as imported  # clients are other processes: they need a name

    imported()
