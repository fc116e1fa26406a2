# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cut Cross-Entropy: the loss of a language model's classifier, and its gradients, without its logits in memory.

The arguments of linear_cross_entropy() up to vocab_parallel_options are those of Apple's cut_cross_entropy, in their
order. Those after them are further options of this library.
"""
from typing import NamedTuple

import torch

from ._classifiers import check_classifier, operands
from ._library import uses_tf32
from ._loss_operators import LossResults, call_loss
from .ranks import check_options, loss_over_ranks, tokens_of_all

REDUCTIONS = {"none": 0, "sum": 1, "mean": 2}
IGNORE_INDEX = -100


class LossImplementation(NamedTuple):
    """What a name of `impl` says: whether gradients are filtered."""
    filters_e: bool
    filters_c: bool


# All of them sum in fp32, which the names of Apple's Kahan summation ask for.
IMPLEMENTATIONS = {
    "cce": None,  # as the other arguments say
    "cce_exact": LossImplementation(False, False),
    "cce_kahan_full": LossImplementation(False, False),
    "cce_kahan_full_c_full_e": LossImplementation(False, False),
    "cce_kahan_full_c": LossImplementation(True, False),
    "cce_kahan_full_e": LossImplementation(False, True)}


class LinearStatistics(NamedTuple):
    """What linear_statistics() gives for each token, in the shape of the targets. Zeros, and prediction -1, for tokens
    without a label."""
    log_probability: torch.Tensor  # of the label, float32, in nats; has a gradient
    log_sum_exp: torch.Tensor      # of the logits, float32; has a gradient
    entropy: torch.Tensor          # of the softmax, float32, in nats; has a gradient
    prediction: torch.Tensor       # the likeliest entry, int32, the first of equal ones


def _require(holds, error, *parts):
    if not holds:
        raise error("".join(str(part) for part in parts))


def _thresholds(filter_eps, filter_e_grad, filter_c_grad, impl):
    name = impl if isinstance(impl, str) else getattr(impl, "name", str(impl)).lower()
    _require(name in IMPLEMENTATIONS, NotImplementedError, "linear_cross_entropy: impl is ", repr(name),
             " but must be one of ", ", ".join(IMPLEMENTATIONS))
    chosen = IMPLEMENTATIONS[name]
    if chosen is not None:
        filter_eps, filter_e_grad, filter_c_grad = "auto", chosen.filters_e, chosen.filters_c
    if filter_eps is None:
        return 0.0, 0.0
    if filter_eps == "auto":
        threshold = -1.0  # that of the type, 1/32 of its epsilon
    else:
        _require(not isinstance(filter_eps, str) and filter_eps >= 0, ValueError,
                 "linear_cross_entropy: filter_eps is ", repr(filter_eps),
                 ' but must be "auto", None or a number that is not negative')
        threshold = float(filter_eps)
    return (threshold if filter_e_grad else 0.0), (threshold if filter_c_grad else 0.0)


def _flat(function, e, targets, shift):
    """Hidden states in rows, targets in a list, and the length of their sequences."""
    _require(e.dim() >= 1 and targets.shape == e.shape[:-1], ValueError, function, ": the labels are ",
             tuple(targets.shape), " but the hidden states ", tuple(e.shape),
             ", of which all but the last dimension must be the same")
    _require(targets.dtype in (torch.int64, torch.int32), TypeError, function, ": the labels are of type ",
             targets.dtype, " but must be of type ", torch.int64, " or ", torch.int32)
    sequence = targets.shape[-1] if targets.dim() > 0 else 1
    _require(shift >= 0 and (shift == 0 or shift < sequence), ValueError, function, ": the shift is ", shift,
             " but must be from 0 to ", sequence, " - 1")
    return e.reshape(-1, e.shape[-1]), targets.reshape(-1).to(torch.int64), (sequence if shift else 0)


def _per_token(function, values, targets):
    if values is None:
        return None
    _require(values.shape == targets.shape, ValueError, function, ": the weights are ", tuple(values.shape),
             " but the labels ", tuple(targets.shape))
    _require_no_gradient(function, values)
    return values.reshape(-1).to(torch.float32)


def _require_no_gradient(function, weights):
    _require(not (torch.is_grad_enabled() and weights.requires_grad), NotImplementedError, function,
             ": the weights require a gradient, but there is none of them")


def _check_sum(function, name, gradient, tensor):
    """Checks a tensor that the gradient of another one is to be added to."""
    if gradient is None:
        return
    _require(tensor is not None, ValueError, function, f": {name}_gradient is ", tuple(gradient.shape),
             f" but the {name} is None")
    _require(gradient.dtype == torch.float32 and gradient.shape == tensor.shape and gradient.device == tensor.device,
             ValueError, function, f": {name}_gradient is {gradient.dtype} of shape {tuple(gradient.shape)} on "
             f"{gradient.device} but must be {torch.float32} of {tuple(tensor.shape)} on {tensor.device}")
    _require(not torch.is_grad_enabled() or (tensor.requires_grad and not gradient.requires_grad), ValueError, function,
             f": the {name} requires ", "a" if tensor.requires_grad else "no", f" gradient, and {name}_gradient ",
             "one, too" if gradient.requires_grad else "none", f", but the {name} alone must require one")


def _apply(function, e, c, targets, bias, *, reduction, ignore_index, softcap, shift, thresholds, temperature=1.0,
           label_smoothing=0.0, z_loss=0.0, weights=None, class_weights=None, classifier_scale=None,
           classifier_gradient=None, bias_gradient=None, allow_tf32=None, workspace_bytes=None, has_statistics=False,
           ranks=None):
    """What the operator gives, and the function that puts a list of tokens into the shape of the targets."""
    _require(reduction in REDUCTIONS, ValueError, function, ": the reduction is ", repr(reduction),
             " but must be one of ", ", ".join(REDUCTIONS))
    shift = int(shift)
    check_classifier(function, c, classifier_scale)
    if ranks is not None:
        check_options(function, ranks, c)
        e = tokens_of_all(function, ranks, e)
    rows, labels, sequence = _flat(function, e, targets, shift)
    _check_sum(function, "classifier", classifier_gradient, c)
    _check_sum(function, "bias", bias_gradient, bias)
    rows, c, bias = operands(rows, c, bias)
    if class_weights is not None:
        _require_no_gradient(function, class_weights)
    tensors = (rows, c, labels, bias, _per_token(function, weights, targets),
               None if class_weights is None else class_weights.to(torch.float32), classifier_scale)
    sums = classifier_gradient, bias_gradient
    settings = (REDUCTIONS[reduction], ignore_index, shift, sequence, softcap or 0.0, temperature, label_smoothing,
                z_loss, *thresholds, workspace_bytes or 0, has_statistics or label_smoothing > 0,
                uses_tf32(allow_tf32, rows))
    if ranks is None:
        results = call_loss(*tensors, *sums, *settings)
    else:
        results = LossResults(*loss_over_ranks(ranks, tensors, sums, settings), workspace=None)

    def shaped(tokens):
        tokens = tokens.view(targets.shape)
        return tokens[..., :-shift] if shift else tokens

    return results, shaped


def linear_cross_entropy(e, c, targets, bias=None, ignore_index=IGNORE_INDEX, softcap=None, reduction="mean", shift=0,
                         return_lse=False, filter_eps="auto", accum_e_fp32=False, accum_c_fp32=False,
                         filter_e_grad=True, filter_c_grad=True, impl="cce", vocab_parallel_options=None, *,
                         temperature=1.0, label_smoothing=0.0, z_loss=0.0, weights=None, class_weights=None,
                         classifier_scale=None, classifier_gradient=None, bias_gradient=None, allow_tf32=None,
                         workspace_bytes=None):
    """torch.nn.functional.cross_entropy(e @ c.T + bias, targets) without the logits: Cut Cross-Entropy.

    e: ... x channels; c: vocabulary x channels; bias: vocabulary or None; bfloat16, float16 or float32, of any strides
    (within torch.autocast: cast to its type). targets: ..., int64 or int32.

    c may have another type than e, as float32 rows that an optimizer keeps beside bfloat16 hidden states. Its rows are
    rounded to the type of e, as autocast does, but in bands, so that there is no such copy of all of them. A bias of
    the type of c is rounded, too. All gradients are then computed in float32, and each has the type of its input.
    c may also have codes of torch.float8_e4m3fn, with classifier_scale: a float32 for each row, which its codes are
    multiplied by. Codes and scales have no gradient.

    Gives the loss in float32: with reduction "mean" that of the tokens whose label is not ignore_index, 0 if there are
    none; "sum" their sum; "none" a loss for each token, zeros for ignored ones. shift: token t of a sequence, the last
    dimension of targets, has label t + shift (True is 1); results with "none" are shorter by that. return_lse: gives
    the loss and each token's log-sum-exp of logits. Both have gradients.

    softcap: logits become softcap * tanh(logit / softcap). temperature: logits are divided by it. label_smoothing: the
    probability that is spread over the vocabulary. z_loss: factor of the squared log-sum-exp. weights: a factor for
    each token, in the shape of targets; class_weights: one for each entry of the vocabulary. A mean is divided by their
    sum. They have no gradient.

    filter_eps: gradients leave out blocks of 128 tokens x 128 entries in which softmaxes and labels differ by less;
    "auto" is 1/32 of the type's epsilon, None leaves nothing out. filter_e_grad, filter_c_grad: whether it is used for
    the gradient of e, of c. impl: "cce" (as the other arguments say), "cce_exact" and further names of Apple's, which
    set the filter. Sums are always in fp32, so that accum_e_fp32 and accum_c_fp32 change nothing.

    classifier_gradient, bias_gradient: float32 tensors to which backward() adds the gradients of c and bias, in place
    of giving them: sums over micro batches, such as Megatron's weight.main_grad. Those of all other inputs are computed
    in float32 then, and rounded, which takes memory for them twice.

    allow_tf32: whether float32 is multiplied as tf32; None: on CUDA devices as torch.get_float32_matmul_precision()
    says. workspace_bytes: the most memory that is kept from the forward pass to the backward pass, by default 160 MiB;
    without gradients it takes about 1 MiB.

    An input that requires no gradient gets none, and none is computed for it. Gradients cannot be differentiated again.
    The call does not wait: a label that is no entry makes the loss NaN, and wait() raises an error that names it. Wrong
    arguments are errors at once.

    vocab_parallel_options: VocabParallelOptions, where c and bias have this rank's entries of a vocabulary that is
    spread over a process group. All else is of all tokens and of the whole vocabulary, and the same on each rank, as
    is the loss. Compiled code breaks its graph there."""
    results, shaped = _apply(
        "linear_cross_entropy", e, c, targets, bias, reduction=reduction, ignore_index=ignore_index, softcap=softcap,
        shift=shift, thresholds=_thresholds(filter_eps, filter_e_grad, filter_c_grad, impl), temperature=temperature,
        label_smoothing=label_smoothing, z_loss=z_loss, weights=weights, class_weights=class_weights,
        classifier_scale=classifier_scale, classifier_gradient=classifier_gradient, bias_gradient=bias_gradient,
        allow_tf32=allow_tf32, workspace_bytes=workspace_bytes, ranks=vocab_parallel_options)
    loss = shaped(results.loss) if reduction == "none" else results.loss
    return (loss, shaped(results.log_sum_exp)) if return_lse else loss


class LinearCrossEntropy(torch.nn.Module):
    """linear_cross_entropy() with its options, as a module without parameters: forward(e, c, targets, bias=None)."""

    def __init__(self, ignore_index=IGNORE_INDEX, softcap=None, reduction="mean", shift=0, filter_eps="auto",
                 accum_e_fp32=False, accum_c_fp32=False, filter_e_grad=True, filter_c_grad=True, impl="cce",
                 return_lse=False, **options):
        super().__init__()
        self.options = dict(ignore_index=ignore_index, softcap=softcap, reduction=reduction, shift=shift,
                            filter_eps=filter_eps, accum_e_fp32=accum_e_fp32, accum_c_fp32=accum_c_fp32,
                            filter_e_grad=filter_e_grad, filter_c_grad=filter_c_grad, impl=impl,
                            return_lse=return_lse, **options)

    def forward(self, e, c, targets, bias=None):
        return linear_cross_entropy(e, c, targets, bias, **self.options)

    def extra_repr(self):
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def linear_statistics(e, c, targets, bias=None, ignore_index=IGNORE_INDEX, softcap=None, shift=0, *, filter_eps="auto",
                      temperature=1.0, classifier_scale=None, classifier_gradient=None, bias_gradient=None,
                      allow_tf32=None, workspace_bytes=None, vocab_parallel_options=None):
    """Log-probabilities of labels, log-sum-exps, entropies and predictions of a linear classifier, without its logits.

    Arguments are those of linear_cross_entropy(). Gives LinearStatistics: lists in the shape of targets, shorter by the
    shift. Log-probabilities, log-sum-exps and entropies have gradients, as policy gradients with a bonus for entropy
    need them. The filter's bound holds for log-probabilities alone, so that it is best without where entropies have
    gradients: filter_eps=None."""
    results, shaped = _apply(
        "linear_statistics", e, c, targets, bias, reduction="none", ignore_index=ignore_index, softcap=softcap,
        shift=shift, thresholds=_thresholds(filter_eps, True, True, "cce"), temperature=temperature,
        classifier_scale=classifier_scale, classifier_gradient=classifier_gradient, bias_gradient=bias_gradient,
        allow_tf32=allow_tf32, workspace_bytes=workspace_bytes, has_statistics=True, ranks=vocab_parallel_options)
    return LinearStatistics(-shaped(results.loss), shaped(results.log_sum_exp), shaped(results.entropy),
                            shaped(results.prediction))


def linear_log_probabilities(e, c, targets, bias=None, ignore_index=IGNORE_INDEX, softcap=None, shift=0, *,
                             filter_eps="auto", temperature=1.0, classifier_scale=None, classifier_gradient=None,
                             bias_gradient=None, allow_tf32=None, workspace_bytes=None, vocab_parallel_options=None):
    """The log-probability of each token's label in nats, float32 in the shape of targets, zeros for ignored tokens.

    Arguments are those of linear_cross_entropy(); gradients, too."""
    results, shaped = _apply(
        "linear_log_probabilities", e, c, targets, bias, reduction="none", ignore_index=ignore_index, softcap=softcap,
        shift=shift, thresholds=_thresholds(filter_eps, True, True, "cce"), temperature=temperature,
        classifier_scale=classifier_scale, classifier_gradient=classifier_gradient, bias_gradient=bias_gradient,
        allow_tf32=allow_tf32, workspace_bytes=workspace_bytes, ranks=vocab_parallel_options)
    return -shaped(results.loss)
