# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MiniCache: keys and values in 4 bits, which neighbouring layers share."""
import weakref

from ._library import on, ops, refuse_backward

refuse_backward("minicache_write_and_attend", "write_and_attend")


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
        self._cache = ops.minicache_make(on(device), sequences, tokens, heads, channels, list(parts))
        weakref.finalize(self, ops.minicache_free, self._cache)

    def append(self, keys, values):
        """Appends as many tokens to each sequence; keys and values are a list of the layers' tensors.

        A call with wrong arguments changes nothing. More tokens than there is room for are an error of wait()."""
        ops.minicache_append(self._cache, list(keys), list(values))

    def begin_token(self):
        """Makes room for a token of each sequence. write_and_attend() of each layer in turn and end_token() follow."""
        ops.minicache_begin_token(self._cache)

    def write_and_attend(self, layer, keys, values, queries):
        """Writes the token's keys and values, sequences x heads x 1 x channels, and attends over the sequence to it.

        queries: sequences x query heads x 1 x channels, as is the result. Query heads share key heads."""
        return ops.minicache_write_and_attend(self._cache, layer, keys, values, queries)

    def end_token(self):
        """Ends the token, when all layers have been written."""
        ops.minicache_end_token(self._cache)

    def bytes(self):
        """The bytes in use, and the bytes that the same tokens take in bfloat16, of all sequences. Waits."""
        return ops.minicache_bytes(self._cache)
