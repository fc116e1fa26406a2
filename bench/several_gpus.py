#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What vocabulary_parallel would take on more GPUs than it was measured on: a model, fitted to one and to two GPUs.

    several_gpus.py            writes the tables of docs/several_gpus.md, which says what the model is
    several_gpus.py --check    fails where they are not what the results say
"""
import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "several_gpus.md"
MIB = 1 << 20
STATE = 12        # bytes that a rank tells of a token: the largest logit, the sum, the label's logit
KEPT = STATE + 8  # bytes of the workspace for a token and a rank: what it tells, and its state alone
MODELS = {"Gemma 2 2B": (8192, 256000, 2304), "Llama 3 8B": (8192, 128256, 4096)}
NETWORKS = {"NVLink": None, "InfiniBand": 45.0}  # GB/s of a GPU; None: as measured
MOST_BY_NVLINK = 72
GPUS = [1, 2, 8, 64, 512]


def medians(file, counter):
    """The median of each benchmark's counter, by name without what Google Benchmark adds."""
    rows = {}
    for row in json.loads((ROOT / "bench" / "results" / file).read_text(encoding="utf-8"))["benchmarks"]:
        if row.get("run_type") == "iteration" and counter in row:
            rows.setdefault(row["name"].split("/iterations")[0], []).append(row[counter])
    return {name: statistics.median(values) for name, values in rows.items()}


class Fit:
    """Milliseconds of a GPU alone: begin + entries * each. Of two beside that: start + bytes / rate. No start is
    negative: measurements of one and of two GPUs may come from several hosts."""

    def __init__(self):
        whole, half = medians("loss.json", "ms"), medians("vocabulary_parallel.json", "alone_ms")
        both, planned = (medians("vocabulary_parallel.json", counter) for counter in ["ms", "extra_MiB"])
        self.alone, self.extra, self.own = {}, {}, {}
        for name, (tokens, entries, channels) in MODELS.items():
            size = f"{tokens}x{entries}x{channels}"
            for kind, of_whole in [("forward", f"forward/bf16/zipf/{size}"),
                                   ("forward_backward", f"forward_backward_exact/bf16/spread/{size}")]:
                of_whole = f"cut_cross_entropy/{of_whole}"
                of_half = f"vocabulary_parallel/{kind}_exact/bf16/spread/2gpus/{size}"
                each = (whole[of_whole] - half[of_half]) / (entries / 2)
                self.alone[name, kind] = (max(half[of_half] - each * entries / 2, 0.0), each)
                self.extra[name, kind] = both[of_half] - half[of_half]
                self.own[name] = planned[of_half] - of_tokens(tokens, 2)
        reduced = {name: self.extra[name, "forward_backward"] - self.extra[name, "forward"] for name in MODELS}
        (small, large), of_bytes = list(MODELS), self.gradient_bytes
        self.rate = (of_bytes(large) - of_bytes(small)) / (reduced[large] - reduced[small]) / 1e6  # GB/s
        self.begin = reduced[small] - of_bytes(small) / self.rate / 1e6
        if self.rate <= 0 or self.begin < 0:  # two measurements that no start explains: only bytes count
            self.rate = (sum(of_bytes(name) ** 2 for name in MODELS)
                         / sum(of_bytes(name) * reduced[name] for name in MODELS) / 1e6)
            self.begin = 0.0

    @staticmethod
    def gradient_bytes(name):
        tokens, _, channels = MODELS[name]
        return 2.0 * tokens * channels

    def milliseconds(self, name, kind, gpus, network):
        begin, each = self.alone[name, kind]
        tokens, entries, _ = MODELS[name]
        alone = begin + each * entries / gpus
        if gpus == 1:
            return alone
        rate = network or self.rate
        others = (gpus - 1) / gpus
        told = self.extra[name, "forward"] + gpus * tokens * STATE * others / rate / 1e6
        if kind == "forward":
            return alone + told
        return alone + told + self.begin + 2 * others * self.gradient_bytes(name) / rate / 1e6


def of_tokens(tokens, gpus):
    """MiB of the workspace that grow with the number of ranks."""
    return tokens * gpus * KEPT / MIB


def memory(fit, name, gpus):
    """MiB of a GPU: its rows and their gradient in bf16, and the workspace."""
    tokens, entries, channels = MODELS[name]
    return 2 * 2 * entries * channels / gpus / MIB + of_tokens(tokens, gpus) + fit.own[name]


def table(fit):
    lines = ["| | " + " | ".join(f"{gpus} GPU{'s' * (gpus > 1)}" for gpus in GPUS) + " |",
             "|---|" + "---:|" * len(GPUS)]
    for name in MODELS:
        for network, rate in NETWORKS.items():
            for kind, label in [("forward", "loss"), ("forward_backward", "loss and gradients")]:
                cells = ["–" if rate is None and gpus > MOST_BY_NVLINK
                         else f"{fit.milliseconds(name, kind, gpus, rate):.2f}" for gpus in GPUS]
                lines.append(f"| {name}, {network}: {label}, ms | " + " | ".join(cells) + " |")
        cells = [f"{memory(fit, name, gpus):,.0f}" for gpus in GPUS]
        lines.append(f"| {name}: rows, their gradient and workspace of a GPU, MiB | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parameters(fit):
    lines = [f"* {name}, {label}: a GPU alone {begin:.2f} ms and {1e6 * each:.1f} ns for each entry"
             for name in MODELS for kind, label in [("forward", "loss"), ("forward_backward", "loss and gradients")]
             for begin, each in [fit.alone[name, kind]]]
    told = ", ".join(f"{fit.extra[name, 'forward']:.2f} ({name})" for name in MODELS)
    lines += [f"* what ranks tell each other, and the launches beside it, on two GPUs: {told} ms",
              f"* the all_reduce of the hidden states' gradient: {fit.begin:.2f} ms, and {fit.rate:.0f} GB/s"]
    return "\n".join(lines)


def with_parts(text, fit):
    for name, made in [("parameters", parameters(fit)), ("table", table(fit))]:
        begin, end = f"<!-- {name} begin -->\n", f"<!-- {name} end -->"
        before, rest = text.split(begin)
        text = before + begin + made + "\n" + end + rest.split(end)[1]
    return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = PAGE.read_text(encoding="utf-8")
    after = with_parts(before, Fit())
    if options.check and before != after:
        sys.exit(f"out of date: {PAGE.relative_to(ROOT)}: run bench/several_gpus.py")
    if not options.check:
        PAGE.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
