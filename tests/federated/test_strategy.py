"""`PrivateFedAvg`: what it refuses; whole runs in the simulation engine and on loopback."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from patience import HANG_SECONDS

pytest.importorskip("flwr")

from flwr.app import ArrayRecord

from lastiterate import Certificate, verify
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.federated import Federation, PrivateFedAvg, account_federated
from lastiterate.federated.budget import Budget

HERE = Path(__file__).parent
RUN = Federation(
    clients=6, sampled=2, rounds=3, clip=1.0, noise_multiplier=2.0, adjacency="replace"
)
START = ArrayRecord([np.zeros(2)])


def after(path: Path, rounds: int, run: Federation = RUN) -> Path:
    """A budget file in which so many rounds are over."""
    budget = Budget(path, run)
    for number in range(rounds):
        budget.spend()
        budget.keep({"0": np.full(2, float(number))})
    budget.close()
    return path


def test_nothing_is_handed_out_before_the_end(tmp_path: Path) -> None:
    fresh = PrivateFedAvg(RUN, budget=tmp_path / "fresh")
    with pytest.raises(AssumptionError, match="no model yet"):
        fresh.release()
    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 2))
    with pytest.raises(AssumptionError, match="intermediate=True"):
        strategy.release()
    with pytest.raises(AssumptionError, match="1 of 3 rounds"):
        _ = strategy.guarantee
    with pytest.raises(AssumptionError, match="1 of 3 rounds"):
        strategy.certificate(1e-5)


def test_an_intermediate_model_is_accounted_once_it_is_out(tmp_path: Path) -> None:
    from lastiterate import Loss

    smooth = Loss(smoothness=0.25, regularization=0.5)
    run = RUN.replace(sampled=6, rounds=40, loss=smooth, clipping="none", noise_multiplier=20.0)
    strategy = PrivateFedAvg(run, budget=after(tmp_path / "b", 20, run))
    assert strategy.release(intermediate=True)["0"].numpy().tolist() == [19.0, 19.0]
    strategy.close()
    found = PrivateFedAvg(run, budget=after(tmp_path / "b", 20, run)).guarantee
    assert found.releases == (20,)
    hidden = account_federated(
        6, 6, 40, 1.0, 20.0, loss=smooth, clipping="none", adjacency="replace"
    )
    known = hidden.federation.replace(parameters=2)  # the model's size, which the server knows
    assert found.federation == known
    assert found.epsilon(1e-5) <= hidden.epsilon(1e-5) <= (1 + 1e-5) * found.epsilon(1e-5)
    assert found.epsilon(1e-5, "outsiders") > 1.2 * hidden.epsilon(1e-5, "outsiders")


def test_after_the_end(tmp_path: Path) -> None:
    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 3))
    assert strategy.release()["0"].numpy().tolist() == [2.0, 2.0]
    expected = account_federated(6, 2, 3, 1.0, 2.0).epsilon(1e-5)
    for against in ("clients", "outsiders"):
        certificate = strategy.certificate(1e-5, against)
        assert verify(certificate).epsilon == pytest.approx(expected, rel=1e-3)
    with pytest.raises(AssumptionError, match="spent"):
        strategy.start(None, START)


def test_only_the_whole_run_can_be_started(tmp_path: Path) -> None:
    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 1))
    with pytest.raises(DescriptionError, match="num_rounds"):
        strategy.start(None, START, num_rounds=3)


def test_the_certificate_names_the_grid_of_the_model(tmp_path: Path) -> None:
    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 3))
    said = strategy.certificate(1e-5).training.arithmetic
    assert (said.grid, said.coordinates) == (RUN.spacing(2), 2)
    assert f"multiples of {said.grid!r} in 2 coordinates" in str(strategy.guarantee)


class Connection:
    """As much of Flower's grid as a draw asks for."""

    def get_node_ids(self) -> list[int]:
        return []


def test_short_floats_and_other_sizes(tmp_path: Path) -> None:
    """A float32 model remembers what it rounds; a model of another size has another grid."""
    from flwr.app import ConfigRecord

    short = PrivateFedAvg(RUN, budget=tmp_path / "a")
    short.configure_train(1, ArrayRecord([np.zeros(2, np.float32)]), ConfigRecord(), Connection())
    for _ in range(3):
        short._budget.spend()
    assert "less than double precision" in short.guarantee.why_no_better
    told = PrivateFedAvg(RUN.replace(parameters=3), budget=tmp_path / "b")
    with pytest.raises(DescriptionError, match="2, the model's"):
        told.configure_train(1, START, ConfigRecord(), Connection())


