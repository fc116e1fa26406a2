# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SageAttention2: attention with 8-bit scores."""
import torch

from ._library import check_fake_devices, ops, refuse_backward


@torch.library.register_fake("tessera_torch::attention")
def _(queries, keys, values, is_causal, scale):
    check_fake_devices("attention", queries, keys=keys, values=values)
    return queries.new_empty(queries.shape), queries.new_empty(queries.shape[:-1], dtype=torch.float32)


refuse_backward("attention", "attention")


def attention(queries, keys, values, is_causal=False, scale=None, return_log_sum_exp=False):
    """SageAttention2: 8-bit scores, fp8 values. Tensors are batch x heads x tokens x channels in bfloat16, any strides.

    Channels: a multiple of 16 up to 256. Query heads share key heads where those are fewer. Causal: the last query sees
    the last key. scale: of scores, positive, 1 / sqrt(channels) if it is None. Log-sum-exps, which come second if they
    are asked for, are batch x heads x tokens in float32. Forward pass only: a backward pass through it is an error."""
    if scale is not None and not scale > 0:
        raise ValueError(f"attention: the scale is {scale} but must be positive")
    result, log_sum_exp = ops.attention(queries, keys, values, is_causal, scale or 0.0)
    return (result, log_sum_exp) if return_log_sum_exp else result
