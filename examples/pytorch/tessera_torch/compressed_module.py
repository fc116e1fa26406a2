# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models whose weights are kept compressed, bit for bit, and decoded for each call that uses them.

    import tessera_torch
    report = tessera_torch.compress_module(model)       # nn.Linear and nn.Embedding: two thirds of the bytes in bf16
    model(inputs)                                       # as before, with the same results
    torch.save(model.state_dict(), path)                # streams
    tessera_torch.decompress_module(model)              # plain weights again, the same bits

A decoded weight is in memory for one call of one layer only. The backward pass decodes it again, so that nothing keeps
it in between. Compressed weights are frozen; parameter_store.py trains them.
"""
import contextlib
import struct
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from . import weights as _weights
from .wait import wait

_TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}  # the numbers of types in a stream's header
_HEADER = struct.Struct("<IHBBBBBBB3xIIQQII12xI")
_MAGIC = 0x41525354
_VERSION = 1


def _crc32c(content):
    checksum = 0xffffffff
    for byte in content:
        checksum ^= byte
        for _ in range(8):
            checksum = checksum >> 1 ^ (0x82f63b78 if checksum & 1 else 0)
    return checksum ^ 0xffffffff


def check_stream(name, stream, shape, dtype):
    """Raises ValueError if `stream`, a one-dimensional uint8 tensor, has not the header of weights of this shape and
    dtype. `name` is what the error calls it. What follows the header is checked whenever it is decoded. Waits for the
    copy of 64 bytes."""
    count = torch.Size(shape).numel()
    if stream.dtype != torch.uint8 or stream.dim() != 1:
        raise ValueError(f"{name}: the stream is {stream.dtype} of {stream.dim()} dimensions but must be "
                         f"{torch.uint8} of 1")
    if stream.numel() < _HEADER.size:
        raise ValueError(f"{name}: the stream has {stream.numel()} bytes but a header has {_HEADER.size}")
    header = bytes(stream[:_HEADER.size].tolist())
    magic, version, number, *_, found, size, _, _, checksum = _HEADER.unpack(header)
    for what, is_, expected in [("first word", magic, _MAGIC), ("version", version, _VERSION),
                                ("header's checksum", checksum, _crc32c(header[:-4])),
                                ("number of its type", number, _TYPES[dtype]), ("number of weights", found, count),
                                ("number of bytes", size, stream.numel())]:
        if is_ != expected:
            raise ValueError(f"{name}: the stream's {what} is {is_} but must be {expected} for {dtype} weights of "
                             f"shape {tuple(shape)}")


def stream_type(name, stream):
    """The dtype of the weights of a stream by its header. Raises ValueError if it has none of the three."""
    number = int(stream[6]) if stream.dim() == 1 and stream.numel() >= _HEADER.size else -1
    for dtype, known in _TYPES.items():
        if known == number:
            return dtype
    raise ValueError(f"{name}: the number of the stream's type is {number} but must be one of {list(_TYPES.values())}")


def _raise_if_damaged(device):
    """Raises what decoding reported, where that costs nothing. On CUDA devices tessera_torch.wait(device) does."""
    if device.type == "cpu":
        wait(device)


class CompressedWeight(nn.Module):
    """The stream of a weight, which several modules share if their weights are tied.

    `stream`: a buffer of bytes, which follows the module to other devices; `shape` and `dtype` are the weight's.
    Conversions of a model to another floating-point type leave it as it is."""

    def __init__(self, stream, shape, dtype):
        super().__init__()
        self.shape, self.dtype = torch.Size(shape), dtype
        self.store = None  # the ParameterStore that holds the weight at present
        self.register_buffer("stream", stream)

    @classmethod
    def of_stream(cls, stream, shape, dtype):
        """Of the stream of weights of a shape and type. Raises ValueError if its header says otherwise."""
        check_stream("CompressedWeight.of_stream", stream, shape, dtype)
        return cls(stream, shape, dtype)

    @classmethod
    def of_weight(cls, weight):
        """Of a plain weight: bfloat16, float16 or float32. Waits."""
        return cls(_weights.compress(weight.detach()), weight.shape, weight.dtype)

    @property
    def device(self):
        """The device that the weight is decoded on."""
        return self.stream.device if self.store is None else self.store.device_of(self)

    @property
    def compressed_bytes(self):
        """The bytes of the stream."""
        return self.stream.numel() if self.store is None else self.store.compressed_bytes(self)

    @property
    def plain_bytes(self):
        """The bytes of the decoded weight."""
        return self.shape.numel() * self.dtype.itemsize

    def decoded(self):
        """The weight, in memory of its own."""
        if self.store is not None:
            with self.use() as weight:
                return weight.clone()
        weight = _weights.decompress(self.stream, self.shape, self.dtype)
        if not torch.compiler.is_compiling():
            _raise_if_damaged(weight.device)
        return weight

    def use(self):
        """A context in which the weight is decoded. It may be memory of a ParameterStore, which others have later."""
        return contextlib.nullcontext(self.decoded()) if self.store is None else self.store.leased(self)

    @property
    def gradient_target(self):
        """The parameter to which the weight's gradient goes if a ParameterStore trains it, else None. It has the
        weight's shape, and memory of a single element."""
        return None if self.store is None else self.store.gradient_target(self)

    def take(self, stream, name="CompressedWeight.take"):
        """Holds the weight of another stream from now on, on its device. Raises ValueError if its header says
        otherwise."""
        check_stream(name, stream, self.shape, self.dtype)
        if self.store is not None:
            self.store.replace(self, _weights.decompress(stream.to(self.device), self.shape, self.dtype))
        else:
            self.stream = stream.detach().to(self.stream.device, copy=True)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        stream = self.stream if self.store is None else _weights.compress(self.decoded())
        destination[prefix + "stream"] = stream if keep_vars else stream.detach()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, errors):
        key = prefix + "stream"
        if key not in state_dict:
            if strict:
                missing_keys.append(key)
            return
        try:
            self.take(state_dict[key], key)
        except ValueError as error:
            errors.append(str(error))

    def extra_repr(self):
        return f"{tuple(self.shape)}, dtype={self.dtype}, {self.compressed_bytes} of {self.plain_bytes} bytes"


