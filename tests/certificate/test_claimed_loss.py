"""What a caller says about a loss after the run never contradicts what the run itself knows."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest

pytest.importorskip("flint")

from lastiterate import (
    AssumptionError,
    CertificateChain,
    Cyclic,
    DescriptionError,
    FullBatch,
    LifetimeBudget,
    Loss,
    Shuffled,
    TailAverage,
    Training,
    UnsupportedError,
    account,
)
from lastiterate.curves import gaussian
from lastiterate.description.loss import accepted_loss
from lastiterate.losses import BallSoftmax, Huber, Logistic, Softmax, SquaredError
from lastiterate.sampling import logistic_likelihood, sgld, sgld_training
from lastiterate.sampling.returned import Returned
from lastiterate.train import noisy_descent

DELTA = 1e-5
RUN = Training(
    records=10,
    steps=20,
    step_size=1.0,
    noise=0.5,
    gradient_norm=1.0,
    batches=FullBatch(),
    adjacency="replace",
)
X, Y = np.eye(10)[:, :2] * 0.5, np.zeros(10)


def released(objective=None, l2=0.0, **fields):
    objective = SquaredError(1.0) if objective is None else objective
    run = RUN.replace(**fields)
    return noisy_descent(objective, X, run, labels=Y, regularization=l2, feature_bound=1.0)


def of_function(l2=0.0):
    run = RUN.replace(clipping="gradient")
    return noisy_descent(
        lambda theta, rows: -X[rows], None, run, start=np.zeros(2), regularization=l2
    )


def test_an_l2_term_that_did_not_run_is_refused():
    """A record without features keeps its push: the exact law has mu = √steps·2ηK/(n·noise)."""
    done = released()
    for l2 in (0.5, 1e-3):
        with pytest.raises(DescriptionError, match=r"loss\.regularization"):
            done.certificate(DELTA, loss=Loss(smoothness=1.0, regularization=l2))
    truth = gaussian.epsilon(np.sqrt(20) * 2 / 10 / 0.5, DELTA)
    for claimed in (None, Loss(smoothness=1.0), Loss.unknown(), Loss.nonconvex(smoothness=2.0)):
        assert done.certificate(DELTA, loss=claimed).epsilon >= truth * (1 - 1e-9)


@pytest.mark.parametrize("make", [released, of_function])
def test_the_l2_term_is_stored_and_wins(make):
    done = make(l2=0.25)
    assert done.regularization == 0.25
    for claimed in (Loss(smoothness=1.0), Loss.unknown(regularization=0.3)):
        with pytest.raises(DescriptionError, match=r"loss\.regularization"):
            done.certificate(DELTA, loss=claimed)
    assert done.certificate(DELTA, loss=Loss.unknown()).loss.regularization == 0.25
    close = Loss(smoothness=1.0, regularization=0.25 * (1 + 1e-12))
    assert done.certificate(DELTA, loss=close).loss.regularization == 0.25


@pytest.mark.parametrize(
    "claimed",
    [
        Loss(smoothness=0.9),
        Loss(smoothness=1.0, strong_convexity=0.5),
        Loss.nonconvex(smoothness=0.5),
        Loss.holder(constant=0.1, exponent=0.5),
    ],
    ids=str,
)
def test_proved_constants_win_over_declared_ones(claimed):
    with pytest.raises(DescriptionError, match="the run's own loss"):
        released().certificate(DELTA, loss=claimed)


def test_a_claim_does_not_import_the_proof_of_another_loss():
    proved = Logistic().regularity(1.0)
    assert proved.provenance == "proved"
    certificate = of_function().certificate(DELTA, loss=proved)
    assert certificate.loss.provenance == "declared"
    assert certificate.loss.origin is None
    own = released()
    assert own.certificate(DELTA, loss=own.loss).loss.provenance == "proved"


KNOWN = [
    Logistic().regularity(1.0),
    Logistic().regularity(1.0, regularization=0.3),
    SquaredError(1.0).regularity(2.0, regularization=0.1),
    Huber(0.5).regularity(1.0),
    Softmax(3).regularity(1.0, regularization=0.2),
    BallSoftmax(3, radius=0.5).regularity(1.0),
    Loss.unknown(regularization=0.4),
    Loss.holder(constant=1.0, exponent=0.5),
    Loss.nonconvex(smoothness=1.0),
]


@pytest.mark.parametrize("batches", [FullBatch(), Cyclic(5), Shuffled(5)], ids=str)
@pytest.mark.parametrize("known", KNOWN, ids=str)
def test_no_accepted_claim_contradicts_what_is_known(known, batches):
    """Whatever may be claimed of a known loss leaves epsilon where it is, or raises it."""
    run = RUN.replace(batches=batches, step_size=0.5)
    least, l2 = account(run, known).epsilon(DELTA) * (1 - 1e-9), known.regularization
    smoothness = known.smoothness or 1.0
    claims = [None]
    for factor in (0.5, 0.999, 1.0, 1.5, math.inf):
        for other in {0.0, l2, l2 * (1 + 1e-6), 5.0}:
            claims.append(Loss.nonconvex(smoothness=smoothness * factor, regularization=other))
            if factor < math.inf:
                claims.append(
                    Loss.holder(constant=smoothness * factor, exponent=0.5, regularization=other)
                )
            for strong in (0.0, 1e-6, smoothness * factor / 2):
                if strong < math.inf:
                    claims.append(Loss(smoothness * factor, strong, other))
    accepted = []
    for claim in claims:
        try:
            accepted.append(accepted_loss(claim, known))
        except DescriptionError:
            continue
        assert accepted[-1].regularization == l2
        if known.kind != "unknown":
            assert account(run, accepted[-1]).epsilon(DELTA) >= least
    assert 1 < len(accepted) < len(claims)


def test_a_chain_does_not_take_another_l2_term_either(tmp_path):
    chain = CertificateChain.create(tmp_path / "chain", LifetimeBudget(mu=40.0))
    with pytest.raises(DescriptionError, match=r"loss\.regularization"):
        chain.append(of_function(), DELTA, loss=Loss(smoothness=1.0, regularization=0.5))
    assert len(chain) == 0


def test_networks_store_their_l2_term():
    torch = pytest.importorskip("torch")
    from lastiterate.torch import noisy_module_descent

    done = noisy_module_descent(
        torch.nn.Linear(2, 2),
        torch.nn.CrossEntropyLoss(),
        torch.zeros(10, 2),
        torch.zeros(10, dtype=torch.int64),
        RUN.replace(clipping="gradient"),
        regularization=0.1,
    )
    assert done.regularization == 0.1
    for l2 in (0.0, 0.5):
        with pytest.raises(DescriptionError, match=r"loss\.regularization"):
            done.certificate(DELTA, loss=Loss(smoothness=1.0, regularization=l2))


# --- samplers -----------------------------------------------------------------------------------


def chains(**settings):
    fields = {"steps": 20, "step_size": 0.01, "clip": 1.0, "burn_in": 19, **settings}
    likelihood = logistic_likelihood()
    return sgld(likelihood, X, np.resize([0.0, 1.0], 10), np.zeros((1, 2)), **fields)


def test_a_sampler_knows_its_gaussian_prior():
    samples = chains(prior_precision=3.0)
    with pytest.raises(DescriptionError, match=r"loss\.regularization"):
        samples.guarantee(Loss(smoothness=1.0, regularization=30.0))
    found = samples.guarantee(Loss(smoothness=1.0, regularization=3.0 / 10))
    assert found.loss.regularization == samples.returned.regularization == 3.0 / 10
    assert samples.guarantee().loss.regularization == 3.0 / 10


def test_a_prior_of_the_callers_own_is_no_l2_term():
    """Three steps of two batches; the prior keeps the sign of an iterate and nothing else.

    The record is used in the first and the last step. The sign of the first iterate survives the
    noise of the second step, so the last iterate holds a bit of the first step and a Gaussian of
    the last one. Their exact law is above the bound for runs whose data-free part is no expansion.
    """

    def sign(theta):
        return 2 * (100 * np.sign(theta) - theta)

    samples = chains(steps=3, step_size=1.0, burn_in=2, prior_gradient=sign, batches=Cyclic(5))
    with pytest.raises(UnsupportedError, match="prior_gradient"):
        samples.guarantee(Loss(smoothness=1.0))
    right = NormalDist().cdf(1.0)  # the two worlds are 2 deviations apart in a step
    odds = math.log(right / (1 - right)) / 2
    normal = NormalDist(1.0)
    more = right * (1 - normal.cdf(-odds)) + (1 - right) * (1 - normal.cdf(odds))
    truth = 2 * more - 1
    flat = replace(samples.returned, regularization=0.0)
    assert flat.guarantee(Loss(smoothness=0.0), "replace").delta(0.0) < truth
    assert samples.guarantee(adjacency="replace").delta(0.0) >= truth
    assert samples.training.release == TailAverage(3)


def test_returned_iterates_are_of_a_flat_prior_unless_they_say_another():
    chain = sgld_training(10, 5, 1e-3, clip=1.0, batches=FullBatch(), adjacency="replace")
    with pytest.raises(DescriptionError, match=r"loss\.regularization"):
        Returned(chain, (5,)).guarantee(Loss(smoothness=0.0, regularization=0.5))


def test_no_claim_makes_two_trained_layers_convex():
    """Epsilon 24 of composition became 15 by the word of whoever asked for the certificate."""
    torch = pytest.importorskip("torch")
    from lastiterate.torch import noisy_module_descent

    def ran(net):
        run = RUN.replace(clipping="gradient", batches=Cyclic(2), steps=5)
        labels = torch.zeros(10, dtype=torch.int64)
        return noisy_module_descent(
            net, torch.nn.CrossEntropyLoss(), torch.eye(10)[:, :2], labels, run
        )

    deep = ran(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)))
    for claimed in (Loss(smoothness=1.0), Loss(smoothness=1.0, strong_convexity=0.1)):
        with pytest.raises(AssumptionError, match="2 of the network's layers are trained"):
            deep.certificate(DELTA, loss=claimed)
    for claimed in (Loss.unknown(), Loss.nonconvex(smoothness=1.0)):
        assert deep.certificate(DELTA, loss=claimed).epsilon > 0
    frozen = torch.nn.Linear(2, 3).requires_grad_(False)
    head = ran(torch.nn.Sequential(frozen, torch.nn.Tanh(), torch.nn.Linear(3, 2)))
    assert head.certificate(DELTA, loss=Loss(smoothness=1.0)).loss.convex
