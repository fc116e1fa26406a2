#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the ANS coder of NVIDIA's nvCOMP on the data of neuzip_bench.cu, for report.py to show beside it.

    nvcomp_ans.py --wheel nvidia_libnvcomp_cu13-*.whl --out build/nvcomp.json
    nvcomp_ans.py --out build/nvcomp.json                      # with nvidia-libnvcomp-cu13 installed

Needs PyTorch with CUDA; calls the library's batched functions in C, so that Python is not in what is timed. nvCOMP
codes chunks on their own and leaves them in buffers of the largest size, so no time for packing them is counted. The
chunk's size, the states a lane and how much of a chunk the histogram reads are searched; each row holds the fastest
setting. Every setting's result is decoded and compared.
"""
import argparse
import ctypes
import itertools
import json
import statistics
import sys
import tempfile
import zipfile
from pathlib import Path

import torch

from measuring import Flush, MEBIBYTE, context, row, seconds_of

SIZE = 512 * MEBIBYTE
CHAR, FLOAT16, FLOAT32 = 0, 10, 11  # nvcompType_t
FORMATS = {"bf16": (torch.bfloat16, FLOAT16), "fp16": (torch.float16, FLOAT16), "fp32": (torch.float32, FLOAT32)}
CHUNKS = [64 << 10, 128 << 10, 256 << 10, 512 << 10]
STATES_PER_LANE = [1, 2]
HISTOGRAM_REDUCTIONS = [0, 3]
SAMPLES, REPETITIONS = 15, 5


class CompressOptions(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("data_type", ctypes.c_int), ("max_sub_chunk_count", ctypes.c_uint8),
                ("states_per_lane", ctypes.c_uint8), ("histogram_reduction_log2", ctypes.c_uint8),
                ("reserved", ctypes.c_char * 53)]


class DecompressOptions(ctypes.Structure):
    _fields_ = [("backend", ctypes.c_int), ("data_type", ctypes.c_int), ("max_sub_chunk_count", ctypes.c_uint8),
                ("states_per_lane", ctypes.c_uint8), ("skip_validate", ctypes.c_uint8),
                ("reserved", ctypes.c_char * 53)]


class Properties(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("cudart_version", ctypes.c_uint32)]


class Library:
    """The functions used, of nvCOMP 6; each raises RuntimeError when the library refuses."""

    def __init__(self, path):
        self.handle = ctypes.CDLL(path)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        sizes = ctypes.POINTER(size)
        self.declare("nvcompGetProperties", ctypes.POINTER(Properties))
        self.declare("nvcompBatchedANSCompressGetTempSize", size, size, CompressOptions, sizes, size, pointer)
        self.declare("nvcompBatchedANSCompressGetMaxOutputChunkSize", size, CompressOptions, sizes)
        self.declare("nvcompBatchedANSCompressAsync", pointer, pointer, size, size, pointer, size, pointer, pointer,
                     CompressOptions, pointer, pointer)
        self.declare("nvcompBatchedANSDecompressGetTempSize", size, size, DecompressOptions, sizes, size, pointer)
        self.declare("nvcompBatchedANSDecompressAsync", pointer, pointer, pointer, pointer, size, pointer, size,
                     pointer, DecompressOptions, pointer, pointer)

    def declare(self, name, *arguments):
        function = getattr(self.handle, name)
        function.argtypes, function.restype = list(arguments), ctypes.c_int

    def call(self, name, *arguments):
        status = getattr(self.handle, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} returned status {status}")

    def size_from(self, name, *arguments, after=()):
        result = ctypes.c_size_t()
        self.call(name, *arguments, ctypes.byref(result), *after)
        return result.value

    def version(self):
        found = Properties()
        self.call("nvcompGetProperties", ctypes.byref(found))
        return str(found.version)


class Run:
    """One tensor and one setting: buffers, and the two calls that are timed."""

    def __init__(self, library, data, data_type, chunk, states, reduction):
        self.library, self.data = library, data
        self.setting = {"chunk_KiB": chunk >> 10, "states_per_lane": states, "histogram_reduction_log2": reduction}
        self.chunk, self.count = chunk, SIZE // chunk
        self.compress_options = CompressOptions(0, data_type, 0, states, reduction, b"")
        self.decompress_options = DecompressOptions(0, data_type, 0, states, 0, b"")
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        largest = library.size_from("nvcompBatchedANSCompressGetMaxOutputChunkSize", chunk, self.compress_options)
        stride = -(-largest // 256) * 256
        self.compressed = torch.empty(self.count * stride, dtype=torch.uint8, device="cuda")
        self.decoded = torch.zeros_like(data)
        self.data_pointers = self.pointers(data, chunk)
        self.compressed_pointers = self.pointers(self.compressed, stride)
        self.decoded_pointers = self.pointers(self.decoded, chunk)
        self.chunk_bytes = torch.full((self.count,), chunk, dtype=torch.int64, device="cuda")
        self.compressed_bytes = torch.zeros(self.count, dtype=torch.int64, device="cuda")
        self.decoded_bytes = torch.zeros(self.count, dtype=torch.int64, device="cuda")
        self.statuses = torch.full((self.count,), -1, dtype=torch.int32, device="cuda")
        after = (SIZE, self.stream)
        self.compress_space = self.space(library.size_from("nvcompBatchedANSCompressGetTempSize", self.count, chunk,
                                                           self.compress_options, after=after))
        self.decompress_space = self.space(library.size_from("nvcompBatchedANSDecompressGetTempSize", self.count, chunk,
                                                             self.decompress_options, after=after))

    def pointers(self, tensor, stride):
        return torch.arange(self.count, dtype=torch.int64, device="cuda") * stride + tensor.data_ptr()

    @staticmethod
    def space(size):
        return torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")

    def encode(self):
        self.library.call("nvcompBatchedANSCompressAsync", self.data_pointers.data_ptr(), self.chunk_bytes.data_ptr(),
                          self.chunk, self.count, self.compress_space.data_ptr(), self.compress_space.numel(),
                          self.compressed_pointers.data_ptr(), self.compressed_bytes.data_ptr(), self.compress_options,
                          self.statuses.data_ptr(), self.stream)

    def decode(self):
        self.library.call("nvcompBatchedANSDecompressAsync", self.compressed_pointers.data_ptr(),
                          self.compressed_bytes.data_ptr(), self.chunk_bytes.data_ptr(), self.decoded_bytes.data_ptr(),
                          self.count, self.decompress_space.data_ptr(), self.decompress_space.numel(),
                          self.decoded_pointers.data_ptr(), self.decompress_options, self.statuses.data_ptr(),
                          self.stream)

    def check(self):
        """Both directions once more, with the results read."""
        for operation in (self.encode, self.decode):
            self.statuses.fill_(-1)
            operation()
            if not bool((self.statuses == 0).all()):
                raise RuntimeError(f"{operation.__name__}: statuses {self.statuses.unique().tolist()}")
        if not torch.equal(self.decoded, self.data):
            raise RuntimeError("decoding did not give the data back")

    def bits_per_weight(self, weight_bits):
        return weight_bits * int(self.compressed_bytes.sum()) / SIZE


def measure_format(library, name, flush):
    """Google Benchmark rows of the fastest setting for each direction."""
    dtype, data_type = FORMATS[name]
    weights = torch.empty(SIZE // dtype.itemsize, dtype=dtype, device="cuda")
    torch.manual_seed(1)
    for part in weights.split(16 * MEBIBYTE):  # so that float32 samples do not take much room
        part.copy_(torch.randn(part.numel(), device="cuda") * 0.02)
    data = weights.view(torch.uint8)
    best = {}
    for setting in itertools.product(CHUNKS, STATES_PER_LANE, HISTOGRAM_REDUCTIONS):
        try:
            run = Run(library, data, data_type, *setting)
            run.check()
            times = {operation: seconds_of(getattr(run, operation), flush, 5) for operation in ("encode", "decode")}
        except RuntimeError as problem:
            print(f"{name}, chunk, states, reduction = {setting}: {problem}", file=sys.stderr)
            continue
        print(f"{name} {run.setting}: encode {SIZE / times['encode'] * 1e-9:.0f}, decode "
              f"{SIZE / times['decode'] * 1e-9:.0f} GB/s, {run.bits_per_weight(8 * dtype.itemsize):.3f} bits")
        for operation, seconds in times.items():
            if operation not in best or seconds < best[operation][0]:
                best[operation] = (seconds, setting)
    rows = []
    for operation, (_, setting) in best.items():
        run = Run(library, data, data_type, *setting)
        run.check()
        for repetition in range(REPETITIONS):
            seconds = seconds_of(getattr(run, operation), flush, SAMPLES)
            title = f"nvcomp_ans/{operation}/{name}/gauss/512MiB"
            rows.append(row(title, seconds, repetition, REPETITIONS,
                            {"TBps": SIZE / seconds * 1e-12,
                             "bits_per_weight": run.bits_per_weight(8 * dtype.itemsize), **run.setting}))
        run.check()
    return rows


def find_library(wheel, folder):
    if wheel is not None:
        with zipfile.ZipFile(wheel) as archive:
            inside = [n for n in archive.namelist() if "/lib64/libnvcomp.so" in n]
            if not inside:
                raise SystemExit(f"{wheel}: holds no libnvcomp.so")
            return archive.extract(inside[0], folder)
    import nvidia.libnvcomp
    found = sorted(Path(nvidia.libnvcomp.__file__).parent.glob("lib64/libnvcomp.so*"))
    if not found:
        raise SystemExit("nvidia.libnvcomp: holds no libnvcomp.so")
    return str(found[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help="the wheel of nvidia-libnvcomp-cu13, which need not be installed")
    parser.add_argument("--out", type=Path, required=True, help="the results, in Google Benchmark's JSON")
    parser.add_argument("--formats", nargs="+", choices=list(FORMATS), default=list(FORMATS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library = Library(find_library(options.wheel, folder))
        flush = Flush()
        rows = [one for name in options.formats for one in measure_format(library, name, flush)]
        if not rows:
            raise SystemExit("no setting worked")
        result = {"context": context(library="nvCOMP " + library.version()), "benchmarks": rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for title in dict.fromkeys(one["name"] for one in rows):
        rates = [one["TBps"] for one in rows if one["name"] == title]
        print(f"{title}: {statistics.median(rates):.3f} TB/s")


if __name__ == "__main__":
    main()