class _Linear(torch.autograd.Function):
    """functional.linear by a weight that is decoded in the forward pass, and again in the backward pass."""

    @staticmethod
    def forward(ctx, inputs, bias, target, weight):
        ctx.weight, ctx.has_bias, ctx.inputs_dtype = weight, bias is not None, inputs.dtype
        if target is not None and ctx.needs_input_grad[2]:
            ctx.save_for_backward(inputs)
        with weight.use() as plain:
            return functional.linear(inputs, plain, bias)

    @staticmethod
    def backward(ctx, upstream):
        of_inputs = of_bias = of_weight = None
        if ctx.needs_input_grad[0]:
            of_inputs = _Product.apply(upstream, ctx.weight).to(ctx.inputs_dtype)
        if ctx.has_bias and ctx.needs_input_grad[1]:
            of_bias = upstream.reshape(-1, upstream.shape[-1]).sum(0)
        if ctx.needs_input_grad[2]:
            inputs, = ctx.saved_tensors
            rows = upstream.reshape(-1, upstream.shape[-1])
            of_weight = (rows.T @ inputs.reshape(-1, inputs.shape[-1]).to(rows.dtype)).to(ctx.weight.dtype)
        return of_inputs, of_bias, of_weight, None


class _Product(torch.autograd.Function):
    """upstream @ weight, as a function of upstream alone, which can be differentiated again."""

    @staticmethod
    def forward(ctx, upstream, weight):
        ctx.weight = weight
        with weight.use() as plain:
            return upstream @ plain.to(upstream.dtype)

    @staticmethod
    def backward(ctx, upstream):
        return _Linear.apply(upstream, None, None, ctx.weight), None


