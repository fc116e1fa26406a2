# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NeuZip of this library beside the ANS coder of NVIDIA's nvCOMP on the same weights, for run.py.

nvCOMP: the wheel of nvidia-libnvcomp-cu13, by the library's batched functions in C, so that Python is not in what is
timed. It codes chunks on their own and leaves them in buffers of the largest size, so no time for packing them is
counted. The chunk's size, the states a lane and how much of a chunk the histogram reads are searched; each row holds
the fastest setting. Every setting's result is decoded and compared.

NeuZip: from Python, with its memory from PyTorch's allocator; compress() waits for the stream's size, packs the stream
and is timed with that. Bits are those of the whole stream.
"""
import ctypes
import itertools
import sys
from pathlib import Path

import torch

from measuring import DEVICE, MEBIBYTE, SEED, peak_of, seconds_of, tensors_of, tessera

SIZE, SMALL_SIZE = 512 * MEBIBYTE, MEBIBYTE
CHAR, FLOAT16, FLOAT32 = 0, 10, 11  # nvcompType_t
FORMATS = {"bf16": (torch.bfloat16, FLOAT16), "fp16": (torch.float16, FLOAT16), "fp32": (torch.float32, FLOAT32)}
MEASURED = [("bf16", "gauss"), ("fp16", "gauss"), ("fp32", "gauss"), ("bf16", "minilm")]
CHUNKS = [64 << 10, 128 << 10, 256 << 10, 512 << 10]
STATES_PER_LANE = [1, 2]
HISTOGRAM_REDUCTIONS = [0, 3]
SAMPLES = (15, 15)


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


class Coding:
    """One tensor and one setting: buffers, and the two calls that are timed."""

    def __init__(self, library, data, data_type, chunk, states, reduction):
        self.library, self.data = library, data
        self.setting = {"chunk_KiB": chunk >> 10, "states_per_lane": states, "histogram_reduction_log2": reduction}
        self.chunk, self.size, self.count = chunk, data.numel(), data.numel() // chunk
        self.compress_options = CompressOptions(0, data_type, 0, states, reduction, b"")
        self.decompress_options = DecompressOptions(0, data_type, 0, states, 0, b"")
        self.stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        largest = library.size_from("nvcompBatchedANSCompressGetMaxOutputChunkSize", chunk, self.compress_options)
        stride = -(-largest // 256) * 256
        self.compressed = torch.empty(self.count * stride, dtype=torch.uint8, device=DEVICE)
        self.decoded = torch.zeros_like(data)
        self.data_pointers = self.pointers(data, chunk)
        self.compressed_pointers = self.pointers(self.compressed, stride)
        self.decoded_pointers = self.pointers(self.decoded, chunk)
        self.chunk_bytes = torch.full((self.count,), chunk, dtype=torch.int64, device=DEVICE)
        self.compressed_bytes = torch.zeros(self.count, dtype=torch.int64, device=DEVICE)
        self.decoded_bytes = torch.zeros(self.count, dtype=torch.int64, device=DEVICE)
        self.statuses = torch.full((self.count,), -1, dtype=torch.int32, device=DEVICE)
        after = (self.size, self.stream)
        self.compress_space = self.space(library.size_from("nvcompBatchedANSCompressGetTempSize", self.count, chunk,
                                                           self.compress_options, after=after))
        self.decompress_space = self.space(library.size_from("nvcompBatchedANSDecompressGetTempSize", self.count, chunk,
                                                             self.decompress_options, after=after))

    def pointers(self, tensor, stride):
        return torch.arange(self.count, dtype=torch.int64, device=DEVICE) * stride + tensor.data_ptr()

    @staticmethod
    def space(size):
        return torch.empty(max(size, 1), dtype=torch.uint8, device=DEVICE)

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
        return weight_bits * int(self.compressed_bytes.sum()) / self.size


def weights_of(format, data, size):
    """Normal numbers, or the weights of MiniLM in tests/data again and again: neither coder looks for repetitions."""
    dtype = FORMATS[format][0]
    weights = torch.empty(size // dtype.itemsize, dtype=dtype, device=DEVICE)
    if data == "minilm":
        once = real_weights().to(DEVICE)
        for part in weights.split(len(once)):
            part.copy_(once[:len(part)])
        return weights
    torch.manual_seed(SEED)
    for part in weights.split(16 * MEBIBYTE):  # so that float32 samples do not take much room
        part.copy_(torch.randn(part.numel(), device=DEVICE) * 0.02)
    return weights


def real_weights():
    return torch.cat([tensor.flatten() for _, tensor in sorted(tensors_of("minilm_bf16.safetensors").items())])


def measure_ours(run, weights, title):
    module = tessera()
    stream = module.compress(weights)
    back = module.decompress(stream, weights.shape, weights.dtype)
    module.wait(DEVICE)
    if not torch.equal(back.view(torch.uint8), weights.view(torch.uint8)):
        raise RuntimeError("decoding did not give the weights back")
    del back
    bits = {"bits_per_weight": 8 * stream.numel() / weights.numel()}
    rows = []
    for operation, call in {"encode": lambda: module.compress(weights),
                            "decode": lambda: module.decompress(stream, weights.shape, weights.dtype)}.items():
        rows += run.time(f"tessera/{operation}/{title}", call, {**bits, **peak_of(call, lambda result: result.nbytes)},
                         ("TBps", 1e-12 * weights.nbytes), samples=SAMPLES)
    module.wait(DEVICE)
    return rows


def fastest(library, data, format, flush):
    """{operation: setting} after a look at all of them."""
    dtype, data_type = FORMATS[format]
    best = {}
    for setting in itertools.product(CHUNKS, STATES_PER_LANE, HISTOGRAM_REDUCTIONS):
        try:
            coding = Coding(library, data, data_type, *setting)
            coding.check()
            times = {operation: seconds_of(getattr(coding, operation), flush, 5) for operation in ("encode", "decode")}
        except RuntimeError as problem:
            print(f"{format}, chunk, states, reduction = {setting}: {problem}", file=sys.stderr)
            continue
        for operation, seconds in times.items():
            if operation not in best or seconds < best[operation][0]:
                best[operation] = (seconds, setting)
    if not best:
        raise RuntimeError("no setting worked")
    return {operation: setting for operation, (_, setting) in best.items()}


def measure_nvcomp(run, weights, format, title):
    """Rows of the fastest setting for each direction."""
    library = Library(find_library())
    dtype, data_type = FORMATS[format]
    data = weights.view(torch.uint8)
    rows = []
    for operation, setting in fastest(library, data, format, run.flush).items():
        coding = Coding(library, data, data_type, *setting)
        coding.check()
        counters = {"bits_per_weight": coding.bits_per_weight(8 * dtype.itemsize), **coding.setting}
        rows += run.time(f"nvcomp_ans/{operation}/{title}", getattr(coding, operation), counters,
                         ("TBps", 1e-12 * weights.nbytes), samples=SAMPLES)
        coding.check()
    return rows


def find_library():
    """In any folder that packages are in: not all of NVIDIA's share the package's name well."""
    found = sorted(path for folder in sys.path for path in Path(folder).glob("nvidia/libnvcomp/lib64/libnvcomp.so*"))
    if not found:
        raise RuntimeError("nvidia-libnvcomp-cu13 is not installed")
    return str(found[0])


def version_of_nvcomp():
    try:
        return Library(find_library()).version()
    except (OSError, RuntimeError):
        return "unknown"


def measure_all(run):
    if not any(run.wants(name) for name in ["tessera", "nvcomp_ans"]):
        return
    size, name = (SMALL_SIZE, "1MiB") if run.is_small else (SIZE, "512MiB")
    for format, data in MEASURED:
        weights = weights_of(format, data, size)
        title = f"{format}/{data}/{name}"
        for who, measure in [("tessera", lambda: measure_ours(run, weights, title)),
                             ("nvcomp_ans", lambda: measure_nvcomp(run, weights, format, title))]:
            # Both directions are measured together, and a failure is that of decoding.
            run.attempt(f"{who}/decode/{title}", measure)
        del weights
