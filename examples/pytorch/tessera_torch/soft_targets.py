# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses whose targets are several entries with weights, and log-probabilities of chosen entries, without logits."""
import torch

from ._classifiers import check_classifier, is_stored, operands
from ._library import (check_fake_devices, empty_gradients, ops, refuse_backward, typed_gradients, uses_tf32,
                       wants_gradients)
from .linear_cross_entropy import REDUCTIONS, _per_token, _require, _thresholds
from .ranks import check_options, chosen_over_ranks, soft_targets_over_ranks, tokens_of_all


@torch.library.register_fake("tessera_torch::soft_target_forward")
def _(e, c, entries, entry_weights, bias, weights, c_scale, *settings):
    check_fake_devices("soft_target_cross_entropy", e, rows_of_the_classifier=c, entries=entries,
                       weights_of_entries=entry_weights, biases=bias, weights=weights,
                       **{"scales_of_the_classifier's_rows": c_scale})
    tokens = e.shape[0]
    size = torch.library.get_ctx().new_dynamic_size()
    return (e.new_empty(() if settings[0] else (tokens,), dtype=torch.float32),
            e.new_empty(tokens, dtype=torch.float32), e.new_empty(size, dtype=torch.uint8))


@torch.library.register_fake("tessera_torch::soft_target_backward")
def _(e, c, entries, entry_weights, bias, weights, c_scale, *rest):
    of_e, of_c, of_bias = rest[-3:]
    return empty_gradients(e, (e, of_e), (c, of_c), (bias, of_bias),
                           dtype=torch.float32 if is_stored(e, c, c_scale) else None)


@torch.library.register_fake("tessera_torch::chosen_log_probabilities")
def _(e, c, entries, log_sum_exp, bias, c_scale, softcap, temperature):
    check_fake_devices("chosen_log_probabilities", e, rows_of_the_classifier=c, entries=entries,
                       log_sum_exps=log_sum_exp, biases=bias, **{"scales_of_the_classifier's_rows": c_scale})
    return e.new_empty(entries.shape, dtype=torch.float32)


def _setup_context(ctx, inputs, output):
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[2])
    ctx.save_for_backward(*inputs[:7], output[2])
    ctx.settings = inputs[7:-1]


def _backward(ctx, by_loss, by_log_sum_exp, _):
    *tensors, workspace = ctx.saved_tensors
    wants = (ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[4])
    if by_loss is None and by_log_sum_exp is None:
        return (None,) * len(ctx.needs_input_grad)
    if by_loss is None:  # the operator takes none for ones
        by_loss = workspace.new_zeros(() if ctx.settings[0] else tensors[0].shape[:1], dtype=torch.float32)
    found = ops.soft_target_backward(*tensors, *ctx.settings, workspace, by_loss, by_log_sum_exp, *wants)
    of_e, of_c, of_bias = typed_gradients(found, (tensors[0], tensors[1], tensors[4]), wants)
    return (of_e, of_c, None, None, of_bias) + (None,) * (len(ctx.needs_input_grad) - 5)


torch.library.register_autograd("tessera_torch::soft_target_forward", _backward, setup_context=_setup_context)
refuse_backward("soft_target_backward", "the gradient of soft_target_cross_entropy")
refuse_backward("chosen_log_probabilities", "chosen_log_probabilities")


def _flat_entries(function, e, entries):
    _require(entries.dim() == e.dim() and entries.shape[:-1] == e.shape[:-1], ValueError, function,
             ": the entries are ", tuple(entries.shape), " but the hidden states ", tuple(e.shape),
             ", of which all but the last dimension must be the same")
    _require(entries.dtype in (torch.int64, torch.int32), TypeError, function, ": the entries are of type ",
             entries.dtype, " but must be of type ", torch.int64, " or ", torch.int32)
    return e.reshape(-1, e.shape[-1]), entries.reshape(-1, entries.shape[-1]).to(torch.int64)


