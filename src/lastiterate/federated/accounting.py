"""The two privacy numbers of a federated run.

Clients receive the model of every round: against them all rounds count, composed as a privacy-loss
distribution. Outsiders see the last model only: against them the last-iterate theorems apply, if
the objective is convex and a client's update is one gradient step, so that the run is a `Training`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from lastiterate.accounting import account
from lastiterate.curves.base import Curve
from lastiterate.curves.gaussian import Gaussian
from lastiterate.curves.loss_distribution import LossDistribution
from lastiterate.description import Loss, Training
from lastiterate.description.failure import warn_of_large_delta
from lastiterate.description.validation import number, one_of
from lastiterate.description.words import Assumption
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.federated.federation import Federation
from lastiterate.guarantee import Guarantee
from lastiterate.printing import printed

_UP = 1 + 2**-50
Audience = Literal["clients", "outsiders"]

NOT_COVERED = (
    "metrics that clients report without noise",
    "who took part in a round, if traffic or logs show it",
    "one person behind several clients, whose protection is that of a group",
    "choices made by looking at the clients' data: hyper-parameters, the clip, categories",
    "other runs with the same clients",
    "the number of clients, which is treated as public",
)


def account_federated(
    clients: int,
    sampled: float,
    rounds: int,
    clip: float,
    noise_multiplier: float,
    *,
    sampling: str = "without-replacement",
    adjacency: str | None = None,
    server_step: float = 1.0,
    local_step: float = 1.0,
    local_steps: int = 1,
    loss: Loss | None = None,
    clipping: str = "gradient",
    releases: Iterable[int] = (),
) -> FederatedGuarantee:
    """The privacy of one client's whole data in federated averaging with central noise.

    ``noise_multiplier`` is the standard deviation of the noise over ``clip``, both of the *summed*
    updates. The other fields are those of `Federation`; ``releases`` are rounds after which the
    model is shown to outsiders besides the last one.

    Args:
        clients: how many there are.
        sampled: how many are drawn in a round, on average for Poisson sampling.
        rounds: how many rounds.
        clip: length that every client's update is clipped to.
        noise_multiplier: of the summed updates.
        sampling: "without-replacement" or "poisson".
        adjacency: "replace" or "zero-out" one client; what the sampling allows by default.
        server_step: factor on the averaged update.
        local_step, local_steps: step size and number of steps of a client.
        loss: what is known about the loss, for a bound on the last model alone.
        clipping: how ``clip`` is enforced on a client.
        releases: rounds after which outsiders see the model too.

    >>> g = account_federated(clients=200, sampled=20, rounds=50, clip=1.0, noise_multiplier=2.0)
    >>> round(g.epsilon(1e-5), 2), g.epsilon(1e-5, against="outsiders") <= g.epsilon(1e-5)
    (5.54, True)
    """
    fields: dict[str, Any] = {
        "sampling": sampling,
        "adjacency": adjacency,
        "server_step": server_step,
        "local_step": local_step,
        "local_steps": local_steps,
        "loss": loss,
        "clipping": clipping,
    }
    federation = Federation(clients, sampled, rounds, clip, noise_multiplier, **fields)
    return FederatedGuarantee(federation, releases=tuple(releases))


def rounds_curve(federation: Federation) -> Curve:
    """What all rounds together show of one client, in both orders; z is the noise multiplier.

    - Every client in every round: each round is a Gaussian of mu = 2/z (replace), 1/z (zero-out).
    - Without replacement, replace: the profile q G_mu(log(1 + (e^eps - 1)/q)), mu = 2/z. Exact for
      one round: other clients who all send the replacing client's update attain it.
    - Without replacement, zero-out: the same with mu = 2/z, by advanced joint convexity (Balle,
      Barthe, Gaboardi 2018). A drawn client displaces another one, who may send the opposite, so
      the sampled Gaussian of 1/z is too small here.
    - Poisson, zero-out: (1 - q) N(0, 1) + q N(1/z, 1) against N(0, 1).

    Rounds compose adaptively, each dominated by its pair whatever the model is that it starts from;
    so it does not matter how the other clients compute their updates. Status: corrected (He, Wang &
    Tao 2020, Theorem 8, which claims less).
    """
    z, rate = federation.noise_multiplier, min(federation.rate * _UP, 1.0)
    alone = federation.adjacency == "zero-out" and (
        federation.sampling == "poisson" or federation.everybody
    )
    moves = (1.0 if alone else 2.0) + 2 * federation.rounding  # of the computed sum, over clip
    mu = moves / z * _UP if z > 0.0 else math.inf
    if federation.rounds == 0:
        return Gaussian(0.0)
    if federation.everybody:
        return Gaussian(mu * math.sqrt(federation.rounds) * _UP)
    if federation.sampling == "poisson":
        return LossDistribution.sampled_gaussian(rate, mu).self_compose(federation.rounds)
    return LossDistribution.replaced(rate, mu).self_compose(federation.rounds)


@dataclass(frozen=True)
class FederatedGuarantee:
    """The privacy of one client: against the other clients, and against outsiders.

    ``federation.rounds`` counts every noisy model that may have left the server. ``kept`` says how
    many of them lie behind the last model (fewer after a crash); ``releases`` after which of those
    the model was shown to outsiders; ``spoiled`` why nothing was hidden from them, if so.

    `epsilon`, `delta` and `rdp` answer for the clients unless asked otherwise: that number holds
    against everybody.
    """

    federation: Federation
    releases: tuple[int, ...] = ()
    kept: int | None = None
    spoiled: str = ""

    def __post_init__(self) -> None:
        last = self.federation.rounds
        if self.kept is not None:
            why = "the last model cannot have more rounds behind it than were run"
            last = int(number("kept", self.kept, why, at_least=0, at_most=last))
        for round_ in self.releases:
            if not 1 <= round_ <= last:
                why = "only models of the run can be shown"
                raise DescriptionError("releases", round_, f"between 1 and {last}", why)

    @property
    def training(self) -> Training:
        """The run as a `Training` whose records are the clients."""
        return self.federation.training

    @cached_property
    def curve(self) -> Curve:
        """All rounds together: what clients see."""
        return rounds_curve(self.federation)

    @cached_property
    def _last_iterate(self) -> Guarantee | str:
        run, loss = self.federation, self.federation.loss
        if self.spoiled:
            return self.spoiled
        if loss is None:
            return "nothing is declared about the clients' objective (loss)"
        if not loss.convex:
            return "the clients' objective is not declared convex"
        if run.local_steps != 1:
            return "an update of several local steps is not a gradient step"
        # A client who does not answer is, that round, one with a constant objective: convex and
        # smooth, but not strongly convex. So only the server's own L2 term may contract.
        weaker = dataclasses.replace(loss, strong_convexity=0.0)
        steps = run.rounds if self.kept is None else self.kept
        try:
            return account(run.training.replace(steps=steps), weaker, releases=self.releases)
        except UnsupportedError:
            return "no last-iterate theorem covers this sampling and adjacency"

    @property
    def outsiders(self) -> Guarantee | None:
        """The last-iterate guarantee against outsiders, if there is one."""
        found = self._last_iterate
        return found if isinstance(found, Guarantee) and found.bounds else None

    @property
    def why_no_better(self) -> str:
        """Why outsiders get the clients' number, or "" if they have one of their own."""
        if self.outsiders is not None:
            return ""
        found = self._last_iterate
        return found if isinstance(found, str) else "no last-iterate theorem applies"

    def epsilon(self, delta: float, against: Audience = "clients") -> float:
        """The smallest proved epsilon at this delta."""
        why = "it is the probability with which the epsilon may fail"
        delta = number("delta", delta, why, above=0.0, at_most=1.0)
        warn_of_large_delta(delta, self.federation.clients)
        everybody = self.curve.epsilon(delta)
        hidden = self._against(against)
        return everybody if hidden is None else min(everybody, hidden.epsilon(delta))

    def delta(self, epsilon: float, against: Audience = "clients") -> float:
        """The smallest proved delta at this epsilon."""
        why = "it bounds the privacy loss that delta allows to exceed"
        epsilon = number("epsilon", epsilon, why, at_least=0.0)
        everybody = self.curve.delta(epsilon)
        hidden = self._against(against)
        return everybody if hidden is None else min(everybody, hidden.delta(epsilon))

    def rdp(self, order: float, against: Audience = "clients") -> float:
        """The smallest proved Renyi divergence of this order."""
        everybody = self.curve.rdp(order)
        hidden = self._against(against)
        return everybody if hidden is None else min(everybody, hidden.rdp(order))

    @property
    def mu(self) -> float | None:
        """mu of Gaussian differential privacy against the clients; None if not one Gaussian."""
        return self.curve.mu

    def _against(self, audience: str) -> Guarantee | None:
        why = "clients see every round, outsiders the last model only"
        one_of("against", audience, ("clients", "outsiders"), why)
        return self.outsiders if audience == "outsiders" else None

    @property
    def provenance(self) -> str:
        """Who vouches for what the clients' number rests on: it needs nothing of the loss."""
        return "proved"

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What the numbers rest on, and who vouches for it."""
        run = self.federation
        found = [
            Assumption(f"no update counts for more than {run.clip:g}", "clipping by the server"),
            Assumption(
                f"rounding moves no sum of updates by more than {run.rounding * run.clip:.3g}",
                "sums in double precision by the server",
            ),
            Assumption("the server is trusted with the updates", "whoever runs it"),
            Assumption("the noise is Gaussian and unpredictable", "the noise source"),
            Assumption("the starting model does not depend on the clients' data", "the server"),
        ]
        if not run.everybody:
            found.append(Assumption("who takes part in a round stays secret", "the server"))
        if self.outsiders is not None:
            honest = (
                f"against outsiders: every client answers with one gradient step on an objective "
                f"that is {run.loss}, whether it answers does not depend on the model, and no "
                f"client passes a model on"
            )
            found.append(Assumption(honest, "the clients"))
        return tuple(found)

    def __str__(self) -> str:
        run = self.federation
        change = {
            "replace": "replacing one client by any other",
            "zero-out": "replacing one client's updates by zero",
        }[str(run.adjacency)]
        drawn = {
            "without-replacement": f"{run.sampled:g} drawn without replacement in each",
            "poisson": f"{run.sampled:g} expected by Poisson sampling in each",
        }[run.sampling]
        lines = [
            f"What is protected: all data of each single client of {run.clients:,}; {change}.",
            f"The run: {run.rounds:,} rounds, {drawn}, clip {run.clip:g}, noise multiplier "
            f"{run.noise_multiplier:g}.",
            f"Against other clients, who see the model of every round: {self._numbers('clients')}.",
        ]
        if self.outsiders is None:
            lines.append(
                f"Against outsiders, who see the last model: the same numbers, because "
                f"{self.why_no_better}."
            )
        else:
            if self.outsiders.provenance == "estimated":
                lines.insert(0, "NOT A GUARANTEE against outsiders: the loss was only estimated.")
            shown = "the last model"
            if self.releases:
                shown = f"the models after rounds {', '.join(map(str, self.releases))} and the last"
            lines.append(
                f"Against outsiders, who see {shown}: {self._numbers('outsiders')} "
                f"({self.outsiders.theorem.name})."
            )
        lines.append("It rests on: " + "; ".join(map(str, self.assumptions)) + ".")
        lines.append("Not covered: " + "; ".join(NOT_COVERED) + ".")
        return "\n".join(lines)

    def _numbers(self, audience: Audience) -> str:
        return ", ".join(
            f"epsilon = {printed(self.epsilon(delta, audience))} at delta = {printed(delta)}"
            for delta in (1e-5, 1e-6)
        )
