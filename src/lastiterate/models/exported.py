"""A fitted table model for programs without this library: JSON weights, or an ONNX graph.

Both hold the whole way from a row's cells to its prediction: declared encoding, scaling, weights,
link. Both carry what the model cost and the digest of its certificate; neither proves it.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from lastiterate.errors import DescriptionError, UnsupportedError
from lastiterate.losses import BallSoftmax, CappedLogistic, CappedSoftmax, OneVsRest
from lastiterate.models.bends import Bends
from lastiterate.models.cells import Array
from lastiterate.models.columns import Boolean, Categorical, Column, Date
from lastiterate.models.confidence import sharpened
from lastiterate.models.ranges import DeclaredRanges
from lastiterate.models.saved import TableModel
from lastiterate.models.whitening import Whitening

FORMAT, VERSION = "lastiterate-weights", 3  # 1: without a matrix, 2: without bends
HOW = (
    "A number or a date (in seconds since 1970, universal time) is clipped to [low, high] and "
    "becomes (x - low) / (high - low); a truth is 0 or 1. With missing, a second feature is 1 "
    "where the cell is empty, and the first is 0 there.",
    "A text becomes one feature per category, 1 for its own; with other, one more for texts that "
    "are not listed; with missing, one more for empty cells.",
    "With prepare: x is clipped to [low, high] of its feature and becomes (x - mean) / scale. "
    "With matrix: the row of features is multiplied by it. With bends: to the row x are "
    "appended, for each of the waves, cosine * (cos(pitch * x) - middle) and sine * sin(pitch * "
    "x), and all is multiplied by factor.",
    "With an intercept a 1 is appended, whose weight is the intercept. With longest = null the row "
    "(the 1 included) is divided by its Euclidean norm; otherwise the row without the 1 is "
    "shortened to that norm if it is longer.",
    "Scores are the products with the rows of coef (and intercept). A number is predicted as the "
    "score plus offset. Of two classes with one score the second is predicted where it is "
    "positive; otherwise the class with the largest score.",
    "capped-logistic: u = min(s(score), cap), d = min(s(-score), cap) with s(x) = 1/(1+exp(-x)); "
    "the probability is u / (u + d), and of several classes these are divided by their sum. "
    "capped-softmax: p = softmax(scores), q = p * max(1, (1 - p) / cap), divided by its sum. "
    "ball-softmax: for each class y, p(y) is softmax(scores) if that minus e_y, the vector with 1 "
    "at y, is no longer than radius; otherwise the only p that sums to 1, is as far as radius from "
    "e_y, and has log p_j + m p_j = score_j + m [j = y] - v for all j, with some m > 0 and some v. "
    "The probabilities are the q that sum to 1 and equal the sum over y of q_y p(y). Of "
    "more than 32 classes this is done with the 32 highest scores; the others are the least of "
    "these 32 times exp(score - its score), and all are divided by their sum. "
    "In the end every probability is raised to the power of sharpness, and divided by their sum.",
)


def exported(trained: TableModel, kind: str) -> bytes:
    """The content of a file with this extension: "json" or "onnx"."""
    check_kind(kind)
    if kind == "json":
        text = json.dumps(weights(trained), indent=1, allow_nan=False, ensure_ascii=True)
        return (text + "\n").encode("ascii")
    from lastiterate.models.onnx_graph import onnx_model

    return onnx_model(weights(trained))


def check_kind(kind: str) -> None:
    """Raise if no file with this extension can be written: better before the work than after."""
    if kind not in ("json", "onnx"):
        why = "the extension says what is written"
        raise DescriptionError("output", f".{kind}", "a .json or an .onnx file", why)
    if kind == "onnx":
        from lastiterate.models.onnx_graph import need_onnx

        need_onnx()


def weights(trained: TableModel) -> dict[str, Any]:
    """Encoding and weights as plain values; refused where their words do not say what it does."""
    model, schema = trained.model, trained.schema
    classes = model.classes_.tolist() if schema.classifies else None
    told = {
        "format": FORMAT,
        "version": VERSION,
        "model": type(model).__name__,
        "how": list(HOW),
        "columns": [_column(name, kind) for name, kind in schema.columns.items()],
        "features": [
            feature for name, kind in schema.columns.items() for feature in kind.features(name)
        ],
        **_preparation(model),
        "longest": model._rows.feature_bound,
        "fit_intercept": bool(model.fit_intercept),
        "coef": np.atleast_2d(model.coef_).tolist(),
        "intercept": np.atleast_1d(model.intercept_).tolist(),
        "target": schema.target_name,
        "classes": classes,
        "offset": 0.0 if schema.classifies else model._middle,
        "probabilities": _link(model) if schema.classifies else None,
        "privacy": _privacy(model),
    }
    _check(told, model)
    return told


def _check(told: dict[str, Any], model: Any) -> None:
    """A step of the model that `HOW` does not describe would be left out in silence."""
    X = np.random.default_rng(0).uniform(size=(64, model.n_features_in_))
    scores = _scores(told, X)
    if told["classes"] is None:
        same = np.allclose(scores[:, 0] + told["offset"], model.predict(X), rtol=1e-9)
    else:
        same = np.allclose(scores, model._scores(X), rtol=1e-9, atol=1e-12)
        if told["probabilities"] is not None:
            found = _probabilities(told["probabilities"], scores)
            same = same and np.allclose(found, model.predict_proba(X), rtol=1e-9)
    if not same:
        raise UnsupportedError(
            f"This {type(model).__name__} does more than an export can say: use `lastiterate "
            "predict`, or train it without what was set beside the defaults."
        )


def _scores(told: dict[str, Any], X: Array) -> Array:
    if (facts := told["prepare"]) is not None:
        X = (np.clip(X, facts["low"], facts["high"]) - facts["mean"]) / np.array(facts["scale"])
    if told["matrix"] is not None:
        X = X @ np.array(told["matrix"])
    if (bends := told["bends"]) is not None:
        parts = [X]
        for wave in bends["waves"]:
            phase = np.array(wave["pitch"]) * X
            parts.append(np.array(wave["cosine"]) * (np.cos(phase) - wave["middle"]))
            parts.append(np.array(wave["sine"]) * np.sin(phase))
        X = np.hstack(parts) * bends["factor"]
    table, bound = np.array(told["coef"]), told["longest"]
    if bound is not None:
        X = X * np.minimum(1.0, bound / np.linalg.norm(X, axis=1, keepdims=True))
    if told["fit_intercept"]:
        table = np.column_stack([table, told["intercept"]])
        X = np.hstack([X, np.ones((len(X), 1))])
    if bound is None:
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    return np.asarray(X @ table.T)


def _probabilities(how: dict[str, Any], scores: Array) -> Array:
    if how["link"] == "capped-logistic":
        chance = CappedLogistic(how["cap"]).probability(scores)
        chance = np.hstack([1 - chance, chance]) if scores.shape[1] == 1 else chance
    elif how["link"] == "ball-softmax":
        chance = BallSoftmax(scores.shape[1], how["radius"]).probability(scores)
    else:
        chance = CappedSoftmax(scores.shape[1], how["cap"]).probability(scores)
    return sharpened(chance / chance.sum(axis=1, keepdims=True), how["sharpness"])


def _column(name: str, kind: Column) -> dict[str, Any]:
    if isinstance(kind, Categorical):
        told: dict[str, Any] = {"kind": "text", "categories": list(kind.categories)}
        return {"name": name, **told, "other": kind.other, "missing": kind.missing}
    stored = "truth" if type(kind) is Boolean else "date" if type(kind) is Date else "number"
    ends = {"low": kind.low, "high": kind.high}
    return {"name": name, "kind": stored, **ends, "missing": kind.missing}


def _preparation(model: Any) -> dict[str, Any]:
    before, matrix = vars(model).get("prepare_"), None
    bends: dict[str, Any] | None = None
    if before is None:
        return {"prepare": None, "matrix": None, "bends": None}
    if isinstance(before, Bends):
        told = [{k: np.asarray(v).tolist() for k, v in wave.items()} for wave in before.waves]
        bends, before = {"factor": before.factor, "waves": told}, before.inner
    if isinstance(before, Whitening):
        before, matrix = before.scaler, before.matrix_.tolist()
    if isinstance(before, DeclaredRanges):
        mean, scale = (before.low + before.high) / 2, (before.high - before.low) / 2
    else:
        mean, scale = before.mean_, before.scale_
    features = model.n_features_in_
    low, high = (np.broadcast_to(end, features) for end in (before.low, before.high))
    facts = {"low": low, "high": high, "mean": mean, "scale": scale}
    scaled = {k: np.asarray(v).tolist() for k, v in facts.items()}
    return {"prepare": scaled, "matrix": matrix, "bends": bends}


def _link(model: Any) -> dict[str, Any] | None:
    """How scores become probabilities; None where there are none."""
    if not hasattr(model, "predict_proba"):
        return None
    objective = model._objective()
    one: Any = objective.binary if isinstance(objective, OneVsRest) else objective
    sharpness = vars(model).get("sharpness_", 1.0)  # calibrate= finds another
    if type(one) is BallSoftmax:
        return {"link": "ball-softmax", "radius": one.radius, "sharpness": sharpness}
    names: dict[Any, str] = {CappedLogistic: "capped-logistic", CappedSoftmax: "capped-softmax"}
    return {"link": names[type(one)], "cap": one.cap, "sharpness": sharpness}


def _privacy(model: Any) -> dict[str, Any]:
    certificate = model.certificate_
    if certificate is None:
        return {"certified": False, "epsilon": None, "delta": None}
    digest = {"certified": True, "certificate_sha256": certificate.sha256}
    return {
        **digest,
        "epsilon": certificate.epsilon,
        "delta": certificate.delta,
        "adjacency": certificate.adjacency,
        "for": str(certificate.unit),
    }
