# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ShadowKV: keys in few directions on the device, values on the host."""
import weakref

from ._library import on, ops, refuse_backward

refuse_backward("shadow_kv_decode", "decode")


class ShadowKV:
    """A layer's keys in 160 directions on the device, its values on the host; each step attends to `chunks` chunks of 8
    tokens besides the latest tokens (ShadowKV). Queries and keys are those before their rotation.

        cache = ShadowKV(query_heads=32, key_heads=8, channels=128, tokens=[131072], device="cuda")
        cache.prefill(0, keys, values)                    # key heads x tokens x channels
        result = cache.decode(q, k, v)                    # sequences x heads x channels

    tokens: for each sequence, those that it has room for; channels: a multiple of 16 up to 256. Tensors are bfloat16,
    of any strides, on the cache's device. Nothing here has a backward pass."""

    def __init__(self, query_heads, key_heads, channels, tokens, chunks=256, rotary_base=10000.0, device="cpu"):
        self._cache = ops.shadow_kv_make(on(device), query_heads, key_heads, channels, list(tokens), chunks,
                                         rotary_base)
        weakref.finalize(self, ops.shadow_kv_free, self._cache)

    def prefill(self, sequence, keys, values):
        """Caches the prompt of a sequence, in place of what it had."""
        ops.shadow_kv_prefill(self._cache, sequence, keys, values)

    def decode(self, queries, keys, values):
        """Writes a token of each sequence, and attends with its queries over the sequence to it."""
        return ops.shadow_kv_decode(self._cache, queries, keys, values)

    def bytes(self):
        """The bytes on the device and on the host, which are the same however many tokens there are."""
        return ops.shadow_kv_bytes(self._cache)

    def hit_rate(self):
        """The part of the selected chunks that were on the device already. Waits."""
        return ops.shadow_kv_hit_rate(self._cache)
