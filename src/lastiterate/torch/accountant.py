"""The last-iterate guarantee for people who train with Opacus.

`PrivacyEngine(accountant="lastiterate")` works once this module is imported. Opacus tells an
accountant the noise multiplier and the sample rate; a hidden-state guarantee also needs what is
known about the loss, the step size and the batch scheme. `describe` takes them, and every update
is compared with the optimizer that makes it: a description of another run raises.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant

from lastiterate.accounting import account
from lastiterate.certificate import Certificate, certify
from lastiterate.description import Batches, Loss, Training
from lastiterate.description.validation import number, one_of
from lastiterate.errors import AssumptionError, DescriptionError, UnsupportedError
from lastiterate.guarantee import Guarantee
from lastiterate.torch.loader import describe_loader

MECHANISM = "lastiterate"
_SAME = 1e-9  # relative: settings that differ by rounding alone are equal


@dataclass(frozen=True)
class Update:
    """What one update of the optimizer was, per unit of the described divisor."""

    step_size: float
    noise: float
    clip: float


@dataclass(frozen=True)
class Described:
    """What Opacus does not tell an accountant."""

    records: int
    loss: Loss
    batches: Batches
    step_size: float | tuple[float, ...] | None
    adjacency: str
    clipping: str
    sample_rate: float

    @property
    def composed(self) -> bool:
        """Nothing is known that the optimizer's own arithmetic could change: composition."""
        return self.loss.kind == "unknown" and self.loss.regularization == 0

    def rate_of(self, update: int) -> float:
        """The described step size of an update."""
        if isinstance(self.step_size, tuple):
            if update >= len(self.step_size):
                raise _differs("number of updates", update + 1, len(self.step_size))
            return self.step_size[update]
        return 1.0 if self.step_size is None else self.step_size


