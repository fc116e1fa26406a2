# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""QuantizedCache: keys and values in few bits, as a cache of transformers. compressed_cache.py says how it attends."""
from .compressed_cache import CompressedCache, checked_layers

_BITS = 2, 3, 4, 8


class QuantizedCache(CompressedCache):
    """Keys and values of each layer in 8, 4, 3 or 2 bits: model.generate(past_key_values=...).

        cache = tessera_torch.QuantizedCache(model.config, max_cache_len=4096, bits=4)
        cache = tessera_torch.QuantizedCache(model.config, max_cache_len=4096, bits=4, value_bits=2)      # K4V2
        model.generate(**inputs, past_key_values=cache)

    max_cache_len: tokens that each sequence has room for, padding included; memory for them is allocated at the first
    pass. bits: those of a key's code, and of a value's if value_bits is None. Groups are 64 tokens of a channel of
    keys, and 64 channels of a token's value. window: the newest tokens that stay as they are, a multiple of 64. beams:
    whether the cache can be reordered for beam search, which takes twice the memory of the newest tokens.

    On CUDA devices keys and values of the same bits, and K4V2, have kernels of their own; others run more slowly, and
    say so on stderr. CompressedCache says what is supported and what is refused."""

    def __init__(self, config, max_cache_len, bits=4, value_bits=None, window=128, beams=False):
        value_bits = bits if value_bits is None else value_bits
        for what, found in [("keys", bits), ("values", value_bits)]:
            if found not in _BITS:
                raise ValueError(f"QuantizedCache: {what} are to have {found} bits but must have 2, 3, 4 or 8")
        layers = checked_layers("QuantizedCache", config)
        super().__init__(config, max_cache_len, [(1, bits, value_bits)] * layers, window, beams)
