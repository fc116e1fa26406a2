# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import pytest
import torch

import tessera_torch
from helpers import bfloat16, refused, relative, repeated
from tessera_torch import attention


def heads(device):
    queries = bfloat16(2, 6, 200, 64, device=device)
    keys, values = (bfloat16(2, 300, 2, 64, device=device).transpose(1, 2) for _ in range(2))  # tokens before heads
    return queries, keys, values


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention(device, is_causal):
    queries, keys, values = heads(device)
    mask = torch.ones(200, 300, dtype=torch.bool, device=device).tril(100) if is_causal else None
    keys_of_queries, values_of_queries = (repeated(tensor, 3).double() for tensor in (keys, values))
    expected = torch.nn.functional.scaled_dot_product_attention(queries.double(), keys_of_queries, values_of_queries,
                                                                attn_mask=mask)
    found, sums = attention(queries, keys, values, is_causal, return_log_sum_exp=True)
    tessera_torch.wait(device)
    assert relative(found, expected) < 0.05
    scores = queries.double() @ keys_of_queries.transpose(-1, -2) / 8
    scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    assert (sums - scores.logsumexp(-1)).abs().max() < 0.1


def test_no_keys_give_zeros(device):
    queries, keys, values = heads(device)
    found = attention(queries, keys[:, :, :0], values[:, :, :0])
    assert found.shape == queries.shape and not found.any()


def test_wrong_arguments_are_refused(device):
    q, k = bfloat16(1, 4, 20, 64, device=device), bfloat16(1, 2, 30, 64, device=device)
    for words, call in [
            (["attention", "queries", "3", "4"], lambda: attention(q[0], k, k)),
            (["keys", "meta", device], lambda: attention(q, k.to("meta"), k)),
            (["values", "Half", "BFloat16"], lambda: attention(q, k, k.half())),
            (["3", "2"], lambda: attention(q[:, :3], k, k)),
            (["scale", "0"], lambda: attention(q, k, k, scale=0)),
            (["attention", "backward"], lambda: attention(q.clone().requires_grad_(), k, k).sum().backward())]:
        refused(words, call, device)


def test_attention_is_compiled_without_graph_breaks(device):
    tensors = heads(device)
    compiled = torch.compile(lambda q, k, v: attention(q, k, v, is_causal=True) + 1, fullgraph=True)
    assert torch.equal(compiled(*tensors), attention(*tensors, is_causal=True) + 1)
