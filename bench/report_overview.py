# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of report.py that stand beside other implementations: the README's table of a figure for each kind of
algorithm, and for docs/measured.md a table for each in which this library and its peers have the same columns. Below
each of these, sentences say where others are better.

A cell whose benchmark has no result says `not measured`; the reason is below the table, where it is known.
"""
from dataclasses import dataclass, field

from report_contents import NATIVE_LOSSES

MISSING = "not measured"
# The part by which another implementation must be better to be named: times differ by so much from run to run, sizes
# do not.
NOTICED = {"speed": 0.02, "size": 0.001, "memory": 0.05, "error": 0.05}
WORDS = {"speed": "Faster", "size": "Smaller", "memory": "In less memory", "error": "More exact"}


def plain(digits=0, factor=1.0):
    return lambda value: f"{factor * value:,.{digits}f}"


def percent(digits=2):
    return lambda value: f"{100 * value:.{digits}f} %"


@dataclass(frozen=True)
class Column:
    """title: what the figures are; unit: theirs, where `form` does not write it. benchmark: a name with a place for the
    implementation's name. kind: a key of NOTICED; empty: no comparison."""
    title: str
    unit: str
    benchmark: str
    counter: str
    form: object
    kind: str = ""
    is_larger_better: bool = False

    @property
    def heading(self):
        return f"{self.title}, {self.unit}" if self.unit else self.title


@dataclass(frozen=True)
class Row:
    """who: the implementation in names of benchmarks. operation: the operation in these names, where it differs too.
    beside: the index of our row that does the same; -1: the row is ours. names: names of benchmarks, for columns in
    which they differ."""
    label: str
    who: str
    beside: int = -1
    operation: str = "forward"
    leaves_out: tuple = ()  # headings of columns that mean nothing here
    names: dict = field(default_factory=dict)

    def has(self, column):
        return column.heading not in self.leaves_out


@dataclass(frozen=True)
class Overview:
    title: str
    note: str
    columns: list
    rows: list = field(default_factory=list)


def good(results, name, counter):
    result = results.get(name)
    return None if result is None or result.error else result.counters.get(counter)


def name_of(column, row):
    return row.names.get(column.heading) or column.benchmark.format(who=row.who, operation=row.operation)


def value_of(results, column, row):
    return good(results, name_of(column, row), column.counter) if row.has(column) else None


def cell(results, column, row):
    if not row.has(column):
        return "–"
    value = value_of(results, column, row)
    return MISSING if value is None else column.form(value)


def was_measured(results, overview, row):
    return any(value_of(results, column, row) is not None for column in overview.columns)


def missing(results, overview):
    """The missing results in words: rows without any result, and why other rows are incomplete, where it is known."""
    texts = []
    for row in overview.rows:
        errors = [results[name].error.split("\n")[0] for name in
                  (name_of(column, row) for column in overview.columns if row.has(column))
                  if name in results and results[name].error]
        if errors or not was_measured(results, overview, row):
            texts.append(f"{row.label} ({errors[0] if errors else 'not run yet'})")
    return ["", f"There are no figures, or not all of them, of: {'; '.join(texts)}."] if texts else []


def is_ahead(column, other, ours):
    """Whether another implementation's figure is better than ours by more than repetitions differ."""
    if other is None or ours is None:
        return False
    least = 1 + NOTICED[column.kind]
    return other > ours * least if column.is_larger_better else other * least < ours


def ahead(results, overview):
    """Where others are better, in words: {kind: words}."""
    found = {}
    for row in overview.rows:
        if row.beside < 0:
            continue
        ours = overview.rows[row.beside]
        for column in overview.columns:
            if not column.kind:
                continue
            values = [value_of(results, column, each) for each in (row, ours)]
            if is_ahead(column, *values):
                texts = " against ".join(column.form(value) for value in values)
                text = f"{column.title}: {texts} {column.unit}".rstrip()
                found.setdefault(column.kind, {}).setdefault(row.label, []).append(text)
    return found


def paragraph(results, overview):
    lines = []
    for kind, by_whom in ahead(results, overview).items():
        who = "; ".join(f"{label} ({', '.join(several)})" for label, several in by_whom.items())
        lines.append((list(WORDS).index(kind), f"* {WORDS[kind]}: {who}."))
    if not lines:
        return []
    return ["", "Others do better than the row of tessera that does the same (their figure against tessera's):", "",
            *(line for _, line in sorted(lines))]


