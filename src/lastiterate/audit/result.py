"""What an audit found, and how to read it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self, cast, get_args

from lastiterate._internal.formatting import printed, printed_down
from lastiterate.audit.methods import clopper_pearson, gdp
from lastiterate.description.fields import integer, number, one_of
from lastiterate.description.unit import ONE_RECORD, PrivacyUnit
from lastiterate.errors import DescriptionError, UnsupportedError

MethodName = Literal["clopper-pearson", "gdp", "one-run", "credible"]


def like_with_like(claim: Any, audited: PrivacyUnit = ONE_RECORD) -> None:
    """Raise if a claim does not speak of the person in whom the audited datasets differ.

    One for a person with several records does: somebody may have one. One for people who leave
    early says nothing about a record that stays; nor does one for those who stay about a record
    that leaves, if the claim rests on curvature from the data or does not say on what it rests.
    """
    claimed = getattr(claim, "unit", ONE_RECORD)
    if not claimed.covers(audited, getattr(claim, "loss", None)):
        raise UnsupportedError(
            f"The claim speaks of {claimed}, and the audited datasets differ in {audited}, of whom "
            "it says nothing. Audit datasets that differ in such a person and say so (audited=), "
            "or hold the audit against a certificate for everybody."
        )


@dataclass(frozen=True)
class Look:
    """One evaluated test: at one epoch, with one threshold, on models that did not choose it.

    Attributes:
        epsilon_lower, mu_lower: what its error rates refute.
        threshold, direction: "inside" is said when direction * score >= threshold.
        false_positives, outside: errors among the evaluated models without the record.
        false_negatives, inside: errors among the evaluated models with it.
        fpr_interval, fnr_interval: each end fails with probability at most the look's share of
            the error; the upper ends are those that the bounds use.
    """

    epsilon_lower: float
    mu_lower: float
    threshold: float
    direction: int
    false_positives: int
    outside: int
    false_negatives: int
    inside: int
    fpr_interval: tuple[float, float]
    fnr_interval: tuple[float, float]

    @property
    def fpr(self) -> float:
        """The share of models without the record that were taken for models with it."""
        return self.false_positives / self.outside

    @property
    def fnr(self) -> float:
        """The share of models with the record that were taken for models without it."""
        return self.false_negatives / self.inside


@dataclass(frozen=True)
class AuditResult:
    """A lower bound on the privacy loss, with everything that was searched paid for.

    Attributes:
        method: how errors became a bound.
        delta: of `epsilon_lower`.
        confidence: the probability that no reported bound exceeds the truth, after correction
            for looks and for what the caller searched elsewhere.
        looks: one per epoch (or other observation); the best one speaks for the audit.
        models: trained models, those that chose the threshold included.
        searched: choices that the caller made outside; the error was divided by it.
    """

    method: MethodName
    delta: float
    confidence: float
    looks: tuple[Look, ...]
    models: int
    searched: int = 1

    @property
    def best(self) -> Look:
        """The look with the largest bound."""
        key = (lambda k: k.mu_lower) if self.method == "gdp" else (lambda k: k.epsilon_lower)
        return max(self.looks, key=key)

    @property
    def best_look(self) -> int:
        """Which look (epoch) it was, counted from 0."""
        return self.looks.index(self.best)

    @property
    def epsilon_lower(self) -> float:
        """No claim of (epsilon, delta)-DP below this is true (see `hypothesis`)."""
        return self.best.epsilon_lower

    @property
    def mu_lower(self) -> float:
        """No claim of mu-GDP below this is true."""
        return max(look.mu_lower for look in self.looks)

    @property
    def fpr(self) -> float:
        """False positive rate of the best look."""
        return self.best.fpr

    @property
    def fnr(self) -> float:
        """False negative rate of the best look."""
        return self.best.fnr

    @property
    def hypothesis(self) -> str:
        """What `epsilon_lower` takes for granted; empty when nothing."""
        return {
            "clopper-pearson": "",
            "gdp": "under a Gaussian hypothesis",
            "one-run": "",
            "credible": "as a Bayesian credible value, not a confidence bound",
        }[self.method]

    def epsilon_at(self, delta: float) -> float:
        """The lower bound at another delta: the bounds on the rates hold for all at once."""
        if delta == self.delta:
            return self.epsilon_lower
        if self.method == "gdp":
            return gdp.epsilon_of(self.mu_lower, delta)
        if self.method == "clopper-pearson":
            return max(
                clopper_pearson.epsilon_below(k.fpr_interval[1], k.fnr_interval[1], delta)
                for k in self.looks
            )
        raise UnsupportedError(
            f"The method {self.method!r} bounds epsilon at the audited delta = "
            f"{printed(self.delta)} "
            f"only. Repeat the audit with delta={printed(delta)}."
        )

    def contradicts(
        self,
        claim: Any,
        *,
        replaced_against_zero_out: bool = False,
        audited: PrivacyUnit = ONE_RECORD,
    ) -> bool:
        """Whether a certificate, a guarantee or a pair (epsilon, delta) claims less than this.

        Args:
            claim: what is claimed.
            replaced_against_zero_out: the audited datasets differ in a replaced record, but the
                claim speaks of a record whose contribution is removed. A replacement is two such
                steps, so the claim is widened by group privacy: 2 mu, and
                (2 epsilon, (1 + e^epsilon) delta). Otherwise the datasets must be neighbours in
                the sense of the claim.
            audited: the person in whom the datasets differ: one record, used from the first step
                to the last. A claim that does not cover that person (`PrivacyUnit.covers`) is not
                contradicted by this, and raises.
        """
        like_with_like(claim, audited)
        if self.method == "credible":
            raise UnsupportedError(
                "A credible value is no confidence bound (it exceeds the truth up to one time in "
                "five), so it contradicts no certificate. Use method='clopper-pearson'."
            )
        steps = 2 if replaced_against_zero_out else 1
        mu = getattr(claim, "mu", None)
        if mu is not None and self.method != "one-run" and self.mu_lower > steps * mu:
            return True
        if self.method == "gdp":  # an epsilon that rests on a hypothesis refutes nothing else
            return False
        if isinstance(claim, tuple):
            epsilon, delta = claim
        elif callable(claim.epsilon):
            epsilon, delta = claim.epsilon(self.delta), self.delta
        else:
            epsilon, delta = claim.epsilon, claim.delta
        if steps == 2:
            with contextlib.suppress(OverflowError):
                epsilon, delta = 2 * epsilon, (1 + math.exp(epsilon)) * delta
        return bool(delta < 1 and self.epsilon_at(delta) > epsilon)

    def to_dict(self) -> dict[str, Any]:
        """A table of plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote; fields that an audit does not have are ignored.

        >>> look = Look(0.5, 0.4, 0.0, 1, 3, 50, 4, 50, (0.0, 0.1), (0.0, 0.1))
        >>> result = AuditResult("clopper-pearson", 1e-5, 0.95, (look,), 200)
        >>> AuditResult.from_dict(result.to_dict()) == result
        True
        """
        why = "an audit that is not whole proves nothing"
        try:
            looks = tuple(_look(each) for each in table["looks"])
            method, delta, confidence, models, searched = (
                table[name] for name in ("method", "delta", "confidence", "models", "searched")
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DescriptionError("audit", repr(error), "what an audit wrote", why) from None
        if not looks:
            raise DescriptionError("audit.looks", [], "at least one look", why)
        return cls(
            cast(MethodName, one_of("audit.method", method, get_args(MethodName))),
            number("audit.delta", delta, at_least=0.0, at_most=1.0),
            number("audit.confidence", confidence, above=0.0, at_most=1.0),
            looks,
            integer("audit.models", models),
            integer("audit.searched", searched),
        )

    def __str__(self) -> str:
        best = self.best
        lines = [
            f"Audit: epsilon >= {printed_down(self.epsilon_lower)} at delta = {printed(self.delta)}"
            + (f" {self.hypothesis}" if self.hypothesis else "")
            + f", confidence {self.confidence:g}, method {self.method}, {self.models:,} models."
        ]
        if self.method == "one-run":
            right = best.inside - best.false_negatives + best.outside - best.false_positives
            lines.append(f"Guesses: {right} of {best.inside + best.outside} right.")
        else:
            lines.append(
                f"False positives {best.false_positives} of {best.outside} (rate at most "
                f"{printed(best.fpr_interval[1])}), false negatives {best.false_negatives} of "
                f"{best.inside} (rate at most {printed(best.fnr_interval[1])}); mu >= "
                f"{printed_down(self.mu_lower)}."
            )
        if len(self.looks) > 1:
            lines.append(
                f"Best of {len(self.looks)} looks (number {self.best_look + 1}), each with its "
                "share of the error."
            )
        if self.searched > 1:
            lines.append(f"The error was divided by {self.searched} choices made elsewhere.")
        lines.append(self._reading())
        return "\n".join(lines)

    def _reading(self) -> str:
        nothing = (
            "A small value proves nothing: it may only say that this attack was weak or the "
            "models few."
        )
        if self.method == "credible":
            return "This refutes no claim: it is a degree of belief. " + nothing
        if self.method == "gdp":
            if self.mu_lower == 0:
                return "This refutes no claim. " + nothing
            return (
                f"This refutes any claim of mu-GDP with mu below {printed_down(self.mu_lower)}; it "
                f"does not refute an (epsilon, delta) claim of another shape. {nothing}"
            )
        if self.epsilon_lower == 0:
            return "This refutes no claim. " + nothing
        return (
            f"This refutes any claim of (epsilon, {printed(self.delta)})-differential privacy with "
            f"epsilon below {printed_down(self.epsilon_lower)}, for datasets that differ as these "
            f"two do. {nothing}"
        )


_COUNTS = ("direction", "false_positives", "outside", "false_negatives", "inside")


def _look(table: Mapping[str, Any]) -> Look:
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(Look)):
        value = table[name]
        if name.endswith("interval"):
            low, high = map(float, value)
            values[name] = (low, high)
        else:
            values[name] = int(value) if name in _COUNTS else float(value)  # "inf" in JSON
    if math.isnan(values["epsilon_lower"]) or min(values["inside"], values["outside"]) < 1:
        raise ValueError("a look without models or without a bound")
    return Look(**values)