class HiddenStateAccountant(IAccountant):  # type: ignore[misc]
    """An Opacus accountant for the last iterate.

    >>> from opacus import PrivacyEngine
    >>> engine = PrivacyEngine(accountant="lastiterate")  # doctest: +SKIP
    >>> model, optimizer, loader = engine.make_private(...)  # doctest: +SKIP
    >>> engine.accountant.describe(loss=Loss(smoothness=0.5), step_size=0.1, batches=Poisson(0.01),
    ...                            loader=loader, optimizer=optimizer)  # doctest: +SKIP
    >>> engine.get_epsilon(delta=1e-5)  # after training  # doctest: +SKIP
    """

    def __init__(self) -> None:
        super().__init__()
        self._described: Described | None = None
        self._updates: list[Update] = []
        self._secure = True

    @classmethod
    def mechanism(cls) -> str:
        """The name under which Opacus knows this accountant."""
        return MECHANISM

    def describe(
        self,
        *,
        loss: Loss,
        batches: Batches,
        loader: Any,
        optimizer: Any,
        step_size: float | Sequence[float] | None = None,
        adjacency: str = "zero-out",
        clipping: str = "gradient",
    ) -> None:
        """Say what runs, before the first update; checked against what can be seen.

        Args:
            loss: what is known about the loss of one record. `Loss.unknown()` gives the value of
                composition, and says so.
            batches: the scheme that the loader runs.
            loader: the loader that `make_private` returned.
            optimizer: the optimizer that `make_private` returned.
            step_size: the learning rate, or one per update; not needed for `Loss.unknown()`.
            adjacency: "zero-out" (as Opacus counts) or "replace".
            clipping: "gradient", or "none" where the loss itself keeps every gradient within
                max_grad_norm, so that clipping never does anything.
        """
        if self._updates:
            raise AssumptionError(
                f"{len(self._updates)} updates were made before the run was described: nobody "
                "compared them with it. Call describe() right after make_private()."
            )
        if not isinstance(loss, Loss):
            why = "regularity decides how fast a run forgets"
            raise DescriptionError("loss", loss, "a Loss, such as Loss.unknown()", why)
        found = describe_loader(loader)
        if found != batches:
            raise AssumptionError(
                f"The loader runs {found}, but the description says {batches}: an epsilon for "
                "other batches than those that run is no guarantee. Describe what the loader "
                "does, or make the loader do what is described (Opacus' poisson_sampling)."
            )
        one_of("clipping", clipping, ("gradient", "none"), "Opacus clips gradients")
        rate = 1 / len(loader)
        sizes = _sizes(step_size)
        described = Described(len(loader.dataset), loss, batches, sizes, adjacency, clipping, rate)
        if sizes is None and not described.composed:
            why = "how far an update drives two runs apart depends on it"
            raise DescriptionError("step_size", None, "given unless the loss is unknown", why)
        self._described = described
        self._compare(optimizer, None)

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """What Opacus calls in every update, with the optimizer that makes it."""

        def hook(optimizer: Any) -> None:
            self._updates.append(self._compare(optimizer, sample_rate))
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Opacus' own history: runs of equal (noise multiplier, sample rate, steps)."""
        last = self.history[-1] if self.history else None
        if last is not None and last[:2] == (noise_multiplier, sample_rate):
            self.history[-1] = (noise_multiplier, sample_rate, last[2] + 1)
        else:
            self.history.append((noise_multiplier, sample_rate, 1))

    def __len__(self) -> int:
        return len(self._updates)

    @property
    def training(self) -> Training:
        """The run so far, as this library describes it."""
        described = self._need()
        if len(self._updates) != sum(steps for _, _, steps in self.history):
            raise AssumptionError(
                "Steps were recorded that no optimizer made (history was set by hand, as "
                "make_private_with_epsilon does): their noise and step size are unknown. Use "
                "lastiterate.calibrate to find the noise."
            )
        clips = {update.clip for update in self._updates} or {0.0}
        if len(clips) > 1:
            raise UnsupportedError(
                f"The clipping norm changed during the run ({sorted(clips)}): no theorem of the "
                "ledger takes one bound per step. Use a constant max_grad_norm."
            )
        return Training(
            records=described.records,
            steps=len(self._updates),
            step_size=_one_or_many([update.step_size for update in self._updates]),
            noise=_one_or_many([update.noise for update in self._updates]),
            gradient_norm=clips.pop(),
            batches=described.batches,
            adjacency=described.adjacency,
            clipping=described.clipping,
        )

    @property
    def guarantee(self) -> Guarantee:
        """What `lastiterate.account` says about the run so far."""
        return account(self.training, self._need().loss)

    def get_epsilon(self, delta: float, *args: Any, **kwargs: Any) -> float:
        """epsilon of the last iterate so far; nothing else may have been released.

        With `Loss.unknown()` this is the value of composition, which also covers every iterate.
        """
        if self._need().composed:
            warnings.warn(
                "Nothing is known about the loss, so this epsilon is that of composition: no "
                "gain from releasing only the last iterate.",
                stacklevel=2,
            )
        return self.guarantee.epsilon(delta)

    def certificate(self, delta: float, **settings: Any) -> Certificate:
        """A certificate of the run so far; refused unless the engine ran in secure mode."""
        loss = self._need().loss
        return certify(self.training, loss, delta, seeded_noise=not self._secure, **settings)

    # --- what the optimizer really does -------------------------------------------------------

    def _need(self) -> Described:
        if self._described is None:
            raise AssumptionError(
                "The run was not described. Opacus does not tell an accountant what is known "
                "about the loss, the step size or the batch scheme: call "
                "engine.accountant.describe(loss=..., batches=..., loader=..., optimizer=..., "
                "step_size=...) right after make_private()."
            )
        return self._described

    def _compare(self, optimizer: Any, sample_rate: float | None) -> Update:
        """The update this optimizer makes; raises where it is not the described one."""
        described = self._need()
        _plain(optimizer)
        step_size = described.rate_of(len(self._updates))
        divisor = described.batches.divisor(described.records)
        expected = _expected(optimizer)
        if sample_rate is not None and not _close(sample_rate, described.sample_rate):
            raise _differs("sample rate", sample_rate, described.sample_rate)
        if not described.composed:
            _plain_sgd(optimizer.original_optimizer)
            rates = {float(group["lr"]) for group in optimizer.param_groups}
            if rates != {step_size}:
                raise _differs("learning rate", sorted(rates), step_size)
            decays = {float(group["weight_decay"]) for group in optimizer.param_groups}
            l2 = {decay * expected / divisor for decay in decays}
            if not all(_close(one, described.loss.regularization) for one in l2):
                what = "L2 term (weight_decay x Opacus' batch size / the nominal one)"
                raise _differs(what, sorted(l2), described.loss.regularization)
        # Opacus divides by a whole number; the same update per unit of the nominal divisor.
        eta = step_size * divisor / expected
        clip = float(optimizer.max_grad_norm)
        noise = step_size * float(optimizer.noise_multiplier) * clip / expected
        self._secure = self._secure and bool(optimizer.secure_mode)
        return Update(eta, noise, clip)

    # --- saving ------------------------------------------------------------------------------

    def state_dict(self, destination: Any = None) -> Any:
        """As Opacus saves it, with what each update was."""
        state = super().state_dict(destination)
        state["updates"] = [asdict(update) for update in self._updates]
        state["secure"] = self._secure
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on from a saved state. The checkpoint itself must stay secret, or it is a release."""
        super().load_state_dict(state_dict)
        self._updates = [Update(**update) for update in state_dict.get("updates", [])]
        self._secure = bool(state_dict.get("secure", False))


def _plain(optimizer: Any) -> None:
    """Raise unless this is Opacus' optimizer with one clipping norm, one update per batch."""
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping

    if type(optimizer) not in (DPOptimizer, DPOptimizerFastGradientClipping):
        raise UnsupportedError(
            f"A {type(optimizer).__name__} clips or adds noise in another way than the description "
            "says. Use Opacus' flat clipping (clipping='flat') on one machine."
        )
    samples = [getattr(p, "grad_sample", None) for p in optimizer.params]
    if any(isinstance(each, list) and len(each) > 1 for each in samples):
        raise UnsupportedError(
            "Gradients of several batches were accumulated into one update: its batch is not the "
            "described one. Use one batch per update (Opacus' BatchMemoryManager keeps memory "
            "small without changing the update)."
        )


