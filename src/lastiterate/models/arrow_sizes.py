"""How much memory an Arrow file asks for, read off its messages before anything is unpacked.

A message is a FlatBuffer (Message.fbs of Apache Arrow) and a body. Of a record batch, also of the
one inside of a dictionary batch, the header names its buffers; where it names a compression too,
every buffer begins with the length that it unpacks to, or -1 if it is stored as it is. A stream is
a row of messages; a file has a footer (File.fbs) that says where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

_DICTIONARY, _BATCH = 2, 3  # kinds of headers
_HEADER_TYPE, _HEADER, _DATA, _BUFFERS, _COMPRESSION = 1, 2, 1, 2, 3  # places of fields
_BLOCKS = (2, 3)  # of a footer: where dictionaries and record batches are
_MARK = b"\xff\xff\xff\xff"  # before the length of a header, but not in old files


def unpacked(content: bytes, stream: bool) -> int:
    """Bytes of all buffers of a stream, or a file, once they are unpacked.

    >>> import pyarrow as pa
    >>> table, sink = pa.table({"a": pa.array([0] * 10**6)}), pa.BufferOutputStream()
    >>> packed = pa.ipc.IpcWriteOptions(compression="zstd")
    >>> with pa.ipc.new_stream(sink, table.schema, options=packed) as file:
    ...     file.write_table(table)
    >>> content = sink.getvalue().to_pybytes()
    >>> len(content) < 10_000, unpacked(content, stream=True) >= 8 * 10**6
    (True, True)
    """
    return sum(_of_message(*each) for each in (_messages if stream else _blocks)(content))


def _messages(content: bytes) -> Iterator[tuple[bytes, memoryview]]:
    from pyarrow import ipc

    found = ipc.MessageReader.open_stream(content)
    while True:
        try:
            message = found.read_next_message()
        except StopIteration:
            return
        yield message.metadata.to_pybytes(), memoryview(message.body)


def _blocks(content: bytes) -> Iterator[tuple[bytes, memoryview]]:
    (length,) = struct.unpack("<i", content[-10:-6])
    footer, whole = content[-10 - length : -10], memoryview(content)
    for number in _BLOCKS:
        place = _field(footer, _table(footer, 0), number)
        for first, header, body in _structs(footer, place, "<qi4xq"):
            start = first + (8 if content[first : first + 4] == _MARK else 4)
            end = first + header
            yield content[start:end], whole[end : end + body]


def _of_message(header: bytes, body: memoryview) -> int:
    root = _table(header, 0)
    kind, place = _field(header, root, _HEADER_TYPE), _field(header, root, _HEADER)
    if kind is None or place is None or header[kind] not in (_DICTIONARY, _BATCH):
        return 0
    batch = _table(header, place)
    if header[kind] == _DICTIONARY:
        inside = _field(header, batch, _DATA)
        if inside is None:
            return 0
        batch = _table(header, inside)
    packed = _field(header, batch, _COMPRESSION) is not None
    buffers = _structs(header, _field(header, batch, _BUFFERS), "<qq")
    return sum(_length(body[offset : offset + length], packed) for offset, length in buffers)


def _length(buffer: memoryview, packed: bool) -> int:
    told = struct.unpack("<q", buffer[:8])[0] if packed and len(buffer) >= 8 else -1
    return len(buffer) if told < 0 else int(told)


def _structs(data: bytes, place: int | None, shape: str) -> Iterator[tuple[Any, ...]]:
    """What stands in a vector; nothing if it is not there."""
    if place is None:
        return
    vector = _table(data, place)
    (count,) = struct.unpack_from("<I", data, vector)
    size = struct.calcsize(shape)
    yield from struct.iter_unpack(shape, data[vector + 4 : vector + 4 + size * count])


def _table(data: bytes, place: int) -> int:
    """Where the table, or the vector, is that stands at this place."""
    return place + int(struct.unpack_from("<I", data, place)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Where a field of a table is; None if it is not there."""
    slots = table - int(struct.unpack_from("<i", data, table)[0])
    (size,) = struct.unpack_from("<H", data, slots)
    if size < 6 + 2 * number:
        return None
    (offset,) = struct.unpack_from("<H", data, slots + 4 + 2 * number)
    return table + offset if offset else None
