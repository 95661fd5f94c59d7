"""The two privacy numbers of a federated run, both from the ledger.

A federation is a `Training` whose records are its clients. Clients receive the model of every
round: against them that run is accounted with all iterates released and nothing known about the
loss. Outsiders see the last model only: against them the last-iterate theorems apply, if the
objective is convex and a client's update is one gradient step, or several that nothing clips.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from lastiterate._internal.formatting import printed
from lastiterate.accounting import account
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.certificate import Certificate, certify
from lastiterate.description import Loss, TailAverage, Training
from lastiterate.description.assumptions import Assumption, not_covered
from lastiterate.description.fields import (
    checked_delta,
    integer,
    number,
    one_of,
    warn_of_large_delta,
)
from lastiterate.errors import DescriptionError
from lastiterate.federated.federation import Federation

Audience = Literal["clients", "outsiders"]

UNIT = "a record is one client's whole data"  # in the label of every federated certificate

_ALIKE = "a step is a round of {:,} local steps, and its L2 term has their contraction"

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
    adjacency: str = "zero-out",
    server_step: float = 1.0,
    local_step: float = 1.0,
    local_steps: int = 1,
    loss: Loss | None = None,
    clipping: str = "gradient",
    releases: Iterable[int] = (),
    parameters: int | None = None,
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
        adjacency: "zero-out" or "replace" one client.
        server_step: factor on the averaged update.
        local_step, local_steps: step size and number of steps of a client (see `Federation`).
        loss: what is known about the loss, for a bound on the last model alone.
        clipping: how ``clip`` is enforced on a client.
        releases: rounds after which outsiders see the model too.
        parameters: how many numbers the model has: then the grid that noise is added on is known.

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
        "parameters": parameters,
    }
    federation = Federation(clients, sampled, rounds, clip, noise_multiplier, **fields)
    return FederatedGuarantee(federation, releases=tuple(releases))


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
            last = int(number("kept", self.kept, at_least=0, at_most=last))
        why = "only models of the run can be shown"
        for round_ in self.releases:
            if integer("releases", round_) > last:
                raise DescriptionError("releases", round_, f"between 1 and {last}", why)

    @property
    def training(self) -> Training:
        """The run as a `Training` whose records are the clients."""
        return self.federation.training

    @cached_property
    def clients(self) -> Guarantee:
        """Against the other clients: every model is released, and nothing need be known of a loss.

        The server clips every update, whatever the objective promises.
        """
        run = self.training.replace(clipping="gradient")
        if run.steps:
            run = run.replace(release=TailAverage(run.steps))
        return account(run, Loss.unknown())

    @cached_property
    def _last_iterate(self) -> Guarantee | str:
        run, loss = self.federation, self.federation.loss
        if self.spoiled:
            return self.spoiled
        if loss is None:
            return "nothing is declared about the clients' objective (loss)"
        if not loss.convex:
            return "the clients' objective is not declared convex"
        steps = run.rounds if self.kept is None else self.kept
        training = run.training.replace(steps=steps)
        if run.local_steps != 1:
            alike = run.one_step()
            if isinstance(alike, str):
                return alike
            return account(training, alike, releases=self.releases)
        # A client who does not answer is, that round, one with a constant objective: convex and
        # smooth, but not strongly convex. So only the server's own L2 term may contract. And
        # whatever constants were proved, that clients compute this loss is their word.
        weaker = dataclasses.replace(loss, strong_convexity=0.0, origin=None)
        return account(training, weaker, releases=self.releases)

    @property
    def outsiders(self) -> Guarantee | None:
        """Against outsiders, who see the last model; None if nothing was hidden from them."""
        found = self._last_iterate
        return found if isinstance(found, Guarantee) else None

    @property
    def why_no_better(self) -> str:
        """Why outsiders get the clients' number, or "" if they have one of their own."""
        found = self._last_iterate
        return found if isinstance(found, str) else ""

    def epsilon(self, delta: float, against: Audience = "clients") -> float:
        """The smallest proved epsilon at this delta."""
        found = min(each.epsilon(delta) for each in self._against(against))
        warn_of_large_delta(delta, self.federation.clients)
        return found

    def delta(self, epsilon: float, against: Audience = "clients") -> float:
        """The smallest proved delta at this epsilon."""
        return min(each.delta(epsilon) for each in self._against(against))

    def rdp(self, order: float, against: Audience = "clients") -> float:
        """The smallest proved Renyi divergence of this order."""
        return min(each.rdp(order) for each in self._against(against))

    @property
    def mu(self) -> float | None:
        """mu of Gaussian differential privacy against the clients; None if not one Gaussian."""
        return self.clients.mu

    def _against(self, audience: str) -> tuple[Guarantee, ...]:
        """What holds against them: all that clients see bounds what outsiders see, too."""
        one_of("against", audience, ("clients", "outsiders"))
        hidden = self.outsiders if audience == "outsiders" else None
        return (self.clients,) if hidden is None else (self.clients, hidden)

    def certificate(
        self, delta: float, against: Audience = "clients", *, dataset: str = ""
    ) -> Certificate:
        """The certificate against one of the two audiences; `lastiterate.verify` checks it.

        Its records are the clients, and its label says so after ``dataset``: it composes with
        certificates about the same clients only. See `lastiterate.certify`.

        >>> g = account_federated(clients=100, sampled=10, rounds=5, clip=1.0, noise_multiplier=3.0)
        >>> certificate = g.certificate(delta=1e-5, dataset="phones 2024")
        >>> certificate.dataset, certificate.epsilon >= g.epsilon(1e-5)
        ("phones 2024; a record is one client's whole data", True)
        """
        delta = checked_delta(delta, self.federation.clients)
        best = min(self._against(against), key=lambda each: each.epsilon(delta))
        if isinstance(dataset, str):  # `certify` refuses any other label
            label = UNIT
            if self.federation.local_steps > 1 and best is not self.clients:
                label = f"{UNIT}; {_ALIKE.format(self.federation.local_steps)}"
            dataset = f"{dataset}; {label}" if dataset else label
        return certify(
            best.training,
            best.loss,
            delta,
            dataset=dataset,
            releases=best.run.releases[:-1],
        )

    @property
    def provenance(self) -> str:
        """Who vouches for what the clients' number rests on: it needs nothing of the loss."""
        return self.clients.provenance

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
            Assumption(self._noise, "the noise source"),
            Assumption("the starting model does not depend on the clients' data", "the server"),
        ]
        if not run.everybody:
            found.append(Assumption("who takes part in a round stays secret", "the server"))
        if self.outsiders is not None:
            count = "one gradient step"
            if run.local_steps > 1:
                count = f"{run.local_steps:,} gradient steps of {run.local_step:g}, none clipped"
            if run.clipping == "none":
                count += f" (no longer than {run.clip:g} in all)"
            honest = (
                f"against outsiders: every client answers with {count} on an objective "
                f"that is {run.loss} (what its own floats round is not counted), whether it "
                f"answers does not depend on the model, and no client passes a model on"
            )
            found.append(Assumption(honest, "the clients"))
        return tuple(found)

    @property
    def _noise(self) -> str:
        said, size = "the noise is Gaussian and unpredictable", self.federation.parameters
        if size is None or not self.training.grid_rounding:
            return said
        grid = self.federation.spacing(size)
        return f"{said}, rounded and added to multiples of {grid!r} in {size:,} coordinates"

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
        machine = not_covered(self.training)[-1]
        lines.append("Not covered: " + "; ".join((*NOT_COVERED, machine)) + ".")
        return "\n".join(lines)

    def _numbers(self, audience: Audience) -> str:
        return ", ".join(
            f"epsilon = {printed(self.epsilon(delta, audience))} at delta = {printed(delta)}"
            for delta in (1e-5, 1e-6)
        )
