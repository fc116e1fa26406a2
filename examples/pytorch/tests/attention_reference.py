# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention in double precision with all options of tessera_torch.attention, as written in its documentation: a
sequence and a head at a time."""
import math

import torch


def seen_keys(queries, keys, is_causal, window):
    """queries x keys of a sequence: which keys each query sees. The last query's own key is the last one."""
    left, right = window if isinstance(window, tuple) else (window, window)
    left, right = (None if side in (None, -1) else side for side in (left, right))
    own = torch.arange(queries)[:, None] + keys - queries
    key = torch.arange(keys)[None]
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if left is not None:
        seen &= key >= own - left
    if is_causal:
        seen &= key <= own
    elif right is not None:
        seen &= key <= own + right
    return seen


def seen_tiles(block_list, sequence, head, queries, keys):
    """queries x keys of a head: which keys a block list has."""
    counts, tiles = (part[sequence, head].tolist() for part in block_list)
    seen = torch.zeros(queries, keys, dtype=torch.bool)
    for block, count in enumerate(counts):
        for tile in tiles[block][:count]:
            seen[64 * block:64 * block + 64, 128 * tile:128 * tile + 128] = True
    return seen


def reference(q, k, v, is_causal=False, window=None, sinks=None, bias=None, lengths=None, softmax_scale=None,
              alibi_slopes=None, query_lengths=None, block_list=None):
    """The result and log-sum-exps, on the CPU in double."""
    def there(tensor):
        return None if tensor is None else tensor.detach().cpu()

    q, k, v, sinks, bias, slopes = map(there, (q, k, v, sinks, bias, alibi_slopes))
    q, k, v = q.double(), k.double(), v.double()
    batch, heads, tokens, channels = q.shape
    scale = softmax_scale or 1 / math.sqrt(channels)
    result = torch.zeros(batch, heads, tokens, v.shape[3], dtype=torch.double)
    sums = torch.full((batch, heads, tokens), -math.inf, dtype=torch.double)
    if bias is not None:
        bias = torch.zeros(bias.shape, dtype=torch.double).masked_fill(~bias, -math.inf) if bias.dtype == torch.bool \
            else bias.double()
        bias = bias.broadcast_to(batch, heads, tokens, k.shape[2])
    for sequence in range(batch):
        limits = [tokens if query_lengths is None else min(int(query_lengths[sequence]), tokens),
                  k.shape[2] if lengths is None else min(int(lengths[sequence]), k.shape[2])]
        queries, keys = (max(limit, 0) for limit in limits)
        for head in range(heads):
            of_keys = head // (heads // k.shape[1])
            scores = scale * q[sequence, head, :queries] @ k[sequence, of_keys, :keys].T
            if bias is not None:
                scores = scores + bias[sequence, head, :queries, :keys]
            if slopes is not None:
                scores = scores + slopes[head].double() * (torch.arange(keys)[None] - torch.arange(queries)[:, None])
            seen = seen_keys(queries, keys, is_causal, window)
            if block_list is not None:
                seen &= seen_tiles(block_list, sequence, head, tokens, k.shape[2])[:queries, :keys]
            scores = scores.masked_fill(~seen, -math.inf)
            some = torch.cat([scores, torch.full((queries, 1), -math.inf if sinks is None else float(sinks[head]),
                                                 dtype=torch.double)], 1)
            found = some.logsumexp(1)
            weights = torch.where(found[:, None] == -math.inf, 0.0, (scores - found[:, None]).exp())
            result[sequence, head, :queries] = weights @ v[sequence, of_keys, :keys]
            sums[sequence, head, :queries] = found
    return result, sums
