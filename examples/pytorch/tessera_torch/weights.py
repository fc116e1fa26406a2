# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""NeuZip: weights as streams of bytes, without loss."""
import torch

from ._library import check_fake_devices, ops


@torch.library.register_fake("tessera_torch::compress")
def _(weights):
    return weights.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.uint8)


@torch.library.register_fake("tessera_torch::decompress_into")
def _(stream, weights):
    check_fake_devices("decompress", weights, bytes_of_the_stream=stream)


def compress(weights):
    """A tensor of bytes from which decompress() restores every bit: NeuZip, for bfloat16, float16, float32. Waits."""
    return ops.compress(weights.contiguous())


def decompress(stream, shape, dtype):
    """The weights that compress() made a stream of bytes from, on the stream's device.

    shape and dtype must be theirs, since the stream has neither: others are refused as a damaged stream is, by wait().
    The stream may be copied and saved as any tensor of bytes; its memory begins at a multiple of 16 bytes."""
    weights = torch.empty(shape, dtype=dtype, device=stream.device)
    ops.decompress_into(stream.contiguous(), weights)
    return weights
