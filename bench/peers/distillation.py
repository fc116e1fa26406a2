# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Distillation of a linear classifier by other implementations, both passes, for run.py. This library's is measured by
bench/loss/linear_distillation_bench.cu, on data of the same distributions.

Implementations, each with its usual settings:

torch_eager, torch_compile  PyTorch's operations one by one, and compiled, over all logits at once
torch_chunks                the same compiled for 1024 tokens at a time, which the backward pass computes again
liger                       Liger Kernel's fused linear Jensen-Shannon divergence, whose beta of 0 is the forward one

Hidden states are N(0, 1); the student's classifier is N(0, 1) times 2.4 over the root of the channels, the teacher's
times 1. `extra_MiB` is the most memory that PyTorch's allocator held beyond inputs and gradients. Divergences are
compared with one in fp32.
"""
import importlib
import math

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from losses import SHAPES, SMALL_SHAPES
from measuring import DEVICE, SEED, require_close

KINDS = ["forward_kl", "jensen_shannon"]
WANTED_SECONDS, SAMPLES = 0.2, (4, 15)
LARGEST_ERROR = 1e-2  # relative; logits are rounded to bf16 in all of them


class Problem:
    """A student, its teacher with as many channels, and their divergences."""

    def __init__(self, shape):
        tokens, vocabulary, channels = (int(extent) for extent in shape.split("x"))
        torch.manual_seed(SEED)
        self.title = f"spread/{shape}"
        self.hidden = torch.randn(tokens, channels, device=DEVICE, dtype=torch.bfloat16)
        self.teacher_hidden = torch.randn(tokens, channels, device=DEVICE, dtype=torch.bfloat16)
        self.classifier, self.teacher_classifier = (self.drawn(vocabulary, channels, d) for d in [2.4, 1.0])
        self.exact = {kind: self.divergence(kind) for kind in KINDS}
        self.hidden.requires_grad_()
        self.classifier.requires_grad_()

    @staticmethod
    def drawn(vocabulary, channels, deviation):
        matrix = torch.empty(vocabulary, channels, device=DEVICE, dtype=torch.bfloat16)
        for part in matrix.split(16384):
            part.copy_(torch.randn(part.shape, device=DEVICE) * (deviation / math.sqrt(channels)))
        return matrix

    def divergence(self, kind):
        student, teacher = self.classifier.float(), self.teacher_classifier.float()
        sums = [float(divergence(kind, own.float() @ student.T, other.float() @ teacher.T)) * len(own)
                for own, other in zip(self.hidden.split(512), self.teacher_hidden.split(512))]
        return sum(sums) / len(self.hidden)

    def operands(self):
        return self.hidden, self.classifier, self.teacher_hidden, self.teacher_classifier

    def clear(self):
        self.hidden.grad = self.classifier.grad = None

    def gradient_bytes(self):
        return sum(t.grad.numel() * t.grad.element_size() for t in (self.hidden, self.classifier) if t.grad is not None)


def divergence(kind, student, teacher):
    """The mean over tokens."""
    own, other = F.log_softmax(student.float(), -1), F.log_softmax(teacher.float(), -1)
    if kind == "forward_kl":
        return F.kl_div(own, other, log_target=True, reduction="batchmean")
    mixed = torch.logaddexp(own, other) - math.log(2)
    return (F.kl_div(mixed, other, log_target=True, reduction="batchmean")
            + F.kl_div(mixed, own, log_target=True, reduction="batchmean")) / 2


# Functions of a kind that return functions of both hidden states and classifiers.


def torch_eager(kind):
    return lambda hidden, classifier, other, of_other: divergence(kind, hidden @ classifier.T, other @ of_other.T)


def torch_compile(kind):
    torch._dynamo.reset()
    return torch.compile(torch_eager(kind), fullgraph=True, dynamic=False)


def torch_chunks(kind):
    of_chunk = torch_compile(kind)

    def chunked(hidden, classifier, other, of_other):
        parts = [checkpoint(of_chunk, own, classifier, others, of_other, use_reentrant=False) * len(own)
                 for own, others in zip(hidden.split(1024), other.split(1024))]
        return sum(parts) / len(hidden)

    return chunked


def liger(kind):
    module = importlib.import_module("liger_kernel.transformers.fused_linear_jsd").LigerFusedLinearJSD(
        jsd_beta=0.0 if kind == "forward_kl" else 0.5)
    return lambda *operands: module(*operands, shift_labels=None)


IMPLEMENTATIONS = {"torch_eager": torch_eager, "torch_compile": torch_compile, "torch_chunks": torch_chunks,
                   "liger": liger}


def measure_both(run, name, kind, problem):
    loss = IMPLEMENTATIONS[name](kind)

    def counters_of(result):
        return {"loss": require_close(name, "divergence", result, problem.exact[kind], LARGEST_ERROR)}

    return run.time_passes(f"{name}/distillation/{kind}/bf16/{problem.title}", lambda: loss(*problem.operands()),
                           problem, counters_of, WANTED_SECONDS, SAMPLES)


def measure_all(run):
    names = [name for name in IMPLEMENTATIONS if run.wants(name)]
    for shape in (SMALL_SHAPES if run.is_small else SHAPES) if names else []:
        problem = Problem(shape)
        for kind in KINDS:
            for name in names:
                run.attempt(f"{name}/distillation/{kind}/bf16/{problem.title}",
                            lambda: measure_both(run, name, kind, problem))
        del problem
