"""One federated run in Flower's simulation engine, as a program of its own that can be killed.

python simulated_run.py MODE BUDGET OUTPUT; MODE is "faults" (clients that misbehave, hardly any
noise, seeded), "kill" (the server dies in round 2 with its noise drawn) or "go-on" (a real run that
resumes what it finds).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from lastiterate.errors import AssumptionError
from lastiterate.federated import Federation, PrivateFedAvg
from lastiterate.federated.budget import Budget

MODE, BUDGET, OUTPUT = sys.argv[1:4]
CONNECTED = 8
SIZE = 4

client = ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    kind = int(context.node_config["partition-id"]) if MODE == "faults" else 7
    (weights,) = message.content["arrays"].to_numpy_ndarrays()
    honest = weights + 0.1 * np.eye(len(weights))[0]
    content: dict[str, Any] = {"arrays": ArrayRecord([honest])}
    if kind == 0:
        content = {"arrays": ArrayRecord([weights * np.nan])}
    elif kind == 1:
        content = {"arrays": ArrayRecord([weights + 1e300])}
    elif kind == 2:
        raise RuntimeError("this client is broken")
    elif kind == 3:
        content = {"arrays": ArrayRecord([np.zeros(99)])}
    elif kind == 4:
        content = {}
    elif kind == 5:
        content["metrics"] = MetricRecord({"secret": 42.0, "num-examples": 10**9})
    return Message(RecordDict(content), reply_to=message)


def describe() -> Federation:
    if MODE == "faults":  # two of ten clients never connect
        return Federation(
            clients=10, sampled=10, rounds=3, clip=1.0, noise_multiplier=1e-12, adjacency="replace"
        )
    return Federation(
        clients=CONNECTED, sampled=4, rounds=3, clip=1.0, noise_multiplier=2.0, sampling="poisson"
    )


def die_in_round_two(budget: Budget, model: Any) -> None:
    if budget.spent == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    keep(budget, model)


keep = Budget.keep
if MODE == "kill":
    Budget.keep = die_in_round_two  # type: ignore[method-assign]

server = ServerApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    seed = 0 if MODE == "faults" else None
    strategy = PrivateFedAvg(
        describe(), budget=BUDGET, patience=2.0, random_state=seed, adjacency="replace"
    )
    before = strategy.rounds_left
    try:
        strategy.release()
        refused = False
    except AssumptionError:
        refused = True
    result = strategy.start(grid, ArrayRecord([np.zeros(SIZE)]))
    answer: dict[str, Any] = {
        "left_before": before,
        "left_after": strategy.rounds_left,
        "refused_before_the_end": refused,
        "model": strategy.release().to_numpy_ndarrays()[0].tolist(),
        "result": result.arrays.to_numpy_ndarrays()[0].tolist(),
        "metrics": len(result.train_metrics_clientapp) + len(result.evaluate_metrics_clientapp),
    }
    try:
        answer["certificate"] = strategy.certificate(1e-5).to_json()
        answer["kept"] = strategy.guarantee.kept
    except AssumptionError as error:
        answer["no_certificate"] = str(error)
    with open(OUTPUT, "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    run_simulation(
        server,
        client,
        num_supernodes=CONNECTED,
        backend_config={
            "init_args": {"_node_ip_address": "127.0.0.1", "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )
