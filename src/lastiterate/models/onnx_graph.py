"""The weights of a table model as an ONNX graph: one input per column, in doubles throughout.

Numbers, truths (0 or 1) and dates (seconds since 1970) come as doubles of shape (rows, 1), with nan
where the cell is empty; texts as strings, with "" there. A row that the library would refuse gets
scores that are nan: a graph cannot refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from lastiterate.errors import MissingExtraError
from lastiterate.models.onnx_ball import ball_probabilities
from lastiterate.models.onnx_nodes import Graph, Value

_OPSET, _ML_OPSET, _IR = 17, 3, 8
_HOLES = ("", "nan", "NaN", "NAN", "null", "Null", "NULL")


def need_onnx() -> Any:
    """The module ``onnx``; raises where it is not installed."""
    try:
        import onnx
    except ImportError as missing:
        raise MissingExtraError("An ONNX graph", missing.name, "onnx") from None
    return onnx


def onnx_model(weights: Mapping[str, Any]) -> bytes:
    """The graph, checked by `onnx`, as the bytes of its file."""
    onnx = need_onnx()
    graph = Graph({column["name"] for column in weights["columns"]})
    features = graph.op("Concat", *(_encoded(graph, each) for each in weights["columns"]), axis=1)
    rows = _rows(graph, _prepared(graph, features, weights), weights)
    table = np.array(weights["coef"])
    if weights["fit_intercept"]:
        table = np.hstack([table, np.reshape(weights["intercept"], (-1, 1))])
    scores = graph.op("MatMul", rows, graph.constant(table.T))
    if weights["classes"] is None:
        number = graph.op("Add", scores, graph.constant(weights["offset"]))
        graph.output("prediction", number, onnx.TensorProto.DOUBLE, ["rows", 1])
    else:
        _classified(graph, scores, weights)
    model = onnx.helper.make_model(
        graph.made(),
        opset_imports=[
            onnx.helper.make_opsetid("", _OPSET),
            onnx.helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ],
        producer_name="lastiterate",
        doc_string=__doc__ or "",
    )
    model.ir_version = _IR
    facts = {f"privacy.{name}": value for name, value in weights["privacy"].items()}
    facts |= {"model": weights["model"], "target": weights["target"]}
    words = {k: v if isinstance(v, str) else json.dumps(v) for k, v in facts.items()}
    onnx.helper.set_model_props(model, words)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _encoded(graph: Graph, column: Mapping[str, Any]) -> str:
    from onnx import TensorProto

    if column["kind"] == "text":
        return _one_hot(graph, column, graph.input(column["name"], TensorProto.STRING))
    cells = graph.input(column["name"], TensorProto.DOUBLE)
    low, high = column["low"], column["high"]
    holes = graph.op("Not", graph.op("Equal", cells, cells))
    above = graph.op("Sub", graph.clipped(cells, low, high), graph.constant(low))
    scaled = graph.op("Div", above, graph.constant(high - low))
    empty = graph.constant(0.0 if column["missing"] else np.nan)
    value = graph.op("Where", holes, empty, scaled)
    return graph.op("Concat", value, graph.doubles(holes), axis=1) if column["missing"] else value


def _one_hot(graph: Graph, column: Mapping[str, Any], cells: str) -> str:
    categories, other, missing = column["categories"], column["other"], column["missing"]
    place = {category: k for k, category in enumerate(categories)}
    width = len(categories) + other + missing
    nothing = width - 1 if missing else -1
    for hole in _HOLES:
        place.setdefault(hole, nothing)
    places = graph.op(
        "LabelEncoder",
        cells,
        domain="ai.onnx.ml",
        keys_strings=list(place),
        values_int64s=list(place.values()),
        default_int64=len(categories) if other else -1,
    )
    ones = graph.doubles(graph.op("Equal", places, graph.constant(np.arange(width)[None])))
    refused = graph.op("Less", places, graph.constant(0))
    return graph.op("Where", refused, graph.constant(np.nan), ones)


def _prepared(graph: Graph, features: str, weights: Mapping[str, Any]) -> str:
    facts = weights["prepare"]
    if facts is None:
        return features
    inside = graph.clipped(features, facts["low"], facts["high"])
    centred = graph.op("Sub", inside, graph.constant(np.array(facts["mean"])))
    scaled = graph.op("Div", centred, graph.constant(np.array(facts["scale"])))
    if weights["matrix"] is not None:
        scaled = graph.op("MatMul", scaled, graph.constant(np.array(weights["matrix"])))
    if weights["bends"] is None:
        return scaled
    x, parts = Value(graph, scaled), []
    for wave in weights["bends"]["waves"]:
        phase = x * np.array(wave["pitch"])
        parts += [(phase.of("Cos") - wave["middle"]) * np.array(wave["cosine"])]
        parts += [phase.of("Sin") * np.array(wave["sine"])]
    return (x.of("Concat", *parts, axis=1) * float(weights["bends"]["factor"])).name


def _rows(graph: Graph, X: str, weights: Mapping[str, Any]) -> str:
    """Rows of bounded norm, with the intercept's 1."""
    longest = weights["longest"]
    if longest is None:
        X = _with_ones(graph, X, weights)
        norms = _norms(graph, X)
        some = graph.op("Greater", norms, graph.constant(0.0))
        return graph.op("Div", X, graph.op("Where", some, norms, graph.constant(1.0)))
    bound = graph.constant(float(longest))
    factor = graph.op("Div", bound, graph.op("Max", _norms(graph, X), bound))
    return _with_ones(graph, graph.op("Mul", X, factor), weights)


