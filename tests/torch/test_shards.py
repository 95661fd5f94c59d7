"""Rows out of files: the same numbers, no copies, no half-read blocks."""

from __future__ import annotations

import json
import struct
import threading

import numpy as np
import pytest

from lastiterate.errors import DescriptionError, UnsupportedError

torch = pytest.importorskip("torch")
from lastiterate.train.torch_backend.shards import Shard, Shards  # noqa: E402
from lastiterate.train.torch_backend.staging import Ring  # noqa: E402

CPU = torch.device("cpu")


def write_safetensors(path, tensors):
    """The format by its specification: header length, JSON header, raw values."""
    header, raw = {"__metadata__": {"made": "by hand"}}, b""
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64"}
    for name, tensor in tensors.items():
        data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        place = [len(raw), len(raw) + len(data)]
        raw += data
        shape = list(tensor.shape)
        header[name] = {"dtype": names[tensor.dtype], "shape": shape, "data_offsets": place}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw)


def same(shards, expected):
    assert shards.shape == tuple(expected.shape)
    assert shards.dtype == expected.dtype
    n = len(expected)
    rng = np.random.default_rng(0)
    for _ in range(20):
        first, last = sorted(rng.integers(0, n + 1, 2).tolist())
        assert torch.equal(shards.rows(first, last), expected[first:last])
        chosen = rng.permutation(n)[: n // 3]
        assert torch.equal(shards.gather(chosen), expected[np.sort(chosen)])
    for length in (1, 7, n, 5 * n):
        seen = []
        for cut, block in shards.blocks(3, n, CPU, length):
            assert torch.equal(block, expected[cut])
            seen += range(cut.start, cut.stop)
        assert seen == list(range(3, n))


def test_npy(tmp_path):
    values = torch.randn(50, 4)
    paths = []
    for k, part in enumerate(torch.split(values, [20, 1, 29])):
        paths.append(tmp_path / f"{k}.npy")
        np.save(paths[-1], part.numpy())
    same(Shards(paths), values)
    same(Shards(str(paths[0])), values[:20])
    same(Shards([values.numpy()[:30], values[30:]]), values)
    np.save(tmp_path / "short.npy", values.half().numpy())
    same(Shards(tmp_path / "short.npy"), values.half())


def test_mapped_files_are_not_copied(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((8, 2), np.float32))
    shards = Shards(tmp_path / "a.npy")
    assert shards.rows(0, 4).data_ptr() == shards.rows(0, 8).data_ptr()


def test_safetensors(tmp_path):
    values = torch.randn(33, 6).to(torch.bfloat16)
    path = tmp_path / "one.safetensors"
    write_safetensors(path, {"features": values})
    same(Shards(path), values)
    both = tmp_path / "two.safetensors"
    write_safetensors(both, {"labels": torch.arange(33), "x": values, "z": values.float()})
    same(Shards(both, name="z"), values.float())
    same(Shards(both, name="x"), values)
    for name in (None, "labels", "unheard of"):
        with pytest.raises(DescriptionError, match=r"two\.safetensors holds labels"):
            Shards(both, name=name)


def test_files_of_the_real_library(tmp_path):
    library = pytest.importorskip("safetensors.torch")
    values = torch.randn(9, 3)
    library.save_file({"x": values}, tmp_path / "x.safetensors")
    same(Shards(tmp_path / "x.safetensors"), values)


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    values = torch.randn(40, 3)
    table = arrow.table({f"c{k}": values[:, k].numpy() for k in range(3)})
    parquet.write_table(table, tmp_path / "x.parquet", row_group_size=11)
    same(Shards(tmp_path / "x.parquet"), values)


def test_refusals(tmp_path):
    with pytest.raises(UnsupportedError, match=r"\.csv"):
        Shards(tmp_path / "x.csv")
    with pytest.raises(DescriptionError, match="equal width"):
        Shards([np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)])
    with pytest.raises(DescriptionError, match="one row per record"):
        Shards(np.ones(3))


class Torn(Shard):
    """A shard whose second half cannot be read."""

    shape, dtype = (100, 2), torch.float32

    def rows(self, first, last):
        if last > 50:
            raise OSError("the disk is gone")
        return torch.ones(last - first, 2)


def test_a_reader_that_fails_fails_the_run():
    shards = Shards(np.ones((100, 2), np.float32))
    shards._shards = [Torn()]
    read = []
    with pytest.raises(OSError, match="the disk is gone"):
        read.extend(cut for cut, _ in shards.blocks(0, 100, CPU, 10))
    assert len(read) <= 5


def test_leaving_early_leaves_no_thread(tmp_path):
    shards = Shards(np.ones((100, 2), np.float32))
    before = threading.active_count()
    for _, _ in shards.blocks(0, 100, CPU, 10):
        break
    assert threading.active_count() == before


# --- the ring of buffers that a GPU fetches from, here without a GPU -----------------------------


@pytest.mark.parametrize("fillers", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_ring_holds_the_rows_in_order(tmp_path, fillers, dtype):
    values = torch.randn(997, 6).to(dtype)
    strided = torch.randn(53, 12).to(dtype)[:, ::2]
    path = tmp_path / "x.safetensors"
    write_safetensors(path, {"x": values[400:]})
    shards = Shards([values[:5], values[5:400], path, strided])
    expected = torch.cat([values, strided])
    n = len(expected)
    cuts = [slice(a, min(a + 64, n)) for a in range(0, n, 64)]
    stages = [torch.full((64, 6), -7.0, dtype=dtype) for _ in range(3)]
    ring = Ring(shards, cuts, stages, fillers)
    held, seen = [], []
    while (item := ring.take()) is not None:
        cut, block, stage = item
        assert torch.equal(block, expected[cut])
        seen.append(cut)
        held.append(stage)
        if len(held) == 2:  # buffers that are not given back are not touched
            assert all(stage is not other for other in held[:1])
            ring.give_back(held.pop(0))
    assert seen == cuts
    ring.close()


class Fetched:
    """An event that says when it was asked for."""

    def __init__(self, stage):
        self._stage = stage

    def synchronize(self):
        self._stage.fill_(-1.0)


def test_a_buffer_is_filled_again_only_when_it_was_fetched():
    shards = Shards(np.ones((6, 2), np.float32))
    stage = torch.zeros(2, 2)
    ring = Ring(shards, [slice(0, 2), slice(2, 4), slice(4, 6)], [stage], 2)
    for _ in range(3):
        _, block, same = ring.take()
        assert same is stage
        assert torch.equal(block, torch.ones(2, 2))  # after the event wrote -1
        ring.give_back(stage, Fetched(stage))
    assert ring.take() is None
    ring.close()


def test_a_ring_that_is_left_or_torn_leaves_no_thread():
    before = threading.active_count()
    shards = Shards(np.ones((100, 2), np.float32))
    ring = Ring(shards, [slice(a, a + 10) for a in range(0, 100, 10)], [torch.zeros(10, 2)], 2)
    ring.take()
    ring.close()
    assert threading.active_count() == before
    shards._shards = [Torn()]
    ring = Ring(shards, [slice(0, 10), slice(50, 60)], [torch.zeros(10, 2)] * 2, 2)
    ring.take()
    with pytest.raises(OSError, match="the disk is gone"):
        ring.take()
    ring.close()
    assert threading.active_count() == before
