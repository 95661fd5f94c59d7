"""The probabilities of a softmax that is kept in a ball, as nodes of an ONNX graph.

As `BallSoftmax.probability` finds them: for every label the maximiser p, on the sphere by the root
t of one equation (`losses.ball`), then the stationary law of the chain of these p. A ratio is
r = exp(t − d − ω) = ω/t with ω + log ω = x = log t + t − d, and of ω = e^u that is u + e^u = x:
convex and rising in u, so that steps from above, min(x, log max(x, 1)), come down to the root.
"""

from __future__ import annotations

import math

import numpy as np

from lastiterate.losses.ball import HIGHEST
from lastiterate.models.onnx_nodes import Graph, Value

_STEPS, _NEWTON, _HALLEY = 96, 24, 4
_LEAST, _LARGEST = 1e-300, 1e300
_CLOSE = 1e-14  # what may be left of the equation, of its terms, times C + 8


def ball_probabilities(graph: Graph, scores: str, classes: int, radius: float) -> str:
    """One row of probabilities for every row of scores; nan where one of these is."""
    given, few = Value(graph, scores), min(classes, HIGHEST)
    order = graph.order(scores, classes, largest=True)
    ranked = given.of("GatherElements", Value(graph, order), axis=1)
    law = _stationary(_moves(ranked.part(1, 0, few), few, radius), few)
    if classes > few:  # the others follow the last of them as in the plain softmax
        below = ranked.part(1, few, classes) - ranked.part(1, few - 1, few)
        law = law.of("Concat", law.part(1, few - 1, few) * below.of("Exp"), axis=1)
    places = Value(graph, graph.order(order, classes, largest=False))
    found = (law / law.total()).of("GatherElements", places, axis=1)
    return (found + (given * 0.0).total()).name


def _moves(ranked: Value, C: int, c: float) -> Value:
    """For scores that fall along each row: what the maximiser for label y gives to every j ≠ y."""
    wrong = 1.0 - np.eye(C)
    columns, labels = (ranked.of("Unsqueeze", np.array([axis])) for axis in (1, 2))
    best, next_best = labels.part(1, 0, 1), labels.part(1, 1, 2)
    top = best + (next_best - best) * np.eye(C, 1)  # of the wrong classes
    d, D = (top - columns).clipped(0.0, _LARGEST), top - labels
    plain = columns.of("Softmax", axis=2) * wrong
    outside = _length(plain).of("Greater", c)

    def point(t: Value) -> tuple[Value, Value, Value]:
        r = _ratios(t, d.inside(t.graph)) * wrong
        return r, r.total(), _length(r)

    def step(count: Value, t: Value, low: Value, high: Value) -> tuple[Value, list[Value]]:
        r, S, n = point(t)
        w, lead = S / n * c, D.inside(t.graph)
        logs, pull = (-w + 1.0).of("Log") + (n / c).of("Log"), t * (S + 1.0)
        F = logs + lead - pull
        terms = logs.of("Abs") + lead.of("Abs") + pull + 1.0
        far = F.of("Abs").of("Greater", terms * (_CLOSE * (C + 8)))
        open_ = far.of("And", outside.inside(t.graph))
        rise = r * (-r + 1.0) / (t * r + 1.0)  # of r in t
        turned = rise.total()
        growth = ((r * rise).total() + S * turned) / (n * n)  # of log n
        steep = growth - 1.0 - S - t * turned - w * (turned / S - growth) / (-w + 1.0)
        above = F.of("Greater", 0.0)
        low, high = above.where(t, low), above.where(high, t)
        newton, early = t - F / steep, count.of("Less", _NEWTON)
        inside = newton.of("Greater", low).of("And", newton.of("Less", high)).of("And", early)
        after = open_.where(inside.where(newton, low + (high - low) * 0.5), t)
        again = open_.doubles().of("ReduceMax", keepdims=0).of("Greater", 0.0)
        return again, [after, low, high]

    zeros = D * 0.0
    farthest = ((D + math.log(math.sqrt(2) * C / c)) * 0.5).of("Max", 0.0)
    r, _, n = point(ranked.graph.loop(_STEPS, step, zeros, zeros, farthest)[0])
    return outside.where(r / n * c, plain)


def _length(wrong: Value) -> Value:
    """Of p − e_y, by the wrong classes."""
    total = wrong.total()
    return ((wrong * wrong).total() + total * total).of("Sqrt")


def _ratios(t: Value, d: Value) -> Value:
    """r ≤ 1 with log r = t(1 − r) − d."""
    x = t.of("Max", _LEAST).of("Log") + (t - d)
    u = x.of("Min", x.of("Max", 1.0).of("Log"))
    for _ in range(_HALLEY):
        w = u.of("Exp")
        slope = w + 1.0
        newton = (u + w - x) / slope
        u = u - newton / (-(newton * w / slope * 0.5) + 1.0)
    w = u.of("Exp")
    by_logs = (t - d - w).of("Min", 0.0).of("Exp")
    return t.of("Greater", 1.0).where(w / t.of("Max", 1.0), by_logs)


def _stationary(moves: Value, C: int) -> Value:
    """As `losses.ball` does it: states are taken out one by one, the first one last."""
    arrivals = []
    for k in range(C - 1, 0, -1):
        leaving = moves.part(1, k, k + 1).part(2, 0, k)
        entering = moves.part(1, 0, k).part(2, k, k + 1) / leaving.total()
        moves = moves.part(1, 0, k).part(2, 0, k) + entering * leaving
        arrivals.append(entering.of("Squeeze", np.array([2])))
    law = arrivals[-1] * 0.0 + 1.0
    for entering in reversed(arrivals):
        law = law.of("Concat", (law * entering).total(), axis=1)
    return law
