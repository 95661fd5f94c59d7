"""Probabilities of `BallSoftmax` as an ONNX graph: scores of all kinds against the loss itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lastiterate.losses import BallSoftmax
from lastiterate.models.onnx_ball import ball_probabilities
from lastiterate.models.onnx_nodes import Graph

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


def graph_of(classes: int, radius: float) -> Any:
    double, graph = onnx.TensorProto.DOUBLE, Graph({"scores"})
    graph.output(
        "p", ball_probabilities(graph, "scores", classes, radius), double, ["rows", classes]
    )
    made = graph.made()
    made.input.append(onnx.helper.make_tensor_value_info("scores", double, ["rows", classes]))
    model = onnx.helper.make_model(made, opset_imports=[onnx.helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return lambda scores: session.run(None, {"scores": scores})[0]


@pytest.mark.parametrize("classes", [2, 3, 11, 40])
@pytest.mark.parametrize("radius", [1e-3, 0.75, 1.0])
def test_a_graph_has_the_probabilities_of_the_loss(classes: int, radius: float) -> None:
    rng, answer = np.random.default_rng(classes), graph_of(classes, radius)
    kinds = [np.zeros((1, classes))]
    for size in (1e-300, 1e-9, 0.1, 1.0, 4.0, 30.0, 700.0, 1e5, 1e9):
        scores = size * rng.standard_normal((6, classes))
        scores[0] = np.round(scores[0] / size) * size  # ties
        scores[1, :2] = scores[1].max()
        scores[2, :] = scores[2].min()  # one against all others
        scores[2, -1] += size
        kinds.append(scores)
    scores = np.vstack(kinds)
    found, truth = answer(scores), BallSoftmax(classes, radius).probability(scores)
    assert abs(found - truth).max() < 1e-10
    assert abs(found / np.maximum(truth, 1e-290) - 1)[truth > 1e-290].max() < 1e-6
    one_by_one = np.vstack([answer(row[None]) for row in scores[::7]])
    assert abs(one_by_one - found[::7]).max() < 1e-10  # not what else is asked about


def test_a_row_that_is_not_known_spoils_no_other() -> None:
    scores = np.array([[1.0, 0.0, -1.0], [np.nan, 0.0, 1.0], [0.0, np.inf, 1.0], [3.0, 3.0, 0.0]])
    answer = graph_of(3, 0.75)
    found = answer(scores)
    assert np.isnan(found).all(axis=1).tolist() == [False, True, True, False]
    assert abs(found[[0, 3]] - answer(scores[[0, 3]])).max() < 1e-10
