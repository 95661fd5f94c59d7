"""Rounds of several local steps: exact laws of small federations, and the server that runs them."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from lastiterate import Loss, verify
from lastiterate.curves import gaussian
from lastiterate.errors import DescriptionError
from lastiterate.federated import Federation, account_federated
from lastiterate.federated.aggregation import bounded, next_model
from lastiterate.noise import SeededSource

CELLS = 6  # of the mesh in one deviation of the noise: densities are smooth, sums nearly exact


class Clients:
    """A federation in one dimension whose clients have smooth convex objectives of their own."""

    def __init__(self, rng, sampled: int | None = None, linear: bool = False):
        self.count = int(rng.integers(1, 4))
        self.sampled = self.count if sampled is None else min(sampled, self.count)
        self.rounds, self.steps = int(rng.integers(1, 6)), int(rng.integers(2, 6))
        self.l2 = float(rng.choice([0.0, rng.uniform(0, 1)]))
        self.smooth = float(rng.uniform(0.1, 2.0))
        self.eta = float(rng.uniform(0.2, 1.0)) * 2 / (self.smooth + 2 * self.l2)
        self.gamma = float(rng.choice([1.0, 0.5]))
        self.adjacency = str(rng.choice(["replace", "zero-out"]))
        # K·tanh((x − b)·smooth/K): the slope of a convex objective, K its bound
        self.norm = float(rng.uniform(0.3, 2.0))
        self.centres = rng.normal(0, 2, self.count + 1)
        if linear:  # one side pulls with all its might, whatever the model is
            self.centres[:] = -1e9
            self.centres[-1] = 1e9
        self.clip = Federation.local_reach(self.norm, self.eta, self.steps, self.l2)
        self.multiplier = float(rng.uniform(0.7, 4.0))
        self.answer = rng.uniform(size=(self.rounds, self.count)) > 0.2
        if linear or rng.uniform() < 0.5:
            self.answer[:] = True

    @property
    def guarantee(self):
        return account_federated(
            self.count,
            self.sampled,
            self.rounds,
            self.clip,
            self.multiplier,
            adjacency=self.adjacency,
            server_step=self.gamma,
            local_step=self.eta,
            local_steps=self.steps,
            loss=Loss(smoothness=self.smooth, regularization=self.l2),
            clipping="none",
        )

    def update(self, x, centre):
        """What a client's data do to x in its local steps, step by step."""
        w = x.copy()
        for _ in range(self.steps):
            pull = self.norm * np.tanh((w - centre) * self.smooth / self.norm)
            w = w - self.eta * (pull + self.l2 * w)
        return w - (1 - self.eta * self.l2) ** self.steps * x

    def moves(self, x, number: int, other: bool):
        """Where a round may take x: one row per draw of clients."""
        updates = []
        for j in range(self.count):
            centre = self.centres[-1] if j == 0 and other else self.centres[j]
            silent = j == 0 and other and self.adjacency == "zero-out"
            there = self.answer[number, j] and not silent
            updates.append(self.update(x, centre) if there else np.zeros_like(x))
        kept = 1 - self.gamma * (1 - (1 - self.eta * self.l2) ** self.steps)
        draws = itertools.combinations(range(self.count), self.sampled)
        return [kept * x + self.gamma / self.sampled * sum(updates[j] for j in d) for d in draws]

    def laws(self):
        """Densities of the last model in both worlds, on a fine mesh, and its spacing."""
        nu = self.gamma * self.multiplier * self.clip / self.sampled
        far = 9 * nu * math.sqrt(self.rounds) + self.rounds * self.gamma * self.clip
        cells = math.ceil(far / nu * CELLS)
        mesh = np.linspace(-far, far, 2 * cells + 1)
        fine = np.linspace(-far, far, 40 * cells + 1)
        found = []
        for other in (False, True):
            at, weight = np.zeros(1), np.ones(1)
            for number in range(self.rounds):
                goal = fine if number == self.rounds - 1 else mesh
                ends = self.moves(at, number, other)
                law = np.zeros(len(goal))
                for end in ends:
                    bell = np.exp(-(((goal[:, None] - end) / nu) ** 2) / 2)
                    law += bell @ weight / (nu * math.sqrt(2 * math.pi) * len(ends))
                at, weight = goal, law * (goal[1] - goal[0])
            found.append(weight)
        return found


def never_below(one: Clients) -> float:
    p, q = one.laws()
    assert abs(p.sum() - 1) < 1e-7
    assert abs(q.sum() - 1) < 1e-7
    guarantee, closest = one.guarantee, math.inf
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        truth = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p)))
        bound = guarantee.delta(epsilon, against="outsiders")
        assert bound >= truth * (1 - 1e-5) - 1e-9, (epsilon, bound, truth)
        if truth > 1e-6:
            closest = min(closest, bound / truth)
    return closest


def everybody(rng):
    return never_below(Clients(rng))


def drawn(rng):
    return never_below(Clients(rng, sampled=2))