def test_a_source_that_was_exchanged_is_not_certified(tmp_path: Path) -> None:
    from lastiterate.noise import SeededSource

    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 2))
    strategy._source = SeededSource(3)
    strategy._model = {"0": np.zeros(2)}
    strategy.aggregate_train(3, [])
    with pytest.raises(AssumptionError, match="seeded"):
        strategy.certificate(1e-5)


def test_seeded_noise_is_not_certified(tmp_path: Path) -> None:
    strategy = PrivateFedAvg(RUN, budget=after(tmp_path / "b", 3), random_state=1)
    with pytest.raises(AssumptionError, match="seeded"):
        strategy.certificate(1e-5)


def test_draws_follow_the_description(tmp_path: Path) -> None:
    """Fixed-size draws are uniform; coins have the described rate. (Counts beyond six sigma.)"""
    fixed = PrivateFedAvg(RUN, budget=tmp_path / "a")
    coins = PrivateFedAvg(RUN.replace(sampling="poisson"), budget=tmp_path / "b")
    draws = 3000
    for strategy in (fixed, coins):
        counts, sizes = np.zeros(6), set()
        for _ in range(draws):
            chosen = strategy._draw()
            sizes.add(len(chosen))
            counts[chosen] += 1
        assert np.all(np.abs(counts - draws / 3) < 6 * np.sqrt(draws * 2 / 9))
        assert (sizes == {2}) == (strategy is fixed)


