# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest
import torch

import tessera_torch
from helpers import bfloat16, refused
from tessera_torch import compress, decompress

TYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.mark.parametrize("dtype", TYPES)
def test_weights_come_back_bit_for_bit_from_fewer_bytes(device, dtype):
    weights = (0.02 * torch.randn(300, 1001)).to(dtype).to(device)
    stream = compress(weights)
    back = decompress(stream, weights.shape, dtype)
    tessera_torch.wait(device)
    assert torch.equal(back, weights)
    assert stream.dtype == torch.uint8 and stream.device == weights.device
    assert stream.numel() < 0.95 * weights.nbytes


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("elements", [0, 1, 7, 511, 512, 513])
def test_any_number_of_elements_and_any_bits(device, dtype, elements):
    bits = {2: torch.int16, 4: torch.int32}[dtype.itemsize]
    limits = torch.iinfo(bits)
    weights = torch.randint(limits.min, limits.max, (elements,), dtype=bits).view(dtype).to(device)  # NaN and infinity
    back = decompress(compress(weights), (elements,), dtype)
    tessera_torch.wait(device)
    assert torch.equal(back.view(bits), weights.view(bits))


def test_strided_weights_are_compressed_as_if_contiguous(device):
    weights = bfloat16(40, 60, device=device).T
    stream = compress(weights)
    assert torch.equal(stream, compress(weights.contiguous()))
    assert torch.equal(decompress(stream, weights.shape, torch.bfloat16), weights)


def test_a_damaged_stream_is_reported(device):
    weights = bfloat16(300, 1001, device=device, scale=0.02)
    stream = compress(weights)
    stream[200:300] = 255 - stream[200:300]
    refused(["decode"], lambda: decompress(stream, weights.shape, torch.bfloat16), device)
    tessera_torch.wait(device)  # the error was raised once


def test_wrong_arguments_are_refused(device):
    weights = bfloat16(9, device=device)
    stream = compress(weights)
    refused(["compress", "Double", "BFloat16"], lambda: compress(weights.double()))
    refused(["decompress", "Char", "Byte"], lambda: decompress(stream.char(), (9,), torch.bfloat16))
    refused(["header"], lambda: decompress(stream, (8,), torch.bfloat16), device)


def test_decompression_is_compiled_without_graph_breaks(device):
    weights = bfloat16(64, 96, device=device)
    stream = compress(weights)
    compiled = torch.compile(lambda s: 2 * decompress(s, (64, 96), torch.bfloat16), fullgraph=True)
    assert torch.equal(compiled(stream), 2 * weights)
