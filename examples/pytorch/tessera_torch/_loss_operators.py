# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The operators of Cut Cross-Entropy: their results where nothing runs, and their backward passes."""
import ctypes
from typing import NamedTuple

import torch

from ._classifiers import is_stored
from ._library import (check_fake_devices, empty_gradients, extension_path, ops, refuse_backward, typed_gradients,
                       wants_gradients)

_TYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}

_NUMBERS = ("softcap", "temperature", "smoothing", "z_factor", "e_threshold", "c_threshold")
# The options in the order of the operators' schema.
_SETTINGS = ("reduction", "ignore_index", "shift", "sequence", *_NUMBERS, "workspace_budget", "has_statistics",
             "is_tf32")


class _WorkspaceRequest(ctypes.Structure):
    """A call, as the extension's workspace_request has it."""
    _fields_ = [(name, ctypes.c_double if name in _NUMBERS else ctypes.c_int64)
                for name in ("cuda_device", "type", "is_stored", "tokens", "vocabulary", "channels", *_SETTINGS,
                             "adds_gradients", "for_backward")]


_workspace_bytes = ctypes.CDLL(str(extension_path)).tessera_torch_loss_workspace_bytes
_workspace_bytes.restype = ctypes.c_int64
_workspace_bytes.argtypes = [ctypes.POINTER(_WorkspaceRequest)]


class LossResults(NamedTuple):
    loss: torch.Tensor
    log_sum_exp: torch.Tensor
    log_probability: torch.Tensor
    entropy: torch.Tensor
    prediction: torch.Tensor
    workspace: torch.Tensor


def call_loss(e, c, targets, bias, *others):
    """The operator's results. Only where a gradient is wanted the workspace has what a backward pass needs."""
    return LossResults(*ops.loss_forward(e, c, targets, bias, *others, wants_gradients(e, c, bias)))


def _size_of_workspace(e, c, scale, settings, adds_gradients, for_backward):
    tokens, channels = e.shape
    vocabulary = c.shape[0]
    if any(isinstance(extent, torch.SymInt) for extent in (tokens, channels, vocabulary, *settings)):
        return torch.library.get_ctx().new_dynamic_size()
    device = -1
    if e.device.type == "cuda":
        device = torch.cuda.current_device() if e.device.index is None else e.device.index
    size = _workspace_bytes(_WorkspaceRequest(
        cuda_device=device, type=_TYPES[e.dtype], is_stored=is_stored(e, c, scale), tokens=tokens,
        vocabulary=vocabulary, channels=channels, adds_gradients=adds_gradients, for_backward=for_backward,
        **dict(zip(_SETTINGS, settings, strict=True))))
    if size < 0:
        raise RuntimeError(f"linear_cross_entropy: no call takes {tokens} tokens, {vocabulary} entries of the "
                           f"vocabulary and {channels} channels with these options on {e.device}")
    return size


@torch.library.register_fake("tessera_torch::loss_forward")
def _(e, c, targets, bias, weights, class_weights, c_scale, classifier_gradient, bias_gradient, *rest):
    *settings, for_backward = rest
    check_fake_devices("linear_cross_entropy", e, rows_of_the_classifier=c, labels=targets, biases=bias,
                       weights=weights, weights_of_classes=class_weights, **{
                          "scales_of_the_classifier's_rows": c_scale,
                          "sums_of_the_classifier's_gradients": classifier_gradient,
                          "sums_of_the_bias's_gradients": bias_gradient})
    if e.dtype not in _TYPES:
        raise RuntimeError(f"linear_cross_entropy: the hidden states are of type {e.dtype} but must be of type "
                           "BFloat16, Half or Float")
    tokens = e.shape[0]
    reduction, has_statistics = settings[0], settings[-2]
    statistics = tokens if has_statistics else 0
    adds_gradients = classifier_gradient is not None or bias_gradient is not None
    size = _size_of_workspace(e, c, c_scale, settings, adds_gradients, for_backward)
    return (e.new_empty(() if reduction else (tokens,), dtype=torch.float32),
            e.new_empty(tokens, dtype=torch.float32), e.new_empty(tokens, dtype=torch.float32),
            e.new_empty(statistics, dtype=torch.float32), e.new_empty(statistics, dtype=torch.int32),
            e.new_empty(size, dtype=torch.uint8))


@torch.library.register_fake("tessera_torch::loss_backward")
def _(e, c, targets, bias, weights, class_weights, c_scale, *rest):
    of_e, of_c, of_bias = rest[-3:]
    return empty_gradients(e, (e, of_e), (c, of_c), (bias, of_bias),
                           dtype=torch.float32 if is_stored(e, c, c_scale) else None)


@torch.library.register_fake("tessera_torch::loss_backward_into")
def _(e, c, targets, bias, weights, class_weights, c_scale, classifier_gradient, bias_gradient, *rest):
    of_e, of_c, of_bias = rest[-3:]
    return empty_gradients(e, (e, of_e), (c, of_c and classifier_gradient is None),
                           (bias, of_bias and bias_gradient is None), dtype=torch.float32)


def _setup_context(ctx, inputs, output):
    *tensors, classifier_gradient, bias_gradient = inputs[:9]
    *_, prediction, workspace = output
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2], prediction, workspace)
    ctx.save_for_backward(*tensors, workspace)
    # Not saved: other backward passes change them before this one, as they are meant to.
    ctx.sums = classifier_gradient, bias_gradient
    ctx.settings = inputs[9:-1]


def _backward(ctx, by_loss, by_log_sum_exp, by_log_probability, by_entropy, *_):
    *tensors, workspace = ctx.saved_tensors
    wants_e, wants_c, _, wants_bias = ctx.needs_input_grad[:4]
    others = (None,) * (len(ctx.needs_input_grad) - 4)
    if by_loss is None and by_log_sum_exp is None and by_entropy is None:
        return (None,) * 4 + others
    if by_loss is None:  # the operator takes none for ones
        is_reduced = ctx.settings[0] != 0
        by_loss = workspace.new_zeros(() if is_reduced else tensors[0].shape[:1], dtype=torch.float32)
    rest = (*ctx.settings, workspace, by_loss, by_log_sum_exp, by_entropy if ctx.settings[-2] else None, wants_e,
            wants_c, wants_bias)
    if ctx.sums == (None, None):
        found = ops.loss_backward(*tensors, *rest)
    else:
        found = _added(ctx.sums, tensors, rest)
    is_result = (wants_e, wants_c and ctx.sums[0] is None, wants_bias and ctx.sums[1] is None)
    of_e, of_c, of_bias = typed_gradients(found, (tensors[0], tensors[1], tensors[3]), is_result)
    return (of_e, of_c, None, of_bias) + others


def _added(sums, tensors, rest):
    """Adds gradients to sums. Gives the others in float32."""
    if torch.is_grad_enabled():  # the operator changes arguments, so that it cannot have a backward pass that refuses
        raise NotImplementedError("the gradient of linear_cross_entropy: there is no backward pass")
    found = ops.loss_backward_into(*tensors, *sums, *rest)
    torch.autograd.graph.increment_version([each for each in sums if each is not None])
    return found


torch.library.register_autograd("tessera_torch::loss_forward", _backward, setup_context=_setup_context)
refuse_backward("loss_backward", "the gradient of linear_cross_entropy")
