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
    """Waits for the current stream, and raises what programs reported since the last call."""
    _extension.wait(_named_device(device))


def compress(weights):
    """A tensor of bytes from which decompress() restores every bit: NeuZip, for bfloat16, float16, float32. Waits."""
    return _extension.compress(weights.contiguous())


def decompress(stream, shape, dtype):
    weights = torch.empty(shape, dtype=dtype, device=stream.device)
    _extension.decompress(stream, weights)
    return weights


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, classifier, labels, ignore_index, exact):
        loss, workspace = _extension.loss_forward(hidden, classifier, labels, ignore_index, exact, True)
        ctx.save_for_backward(hidden, classifier, labels, workspace)
        ctx.options = ignore_index, exact
        return loss[0]

    @staticmethod
    def backward(ctx, upstream):
        hidden, classifier, labels, workspace = ctx.saved_tensors
        gradients = _extension.loss_backward(hidden, classifier, labels, *ctx.options, workspace,
                                             upstream.reshape(1).float().contiguous(), *ctx.needs_input_grad[:2])
        return *gradients, None, None, None


def linear_cross_entropy(hidden, classifier, labels, ignore_index=-100, exact=False):
    """torch.nn.functional.cross_entropy(hidden @ classifier.T, labels) without the logits: Cut Cross-Entropy.

    hidden: ... x channels, classifier: vocabulary x channels, both bfloat16; labels: ..., int64. exact=False leaves out
    of gradients what the paper's filter leaves out. Where no gradients are required, the workspace is smaller. A frozen
    input gets no gradient, and none is computed for it."""
    hidden, labels = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
    if not (torch.is_grad_enabled() and (hidden.requires_grad or classifier.requires_grad)):
        return _extension.loss_forward(hidden, classifier, labels, ignore_index, exact, False)[0][0]
    return _LinearCrossEntropy.apply(hidden, classifier, labels, ignore_index, exact)


def attention(queries, keys, values, is_causal=False, scale=None, return_log_sum_exp=False):
    """SageAttention2: 8-bit scores, fp8 values. Tensors are batch x heads x tokens x channels in bfloat16, any strides.
    Query heads share key heads where those are fewer. Causal: the last query sees the last key. Forward pass only."""
    result, log_sum_exp = _extension.attention(queries, keys, values, is_causal, scale or 0.0)
    return (result, log_sum_exp) if return_log_sum_exp else result


class MiniCache:
    """Keys and values of all layers of a batch, in 4 bits; a part of 2 layers shares directions (MiniCache).

        cache = MiniCache(sequences=1, tokens=4096, heads=8, channels=128, parts=[1, 1, 2, 2], device="cuda")
        cache.append(keys, values)                        # for each layer: sequences x heads x tokens x channels
        cache.begin_token()
        for layer in range(6):
            result = cache.write_and_attend(layer, k, v, q)
        cache.end_token()
    """

    def __init__(self, sequences, tokens, heads, channels, parts, device="cpu"):
        self._cache = _extension.make_kv_cache(sequences, tokens, heads, channels, parts, _named_device(device))
        for name in ["append", "begin_token", "write_and_attend", "end_token", "bytes"]:
            setattr(self, name, getattr(self._cache, name))


class ShadowKV:
    """A layer's keys in 160 directions on the device, its values on the host; each step attends to `chunks` chunks of 8
    tokens besides the latest tokens (ShadowKV). Queries and keys are those before their rotation.

        cache = ShadowKV(query_heads=32, key_heads=8, channels=128, tokens=[131072], device="cuda")
        cache.prefill(0, keys, values)                    # key heads x tokens x channels
        result = cache.decode(q, k, v)                    # sequences x heads x channels
    """

    def __init__(self, query_heads, key_heads, channels, tokens, chunks=256, rotary_base=10000.0, device="cpu"):
        self._cache = _extension.make_long_cache(query_heads, key_heads, channels, tokens, chunks, rotary_base,
                                                 _named_device(device))
        for name in ["prefill", "decode", "bytes", "hit_rate"]:
            setattr(self, name, getattr(self._cache, name))
