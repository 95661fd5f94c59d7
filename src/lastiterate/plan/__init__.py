"""Deciding what to run: knowing the exact price of every run lets us pick the best one.

`calibrate` meets a target, `plateau` says when more steps are free, `excess_risk` and
`predicted_risk` say how good the model will be, `recommend` compares alternatives,
`individual_epsilons` the people whom a run concerns in different ways; schedules are
a burst of noise at the last step, averages of the last iterates, step sizes and noises of a full
batch. A choice may be guided by a public model of the loss; the privacy of what is chosen is
accounted like that of any other run and never depends on the model.
"""

from lastiterate.plan.averaging import averaging_helps
from lastiterate.plan.burst import best_burst, burst_rule
from lastiterate.plan.calibration import calibrate
from lastiterate.plan.growth import plateau
from lastiterate.plan.individual import IndividualEpsilon, IndividualEpsilons, individual_epsilons
from lastiterate.plan.optimal import optimal_noises, optimal_schedule
from lastiterate.plan.recommendation import Recommendation, recommend
from lastiterate.plan.risk import Risk, log_uniform, predicted_risk
from lastiterate.plan.utility import excess_risk

__all__ = [
    "IndividualEpsilon",
    "IndividualEpsilons",
    "Recommendation",
    "Risk",
    "averaging_helps",
    "best_burst",
    "burst_rule",
    "calibrate",
    "excess_risk",
    "individual_epsilons",
    "log_uniform",
    "optimal_noises",
    "optimal_schedule",
    "plateau",
    "predicted_risk",
    "recommend",
]
