"""Variables of a TensorFlow checkpoint, read without TensorFlow.

A checkpoint is a LevelDB table of names, `<prefix>.index`, and files of raw little-endian values,
`<prefix>.data-00000-of-00001` (tensorflow/core/util/tensor_bundle, tensorflow/tsl/lib/io/format.h). TensorFlow itself
is half a gigabyte, and the readers of the package index that go without it hold its protocols of some years ago.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

FOOTER_BYTES = 48
MAGIC = 0xDB4775248B80FB57
DTYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 19: "<f2"}
"""Number in tensorflow/core/framework/types.proto → NumPy's name."""

Fields = Mapping[int, list[int | bytes]]
"""Values of a protocol buffer by field number."""


def variables(prefix: Path) -> dict[str, np.ndarray]:
    """Name → values, mapped from the files and not read yet.

    Args:
        prefix: the checkpoint's files without their endings.

    Raises:
        FileNotFoundError: where a file is missing.
        ValueError: for a file that is no such checkpoint, or cut off; names it.
    """
    index = prefix.with_name(f"{prefix.name}.index")
    content = index.read_bytes()
    try:
        entries = dict(_entries(content))
        header = _fields(entries.pop(b""))
    except (IndexError, KeyError):
        raise ValueError(f"{index} is no whole index of a TensorFlow checkpoint") from None
    num_shards = _number(header, 1)
    shards = [prefix.with_name(f"{prefix.name}.data-{n:05d}-of-{num_shards:05d}") for n in range(num_shards)]
    return {name.decode(): _mapped(_fields(entry), shards=shards) for name, entry in sorted(entries.items())}


def without_slots(found: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A model's variables: without those of its optimiser, `<variable>/<slot>`, and without the step."""
    return {
        name: values for name, values in found.items() if name != "global_step" and name.rpartition("/")[0] not in found
    }


def _mapped(entry: Fields, *, shards: list[Path]) -> np.ndarray:
    sizes = (_number(_fields(dim), 1) for shape in entry.get(2, [b""]) for dim in _fields(shape).get(2, []))
    file, shape = shards[_number(entry, 3)], tuple(sizes)
    dtype = np.dtype(DTYPES[_number(entry, 1)])
    offset, size = _number(entry, 4), _number(entry, 5)
    if offset + size > file.stat().st_size:
        raise ValueError(f"{file} is cut off: it has {file.stat().st_size} bytes of at least {offset + size}")
    return np.memmap(file, dtype=dtype, mode="r", offset=offset, shape=shape)


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table."""
    footer = table[-FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != MAGIC:
        raise KeyError("magic number")
    _, place = _handle(footer, 0)  # of the meta index, which is empty
    place_of_index, _ = _handle(footer, place)
    for _, handle in _block(table, *place_of_index):
        yield from _block(table, *_handle(handle, 0)[0])


def _handle(data: bytes, place: int) -> tuple[tuple[int, int], int]:
    """Offset and size of a block, and where the next handle begins."""
    offset, place = _varint(data, place)
    size, place = _varint(data, place)
    return (offset, size), place


def _block(table: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Entries of a block; each key begins with so many bytes of the one before."""
    if table[offset + size] != 0:
        raise KeyError("compressed block")
    data = table[offset : offset + size]
    end = size - 4 - 4 * int.from_bytes(data[-4:], "little")
    place, key = 0, b""
    while place < end:
        shared, place = _varint(data, place)
        added, place = _varint(data, place)
        length, place = _varint(data, place)
        key = key[:shared] + data[place : place + added]
        place += added
        yield key, data[place : place + length]
        place += length


def _fields(message: int | bytes) -> dict[int, list[int | bytes]]:
    """Fields of a protocol buffer by number, as they stand on the wire."""
    assert isinstance(message, bytes)
    found: dict[int, list[int | bytes]] = {}
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        value: int | bytes
        if tag & 7 == 0:
            value, place = _varint(message, place)
        else:
            length, place = _varint(message, place) if tag & 7 == 2 else ({1: 8, 5: 4}[tag & 7], place)
            value, place = message[place : place + length], place + length
        found.setdefault(tag >> 3, []).append(value)
    return found


def _number(fields: Fields, number: int) -> int:
    """A scalar field; protocol buffers leave zeros out."""
    value = fields.get(number, [0])[-1]
    assert isinstance(value, int)
    return value


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A number in groups of seven bits, and where it ends."""
    value, shift = 0, 0
    while True:
        byte = data[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
