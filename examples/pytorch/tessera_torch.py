# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tessera's five algorithms for PyTorch tensors, on CPUs and CUDA devices, on the current stream.

    import tessera_torch
    loss = tessera_torch.linear_cross_entropy(hidden, classifier.weight, labels)      # no logits in memory
    loss.backward()

The extension is built by PyTorch's own means when this module is imported first, unless a tessera_torch_extension can
be imported. Only functions that say so wait for the device. Errors that a program finds there (a label that is no
entry, a damaged stream) are raised by wait().
"""
import importlib
import importlib.util
import os
from pathlib import Path

import torch
from torch.utils import cpp_extension

_folder = Path(__file__).resolve().parent
_has_cuda = torch.cuda.is_available() and cpp_extension.CUDA_HOME is not None


def _built():
    if importlib.util.find_spec("tessera_torch_extension") is not None:  # it was built before, and is in sys.path
        return importlib.import_module("tessera_torch_extension")
    include = os.environ.get("TESSERA_INCLUDE", str(_folder.parent.parent / "include"))
    sources = [str(_folder / name) for name in ["extension.cpp", "cpu_backend.cpp"]]
    host, device = ["-std=c++20", "-O2"], ["-std=c++20", "-O3", "--extended-lambda"]
    if _has_cuda:
        sources += [str(_folder / f"cuda_{part}.cu") for part in ["caches", "loss", "attention", "weights", "backend"]]
        host.append("-DTESSERA_TORCH_WITH_CUDA")
        if torch.cuda.get_device_capability() == (9, 0):
            os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0a")  # 9.0 alone has no wgmma
    return cpp_extension.load("tessera_torch_extension", sources, extra_cflags=host, extra_cuda_cflags=device,
                              extra_include_paths=[include], with_cuda=_has_cuda)


_extension = _built()


def _named_device(device):
    """A device with its number: "cuda" is the current one."""
    return str(torch.empty(0, device=device).device)


def wait(device="cpu"):
    """Waits for the current stream of a device (of the CPU unless one is given), and raises what programs reported
    there since the last call, as a RuntimeError."""
    _extension.wait(_named_device(device))


def compress(weights):
    """A tensor of bytes from which decompress() restores every bit: NeuZip, for bfloat16, float16, float32. Waits."""
    return _extension.compress(weights.contiguous())


def decompress(stream, shape, dtype):
    """The weights that compress() made a stream of bytes from, on the stream's device.

    shape and dtype must be theirs, since the stream has neither: others are refused as a damaged stream is, by wait().
    The stream may be copied and saved as any tensor of bytes; its memory begins at a multiple of 16 bytes."""
    weights = torch.empty(shape, dtype=dtype, device=stream.device)
    _extension.decompress(stream.contiguous(), weights)
    return weights


class _WithoutBackward(torch.autograd.Function):
    """A function of tensors that says so where a backward pass comes to it."""

    @staticmethod
    def forward(ctx, name, function, *tensors):
        ctx.name = name
        return function(*tensors)

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(f"{ctx.name}: there is no backward pass")


def _without_backward(name, function, *tensors):
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        return _WithoutBackward.apply(name, function, *tensors)
    return function(*tensors)


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, classifier, labels, ignore_index, exact):
        loss, workspace = _extension.loss_forward(hidden, classifier, labels, ignore_index, exact, True)
        ctx.save_for_backward(hidden, classifier, labels, workspace)
        ctx.options = ignore_index, exact
        return loss[0]

    @staticmethod
    def backward(ctx, upstream):
        *inputs, workspace = ctx.saved_tensors

        def backward(upstream, *inputs):
            return _extension.loss_backward(*inputs, *ctx.options, workspace, upstream.reshape(1).float().contiguous(),
                                            *ctx.needs_input_grad[:2])

        return *_without_backward("the gradient of linear_cross_entropy", backward, upstream, *inputs), None, None, None


def linear_cross_entropy(hidden, classifier, labels, ignore_index=-100, exact=False):
    """torch.nn.functional.cross_entropy(hidden @ classifier.T, labels) without the logits: Cut Cross-Entropy.

    hidden: ... x channels, classifier: vocabulary x channels, both bfloat16, of any strides; labels: ..., int64. Gives
    the mean loss of the tokens whose label is not ignore_index, a float32; 0 if there are none. exact=False leaves out
    of gradients what the paper's filter leaves out. Where no gradients are required, the workspace is smaller. A frozen
    input gets no gradient, and none is computed for it. Gradients cannot be differentiated again."""
    if labels.shape != hidden.shape[:-1] or hidden.dim() == 0:
        raise ValueError(f"linear_cross_entropy: the labels are {tuple(labels.shape)} but the hidden states "
                         f"{tuple(hidden.shape)}, of which all but the last dimension must be the same")
    hidden, labels = hidden.reshape(labels.numel(), hidden.shape[-1]), labels.reshape(-1)
    if not (torch.is_grad_enabled() and (hidden.requires_grad or classifier.requires_grad)):
        return _extension.loss_forward(hidden, classifier, labels, ignore_index, exact, False)[0][0]
    return _LinearCrossEntropy.apply(hidden, classifier, labels, ignore_index, exact)


def attention(queries, keys, values, is_causal=False, scale=None, return_log_sum_exp=False):
    """SageAttention2: 8-bit scores, fp8 values. Tensors are batch x heads x tokens x channels in bfloat16, any strides.

    Channels: a multiple of 16 up to 256. Query heads share key heads where those are fewer. Causal: the last query sees
    the last key. scale: of scores, positive, 1 / sqrt(channels) if it is None. Log-sum-exps, which come second if they
    are asked for, are batch x heads x tokens in float32. Forward pass only: a backward pass through it is an error."""
    if scale is not None and not scale > 0:
        raise ValueError(f"attention: the scale is {scale} but must be positive")

    def forward(*tensors):
        return _extension.attention(*tensors, is_causal, scale or 0.0)

    result, log_sum_exp = _without_backward("attention", forward, queries, keys, values)
    return (result, log_sum_exp) if return_log_sum_exp else result


class MiniCache:
    """Keys and values of all layers of a batch, in 4 bits; a part of 2 layers shares directions (MiniCache).

        cache = MiniCache(sequences=1, tokens=4096, heads=8, channels=128, parts=[1, 1, 2, 2], device="cuda")
        cache.append(keys, values)                        # for each layer: sequences x heads x tokens x channels
        cache.begin_token()
        for layer in range(6):
            result = cache.write_and_attend(layer, k, v, q)
        cache.end_token()

    tokens: those that each sequence has room for; channels: from 32 to 256; parts: 1 or 2 layers each. Tensors are
    bfloat16, of any strides, on the cache's device. Nothing here has a backward pass."""

    def __init__(self, sequences, tokens, heads, channels, parts, device="cpu"):
        self._cache = _extension.make_kv_cache(sequences, tokens, heads, channels, list(parts), _named_device(device))

    def append(self, keys, values):
        """Appends as many tokens to each sequence; keys and values are a list of the layers' tensors.

        A call with wrong arguments changes nothing. More tokens than there is room for are an error of wait()."""
        self._cache.append(list(keys), list(values))

    def begin_token(self):
        """Makes room for a token of each sequence. write_and_attend() of each layer in turn and end_token() follow."""
        self._cache.begin_token()

    def write_and_attend(self, layer, keys, values, queries):
        """Writes the token's keys and values, sequences x heads x 1 x channels, and attends over the sequence to it.

        queries: sequences x query heads x 1 x channels, as is the result. Query heads share key heads."""
        def write_and_attend(*tensors):
            return self._cache.write_and_attend(layer, *tensors)

        return _without_backward("write_and_attend", write_and_attend, keys, values, queries)

    def end_token(self):
        """Ends the token, when all layers have been written."""
        self._cache.end_token()

    def bytes(self):
        """The bytes in use, and the bytes that the same tokens take in bfloat16, of all sequences. Waits."""
        return self._cache.bytes()


