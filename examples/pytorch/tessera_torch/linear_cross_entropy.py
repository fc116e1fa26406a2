# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cut Cross-Entropy: the loss of a classifier without its logits."""
import torch

from ._library import ops


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, classifier, labels, ignore_index, exact):
        loss, workspace = ops.loss_forward(hidden, classifier, labels, ignore_index, exact, True)
        ctx.save_for_backward(hidden, classifier, labels, workspace)
        ctx.options = ignore_index, exact
        return loss

    @staticmethod
    def backward(ctx, upstream):
        *inputs, workspace = ctx.saved_tensors
        if torch.is_grad_enabled():
            raise NotImplementedError("the gradient of linear_cross_entropy: there is no backward pass")
        wants = ctx.needs_input_grad[:2]
        found = ops.loss_backward(*inputs, *ctx.options, workspace, upstream.reshape(1).float().contiguous(), *wants)
        return *[gradient if wanted else None for gradient, wanted in zip(found, wants)], None, None, None


def linear_cross_entropy(hidden, classifier, labels, ignore_index=-100, exact=False):
    """torch.nn.functional.cross_entropy(hidden @ classifier.T, labels) without the logits: Cut Cross-Entropy.

    hidden: ... x channels, classifier: vocabulary x channels, both bfloat16, of any strides; labels: ..., int64. Gives
    the mean loss of the tokens whose label is not ignore_index, a float32; 0 if there are none. exact=False leaves out
    of gradients what the paper's filter leaves out. Where no gradients are required, the workspace is smaller. A frozen
    input gets no gradient, and none is computed for it. Gradients cannot be differentiated again."""
    if labels.shape != hidden.shape[:-1] or hidden.dim() == 0:
        raise ValueError(f"linear_cross_entropy: the labels are {tuple(labels.shape)} but the hidden states "
                         f"{tuple(hidden.shape)}, of which all but the last dimension must be the same")
    hidden, labels = hidden.reshape(labels.numel(), hidden.shape[-1]), labels.reshape(-1)
    if not (torch.is_grad_enabled() and (hidden.requires_grad or classifier.requires_grad)):
        return ops.loss_forward(hidden, classifier, labels, ignore_index, exact, False)[0]
    return _LinearCrossEntropy.apply(hidden, classifier, labels, ignore_index, exact)
