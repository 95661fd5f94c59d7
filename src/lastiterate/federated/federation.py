"""One immutable description of a federated run, for the accountant and for the server.

Every round draws clients, sends them the model, clips each answer and updates

    θ ← θ + server_step·(sum of clipped updates + noise_multiplier·clip·N(0, I)) / sampled
          − server_step·local_step·regularization·θ

with the nominal number of sampled clients as divisor, however many really answer (He, Wang & Tao
2020, Algorithm 2).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from lastiterate.description import (
    Arithmetic,
    FullBatch,
    Loss,
    Poisson,
    Training,
    WithoutReplacement,
)
from lastiterate.description.portable import Portable, known_fields
from lastiterate.description.training import Adjacency
from lastiterate.description.validation import number, one_of, whole
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.train.grid import FINE
from lastiterate.train.summation import sum_error

Sampling = Literal["without-replacement", "poisson"]

_MOST = 2**34  # parameters of a model; for more of them the grid is finer than can be drawn


@dataclass(frozen=True)
class Federation(Portable):
    """A federated run with clipped client updates and central Gaussian noise.

    Args:
        clients: how many clients can be drawn.
        sampled: clients drawn in a round: exactly so many ("without-replacement", a fresh secret
            subset) or on average ("poisson", a secret coin for each client). The divisor.
        rounds: how many noisy models are made.
        clip: no client's update counts for more than this length.
        noise_multiplier: standard deviation of the noise over clip, both of the *summed* updates.
        sampling: "without-replacement" or "poisson".
        adjacency: "replace" (one client replaced by another) or "zero-out" (one client's updates
            replaced by 0). By default "replace" without replacement and "zero-out" with Poisson.
        server_step: multiplies the averaged update.
        local_step: the step size with which a client turns its gradient into an update.
        local_steps: how many of those steps a client takes.
        loss: what is declared about the objective of one client, the L2 term applied by the server
            (regularization) included; None declares nothing.
        clipping: "gradient" (clipping may bite) or "none" (by the declared objective itself no
            honest update is longer than clip).
        parameters: how many numbers the model has, which fixes the grid that noise is added on;
            a server knows it from its model, and an accountant can do without (see `training`).

    >>> Federation(clients=200, sampled=20, rounds=50, clip=1.0, noise_multiplier=1.0).rate
    0.1
    """

    clients: int
    sampled: float
    rounds: int
    clip: float
    noise_multiplier: float
    sampling: Sampling = "without-replacement"
    adjacency: Adjacency | None = None
    server_step: float = 1.0
    local_step: float = 1.0
    local_steps: int = 1
    loss: Loss | None = None
    clipping: Literal["gradient", "none"] = "gradient"
    parameters: int | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("clients", whole("clients", self.clients, "a guarantee for nobody protects nobody"))
        why = "how clients are drawn decides how much one of them shows"
        one_of("sampling", self.sampling, ("without-replacement", "poisson"), why)
        if self.sampling == "poisson":
            why = "it is the expected number of clients in a round"
            most = self.clients
            put("sampled", number("sampled", self.sampled, why, above=0.0, at_most=most))
        else:
            put("sampled", whole("sampled", self.sampled, "each round averages over so many"))
            if self.sampled > self.clients:
                allowed = f"at most the number of clients, {self.clients}"
                why = "a round cannot draw more clients than there are"
                raise DescriptionError("sampled", self.sampled, allowed, why)
        put("rounds", whole("rounds", self.rounds, "it counts the noisy models", at_least=0))
        put("clip", number("clip", self.clip, "it bounds each client's update", above=0.0))
        why = "it scales the noise"
        multiplier = number("noise_multiplier", self.noise_multiplier, why, at_least=0.0)
        put("noise_multiplier", multiplier)
        if self.adjacency is None:
            put("adjacency", "zero-out" if self.sampling == "poisson" else "replace")
        why = "a guarantee must say which federations count as neighbours"
        one_of("adjacency", self.adjacency, ("replace", "zero-out"), why)
        for name in ("server_step", "local_step"):
            why = "it scales what a round does to the model"
            put(name, number(name, getattr(self, name), why, above=0.0))
        put("local_steps", whole("local_steps", self.local_steps, "a client must do something"))
        if self.loss is not None and not isinstance(self.loss, Loss):
            why = "the outsiders' number rests on it"
            raise DescriptionError("loss", self.loss, "a Loss or None", why)
        why = "clipping changes how far a round can drive two runs apart"
        one_of("clipping", self.clipping, ("gradient", "none"), why)
        if self.parameters is not None:
            why = "each of them is rounded to the grid"
            put("parameters", whole("parameters", self.parameters, why))
            if self.parameters > _MOST:
                raise DescriptionError("parameters", self.parameters, f"at most {_MOST}", why)

    @property
    def rate(self) -> float:
        """The probability that a client takes part in a round."""
        return self.sampled / self.clients

    @property
    def everybody(self) -> bool:
        """Whether every client takes part in every round."""
        return self.sampled == self.clients

    @property
    def noise(self) -> float:
        """The standard deviation of the noise on the sum of clipped updates."""
        return self.noise_multiplier * self.clip

    @property
    def model_noise(self) -> float:
        """... and on the model, with six roundings of these quotients taken off."""
        return self.server_step * self.noise / self.sampled * (1 - 2**-50)

    @property
    def rounding(self) -> float:
        """How far the server's sum can be from the exact one, in units of clip (`summation`).

        It adds one update after the other, in double precision; the server step and the divisor
        are a few roundings more, and a model has at most 2^34 parameters.
        """
        most = self.clients if self.sampling == "poisson" else int(self.sampled)
        return sum_error(most, 1.0, roundings=most + 16, entries=_MOST)

    @property
    def slack(self) -> float:
        """What rounding to the grid may move a model by, g√parameters, whatever their number.

        It is 2^-24 of what one client or the noise moves the model by, whichever is more. Without
        noise nothing is rounded.
        """
        return (
            FINE * max(self.clip, self.noise) * self.server_step / self.sampled * (self.noise > 0)
        )

    def spacing(self, parameters: int) -> float:
        """g: the power of two at or below slack/√parameters; 0 without noise.

        >>> run = Federation(clients=4, sampled=4, rounds=1, clip=1.0, noise_multiplier=1.0)
        >>> math.log2(run.spacing(16))
        -29.0
        """
        finest = self.slack / math.sqrt(parameters) * (1 - 2**-50)
        if self.noise > 0 and not 2.0**-900 <= finest <= 2.0**200:
            raise UnsupportedError(
                f"Updates of length {self.clip:g} with noise of {self.noise:g} are too far from 1 "
                "for doubles to add them exactly: take another unit for the parameters."
            )
        return math.ldexp(0.5, math.frexp(finest)[1]) if finest else 0.0

    @property
    def decay(self) -> float:
        """What the server's L2 term takes off the model in a round."""
        return 0.0 if self.loss is None else self._step * self.loss.regularization

    @property
    def _step(self) -> float:
        return self.server_step * self.local_step

    @property
    def training(self) -> Training:
        """The run as a `Training`: a client is a record, its update (over −local_step) a gradient.

        >>> run = Federation(clients=9, sampled=3, rounds=2, clip=1.0, noise_multiplier=6.0)
        >>> round(run.training.noise, 9), run.training.sensitivity, run.training.batches
        (2.0, 2.0, WithoutReplacement(size=3))

        What the grid rounds is charged for the model's size, if that is known, and else for any: 4
        times the slack, as an error of the sums. Then nothing is said about last bits.
        """
        batches: FullBatch | Poisson | WithoutReplacement
        if self.everybody:
            batches = FullBatch()
        elif self.sampling == "poisson":
            batches = Poisson(self.rate)
        else:
            batches = WithoutReplacement(int(self.sampled))
        error = self.rounding * self.clip / self.local_step / self.sampled * (1 + 2**-50)
        if self.parameters is None:
            error = (error + 2 * self.slack / self._step) * (1 + 2**-50)
            arithmetic = Arithmetic(error=error)
        else:
            arithmetic = Arithmetic(self.spacing(self.parameters), error, self.parameters)
        return Training(
            records=self.clients,
            steps=self.rounds,
            step_size=self._step,
            noise=self.model_noise,
            gradient_norm=self.clip / self.local_step,
            batches=batches,
            adjacency=str(self.adjacency),
            clipping=self.clipping,
            arithmetic=arithmetic,
        )

    def replace(self, **changes: Any) -> Self:
        """The same description with some fields changed (and validated again)."""
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values."""
        table = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        table["loss"] = None if self.loss is None else self.loss.to_dict()
        return {name: value for name, value in table.items() if value is not None}

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote.

        >>> one = Federation(clients=9, sampled=3, rounds=2, clip=1.0, noise_multiplier=6.0)
        >>> Federation.from_dict(one.to_dict()) == one
        True
        """
        fields = known_fields("federation", table, {f.name for f in dataclasses.fields(cls)})
        for field in dataclasses.fields(cls):
            if field.default is dataclasses.MISSING and field.name not in fields:
                why = "a description without it says nothing about privacy"
                raise DescriptionError(f"federation.{field.name}", None, "given", why)
        if "loss" in fields:
            fields["loss"] = Loss.from_dict(fields["loss"])
        return cls(**fields)
