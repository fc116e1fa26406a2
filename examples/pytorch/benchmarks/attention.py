#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures tessera_torch.attention by each of its methods beside PyTorch's scaled_dot_product_attention, for
bench/report.py: TFLOP/s and errors on a GPU, errors alone on a CPU.

    attention.py --out build/python_attention.json               # on a GPU: some minutes
    attention.py --cpu --out build/python_attention_errors.json  # on a CPU: a minute
    bench/report.py --adopt build/python_attention.json          # docs/python/attention.md follows

Queries, keys and values are in bf16 (fp16 for the method of that name), as are results. Data are those of
bench/peers/attention_problem.py. Errors are relative L1 against attention in double to the inputs: of 64 rows of two
heads on a GPU, of all rows on a CPU. Rates count 4 * batch * heads * queries * keys * channels operations, half of them
if causal; each call is from a cold L2 cache, and a row has the median. The errors of a CPU are those of 512 tokens of 9
heads of 64 channels, causal: the real ones are a layer of SmolLM2 in tests/data.
"""
import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
sys.path[:0] = [str(ROOT / "bench" / "peers"), str(ROOT / "examples" / "pytorch")]

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the JSON to write")
parser.add_argument("--cpu", action="store_true", help="errors on the CPU, also where there is a GPU")
parser.add_argument("--small", action="store_true", help="short sequences, to try this program")
parser.add_argument("--seconds", type=float, default=500, help="after which nothing more is begun")
options = parser.parse_args()

import attention_problem
import measuring

if options.cpu:
    measuring.DEVICE = attention_problem.DEVICE = "cpu"
ON_CUDA = measuring.DEVICE == "cuda"

from attention_problem import DATA, Problem

import tessera_torch

PREFIX = "python_attention"
METHODS = ["sage2", "sage2_smoothed", "int4", "fp8", "bf16", "fp16"]
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION} if ON_CUDA else {"flash": SDPBackend.FLASH_ATTENTION}
SHAPES = {128: [("4k", 8, 16, 4096), ("16k", 2, 16, 16384)], 64: [("4k", 8, 32, 4096), ("16k", 2, 32, 16384)]}
SMALL_SHAPES = {128: [("small", 2, 2, 300)], 64: [("small", 1, 3, 200)]}
LARGEST_ERROR = 0.5  # relative L1: something else was computed


def by_method(method, problem, is_causal):
    dtype = torch.float16 if method == "fp16" else torch.bfloat16
    tensors = [tensor.to(dtype) for tensor in (problem.queries, problem.keys, problem.values)]
    return lambda: tessera_torch.attention(*tensors, is_causal, method=method)


def by_torch(backend, problem, is_causal):
    def attend():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(problem.queries, problem.keys, problem.values, is_causal=is_causal)
    return attend


def errors_of(problem, attend, is_causal):
    if ON_CUDA:
        found = problem.errors(attend(), is_causal)
    else:
        in_double = [tensor.double() for tensor in (problem.queries, problem.keys, problem.values)]
        expected = F.scaled_dot_product_attention(*in_double, is_causal=is_causal)
        found = {"relative_l1": float((attend().double() - expected).abs().sum() / expected.abs().sum())}
    tessera_torch.wait(measuring.DEVICE)
    if not found["relative_l1"] < LARGEST_ERROR:
        raise RuntimeError(f"the relative L1 error is {found['relative_l1']:.3g} but must be below {LARGEST_ERROR}")
    return found


def measure(run, problem, title, is_causal, times_calls):
    ways = {**{f"tessera/{method}": (by_method, method) for method in METHODS},
            **{f"torch/{backend}": (by_torch, backend) for backend in BACKENDS}}
    for name, (make, what) in ways.items():
        full = f"{PREFIX}/{name}/{title}"

        def rows():
            attend = make(what, problem, is_causal)
            found = errors_of(problem, attend, is_causal)
            if not times_calls:
                print(f"{full}: relative L1 error {found['relative_l1']:.4g}", flush=True)
                return [measuring.row(full, 0.0, 0, 1, found)]
            return run.time(full, attend, found, ("TFLOPs", 1e-12 * problem.operations(is_causal)))

        run.attempt(full, rows)
    # A backend that PyTorch does not have here is no failure of the report: it is printed, and has no row.
    run.rows = [row for row in run.rows if not (row.get("error_occurred") and "/torch/" in row["name"])]


def main():
    run = measuring.Run(options.seconds, options.small)
    with torch.no_grad():
        if ON_CUDA:
            for channels, shapes in (SMALL_SHAPES if options.small else SHAPES).items():
                for shape in shapes:
                    problem = Problem("offset", channels, *shape)
                    for is_causal in (False, True):
                        title = f"forward/d{channels}/{shape[0]}" + ("/causal" if is_causal else "")
                        measure(run, problem, title, is_causal, True)
        else:
            for data in DATA:
                measure(run, Problem(data, 64, "512", 1, 9, 512), f"error/{data}", True, False)
    result = {"context": measuring.context(executable=Path(__file__).name), "benchmarks": run.rows}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if any(row.get("error_occurred") for row in run.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
