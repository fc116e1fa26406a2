# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MiniCacheCache: MiniCache as a cache of transformers. compressed_cache.py says how it attends."""
from .compressed_cache import CompressedCache, checked_layers


class MiniCacheCache(CompressedCache):
    """Keys and values in 4 bits, where neighbouring layers share directions: model.generate(past_key_values=...).

        cache = tessera_torch.MiniCacheCache(model.config, max_cache_len=4096)
        model.generate(**inputs, past_key_values=cache)
        cache.bytes()

    max_cache_len: tokens that each sequence has room for, padding included; memory for them is allocated at the first
    pass. first_merged: the first layer of pairs, from which on an even number of layers follows; None: the paper's
    choice, the second half of the layers. window: the newest tokens that stay as they are, a multiple of 64. beams:
    whether the cache can be reordered for beam search, which takes twice the memory of the newest tokens.

    Measure before merging: layers of small models are often too different (docs/papers/minicache.md), and
    QuantizedCache merges none. CompressedCache says what is supported and what is refused."""

    def __init__(self, config, max_cache_len, first_merged=None, window=128, beams=False):
        layers = checked_layers("MiniCacheCache", config)
        if first_merged is None:
            first_merged = layers - layers // 2 // 2 * 2
        if not 0 <= first_merged <= layers or (layers - first_merged) % 2:
            raise ValueError(f"MiniCacheCache: layers {first_merged} to {layers - 1} are to be merged in pairs, but "
                             "must be an even number of layers")
        parts = [(1, 4, 4)] * first_merged + [(2, 4, 4)] * ((layers - first_merged) // 2)
        super().__init__(config, max_cache_len, parts, window, beams)
