# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Distillation of a language model's classifier, without the logits of student and teacher in memory as a whole."""
import torch

from ._classifiers import cast_for_autocast, check_classifier, is_stored
from ._library import (check_fake_devices, empty_gradients, ops, refuse_backward, typed_gradients, uses_tf32,
                       wants_gradients)
from .linear_cross_entropy import REDUCTIONS, _per_token, _require
from .ranks import check_options, distillation_over_ranks, tokens_of_all

DIVERGENCES = {"forward_kl": 0, "reverse_kl": 1, "jensen_shannon": 2}


@torch.library.register_fake("tessera_torch::distillation_forward")
def _(e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale, divergence, beta, reduction, *_):
    check_fake_devices("linear_distillation", e, rows_of_the_classifier=c, teachers_hidden_states=teacher_e,
                       rows_of_the_teachers_classifier=teacher_c, weights=weights,
                       **{"scales_of_the_classifier's_rows": c_scale,
                          "scales_of_the_teacher's_classifier's_rows": teacher_c_scale})
    size = torch.library.get_ctx().new_dynamic_size()
    return (e.new_empty(() if reduction else (e.shape[0],), dtype=torch.float32),
            e.new_empty(size, dtype=torch.uint8))


@torch.library.register_fake("tessera_torch::distillation_backward")
def _(e, c, teacher_e, teacher_c, weights, c_scale, teacher_c_scale, *rest):
    of_e, of_c = rest[-2:]
    has_stored = is_stored(e, c, c_scale) or is_stored(e, teacher_c, teacher_c_scale)
    return empty_gradients(e, (e, of_e), (c, of_c), dtype=torch.float32 if has_stored else None)


def _setup_context(ctx, inputs, output):
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(*inputs[:7], output[1])
    ctx.settings = inputs[7:-1]


def _backward(ctx, by_loss, _):
    *tensors, workspace = ctx.saved_tensors
    wants = ctx.needs_input_grad[:2]
    found = ops.distillation_backward(*tensors, *ctx.settings, workspace, by_loss, *wants)
    of_e, of_c = typed_gradients(found, tensors[:2], wants)
    return (of_e, of_c) + (None,) * (len(ctx.needs_input_grad) - 2)


torch.library.register_autograd("tessera_torch::distillation_forward", _backward, setup_context=_setup_context)
refuse_backward("distillation_backward", "the gradient of linear_distillation")


def linear_distillation(e, c, teacher_e, teacher_c, divergence="forward_kl", reduction="mean", *, temperature=1.0,
                        softcap=None, teacher_softcap=None, beta=0.5, weights=None, classifier_scale=None,
                        teacher_classifier_scale=None, allow_tf32=None, workspace_bytes=None,
                        vocab_parallel_options=None):
    """How far a student's distributions, softmax(e @ c.T / temperature), are from those of its teacher.

    e: ... x channels; c: vocabulary x channels; teacher_e: ... x channels of its own; teacher_c: vocabulary x those.
    e and teacher_e have one type of bfloat16, float16 and float32. Each classifier has that type or another one, as
    linear_cross_entropy() says, with classifier_scale or teacher_classifier_scale where it has codes.

    divergence: "forward_kl" (teacher's mean of log-ratios), "reverse_kl" (the student's), or "jensen_shannon" with
    beta, the teacher's part of the mixture. softcap and teacher_softcap cap logits before temperature divides them.
    weights: a factor for each token; 0: it does not count.

    Gives float32: with "mean" the sum of weighted divergences over the sum of weights, "sum", or "none" for each token.
    e and c have gradients, the teacher has none; an input that requires none costs none. Nothing waits.
    workspace_bytes: the most memory for parts of logits, 384 MiB by default. With some GiB gradients by logits are kept
    between the passes, which takes 4 products in place of 6 or 8. vocab_parallel_options: see
    linear_cross_entropy(); c and teacher_c have the same entries of the vocabulary on a rank."""
    _require(reduction in REDUCTIONS, ValueError, "linear_distillation: the reduction is ", repr(reduction),
             " but must be one of ", ", ".join(REDUCTIONS))
    _require(divergence in DIVERGENCES, ValueError, "linear_distillation: the divergence is ", repr(divergence),
             " but must be one of ", ", ".join(DIVERGENCES))
    _require(teacher_e.shape[:-1] == e.shape[:-1], ValueError, "linear_distillation: the teacher's hidden states are ",
             tuple(teacher_e.shape), " but the student's ", tuple(e.shape),
             ", of which all but the last dimension must be the same")
    check_classifier("linear_distillation", c, classifier_scale)
    if vocab_parallel_options is not None:
        check_options("linear_distillation", vocab_parallel_options, c)
    e = tokens_of_all("linear_distillation", vocab_parallel_options, e)
    teacher_e = tokens_of_all("linear_distillation", vocab_parallel_options, teacher_e.detach(), False)
    tokens = e.shape[:-1]
    e, c, teacher_e, teacher_c = cast_for_autocast(e.reshape(-1, e.shape[-1]), c,
                                                   teacher_e.reshape(-1, teacher_e.shape[-1]), teacher_c)
    if weights is not None:
        weights = _per_token("linear_distillation", weights, weights.new_empty(tokens))
    if teacher_classifier_scale is not None:
        teacher_classifier_scale = teacher_classifier_scale.detach()
    tensors = (e, c, teacher_e.detach(), teacher_c.detach(), weights, classifier_scale, teacher_classifier_scale)
    settings = (DIVERGENCES[divergence], beta, REDUCTIONS[reduction], temperature, softcap or 0.0,
                teacher_softcap or 0.0, workspace_bytes or 0, uses_tf32(allow_tf32, e))
    if vocab_parallel_options is None:
        loss, _ = ops.distillation_forward(*tensors, *settings, wants_gradients(e, c))
    else:
        loss = distillation_over_ranks(vocab_parallel_options, tensors, settings)
    return loss.view(tokens) if reduction == "none" else loss
