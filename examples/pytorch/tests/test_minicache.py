# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import torch

import tessera_torch
from helpers import bfloat16, refused, relative, repeated


def test_attention_over_a_compressed_cache(device):
    layers, tokens, channels = 4, 300, 64
    first = torch.randn(2, 2, 2, tokens, channels)   # keys and values of a layer; neighbours hardly differ
    data = [(first + 0.05 * torch.randn_like(first)).bfloat16().to(device) for _ in range(layers)]
    cache = tessera_torch.MiniCache(2, 512, 2, channels, [1, 1, 2], device=device)
    cache.append([d[0][:, :, :-1] for d in data], [d[1][:, :, :-1] for d in data])
    cache.begin_token()
    for layer, (keys, values) in enumerate(data):
        q = bfloat16(2, 4, 1, channels, device=device)
        found = cache.write_and_attend(layer, keys[:, :, -1:], values[:, :, -1:], q)
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.double(), repeated(keys, 2).double(), repeated(values, 2).double())
        tessera_torch.wait(device)
        assert relative(found, expected) < 0.3
    cache.end_token()
    used, plain = cache.bytes()
    assert used < plain == 2 * 2 * layers * 2 * 2 * tokens * channels


def test_refused_calls_leave_a_cache_as_it_was(device):
    prompt = [bfloat16(2, 2, 70, 64, device=device) for _ in range(3)]
    token, q = [keys[:, :, -1:] for keys in prompt], bfloat16(2, 4, 1, 64, device=device)
    results = []
    for tries_wrong_calls in [False, True]:
        cache = tessera_torch.MiniCache(2, 96, 2, 64, [1, 2], device=device)
        if tries_wrong_calls:
            for words, keys in [(["keys", "Float"], [*prompt[:2], prompt[2].float()]), (["3", "2"], prompt[:2]),
                                (["69", "70"], [*prompt[:2], prompt[2][:, :, 1:]])]:
                refused(["append", *words], lambda: cache.append(keys, prompt), device)
            refused(["begin_token"], lambda: cache.write_and_attend(0, token[0], token[0], q))
        cache.append(prompt, prompt)
        cache.begin_token()
        if tries_wrong_calls:
            refused(["append", "0 of its 3"], lambda: cache.append(prompt, prompt))
            refused(["end_token", "0", "3"], cache.end_token)
            for layer in [1, -1, 1 << 32]:
                refused([f"layer {layer} ", "next", "0"],
                        lambda: cache.write_and_attend(layer, token[0], token[0], q))
        results.append([cache.write_and_attend(layer, token[layer], token[layer], q) for layer in range(3)])
        cache.end_token()
        tessera_torch.wait(device)
        results[-1].append(torch.tensor(cache.bytes()))
    assert all(torch.equal(*both) for both in zip(*results))
    refused(["97", "96"], lambda: cache.append(*2 * [[keys[:, :, :26] for keys in prompt]]), device)


def test_a_cache_that_is_gone_is_refused(device):
    cache = tessera_torch.MiniCache(1, 64, 2, 64, [1], device=device)
    number = cache._cache
    del cache
    refused(["minicache", f"object {number}"], lambda: torch.ops.tessera_torch.minicache_begin_token(number))


def test_there_is_no_backward_pass(device):
    cache = tessera_torch.MiniCache(1, 64, 2, 64, [1], device=device)
    cache.begin_token()
    token = bfloat16(1, 2, 1, 64, device=device)
    result = cache.write_and_attend(0, token, token, token.clone().requires_grad_())
    refused(["write_and_attend", "backward"], lambda: result.sum().backward())
