#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the Google Benchmark JSON in bench/results into summary.json, the README's tables and the plots.

    report.py                       write what the results say
    report.py --check               fail if anything written is not what the results say
    report.py --adopt build/*.json  first take new results over, without what names the machine they ran on

Every figure is the median over a benchmark's repetitions. Nothing is typed by hand: to show another figure, add it to
the tables below. Needs Python 3.9 and nothing else.
"""
import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from xml.sax.saxutils import escape

# --- What is reported --------------------------------------------------------------------------------------------

# key in summary.json: (how, counter, benchmarks). "value" has one benchmark, "ratio" is the first over the second,
# "largest" is that of several. All of them are needed: without one there is no report.
FIGURES = {
    "machine.copy.tbps": ("largest", "TBps", ["machine/copy/memcpy/2GiB", "machine/copy/kernel/2GiB"]),
    "neuzip.decode.bf16.tbps": ("value", "TBps", ["neuzip/decode/bf16/gauss/512MiB"]),
    "neuzip.encode.bf16.tbps": ("value", "TBps", ["neuzip/encode/bf16/gauss/512MiB"]),
    "neuzip.decode.fp16.tbps": ("value", "TBps", ["neuzip/decode/fp16/gauss/512MiB"]),
    "neuzip.decode.fp32.tbps": ("value", "TBps", ["neuzip/decode/fp32/gauss/512MiB"]),
    "neuzip.bits_per_weight.gauss_bf16": ("value", "bits_per_weight", ["neuzip/encode/bf16/gauss/512MiB"]),
    "neuzip.batched_over_single": ("ratio", "TBps",
                                   ["neuzip/decode/bf16/gauss/32x32MiB", "neuzip/decode/bf16/gauss/512MiB"]),
    "neuzip.cpu.decode.avx2.gbps_per_core": ("value", "GBps", ["neuzip/cpu/decode/bf16/gauss/avx2/64MiB/1thread"]),
    "neuzip.cpu.decode.avx512.gbps_per_core": ("value", "GBps", ["neuzip/cpu/decode/bf16/gauss/avx512/64MiB/1thread"]),
    "gemm.bf16.vs_cublas": ("value", "vs_cublas", ["linear/bf16/gauss/8192x8192x8192"]),
    "gemm.fp8.vs_best": ("value", "vs_cublas", ["linear/fp8_e4m3/gauss/8192x8192x8192"]),
    "gemm.int8.vs_best": ("value", "vs_best", ["linear/int8_over_best/gauss/8192x8192x8192"]),
    "neuzip.cpu.encode.gbps_per_core": ("value", "GBps", ["neuzip/cpu/encode/bf16/gauss/64MiB/1thread"]),
}
# Classifiers whose loss is measured: tokens, vocabulary and channels, as names of benchmarks have them.
CLASSIFIERS = {"gemma": ("Gemma 2 2B", "8192x256000x2304"), "llama": ("Llama 3 8B", "8192x128256x4096")}


def loss_figures(model):
    size = CLASSIFIERS[model][1]
    return {f"cce.{model}.{key}": ("value", counter, [f"cut_cross_entropy/{operation}/{size}"])
            for key, counter, operation in [
                ("forward.ms", "ms", "forward/bf16/zipf"),
                ("zipf.ms", "ms", "forward_backward/bf16/zipf"),
                ("spread.ms", "ms", "forward_backward/bf16/spread"),
                ("exact.ms", "ms", "forward_backward_exact/bf16/spread"),
                ("forward.extra_mib", "extra_MiB", "forward/bf16/zipf"),
                ("backward.extra_mib", "extra_MiB", "forward_backward/bf16/zipf")]}


FIGURES.update(loss_figures("gemma"), **loss_figures("llama"))

LENGTHS = ["4k", "16k", "32k"]


def attention_figures():
    names = [f"{channels}/{length}{causal}" for channels in ["d128", "d64"] for length in LENGTHS
             for causal in ["", "/causal"]]
    return {**{f"sage.{name.replace('/', '.')}.tflops": ("value", "TFLOPs", [f"attention/forward/bf16/{name}"])
               for name in names},
            "sage.relative_l1": ("largest", "relative_l1", [f"attention/forward/bf16/d128/{length}"
                                                            for length in LENGTHS]),
            "sage.quantize.copy_fraction": ("value", "of_copy", ["attention/quantize/bf16/d128/16k"])}


FIGURES.update(attention_figures())

# Another implementation's rate for the same operation, distribution and size on the same kind of card, but measured
# apart from our runs: one H200, CUDA 13.0, PyTorch 2.11, medians of CUDA-event times after warm-up, 2026-11-21. It is
# shown beside our figures and never enters summary.json. Source: https://github.com/facebookresearch/dietgpu
PEER = "DietGPU"
PEER_TBPS = {
    "neuzip/decode/bf16/gauss/512MiB": 1.003,
    "neuzip/decode/bf16/gauss/32x32MiB": 0.982,
    "neuzip/decode/fp16/gauss/512MiB": 0.883,
    "neuzip/decode/fp32/gauss/512MiB": 1.212,
    "neuzip/encode/bf16/gauss/512MiB": 0.796,
    "neuzip/encode/bf16/gauss/32x32MiB": 0.826,
    "neuzip/encode/fp16/gauss/512MiB": 0.663,
    "neuzip/encode/fp32/gauss/512MiB": 0.946,
}

# Columns of tables: heading, and the cell from one benchmark's counters. The floor is the rate at which the
# operation's own traffic would run at the speed of the machine's copy.
COLUMNS = {
    "TB/s": lambda name, c: number(c.get("TBps")),
    "GB/s": lambda name, c: number(c.get("GBps")),
    "limit by memory": lambda name, c: number(floor(c)),
    "of copy speed": lambda name, c: percent(c.get("of_copy")),
    PEER: lambda name, c: number(PEER_TBPS.get(name)),
    "bits per weight": lambda name, c: number(c.get("bits_per_weight")),
    "entropy": lambda name, c: number(c.get("entropy_bits")),
    "peak MiB": lambda name, c: number(c.get("peak_MiB"), 0),
    "TFLOP/s": lambda name, c: number(c.get("TFLOPs"), 0),
    "cuBLAS": lambda name, c: number(c.get("cublas_TFLOPs"), 0),
    "of cuBLAS": lambda name, c: percent(c.get("vs_cublas")),
    "tokens": lambda name, c: number(c.get("tokens"), 0),
    "entries": lambda name, c: number(c.get("vocabulary"), 0),
    "ms": lambda name, c: number(c.get("ms"), 1),
    "cuBLAS's logits, ms": lambda name, c: number(c.get("cublas_logits_ms"), 1),
    "extra MiB": lambda name, c: number(c.get("extra_MiB"), 1),
    "blocks kept": lambda name, c: percent(c.get("kept")),
    "ordered": lambda name, c: percent(c.get("kept_ordered")),
    "error, L1": lambda name, c: percent(c.get("relative_l1"), 2),
    "error, hidden": lambda name, c: percent(c.get("hidden_error"), 2),
    "error, classifier": lambda name, c: percent(c.get("classifier_error"), 2),
}


@dataclass(frozen=True)
class Table:
    """Between `<!-- bench:NAME begin -->` and `<!-- bench:NAME end -->`. Rows without a result are left out."""
    heading: str
    columns: list
    rows: list         # of (label, benchmark)
    on_cpu: bool = False


def loss_table(model):
    """Ours and others' loss for one classifier."""
    name, size = CLASSIFIERS[model]
    apple = "Apple's cut-cross-entropy"
    without_filter = [("apple_cce_exact", f"{apple}, exact"), ("torch_compile", "torch.compile"),
                      ("torch_eager", "PyTorch"), ("liger", "Liger Kernel")]
    rows = [("forward", f"cut_cross_entropy/forward/bf16/zipf/{size}"),
            (f"forward, {apple}", f"apple_cce/forward/bf16/zipf/{size}"),
            ("forward, torch.compile", f"torch_compile/forward/bf16/zipf/{size}"),
            ("forward, PyTorch", f"torch_eager/forward/bf16/zipf/{size}")]
    for data in ["zipf", "flat", "spread"]:
        rows += [(f"both passes, {data}", f"cut_cross_entropy/forward_backward/bf16/{data}/{size}"),
                 (f"both passes, {data}, {apple}", f"apple_cce/forward_backward/bf16/{data}/{size}")]
    rows += [("both passes, exact", f"cut_cross_entropy/forward_backward_exact/bf16/spread/{size}"),
             ("both passes, exact, up to 4 GiB",
              f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}")]
    rows += [(f"both passes, {label}", f"{peer}/forward_backward/bf16/zipf/{size}") for peer, label in without_filter]
    return Table(f"{name}, {size.replace('x', ' x ')}",
                 ["ms", "cuBLAS's logits, ms", "extra MiB", "blocks kept", "ordered", "error, hidden",
                  "error, classifier"], rows)


def attention_table(channels):
    """Ours and others' attention of heads with so many channels."""
    rows = []
    for causal in ["", "/causal"]:
        for length in LENGTHS:
            label, name = f"{length.upper()} tokens{', causal' if causal else ''}", f"bf16/d{channels}/{length}{causal}"
            rows += [(label, f"attention/forward/{name}"),
                     (f"{label}, over codes", f"attention/codes/{name}"),
                     (f"{label}, cuDNN in bf16", f"cudnn/forward/{name}"),
                     (f"{label}, FlashAttention-2", f"flash2/forward/{name}"),
                     (f"{label}, SageAttention 1", f"sage1/forward/{name}")]
    rows += [(f"quantization, {length.upper()} tokens", f"attention/quantize/bf16/d{channels}/{length}")
             for length in LENGTHS]
    return Table(f"Attention, {channels} channels", ["TFLOP/s", "ms", "error, L1", "of copy speed"], rows)


TABLES = {
    "attention-128": attention_table(128),
    "attention-64": attention_table(64),
    "linear": Table("GPU, tokens x columns x depth, N(0, 1)", ["TFLOP/s", "cuBLAS", "of cuBLAS"], [
        (f"{format} {size.replace('x', ' x ')}", f"linear/{format}/gauss/{size}") for format, size in [
            ("bf16", "8192x8192x8192"), ("bf16", "4096x4096x4096"), ("bf16", "8192x28672x4096"),
            ("bf16", "8192x256000x2304"), ("fp16", "8192x8192x8192"), ("tf32", "8192x8192x8192"),
            ("fp8_e4m3", "8192x8192x8192"), ("int8", "8192x8192x8192")]
    ]),
    "loss-gemma": loss_table("gemma"),
    "loss-llama": loss_table("llama"),
    "loss-real": Table("SmolLM2's hidden states",
                       ["tokens", "entries", "ms", "extra MiB", "blocks kept", "ordered", "error, hidden",
                        "error, classifier"], [
        ("both passes", "cut_cross_entropy/forward_backward/bf16/smollm2/all"),
    ]),
    "machine": Table("Device memory", ["TB/s"], [
        ("copy, CUDA runtime (read + write)", "machine/copy/memcpy/2GiB"),
        ("copy, own kernel (read + write)", "machine/copy/kernel/2GiB"),
        ("read only", "machine/read/2GiB"),
        ("write only", "machine/write/2GiB"),
    ]),
    "neuzip": Table("GPU, N(0, 0.02)", ["TB/s", "limit by memory", "of copy speed", PEER, "bits per weight",
                                        "peak MiB"], [
        ("decode bf16, 512 MiB", "neuzip/decode/bf16/gauss/512MiB"),
        ("decode bf16, 32 tensors of 32 MiB", "neuzip/decode/bf16/gauss/32x32MiB"),
        ("decode bf16, 4096 x 4096", "neuzip/decode/bf16/gauss/4096x4096"),
        ("decode bf16, 1024 x 1024", "neuzip/decode/bf16/gauss/1024x1024"),
        ("decode bf16, fixed-length codes, 512 MiB", "neuzip/decode_fixed/bf16/gauss/512MiB"),
        ("decode fp16, 512 MiB", "neuzip/decode/fp16/gauss/512MiB"),
        ("decode fp32, 512 MiB", "neuzip/decode/fp32/gauss/512MiB"),
        ("decode fp8 e4m3, N(0, 1), 512 MiB", "neuzip/decode/fp8_e4m3/gauss/512MiB"),
        ("decode fp8 e5m2, N(0, 1), 512 MiB", "neuzip/decode/fp8_e5m2/gauss/512MiB"),
        ("encode bf16, 512 MiB", "neuzip/encode/bf16/gauss/512MiB"),
        ("encode bf16, 32 tensors of 32 MiB", "neuzip/encode/bf16/gauss/32x32MiB"),
        ("encode bf16, 4096 x 4096", "neuzip/encode/bf16/gauss/4096x4096"),
        ("encode bf16, 1024 x 1024", "neuzip/encode/bf16/gauss/1024x1024"),
        ("encode bf16, fixed-length codes, 512 MiB", "neuzip/encode_fixed/bf16/gauss/512MiB"),
        ("encode fp16, 512 MiB", "neuzip/encode/fp16/gauss/512MiB"),
        ("encode fp32, 512 MiB", "neuzip/encode/fp32/gauss/512MiB"),
        ("encode fp8 e4m3, N(0, 1), 512 MiB", "neuzip/encode/fp8_e4m3/gauss/512MiB"),
        ("encode fp8 e5m2, N(0, 1), 512 MiB", "neuzip/encode/fp8_e5m2/gauss/512MiB"),
    ]),
    "neuzip-nvcomp": Table("GPU, 512 MiB, N(0, 0.02), same machine", ["TB/s", "bits per weight"], [
        row for operation in ["decode", "encode"] for format in ["bf16", "fp16", "fp32"] for row in [
            (f"{operation} {format}", f"neuzip/{operation}/{format}/gauss/512MiB"),
            (f"{operation} {format}, nvCOMP's ANS, its best settings",
             f"nvcomp_ans/{operation}/{format}/gauss/512MiB")]
    ]),
    "neuzip-cpu": Table("CPU, bf16, N(0, 0.02), 64 MiB", ["GB/s"], [
        ("decode, one core, portable", "neuzip/cpu/decode/bf16/gauss/scalar/64MiB/1thread"),
        ("decode, one core, AVX2", "neuzip/cpu/decode/bf16/gauss/avx2/64MiB/1thread"),
        ("decode, one core, AVX-512", "neuzip/cpu/decode/bf16/gauss/avx512/64MiB/1thread"),
        ("decode, all cores", "neuzip/cpu/decode/bf16/gauss/64MiB/all_threads"),
        ("encode, one core", "neuzip/cpu/encode/bf16/gauss/64MiB/1thread"),
        ("encode, all cores", "neuzip/cpu/encode/bf16/gauss/64MiB/all_threads"),
    ], on_cpu=True),
    "neuzip-size": Table("bf16 weights", ["bits per weight", "entropy"], [
        ("N(0, 0.02)", "neuzip/encode/bf16/gauss/512MiB"),
        ("Laplace", "neuzip/encode/bf16/laplace/512MiB"),
        ("Student's t, 4 degrees of freedom", "neuzip/encode/bf16/student_t/512MiB"),
        ("MiniLM-L6 (real)", "neuzip/encode/bf16/minilm/all"),
    ]),
}


@dataclass(frozen=True)
class Chart:
    """A bar for each row of a table that has the counter, with marks to compare it with."""
    title: str
    table: str
    counter: str
    marks: list = field(default_factory=list)  # of (label, style, function of name and counters)


CHARTS = {
    "neuzip.svg": Chart("NeuZip on the GPU, TB/s of uncompressed weights (more is better)", "neuzip", "TBps", [
        ("limit by memory", "floor", lambda name, c: floor(c)),
        (PEER, "reference", lambda name, c: PEER_TBPS.get(name)),
    ]),
    "neuzip_size.svg": Chart("NeuZip, bits per bf16 weight (less is better)", "neuzip-size", "bits_per_weight", [
        ("entropy bound", "floor", lambda name, c: c.get("entropy_bits")),
        ("uncompressed", "reference", lambda name, c: 16),
    ]),
}

# --- Reading -----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The results cannot be reported; the message says why."""


def floor(counters):
    """The rate of the benchmark's bytes if its traffic ran at the speed of a copy."""
    return counters["TBps"] / counters["of_copy"] if counters.get("of_copy") and "TBps" in counters else None


SUFFIX = re.compile(r"/(iterations|repeats|threads|min_time|min_warmup_time):[^/]+$|/(manual|real|process)_time$")
NOT_COUNTERS = {"family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations",
                "real_time", "cpu_time"}
NAMES_THE_MACHINE = ("host_name", "load_avg")
PEER_PACKAGES = {"cut_cross_entropy": "cut-cross-entropy", "liger_kernel": "Liger Kernel", "pytorch": "PyTorch",
                 "sageattention": "SageAttention"}


def plain_name(run_name):
    """The name that a benchmark was registered with: Google Benchmark appends how it was run."""
    while SUFFIX.search(run_name):
        run_name = SUFFIX.sub("", run_name)
    return run_name


@dataclass
class Result:
    counters: dict  # medians
    error: str      # empty for a good result
    context: dict


def read_file(path):
    """{benchmark: Result} of one JSON file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        context, rows = content["context"], content["benchmarks"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path.name}: not the JSON of Google Benchmark ({error})") from error
    groups = {}
    for row in rows:
        groups.setdefault(plain_name(row.get("run_name", row["name"])), []).append(row)
    return {name: Result(medians(group), first_error(group), context) for name, group in groups.items()}


def first_error(rows):
    for row in rows:
        if row.get("error_occurred") or row.get("skipped"):
            return row.get("error_message") or row.get("skip_message") or "skipped without a reason"
    return ""


def medians(rows):
    single = [r for r in rows if r.get("run_type", "iteration") == "iteration"]
    if not single:  # the file holds aggregates only
        single = [r for r in rows if r.get("aggregate_name") == "median"]
    values = {}
    for row in single:
        for key, value in row.items():
            if key not in NOT_COUNTERS and isinstance(value, (int, float)) and not isinstance(value, bool):
                values.setdefault(key, []).append(value)
    return {key: median(several) for key, several in values.items()}


def read_results(folder):
    results = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "summary.json":
            continue
        for name, result in read_file(path).items():
            if name in results:
                raise Refused(f"{path.name}: {name} is in another file too; remove one of the two results")
            results[name] = result
    return results


# --- Computing ---------------------------------------------------------------------------------------------------


def figure(results, key):
    """The number for a key of FIGURES; Refused says which benchmark is in the way."""
    how, counter, names = FIGURES[key]
    values = []
    for name in names:
        if name not in results:
            raise Refused(f"{key}: there is no result of {name}")
        if results[name].error:
            raise Refused(f"{key}: {name} did not run: {results[name].error}")
        if counter not in results[name].counters:
            raise Refused(f"{key}: {name} has no counter {counter}")
        values.append(results[name].counters[counter])
    result = values[0] / values[1] if how == "ratio" else max(values)  # a "value" is the largest of one
    return float(f"{result:.5g}")


def summarize(results, allow_missing):
    numbers, problems = {}, []
    for key in FIGURES:
        try:
            numbers[key] = figure(results, key)
        except Refused as problem:
            problems.append(str(problem))
    for name, result in sorted(results.items()):
        if result.error and not any(name in names for _, _, names in FIGURES.values()):
            problems.append(f"{name} did not run: {result.error}")
    if problems and not allow_missing:
        raise Refused("\n".join(problems) + "\n(--allow-missing reports what there is)")
    for problem in problems:
        print(f"missing: {problem}", file=sys.stderr)
    return numbers


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def percent(value, digits=0):
    return "–" if value is None else f"{100 * value:.{digits}f}%"


def rows_with_results(table, results):
    return [(label, name, results[name].counters) for label, name in table.rows
            if name in results and not results[name].error]


def described(context, on_cpu):
    """Where and when a result was measured."""
    if on_cpu:
        parts = [context.get("cpu"), context.get("compiler")]
    else:
        parts = [context.get("gpu"), "driver " + context.get("driver", "unknown"),
                 "CUDA " + context.get("cuda_runtime", "unknown")]
    parts += [f"{label} {context[key]}" for key, label in PEER_PACKAGES.items() if key in context]
    parts += ["commit " + context.get("commit", "unknown")[:12], context.get("date", "")[:10]]
    return ", ".join(part for part in parts if part)


def markdown(table, results):
    rows = rows_with_results(table, results)
    if not rows:
        return "Not measured yet."
    lines = [f"| {table.heading} | " + " | ".join(table.columns) + " |", "|---|" + "---:|" * len(table.columns)]
    for label, name, counters in rows:
        lines.append(f"| {label} | " + " | ".join(COLUMNS[c](name, counters) for c in table.columns) + " |")
    runs = sorted({described(results[name].context, table.on_cpu) for _, name, _ in rows})
    return "\n".join(lines + ["", "Measured on: " + "; ".join(runs) + "."])


def with_tables(text, results):
    for name, table in TABLES.items():
        begin, end = f"<!-- bench:{name} begin -->", f"<!-- bench:{name} end -->"
        if text.count(begin) != text.count(end) or text.count(begin) > 1:
            raise Refused(f"README.md: {begin} and {end} must come once each, or not at all")
        if begin in text:
            before, rest = text.split(begin)
            if end not in rest:
                raise Refused(f"README.md: {end} comes before {begin}")
            text = before + begin + "\n" + markdown(table, results) + "\n" + end + rest.split(end)[1]
    return text


# --- Drawing -----------------------------------------------------------------------------------------------------

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .bar { fill: #2f6fbe }
  .axis { stroke: #8c959f; stroke-width: 1 }
  .floor { stroke: #1a7f37; stroke-width: 3 }
  .reference { stroke: #bc4c00; stroke-width: 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .bar { fill: #539bf5 }
    .axis { stroke: #768390 }
    .floor { stroke: #57ab5a }
    .reference { stroke: #f0883e }
  }
"""


def svg(chart, results):
    rows = [r for r in rows_with_results(TABLES[chart.table], results) if chart.counter in r[2]]
    if not rows:
        return None
    marks = [[(style, mark(name, c)) for _, style, mark in chart.marks] for _, name, c in rows]
    largest = max([c[chart.counter] for _, _, c in rows] + [v for row in marks for _, v in row if v is not None])
    left, width, right, top, step, thick = 250, 400, 70, 44, 28, 18
    scale = width / largest
    bottom = top + step * len(rows)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + right}" height="{bottom + 36}" '
           f'viewBox="0 0 {left + width + right} {bottom + 36}" role="img">',
           f"<title>{escape(chart.title)}</title>", f"<style>{STYLE}</style>",
           f'<text class="title" x="8" y="22">{escape(chart.title)}</text>']
    for i, (label, _, counters) in enumerate(rows):
        y, value = top + i * step, counters[chart.counter]
        out.append(f'<text x="{left - 10}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        out.append(f'<rect class="bar" x="{left}" y="{y}" width="{value * scale:.1f}" height="{thick}"/>')
        ends = [value] + [v for _, v in marks[i] if v is not None]
        out.append(f'<text x="{left + max(ends) * scale + 8:.1f}" y="{y + 14}">{number(value)}</text>')
        for style, mark in marks[i]:
            if mark is not None:
                x = left + mark * scale
                out.append(f'<line class="{style}" x1="{x:.1f}" y1="{y - 3}" x2="{x:.1f}" y2="{y + thick + 3}"/>')
    out.append(f'<line class="axis" x1="{left}" y1="{top - 6}" x2="{left}" y2="{bottom - 4}"/>')
    x = left
    for label, style, _ in chart.marks:
        out.append(f'<line class="{style}" x1="{x + 4}" y1="{bottom + 8}" x2="{x + 4}" y2="{bottom + 24}"/>')
        out.append(f'<text x="{x + 14}" y="{bottom + 21}">{escape(label)}</text>')
        x += 34 + 8 * len(label)
    return "\n".join(out + ["</svg>"]) + "\n"


# --- Writing -----------------------------------------------------------------------------------------------------


def adopt(files, folder):
    """Copies result files into the folder without the fields that name a machine or a path on it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        read_file(path)  # refuses what is not a result
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in NAMES_THE_MACHINE:
            content["context"].pop(key, None)
        if "executable" in content["context"]:
            content["context"]["executable"] = Path(content["context"]["executable"]).name
        (folder / path.name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"took over {path.name}")


def outputs(root, allow_missing):
    """{path: text} of everything that follows from the results."""
    folder = root / "bench" / "results"
    results = read_results(folder)
    if not results:
        return {}
    written = {folder / "summary.json": json.dumps(summarize(results, allow_missing), indent=2) + "\n"}
    readme = root / "README.md"
    if readme.exists():
        written[readme] = with_tables(readme.read_text(encoding="utf-8"), results)
    for name, chart in CHARTS.items():
        drawing = svg(chart, results)
        if drawing is not None:
            written[folder / name] = drawing
    return written


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    parser.add_argument("--adopt", type=Path, nargs="+", default=[], metavar="FILE",
                        help="result files to take over first")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something is out of date")
    parser.add_argument("--allow-missing", action="store_true", help="report although needed benchmarks are missing")
    options = parser.parse_args(arguments)
    try:
        if options.check and options.adopt:
            raise Refused("--check writes nothing, so it cannot go with --adopt")
        adopt(options.adopt, options.root / "bench" / "results")
        written = outputs(options.root, options.allow_missing)
    except (Refused, OSError) as problem:
        print(f"report.py: {problem}", file=sys.stderr)
        return 1
    if not written:
        print("bench/results holds no results: nothing to report")
        return 0
    stale = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'out of date' if options.check else 'wrote'}: {path.relative_to(options.root)}")
        if not options.check:
            path.write_text(written[path], encoding="utf-8")
    if not stale:
        print(f"{len(written)} files are up to date")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
