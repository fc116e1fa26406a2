# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loading models from .safetensors files straight into compressed weights: the whole model is never in memory.

    with tessera_torch.empty_weights():
        model = LlamaForCausalLM(config)                          # parameters without memory
    tessera_torch.load_compressed(model, "model.safetensors", device="cuda")

A file is mapped, and its tensors are read and compressed one by one. It needs no other package.
"""
import contextlib
import json
import mmap
import os
import struct

import torch
from torch import nn

from . import weights as _weights
from .compressed_module import (CompressedWeight, check_stream, compressible_modules, compression_report, refused_kind,
                                stream_type, swap_in)

_DTYPES = {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32, "F64": torch.float64,
           "I8": torch.int8, "I16": torch.int16, "I32": torch.int32, "I64": torch.int64, "U8": torch.uint8,
           "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2}
_LARGEST_HEADER = 100_000_000
_STREAM = "compressed_weight.stream"


class DamagedFile(ValueError):
    """A file that is no .safetensors file, or not all of one."""


def _without_duplicates(path):
    def made(pairs):
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise DamagedFile(f"{path}: the header has the name {twice!r} twice")
        return found
    return made


class TensorFile:
    """A .safetensors file, mapped: `tensors` has the dtype, shape and place of each, and read() gives one.

    Raises DamagedFile, a ValueError, if the header does not fit together with the file: another length, tensors that
    overlap, leave gaps or have other sizes than their shapes, unknown types, or text that is not JSON."""

    def __init__(self, path):
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 8:
                raise DamagedFile(f"{self.path}: the file has {size} bytes but at least 8 are needed")
            length, = struct.unpack("<Q", file.read(8))
            if length > min(size - 8, _LARGEST_HEADER):
                raise DamagedFile(f"{self.path}: the header has {length} bytes but there are {size - 8}, and it may "
                                  f"have {_LARGEST_HEADER}")
            self._first = 8 + length
            self.tensors, self.metadata = self._parsed(file.read(length), size - self._first)
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)

    def _parsed(self, text, room):
        try:
            header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_duplicates(self.path))
        except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
            raise DamagedFile(f"{self.path}: the header is no JSON: {error}") from None
        if not isinstance(header, dict):
            raise DamagedFile(f"{self.path}: the header is a {type(header).__name__} but must be an object")
        metadata = header.pop("__metadata__", {})
        tensors = {name: self._entry(name, entry) for name, entry in header.items()}
        end = 0
        for name, (_, _, first, last) in sorted(tensors.items(), key=lambda item: item[1][2:]):
            if first != end:
                raise DamagedFile(f"{self.path}: tensor {name} begins at byte {first} but the one before it ends at "
                                  f"{end}")
            end = last
        if end != room:
            raise DamagedFile(f"{self.path}: tensors have {end} bytes but the file has {room} for them")
        return tensors, metadata

    def _entry(self, name, entry):
        def number(value):
            return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63

        if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
            raise DamagedFile(f"{self.path}: the entry of tensor {name} is {entry!r:.80} but needs dtype, shape and "
                              "data_offsets")
        dtype, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(dtype, str) or dtype not in _DTYPES:
            raise DamagedFile(f"{self.path}: tensor {name} is of type {dtype!r:.20} but must be of one of "
                              f"{', '.join(_DTYPES)}")
        if not isinstance(shape, list) or not all(number(extent) for extent in shape):
            raise DamagedFile(f"{self.path}: the shape of tensor {name} is {shape!r:.80} but must be a list of numbers")
        if not isinstance(places, list) or len(places) != 2 or not all(number(place) for place in places):
            raise DamagedFile(f"{self.path}: tensor {name} is at {places!r:.80} but two numbers are needed")
        needed = _DTYPES[dtype].itemsize
        for extent in shape:
            needed *= extent
        if places[1] - places[0] != needed:
            raise DamagedFile(f"{self.path}: tensor {name} has {places[1] - places[0]} bytes but {dtype} of shape "
                              f"{shape} takes {needed}")
        return _DTYPES[dtype], tuple(shape), *places

    def read(self, name):
        """A tensor whose memory is the file's: a copy is needed of what is kept. None of it is written to the file."""
        dtype, shape, first, last = self.tensors[name]
        if first == last:
            return torch.empty(shape, dtype=dtype)
        content = memoryview(self._map)[self._first + first:self._first + last]
        if (self._first + first) % dtype.itemsize:
            content = bytearray(content)
        return torch.frombuffer(content, dtype=dtype).view(shape)

    def forget(self, name):
        """Gives the memory of a tensor that was read back to the system, where it can be given back."""
        _, _, first, last = self.tensors[name]
        page = mmap.PAGESIZE
        begin, end = -(-(self._first + first) // page) * page, (self._first + last) // page * page
        if begin < end and hasattr(self._map, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED, begin, end - begin)


def _files_of(path):
    if isinstance(path, (list, tuple)):
        return [TensorFile(each) for each in path]
    path = os.fspath(path)
    if not os.path.isdir(path):
        return [TensorFile(path)]
    index = os.path.join(path, "model.safetensors.index.json")
    if not os.path.exists(index):
        return [TensorFile(os.path.join(path, "model.safetensors"))]
    with open(index, encoding="utf-8") as file:
        try:
            places = json.load(file)["weight_map"]
            names = sorted(set(places.values()))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedFile(f"{index}: it has no weight_map of names of files: {error}") from None
    for name in names:
        if not isinstance(name, str) or os.path.basename(name) != name:
            raise DamagedFile(f"{index}: {name!r} is no name of a file in the same folder")
    files = [TensorFile(os.path.join(path, name)) for name in names]
    held = {name for file in files for name in file.tensors}
    if held != places.keys():
        differing = sorted(held ^ places.keys())
        raise DamagedFile(f"{index}: it has {len(places)} names but its files have {len(held)} tensors; one that is "
                          f"not in both is {differing[0]}")
    return files


@contextlib.contextmanager
def empty_weights():
    """Modules that are made in this context have their parameters on the device meta, without memory, for
    load_compressed(). Their buffers are as always, since many are computed when they are made."""
    register = nn.Module.register_parameter

    def register_on_meta(module, name, parameter):
        if parameter is not None and parameter.device.type != "meta":
            parameter = type(parameter)(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)
        register(module, name, parameter)

    nn.Module.register_parameter = register_on_meta
    try:
        yield
    finally:
        nn.Module.register_parameter = register


class _Target:
    """A parameter or buffer of a model, with all places that hold it."""

    def __init__(self, tensor):
        self.tensor, self.places, self.names = tensor, [], []

    def add(self, name, module, key, kind):
        self.places.append((module, key, kind))
        self.names.append(f"{name}.{key}" if name else key)


def _targets(model):
    """The parameters and the buffers that belong to the state of a model, compressed weights among them."""
    found = {}
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, CompressedWeight):
            found.setdefault(id(module), _Target(module)).add(name.rpartition(".")[0], module, "weight", "compressed")
            continue
        for key, parameter in module._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), _Target(parameter)).add(name, module, key, "parameter")
        for key, buffer in module._buffers.items():
            if buffer is not None and key not in module._non_persistent_buffers_set:
                found.setdefault(id(buffer), _Target(buffer)).add(name, module, key, "buffer")
    return list(found.values())