def table(results, overview):
    headings = [column.heading for column in overview.columns]
    lines = [f"**{overview.title}** {overview.note}", "", "| implementation | " + " | ".join(headings) + " |",
             "|---|" + "---:|" * len(headings)]
    lines += [f"| {row.label} | " + " | ".join(cell(results, column, row) for column in overview.columns) + " |"
              for row in overview.rows if was_measured(results, overview, row)]
    return "\n".join(lines + missing(results, overview) + paragraph(results, overview))


# --- Contents -----------------------------------------------------------------------------------------------------

GEMMA, REAL = "8192x256000x2304", "8192x512x576"  # tokens, vocabulary, channels
CLASSIFIERS = {"Gemma": GEMMA, "Llama": "8192x128256x4096"}


def weights():
    columns = []
    for data, name in [("real weights", "bf16/minilm/512MiB"), ("normal weights", "bf16/gauss/512MiB")]:
        columns += [
            Column(f"size of {data}", "bits per weight", f"{{who}}/decode/{name}", "bits_per_weight", plain(2), "size"),
            Column(f"decoding {data}", "TB/s", f"{{who}}/decode/{name}", "TBps", plain(2), "speed", True),
            Column(f"encoding {data}", "TB/s", f"{{who}}/encode/{name}", "TBps", plain(2), "speed", True)]
    return Overview("Lossless compression of 512 MiB of bf16 weights.",
                    "Rates are TB/s of uncompressed weights. The real weights are those of MiniLM, repeated; the "
                    "normal ones are N(0, 0.02). Encoding from Python waits for the size of the stream and copies it "
                    "into a tensor of that size. nvCOMP is called from C with its best settings and leaves gaps "
                    "between the parts of its output.",
                    columns, [Row("tessera's NeuZip from Python", "tessera"),
                              Row("tessera's NeuZip from C++", "neuzip"),
                              Row("nvCOMP's ANS", "nvcomp_ans", 0)])


# What is measured of a model's loss: (title, unit); the places are the model's.
LOSS_TIME, LOSS_MEMORY = ("{}'s loss", "ms"), ("memory for {}'s loss", "MiB")
BOTH_TIME, BOTH_MEMORY = ("{}'s loss and gradients", "ms"), ("memory for {}'s loss and gradients", "MiB")


def exact_names():
    """The loss alone is the same program with the filter and without."""
    return {", ".join(figure).format(model): f"tessera/forward/bf16/zipf/{size}"
            for model, size in CLASSIFIERS.items() for figure in [LOSS_TIME, LOSS_MEMORY]}


def names_with_4_gib():
    """Without a filter the time does not depend on the data."""
    return {", ".join(figure).format(model): f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}"
            for model, size in CLASSIFIERS.items() for figure in [BOTH_TIME, BOTH_MEMORY]}


def losses():
    def of(model, figure, operation, counter, kind):
        title, unit = figure
        return Column(title.format(model), unit, f"{{who}}/{operation}/bf16/zipf/{CLASSIFIERS[model]}", counter,
                      plain(1), kind)

    def error(title, data):
        return Column(title, "", f"{{who}}/forward_backward/bf16/{data}", "hidden_error", percent(2), "error")

    columns = [error("error on real data", f"real/{REAL}")]
    for model, size in CLASSIFIERS.items():
        columns += [of(model, LOSS_TIME, "forward", "ms", "speed"),
                    of(model, LOSS_MEMORY, "forward", "extra_MiB", "memory"),
                    of(model, BOTH_TIME, "forward_backward", "ms", "speed"),
                    of(model, BOTH_MEMORY, "forward_backward", "extra_MiB", "memory"),
                    error(f"error of {model}", f"zipf/{size}")]
    rows = [Row("tessera, filtered as in the paper", "tessera"),
            Row("tessera, exact", "tessera_exact", names=exact_names()),
            Row("tessera from C++, exact, allowed 4 GiB", "cut_cross_entropy", names=names_with_4_gib(),
                leaves_out=("error on real data", "error of Gemma", "error of Llama")),
            Row("Apple's cut-cross-entropy, filtered", "apple_cce", 0),
            Row("Apple's cut-cross-entropy, exact", "apple_cce_exact", 1), Row("torch.compile", "torch_compile", 1),
            Row("PyTorch", "torch_eager", 1), *(Row(label, who, 1) for who, label in NATIVE_LOSSES),
            Row("Liger Kernel in Triton", "liger", 1), Row("Liger Kernel in CuTe", "liger_cute", 1),
            Row("QuACK", "quack", 1)]
    return Overview("The loss of a classifier in bf16 for 8192 tokens.",
                    "The classifiers have the sizes of Gemma 2 2B's (256,000 vocabulary entries, 2304 channels) and of "
                    "Llama 3 8B's (128,256 entries, 4096 channels), and synthetic data in which entries are as "
                    "unequally frequent as words. The real data are SmolLM2's hidden states and 512 rows of its "
                    "classifier. Memory is what a call holds besides its inputs and gradients. Errors are those "
                    "of the hidden states' gradient, relative to the exact one. The filter leaves out small parts of "
                    "gradients; the loss is the same with it and without.", columns, rows)


