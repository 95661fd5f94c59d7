"""One immutable description of a federated run, for the accountant and for the server.

Every round draws clients, sends them the model, clips each answer and updates

    θ ← θ + server_step·(sum of clipped updates + noise_multiplier·clip·N(0, I)) / sampled
          − server_step·local_step·regularization·θ

with the nominal number of sampled clients as divisor, however many really answer (He, Wang & Tao
2020, Algorithm 2). A client that takes H > 1 local steps includes the L2 term in each of them,

    w ← w − local_step·(gradient(w) + regularization·w),    from w = θ,

and its update is w − shrink·θ, shrink = (1 − local_step·regularization)^H: what its data did. The
server puts the L2 term's own doing, server_step·(1 − shrink)·θ, in the last line of the update.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Self

from lastiterate.description import (
    Arithmetic,
    FullBatch,
    Loss,
    Poisson,
    Training,
    WithoutReplacement,
)
from lastiterate.description.fields import integer, known_fields, number, one_of
from lastiterate.description.serialization import Serializable
from lastiterate.description.training import Adjacency
from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.train.grid import FINE
from lastiterate.train.summation import sum_error

Sampling = Literal["without-replacement", "poisson"]

_MOST = 2**34  # parameters of a model; for more of them the grid is finer than can be drawn


@dataclass(frozen=True)
class Federation(Serializable):
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
            replaced by 0).
        server_step: multiplies the averaged update.
        local_step: the step size with which a client turns its gradient into an update.
        local_steps: how many of those steps a client takes; if several, with the L2 term.
        loss: what is declared about the objective of one client, the L2 term (regularization),
            which the server applies or accounts for, beside it; None declares nothing.
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
    adjacency: Adjacency = "zero-out"
    server_step: float = 1.0
    local_step: float = 1.0
    local_steps: int = 1
    loss: Loss | None = None
    clipping: Literal["gradient", "none"] = "gradient"
    parameters: int | None = None

    def __post_init__(self) -> None:
        def put(name: str, value: Any) -> None:
            object.__setattr__(self, name, value)

        put("clients", integer("clients", self.clients))
        one_of("sampling", self.sampling, ("without-replacement", "poisson"))
        if self.sampling == "poisson":
            most = self.clients
            put("sampled", number("sampled", self.sampled, above=0.0, at_most=most))
        else:
            put("sampled", integer("sampled", self.sampled))
            if self.sampled > self.clients:
                allowed = f"at most the number of clients, {self.clients}"
                why = "a round cannot draw more clients than there are"
                raise DescriptionError("sampled", self.sampled, allowed, why)
        put("rounds", integer("rounds", self.rounds, at_least=0))
        put("clip", number("clip", self.clip, above=0.0))
        multiplier = number("noise_multiplier", self.noise_multiplier, at_least=0.0)
        put("noise_multiplier", multiplier)
        one_of("adjacency", self.adjacency, ("replace", "zero-out"))
        for name in ("server_step", "local_step"):
            put(name, number(name, getattr(self, name), above=0.0))
        put("local_steps", integer("local_steps", self.local_steps))
        if self.loss is not None and not isinstance(self.loss, Loss):
            why = "the outsiders' number rests on it"
            raise DescriptionError("loss", self.loss, "a Loss or None", why)
        if self.local_steps > 1 and self.loss is not None:
            pull = self.local_step * self.loss.regularization
            number("local_step * regularization", pull, at_most=1.0)
        one_of("clipping", self.clipping, ("gradient", "none"))
        if self.parameters is not None:
            why = "each of them is rounded to the grid"
            put("parameters", integer("parameters", self.parameters))
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
        """What the L2 term takes off the model in a round."""
        if self.local_steps > 1:
            return self.server_step * (1 - self.shrink)
        return 0.0 if self.loss is None else self._step * self.loss.regularization

    @property
    def shrink(self) -> float:
        """What the L2 term of several local steps leaves of the model; 1 where the server has it.

        >>> loss = Loss(smoothness=1.0, regularization=0.5)
        >>> fields = {"clip": 1.0, "noise_multiplier": 1.0, "local_steps": 3, "loss": loss}
        >>> Federation(clients=4, sampled=4, rounds=1, **fields).shrink
        0.125
        """
        if self.local_steps == 1 or self.loss is None:
            return 1.0
        return float((1 - self.local_step * self.loss.regularization) ** self.local_steps)

    def one_step(self) -> Loss | str:
        """The loss whose gradient step contracts as a round does, or why there is none.

        **Statement.** H local steps of η ≤ 2/(β + 2λ), β the smoothness and λ the L2 term of a
        convex objective, fixed draws, server step γ ≤ 1: a round brings two models together by
        c_round = 1 − γ·(1 − shrink), and one client moves it by γ·clip/sampled (zero-out) or twice
        that (replace).

        *Proof.* A local step is (1 − ηλ)-Lipschitz, so H of them are shrink-Lipschitz. With p ≤ 1
        the share of clients who answer, the round is
        (1 − γ)θ + γ·[(1 − p)·shrink·θ + p·(mean of the clients' H-fold maps)]: a convex combination
        of maps with Lipschitz constants 1, shrink and shrink. Whoever does not answer counts as a
        client without data. Updates count for no more than clip; noise and divisor are those of a
        plain round. ∎ Linear losses attain it. The strong convexity of clients' data is not used:
        they may not answer.

        Steps that are clipped inside do not keep two models together, nor does an update that is
        clipped: clip must be at least `local_reach`. With Poisson draws more clients than the
        divisor counts may answer, and p is above 1.
        """
        loss, eta = self.loss, self.local_step
        assert loss is not None
        if self.clipping != "none":
            return "an update of several local steps may be clipped (clipping is not 'none')"
        if self.sampling == "poisson" and not self.everybody:
            return "more clients than are divided by may answer with several local steps"
        if self.server_step > 1:
            return "a server step above 1 overshoots the mean of several local steps"
        curved = None if loss.smoothness is None else Fraction(loss.smoothness)
        if curved is None or Fraction(eta) * (curved + 2 * Fraction(loss.regularization)) > 2:
            return f"local steps of {eta:g} are longer than 2/(smoothness + 2 regularization)"
        # What is computed is off by a few units: of the power, of the decay, of the quotient.
        shrink = self.shrink * (1 + (self.local_steps + 8) * 2.0**-52) + 2.0**-50
        left = max(1 - shrink, 0.0) / eta * (1 - 2.0**-50)
        if loss.provenance == "estimated":
            return Loss(smoothness=0.0, regularization=left, provenance="estimated")
        return Loss(smoothness=0.0, regularization=left)

    @property
    def _step(self) -> float:
        return self.server_step * self.local_step

    @property
    def training(self) -> Training:
        """The run as a `Training`: a client is a record, its update (over −local_step) a gradient.

        >>> run = Federation(clients=9, sampled=3, rounds=2, clip=1.0, noise_multiplier=6.0)
        >>> round(run.training.noise, 9), run.training.sensitivity, run.training.batches
        (2.0, 1.0, WithoutReplacement(size=3))

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

    @staticmethod
    def local_reach(
        gradient_norm: float, local_step: float, local_steps: int, regularization: float = 0.0
    ) -> float:
        """How long an update can get if no gradient is longer than ``gradient_norm``, rounded up.

        η·K·(1 + a + … + a^(H−1)) with a = 1 − local_step·regularization: a clip of that length
        never acts.

        >>> Federation.local_reach(1.0, local_step=0.5, local_steps=3, regularization=1.0)
        0.8750000000000008
        """
        norm = number("gradient_norm", gradient_norm, at_least=0.0)
        eta = number("local_step", local_step, above=0.0)
        count = integer("local_steps", local_steps)
        pull = number("local_step * regularization", eta * regularization, at_least=0.0)
        pull = number("local_step * regularization", pull, at_most=1.0)
        total = -math.expm1(count * math.log1p(-pull)) / pull if 0 < pull < 1 else float(count)
        return eta * norm * (1.0 if pull == 1 else total) * (1 + 2.0**-50)

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