@pytest.mark.parametrize("kind", [everybody, drawn])
def test_no_number_is_below_the_law(kind):
    for seed in range(5):
        kind(np.random.default_rng([5, seed]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [everybody, drawn])
def test_many_federations(kind):
    for seed in range(240):
        kind(np.random.default_rng([6, seed]))


def test_linear_losses_attain_it():
    """One client that pulls the other way: models are Gaussian, and the bound is the truth."""
    for seed in range(10):
        one = Clients(np.random.default_rng([7, seed]), linear=True)
        c = 1 - one.gamma * (1 - (1 - one.eta * one.l2) ** one.steps)
        powers = c ** np.arange(one.rounds)
        apart = 2.0 if one.adjacency == "replace" else 1.0
        mu = apart * powers.sum() / (one.multiplier * math.sqrt((powers**2).sum()))
        found = one.guarantee.outsiders
        assert found is not None
        assert mu <= found.mu <= mu * (1 + 1e-5)
        assert one.guarantee.epsilon(1e-5, "outsiders") >= gaussian.epsilon(mu, 1e-5) * (1 - 1e-9)


def test_the_reach_of_local_steps():
    for seed in range(50):
        rng = np.random.default_rng(seed)
        eta, l2 = float(rng.uniform(0.01, 1)), float(rng.choice([0.0, 1e-12, rng.uniform(0, 1)]))
        steps, a = int(rng.integers(1, 40)), 1 - Fraction(eta) * Fraction(l2)
        exact = Fraction(eta) * sum(a**i for i in range(steps))
        found = Federation.local_reach(1.0, eta, steps, l2)
        assert exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**45))
    with pytest.raises(DescriptionError, match=r"^local_step \* regularization must"):
        Federation.local_reach(1.0, 2.0, 3, 1.0)


LOSS = Loss(smoothness=1.0, regularization=0.5)
RUN = Federation(
    clients=3, sampled=3, rounds=2, clip=2.0, noise_multiplier=1e-9, local_step=0.25,
    local_steps=4, loss=LOSS, clipping="none", adjacency="zero-out",
)  # fmt: skip


def trained(theta, centre):
    """Four local steps with the L2 term, as a client takes them."""
    w = theta.copy()
    for _ in range(4):
        w = w - 0.25 * (np.tanh(w - centre) + 0.5 * w)
    return w


def test_the_server_averages_what_clients_trained():
    theta, centres = np.array([1.0, -2.0]), (0.5, 3.0, -1.0)
    answers = [{"w": trained(theta, c)} for c in centres]
    updates = [bounded(a, {"w": theta}, RUN.clip, RUN.shrink) for a in answers]
    assert not any(update.clipped for update in updates)
    new = next_model({"w": theta}, [u.vector for u in updates], RUN, SeededSource(0))["w"]
    assert np.allclose(new, np.mean([a["w"] for a in answers], axis=0), atol=1e-7)
    silent = next_model({"w": theta}, [updates[0].vector], RUN, SeededSource(0))["w"]
    without_data = RUN.shrink * theta
    assert np.allclose(silent, (answers[0]["w"] + 2 * without_data) / 3, atol=1e-7)


def test_the_strategy_takes_several_local_steps(tmp_path: Path, monkeypatch) -> None:
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_run_id", "_node_id", "_task_id"):  # messages are made outside of a run
        monkeypatch.setattr(identity, name, 1)
    from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

    from lastiterate.federated import PrivateFedAvg

    class Here:
        def get_node_ids(self) -> list[int]:
            return [11, 12, 13]

    run = RUN.replace(noise_multiplier=3.0)
    for centres, honest in (((0.5, 3.0, -1.0), True), ((0.5, 3.0, 1e6), False)):
        strategy = PrivateFedAvg(run, budget=tmp_path / f"{honest}.sqlite")
        arrays = ArrayRecord([np.array([1.0, -2.0])])
        for number in (1, 2):
            replies = []
            asked = strategy.configure_train(number, arrays, ConfigRecord({}), Here())
            for message, centre in zip(asked, centres, strict=True):
                theta = message.content["arrays"].to_numpy_ndarrays()[0]
                sent = trained(theta, centre) + (0.0 if honest or centre < 9 else 100.0)
                content = RecordDict({"arrays": ArrayRecord([sent])})
                replies.append(Message(content, reply_to=message))
            arrays, _ = strategy.aggregate_train(number, replies)
        guarantee = strategy.guarantee
        if honest:
            assert guarantee.epsilon(1e-5, "outsiders") < guarantee.epsilon(1e-5)
            sealed = strategy.certificate(1e-5, "outsiders", dataset="three")
            assert "round of 4 local steps" in sealed.dataset
            sealed.save(tmp_path / "c.json")
            assert verify(tmp_path / "c.json").epsilon == sealed.epsilon
        else:  # an update that had to be clipped: nothing was hidden from outsiders
            assert guarantee.outsiders is None
        strategy.close()


def test_steps_that_jump_over_the_minimum_are_refused():
    with pytest.raises(DescriptionError, match=r"^local_step \* regularization must"):
        RUN.replace(local_step=2.5)
    assert RUN.replace(local_steps=1).shrink == 1.0
    assert Federation.from_json(RUN.to_json()) == RUN
