# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tessera's five algorithms for PyTorch tensors, on CPUs and CUDA devices, on the current stream.

    import tessera_torch
    loss = tessera_torch.linear_cross_entropy(hidden, classifier.weight, labels)      # no logits in memory
    loss.backward()

Only functions that say so wait for the device. Errors that a program finds there (a label that is no entry, a damaged
stream) are raised by wait(). The operators of the extension are torch.ops.tessera_torch.
"""
import importlib

from .attention import attention, attention_packed, tile_list
from .distillation import linear_distillation
from .compressed_module import (CompressedEmbedding, CompressedLinear, compress_module, compressed_weights,
                                compression_report, decompress_module)
from .linear_cross_entropy import (LinearCrossEntropy, LinearStatistics, linear_cross_entropy,
                                   linear_log_probabilities, linear_statistics)
from .minicache import MiniCache
from .parameter_store import ParameterStore
from .ranks import VocabParallelOptions
from .safetensors import empty_weights, load_compressed
from .scaled_dot_product_attention import register_attention, replaced_attention, scaled_dot_product_attention
from .shadow_kv import ShadowKV
from .soft_targets import chosen_log_probabilities, soft_target_cross_entropy
from .top_log_probabilities import TopLogProbabilities, top_log_probabilities
from .wait import wait
from .weights import compress, decompress

_OF_TRANSFORMERS = {"MiniCacheCache": "minicache_cache", "QuantizedCache": "quantized_cache",
                    "ShadowKVCache": "shadow_kv_cache"}


def __getattr__(name):
    """Caches for models of transformers, which is imported when one of them is asked for first."""
    if name in _OF_TRANSFORMERS:
        return getattr(importlib.import_module(f".{_OF_TRANSFORMERS[name]}", __name__), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
