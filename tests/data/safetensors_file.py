# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The safetensors format in NumPy: a deterministic writer, a strict reader, and rounding to bfloat16.

A file is an 8-byte little-endian header length, a JSON header padded with spaces, and the tensors' bytes. The header
maps a name to {"dtype", "shape", "data_offsets": [begin, end]} with offsets counted from the end of the header, and
"__metadata__" to a map of strings. bfloat16 has no NumPy type: here it is the one-field `BFLOAT16` over uint16 bits.
"""

import json
import struct

import numpy as np

BFLOAT16 = np.dtype([("bfloat16", "<u2")])
HEADER_ALIGNMENT = 64  # the data of a mapped file begins on a cache line
HEADER_LIMIT = 100_000_000  # the format's own limit

_DTYPES = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": BFLOAT16,
    "I64": np.dtype("<i8"), "I32": np.dtype("<i4"), "I16": np.dtype("<i2"), "I8": np.dtype("i1"),
    "U8": np.dtype("u1"), "BOOL": np.dtype("?"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class FormatError(ValueError):
    """A file breaks a rule of the format; the message names the file and the rule."""


def dtype_name(array):
    """The format's name of an array's element type."""
    return _NAMES[array.dtype]


def to_bfloat16(values):
    """Rounds to the nearest bfloat16, ties to even; a NaN stays a NaN.

    float64 input goes through float32 first, so a value within 2^-29 of a tie may round to the tie's other side.
    """
    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(is_nan, quiet, rounded).astype("<u2").view(BFLOAT16)


def from_bfloat16(values):
    """The same numbers as float32."""
    return (np.ascontiguousarray(values).view("<u2").astype("<u4") << 16).view("<f4")


def write(path, tensors, metadata):
    """Writes {name: array}; widest elements first, then by name, so that every tensor is aligned to its elements."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    header, offset = {"__metadata__": dict(sorted(metadata.items()))}, 0
    for name, array in ordered:
        end = offset + array.nbytes
        header[name] = {"dtype": _NAMES[array.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(8 + len(text)) % HEADER_ALIGNMENT)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        for _, array in ordered:
            file.write(np.ascontiguousarray(array).tobytes())


def _pairs_without_duplicates(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise FormatError("the header names a key twice")
    return dict(pairs)


def _parse_header(path, content):
    if len(content) < 8:
        raise FormatError(f"{path}: {len(content)} bytes cannot hold the header's length")
    (length,) = struct.unpack_from("<Q", content)
    if length > min(HEADER_LIMIT, len(content) - 8):
        raise FormatError(f"{path}: the header claims {length} bytes but the file has {len(content)}")
    text = content[8:8 + length]
    if not text.startswith(b"{"):
        raise FormatError(f"{path}: the header does not begin with a brace")
    try:
        header = json.loads(text.decode(), object_pairs_hook=_pairs_without_duplicates)
    except (ValueError, FormatError) as error:
        raise FormatError(f"{path}: {error}") from error
    return header, 8 + length


def _tensor(path, name, entry, content, start):
    if set(entry) != {"dtype", "shape", "data_offsets"} or entry["dtype"] not in _DTYPES:
        raise FormatError(f"{path}: {name} has an entry of another form: {entry}")
    dtype, shape, (begin, end) = _DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data_offsets"]
    expected = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    if end - begin != expected:
        raise FormatError(f"{path}: {name} spans {end - begin} bytes but its shape needs {expected}")
    if (start + begin) % dtype.itemsize != 0:
        raise FormatError(f"{path}: {name} begins at byte {start + begin}, which its elements do not divide")
    return np.frombuffer(content, dtype, count=expected // dtype.itemsize, offset=start + begin).reshape(shape)


def read(path):
    """Returns ({name: array}, metadata); raises FormatError for holes, overlaps, misalignment or a wrong size."""
    with open(path, "rb") as file:
        content = file.read()
    header, start = _parse_header(path, content)
    metadata = header.pop("__metadata__", {})
    if not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError(f"{path}: __metadata__ maps to something other than a string")
    tensors, position = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        if entry["data_offsets"][0] != position:
            raise FormatError(f"{path}: {name} begins at {entry['data_offsets'][0]}, the one before ends at {position}")
        position = entry["data_offsets"][1]
        if start + position > len(content):
            raise FormatError(f"{path}: {name} ends at {start + position}, past the file's {len(content)} bytes")
        tensors[name] = _tensor(path, name, entry, content, start)
    if start + position != len(content):
        raise FormatError(f"{path}: the tensors end at {start + position} but the file at {len(content)}")
    return tensors, metadata