def _stream_name(name):
    return name.removesuffix("weight") + _STREAM


class _Loading:
    """The checks and the work of load_compressed()."""

    def __init__(self, model, path, device, strict, rename, filter):
        self.model, self.device = model, device
        self.path = path if isinstance(path, (list, tuple)) else os.fspath(path)
        self.held = {}
        for file in _files_of(path):
            for name in file.tensors:
                known = rename(name) if rename is not None else name
                if known in self.held:
                    raise DamagedFile(f"{file.path}: the tensor {known} is in {self.held[known][0].path}, too")
                self.held[known] = file, name
        chosen = {id(module) for _, module in compressible_modules(model, filter)}
        self.work = [(target, *self.source(target, chosen)) for target in _targets(model)]
        self.check_names(strict)
        self.check_meta()

    def source(self, target, chosen):
        """The name of what is loaded into a target, and whether it is compressed."""
        found = [name for name in target.names if name in self.held]
        streams = [_stream_name(name) for name in target.names if _stream_name(name) in self.held]
        if not found and not streams:
            raise ValueError(f"load_compressed: {self.path} has no tensor {' or '.join(target.names)}, which the model "
                             "has")
        compressed = [kind == "compressed" or (id(module) in chosen and key == "weight")
                      for module, key, kind in target.places]
        if any(compressed) and not all(compressed):
            raise ValueError(f"load_compressed: the weight {target.names[0]} is tied to "
                             f"{target.names[compressed.index(False)]}, which is not to be compressed")
        if streams and not compressed[0]:
            raise ValueError(f"load_compressed: {streams[0]} is a stream, but the weight is not to be compressed")
        name = streams[0] if streams else found[0]
        self.check_tensor(name, target, compressed[0])
        for module, key, kind in target.places:
            if kind == "parameter" and compressed[0]:
                why = refused_kind(target.names[0], module)
                if why is not None:
                    raise ValueError(f"load_compressed: {why}")
        for other in found[1:]:
            if not torch.equal(self.read(name).view(torch.uint8), self.read(other).view(torch.uint8)):
                raise ValueError(f"load_compressed: {name} and {other} are tied in the model but differ in {self.path}")
        return name, compressed[0]

    def check_tensor(self, name, target, is_compressed):
        file, key = self.held[name]
        dtype, shape = file.tensors[key][:2]
        expected = tuple(target.tensor.shape)
        if name.endswith(_STREAM):
            check_stream(name, self.read(name), expected, stream_type(name, self.read(name)))
            return
        if shape != expected:
            raise ValueError(f"load_compressed: {name} has the shape {shape} in {file.path} but {expected} in the "
                             "model")
        if is_compressed and dtype not in (torch.bfloat16, torch.float16, torch.float32):
            raise ValueError(f"load_compressed: {name} is {dtype} in {file.path} but weights to compress must be "
                             f"{torch.bfloat16}, {torch.float16} or {torch.float32}")
        if dtype.is_floating_point != target.tensor.dtype.is_floating_point:
            raise ValueError(f"load_compressed: {name} is {dtype} in {file.path} but {target.tensor.dtype} in the "
                             "model")

    def check_names(self, strict):
        used = {name for target, _, _ in self.work for each in target.names for name in (each, _stream_name(each))}
        others = sorted(self.held.keys() - used)
        if strict and others:
            raise ValueError(f"load_compressed: the model has no tensor {others[0]}, and {len(others)} names of "
                             f"{self.path} in all are unknown; strict=False ignores them")

    def check_meta(self):
        for name, buffer in self.model.named_buffers():
            module, _, key = name.rpartition(".")
            if buffer.device.type == "meta" and key in self.model.get_submodule(module)._non_persistent_buffers_set:
                raise ValueError(f"load_compressed: the buffer {name} is on the device meta, without values, and in no "
                                 "file; make the model in empty_weights() instead")

    def read(self, name):
        file, key = self.held[name]
        return file.read(key)

    def run(self):
        for target, name, is_compressed in self.work:
            device = self.device_of(target)
            tensor = self.read(name)
            if is_compressed:
                self.put_compressed(target, name, tensor.to(device), device)
            else:
                self.put_plain(target, tensor.to(device, copy=True))
            del tensor
            file, key = self.held[name]
            file.forget(key)
        if self.device is not None:
            for module in self.model.modules():
                for key in module._non_persistent_buffers_set:
                    if module._buffers.get(key) is not None:
                        module._buffers[key] = module._buffers[key].to(self.device)

    def device_of(self, target):
        found = self.device or target.tensor.device
        return torch.device("cpu") if torch.device(found).type == "meta" else torch.device(found)

    def put_compressed(self, target, name, tensor, device):
        stream = tensor.clone() if name.endswith(_STREAM) else None
        dtype = tensor.dtype if stream is None else stream_type(name, stream)
        if stream is None:
            stream = _weights.compress(tensor)
        if isinstance(target.tensor, CompressedWeight):
            if dtype != target.tensor.dtype:
                raise ValueError(f"load_compressed: {name} is {dtype} but the compressed weight {target.tensor.dtype}")
            target.tensor.take(stream, name)
            return
        held = CompressedWeight.of_stream(stream, target.tensor.shape, dtype)
        for module, _, _ in target.places:
            swap_in(module, held)

    @staticmethod
    def put_plain(target, tensor):
        for module, key, kind in target.places:
            if kind == "buffer":
                module._buffers[key] = tensor
        if isinstance(target.tensor, nn.Parameter):
            made = nn.Parameter(tensor, requires_grad=target.tensor.requires_grad)
            for module, key, _ in target.places:
                module._parameters[key] = made


def load_compressed(model, path, device=None, strict=True, rename=None, filter=None):
    """Loads a model from .safetensors files, and compresses the weights of its nn.Linear and nn.Embedding on the way,
    as compress_module() would. Gives a CompressionReport.

    model: with any values, or made in empty_weights(), without memory. path: a file; a folder with model.safetensors or
    model.safetensors.index.json; or a list of files. device: where everything goes; None: where the model is, or to the
    CPU. strict: whether tensors that the model does not have are an error. rename(name in the file) gives the name in
    the model. filter(name, module): whether to compress a module. The model takes the file's floating-point types. A
    file of a compressed model, with streams, is read, too. Tied weights need one of their names.

    Each file is mapped; a tensor is read, compressed and forgotten before the next. Raises ValueError before the model
    is changed: DamagedFile where a file does not fit together, and for names, shapes and types that do not fit the
    model. Waits for each weight."""
    loading = _Loading(model, path, device, strict, rename, filter)
    loading.run()
    return compression_report(model)
