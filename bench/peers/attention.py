# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SageAttention2 of this library beside other implementations of attention, for run.py.

Implementations: tessera, PyTorch's scaled_dot_product_attention with cuDNN (cudnn) and with FlashAttention-2 (flash2),
both in bf16, and version 1 of SageAttention (sage1), which quantizes queries and keys to INT8 and multiplies values in
fp16. Each has its usual settings; calls are timed end to end, from bf16 to bf16.

Data have the distributions of support/attention_problem.cuh, though not its bits. `TFLOPs` counts 4 * batch * heads *
queries * keys * channels operations, half of them if causal. Errors are those of some rows against attention in double;
`extra_MiB` is the most memory beyond inputs and the result.
"""
import importlib
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measuring import DEVICE, SEED, peak_of, tessera

LARGEST_ERROR = 0.1  # relative L1: something else was computed
CHECKED_ROWS = 64

# Channels: (name, batch, heads, tokens), as much work in each.
SHAPES = {128: [("4k", 8, 16, 4096), ("16k", 2, 16, 16384), ("32k", 1, 8, 32768)],
          64: [("4k", 8, 32, 4096), ("16k", 2, 32, 16384), ("32k", 1, 16, 32768)]}
SMALL_SHAPES = {128: [("small", 2, 2, 300)], 64: [("small", 1, 3, 200)]}


class Problem:
    """Random queries, keys and values with channels that lie away from zero, batch x heads x tokens x channels."""

    def __init__(self, channels, name, batch, heads, tokens):
        self.title = f"d{channels}/{name}"
        self.extents = batch, heads, tokens, channels
        torch.manual_seed(SEED)

        def heads_of(share, deviation):
            offsets = torch.randn(batch, heads, 1, channels, device=DEVICE) * deviation
            offsets *= torch.rand(offsets.shape, device=DEVICE) < share
            made = torch.randn(self.extents, device=DEVICE)
            return made.add_(offsets).to(torch.bfloat16)

        self.queries, self.keys, self.values = heads_of(0.06, 2.0), heads_of(0.06, 4.0), heads_of(1.0, 0.5)

    def operations(self, is_causal):
        batch, heads, tokens, channels = self.extents
        return 4 * batch * heads * tokens * tokens * channels / (2 if is_causal else 1)

    def errors(self, found, is_causal):
        """Relative L1 and cosine of some rows of the first and the last head."""
        batch, heads, tokens, channels = self.extents
        rows = torch.linspace(0, tokens - 1, CHECKED_ROWS, device=DEVICE).long()
        apart = length = product = squares = own = 0.0
        for at in [(0, 0), (batch - 1, heads - 1)]:
            q, k, v = (x[at].double() for x in (self.queries, self.keys, self.values))
            scores = q[rows] @ k.T / math.sqrt(channels)
            if is_causal:
                scores.masked_fill_(torch.arange(tokens, device=DEVICE) > rows[:, None], -math.inf)
            expected, result = torch.softmax(scores, 1) @ v, found[at][rows].double()
            apart += float((result - expected).abs().sum())
            length += float(expected.abs().sum())
            product += float((result * expected).sum())
            squares += float((expected * expected).sum())
            own += float((result * result).sum())
        return {"relative_l1": apart / length, "cosine": product / math.sqrt(squares * own)}


def with_backend(backend):
    def attend(problem, is_causal):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(problem.queries, problem.keys, problem.values, is_causal=is_causal)
    return attend


def ours():
    module = tessera()
    return lambda problem, is_causal: module.attention(problem.queries, problem.keys, problem.values, is_causal)


def sage1():
    package = importlib.import_module("sageattention")
    return lambda problem, is_causal: package.sageattn(problem.queries, problem.keys, problem.values,
                                                       is_causal=is_causal)


IMPLEMENTATIONS = {"tessera": ours, "cudnn": lambda: with_backend(SDPBackend.CUDNN_ATTENTION),
                   "flash2": lambda: with_backend(SDPBackend.FLASH_ATTENTION), "sage1": sage1}


def measure(run, name, problem, is_causal):
    attend = IMPLEMENTATIONS[name]()
    title = f"{name}/forward/bf16/{problem.title}{'/causal' if is_causal else ''}"
    counters = problem.errors(attend(problem, is_causal), is_causal)
    if not counters["relative_l1"] <= LARGEST_ERROR:
        raise RuntimeError(f"{title}: the relative L1 error is {counters['relative_l1']}")
    counters.update(peak_of(lambda: attend(problem, is_causal), lambda result: result.nbytes))
    return run.time(title, lambda: attend(problem, is_causal), counters,
                    ("TFLOPs", 1e-12 * problem.operations(is_causal)))


def measure_all(run):
    for channels, shapes in (SMALL_SHAPES if run.is_small else SHAPES).items():
        for shape in shapes:
            problem = Problem(channels, *shape)
            for is_causal in (False, True):
                for name in IMPLEMENTATIONS:
                    run.attempt(f"{name}, {problem.title}{', causal' if is_causal else ''}",
                                lambda: measure(run, name, problem, is_causal))
            del problem
