# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of report.py for the README's first page: one line of figures, and a table for each algorithm in which this
library and its peers have the same columns. Below each table, sentences say where others are better.

A cell whose benchmark has no result says `not measured`; the reason is below the table, where it is known.
"""
from dataclasses import dataclass, field

MISSING = "not measured"
# The part by which another implementation must be better to be named: times differ by so much from run to run, sizes
# do not.
NOTICED = {"speed": 0.02, "size": 0.001, "memory": 0.05, "error": 0.05}
WORDS = {"speed": "Faster", "size": "Smaller", "memory": "Less memory", "error": "More exact"}


def plain(digits=0, factor=1.0):
    return lambda value: f"{factor * value:,.{digits}f}"


def percent(digits=2):
    return lambda value: f"{100 * value:.{digits}f} %"


@dataclass(frozen=True)
class Column:
    """benchmark: a name with a place for the implementation's name. kind: a key of NOTICED; empty: no comparison."""
    heading: str
    benchmark: str
    counter: str
    form: object
    kind: str = ""
    is_larger_better: bool = False


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
            texts.append(f"{row.label} ({errors[0] if errors else 'no result yet'})")
    return ["", f"Not measured, or not all of it: {'; '.join(texts)}."] if texts else []


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
                found.setdefault(column.kind, {}).setdefault(row.label, []).append(f"{column.heading}: {texts}")
    return found


def paragraph(results, overview):
    lines = []
    for kind, by_whom in ahead(results, overview).items():
        who = "; ".join(f"{label} ({', '.join(several)})" for label, several in by_whom.items())
        lines.append((list(WORDS).index(kind), f"* {WORDS[kind]}: {who}."))
    if not lines:
        return []
    return ["", "Others are ahead here:", "", *(line for _, line in sorted(lines))]


def table(results, overview):
    headings = [column.heading for column in overview.columns]
    lines = [f"**{overview.title}** {overview.note}", "", "| | " + " | ".join(headings) + " |",
             "|---|" + "---:|" * len(headings)]
    lines += [f"| {row.label} | " + " | ".join(cell(results, column, row) for column in overview.columns) + " |"
              for row in overview.rows if was_measured(results, overview, row)]
    return "\n".join(lines + missing(results, overview) + paragraph(results, overview))


# --- Contents -----------------------------------------------------------------------------------------------------

GEMMA, REAL = "8192x256000x2304", "8192x512x576"  # tokens, vocabulary, channels
CLASSIFIERS = {"Gemma": GEMMA, "Llama": "8192x128256x4096"}


def weights():
    columns = []
    for heading, data in [("real", "bf16/minilm/512MiB"), ("normal", "bf16/gauss/512MiB")]:
        columns += [Column(f"bits ({heading})", f"{{who}}/decode/{data}", "bits_per_weight", plain(2), "size"),
                    Column(f"TB/s decoded ({heading})", f"{{who}}/decode/{data}", "TBps", plain(2), "speed", True),
                    Column(f"TB/s encoded ({heading})", f"{{who}}/encode/{data}", "TBps", plain(2), "speed", True)]
    return Overview("Weights in bf16, 512 MiB, without loss.",
                    "Real: MiniLM's, repeated; normal: N(0, 0.02). nvCOMP is called through C, with its best settings, "
                    "and leaves its output unpacked; encoding from Python waits and packs.",
                    columns, [Row("tessera, NeuZip, from Python", "tessera"),
                              Row("tessera, NeuZip, from C++", "neuzip"),
                              Row("nvCOMP's ANS", "nvcomp_ans", 0)])


def exact_names():
    """The loss alone is the same program with the filter and without."""
    return {f"{model} loss {unit}": f"tessera/forward/bf16/zipf/{size}"
            for model, size in CLASSIFIERS.items() for unit in ["ms", "MiB"]}


def names_with_4_gib():
    """Without a filter the time does not depend on the data."""
    return {f"{model} both {unit}": f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}"
            for model, size in CLASSIFIERS.items() for unit in ["ms", "MiB"]}


