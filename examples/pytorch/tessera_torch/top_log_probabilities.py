# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The likeliest entries of a linear classifier with their log-probabilities, without its logits in memory."""
from typing import NamedTuple

import torch

from ._classifiers import check_classifier, operands
from ._library import check_fake_devices, ops, refuse_backward, uses_tf32
from .ranks import check_options, tokens_of_all, top_over_ranks


class TopLogProbabilities(NamedTuple):
    """What top_log_probabilities() gives for each token."""
    log_probabilities: torch.Tensor  # ... x k, float32, in nats, from the largest down
    entries: torch.Tensor            # ... x k, int64; of equally likely ones the first comes first
    log_sum_exp: torch.Tensor        # ..., of all logits, float32


@torch.library.register_fake("tessera_torch::top_log_probabilities")
def _(e, c, bias, c_scale, k, softcap, temperature, is_tf32):
    check_fake_devices("top_log_probabilities", e, rows_of_the_classifier=c, biases=bias,
                       **{"scales_of_the_classifier's_rows": c_scale})
    return (e.new_empty((e.shape[0], k), dtype=torch.float32), e.new_empty((e.shape[0], k), dtype=torch.int32),
            e.new_empty(e.shape[0], dtype=torch.float32))


refuse_backward("top_log_probabilities", "top_log_probabilities")


def top_log_probabilities(e, c, k, bias=None, softcap=None, *, temperature=1.0, classifier_scale=None, allow_tf32=None,
                          vocab_parallel_options=None):
    """torch.topk(torch.log_softmax(e @ c.T + bias, -1), k) without the logits: each token's k likeliest entries.

    e: ... x channels; c: vocabulary x channels; bias: vocabulary or None; types and options are those of
    linear_cross_entropy(). k: from 1 to 48, and at most the vocabulary. Over ranks c and bias have this rank's entries,
    and each rank gets the k likeliest of the whole vocabulary.

    Gives TopLogProbabilities, whose log-sum-exps chosen_log_probabilities() takes, and whose entries
    soft_target_cross_entropy() takes, with exp() of their log-probabilities as weights, to learn from a teacher.

    Forward pass only: for gradients of such entries take soft_target_cross_entropy(). A NaN among a token's logits is
    no entry, and makes its log-probabilities NaN; where fewer than k are left, the last entries are -1. On GPUs before
    sm_90 more than 12 entries take a slow program."""
    check_classifier("top_log_probabilities", c, classifier_scale)
    if vocab_parallel_options is not None:
        check_options("top_log_probabilities", vocab_parallel_options, c)
    e = tokens_of_all("top_log_probabilities", vocab_parallel_options, e, False)
    tensors = *operands(e.reshape(-1, e.shape[-1]), c, bias), classifier_scale
    settings = k, softcap or 0.0, temperature, uses_tf32(allow_tf32, tensors[0])
    if vocab_parallel_options is None:
        found = ops.top_log_probabilities(*tensors, *settings)
    else:
        found = top_over_ranks(vocab_parallel_options, tensors, settings)
    log_probabilities, entries, log_sum_exp = found
    shape = *e.shape[:-1], k
    return TopLogProbabilities(log_probabilities.view(shape), entries.to(torch.int64).view(shape),
                               log_sum_exp.view(e.shape[:-1]))
