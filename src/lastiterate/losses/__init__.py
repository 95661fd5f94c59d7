"""Losses of linear models with proved constants.

Given a bound on the norm of a record's features (its intercept column included), each loss states
the longest gradient and the smoothness, and hands them to the accountant as "proved".
"""

from lastiterate.losses.ball import BallSoftmax
from lastiterate.losses.base import LinearLoss
from lastiterate.losses.capped import CappedLogistic, CappedSoftmax
from lastiterate.losses.margin import (
    BinaryLoss,
    Huber,
    Logistic,
    MarginLoss,
    RegressionLoss,
    SmoothedHinge,
    SquaredError,
    SquaredHinge,
)
from lastiterate.losses.one_vs_rest import OneVsRest
from lastiterate.losses.softmax import Softmax

__all__ = [
    "BallSoftmax",
    "BinaryLoss",
    "CappedLogistic",
    "CappedSoftmax",
    "Huber",
    "LinearLoss",
    "Logistic",
    "MarginLoss",
    "OneVsRest",
    "RegressionLoss",
    "SmoothedHinge",
    "Softmax",
    "SquaredError",
    "SquaredHinge",
]
