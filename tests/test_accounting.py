"""The accountant on whole descriptions: exact laws, reference numbers, properties, refusals."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate import (
    Cyclic,
    FullBatch,
    Loss,
    Poisson,
    RandomAllocation,
    Reshuffled,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    account,
    certify,
    compare,
    excess_risk,
    plateau,
)
from lastiterate._internal.formatting import printed
from lastiterate.errors import AssumptionError, DescriptionError
from lastiterate.theory.ordered_batches import HIDDEN_POSITION


def mnist(epochs: int, batches) -> Training:
    """Batch 1500 of 60000, sensitivity/(batch·noise per unit step) = 2/3, step 0.05."""
    return Training(
        records=60_000,
        steps=40 * epochs,
        step_size=0.05,
        noise=0.05 * (10 / 1500) * 1.5,
        gradient_norm=5.0,
        batches=batches,
        adjacency="replace",
    )


MNIST_LOSS = Loss(smoothness=0.25, regularization=0.002)


@pytest.mark.parametrize(
    ("epochs", "composition", "worst", "hidden"),
    [(50, 30.5, 4.34, 3.43), (100, 49.9, 5.60, 4.79), (200, 83.8, 7.58, 6.88)],
)
def test_mnist_line(epochs, composition, worst, hidden):
    published = account(mnist(epochs, Cyclic(1500)), Loss.unknown())
    assert published.epsilon(1e-5) == pytest.approx(composition, abs=0.05)
    assert account(mnist(epochs, Cyclic(1500)), MNIST_LOSS).epsilon(1e-5) == pytest.approx(
        worst, abs=0.005
    )
    shuffled = account(mnist(epochs, Shuffled(1500)), MNIST_LOSS)
    assert shuffled.epsilon(1e-5) == pytest.approx(hidden, abs=0.005)


def headline(multiplier: float, batches) -> Training:
    return Training.dp_sgd(
        records=1_000_000,
        steps=1000,
        step_size=1.0,
        noise_multiplier=multiplier,
        clip=1.0,
        batches=batches,
        clipping="none",
        schedule="equalised",
    )


@pytest.mark.parametrize("batches", [Cyclic(1000), Shuffled(1000)])
def test_headline_noise_multiplier(batches):
    loss = Loss(smoothness=0.25)
    assert account(headline(0.134, batches), loss).epsilon(1e-6) <= 1.0
    assert account(headline(0.1335, batches), loss).epsilon(1e-6) > 1.0
    rows = compare(headline(0.134, batches), loss, delta=1e-6, published=True)
    equalised = next(r for r in rows if r.theorem.key == "equalised-last-epoch")
    assert equalised.epsilon == pytest.approx(rows[0].epsilon, rel=1e-6)


def hockey_stick(means, others, sigma, epsilon):
    """H of a uniform mixture of N(m, sigma^2) against another, by fine integration."""
    grid = np.linspace(min(*means, *others) - 9 * sigma, max(*means, *others) + 9 * sigma, 6001)
    cells = [
        np.mean([np.diff(ndtr((grid - m) / sigma)) for m in group], axis=0)
        for group in (means, others)
    ]
    return np.maximum(cells[0] - math.exp(epsilon) * cells[1], 0).sum()  # merging cells lowers it


def random_run(rng, scheme):
    """Linear-quadratic run of a random declared class: description and exact mean per sequence."""
    batches = int(rng.integers(1, 5))
    steps = int(rng.integers(1, 3 * batches + 2))
    size = int(rng.integers(1, 4))
    low, high = np.sort(rng.uniform(0.0, 1.5, 2))
    l2 = float(rng.choice([0.0, 0.2]))
    constant = rng.random() < 0.5
    eta = rng.uniform(0.1, 1.0) if constant else rng.uniform(0.1, 1.0, steps)
    nu = rng.uniform(0.3, 1.5) if constant else rng.uniform(0.3, 1.5, steps)
    adjacency = str(rng.choice(["replace", "zero-out"]))
    training = Training(
        records=batches * size + int(rng.integers(0, size)),
        steps=steps,
        step_size=eta,
        noise=nu,
        gradient_norm=1.0,
        batches=scheme(size),
        adjacency=adjacency,
    )
    curvature = l2 + rng.uniform(low, high)
    factors = 1 - training.step_sizes * curvature
    later = np.array([np.prod(factors[k + 1 :]) for k in range(steps)])
    sigma = math.sqrt(float((training.noises**2 * later**2).sum()))
    impulse = training.step_sizes * (2.0 if adjacency == "replace" else 1.0) / size

    def mean(positions):
        """Gap of the means when epoch e reads the record at positions[e]."""
        steps_read = [e * batches + j for e, j in enumerate(positions)]
        return sum(impulse[k] * later[k] for k in steps_read if k < steps)

    return training, Loss(high, low, l2), batches, mean, sigma


def check_truth(training, guarantee, gaps, sigma, rng):
    if training.adjacency == "replace":
        means, others = [m / 2 for m in gaps], [-m / 2 for m in gaps]
    else:
        means, others = list(gaps), [0.0]
    for epsilon in (0.0, rng.uniform(0, 5)):
        bound = guarantee.delta(epsilon)
        for p, q in ((means, others), (others, means)):
            # The cells are differences of distribution functions: good to about 1e-15 each.
            assert bound >= hockey_stick(p, q, sigma, epsilon) - 1e-12


@pytest.mark.parametrize(
    ("scheme", "instances"),
    [
        (Cyclic, 100),
        (Shuffled, 100),
        (Reshuffled, 10),
        pytest.param(Reshuffled, 60, marks=pytest.mark.slow),
    ],
)
def test_exact_laws_of_ordered_batches(scheme, instances):
    rng = np.random.default_rng(21)
    for _ in range(instances):
        training, loss, batches, mean, sigma = random_run(rng, scheme)
        guarantee = account(training, loss)
        epochs = -(-training.steps // batches)
        if scheme is Reshuffled:
            sequences = list(itertools.product(range(batches), repeat=epochs))
            check_truth(training, guarantee, [mean(s) for s in sequences], sigma, rng)
        elif scheme is Shuffled:
            gaps = [mean((j,) * epochs) for j in range(batches)]
            check_truth(training, guarantee, gaps, sigma, rng)
        else:
            for j in range(batches):
                check_truth(training, guarantee, [mean((j,) * epochs)], sigma, rng)


def test_finer_descriptions_and_hidden_states_never_cost_more():
    rng = np.random.default_rng(22)
    for _ in range(60):
        training, loss, *_ = random_run(rng, Cyclic)
        size = training.batches.size
        worst = account(training, loss)
        hidden = account(training.replace(batches=Shuffled(size)), loss)
        published = account(training, Loss.unknown())
        for delta in (1e-2, 1e-6):
            assert hidden.epsilon(delta) <= worst.epsilon(delta) * (1 + 1e-9)
            assert worst.epsilon(delta) <= published.epsilon(delta) * (1 + 1e-9)
            louder = account(training.scale_noise(1.3), loss)
            assert louder.epsilon(delta) <= worst.epsilon(delta)
            assert worst.lower(delta) <= worst.epsilon(delta)
            assert hidden.lower(delta) <= hidden.epsilon(delta)
        more = training.replace(records=training.records + size)
        if more.batches_per_epoch == training.batches_per_epoch:
            assert account(more, loss).mu <= worst.mu * (1 + 1e-12)


def test_unknown_losses_fall_back_to_composition_and_say_so():
    for batches in (FullBatch(), Cyclic(10), Shuffled(10), Reshuffled(10)):
        run = Training(
            records=100,
            steps=25,
            step_size=0.1,
            noise=0.1,
            gradient_norm=1.0,
            batches=batches,
            adjacency="replace",
        )
        guarantee = account(run, Loss.unknown())
        assert guarantee.theorem.key == "gaussian-composition"
        assert guarantee.theorem.name in str(guarantee)
        assert guarantee.provenance == "declared"  # nothing but a word bounds the gradients
        assert account(run.replace(clipping="gradient"), Loss.unknown()).provenance == "proved"


def test_hoelder_losses_gain_from_a_bounded_domain():
    run = Training(
        records=1,
        steps=60,
        step_size=0.5,
        noise=1.0,
        gradient_norm=0.3,
        batches=FullBatch(),
        diameter=0.5,
        adjacency="replace",
    )
    loss = Loss.holder(constant=0.2, exponent=0.5)
    table = compare(run, loss, published=True)
    by_key = {row.theorem.key: row.epsilon for row in table}
    assert by_key["taut-string"] < by_key["gaussian-composition"]
    assert by_key["taut-string"] < by_key["chien-li-2025-3.7"]
    cyclic = account(run.replace(records=4, batches=Cyclic(1)), loss)
    assert cyclic.theorem.key == "worst-position"


def test_partial_epochs_and_dropped_records():
    run = Training(
        records=23,
        steps=7,
        step_size=0.1,
        noise=0.5,
        gradient_norm=1.0,
        batches=Shuffled(5),
        adjacency="replace",
    )
    assert run.dropped_records == 3
    assert "3 records dropped" in str(account(run, Loss(smoothness=1.0)))
    with pytest.raises(DescriptionError, match="size"):
        run.replace(batches=Shuffled(24))


def test_poisson_twin_is_shown_as_another_algorithm():
    table = compare(mnist(2, Shuffled(1500)), MNIST_LOSS)
    assert len(table.other_algorithms) == 1
    assert "does not draw Poisson batches" in table.other_algorithms[0].reason
    assert all(row.epsilon < table.other_algorithms[0].epsilon * 10 for row in table[:1])


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
def test_compare_says_what_random_allocation_would_give(adjacency):
    run = Training(
        records=1000,
        steps=20,
        step_size=0.1,
        noise=0.004,
        gradient_norm=1.0,
        batches=Shuffled(50),
        adjacency=adjacency,
    )
    table = compare(run, Loss(smoothness=1.0))
    twin = account(run.replace(batches=RandomAllocation(50)), Loss(smoothness=1.0)).epsilon(1e-5)
    assert twin < table[0].epsilon
    assert printed(twin) in table.random_allocation
    assert str(table).endswith(table.random_allocation)
    own = compare(run.replace(batches=RandomAllocation(50)), Loss(smoothness=1.0))
    assert own.random_allocation == ""
    assert compare(run.replace(batches=FullBatch()), Loss(smoothness=1.0)).random_allocation == ""


def test_checkpoints_of_a_shuffled_run_share_the_position():
    run = Training(
        records=20,
        steps=8,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=Shuffled(5),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0)
    joint = account(run, loss, releases=(4,))
    assert joint.epsilon(1e-4) > account(run, loss).epsilon(1e-4)
    average = HIDDEN_POSITION
    once = average.evaluate(run.replace(steps=4), loss).curve
    # Composing two independent averages would be too small: the hidden position is the same.
    shared = average.evaluate(run, loss, releases=(4,)).curve
    assert shared.delta(0.5) > once.compose(once).delta(0.5)
    tail = account(run.replace(release=TailAverage(3)), loss)
    assert tail.epsilon(1e-4) > account(run, loss).epsilon(1e-4)
    with pytest.raises(DescriptionError, match="releases"):
        account(run, loss, releases=(9,))


def test_reshuffled_releases_on_epoch_boundaries_only():
    run = Training(
        records=20,
        steps=8,
        step_size=0.5,
        noise=1.0,
        gradient_norm=1.0,
        batches=Reshuffled(5),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0)
    keys = [b.theorem.key for b in account(run, loss, releases=(3,)).bounds]
    assert keys == ["gaussian-composition"]
    assert account(run, loss, releases=(4,)).theorem.key == "reshuffled-exchange"


def test_plateaus():
    run = Training(
        records=5,
        steps=1,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    step = plateau(run, loss, 1e-5)
    limit = account(run.replace(steps=10**9), loss).epsilon(1e-5)
    assert account(run.replace(steps=step), loss).epsilon(1e-5) * 1.01 >= limit
    assert account(run.replace(steps=step - 1), loss).epsilon(1e-5) * 1.01 < limit
    assert plateau(run, Loss(smoothness=1.0), 1e-5) is None
    assert plateau(run.replace(diameter=1.0), Loss(smoothness=1.0), 1e-5) <= 60
    with pytest.raises(UnsupportedError, match="schedule"):
        plateau(run.replace(step_size=[0.1]), loss, 1e-5)


@pytest.mark.parametrize(
    "scheme", [Cyclic, Shuffled, pytest.param(Reshuffled, marks=pytest.mark.slow)]
)
def test_plateaus_in_whole_epochs(scheme):
    run = Training(
        records=20,
        steps=4,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=scheme(5),
        adjacency="replace",
    )
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    assert plateau(run, loss, 1e-5) % 4 == 0
    assert plateau(run, Loss(smoothness=1.0), 1e-5) is None
    # Many small batches look settled from one epoch to the next long before they are.
    many = run.replace(records=20_000, steps=4000)
    step = plateau(many, Loss(smoothness=1.0, regularization=1e-4), 1e-5)
    if scheme is not Reshuffled:
        far = account(many.replace(steps=4 * step), Loss(smoothness=1.0, regularization=1e-4))
        near = account(many.replace(steps=step), Loss(smoothness=1.0, regularization=1e-4))
        assert near.epsilon(1e-5) * 1.01 >= far.epsilon(1e-5)


@pytest.mark.slow
def test_plateau_of_batches_drawn_at_random():
    run = Training(
        records=1000,
        steps=1,
        step_size=0.1,
        noise=0.01,
        gradient_norm=1.0,
        batches=Poisson(0.01),
        adjacency="zero-out",
    )
    loss = Loss(smoothness=1.0, regularization=0.5)
    step = plateau(run, loss, 1e-5)
    limit = account(run.replace(steps=8 * step), loss).epsilon(1e-5)
    assert account(run.replace(steps=step), loss).epsilon(1e-5) * 1.011 >= limit
    assert plateau(run, Loss(smoothness=1.0), 1e-5) is None


def test_excess_risk_holds_on_a_quadratic():
    """d = 3, f = (lambda/2)|theta|^2 seen by every record: exact risk below the bound."""
    loss = Loss(smoothness=1.0, strong_convexity=1.0)
    run = Training.langevin(
        records=100,
        steps=200,
        step_size=0.5,
        sigma=0.1,
        gradient_sensitivity=2.0,
        gradient_norm=1.0,
        diameter=2.0,
        adjacency="replace",
    )
    c = 1 - 0.5
    variance = run.noises[0] ** 2 * (1 - c ** (2 * 200)) / (1 - c * c)
    exact = 3 * variance / 2 + (2 * c**200) ** 2 / 2  # started at distance 2L/lambda = 2
    assert exact <= excess_risk(run, loss, 3)
    for diameter in (math.inf, 2.1):  # Lipschitz and strongly convex: at most 2L/lambda = 2 wide
        with pytest.raises(AssumptionError, match="bounded domain"):
            excess_risk(run.replace(diameter=diameter), loss, 3)


def test_speed_does_not_depend_on_the_length_of_constant_runs():
    run = Training(
        records=5,
        steps=10**12,
        step_size=0.1,
        noise=1.0,
        gradient_norm=2.0,
        batches=FullBatch(),
        diameter=1.0,
        adjacency="replace",
    )
    for loss in (Loss(smoothness=1.0), Loss.nonconvex(smoothness=1.0)):
        assert math.isfinite(account(run, loss).epsilon(1e-5))
    assert len(compare(run, Loss(smoothness=1.0, strong_convexity=1.0), published=True)) >= 8


class Quiet(Training):
    """A description that counts in its own way."""

    @property
    def noises(self):
        return 1e9 * super().noises


class Gentle(Loss):
    pass


def test_descriptions_of_another_kind_are_refused():
    """A child could report anything, and swapped arguments are no description."""
    fields = dict(records=8, steps=6, step_size=0.1, noise=0.1, gradient_norm=1.0)
    run, loss = (
        Training(batches=FullBatch(), **({"adjacency": "replace"} | fields)),
        Loss(smoothness=1.0),
    )
    quiet = Quiet(batches=FullBatch(), **fields)
    for ask in (account, compare, lambda training, loss: certify(training, loss, 1e-5)):
        for pair in ((quiet, loss), (run, Gentle(smoothness=1.0)), (loss, run), (run, None)):
            with pytest.raises(DescriptionError, match=r"training|loss"):
                ask(*pair)


@pytest.mark.parametrize("releases", [3, None, True, "3", (2.5,), (True,), (0,), (-1,), (7,)])
def test_releases_that_name_no_step_are_refused(releases):
    fields = dict(records=8, steps=6, step_size=0.1, noise=0.1, gradient_norm=1.0)
    run = Training(batches=FullBatch(), **({"adjacency": "replace"} | fields))
    for ask in (account, compare):
        with pytest.raises(DescriptionError, match="releases"):
            ask(run, Loss(smoothness=1.0), releases=releases)