def losses():
    def error(heading, data, counter):
        return Column(heading, f"{{who}}/forward_backward/bf16/{data}", counter, percent(2), "error")

    columns = [error("error (real)", f"real/{REAL}", "hidden_error")]
    for model, size in CLASSIFIERS.items():
        forward, both = f"{{who}}/forward/bf16/zipf/{size}", f"{{who}}/forward_backward/bf16/zipf/{size}"
        columns += [Column(f"{model} loss ms", forward, "ms", plain(1), "speed"),
                    Column(f"{model} loss MiB", forward, "extra_MiB", plain(1), "memory"),
                    Column(f"{model} both ms", both, "ms", plain(1), "speed"),
                    Column(f"{model} both MiB", both, "extra_MiB", plain(1), "memory"),
                    error(f"{model} error", f"zipf/{size}", "hidden_error")]
    rows = [Row("tessera, by the paper's filter", "tessera"),
            Row("tessera, exact", "tessera_exact", names=exact_names()),
            Row("tessera, exact, allowed 4 GiB, from C++", "cut_cross_entropy", names=names_with_4_gib(),
                leaves_out=("error (real)", "Gemma error", "Llama error")),
            Row("Apple's cut-cross-entropy, by its filter", "apple_cce", 0),
            Row("Apple's, exact", "apple_cce_exact", 1), Row("torch.compile", "torch_compile", 1),
            Row("PyTorch", "torch_eager", 1), Row("PyTorch's linear_cross_entropy", "torch_native", 1),
            Row("Liger Kernel, Triton", "liger", 1), Row("Liger Kernel, CuTe", "liger_cute", 1),
            Row("QuACK", "quack", 1)]
    return Overview("The loss of a classifier, 8192 tokens,",
                    "Gemma 2 2B's 256000 x 2304 and Llama 3 8B's 128256 x 4096 in bf16: the loss alone, and both "
                    "passes. MiB are those beyond inputs and gradients; errors, those of the hidden states' gradient. "
                    "The data of both are synthetic, with entries as frequent as words; real: SmolLM2's hidden states "
                    "and 512 rows of its classifier. The loss alone is the same with the filter and without: it is for "
                    "gradients.", columns, rows)


def attention():
    def rate(heading, size):
        return Column(heading, f"{{who}}/{{operation}}/bf16/{size}", "TFLOPs", plain(0), "speed", True)

    def error(heading, data):
        return Column(heading, f"{{who}}/{{operation}}/bf16/d128/16k{data}", "relative_l1", percent(2), "error")

    columns = [error("error (real)", "/real"), error("error (offsets)", ""), error("error (normal)", "/normal"),
               rate("TFLOP/s", "d128/16k"), rate("causal", "d128/16k/causal"), rate("64 channels", "d64/16k"),
               rate("256 channels", "d256/16k"),
               Column("MiB", "{who}/{operation}/bf16/d128/16k", "extra_MiB", plain(0), "memory")]
    only = ("error (real)", "error (normal)")
    rows = [Row("tessera, SageAttention2, from Python", "tessera"),
            Row("the same from C++", "attention", leaves_out=("error (real)", "MiB")),
            Row("the authors' SageAttention 2", "sage2", 0),
            Row("the authors' SageAttention 2, scales for warps", "sage2_warps", 0), Row("SageAttention 1", "sage1", 0),
            Row("cuDNN in fp8, quantized by PyTorch", "cudnn_fp8", 0),
            Row("cuDNN in fp8, given codes", "cudnn_fp8", 0, "codes", only),
            Row("FlashAttention 3 in fp8, quantized by PyTorch", "fa3_fp8", 0),
            Row("FlashAttention 3 in fp8, given codes", "fa3_fp8", 0, "codes", only),
            Row("cuDNN in bf16", "cudnn", 0), Row("FlashAttention 3 in bf16", "fa3", 0),
            Row("FlashAttention 4 in bf16", "fa4", 0), Row("FlashAttention-2 in bf16", "flash2", 0)]
    return Overview("Attention from bf16 to bf16, 16K tokens, 128 channels,",
                    "2 x 16 heads. Errors are relative L1 against double precision. Real: SmolLM2's layer 15, "
                    "repeated, two of its heads of 64 channels side by side; offsets: channels of keys, queries and "
                    "values lie away from zero; normal: N(0, 1), where results are near zero, and errors of the same "
                    "size larger parts of them. MiB are those beyond inputs and the result.", columns, rows)