class _Embedding(torch.autograd.Function):
    """functional.embedding of a weight that a ParameterStore trains."""

    @staticmethod
    def forward(ctx, target, indices, weight, padding_index):
        ctx.save_for_backward(indices)
        ctx.weight, ctx.padding_index = weight, padding_index
        with weight.use() as plain:
            return functional.embedding(indices, plain)

    @staticmethod
    def backward(ctx, upstream):
        indices, = ctx.saved_tensors
        rows, width = ctx.weight.shape
        padding = -1 if ctx.padding_index is None else ctx.padding_index
        gradient = torch.ops.aten.embedding_dense_backward(upstream.contiguous().view(*indices.shape, width), indices,
                                                           rows, padding, False)
        return gradient, None, None, None


class _Compressed:
    """What compressed modules have in common: `weight` is a decoded copy."""

    @property
    def weight(self):
        """A decoded copy of the weight. What is written to it is lost."""
        return self.compressed_weight.decoded()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, errors):
        plain = state_dict.pop(prefix + "weight", None)  # of a model that is not compressed; the dictionary is a copy
        if plain is not None:
            held = self.compressed_weight
            if plain.shape == held.shape and plain.dtype == held.dtype:
                state_dict[prefix + "compressed_weight.stream"] = _weights.compress(plain.detach())
            else:
                errors.append(f"{prefix}weight: the weight is {plain.dtype} of shape {tuple(plain.shape)} but must be "
                              f"{held.dtype} of shape {tuple(held.shape)}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, errors)

    def __setattr__(self, name, value):
        if name == "weight":
            raise AttributeError(f"{type(self).__name__}: the weight is compressed and cannot be set; use "
                                 "decompress_module() first, or compressed_weight.take(stream)")
        super().__setattr__(name, value)


class CompressedLinear(_Compressed, nn.Linear):
    """nn.Linear with a compressed weight; compress_module() makes it of one. The bias is plain."""

    def forward(self, inputs):
        """The same results as nn.Linear's. Gradients go to inputs, the bias, and a ParameterStore if there is one."""
        weight = self.compressed_weight
        if not torch.is_grad_enabled():
            with weight.use() as plain:
                return functional.linear(inputs, plain, self.bias)
        return _Linear.apply(inputs, self.bias, weight.gradient_target, weight)


class CompressedEmbedding(_Compressed, nn.Embedding):
    """nn.Embedding with a compressed weight; compress_module() makes it of one."""

    def forward(self, indices):
        """The same results as nn.Embedding's. Gradients go to a ParameterStore if there is one."""
        weight = self.compressed_weight
        if weight.gradient_target is not None and torch.is_grad_enabled():
            return _Embedding.apply(weight.gradient_target, indices, weight, self.padding_idx)
        with weight.use() as plain:
            return functional.embedding(indices, plain)


_COMPRESSED = {nn.Linear: CompressedLinear, nn.Embedding: CompressedEmbedding}
_PLAIN = {compressed: plain for plain, compressed in _COMPRESSED.items()}


@dataclass(frozen=True)
class CompressionReport:
    """What a model's compressed weights take: bytes of streams, bytes of the same weights decoded, and how many there
    are. Tied weights count once."""
    compressed_bytes: int
    plain_bytes: int
    weights: int

    @property
    def ratio(self):
        """Compressed bytes over plain bytes; 1 if there is no weight."""
        return self.compressed_bytes / self.plain_bytes if self.plain_bytes else 1.0


def compressed_weights(model):
    """A dictionary of the model's compressed weights: the name of the first module with each, and the
    CompressedWeight."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, _Compressed) and all(module.compressed_weight is not each for each in found.values()):
            found[name] = module.compressed_weight
    return found


def compression_report(model):
    """The CompressionReport of a model."""
    held = compressed_weights(model).values()
    return CompressionReport(sum(each.compressed_bytes for each in held), sum(each.plain_bytes for each in held),
                             len(held))


def refused_kind(name, module):
    """Why the weight of a module of this kind cannot be compressed, or None."""
    if isinstance(module, nn.Embedding) and module.max_norm is not None:
        return f"embedding {name} renormalises its rows to {module.max_norm}, which changes the weight in each call"
    if isinstance(module, nn.Embedding) and (module.scale_grad_by_freq or module.sparse):
        return f"embedding {name} has scale_grad_by_freq or sparse gradients, which a compressed one has not"
    if "weight" not in module._parameters:
        return f"the weight of {name} is no parameter of its own (it is parametrized or pruned)"
    return None


def _refused(name, module):
    why = refused_kind(name, module)
    if why is not None:
        return why
    if module.weight.dtype not in _TYPES:
        return (f"the weight of {name} is {module.weight.dtype} but must be "
                f"{', '.join(str(each) for each in _TYPES)}")
    if module.weight.device.type == "meta":
        return f"the weight of {name} is on the device meta, without values; load_compressed() loads and compresses it"
    return None


def compressible_modules(model, filter=None):
    """The names and modules that compress_module() would compress: those whose type is nn.Linear or nn.Embedding (not
    a subclass, whose forward may do something else), for which filter(name, module) is true if there is a filter."""
    return [(name, module) for name, module in model.named_modules()
            if type(module) in _COMPRESSED and (filter is None or filter(name, module))]


def swap_in(module, held):
    """Makes a module one with a compressed weight."""
    del module._parameters["weight"]
    module.__class__ = _COMPRESSED[type(module)]
    module.compressed_weight = held


def compress_module(model, filter=None):
    """Compresses the weights of all nn.Linear and nn.Embedding of a model in place, and gives a CompressionReport.

    filter(name, module): whether to compress a module; None: all of them. Weights are bfloat16, float16 or float32, on
    any device; each comes back bit for bit, and takes about 67, 84 and 83 hundredths of its bytes. Tied weights are
    compressed once and stay tied. Biases and all other parameters stay. Weights that are trained must be: an optimizer
    that has them as parameters keeps them alive and does not train the model any more.

    The model's type and the modules' names stay, hooks too; `module.weight` is a decoded copy. In state_dict() a stream
    `compressed_weight.stream` takes the place of each `weight`. load_state_dict() of such a model takes either.

    Raises ValueError, before anything is changed, for an embedding with max_norm, scale_grad_by_freq or sparse, for
    weights that are parametrized, on the device meta, of other types, or tied to a parameter that stays plain. Modules
    that are compressed already stay so. Waits for each weight; takes the memory of one more weight at a time."""
    chosen = compressible_modules(model, filter)
    for name, module in chosen:
        why = _refused(name or type(module).__name__, module)
        if why is not None:
            raise ValueError(f"compress_module: {why}")
    uses = {}
    for _, module in chosen:
        uses.setdefault(id(module.weight), []).append(module)
    for name, module in model.named_modules():
        for key, parameter in module._parameters.items():
            if id(parameter) in uses and not (key == "weight" and module in uses[id(parameter)]):
                raise ValueError(f"compress_module: the parameter {name}.{key} is tied to a weight that is to be "
                                 "compressed but belongs to no module that is")
    for modules in uses.values():
        held = CompressedWeight.of_weight(modules[0].weight)
        for module in modules:
            swap_in(module, held)
    return compression_report(model)


def decompress_module(model):
    """Makes the weights of a compressed model plain parameters again, the same bits, in place. Tied weights are tied.

    They require gradients. Raises ValueError if a ParameterStore holds them: close() it first. Waits, and raises
    RuntimeError for a damaged stream, where the modules before it are plain already and the others compressed."""
    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, _Compressed)]
    for name, module in modules:
        if module.compressed_weight.store is not None:
            raise ValueError(f"decompress_module: the weight of {name} is in a ParameterStore, which must be closed "
                             "first")
    plain = {}
    for _, module in modules:
        held = module.compressed_weight
        if id(held) not in plain:
            weight = held.decoded()
            wait(weight.device)
            plain[id(held)] = nn.Parameter(weight)
        del module._modules["compressed_weight"]
        module.__class__ = _PLAIN[type(module)]
        others = dict(module._parameters)  # the weight comes first again, as optimizers number parameters
        module._parameters.clear()
        module._parameters.update(weight=plain[id(held)], **others)
