"""One update of many networks as a CUDA graph: recorded once, replayed without a launch per kernel.

Random numbers inside must come from torch's default generator of the device, which a graph
advances at every replay; private generators would repeat themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

Tensor = Any


def recorded(
    update: Callable[[], None], state: Sequence[Tensor], seed: int, *, tf32: bool = False
) -> Callable[[], None]:
    """A function that does what ``update`` does, in place, on the same memory.

    Args:
        update: changes the tensors of ``state`` and no others, without asking for their values.
        state: they are as before when this returns.
        seed: of the default generator, from the first replay on.
        tf32: whether 32-bit products may round their factors; the recorded kernels keep it.
    """
    before = [tensor.clone() for tensor in state]
    products = torch.backends.cuda.matmul
    rounding, products.allow_tf32 = products.allow_tf32, tf32 or products.allow_tf32
    cuda: Any = torch.cuda
    side = cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries choose their kernels before they are recorded
            update()
    torch.cuda.current_stream().wait_stream(side)
    graph: Any = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        update()
    products.allow_tf32 = rounding
    for tensor, start in zip(state, before, strict=True):
        tensor.copy_(start)
    torch.cuda.manual_seed(seed)
    return _Recorded(graph, update)


class _Recorded:
    """The graph, and the update whose tensors it reads and writes: they must outlive it, or others
    would be given their memory.
    """

    def __init__(self, graph: Any, update: Callable[[], None]) -> None:
        self._graph, self._update = graph, update

    def __call__(self) -> None:
        self._graph.replay()
