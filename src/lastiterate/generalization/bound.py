"""One generalisation bound: a value with its meaning, its conditions and its standing."""

from __future__ import annotations

from dataclasses import dataclass

from lastiterate._internal.formatting import printed

ABSOLUTE_EXPECTATION = "|E[gap]|"
EXPECTED_SIZE = "E|gap|"
ONE_SIDED = "gap of this run, either direction alone"
TWO_SIDED = "size of the gap of this run"


@dataclass(frozen=True)
class GeneralizationBound:
    """A bound on the gap between training risk and population risk, loss in [0, 1].

    ``failure``: the probability that the bound may fail (0 for bounds on expectations);
    ``status``: "sound" (proved here or checked), "unverified" (as quoted elsewhere: display only);
    ``unmet``: hypotheses that these parameters violate; the value then means nothing.

    Attributes:
        name, reference, status: what it is called, where it comes from, how far it is trusted.
        bounds: which gap it speaks of.
        value: how large that gap is at most.
        failure: the probability that the bound may fail.
        unmet: hypotheses that are violated.
    """

    name: str
    reference: str
    status: str
    bounds: str
    value: float
    failure: float = 0.0
    unmet: tuple[str, ...] = ()

    @property
    def hypotheses_met(self) -> bool:
        return not self.unmet

    @property
    def vacuous(self) -> bool:
        """True when it says nothing: gaps are at most 1, probabilities too."""
        return self.value >= 1.0 or self.failure >= 1.0

    def __str__(self) -> str:
        if self.unmet:
            verdict = "does not apply: " + "; ".join(self.unmet)
        elif self.vacuous:
            verdict = "vacuous"
        else:
            verdict = printed(self.value)
            if self.failure > 0.0:
                verdict += f" except with probability {self.failure:.2g}"
        return f"{self.name} ({self.reference}; {self.status}), {self.bounds}: {verdict}"
