#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures this library, through its PyTorch extension, and its peers side by side: one process, the same tensors.

    run.py --package sageattention-1*.whl liger_kernel-*.whl ml-cross-entropy/ --out build/peers.json
    run.py --parts attention caches --out build/peers.json     # with packages that are installed, or without them
    run.py --only tessera quack --parts losses --out build/quack.json
    run.py --small --out build/peers.json                      # every line that needs no GPU, in seconds

Needs PyTorch; with CUDA and Triton all of it. Prints one table and writes Google Benchmark's JSON for report.py. What
cannot be measured, for want of a package or of time, stands there as an error with its reason; others stay. Exits with
1 if this library itself is among that.
"""
import argparse
import importlib
import json
import statistics
import sys
import tempfile
from pathlib import Path

import native_loss
from measuring import Clocks, Run, context, tessera, use_packages, version_of

PARTS = ["weights", "attention", "caches", "losses", "distillation", "sequences", "papers"]  # modules beside this
# Columns of the table: heading, counter, digits.
COLUMNS = [("ms", "ms", 3), ("TFLOP/s", "TFLOPs", 0), ("TB/s", "TBps", 3), ("extra MiB", "extra_MiB", 1),
           ("cache MiB", "cache_MiB", 1), ("host MiB", "host_MiB", 1), ("bits", "bits_per_weight", 2),
           ("error", "relative_l1", 5), ("error, loss", "loss_error", 5), ("error, hidden", "hidden_error", 5),
           ("error, classifier", "classifier_error", 5)]


# Key in the context: module and distribution of a package that is measured, or that another one is written in.
PACKAGES = {"sageattention": ("sageattention", None), "sageattention2": ("sageattention2", None),
            "cut_cross_entropy": ("cut_cross_entropy", None), "liger_kernel": ("liger_kernel", "liger-kernel"),
            "quack": ("quack", "quack-kernels"), "cutlass_dsl": ("cutlass", "nvidia-cutlass-dsl"),
            "cudnn_frontend": ("cudnn", "nvidia-cudnn-frontend"), "flash_attention_3": ("fa3_fwd", "fa3-fwd"),
            "flash_attention_4": ("flash_attn.cute", "flash-attn-4"), "triton": ("triton", None)}


def table(rows):
    """All medians in Markdown: what is done alike stands together, this library first. Failures are told apart."""
    rows = [row for row in rows if "error_message" not in row]
    groups = {}
    for row in rows:
        who, what = row["name"].split("/", 1)
        groups.setdefault(what, {}).setdefault(who, []).append(row)
    lines = ["| | | " + " | ".join(heading for heading, _, _ in COLUMNS) + " |", "|---|---|" + "---:|" * len(COLUMNS)]
    for what, implementations in sorted(groups.items()):
        for who, several in sorted(implementations.items(), key=lambda item: not item[0].startswith("tessera")):
            cells = [f"{statistics.median(row[counter] for row in several):.{digits}f}" if counter in several[0] else ""
                     for _, counter, digits in COLUMNS]
            lines.append(f"| {what} | {who} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def told(failures):
    """Each reason once, with the benchmarks that it is the reason of."""
    titles = {}
    for failure in failures:
        title, reason = failure.split(": ", 1)
        titles.setdefault((title.split("/")[0], reason), []).append(title)
    return [f"not measured: {who}: {reason} ({', '.join(several[:3])}{', ...' * (len(several) > 3)})"
            for (who, reason), several in titles.items()]


def import_extension():
    """Before anything is timed. What is wrong with it is said once more where it is wanted."""
    try:
        tessera()
    except Exception as trouble:
        print(f"the package of examples/pytorch: {trouble}", file=sys.stderr, flush=True)


def measure(options):
    """Writes what there is after each part."""
    if not options.only or any(name.startswith("tessera") for name in options.only):
        import_extension()
    run = Run(options.limit, options.small, options.limit_of_each, options.only)
    for name in options.parts:
        part = importlib.import_module(name)
        run.begin_part()
        with Clocks() as clocks:
            try:
                part.measure_all(run)
            except Exception as trouble:  # its data could not be made
                run.note_failure(f"{name}/data", repr(trouble))
        run.clocks[f"clocks_{name}"] = clocks.described()
        described = context(options.commit, executable="peers/run.py", **versions(), **run.clocks)
        result = {"context": described, "benchmarks": run.rows}
        options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return run, described


def versions():
    found = {key: version_of(*names) for key, names in PACKAGES.items()}
    found["nvcomp"] = importlib.import_module("weights").version_of_nvcomp()
    return {**{name: version for name, version in found.items() if version != "unknown"}, **native_loss.described()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the JSON to write")
    parser.add_argument("--package", type=Path, nargs="*", default=[], metavar="PATH",
                        help="wheels, or folders that hold a package, which need not be installed")
    parser.add_argument("--native-loss", type=Path, metavar="PATH",
                        help="a wheel of PyTorch 2.13 or later, or a folder that it is unpacked in: its "
                             "linear_cross_entropy is measured under an older PyTorch (native_loss.py)")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME",
                        help="implementations, as names of benchmarks begin")
    parser.add_argument("--limit", type=float, default=1e9, metavar="SECONDS",
                        help="after these nothing is begun")
    parser.add_argument("--limit-of-each", type=float, default=100, metavar="SECONDS",
                        help="an implementation's in a part; compilation counts")
    parser.add_argument("--commit", help="of the sources, where they are no git checkout")
    parser.add_argument("--small", action="store_true", help="small shapes, few calls: to try the scripts themselves")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        use_packages(options.package, folder)
        if options.native_loss:
            native_loss.use(options.native_loss, Path(folder) / "native_loss")
        run, described = measure(options)
    print(table(run.rows))
    print("\n".join(["", json.dumps(described), *told(run.failures)]))
    if len(run.rows) == len(run.failures):
        sys.exit("run.py: nothing could be measured")
    if any(failure.startswith("tessera") and ": TimeoutError" not in failure for failure in run.failures):
        sys.exit("run.py: this library failed")


if __name__ == "__main__":
    main()
