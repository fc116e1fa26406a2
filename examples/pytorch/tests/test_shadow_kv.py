# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import torch

import tessera_torch
from helpers import bfloat16, refused, relative, repeated


def rotated(heads, positions, base=10000.0):
    half = heads.shape[-1] // 2
    angles = positions[:, None].double() * base ** (-torch.arange(half, device=heads.device).double() / half)
    a, b = heads.double()[..., :half], heads.double()[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def test_a_step_over_all_chunks(device):
    tokens, heads, channels = 600, 4, 64
    directions = torch.randn(100, heads * channels) / 10
    keys = (torch.randn(tokens + 1, 100) @ directions).view(tokens + 1, heads, channels).transpose(0, 1)
    keys, values = keys.bfloat16().to(device), bfloat16(heads, tokens + 1, channels, device=device)
    q = bfloat16(1, 2 * heads, channels, device=device)
    cache = tessera_torch.ShadowKV(2 * heads, heads, channels, [tokens + 64], chunks=83, device=device)
    cache.prefill(0, keys[:, :tokens], values[:, :tokens])
    found = cache.decode(q, keys[None, :, tokens], values[None, :, tokens])
    positions = torch.arange(tokens + 1, device=device)
    expected = torch.nn.functional.scaled_dot_product_attention(
        rotated(q[0], positions[tokens:])[None, :, None], repeated(rotated(keys, positions)[None], 2),
        repeated(values[None], 2).double())[:, :, 0]
    tessera_torch.wait(device)
    assert relative(found, expected) < 0.02
    on_device, on_host = cache.bytes()
    assert on_device > 0 and on_host >= values.nbytes
    assert 0 <= cache.hit_rate() <= 1


def test_wrong_arguments_are_refused(device):
    for words, changed in [(["-1"], {"chunks": -1}), (["63"], {"channels": 63}), (["0 seq"], {"tokens": []}),
                           (["base", "0"], {"rotary_base": 0})]:
        shape = {"query_heads": 4, "key_heads": 2, "channels": 64, "tokens": [200], "device": device, **changed}
        refused(words, lambda: tessera_torch.ShadowKV(**shape), device)
    cache = tessera_torch.ShadowKV(4, 2, 64, [200], device=device)
    keys, token, q = (bfloat16(*shape, device=device) for shape in [(2, 70, 64), (1, 2, 64), (1, 4, 1, 64)])
    refused(["prefill", "keys", "Float"], lambda: cache.prefill(0, keys.float(), keys))
    refused(["1"], lambda: cache.prefill(1, keys, keys))
    cache.prefill(0, keys, keys)
    refused(["decode", "queries", "4", "3"], lambda: cache.decode(q, token, token))
    refused(["decode", "backward"],
            lambda: cache.decode(q[:, :, 0].requires_grad_(), token, token).sum().backward(), device)
