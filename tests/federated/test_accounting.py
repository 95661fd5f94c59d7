"""The federated accountant against exact laws of small federations, and against `account`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact_rounds import coin_sums, one_round, subset_sums, two_rounds
from hypothesis import given, settings
from hypothesis import strategies as st

from lastiterate import Loss, Poisson, Training, account
from lastiterate.curves import gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.errors import DescriptionError
from lastiterate.federated import FederatedGuarantee, Federation, account_federated
from lastiterate.generalization import generalization

QUADRATURE = 2e-5  # relative error of the lower references: 7.5e-6 for two sure rounds
numbers = st.floats(-1.0, 1.0)


def neighbours(updates: list[float], other: float, adjacency: str) -> tuple[np.ndarray, np.ndarray]:
    first = np.array(updates)
    second = first.copy()
    second[0] = other if adjacency == "replace" else 0.0
    return first, second


@settings(max_examples=60, deadline=None)
@given(
    updates=st.lists(numbers, min_size=2, max_size=5),
    other=numbers,
    share=st.floats(0.01, 1.0),
    noise=st.floats(0.3, 4.0),
    epsilon=st.floats(0.0, 3.0),
    adjacency=st.sampled_from(["replace", "zero-out"]),
    rounds=st.sampled_from([1, 2]),
)
def test_fixed_size_rounds_never_below_truth(
    updates, other, share, noise, epsilon, adjacency, rounds
) -> None:
    sampled = max(1, round(share * len(updates)))
    first, second = neighbours(updates, other, adjacency)
    pair = subset_sums(first, sampled), subset_sums(second, sampled)
    truth = (one_round if rounds == 1 else two_rounds)(*pair, noise, epsilon)
    g = account_federated(len(updates), sampled, rounds, 1.0, noise, adjacency=adjacency)
    assert g.delta(epsilon) >= truth * (1 - QUADRATURE) - 1e-12


@settings(max_examples=60, deadline=None)
@given(
    updates=st.lists(numbers, min_size=1, max_size=5),
    other=numbers,
    rate=st.floats(0.05, 1.0),
    noise=st.floats(0.3, 4.0),
    epsilon=st.floats(0.0, 3.0),
    adjacency=st.sampled_from(["replace", "zero-out"]),
    rounds=st.sampled_from([1, 2]),
)
def test_poisson_rounds_never_below_truth(
    updates, other, rate, noise, epsilon, adjacency, rounds
) -> None:
    first, second = neighbours(updates, other, adjacency)
    pair = coin_sums(first, rate), coin_sums(second, rate)
    truth = (one_round if rounds == 1 else two_rounds)(*pair, noise, epsilon)
    count = len(updates)
    drawn = {"sampling": "poisson", "adjacency": adjacency}
    g = account_federated(count, rate * count, rounds, 1.0, noise, **drawn)
    assert g.delta(epsilon) >= truth * (1 - QUADRATURE) - 1e-12


@pytest.mark.parametrize("noise", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_worst_federations_attain_the_number(noise, epsilon) -> None:
    """The others all send what the replacing client sends; or, with coins, nothing."""
    worst = np.array([1.0, -1.0, -1.0, -1.0]), np.full(4, -1.0)
    truth = one_round(*(subset_sums(u, 1) for u in worst), noise, epsilon)
    assert account_federated(4, 1, 1, 1.0, noise, adjacency="replace").delta(
        epsilon
    ) == pytest.approx(truth, rel=2e-3)
    alone = np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(4)
    truth = one_round(*(coin_sums(u, 0.25) for u in alone), noise, epsilon)
    bound = account_federated(4, 1, 1, 1.0, noise, sampling="poisson").delta(epsilon)
    assert bound == pytest.approx(truth, rel=2e-3)
    opposite = np.array([1.0, 0.0, 0.0, 0.0]), np.array([-1.0, 0.0, 0.0, 0.0])
    truth = one_round(*(coin_sums(u, 0.25) for u in opposite), noise, epsilon)
    drawn = {"sampling": "poisson", "adjacency": "replace"}
    bound = account_federated(4, 1, 1, 1.0, noise, **drawn).delta(epsilon)
    assert bound == pytest.approx(truth, rel=2e-3)


def test_a_zeroed_client_displaces_another() -> None:
    """The sampled-Gaussian profile is false for fixed-size draws: rate 0.01, one unit of noise."""
    centres = np.array([0.0, 2.0]), np.array([0.0, 1.0])
    weights = np.array([0.99, 0.01])
    truth = one_round((centres[0], weights), (centres[1], weights), 1.0, 0.1)
    assert float(f"{truth:.2g}") == 1.7e-3
    assert LossDistribution.sampled_gaussian(0.01, 1.0).delta(0.1) < 1e-4
    assert truth <= account_federated(100, 1, 1, 1.0, 1.0, adjacency="zero-out").delta(0.1) < 3e-3


@pytest.mark.parametrize(
    ("sampling", "adjacency", "sampled"),
    [
        ("poisson", "zero-out", 20),
        ("poisson", "replace", 20),
        ("poisson", "replace", 200),
        ("without-replacement", "replace", 20),
        ("without-replacement", "zero-out", 20),
        ("without-replacement", "replace", 200),
        ("without-replacement", "zero-out", 200),
    ],
)
def test_equals_account_where_both_apply(sampling, adjacency, sampled) -> None:
    g = account_federated(
        200, sampled, 50, 0.7, 2.0, sampling=sampling, adjacency=adjacency, server_step=0.3
    )
    plain = account(g.training, Loss.unknown())
    for delta in (1e-4, 1e-6):
        assert g.epsilon(delta) == pytest.approx(plain.epsilon(delta), rel=1e-6)
    assert g.delta(1.0) == pytest.approx(plain.delta(1.0), rel=1e-6)
    assert g.training.records == 200
    assert g.training.adjacency == adjacency


def test_equals_opacus_convention() -> None:
    """noise_multiplier means the same as in DP-SGD with a client for a record."""
    run = Training.dp_sgd(
        records=500, steps=30, step_size=1.0, noise_multiplier=1.3, clip=2.0, batches=Poisson(0.04)
    )
    g = account_federated(500, 20, 30, 2.0, 1.3, sampling="poisson")
    expected = account(run, Loss.unknown()).epsilon(1e-5)
    assert g.epsilon(1e-5) == pytest.approx(expected, rel=1e-6)
    assert g.training.noise == pytest.approx(run.noise)


def test_gaussian_when_everybody_takes_part() -> None:
    g = account_federated(10, 10, 9, 1.0, 6.0, adjacency="replace")
    assert 1.0 <= g.mu <= 1.0 + 1e-6  # the grid that noise is added on
    assert g.epsilon(1e-5) == pytest.approx(gaussian.epsilon(1.0, 1e-5))
    assert account_federated(10, 10, 9, 1.0, 6.0, adjacency="zero-out").mu == pytest.approx(
        0.5, rel=2e-6
    )


def test_nothing_costs_nothing_and_no_noise_hides_nothing() -> None:
    assert account_federated(10, 5, 0, 1.0, 1.0, adjacency="replace").epsilon(1e-5) == 0.0
    for sampling in ("poisson", "without-replacement"):
        assert account_federated(10, 5, 3, 1.0, 0.0, sampling=sampling).epsilon(1e-5) == math.inf


def test_more_noise_more_clients_fewer_rounds_cost_less() -> None:
    def epsilon(clients=100, rounds=20, noise=1.0) -> float:
        return account_federated(clients, 10, rounds, 1.0, noise, adjacency="replace").epsilon(1e-5)

    assert epsilon(noise=1.5) < epsilon() < epsilon(rounds=30)
    assert epsilon(clients=200) < epsilon()


SMOOTH = Loss(smoothness=0.25, regularization=0.05)


def outsiders(**changes) -> FederatedGuarantee:
    poisson = changes.get("sampling") == "poisson"
    fields = {"adjacency": "zero-out" if poisson else "replace", "loss": SMOOTH}
    fields |= {"clipping": "none", "server_step": 1.0, **changes}
    return account_federated(50, fields.pop("sampled", 50), 400, 1.0, 10.0, **fields)


def test_outsiders_get_the_last_iterate_number() -> None:
    g = outsiders()
    assert g.outsiders is not None
    assert g.epsilon(1e-5, against="outsiders") < 0.5 * g.epsilon(1e-5)
    expected = account(g.training, SMOOTH).epsilon(1e-5)
    assert g.epsilon(1e-5, against="outsiders") == expected
    assert g.delta(1.0, against="outsiders") < g.delta(1.0)
    assert g.rdp(4.0, against="outsiders") < g.rdp(4.0)
    text = str(g)
    assert "Against other clients, who see the model of every round" in text
    assert "Against outsiders, who see the last model" in text


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"loss": None}, "nothing is declared"),
        ({"loss": Loss.nonconvex(smoothness=1.0)}, "not declared convex"),
        ({"local_steps": 2, "clipping": "gradient"}, "may be clipped"),
        ({"local_steps": 2, "server_step": 1.5}, "overshoots"),
        ({"local_steps": 2, "local_step": 6.0}, "longer than"),
        ({"local_steps": 2, "sampled": 5, "sampling": "poisson"}, "more clients"),
        ({"local_steps": 2, "loss": Loss.nonconvex(smoothness=1.0)}, "not declared convex"),
    ],
)
def test_outsiders_get_the_clients_number_otherwise(changes, reason) -> None:
    g = outsiders(**changes)
    assert g.outsiders is None
    assert reason in g.why_no_better
    assert reason in str(g)
    assert g.epsilon(1e-5, against="outsiders") == g.epsilon(1e-5)


@pytest.mark.parametrize(
    ("sampling", "adjacency"),
    [("without-replacement", "zero-out"), ("poisson", "replace"), ("poisson", "zero-out")],
)
def test_outsiders_have_theorems_for_every_draw(sampling, adjacency) -> None:
    g = outsiders(sampled=5, sampling=sampling, adjacency=adjacency)
    assert g.outsiders is not None
    assert g.outsiders.theorem.hidden_state
    assert g.epsilon(1e-5, "outsiders") < 0.95 * g.epsilon(1e-5)


def test_shown_models_are_paid_for() -> None:
    hidden, shown = outsiders(), outsiders(releases=(100, 200))
    assert shown.epsilon(1e-5, "outsiders") > 1.2 * hidden.epsilon(1e-5, "outsiders")
    assert shown.epsilon(1e-5) == hidden.epsilon(1e-5)
    for wrong in (401, 0, 1.5, "1"):
        with pytest.raises(DescriptionError, match="releases"):
            outsiders(releases=(wrong,), loss=None)
    spoiled = FederatedGuarantee(hidden.federation, spoiled="every model was shown")
    assert spoiled.epsilon(1e-5, "outsiders") == hidden.epsilon(1e-5)


def test_silent_clients_do_not_contract() -> None:
    """Strong convexity of the clients' objectives must not count: they may not answer.

    Of 50 clients with F = (theta - a)^2/2 only the differing one answers. The run is then linear,
    theta <- (1 - step/50) theta + step a/50 + noise, and its last iterate is a Gaussian whose
    separation is known.
    """
    step, rounds, noise = 0.5, 60, 3.0
    c = 1 - step / 50
    powers = c ** np.arange(rounds)
    true_mu = 2.0 * powers.sum() / (noise * math.sqrt((powers**2).sum()))
    strong = Loss(smoothness=1.0, strong_convexity=1.0)
    g = account_federated(
        50,
        50,
        rounds,
        1.0,
        noise,
        loss=strong,
        clipping="none",
        server_step=step,
        adjacency="replace",
    )
    assert account(g.training, strong).mu < 0.5 * true_mu  # what a full house would get
    assert g.outsiders is not None
    assert g.outsiders.mu >= true_mu
    assert g.epsilon(1e-5, "outsiders") >= gaussian.epsilon(true_mu, 1e-5) * (1 - 1e-9)


def test_lost_rounds_still_count_against_clients() -> None:
    whole = outsiders()
    crashed = FederatedGuarantee(whole.federation, kept=40)
    assert crashed.epsilon(1e-5) == whole.epsilon(1e-5)
    assert crashed.epsilon(1e-5, "outsiders") <= whole.epsilon(1e-5, "outsiders")
    with pytest.raises(DescriptionError, match="kept"):
        FederatedGuarantee(whole.federation, kept=401)


def test_generalization_to_new_clients() -> None:
    """A record of the bound is a client; a zeroed client counts as two changes."""
    found = generalization(account_federated(10_000, 100, 20, 1.0, 20.0, sampling="poisson"))
    assert found.records == 10_000
    g = account_federated(10_000, 100, 20, 1.0, 20.0, sampling="poisson")
    assert found.best_expected.value == pytest.approx(2 * g.delta(0.0), rel=1e-6)
    assert found.population_risk(0.1) >= 0.1
    replaced = account_federated(10_000, 10_000, 20, 1.0, 400.0, adjacency="replace")
    expected = 2 * 0.5 * math.erf(replaced.mu / math.sqrt(8))
    assert generalization(replaced).expected == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"clients": 0}, "clients"),
        ({"sampled": 11}, "sampled"),
        ({"sampled": 2.5}, "sampled"),
        ({"rounds": -1}, "rounds"),
        ({"clip": 0.0}, "clip"),
        ({"noise_multiplier": math.nan}, "noise_multiplier"),
        ({"sampling": "shuffled"}, "sampling"),
        ({"adjacency": "remove"}, "adjacency"),
        ({"server_step": 0.0}, "server_step"),
        ({"local_steps": 0}, "local_steps"),
        ({"loss": "convex"}, "loss"),
        ({"clipping": "margin"}, "clipping"),
    ],
)
def test_bad_descriptions_name_their_field(change, field) -> None:
    good = {"clients": 10, "sampled": 2, "rounds": 3, "clip": 1.0, "noise_multiplier": 1.0}
    with pytest.raises(DescriptionError, match=field):
        account_federated(**good | change)


def test_only_two_audiences_are_known() -> None:
    with pytest.raises(DescriptionError, match="against"):
        account_federated(10, 2, 3, 1.0, 1.0, adjacency="replace").epsilon(1e-5, against="everyone")


@given(
    clients=st.integers(1, 50),
    rounds=st.integers(0, 9),
    loss=st.sampled_from([None, SMOOTH, Loss.unknown()]),
)
def test_descriptions_survive_text(clients, rounds, loss) -> None:
    run = Federation(clients, 1, rounds, 0.5, 1.5, loss=loss, adjacency="replace")
    assert Federation.from_json(run.to_json()) == run
    assert Federation.from_toml(run.to_toml()) == run