def soft_target_cross_entropy(e, c, entries, entry_weights, bias=None, softcap=None, reduction="mean",
                              return_lse=False, filter_eps="auto", *, temperature=1.0, label_smoothing=0.0, z_loss=0.0,
                              weights=None, classifier_scale=None, allow_tf32=None, workspace_bytes=None,
                              vocab_parallel_options=None):
    """The cross-entropy of e @ c.T + bias with targets of several entries for each token, without the logits.

    entries, entry_weights: ... x K, of which a negative entry is none: a teacher's likeliest entries with their
    probabilities, or mixtures of labels. Loss of a token: sum over k of entry_weights[k] * (log-sum-exp - logit of
    entries[k]). Weights need not add up to 1, and have no gradient. "mean" divides by the number of tokens with an
    entry, or the sum of their `weights`.

    All else is as in linear_cross_entropy(), also the types of c; so are gradients of e, c and bias. K ought to be a
    few hundred at most."""
    _require(reduction in REDUCTIONS, ValueError, "soft_target_cross_entropy: the reduction is ", repr(reduction),
             " but must be one of ", ", ".join(REDUCTIONS))
    _require(entry_weights.shape == entries.shape, ValueError, "soft_target_cross_entropy: the entries are ",
             tuple(entries.shape), " but their weights ", tuple(entry_weights.shape))
    _require(not (torch.is_grad_enabled() and entry_weights.requires_grad), NotImplementedError,
             "soft_target_cross_entropy: the weights of entries require a gradient, but there is none of them")
    check_classifier("soft_target_cross_entropy", c, classifier_scale)
    if vocab_parallel_options is not None:
        check_options("soft_target_cross_entropy", vocab_parallel_options, c)
    e = tokens_of_all("soft_target_cross_entropy", vocab_parallel_options, e)
    rows, chosen = _flat_entries("soft_target_cross_entropy", e, entries)
    rows, c, bias = operands(rows, c, bias)
    tensors = (rows, c, chosen, entry_weights.reshape(chosen.shape).to(torch.float32), bias,
               _per_token("soft_target_cross_entropy", weights, entries[..., 0]), classifier_scale)
    settings = (REDUCTIONS[reduction], softcap or 0.0, temperature, label_smoothing, z_loss,
                *_thresholds(filter_eps, True, True, "cce"), workspace_bytes or 0, uses_tf32(allow_tf32, rows))
    if vocab_parallel_options is None:
        loss, lse, _ = ops.soft_target_forward(*tensors, *settings, wants_gradients(rows, c, bias))
    else:
        loss, lse = soft_targets_over_ranks(vocab_parallel_options, tensors, settings)
    if reduction == "none":
        loss = loss.view(entries.shape[:-1])
    return (loss, lse.view(entries.shape[:-1])) if return_lse else loss


def chosen_log_probabilities(e, c, entries, log_sum_exp, bias=None, softcap=None, *, temperature=1.0,
                             classifier_scale=None, vocab_parallel_options=None):
    """Log-probabilities of some entries of each token, float32 in the shape of entries, without the other logits.

    entries: ... x K, int64 or int32; a negative one is none, and has 0. log_sum_exp: ..., the tokens' log-sum-exps of
    logits with the same bias, softcap and temperature, as linear_cross_entropy(return_lse=True) gives them. Forward
    pass only: for gradients take soft_target_cross_entropy(). An entry that is not in the vocabulary has NaN, and
    wait() raises an error that names it.

    classifier_scale and vocab_parallel_options are those of linear_cross_entropy(): over ranks c and bias have this
    rank's entries, and all else is of the whole vocabulary and the same on each rank, as are the results."""
    function = "chosen_log_probabilities"
    check_classifier(function, c, classifier_scale)
    if vocab_parallel_options is not None:
        check_options(function, vocab_parallel_options, c)
    e = tokens_of_all(function, vocab_parallel_options, e, False)
    rows, chosen = _flat_entries(function, e, entries)
    _require(log_sum_exp.shape == e.shape[:-1], ValueError, function, ": the log-sum-exps are ",
             tuple(log_sum_exp.shape), " but the hidden states ", tuple(e.shape))
    rows, c, bias = operands(rows, c, bias)
    tensors = rows, c, chosen, log_sum_exp.reshape(-1), bias, classifier_scale
    settings = softcap or 0.0, temperature
    if vocab_parallel_options is None:
        found = ops.chosen_log_probabilities(*tensors, *settings)
    else:
        found = chosen_over_ranks(vocab_parallel_options, tensors, settings)
    return found.view(entries.shape)
