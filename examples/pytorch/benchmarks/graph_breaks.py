#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Counts the graph breaks of torch.compile in this package's functions of tensors: 0 are right.

    graph_breaks.py --json graph_breaks.json    # on the GPU where there is one, else on the CPU

Writes {graph_breaks, functions, names, device, torch}: their sum, and how many functions were traced.
"""
import argparse
import json
from pathlib import Path

import torch

import tessera_torch


def functions(device):
    """{name: (function, arguments)}"""
    def normal(*shape):
        return torch.randn(shape).bfloat16().to(device)

    e, c, bias = (normal(*shape).requires_grad_() for shape in [(2, 40, 64), (300, 64), (300,)])
    teacher_e, teacher_c = normal(2, 40, 96), normal(300, 96)
    targets = torch.randint(300, (2, 40)).to(device)
    entries, entry_weights = torch.randint(300, (2, 40, 4)).to(device), torch.rand(2, 40, 4).to(device)
    q, k, v = (normal(1, heads, 40, 64) for heads in (4, 2, 2))
    stream = tessera_torch.compress(c.detach())
    lse = tessera_torch.linear_cross_entropy(e, c, targets, return_lse=True)[1].detach()
    loss = tessera_torch.LinearCrossEntropy(shift=1, softcap=20.0, label_smoothing=0.1)
    return {
        "linear_cross_entropy": (tessera_torch.linear_cross_entropy, (e, c, targets, bias)),
        "LinearCrossEntropy": (loss, (e, c, targets, bias)),
        "linear_log_probabilities": (tessera_torch.linear_log_probabilities, (e, c, targets)),
        "linear_statistics": (tessera_torch.linear_statistics, (e, c, targets)),
        "soft_target_cross_entropy": (tessera_torch.soft_target_cross_entropy, (e, c, entries, entry_weights)),
        "chosen_log_probabilities": (tessera_torch.chosen_log_probabilities, (e, c, entries, lse)),
        "top_log_probabilities": (tessera_torch.top_log_probabilities, (e, c, 5, bias)),
        "linear_distillation": (tessera_torch.linear_distillation, (e, c, teacher_e, teacher_c)),
        "attention": (tessera_torch.attention, (q, k, v, True)),
        "scaled_dot_product_attention": (tessera_torch.scaled_dot_product_attention, (q, q, q)),
        "decompress": (tessera_torch.decompress, (stream, c.shape, torch.bfloat16))}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the file to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    breaks = {}
    for name, (function, arguments) in functions(options.device).items():
        torch._dynamo.reset()
        explained = torch._dynamo.explain(function)(*arguments)
        breaks[name] = explained.graph_break_count if explained.graph_count else 1  # nothing was traced
        print(f"{name}: {breaks[name]}")
    tessera_torch.wait(options.device)
    result = {"graph_breaks": sum(breaks.values()), "functions": len(breaks), "names": sorted(breaks),
              "device": options.device, "torch": torch.__version__}
    if options.json:
        options.json.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