def _plain_sgd(optimizer: Any) -> None:
    from torch import optim

    if type(optimizer) is not optim.SGD:
        raise UnsupportedError(
            f"{type(optimizer).__name__} is not plain gradient descent, so the loss' regularity "
            "says nothing about how its updates drive two runs apart. Use torch.optim.SGD, or "
            "Loss.unknown()."
        )
    for group in optimizer.param_groups:
        extra = [key for key in ("momentum", "dampening", "nesterov", "maximize") if group.get(key)]
        if extra:
            raise UnsupportedError(
                f"SGD with {', '.join(extra)} is not the described update: the state of the run is "
                "more than its parameters. Set them to 0, or use Loss.unknown()."
            )


def _expected(optimizer: Any) -> float:
    """What Opacus divides the sum of gradients by."""
    return float(optimizer.expected_batch_size) if optimizer.loss_reduction == "mean" else 1.0


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=0.0)


def _sizes(step_size: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    why = "it scales every update"
    if step_size is None:
        return None
    if isinstance(step_size, Sequence):
        return tuple(number("step_size", one, why, above=0.0) for one in step_size)
    return number("step_size", step_size, why, above=0.0)


def _one_or_many(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values if values else 1.0


def _differs(what: str, found: object, described: object) -> AssumptionError:
    return AssumptionError(
        f"The {what} of the optimizer is {found}, but the description says {described}: an "
        "epsilon for another run than the one that trains is no guarantee. Describe what runs."
    )


register_accountant(MECHANISM, HiddenStateAccountant, force=True)
