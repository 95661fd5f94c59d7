"""Nodes of an ONNX graph, written one after the other; numbers are doubles throughout."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np


class Graph:
    """Nodes in order; names of our own never meet those of columns."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def _fresh(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def op(self, kind: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """One node; the name of what it gives."""
        from onnx import helper

        result = self._fresh(f"node {len(self._taken)}")
        self._nodes.append(
            helper.make_node(kind, list(inputs), [result], domain=domain, **attributes)
        )
        return result

    def constant(self, values: Any) -> str:
        """Doubles, or whole numbers, that the graph holds."""
        from onnx import numpy_helper

        array = np.asarray(values)
        array = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        name = self._fresh(f"constant {len(self._taken)}")
        self._constants.append(numpy_helper.from_array(array, name))
        return name

    def input(self, name: str, kind: int) -> str:
        """A column."""
        from onnx import helper

        self._inputs.append(helper.make_tensor_value_info(name, kind, ["rows", 1]))
        return name

    def output(self, name: str, value: str, kind: int, shape: list[Any]) -> None:
        """What the graph answers under a name."""
        from onnx import helper

        name = self._fresh(name)
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, kind, shape))

    def doubles(self, value: str) -> str:
        """Truths or whole numbers as doubles."""
        from onnx import TensorProto

        return self.op("Cast", value, to=TensorProto.DOUBLE)

    def clipped(self, value: str, low: Any, high: Any) -> str:
        """Between the two ends."""
        above = self.op("Max", value, self.constant(np.asarray(low, float)))
        return self.op("Min", above, self.constant(np.asarray(high, float)))

    def order(self, value: str, columns: int, largest: bool) -> str:
        """The places of the columns, in the order of what stands in a row."""
        from onnx import helper

        sorted_, places = (self._fresh(f"node {len(self._taken) + k}") for k in range(2))
        given = [value, self.constant(np.array([columns]))]
        node = helper.make_node("TopK", given, [sorted_, places], axis=1, largest=int(largest))
        self._nodes.append(node)
        return places

    def loop(
        self, times: int, step: Callable[..., tuple[Value, list[Value]]], *start: Value
    ) -> list[Value]:
        """``step`` of a count and these values gives the next ones, while its first answer is true.

        What it is given belongs to a graph of its own; other values it takes ``inside`` of that.
        """
        from onnx import TensorProto, helper

        inner = Graph(self._taken)
        names = [self._fresh(f"step {len(self._taken)}") for _ in range(2 + len(start))]
        again, after = step(*(Value(inner, name) for name in (names[0], *names[2:])))
        numbers = [(name, TensorProto.DOUBLE, None) for name in names[2:]]
        inputs: list[Any] = [
            (names[0], TensorProto.INT64, []),
            (names[1], TensorProto.BOOL, []),
            *numbers,
        ]
        inner._inputs = [helper.make_tensor_value_info(*each) for each in inputs]
        outputs: list[Any] = [
            (again.name, TensorProto.BOOL, []),
            *((value.name, TensorProto.DOUBLE, None) for value in after),
        ]
        inner._outputs = [helper.make_tensor_value_info(*each) for each in outputs]
        results = [self._fresh(f"node {len(self._taken)}") for _ in start]
        given = [self.constant(times), "", *(value.name for value in start)]
        self._nodes.append(helper.make_node("Loop", given, results, body=inner.made()))
        return [Value(self, name) for name in results]

    def made(self) -> Any:
        """The graph."""
        from onnx import helper

        parts = self._nodes, "lastiterate", self._inputs, self._outputs, self._constants
        return helper.make_graph(*parts)


@dataclass(frozen=True)
class Value:
    """What a node gives, with which one computes as with an array; nodes go into its graph."""

    graph: Graph
    name: str

    def inside(self, graph: Graph) -> Value:
        """The same for the nodes of a loop."""
        return replace(self, graph=graph)

    def of(self, kind: str, *others: Any, **attributes: Any) -> Value:
        """The node of this kind, with it first; the others are values or numbers."""
        names = [
            other.name if isinstance(other, Value) else self.graph.constant(other)
            for other in others
        ]
        return Value(self.graph, self.graph.op(kind, self.name, *names, **attributes))

    def where(self, then: Any, otherwise: Any) -> Value:
        """One or the other; this is a truth."""
        return self.of("Where", then, otherwise)

    def clipped(self, low: float, high: float) -> Value:
        """Between the two."""
        return Value(self.graph, self.graph.clipped(self.name, low, high))

    def doubles(self) -> Value:
        """A truth as 1 or 0."""
        return Value(self.graph, self.graph.doubles(self.name))

    def total(self) -> Value:
        """Along the last axis, which stays."""
        return self.of("ReduceSum", np.array([-1]))

    def part(self, axis: int, first: int, last: int) -> Value:
        """From the first place of an axis to before the last."""
        return self.of("Slice", *(np.array([each]) for each in (first, last, axis)))

    def __add__(self, other: Any) -> Value:
        return self.of("Add", other)

    def __sub__(self, other: Any) -> Value:
        return self.of("Sub", other)

    def __mul__(self, other: Any) -> Value:
        return self.of("Mul", other)

    def __truediv__(self, other: Any) -> Value:
        return self.of("Div", other)

    def __neg__(self) -> Value:
        return self.of("Neg")