def caches():
    def step(heading, benchmark, counter, form, kind):
        return Column(heading, benchmark, counter, form, kind)

    found = []
    for title, note, size, ours in [
            ("A step of decoding, 16 sequences of 4K tokens, 32 heads of 128 channels,",
             "from Python, a layer. The data are synthetic; [Caches that fit](#caches-that-fit) has what "
             "merging costs on a real model.", "16x4k",
             [Row("tessera, MiniCache, layers merged", "tessera", operation="minicache_pair"),
              Row("tessera, MiniCache, a layer by itself", "tessera", operation="minicache_single")]),
            ("The same for 4 sequences of 128K tokens, 32 query heads, 8 key heads,",
             "values of ShadowKV on the host; it attends to what landmarks choose.", "4x128k",
             [Row("tessera, ShadowKV", "tessera", operation="shadow_kv")])]:
        benchmark = f"{{who}}/decode/{{operation}}/d128/{size}"
        columns = [step("us", benchmark, "ms", plain(0, 1e3), "speed"),
                   step("MiB on the GPU", benchmark, "cache_MiB", plain(0), "memory"),
                   step("MiB on the host", benchmark, "host_MiB", plain(0), ""),
                   step("error", benchmark, "relative_l1", percent(1), "error")]
        best = 1 if len(ours) > 1 else 0
        nowhere = ("MiB on the host",)
        if size == "16x4k":
            columns.pop(2)
            nowhere = ()
        rows = [*ours, Row("cuDNN over bf16", "cudnn", best, "bf16", nowhere),
                Row("FlashAttention-2 over bf16", "flash2", best, "bf16", nowhere)]
        found.append(Overview(title, note, columns, rows))
    return found


def overviews():
    return [weights(), losses(), attention(), *caches()]


# The line of figures: (text with places, [(benchmark, counter, form)]). A part is left out while a figure is missing.
HEADLINE = [
    ("**{} of 16 bits** for a bf16 weight, decoded at {} TB/s, bit for bit",
     [("neuzip/decode/bf16/gauss/512MiB", "bits_per_weight", plain(2)),
      ("neuzip/decode/bf16/gauss/512MiB", "TBps", plain(2))]),
    ("**{} MiB** for the loss of 256,000 entries, in {} ms (torch.compile: {} MiB, {} ms)",
     [(f"{who}/forward/bf16/zipf/{GEMMA}", counter, plain(digits))
      for who, first in [("cut_cross_entropy", 1), ("torch_compile", 0)]
      for counter, digits in [("extra_MiB", first), ("ms", 1)]]),
    ("**{} TFLOP/s** of attention from bf16 to bf16, quantization included (cuDNN in bf16: {})",
     [(f"{who}/forward/bf16/d128/16k", "TFLOPs", plain(0)) for who in ["attention", "cudnn"]]),
    ("**{} and {} times** the speed of bf16 caches when decoding over MiniCache's and ShadowKV's",
     [("minicache/decode/4bit/d128/64x4k", "speedup", plain(2)),
      ("shadow/decode/host/hit60/128k", "speedup", plain(2))]),
]


def headline(results):
    parts = []
    for text, figures in HEADLINE:
        values = [good(results, name, counter) for name, counter, _ in figures]
        if None not in values:
            parts.append(text.format(*(form(value) for value, (_, _, form) in zip(values, figures))))
    return f"On one NVIDIA H200: {'; '.join(parts)}." if parts else "Not measured yet."


def overview(results):
    """All tables; tables without any result are left out."""
    shown = [each for each in overviews() if any(was_measured(results, each, row) for row in each.rows)]
    return "\n\n".join(table(results, each) for each in shown) if shown else "Not measured yet."
