# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classifiers that are stored in another type than the hidden states, for all losses."""
import torch

_CODES = torch.float8_e4m3fn


def is_stored(e, c, scale):
    """Whether a classifier is more than a matrix of the hidden states' type: all gradients are computed in float32."""
    return scale is not None or c.dtype != e.dtype


def check_classifier(function, c, scale, name="classifier"):
    """Checks that no gradient is asked for of what has none."""
    if not torch.is_grad_enabled():
        return
    if c.dtype == _CODES and c.requires_grad:
        raise NotImplementedError(f"{function}: the {name} of type {c.dtype} requires a gradient, but there is none of "
                                  f"codes, only of {torch.float32}, {torch.bfloat16} and {torch.float16}")
    if scale is not None and scale.requires_grad:
        raise NotImplementedError(f"{function}: {name}_scale requires a gradient, but there is none of scales")


def cast_for_autocast(*tensors):
    """Tensors, or None, in the type of torch.autocast where that is on, but for codes."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor if tensor is None or tensor.dtype == _CODES else tensor.to(dtype) for tensor in tensors)


def operands(e, c, bias):
    """Hidden states, classifier and bias as the operators take them: a bias of the classifier's type is rounded."""
    e, c, bias = cast_for_autocast(e, c, bias)
    if bias is not None and bias.dtype == c.dtype:
        bias = bias.to(e.dtype)
    return e, c, bias
