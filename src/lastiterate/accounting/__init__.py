"""Deciding what to run: knowing the exact price of every run lets us pick the best one.

`calibrate` meets a target, `plateau` says when more steps are free, `excess_risk` and
`predicted_risk` say how good the model will be, `recommend` compares alternatives,
`individual_epsilons` the people whom a run concerns in different ways; schedules are
a burst of noise at the last step, averages of the last iterates, step sizes and noises of a full
batch. A choice may be guided by a public model of the loss; the privacy of what is chosen is
accounted like that of any other run and never depends on the model.
"""

from lastiterate.accounting.accountant import Comparison, Row, account, compare, theorems
from lastiterate.accounting.averaging import averaging_helps
from lastiterate.accounting.burst import best_burst, burst_rule
from lastiterate.accounting.calibration import calibrate
from lastiterate.accounting.growth import plateau
from lastiterate.accounting.guarantee import Guarantee
from lastiterate.accounting.individual import (
    IndividualEpsilon,
    IndividualEpsilons,
    individual_epsilons,
)
from lastiterate.accounting.optimal import optimal_noises, optimal_schedule
from lastiterate.accounting.recommendation import Recommendation, recommend
from lastiterate.accounting.risk import Risk, log_uniform, predicted_risk
from lastiterate.accounting.utility import excess_risk

__all__ = [
    "Comparison",
    "Guarantee",
    "IndividualEpsilon",
    "IndividualEpsilons",
    "Recommendation",
    "Risk",
    "Row",
    "account",
    "averaging_helps",
    "best_burst",
    "burst_rule",
    "calibrate",
    "compare",
    "excess_risk",
    "individual_epsilons",
    "log_uniform",
    "optimal_noises",
    "optimal_schedule",
    "plateau",
    "predicted_risk",
    "recommend",
    "theorems",
]
