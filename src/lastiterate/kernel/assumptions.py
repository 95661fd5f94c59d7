"""What a certificate rests on: every sentence that it must say, from its description alone.

"proved" is never taken on trust: the constants of a loss of the library that the ``origin`` names
are derived again, in exact fractions (`constants`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from lastiterate.kernel.balls import require
from lastiterate.kernel.document import Table, fields, number, well_formed, whole, word
from lastiterate.kernel.run import HIDDEN, Loss, Run, Unit

NOT_COVERED = (
    "choices made by looking at the private data: hyper-parameters, feature bounds, categories",
    "intermediate models: a checkpoint that leaves or that others can read is a release",
    "other runs on the same data (compose their certificates)",
    "the number of records, which is treated as public",
    "the set of classes that occur among the labels, released unless all classes were declared",
    "noise from a seeded or predictable generator",
)
_LAST_BITS = "the last bits of released numbers, which are doubles with noise added and not rounded"
_MACHINE = (
    "what else a machine shows or does: timing, memory, faulty hardware, compilers that reassociate"
)
_GRADIENTS = (
    "the gradient of a record is that of its loss: the rounding above is that of sums, and what "
    "computing one gradient rounds is nothing, or was added to the error that was told "
    "[whoever computes them]"
)
_ALONE = (
    "what is computed as the gradient of a record is the same to the last bit, whichever records "
    "share its batch [whoever computes it]"
)
MOVES_OTHERS = ("poisson", "without-replacement", "random-allocation")
_LIMITS = {  # of each loss: the largest limit it takes, or None where it has no limit
    **{"logistic": None, "huber": math.inf, "squared-error": math.inf, "smoothed-hinge": math.inf},
    **{"squared-hinge": math.inf, "capped-logistic": 1.0, "softmax": None, "capped-softmax": 1.0},
    **{"ball-softmax": 1.0, "bounded-softmax": math.inf},
}


def constants(origin: Table) -> tuple[Fraction, Fraction]:
    """Smoothness and squared gradient norm of a record with features no longer than R.

    One score: slope^2 R^2 (stacked for several classes) and curvature R^2. Softmax: slope p - e_y,
    at most sqrt(2) cap, curvature at most 2 w(1-w), w = min(cap, 1/2); kept in a ball of radius r,
    slope r. On a ball of parameters no score is sqrt(2) B R above that of the true class.
    """
    table = fields(origin, "origin", ("name", "feature_bound"), ("limit", "classes", "start"))
    name = word(table["name"], "origin.name", tuple(_LIMITS))
    bound, most = number(table["feature_bound"], "origin.feature_bound"), _LIMITS[name]
    well_formed((most is None) == ("limit" not in table), "the limit of the origin")
    limit = number(table.get("limit", 1.0), "origin.limit", 5e-324, most or 1.0)
    classes = whole(table.get("classes", 2), "origin.classes", 2)
    well_formed("softmax" not in name or "classes" in table, "the classes of the origin")
    ball = name == "bounded-softmax"
    well_formed(ball or "start" not in table, "the start of the origin")
    number(table.get("start", 0.0), "origin.start", 0.0, limit if ball else 0.0)
    cap, square = Fraction(limit), Fraction(bound) ** 2
    width = min(cap, Fraction(1, 2))
    variance = width * (1 - width)
    if name == "ball-softmax":
        return 2 * variance * square, cap**2 * square
    if ball:
        margin = math.sqrt(2) * limit * bound * (1 + 2**-50)
        odds = math.exp(-margin) * (1 - 2**-50) / (classes - 1)
        share = min(Fraction(1 / (1 + odds) * (1 + 2**-50)), Fraction(1))
        return square / 2, 2 * square * share**2
    if "softmax" in name:
        return 2 * variance * square, 2 * cap**2 * square
    slope, curvature = {
        "logistic": (Fraction(1), Fraction(1, 4)),
        "smoothed-hinge": (Fraction(1), 1 / cap),
        "capped-logistic": (cap, variance),
    }.get(name, (cap, Fraction(1)))
    scores = classes if "classes" in table else 1
    return curvature * square, slope**2 * square * scores


def derived(loss: Loss) -> bool:
    """Whether the origin, or claiming nothing at all, proves what is said about the loss."""
    if loss.kind == "unknown":
        return True
    if loss.origin is None or loss.strong_convexity or loss.kind == "holder":
        return False
    smooth = math.inf if loss.smoothness is None else loss.smoothness
    return math.isinf(smooth) or Fraction(smooth) >= constants(loss.origin)[0]


def provenance(run: Run, hidden_state: bool) -> dict[str, str]:
    """Who vouches for the regularity, the gradient norm and the sensitivity."""
    loss, own = run.loss, run.proximal is not None and run.proximal.constrains
    by, norm = loss.provenance, run.gradient_norm
    if loss.origin is not None and loss.origin["name"] == "bounded-softmax":  # holds on a ball
        room = Fraction(loss.origin["limit"]) - Fraction(loss.origin.get("start", 0.0))
        inside = not own and math.isfinite(run.diameter) and Fraction(run.diameter) / 2 <= room
        by = by if inside else "declared"
    gradient = by
    if run.clipping != "none":
        gradient = "enforced"
    elif math.isinf(norm):
        gradient = "unused"
    elif by == "proved":
        short = loss.origin is not None and Fraction(norm) ** 2 >= constants(loss.origin)[1]
        gradient = "proved" if short else "declared"
    implied = norm * (2.0 if run.adjacency == "replace" else 1.0)
    return {
        "regularity": by if hidden_state else "unused",
        "gradient_norm": gradient,
        "sensitivity": "declared" if run.sensitivity < implied else "implied",
    }


def sentences(run: Run, hidden_state: bool, link: Table | None = None) -> dict[str, Any]:
    """The fields of a certificate that are words; ``hidden_state``: iterates must stay secret."""
    loss = run.loss
    require(loss.provenance != "estimated", "The certificate rests on a mere estimate.")
    if loss.provenance == "proved":
        require(
            derived(loss),
            "The certificate calls the constants of its loss proved, but the loss of this library "
            "that it names does not prove them: they are declared.",
        )
    require(
        loss.provenance == "proved" or loss.origin is None,
        "The certificate names the origin of constants that are declared.",
    )
    by = provenance(run, hidden_state)
    rounded = run.grid_rounding != 0
    return {
        "adjacency": run.adjacency,
        "release": _release(run),
        "assumptions": list(_assumptions(run, hidden_state, link, by)),
        "provenance": by,
        "not_covered": [*NOT_COVERED, _MACHINE if rounded else _LAST_BITS],
    }


def _release(run: Run) -> str:
    parts = [f"the iterate after step {step}" for step in run.releases]
    tail = f"the average of the last {run.window} iterates, or all of them"
    parts.append(tail if run.averages else "the last iterate")
    return " and ".join(parts) + " released, every other iterate kept secret"


def _assumptions(run: Run, hidden: bool, link: Table | None, by: Table) -> Iterator[str]:
    loss = run.loss
    yield from _gradients(run, by)
    if hidden:
        yield f"the loss of a record is {_loss(loss)} [{_vouched(loss, by['regularity'])}]"
        yield "intermediate iterates stay secret [whoever runs the training]"
    if run.scheme in HIDDEN:
        yield "the random batches stay secret [whoever runs the training]"
    if math.isfinite(run.diameter):
        yield (
            f"parameters are projected on a convex set of diameter {run.diameter:g} [the trainer]"
        )
    if run.proximal is not None:
        after = _proximal(run.proximal.kind, run.proximal.values)
        yield f"after every update comes {after}, which does not depend on the data [the trainer]"
    start = None if link is None else link["start"]
    if start is None:
        yield "the starting point does not depend on the data [the trainer]"
    else:
        yield f"the run starts from the released model with the hash {start} [the trainer]"
    if link is not None:
        yield (
            "the records in question are used in this link of the chain alone: for others the "
            f"lifetime budget of the chain holds (this link follows {link['former']}) "
            "[whoever loads the data]"
        )
    yield from _arithmetic(run, hidden)
    yield "the noise is Gaussian and unpredictable [the noise source]"
    if run.correlation is not None:
        yield (
            f"of every step's noise the next {len(run.correlation) - 1:,} take back a part, as "
            "described [the trainer]"
        )
    yield from _unit(run.unit, run.scheme)


def _arithmetic(run: Run, hidden: bool) -> Iterator[str]:
    loss, told = run.loss, run.arithmetic
    if told is None:
        yield (
            "updates are those of real numbers, not rounded "
            "[the description: arithmetic='exact' is theory]"
        )
        return
    grid = (
        f"; noise is rounded and added to multiples of {told.grid!r} in "
        f"{told.coordinates:,} coordinates"
    )
    yield (
        f"rounding moves no mean gradient by more than {told.error:.3g} per unit of step size"
        f"{grid if told.grid else ''} [the trainer]"
    )
    if loss.origin is None or loss.origin["name"] == "bounded-softmax":
        if hidden and loss.kind != "unknown":
            yield _GRADIENTS
        elif run.scheme in MOVES_OTHERS:
            yield _ALONE


def _gradients(run: Run, by: Table) -> Iterator[str]:
    norm = run.gradient_norm
    if math.isfinite(norm):
        enforced = {
            "none": f"the loss itself; {_vouched(run.loss, by['gradient_norm'])}",
            "gradient": "per-record gradient clipping in the trainer",
            "margin": "clipping of the margin derivative in the trainer",
        }[run.clipping]
        yield f"no record's gradient is longer than {norm:g} [{enforced}]"
    if by["sensitivity"] == "declared":
        change = (
            "one record changes the sum of gradients by at most "
            f"{run.sensitivity!r} ({run.adjacency})"
        )
        less = "; no bound on a single gradient is given"
        if math.isfinite(norm):
            implied = norm * (2.0 if run.adjacency == "replace" else 1.0)
            less = f", less than the {implied!r} that gradient_norm and adjacency imply"
        yield f"{change}{less} [declared by the user]"


def _unit(unit: Unit, scheme: str) -> Iterator[str]:
    if unit.records > 1:
        spread = ""
        if unit.per_batch is not None:
            spread = f", at most {unit.per_batch:,} of them in one batch"
            if unit.per_batch == 1 and scheme in HIDDEN:
                spread += ", and every choice of different batches is equally likely"
        yield f"nobody has more than {unit.records:,} records{spread} [whoever loads the data]"
    if unit.timed:
        first = [f"from step {unit.first_step:,} on"] if unit.first_step else []
        last = [] if unit.last_step is None else [f"before step {unit.last_step:,} only"]
        yield (
            f"the records in question are used {' and '.join(first + last)}, whatever secret "
            "iterates say [whoever runs the training]"
        )
    if unit.gradient_norm is not None:
        yield (
            f"the records in question have no gradient longer than {unit.gradient_norm!r} "
            "[whoever asks for this person]"
        )


def _vouched(loss: Loss, by: str) -> str:
    proved = "proved by this library"
    if loss.origin is not None:
        proved += f" for the {_origin(loss.origin)}"
        if loss.origin["name"] == "bounded-softmax":  # of a network, whose gradients nobody charges
            proved += ", up to what its network rounds"
    return {"proved": proved, "declared": "declared by the user", "enforced": "the trainer"}[by]


def _origin(origin: Table) -> str:
    limit = f" (limit {float(origin['limit'])!r})" if "limit" in origin else ""
    classes = f" of {origin['classes']} classes" if "classes" in origin else ""
    start = f" from a start of norm {float(origin['start'])!r}" if origin.get("start") else ""
    features = f"features of norm at most {float(origin['feature_bound'])!r}"
    return f"{origin['name']} loss{limit}{classes}{start}, {features}"


def _loss(loss: Loss) -> str:
    constant = loss.smoothness or 0.0
    data = {
        "convex": f"convex, {constant:g}-smooth",
        "nonconvex": f"not convex, {constant:g}-smooth",
        "holder": f"Hoelder gradient (constant {constant:g}, exponent {loss.exponent})",
        "unknown": "of unknown regularity",
    }[loss.kind]
    if loss.strong_convexity:
        data += f", {loss.strong_convexity:g}-strongly convex"
    l2 = f", L2 term {loss.regularization:g}" if loss.regularization else ""
    return f"{data}{l2} ({loss.provenance})"


def _proximal(kind: str, values: Table) -> str:
    spared = values.get("spared")
    but = f", all but the last {spared} rows" if spared else ""
    if kind == "l1":
        weight = float(values["weight"])
        return f"the proximal step of {weight:g} times the sum of absolute values{but}"
    if kind == "group-lasso":
        groups = f"{len(values['sizes']):,} groups of rows" if "sizes" in values else "rows"
        return (
            f"the proximal step of {float(values['weight']):g} times the lengths of {groups}{but}"
        )
    if kind == "box":
        low, high = float(values["low"]), float(values["high"])
        return f"the projection of every parameter on [{low:g}, {high:g}]"
    total = float(values.get("total", 1.0))
    return f"the projection on non-negative weights that add up to {total:g}"