def attention():
    def rate(title, size):
        return Column(title, "TFLOP/s", f"{{who}}/{{operation}}/bf16/{size}", "TFLOPs", plain(0), "speed", True)

    def error(data, name):
        return Column(f"error on {data}", "", f"{{who}}/{{operation}}/bf16/d128/16k{name}", "relative_l1", percent(2),
                      "error")

    columns = [error("real data", "/real"), error("data with offsets", ""), error("normal data", "/normal"),
               rate("speed", "d128/16k"), rate("speed with a causal mask", "d128/16k/causal"),
               rate("speed with 64 channels", "d64/16k"), rate("speed with 256 channels", "d256/16k"),
               Column("extra memory", "MiB", "{who}/{operation}/bf16/d128/16k", "extra_MiB", plain(0), "memory")]
    only = ("error on real data", "error on normal data")
    rows = [Row("tessera's SageAttention2 from Python", "tessera"),
            Row("tessera's SageAttention2 from C++", "attention",
                leaves_out=("error on real data", "extra memory, MiB")),
            Row("SageAttention 2 by its authors", "sage2", 0),
            Row("SageAttention 2 by its authors, one scale per warp", "sage2_warps", 0),
            Row("SageAttention 1", "sage1", 0),
            Row("cuDNN in fp8, quantized by PyTorch", "cudnn_fp8", 0),
            Row("cuDNN in fp8, quantized before", "cudnn_fp8", 0, "codes", only),
            Row("FlashAttention 3 in fp8, quantized by PyTorch", "fa3_fp8", 0),
            Row("FlashAttention 3 in fp8, quantized before", "fa3_fp8", 0, "codes", only),
            Row("cuDNN in bf16", "cudnn", 0), Row("FlashAttention 3 in bf16", "fa3", 0),
            Row("FlashAttention 4 in bf16", "fa4", 0), Row("FlashAttention-2 in bf16", "flash2", 0)]
    return Overview("Attention from bf16 inputs to bf16 results, 2 sequences of 16K tokens, 16 heads.",
                    "Heads have 128 channels unless the column says otherwise; with 64 channels there are 32 heads, "
                    "with 256 there is 1 sequence. Speeds include the quantization, except in the rows \"quantized "
                    "before\". An error is the sum of the absolute differences from attention in double precision, "
                    "over the sum of the absolute values there. Real data are the heads of SmolLM2's layer 15, "
                    "repeated, two of 64 channels side by side. In data with offsets the channels of queries, keys and "
                    "values lie away from zero. Normal data are N(0, 1): results are then near zero, so that relative "
                    "errors are larger. Extra memory is that besides inputs and results.", columns, rows)


def caches():
    found = []
    for title, note, size, ours in [
            ("A decoding step of one layer from Python: 16 sequences of 4K tokens, 32 heads of 128 channels.",
             "The data are synthetic; [the guide](guide.md#caches-that-fit) has what merging costs on a real model. "
             "The memory is that of two layers, and the error is relative to attention in double precision to the "
             "original keys and values.", "16x4k",
             [Row("tessera's MiniCache, layers merged in pairs", "tessera", operation="minicache_pair"),
              Row("tessera's MiniCache, each layer by itself", "tessera", operation="minicache_single")]),
            ("The same step for 4 sequences of 128K tokens, 32 query heads and 8 key heads.",
             "ShadowKV keeps values on the host and attends to the tokens that its landmarks choose. The memory is "
             "that of one layer.", "4x128k",
             [Row("tessera's ShadowKV", "tessera", operation="shadow_kv")])]:
        benchmark = f"{{who}}/decode/{{operation}}/d128/{size}"
        columns = [Column("time", "µs", benchmark, "ms", plain(0, 1e3), "speed"),
                   Column("cache on the GPU", "MiB", benchmark, "cache_MiB", plain(0), "memory"),
                   Column("cache on the host", "MiB", benchmark, "host_MiB", plain(0), ""),
                   Column("error", "", benchmark, "relative_l1", percent(1), "error")]
        best = 1 if len(ours) > 1 else 0
        nowhere = ("cache on the host, MiB",)
        if size == "16x4k":
            columns.pop(2)
            nowhere = ()
        rows = [*ours, Row("cuDNN over keys and values in bf16", "cudnn", best, "bf16", nowhere),
                Row("FlashAttention-2 over keys and values in bf16", "flash2", best, "bf16", nowhere)]
        found.append(Overview(title, note, columns, rows))
    return found