def _with_ones(graph: Graph, X: str, weights: Mapping[str, Any]) -> str:
    if not weights["fit_intercept"]:
        return X
    first = graph.op("Gather", X, graph.constant(np.array([0])), axis=1)
    zeros = graph.op("Mul", first, graph.constant(0.0))  # nan stays nan
    return graph.op("Concat", X, graph.op("Add", zeros, graph.constant(1.0)), axis=1)


def _norms(graph: Graph, X: str) -> str:
    squares = graph.op("ReduceSum", graph.op("Mul", X, X), graph.constant(np.array([1])))
    return graph.op("Sqrt", squares)


def _classified(graph: Graph, scores: str, weights: Mapping[str, Any]) -> None:
    from onnx import TensorProto

    classes, one = weights["classes"], len(weights["coef"]) == 1
    if one:
        positive = graph.op("Greater", scores, graph.constant(0.0))
        place = graph.op("Cast", positive, to=TensorProto.INT64)
    else:
        place = graph.op("ArgMax", scores, axis=1, keepdims=1)
    named = np.array(classes)
    if named.dtype.kind == "U":
        kind = TensorProto.STRING
        label = graph.op(
            "LabelEncoder",
            place,
            domain="ai.onnx.ml",
            keys_int64s=list(range(len(classes))),
            values_strings=classes,
        )
    else:
        kinds = {"b": TensorProto.BOOL, "i": TensorProto.INT64, "f": TensorProto.DOUBLE}
        kind = kinds[named.dtype.kind]
        label = graph.op("Cast", graph.op("Gather", graph.constant(named), place), to=kind)
    graph.output("label", label, kind, ["rows", 1])
    graph.output("scores", scores, TensorProto.DOUBLE, ["rows", len(weights["coef"])])
    if weights["probabilities"] is not None:
        chances = _probabilities(graph, scores, weights["probabilities"], len(classes))
        graph.output("probabilities", chances, TensorProto.DOUBLE, ["rows", len(classes)])


def _probabilities(graph: Graph, scores: str, how: Mapping[str, Any], classes: int) -> str:
    sharpness = graph.constant(float(how["sharpness"]))
    if how["link"] == "ball-softmax":
        chance = ball_probabilities(graph, scores, classes, float(how["radius"]))
        return _shared(graph, graph.op("Pow", chance, sharpness))
    cap = graph.constant(float(how["cap"]))
    if how["link"] == "capped-logistic":
        up = graph.op("Min", graph.op("Sigmoid", scores), cap)
        down = graph.op("Min", graph.op("Sigmoid", graph.op("Neg", scores)), cap)
        chance = graph.op("Div", up, graph.op("Add", up, down))
        if classes == 2:
            chance = graph.op(
                "Concat", graph.op("Sub", graph.constant(1.0), chance), chance, axis=1
            )
    else:
        p, unit = graph.op("Softmax", scores, axis=1), graph.constant(1.0)
        others = graph.op("Div", graph.op("Sub", unit, p), cap)
        chance = graph.op("Mul", p, graph.op("Max", unit, others))
    return _shared(graph, graph.op("Pow", _shared(graph, chance), sharpness))


def _shared(graph: Graph, parts: str) -> str:
    """Each over the sum of its row."""
    return graph.op("Div", parts, graph.op("ReduceSum", parts, graph.constant(np.array([1]))))
