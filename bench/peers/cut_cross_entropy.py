#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures other implementations of the loss of cut_cross_entropy_bench.cu, for report.py to show beside it.

    cut_cross_entropy.py --package liger_kernel-*.whl ml-cross-entropy/ --out build/loss_peers.json
    cut_cross_entropy.py --out build/loss_peers.json           # with cut-cross-entropy and liger-kernel installed

Needs PyTorch with CUDA and Triton. Implementations: PyTorch's operations one by one (torch_eager) and compiled
(torch_compile), Apple's cut-cross-entropy with its filter (apple_cce) and without (apple_cce_exact, which versions
before 25.4 do not have), and Liger's fused linear cross-entropy (liger). Each has its usual settings.

Data have the distributions of support/loss_problem.cuh, though not its bits. Forward passes run without autograd.
`extra_MiB` is the most memory that PyTorch's allocator held beyond inputs and gradients. Each loss is compared with an
exact one; errors of gradients are lengths, relative to those of exact gradients in fp32.
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

from measuring import Flush, MEBIBYTE, context, row, seconds_of, use_packages, version_of

SHAPES = ["8192x256000x2304", "8192x128256x4096"]  # Gemma 2 2B, Llama 3 8B: tokens, vocabulary, channels
REPETITIONS, WANTED_SECONDS, LEAST_SAMPLES, MOST_SAMPLES = 3, 0.2, 4, 15
LARGEST_LOSS_ERROR = 2e-3  # relative; logits are rounded to bf16 in some implementations


class Problem:
    """Hidden states, classifier and labels; and the exact loss with its gradients in fp32."""

    def __init__(self, data, shape):
        self.title = f"{data}/{shape}"
        tokens, vocabulary, channels = (int(extent) for extent in shape.split("x"))
        torch.manual_seed(1)
        deviation = {"flat": 1.0, "spread": 2.4, "zipf": 1.5}[data]
        self.hidden = torch.randn(tokens, channels, device="cuda", dtype=torch.bfloat16)
        self.classifier = torch.empty(vocabulary, channels, device="cuda", dtype=torch.bfloat16)
        for part in self.classifier.split(16384):  # so that samples are rounded once
            part.copy_(torch.randn(part.shape, device="cuda") * (deviation / math.sqrt(channels)))
        if data == "zipf":
            ranks = torch.randperm(vocabulary, device="cuda") + 1
            self.hidden[:, 0] = 4
            self.classifier[:, 0] = -0.3 * torch.log(ranks.float())
        self.labels = torch.cat([torch.multinomial(torch.softmax((part @ self.classifier.T).float(), 1), 1).flatten()
                                 for part in self.hidden.split(512)])
        self.find_exact_gradients()
        self.hidden.requires_grad_()
        self.classifier.requires_grad_()

    def find_exact_gradients(self):
        classifier = self.classifier.float()
        self.exact_hidden = torch.empty(self.hidden.shape, device="cuda")
        self.exact_classifier = torch.zeros(self.classifier.shape, device="cuda")
        losses = []
        for first in range(0, len(self.labels), 1024):
            some = slice(first, first + 1024)
            hidden, labels = self.hidden[some].float(), self.labels[some]
            logits = hidden @ classifier.T
            losses.append(F.cross_entropy(logits, labels, reduction="sum").double())
            gradient = torch.softmax(logits, 1)
            gradient[torch.arange(len(labels), device="cuda"), labels] -= 1
            gradient /= len(self.labels)
            self.exact_hidden[some] = gradient @ classifier
            self.exact_classifier.addmm_(gradient.T, hidden)
        self.exact_loss = float(sum(losses)) / len(self.labels)

    def clear(self):
        self.hidden.grad = self.classifier.grad = None

    def gradient_bytes(self):
        return sum(t.grad.numel() * t.grad.element_size() for t in (self.hidden, self.classifier) if t.grad is not None)

    def errors(self):
        """Of the gradients that a call has left."""
        pairs = {"hidden_error": (self.hidden.grad, self.exact_hidden),
                 "classifier_error": (self.classifier.grad, self.exact_classifier)}
        return {name: float((found.float() - exact).norm() / exact.norm()) for name, (found, exact) in pairs.items()}


# Functions of hidden states, classifier and labels that return the mean loss.


def dense_loss(hidden, classifier, labels):
    return F.cross_entropy((hidden @ classifier.T).float(), labels)


def torch_eager():
    return dense_loss


def torch_compile():
    torch._dynamo.reset()  # else a second shape is compiled for any shape
    return torch.compile(dense_loss, fullgraph=True, dynamic=False)