def overviews():
    return [weights(), losses(), attention(), *caches()]


CACHE_FIGURES = [("ms", plain(0, 1e3)), ("cache_MiB", plain(0)), ("relative_l1", percent(1))]
# Rows of the README's table: what was measured, and for this library and for another a text with places and
# [(benchmark, counter, form)]. A row is left out while a figure is missing.
HEADLINE = [
    ("NeuZip: lossless bf16 weights",
     ("**{} of 16 bits**, decoded at {} TB/s", [("tessera/decode/bf16/gauss/512MiB", "bits_per_weight", plain(2)),
                                                ("tessera/decode/bf16/gauss/512MiB", "TBps", plain(2))]),
     ("nvCOMP's ANS: {} bits, {} TB/s", [("nvcomp_ans/decode/bf16/gauss/512MiB", "bits_per_weight", plain(2)),
                                         ("nvcomp_ans/decode/bf16/gauss/512MiB", "TBps", plain(2))])),
    ("Cut Cross-Entropy: loss of 8192 tokens, 256,000 entries",
     ("**{} MiB** of extra memory, {} ms", [(f"tessera/forward/bf16/zipf/{GEMMA}", "extra_MiB", plain(1)),
                                            (f"tessera/forward/bf16/zipf/{GEMMA}", "ms", plain(1))]),
     ("torch.compile: {} MiB, {} ms", [(f"torch_compile/forward/bf16/zipf/{GEMMA}", "extra_MiB", plain(0)),
                                       (f"torch_compile/forward/bf16/zipf/{GEMMA}", "ms", plain(1))])),
    ("SageAttention2: bf16 to bf16, 16K tokens of a real layer",
     ("**{} TFLOP/s**, error {}", [("tessera/forward/bf16/d128/16k/real", "TFLOPs", plain(0)),
                                   ("tessera/forward/bf16/d128/16k/real", "relative_l1", percent(1))]),
     ("FlashAttention 3 in bf16: {}, {}; in fp8: {}, {}",
      [(f"{who}/forward/bf16/d128/16k/real", counter, form) for who in ["fa3", "fa3_fp8"]
       for counter, form in [("TFLOPs", plain(0)), ("relative_l1", percent(1))]])),
    ("MiniCache, ShadowKV: a step over 64K and 512K tokens",
     ("**{} and {} µs**, {} and {} MiB, errors {} and {}", [
         (f"tessera/decode/{name}", counter, form) for counter, form in CACHE_FIGURES
         for name in ["minicache_single/d128/16x4k", "shadow_kv/d128/4x128k"]]),
     ("cuDNN in bf16: {} and {} µs, {} and {} MiB, {} and {}", [
         (f"cudnn/decode/bf16/d128/{size}", counter, form) for counter, form in CACHE_FIGURES
         for size in ["16x4k", "4x128k"]])),
]


def filled(results, text, figures):
    """The text with its figures, or None while one is missing."""
    values = [good(results, name, counter) for name, counter, _ in figures]
    return None if None in values else text.format(*(form(value) for value, (_, _, form) in zip(values, figures)))


def headline(results):
    lines = []
    for what, ours, others in HEADLINE:
        cells = [filled(results, *side) for side in (ours, others)]
        if None not in cells:
            lines.append(f"| {what} | {cells[0]} | {cells[1]} |")
    heading = "| measured from Python on one H200 | tessera | beside it |\n|---|---|---|\n"
    return heading + "\n".join(lines) if lines else "Not measured yet."


def overview(results):
    """All tables; tables without any result are left out."""
    shown = [each for each in overviews() if any(was_measured(results, each, row) for row in each.rows)]
    return "\n\n".join(table(results, each) for each in shown) if shown else "Not measured yet."
