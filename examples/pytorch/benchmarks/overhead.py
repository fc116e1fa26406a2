#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures how much longer a call of attention takes from Python than in C++, on the host.

    overhead.py --json overhead.json            # on the GPU where there is one, else on the CPU

Calls enqueue work: the times are those until they return, of a step that decodes one token, whose work is small. Rounds
alternate between attention() in Python, the same within torch.no_grad(), and a loop of the extension that does the same
in C++. They are short, so that a GPU's queue never fills. Writes the medians over rounds, in microseconds: {attention,
attention_no_grad, cpp, overhead, device, torch}; overhead is attention less cpp.
"""
import argparse
import json
import statistics
import time
from pathlib import Path

import torch

import tessera_torch
from tessera_torch._library import ops

CALLS = 20    # of a round
ROUNDS = 200


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(function):
    began = time.perf_counter()
    for _ in range(CALLS):
        function()
    return (time.perf_counter() - began) / CALLS


def measured(device):
    torch.manual_seed(1)
    heads, keys, channels = (32, 256, 128) if device == "cuda" else (1, 16, 16)
    q = torch.randn(1, heads, 1, channels).bfloat16().to(device)
    k, v = (torch.randn(1, heads, keys, channels).bfloat16().to(device) for _ in range(2))
    result = torch.empty_like(q)

    def call():
        tessera_torch.attention(q, k, v, is_causal=True)

    def call_with_gradients_off():
        with torch.no_grad():
            tessera_torch.attention(q, k, v, is_causal=True)

    ways = {"attention": lambda: seconds_of(call), "attention_no_grad": lambda: seconds_of(call_with_gradients_off),
            "cpp": lambda: ops.attention_call_time(q, k, v, result, True, CALLS)}
    times = {name: [] for name in ways}
    for _ in range(ROUNDS + 10):
        for name, way in ways.items():
            wait(device)
            times[name].append(way())
    tessera_torch.wait(device)
    return {name: round(1e6 * statistics.median(several[10:]), 2) for name, several in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="the file to write")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    found = measured(options.device)
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    result = {**found, "overhead": round(found["attention"] - found["cpp"], 2), "device": name,
              "torch": torch.__version__}
    if options.json:
        options.json.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