def apple(implementation):
    package = importlib.import_module("cut_cross_entropy")
    if implementation.upper() not in package.LinearCrossEntropyImpl.__members__:
        raise RuntimeError(f"cut-cross-entropy {version_of('cut_cross_entropy')} has no {implementation}")
    return lambda hidden, classifier, labels: package.linear_cross_entropy(hidden, classifier, labels,
                                                                           impl=implementation)


def liger():
    loss = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")
    module = loss.LigerFusedLinearCrossEntropyLoss()
    return lambda hidden, classifier, labels: module(classifier, hidden, labels)


IMPLEMENTATIONS = {"torch_eager": torch_eager, "torch_compile": torch_compile, "apple_cce": lambda: apple("cce"),
                   "apple_cce_exact": lambda: apple("cce_exact"), "liger": liger}
# Only with a filter does the time depend on the data.
MEASURED = {"zipf": list(IMPLEMENTATIONS), "flat": ["apple_cce"], "spread": ["apple_cce"]}


def measure(title, operation, flush, counters):
    """Rows of one operation, whose first call is over."""
    torch.cuda.synchronize()
    once = seconds_of(operation, flush, 1)
    samples = min(max(int(WANTED_SECONDS / once), LEAST_SAMPLES), MOST_SAMPLES)
    times = [seconds_of(operation, flush, samples) for _ in range(REPETITIONS)]
    print(f"{title}: {1e3 * statistics.median(times):.2f} ms, {counters}", flush=True)
    return [row(title, seconds, i, REPETITIONS, {"ms": 1e3 * seconds, "rounds": samples, **counters})
            for i, seconds in enumerate(times)]


def peak_of(operation, problem):
    """The most bytes beyond what was there and what is left as gradients."""
    problem.clear()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    operation()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before - problem.gradient_bytes()


def require_right(name, loss, problem):
    found = float(loss)
    if not abs(found - problem.exact_loss) <= LARGEST_LOSS_ERROR * problem.exact_loss:
        raise RuntimeError(f"{name}: the loss is {found} but should be {problem.exact_loss}")
    return found


def measure_implementation(name, problem, flush, with_forward):
    loss = IMPLEMENTATIONS[name]()
    inputs = problem.hidden, problem.classifier, problem.labels
    constants = problem.hidden.detach(), problem.classifier.detach(), problem.labels  # of which none makes gradients

    def forward():
        with torch.no_grad():
            return loss(*constants)

    def both():
        problem.clear()
        result = loss(*inputs)
        result.backward()
        return result

    rows = []
    if with_forward:
        counters = {"loss": require_right(name, forward(), problem)}
        counters["extra_MiB"] = peak_of(forward, problem) / MEBIBYTE
        rows += measure(f"{name}/forward/bf16/{problem.title}", forward, flush, counters)
    counters = {"loss": require_right(name, both().detach(), problem), **problem.errors()}
    counters["extra_MiB"] = peak_of(both, problem) / MEBIBYTE
    rows += measure(f"{name}/forward_backward/bf16/{problem.title}", both, flush, counters)
    problem.clear()
    return rows


def measure_all(options):
    flush = Flush()
    rows = []
    for shape in options.shapes:
        for data in options.data:
            problem = Problem(data, shape)
            for name in (n for n in MEASURED[data] if n in options.implementations):
                try:
                    rows += measure_implementation(name, problem, flush, data == "zipf")
                except Exception as trouble:  # whatever another package throws: its rows are left out, others stay
                    print(f"{name}, {problem.title}: {trouble!r}", file=sys.stderr, flush=True)
                torch.cuda.empty_cache()
            del problem
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--package", type=Path, nargs="+", default=[], metavar="PATH",
                        help="wheels, or folders that hold a package, which need not be installed")
    parser.add_argument("--out", type=Path, required=True, help="the results, in Google Benchmark's JSON")
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="TOKENSxVOCABULARYxCHANNELS")
    parser.add_argument("--data", nargs="+", choices=list(MEASURED), default=list(MEASURED))
    parser.add_argument("--implementations", nargs="+", choices=list(IMPLEMENTATIONS), default=list(IMPLEMENTATIONS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        use_packages(options.package, folder)
        rows = measure_all(options)
        if not rows:
            raise SystemExit("no implementation worked")
        described = context(cut_cross_entropy=version_of("cut_cross_entropy"), liger_kernel=version_of("liger_kernel"))
        options.out.write_text(json.dumps({"context": described, "benchmarks": rows}, indent=1) + "\n",
                               encoding="utf-8")


if __name__ == "__main__":
    main()
