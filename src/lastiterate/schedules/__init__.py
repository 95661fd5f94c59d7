"""Choosing a schedule: knowing the exact price of every run lets us pick the best one.

A burst of noise at the last step, averages of the last iterates, step sizes and noises of a full
batch. Each choice is guided by a public model of the loss (`spectrum`); the privacy of what is
chosen is accounted like that of any other run and never depends on the model.
"""

from lastiterate.schedules.averaging import averaging_helps, exponential_weights
from lastiterate.schedules.burst import best_burst, burst_rule
from lastiterate.schedules.optimal import optimal_noises, optimal_schedule
from lastiterate.schedules.spectrum import log_uniform

__all__ = [
    "averaging_helps",
    "best_burst",
    "burst_rule",
    "exponential_weights",
    "log_uniform",
    "optimal_noises",
    "optimal_schedule",
]
