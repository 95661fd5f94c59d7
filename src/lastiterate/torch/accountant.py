"""The last-iterate guarantee for people who train with Opacus.

`PrivacyEngine(accountant="lastiterate")` works once `lastiterate.torch` is imported. Opacus tells
an accountant the noise multiplier and the sample rate; a hidden-state guarantee also needs what is
known about the loss, the step size and the batch scheme. `describe` takes them, and every update
is compared with the optimizer that makes it: a description of another run raises. So does one that
the network contradicts. Such runs are never certified (`HiddenStateAccountant.certificate`):
`certified_optimizer` is for those.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NoReturn

from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant

from lastiterate.accounting import account
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.description import Batches, Loss, Training
from lastiterate.description.fields import number, one_of, warn_of_large_delta
from lastiterate.errors import AssumptionError, DescriptionError, EstimateWarning, UnsupportedError
from lastiterate.torch.loader import describe_loader, logical_batches
from lastiterate.torch.opacus_calls import counting_scheduler, planned_epsilon
from lastiterate.torch.opacus_modules import (
    hooked_module,
    longest_gradient,
    mixing_layer,
    not_linear,
    proved_gradient_norm,
)
from lastiterate.torch.plain_sgd import plain_sgd

MECHANISM = "lastiterate"
IN_REAL_NUMBERS = (
    "NOT A GUARANTEE of the run that Opacus computed, but an account of the same run in real "
    "numbers: Opacus sums gradients and adds noise in the floats of the parameters, whose low bits "
    "and sums can tell of single records, and nobody knows who can predict its noise. Use "
    "lastiterate.torch.CertifiedOptimizer in the same loop, or noisy_module_descent, whose "
    "arithmetic is proved, for a run that can be certified."
)
_SAME = 1e-9  # relative: settings that differ by rounding alone are equal


@dataclass(frozen=True, repr=False)
class RealNumbersGuarantee(Guarantee):
    """What holds for a run in real numbers; it says so wherever it is shown."""

    def words(self, *deltas: float) -> str:
        """The guarantee in plain words, after what it is not."""
        return f"{IN_REAL_NUMBERS}\n{super().words(*deltas)}"

    def __repr__(self) -> str:
        return f"<NOT A GUARANTEE (real numbers): {super().__repr__()}>"

    def _repr_html_(self) -> str:
        return f"<p><strong>{IN_REAL_NUMBERS}</strong></p>{super()._repr_html_()}"


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
    scheduler: str | None = None

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

    def to_dict(self) -> dict[str, Any]:
        """As plain values, to be compared with those of a saved state."""
        sizes = list(self.step_size) if isinstance(self.step_size, tuple) else self.step_size
        told = {"loss": self.loss.to_dict(), "batches": repr(self.batches), "step_size": sizes}
        return {**asdict(self), **told}


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
        self._module: Any = None
        self._bound = math.inf
        self._measured: Any = None  # the optimizer whose gradients are measured before the clip
        self._refuted = False
        self._scheduler: Any = None

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
        scheduler: Any = None,
        adjacency: str = "zero-out",
        clipping: str = "gradient",
    ) -> None:
        """Say what runs, before the first update; checked against what can be seen.

        Args:
            loss: what is known about the loss of one record. `Loss.unknown()` gives the value of
                composition, and says so. A convex loss needs a network whose output is linear in
                what is trained. Nobody but you vouches for it: Opacus does not show the criterion.
            batches: the scheme that the loader runs.
            loader: the loader that `make_private` returned.
            optimizer: the optimizer that `make_private` returned.
            step_size: the learning rate, or one per update; not needed for `Loss.unknown()`.
            scheduler: torch's learning-rate scheduler, instead of a step size: the rates are
                recorded as they come. One that looks at losses (ReduceLROnPlateau) is refused; when
                to call ``step()`` must not depend on the data either.
            adjacency: "zero-out" (as Opacus counts) or "replace".
            clipping: "gradient", as Opacus always clips; or "none" where it is proved that no
                gradient is longer than max_grad_norm: for cross-entropy on `BoundedSoftmax`, whose
                gradients are then measured as well. A longer one ends the run before its update,
                and there is no number any more; that happens only if the criterion is another one,
                so a true description tells nobody anything about the data.
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
        one_of("clipping", clipping, ("gradient", "none"))
        if getattr(loader.batch_sampler, "optimizer", optimizer) is not optimizer:
            raise AssumptionError(
                "The loader splits batches for another optimizer than this one, which would make "
                "an update of every part. Give both the same optimizer."
            )
        if loss.provenance == "proved":  # by whom? nobody here sees the criterion
            loss = replace(loss, provenance="declared")
        rate = 1 / len(logical_batches(loader))
        sizes, records = _sizes(step_size), len(loader.dataset)
        kind = None if scheduler is None else counting_scheduler(scheduler, optimizer)
        described = Described(records, loss, batches, sizes, adjacency, clipping, rate, kind)
        if (sizes is None) == (kind is None) and (kind or not described.composed):
            why = "how far an update drives two runs apart depends on it"
            allowed = "given unless the loss is unknown or there is a scheduler"
            raise DescriptionError("step_size", step_size, allowed, why)
        _plain(optimizer)
        self._module = hooked_module(optimizer)
        obstacle = not_linear(self._module) if loss.convex else None
        if obstacle is not None:
            raise AssumptionError(
                f"The description says that the loss is convex, but {obstacle}: no criterion makes "
                "such a loss convex in its parameters. Train one nn.Linear (after frozen layers in "
                "an nn.Sequential), or declare Loss.unknown() or Loss.nonconvex(smoothness=)."
            )
        if clipping == "none":
            self._measure(optimizer, loss)
        self._described, self._scheduler = described, scheduler
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
        if self._refuted:
            raise AssumptionError(
                "A gradient was longer than max_grad_norm, which clipping='none' denies: the "
                "description is not that of this run. Start again with clipping='gradient'."
            )
        if len(self._updates) != sum(steps for _, _, steps in self.history):
            raise AssumptionError(
                "Steps were recorded that no optimizer made (history was set by hand): their noise "
                "and step size are unknown. Describe the run before its first update."
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
        """What `lastiterate.account` says about the run so far, in real numbers; it says so."""
        found = account(self.training, self._need().loss)
        return RealNumbersGuarantee(found.run, found.bounds, found.lower_reference)

    def get_epsilon(
        self, delta: float, *, training: Training | None = None, loss: Loss | None = None
    ) -> float:
        """epsilon of the last iterate so far; nothing else may have been released.

        With `Loss.unknown()` this is the value of composition, which also covers every iterate. It
        speaks of real numbers, as Opacus' own accountants do, and warns of it.

        ``get_noise_multiplier(accountant="lastiterate", ...)`` and ``make_private_with_epsilon``
        ask what a noise multiplier would cost before anything runs. Give them ``training=`` and
        ``loss=``, the run that will be described (its noise and number of steps are replaced);
        without them they get the larger one of Poisson batches and batches in order, with every
        iterate public, which holds for every loader that `describe_loader` reads; and that of
        Poisson batches in ``make_private_with_epsilon(poisson_sampling=True)``.
        """
        warnings.warn(IN_REAL_NUMBERS, EstimateWarning, stacklevel=2)
        if self._described is None and len(self.history) == 1 and not self._updates:
            noise_multiplier, sample_rate, steps = self.history[0]
            return planned_epsilon(delta, noise_multiplier, sample_rate, steps, training, loss)
        described = self._need()
        if training is not None or loss is not None:
            why = "what runs was described, and is compared with every update"
            raise DescriptionError("training, loss", (training, loss), "left out", why)
        if described.loss.provenance == "estimated":
            warnings.warn(
                "NOT A GUARANTEE: the regularity of the loss is estimated, and this epsilon rests "
                "on it.",
                EstimateWarning,
                stacklevel=2,
            )
        if described.composed:
            warnings.warn(
                "Nothing is known about the loss, so this epsilon is that of composition: no "
                "gain from releasing only the last iterate.",
                stacklevel=2,
            )
        guarantee = self.guarantee
        found = guarantee.epsilon(delta)
        warn_of_large_delta(float(delta), guarantee.training.records)
        return found

    def certificate(self, delta: float, **settings: Any) -> NoReturn:
        """Refused, whatever the optimizer says about itself.

        Opacus' noise comes from torch's generator, whose state can be read and set; with
        ``secure_mode=True`` from whatever generator the optimizer was given, and a seeded one
        cannot be told from one that reads the system's randomness. Opacus also sums gradients and
        noise in the floats of the parameters, and what these round is nowhere accounted for.
        """
        raise AssumptionError(
            "A run with seeded noise cannot be certified, and Opacus' noise cannot be told from "
            "such (secure_mode=True does not say which generator was given); nor does Opacus "
            "account for what its sums round. Use lastiterate.torch.CertifiedOptimizer in the same "
            "loop, or noisy_module_descent (per_record='hooks' takes gradients from Opacus)."
        )

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
        mixing = mixing_layer(self._module)
        if mixing is not None:
            raise UnsupportedError(
                f"{mixing} mixes the records of a batch, so no gradient belongs to one record. "
                "Call its eval(), with statistics that do not come from these data, or use "
                "GroupNorm or LayerNorm."
            )
        if described.clipping == "none" and optimizer is not self._measured:
            raise AssumptionError(
                "Another optimizer makes this update than the one that was described: nobody "
                "measured its gradients. Describe the run again with it."
            )
        step_size = described.rate_of(len(self._updates))
        if self._scheduler is not None:
            step_size = _one_rate(self._scheduler.get_last_lr())
        divisor = described.batches.divisor(described.records)
        expected = _expected(optimizer)
        if sample_rate is not None and not same_number(sample_rate, described.sample_rate):
            raise _differs("sample rate", sample_rate, described.sample_rate)
        if not described.composed:
            plain_sgd(optimizer.original_optimizer)
            rates = {float(group["lr"]) for group in optimizer.param_groups}
            if rates != {step_size}:
                raise _differs("learning rate", sorted(rates), step_size)
            decays = {float(group["weight_decay"]) for group in optimizer.param_groups}
            l2 = {decay * expected / divisor for decay in decays}
            if not all(same_number(one, described.loss.regularization) for one in l2):
                what = "L2 term (weight_decay x Opacus' batch size / the nominal one)"
                raise _differs(what, sorted(l2), described.loss.regularization)
        # Opacus divides by a whole number; the same update per unit of the nominal divisor.
        eta = step_size * divisor / expected
        clip = float(optimizer.max_grad_norm)
        noise = step_size * float(optimizer.noise_multiplier) * clip / expected
        if described.clipping == "none" and clip < self._bound:
            raise AssumptionError(
                f"clipping='none' needs max_grad_norm of at least {self._bound:.6g}, the proved "
                f"bound with room for rounding; it is {clip:g}, and Opacus would clip."
            )
        return Update(eta, noise, clip)

    def _measure(self, optimizer: Any, loss: Loss) -> None:
        """Look at every gradient before Opacus clips it: also those of a part of a batch."""
        from opacus.optimizers import DPOptimizer

        if type(optimizer) is not DPOptimizer:
            raise UnsupportedError(
                f"A {type(optimizer).__name__} has no gradients of single records to measure. Use "
                "grad_sample_mode='hooks', or clipping='gradient'."
            )
        self._bound = proved_gradient_norm(self._module, loss)
        self._measured = optimizer
        clip = optimizer.clip_and_accumulate

        def measured() -> None:
            if not longest_gradient(optimizer) <= optimizer.max_grad_norm:  # NaN is too long
                self._refuted = True
                raise AssumptionError(
                    "A gradient is longer than max_grad_norm, which clipping='none' denies: the "
                    "criterion is not cross-entropy as it stands. No update was made, and there "
                    "is no guarantee for this run. Describe it with clipping='gradient'."
                )
            clip()

        optimizer.clip_and_accumulate = measured

    # --- saving ------------------------------------------------------------------------------

    def state_dict(self, destination: Any = None) -> Any:
        """As Opacus saves it, with what each update was."""
        state = super().state_dict(destination)
        state["updates"] = [asdict(update) for update in self._updates]
        state["described"] = None if self._described is None else self._described.to_dict()
        state["refuted"] = self._refuted
        return state

    def load_state_dict(self, state_dict: Any) -> None:
        """Go on from a saved state. The checkpoint itself must stay secret, or it is a release.

        The run must be described first, as it was: a state says nothing of another run.
        """
        if state_dict.get("described") != self._need().to_dict():
            raise AssumptionError(
                "The saved run was described in another way than this one: its updates would be "
                "counted as something that they were not. Describe this run as that one was."
            )
        super().load_state_dict(state_dict)
        self._updates = [Update(**update) for update in state_dict["updates"]]
        self._refuted = bool(state_dict["refuted"])


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


def _expected(optimizer: Any) -> float:
    """What Opacus divides the sum of gradients by."""
    return float(optimizer.expected_batch_size) if optimizer.loss_reduction == "mean" else 1.0


def same_number(a: float, b: float) -> bool:
    """Whether two settings are equal but for rounding."""
    return math.isclose(a, b, rel_tol=_SAME, abs_tol=0.0)


def _sizes(step_size: float | Sequence[float] | None) -> float | tuple[float, ...] | None:
    if step_size is None:
        return None
    if isinstance(step_size, Sequence):
        return tuple(number("step_size", one, above=0.0) for one in step_size)
    return number("step_size", step_size, above=0.0)


def _one_rate(rates: Sequence[float]) -> float:
    if len({*rates}) != 1:
        raise UnsupportedError(
            f"The parameters have several learning rates ({sorted({*rates})}): no theorem of the "
            "ledger takes one per parameter. Use one group of parameters."
        )
    return float(rates[0])


def _one_or_many(values: list[float]) -> float | list[float]:
    return values[0] if len(set(values)) == 1 else values if values else 1.0


def _differs(what: str, found: object, described: object) -> AssumptionError:
    return AssumptionError(
        f"The {what} of the optimizer is {found}, but the description says {described}: an "
        "epsilon for another run than the one that trains is no guarantee. Describe what runs."
    )


register_accountant(MECHANISM, HiddenStateAccountant, force=True)