def program(mode: str, budget: Path, output: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(HERE / "simulated_run.py"), mode, str(budget), str(output)]
    return subprocess.run(
        command,
        env=os.environ | {"FLWR_HOME": str(budget.parent)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


@pytest.mark.slow
def test_broken_clients_neither_cost_privacy_nor_stop_a_round(tmp_path: Path) -> None:
    """On Ray: NaN, a huge update, an exception, a wrong shape, nothing, two who never connect.

    Each of three rounds gets one clipped update (1/2, 1/2, 1/2, 1/2) and three honest (0.1, 0, 0,
    0), divided by the ten described clients.
    """
    done = program("faults", tmp_path / "b", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads((tmp_path / "out.json").read_text())
    np.testing.assert_allclose(answer["model"], [0.24, 0.15, 0.15, 0.15], atol=1e-8)
    assert answer["result"] == answer["model"]
    assert answer["metrics"] == 0
    assert answer["refused_before_the_end"]
    assert "seeded" in answer["no_certificate"]
    for reason in ("not finite", "another shape", "it failed", "not those of the model"):
        assert done.stderr.count(reason) >= 3, reason


@pytest.mark.slow
def test_a_killed_server_goes_on_without_spending_twice(tmp_path: Path) -> None:
    killed = program("kill", tmp_path / "b", tmp_path / "out.json")
    assert killed.returncode == -signal.SIGKILL
    resumed = program("go-on", tmp_path / "b", tmp_path / "out.json")
    assert resumed.returncode == 0, resumed.stderr[-3000:]
    answer = json.loads((tmp_path / "out.json").read_text())
    assert (answer["left_before"], answer["left_after"]) == (1, 0)
    certificate = Certificate.from_json(answer["certificate"])
    assert certificate.training.steps == 3
    whole = account_federated(8, 4, 3, 1.0, 2.0, sampling="poisson")
    assert verify(certificate).epsilon == pytest.approx(whole.epsilon(1e-5), rel=1e-3)
    assert answer["kept"] == 2


def free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports


class Flower:
    """Processes of Flower on 127.0.0.1, ended at the end."""

    def __init__(self, folder: Path, connection: str) -> None:
        self.folder, self.processes = folder, list[subprocess.Popen[Any]]()
        (folder / "config.toml").write_text(
            f'[superlink]\ndefault = "loop"\n[superlink.loop]\n{connection}\n'
        )
        scripts = Path(sysconfig.get_path("scripts"))
        self._environment = os.environ | {
            "FLWR_HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        }
        self._logs = (folder / "log").open("w")

    def begin(self, *command: str, port: int | None = None) -> subprocess.Popen[Any]:
        place = () if port is None else ("--host", "127.0.0.1", "--port", str(port))
        process = subprocess.Popen(
            [*command, *place],
            env=self._environment,
            cwd=self.folder,
            stdout=self._logs,
            stderr=self._logs,
        )
        self.processes.append(process)
        return process

    def run(self, patience: float) -> subprocess.Popen[Any]:
        told = f'folder="{self.folder}" patience={patience}'
        return self.begin("flwr", "run", str(HERE / "loopback_app"), "loop", "--run-config", told)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(HANG_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
        self._logs.close()


SUPERLINK = ("flower-superlink", "--disable-runtime-dependency-installation")


def held(folder: Path) -> None:
    """Two rounds of two honest answers of 0.3 each, divided by three, and a little noise."""
    np.testing.assert_allclose(np.load(folder / "model.npy"), 0.4, atol=0.01)
    verify(folder / "certificate.json")


@pytest.mark.slow
def test_real_clients_on_loopback(tmp_path: Path) -> None:
    """A Flower SuperLink, three SuperNodes (one sends NaN) and `flwr run`, all on 127.0.0.1."""
    link, *nodes = free_ports(4)
    address = f"127.0.0.1:{link}"
    with Flower(tmp_path, f'address = "{address}"\ninsecure = true') as flower:
        flower.begin(*SUPERLINK, "--insecure", port=link)
        wait_for(lambda: listening(link), flower.processes, HANG_SECONDS)
        node = ("flower-supernode", "--insecure", "--superlink", address, "--node-config")
        for port, kind in zip(nodes, ("broken", "honest", "honest"), strict=True):
            flower.begin(*node, f'kind="{kind}"', port=port)
        alive = list(flower.processes)
        flower.run(patience=60)
        wait_for((tmp_path / "certificate.json").exists, alive, HANG_SECONDS)
    held(tmp_path)


def authority(folder: Path) -> None:
    """As in the how-to: a certificate authority and a server's certificate."""
    extension = folder / "server.ext"
    extension.write_text("subjectAltName = IP:127.0.0.1\n")
    for line in (
        "req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=authority -keyout ca.key -out ca.pem",
        "req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr",
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30"
        " -extfile server.ext -out server.pem",
    ):
        subprocess.run(["openssl", *line.split()], cwd=folder, check=True, capture_output=True)


def node_key(path: Path) -> Path:
    command = ["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.mark.slow
def test_only_registered_nodes_take_part_and_traffic_is_encrypted(tmp_path: Path) -> None:
    """The commands of the how-to. A stranger's updates would move the model to 0.6."""
    for tool in ("openssl", "ssh-keygen"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} makes the keys")
    link, *nodes = free_ports(4)
    address = f"127.0.0.1:{link}"
    authority(tmp_path)
    keys = [node_key(tmp_path / name) for name in ("one", "two", "stranger")]
    ca = tmp_path / "ca.pem"
    with Flower(tmp_path, f'address = "{address}"\nroot-certificates = "{ca}"') as flower:
        flower.begin(
            *SUPERLINK,
            *("--ssl-ca-certfile", "ca.pem", "--ssl-certfile", "server.pem"),
            *("--ssl-keyfile", "server.key", "--enable-supernode-auth"),
            port=link,
        )
        wait_for(lambda: listening(link), flower.processes, HANG_SECONDS)
        for key in keys[:2]:
            register = flower.begin("flwr", "supernode", "register", f"{key}.pub", "loop")
            assert register.wait(HANG_SECONDS) == 0
            flower.processes.remove(register)
        node = ("flower-supernode", "--root-certificates", str(ca), "--superlink", address)
        for key, port in zip(keys, nodes, strict=True):
            own = ("--auth-supernode-private-key", str(key), "--node-config", 'kind="honest"')
            flower.begin(*node, *own, port=port)
        alive = flower.processes[:-1]
        flower.run(patience=20)
        with socket.create_connection(("127.0.0.1", link), timeout=HANG_SECONDS) as plain:
            plain.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert b"200 OK" not in plain.recv(1 << 12)
        wait_for((tmp_path / "certificate.json").exists, alive, HANG_SECONDS)
    held(tmp_path)
    refusals = re.findall(r"/v1/fleet/activate-node\]\[ApiError.*", (tmp_path / "log").read_text())
    assert len(refusals) == 1


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_for(event: Any, alive: list[subprocess.Popen[Any]], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not event():
        assert all(process.poll() is None for process in alive), "a Flower process has stopped"
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.3)


@pytest.mark.slow
def test_adult_over_two_hundred_clients(tmp_path: Path) -> None:
    """The example: 50 rounds with 200 simulated clients end with a certificate that holds."""
    example = HERE.parents[1] / "examples" / "federated_adult.py"
    done = subprocess.run(
        [sys.executable, str(example), "--out", str(tmp_path / "c.json")],
        env=os.environ | {"FLWR_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "dropped" not in done.stderr
    for_clients = verify(tmp_path / "c.json").certificate
    for_outsiders = verify(tmp_path / "c-outsiders.json").certificate
    for certificate in (for_clients, for_outsiders):
        assert (certificate.training.records, certificate.training.steps) == (200, 50)
    assert for_outsiders.epsilon <= for_clients.epsilon < 5