class ShadowKV:
    """A layer's keys in 160 directions on the device, its values on the host; each step attends to `chunks` chunks of 8
    tokens besides the latest tokens (ShadowKV). Queries and keys are those before their rotation.

        cache = ShadowKV(query_heads=32, key_heads=8, channels=128, tokens=[131072], device="cuda")
        cache.prefill(0, keys, values)                    # key heads x tokens x channels
        result = cache.decode(q, k, v)                    # sequences x heads x channels

    tokens: for each sequence, those that it has room for; channels: a multiple of 16 up to 256. Tensors are bfloat16,
    of any strides, on the cache's device. Nothing here has a backward pass."""

    def __init__(self, query_heads, key_heads, channels, tokens, chunks=256, rotary_base=10000.0, device="cpu"):
        self._cache = _extension.make_long_cache(query_heads, key_heads, channels, list(tokens), chunks, rotary_base,
                                                 _named_device(device))

    def prefill(self, sequence, keys, values):
        """Caches the prompt of a sequence, in place of what it had."""
        self._cache.prefill(sequence, keys, values)

    def decode(self, queries, keys, values):
        """Writes a token of each sequence, and attends with its queries over the sequence to it."""
        return _without_backward("decode", self._cache.decode, queries, keys, values)

    def bytes(self):
        """The bytes on the device and on the host, which are the same however many tokens there are."""
        return self._cache.bytes()

    def hit_rate(self):
        """The part of the selected chunks that were on the device already. Waits."""
        return self._cache.hit_rate()
