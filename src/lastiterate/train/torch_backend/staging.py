"""Reading ahead: blocks of rows are on their way while the last one is used.

A GPU copies fast only from pinned memory. Rows in memory are pinned where they are, once; rows of
mapped files are written to a ring of pinned buffers by several threads, as one thread copies slower
than the bus, and the device fetches a buffer while others are filled.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import torch
from torch import Tensor

STAGES = 4  # one is fetched, one is full, two are filled
FILLERS = 2  # threads that copy, each with PyTorch's own; more were slower (16 cores, measured)


def page_lock(values: Tensor, owner: object) -> None:
    """Pin a tensor's memory for as long as its owner lives, if the driver agrees."""
    if values.numel() == 0 or not values.is_contiguous() or values.is_pinned():
        return
    runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    address = values.data_ptr()
    if int(runtime.cudaHostRegister(address, values.numel() * values.element_size(), 0)) == 0:
        weakref.finalize(owner, runtime.cudaHostUnregister, address)
        return
    try:  # the driver reports a refusal once more, to whoever launches next
        torch.zeros(1, device="cuda")
    except RuntimeError:
        torch.zeros(1, device="cuda")


class Readable(Protocol):
    """Rows that can be asked for."""

    shape: tuple[int, int]
    dtype: torch.dtype

    def rows(self, first: int, last: int) -> Tensor: ...

    def pieces(self, first: int, last: int) -> list[Tensor]: ...


def ahead(shards: Readable, cuts: list[slice], depth: int = 2) -> Iterator[tuple[slice, Tensor]]:
    """Blocks in host memory, touched by another thread before they are needed."""
    waiting: queue.Queue[Any] = queue.Queue(depth)
    stop = threading.Event()

    def read() -> None:
        try:
            for cut in cuts:
                block = shards.rows(cut.start, cut.stop)
                if block.numel():
                    block.view(-1)[:: max(1, 4096 // block.element_size())].sum()  # page it in
                if not _put(waiting, (cut, block), stop):
                    return
            _put(waiting, None, stop)
        except BaseException as error:  # the reader's problem is the run's problem
            _put(waiting, error, stop)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stop.set()
        thread.join()


def _put(waiting: queue.Queue[Any], item: Any, stop: threading.Event) -> bool:
    while not stop.is_set():
        try:
            waiting.put(item, timeout=0.1)
            return True
        except queue.Full:
            continue
    return False


class Ring:
    """Blocks copied into a few buffers by several threads, ahead of whoever takes them."""

    def __init__(
        self, shards: Readable, cuts: list[slice], stages: list[Tensor], fillers: int = FILLERS
    ) -> None:
        self._shards, self._cuts, self._fillers = shards, cuts, fillers
        self._free: queue.Queue[tuple[Tensor, Any]] = queue.Queue()
        for stage in stages:
            self._free.put((stage, None))
        self._full: queue.Queue[Any] = queue.Queue()
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(fillers)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def take(self) -> tuple[slice, Tensor, Tensor] | None:
        """The next block as (rows, values, their buffer); None after the last."""
        item = self._full.get()
        if isinstance(item, BaseException):
            raise item
        if item is None:
            return None
        cut, stage, copies = item
        for copy in copies:
            copy.result()
        return cut, stage[: cut.stop - cut.start], stage

    def give_back(self, stage: Tensor, fetched: Any = None) -> None:
        """The buffer may be filled again once ``fetched``, an event, has happened."""
        self._free.put((stage, fetched))

    def close(self) -> None:
        """End all threads."""
        self._stop.set()
        self._reader.join()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _read(self) -> None:
        try:
            for cut in self._cuts:
                stage = self._next_free()
                if stage is None:
                    return
                self._full.put((cut, stage, self._fill(stage, cut)))
            self._full.put(None)
        except BaseException as error:  # the reader's problem is the run's problem
            self._full.put(error)

    def _next_free(self) -> Tensor | None:
        while not self._stop.is_set():
            try:
                stage, fetched = self._free.get(timeout=0.1)
            except queue.Empty:
                continue
            if fetched is not None:
                fetched.synchronize()
            return stage
        return None

    def _fill(self, stage: Tensor, cut: slice) -> list[Future[Tensor]]:
        share = max(1, -(-(cut.stop - cut.start) // self._fillers))
        copies, place = [], 0
        for piece in self._shards.pieces(cut.start, cut.stop):
            for some in torch.split(piece, share):
                target = stage[place : place + len(some)]
                copies.append(self._pool.submit(target.copy_, some))
                place += len(some)
        return copies


def to_gpu(
    shards: Readable, cuts: list[slice], device: torch.device
) -> Iterator[tuple[slice, Tensor]]:
    """Blocks on the GPU, fetched by a second stream while the current one works."""
    if not cuts:
        return
    shape = (max(cut.stop - cut.start for cut in cuts), shards.shape[1])
    buffers = [torch.empty(shape, dtype=shards.dtype, device=device) for _ in range(2)]
    fetcher = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    # Recorded when the device is done with a buffer.
    used = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
    ring = None
    if not all(shards.rows(c.start, c.start + 1).is_pinned() for c in (cuts[0], cuts[-1])):
        pinned = [torch.empty(shape, dtype=shards.dtype, pin_memory=True) for _ in range(STAGES)]
        ring = Ring(shards, cuts, pinned)

    def fetched(turn: int) -> tuple[slice, Tensor, Any] | None:
        if turn == len(cuts):
            return None
        if ring is None:
            cut, stage = cuts[turn], None
            source = shards.rows(cut.start, cut.stop)
        else:
            taken = ring.take()
            assert taken is not None
            cut, source, stage = taken
        target = buffers[turn % 2][: len(source)]
        arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(fetcher):
            fetcher.wait_event(used[turn % 2])
            target.copy_(source, non_blocking=True)
            arrived.record(fetcher)
        if ring is not None and stage is not None:
            ring.give_back(stage, arrived)
        return cut, target, arrived

    try:
        for event in used:
            event.record(torch.cuda.current_stream(device))
        turn, block = 0, fetched(0)
        while block is not None:
            cut, target, arrived = block
            torch.cuda.current_stream(device).wait_event(arrived)
            turn += 1
            block = fetched(turn)  # on its way before this block is used, so that they overlap
            yield cut, target
            used[(turn - 1) % 2].record(torch.cuda.current_stream(device))
    finally:
        if ring is not None:
            ring.close()
        torch.cuda.current_stream(device).wait_stream(fetcher)
