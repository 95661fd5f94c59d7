"""All generalisation bounds that one privacy guarantee implies, side by side, the best one named.

The gap of a run is its training risk minus its population risk, for a loss in [0, 1] and
independent records. A bound counts as best only if it is sound, its hypotheses hold, and it
reaches the confidence asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lastiterate._internal.formatting import printed
from lastiterate.composition import Pair
from lastiterate.description.fields import number, warn_of_large_delta
from lastiterate.errors import DescriptionError
from lastiterate.generalization import quoted
from lastiterate.generalization.bound import (
    ABSOLUTE_EXPECTATION,
    EXPECTED_SIZE,
    ONE_SIDED,
    TWO_SIDED,
    GeneralizationBound,
)
from lastiterate.generalization.expectation import on_average, pure_expectation, second_moment
from lastiterate.generalization.high_probability import gaussian, j_star, monitor
from lastiterate.generalization.privacy import Privacy, PrivacyCurve, read_privacy

_UP = 1 + 1e-12
_PairBound = Callable[[Pair], GeneralizationBound]


@dataclass(frozen=True)
class Generalization:
    """What privacy says about unseen data; ``print`` it for the whole table."""

    records: int
    confidence: float
    bounds: tuple[GeneralizationBound, ...]
    estimated: bool = False

    @property
    def best(self) -> GeneralizationBound:
        """The smallest sound bound on the gap of this run at the confidence asked for."""
        return min(self._eligible(ONE_SIDED, TWO_SIDED), key=lambda bound: bound.value)

    @property
    def best_expected(self) -> GeneralizationBound:
        """The smallest sound bound on the absolute value of the expected gap."""
        expectations = self._eligible(ABSOLUTE_EXPECTATION, EXPECTED_SIZE)
        return min(expectations, key=lambda bound: bound.value)

    @property
    def high_probability(self) -> float:
        """Population risk exceeds training risk by at most this, with the confidence asked for."""
        return min(1.0, self.best.value)

    @property
    def expected(self) -> float:
        """The expected gap is at most this, in absolute value."""
        return min(1.0, self.best_expected.value)

    def population_risk(self, training_risk: float) -> float:
        """An upper bound on the risk on unseen data, with the confidence asked for.

        This is the direction that learning needs. (He, Wang & Tao 2020, Remarks 1 and 2, bound the
        training risk by the population risk, which says nothing about learnability.)

        >>> round(generalization((0.1, 1e-6), 10_000).population_risk(0.05), 3)
        0.202
        """
        number("training_risk", training_risk, at_least=0, at_most=1)
        return min(1.0, training_risk + self.high_probability)

    def _eligible(self, *kinds: str) -> list[GeneralizationBound]:
        return [
            bound
            for bound in self.bounds
            if bound.status == "sound"
            and bound.hypotheses_met
            and bound.bounds in kinds
            and bound.failure <= 1.0 - self.confidence
        ]

    def __str__(self) -> str:
        best, expected = self.best, self.best_expected
        lines = []
        if self.estimated:
            lines.append("NOT A GUARANTEE: the privacy it rests on was estimated, not proved.")
        if best.vacuous:
            lines.append(
                f"No bound says anything about one run of {self.records:,} records at "
                f"{self.confidence:g} confidence: all are vacuous."
            )
        else:
            lines.append(
                f"With probability at least {self.confidence:g} over {self.records:,} independent "
                f"records and the noise, the population risk is at most the training risk plus "
                f"{printed(self.high_probability)} (loss in [0, 1]; {best.name})."
            )
        lines.append(
            f"On average the two differ by at most {printed(self.expected)} ({expected.name})."
            if not expected.vacuous
            else "No bound says anything about the average gap: all are vacuous."
        )
        lines.extend(f"  {bound}" for bound in self.bounds)
        return "\n".join(lines)


def generalization(
    guarantee: PrivacyCurve | tuple[float, float],
    records: int | None = None,
    confidence: float = 0.95,
    *,
    adjacency: str | None = None,
) -> Generalization:
    """Every generalisation bound that ``guarantee`` implies for ``records`` independent records.

    ``guarantee``: an (epsilon, delta) tuple, a Guarantee or a Curve. ``records`` may be left out
    for a Guarantee, which knows them. ``adjacency``: "replace" or "zero-out"; a Guarantee knows
    its own, tuples and curves are taken as "replace".

    >>> found = generalization((0.1, 1e-6), 10_000)
    >>> round(found.expected, 4), round(found.high_probability, 3), found.best.name
    (0.05, 0.152, 'J*')
    """
    records = _records(guarantee, records)
    number("confidence", confidence, above=0, below=1)
    if isinstance(guarantee, tuple):
        warn_of_large_delta(guarantee[1], records)
    privacy = read_privacy(guarantee, adjacency)
    bounds = (*_expected(privacy, records), *_single_run(privacy, records, 1.0 - confidence))
    estimated = getattr(guarantee, "provenance", None) == "estimated"
    return Generalization(records, confidence, bounds, estimated)


def _records(guarantee: object, records: int | None) -> int:
    known = getattr(getattr(guarantee, "training", None), "records", None)
    count = known if records is None else records
    if count is None or int(count) != count or count < 1:
        raise DescriptionError(
            "records", count, "a whole number of at least 1", "the gap shrinks with the sample"
        )
    if known is not None and count != known:
        raise DescriptionError(
            "records", count, f"{known}, as in the guarantee", "its sensitivity is that of its run"
        )
    return int(count)


def _expected(privacy: Privacy, records: int) -> list[GeneralizationBound]:
    def theorem_2(pair: Pair) -> GeneralizationBound:
        value = on_average(pair.epsilon, pair.delta)
        return GeneralizationBound(
            "1 - e^-epsilon", "He, Wang & Tao 2020, Theorem 2", "sound", ABSOLUTE_EXPECTATION, value
        )

    found = [
        GeneralizationBound(
            "total variation",
            "delta at epsilon 0",
            "sound",
            ABSOLUTE_EXPECTATION,
            privacy.total_variation * _UP,
        )
    ]
    if privacy.pure is not None:
        found.append(
            GeneralizationBound(
                "tanh(epsilon/4)",
                "pure privacy",
                "sound",
                ABSOLUTE_EXPECTATION,
                pure_expectation(privacy.pure),
            )
        )
    found.append(_tightest(theorem_2, privacy.pairs))
    found.append(
        GeneralizationBound(
            "second moment",
            "Donsker, Varadhan",
            "sound",
            EXPECTED_SIZE,
            math.sqrt(second_moment(privacy.kl, records)),
            unmet=_needs_kl(privacy),
        )
    )
    return found


def _single_run(privacy: Privacy, records: int, failure: float) -> list[GeneralizationBound]:
    def laplace(pair: Pair) -> GeneralizationBound:
        value = j_star(pair.epsilon, pair.delta, records, failure)
        reference = "after Jung et al. 2020"
        return GeneralizationBound("J*", reference, "sound", ONE_SIDED, value, failure)

    def laplace_both(pair: Pair) -> GeneralizationBound:
        value = j_star(pair.epsilon, pair.delta, records, failure / 2.0)
        reference = "after Jung et al. 2020"
        return GeneralizationBound("J*, two-sided", reference, "sound", TWO_SIDED, value, failure)

    def repaired(pair: Pair) -> GeneralizationBound:
        value = monitor(pair.epsilon, pair.delta, records, failure)
        reference = "He, Wang & Tao 2020, Theorem 1, repaired"
        return GeneralizationBound("monitor", reference, "sound", ONE_SIDED, value, failure)

    best_pair = min(privacy.pairs, key=lambda pair: laplace(pair).value)
    moment = math.sqrt(second_moment(privacy.kl, records) / failure) * _UP
    found = [
        laplace(best_pair),
        _tightest(laplace_both, privacy.pairs),
        repaired(best_pair),
        GeneralizationBound(
            "second moment, Markov",
            "Donsker, Varadhan",
            "sound",
            TWO_SIDED,
            moment,
            failure,
            _needs_kl(privacy),
        ),
    ]
    if privacy.mu is not None:
        value = gaussian(privacy.mu, records, failure)
        found.append(
            GeneralizationBound(
                "J*, Gaussian", "trade-off curve", "sound", ONE_SIDED, value, failure
            )
        )
    for fixed in (quoted.he_wang_tao, quoted.nissim_stemmer, quoted.dwork, quoted.bassily):
        candidates = [fixed(pair.epsilon, pair.delta, records) for pair in privacy.pairs]
        found.append(min(candidates, key=lambda b: _rank(b, failure)))
    return found


def _tightest(bound: _PairBound, pairs: tuple[Pair, ...]) -> GeneralizationBound:
    return min((bound(pair) for pair in pairs), key=lambda found: found.value)


def _rank(bound: GeneralizationBound, failure: float) -> tuple[bool, bool, float]:
    return (not bound.hypotheses_met, bound.failure > failure, bound.value)


def _needs_kl(privacy: Privacy) -> tuple[str, ...]:
    return () if privacy.kl < math.inf else ("neighbours' KL divergence is not bounded",)
