"""One update of many networks as a CUDA graph: recorded once, replayed without a launch per kernel.

Random numbers inside must come from torch's default generator of the device; private generators
would repeat themselves. The graph advances a state of its own: the default generator is as before.
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
        seed: of the numbers that are drawn, from the first replay on.
        tf32: whether 32-bit products may round their factors; the recorded kernels keep it.
    """
    from lastiterate.train.torch_backend.replay import process_state_restored

    before, device = [tensor.clone() for tensor in state], state[0].device
    products = torch.backends.cuda.matmul
    rounding, products.allow_tf32 = products.allow_tf32, tf32 or products.allow_tf32
    cuda: Any = torch.cuda
    stream, graph = cuda.Stream(device), cuda.CUDAGraph()
    try:
        with process_state_restored(device) as pool:
            drawn_from = cuda.default_generators[device.index].graphsafe_get_state()
            stream.wait_stream(cuda.current_stream(device))
            with cuda.stream(stream):
                for _ in range(3):  # libraries choose their kernels before they are recorded
                    update()
            cuda.current_stream(device).wait_stream(stream)
            with cuda.graph(graph, pool, stream):
                update()
    finally:
        products.allow_tf32 = rounding
    for tensor, start in zip(state, before, strict=True):
        tensor.copy_(start)
    drawn_from.manual_seed(seed)
    return _Recorded(graph, update)


class _Recorded:
    """The graph, and the update whose tensors it reads and writes: they must outlive it, or others
    would be given their memory.
    """

    def __init__(self, graph: Any, update: Callable[[], None]) -> None:
        self._graph, self._update = graph, update

    def __call__(self) -> None:
        self._graph.replay()
