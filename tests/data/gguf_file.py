# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads GGUF version 3: its key-value pairs and its tensors, dequantised from Q4_1, Q8_0 or F32 to float32."""

import math
import mmap
import struct

import numpy as np

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_BLOCK = 32  # values that share a scale
_BLOCK_TYPES = {
    _Q4_1: np.dtype([("scale", "<f2"), ("minimum", "<f2"), ("codes", "u1", _BLOCK // 2)]),
    _Q8_0: np.dtype([("scale", "<f2"), ("codes", "i1", _BLOCK)]),
}


class GgufFile:
    """`fields`: {key: value}. `tensor(name)`: float32 rows, in the shape that a row-major reader expects."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._position = 0
        magic, version, tensor_count, field_count = self._take("<4sIQQ")
        if magic != b"GGUF" or version != 3:
            raise ValueError(f"{path}: {magic!r} version {version} is not GGUF version 3")
        self.fields = {}
        for _ in range(field_count):
            key = self._string()
            self.fields[key] = self._value(*self._take("<I"))
        self._entries = dict(self._entry() for _ in range(tensor_count))
        alignment = self.fields.get("general.alignment", 32)
        self._data = -(-self._position // alignment) * alignment

    def _take(self, layout):
        values = struct.unpack_from(layout, self._bytes, self._position)
        self._position += struct.calcsize(layout)
        return values

    def _string(self):
        (length,) = self._take("<Q")
        (text,) = self._take(f"<{length}s")
        return text.decode()

    def _value(self, kind):
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            element, count = self._take("<IQ")
            return [self._value(element) for _ in range(count)]
        return self._take("<" + _SCALARS[kind])[0]

    def _entry(self):
        name, (rank,) = self._string(), self._take("<I")
        shape = self._take(f"<{rank}Q")[::-1]  # stored with the contiguous extent first
        kind, offset = self._take("<IQ")
        return name, (shape, kind, offset)

    def tensor(self, name, rows=None):
        """The whole tensor, or those of its rows, as float32."""
        shape, kind, offset = self._entries[name]
        start = self._data + offset
        if kind == _F32:
            values = np.frombuffer(self._bytes, "<f4", math.prod(shape), start).reshape(shape)
            return values if rows is None else values[rows]
        if kind not in _BLOCK_TYPES:
            raise ValueError(f"{self.path}: {name} has the quantisation {kind}, which this reader does not know")
        blocks = np.frombuffer(self._bytes, _BLOCK_TYPES[kind], math.prod(shape) // _BLOCK, start)
        blocks = blocks.reshape(shape[0], -1)
        return _dequantise(blocks if rows is None else blocks[rows], kind)


def _dequantise(blocks, kind):
    scale = blocks["scale"].astype("f4")[..., None]
    if kind == _Q8_0:
        values = blocks["codes"].astype("f4") * scale
    else:  # the low nibbles are the block's first half
        codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=-1)
        values = codes.astype("f4") * scale + blocks["minimum"].astype("f4")[..., None]
    return values.reshape(blocks.shape[0], -1)
