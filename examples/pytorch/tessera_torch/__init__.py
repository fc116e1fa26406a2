# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tessera's five algorithms for PyTorch tensors, on CPUs and CUDA devices, on the current stream.

    import tessera_torch
    loss = tessera_torch.linear_cross_entropy(hidden, classifier.weight, labels)      # no logits in memory
    loss.backward()

Only functions that say so wait for the device. Errors that a program finds there (a label that is no entry, a damaged
stream) are raised by wait(). The operators of the extension are torch.ops.tessera_torch.
"""
from .attention import attention, attention_packed, tile_list
from .distillation import linear_distillation
from .linear_cross_entropy import (LinearCrossEntropy, LinearStatistics, linear_cross_entropy,
                                   linear_log_probabilities, linear_statistics)
from .minicache import MiniCache
from .scaled_dot_product_attention import register_attention, replaced_attention, scaled_dot_product_attention
from .shadow_kv import ShadowKV
from .soft_targets import chosen_log_probabilities, soft_target_cross_entropy
from .wait import wait
from .weights import compress, decompress
