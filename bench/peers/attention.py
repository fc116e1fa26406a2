#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures other implementations of the attention of attention_bench.cu, for report.py to show beside it.

    attention.py --package sageattention-1*.whl --out build/attention_peers.json
    attention.py --out build/attention_peers.json              # with sageattention installed, or without it

Needs PyTorch with CUDA; SageAttention also Triton. Implementations: PyTorch's scaled_dot_product_attention with cuDNN
(cudnn) and with FlashAttention-2 (flash2), both in bf16, and version 1 of SageAttention (sage1), which quantizes
queries and keys to INT8 and multiplies values in fp16. Each has its usual settings; calls are timed end to end, from
bf16 to bf16.

Data have the distributions of support/attention_problem.cuh, though not its bits. `TFLOPs` counts 4 * batch * heads *
queries * keys * channels operations, half of them if causal. Errors are those of some rows against attention in double.
"""
import argparse
import importlib
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measuring import Flush, context, row, seconds_of, use_packages, version_of

REPETITIONS = 5
LEAST_SAMPLES, MOST_SAMPLES, WANTED_SECONDS = 5, 30, 0.15
LARGEST_ERROR = 0.1  # relative L1: something else was computed
CHECKED_ROWS = 64

# Channels: (name, batch, heads, tokens), as much work in each.
SHAPES = {128: [("4k", 8, 16, 4096), ("16k", 2, 16, 16384), ("32k", 1, 8, 32768)],
          64: [("4k", 8, 32, 4096), ("16k", 2, 32, 16384), ("32k", 1, 16, 32768)]}


class Problem:
    """Random queries, keys and values with channels that lie away from zero, batch x heads x tokens x channels."""

    def __init__(self, channels, name, batch, heads, tokens):
        self.title = f"d{channels}/{name}"
        self.extents = batch, heads, tokens, channels
        torch.manual_seed(1)

        def heads_of(share, deviation):
            offsets = torch.randn(batch, heads, 1, channels, device="cuda") * deviation
            offsets *= torch.rand(offsets.shape, device="cuda") < share
            made = torch.randn(self.extents, device="cuda")
            return made.add_(offsets).to(torch.bfloat16)

        self.queries, self.keys, self.values = heads_of(0.06, 2.0), heads_of(0.06, 4.0), heads_of(1.0, 0.5)

    def operations(self, is_causal):
        batch, heads, tokens, channels = self.extents
        return 4 * batch * heads * tokens * tokens * channels / (2 if is_causal else 1)

    def errors(self, found, is_causal):
        """Relative L1 and cosine of some rows of the first and the last head."""
        batch, heads, tokens, channels = self.extents
        rows = torch.linspace(0, tokens - 1, CHECKED_ROWS, device="cuda").long()
        apart = length = product = squares = own = 0.0
        for at in [(0, 0), (batch - 1, heads - 1)]:
            q, k, v = (x[at].double() for x in (self.queries, self.keys, self.values))
            scores = q[rows] @ k.T / math.sqrt(channels)
            if is_causal:
                scores.masked_fill_(torch.arange(tokens, device="cuda") > rows[:, None], -math.inf)
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


def sage1():
    package = importlib.import_module("sageattention")
    return lambda problem, is_causal: package.sageattn(problem.queries, problem.keys, problem.values,
                                                       is_causal=is_causal)


IMPLEMENTATIONS = {"cudnn": lambda: with_backend(SDPBackend.CUDNN_ATTENTION),
                   "flash2": lambda: with_backend(SDPBackend.FLASH_ATTENTION), "sage1": sage1}


def measure(name, problem, is_causal, flush):
    attend = IMPLEMENTATIONS[name]()
    title = f"{name}/forward/bf16/{problem.title}{'/causal' if is_causal else ''}"
    counters = problem.errors(attend(problem, is_causal), is_causal)
    if not counters["relative_l1"] <= LARGEST_ERROR:
        raise RuntimeError(f"{title}: the relative L1 error is {counters['relative_l1']}")
    once = seconds_of(lambda: attend(problem, is_causal), flush, 1)
    samples = min(max(int(WANTED_SECONDS / once), LEAST_SAMPLES), MOST_SAMPLES)
    times = [seconds_of(lambda: attend(problem, is_causal), flush, samples) for _ in range(REPETITIONS)]
    rates = [problem.operations(is_causal) / seconds * 1e-12 for seconds in times]
    print(f"{title}: {statistics.median(rates):.0f} TFLOP/s, {counters}", flush=True)
    return [row(title, seconds, i, REPETITIONS,
                {"TFLOPs": rates[i], "ms": 1e3 * seconds, "rounds": samples, **counters})
            for i, seconds in enumerate(times)]


def measure_all(options):
    flush = Flush()
    rows = []
    for channels in options.channels:
        for shape in SHAPES[channels]:
            problem = Problem(channels, *shape)
            for name in options.implementations:
                for is_causal in (False, True):
                    try:
                        rows += measure(name, problem, is_causal, flush)
                    except Exception as trouble:  # whatever another package throws: its rows are left out, others stay
                        print(f"{name}, {problem.title}: {trouble!r}", file=sys.stderr, flush=True)
            del problem
            torch.cuda.empty_cache()
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--package", type=Path, nargs="*", default=[], help="wheels or source folders to import from")
    parser.add_argument("--channels", type=int, nargs="*", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--implementations", nargs="*", choices=IMPLEMENTATIONS, default=list(IMPLEMENTATIONS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        use_packages(options.package, folder)
        rows = measure_all(options)
        described = context(executable="attention.py", sageattention=version_of("sageattention"),
                            cudnn=torch.backends.cudnn.version())
    if not rows:
        sys.exit("attention.py: nothing could be measured")
    options.out.write_text(json.dumps({"context": described, "benchmarks": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
