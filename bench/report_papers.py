# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of report.py for examples/papers: what its programs found on a GPU (`papers_NAME_cuda --json`), beside
others that do the same (peers/papers.py, peers/sequences.py, peers/distillation.py)."""
from report_contents import CLASSIFIERS, number

GEMMA, LLAMA = (CLASSIFIERS[model][1] for model in ["gemma", "llama"])
BF16 = "cuBLAS with bf16 weights"


def by_compiler(kind, size, lacks=""):
    return [(f"`torch.compile` over all tokens{lacks}, in {{extra_MiB:.0f}} MiB",
             f"torch_compile/{kind}/forward_backward/bf16/spread/{size}")]


def products(tokens):
    size = f"papers/weight_only_linear/{tokens}x28672x8192"
    return [("`torch._weight_int4pack_mm`", f"torch_int4/{size}"), (BF16, f"cublas/{size}")]


def scaled_products(before, how):
    size = "papers/group_scaled_linear/4096x18432x7168"
    return [(f"`torch._scaled_mm` with scales of blocks{how}", f"scaled_mm{before}/{size}"),
            (f"`torch._scaled_mm` with scales of rows{how}", f"scaled_mm_rows{before}/{size}")]


def dense(size):
    return [("FlashAttention-2 over bf16", f"flash2/papers/{size}"), ("cuDNN over bf16", f"cudnn/papers/{size}")]


# Program, what was run, the benchmark's name after papers/PROGRAM/, and labels and benchmarks of peers, of which the
# fastest is shown. A label has the peer's own counters where it names them.
ROWS = [
    ("kivi_decode", "48 sequences of 8256 tokens, 8 key heads, 2 bits", "384_key_heads_8256_tokens",
     dense("kivi_decode/384x8256")),
    *(("weight_only_linear", f"{tokens} token{'s' * (tokens > 1)}, 28672 x 8192", f"{tokens}_tokens_28672_x_8192",
       products(tokens)) for tokens in [1, 16, 256, 4096]),
    ("quest_selection", "64 key heads, 128 of 4096 pages", "64_key_heads_128_of_4096_pages",
     [("the same by PyTorch's operations", "torch_eager/papers/quest_selection/64x4096x128")]),
    ("group_scaled_linear", "4096 tokens, 18432 x 7168, inputs quantized in the call", "4096_tokens_18432_x_7168",
     scaled_products("", ", inputs quantized by PyTorch's operations")),
    ("group_scaled_linear", "the product alone", None, scaled_products("_before", "")),
    ("distillation_loss", "2048 tokens, 128256 x 2048, loss and gradient", "2048_tokens_128256_x_2048",
     [("`torch.compile`", "torch_compile/papers/distillation_loss/2048x128256x2048"),
      ("PyTorch's operations", "torch_eager/papers/distillation_loss/2048x128256x2048")]),
    ("skew_distillation", "8192 tokens, 128256 x 4096 from 4096, loss and gradients",
     "8192_tokens_128256_x_4096_from_4096", []),
    *(("policy_gradient_loss", f"8192 tokens, {entries} x {channels}, loss and gradients, in at most 160 MiB",
       f"8_x_1024_tokens_{entries}_x_{channels}",
       by_compiler("policy", f"8192x{entries}x{channels}", ", without entropies"))
      for entries, channels in [(128256, 4096), (256000, 2304)]),
    *(("preference_loss", f"4 pairs, 8192 tokens, {entries} x {channels}, loss and gradients, in at most 160 MiB",
       f"4_pairs_1024_tokens_each_{entries}_x_{channels}", by_compiler("preference", f"8192x{entries}x{channels}"))
      for entries, channels in [(128256, 4096), (256000, 2304)]),
    ("softmax_top_k", "4096 x 128256, top 8", "4096_x_128256_top_8",
     [("`torch.logsumexp`, `torch.topk`", "torch_eager/papers/softmax_top_k/4096x128256x8")]),
    ("float8_attention", "16 heads of 128 channels, 8192 tokens", "16_heads_of_128_8192_tokens",
     dense("float8_attention/16x8192")),
    ("eight_bit_adam", "2^28 parameters, a step", "268435456_parameters",
     [("`torch.optim.AdamW(fused=True)`, moments in fp32", "torch_fused/papers/eight_bit_adam/268435456")]),
    *(("kvtc", f"{what} 524288 tokens of 128 channels, {{bits:.2f}} bits a value", f"524288_tokens_of_128_{end}", [])
      for what, end in [("coding", "encoded"), ("decoding", "decoded")]),
]


def counters_of(results, benchmark):
    """Of a benchmark that was measured; else nothing."""
    result = results.get(benchmark)
    return {} if result is None or result.error else result.counters


def short(value):
    return "–" if value is None else f"{value:.2g}"


def milliseconds(value):
    return "–" if value is None else f"{value:#.3g}".rstrip(".")


def line_of(program, what, found, peers):
    """A row of the table, or none where neither was measured."""
    measured = [(counters["ms"], label.format(**counters)) for label, counters in peers if "ms" in counters]
    if not found and not (measured and program == ""):
        return None
    ms, peer = min(measured) if measured else (None, "–")
    cells = [f"`{program}`" if program else "", what.format(**found) if found else what,
             short(found.get("error")), milliseconds(found.get("ms")),
             number(found.get("TBps")), number(found.get("TFLOPs"), 0), peer, milliseconds(ms)]
    return "| " + " | ".join(cells) + " |"


def papers(results, described):
    """`described` says of a context where and when a result was measured."""
    lines, before, runs = [], None, set()
    for program, what, name, peers in ROWS:
        found = counters_of(results, f"papers/{program}/{name}")
        line = line_of(program if program != before else "", what, found,
                       [(label, counters_of(results, benchmark)) for label, benchmark in peers])
        if line is not None:
            lines.append(line)
            before = program
            runs |= {described(results[each].context, False) for each in [
                f"papers/{program}/{name}", *(benchmark for _, benchmark in peers)] if counters_of(results, each)}
    if before is None or not any(name.startswith("papers/") for name in results):
        return "Not measured yet."
    return "\n".join(["| program | what was run | error | ms | TB/s | TFLOP/s | best peer | ms |",
                      "|---|---|---:|---:|---:|---:|---|---:|", *lines, "",
                      "Measured on: " + "; ".join(sorted(runs)) + "."])


def cells_table(headings, rows, results):
    """Rows of (label, benchmarks) with the time and the extra memory of each."""
    lines = []
    for label, benchmarks in rows:
        found = [counters_of(results, benchmark) for benchmark in benchmarks]
        cells = [f"{number(c['ms'], 1)}; {number(c['extra_MiB'], 0)}" if "extra_MiB" in c else "–" for c in found]
        if set(cells) != {"–"}:
            lines.append(f"| {label} | " + " | ".join(cells) + " |")
    if not lines:
        return "Not measured yet."
    return "\n".join(["| | " + " | ".join(headings) + " |", "|---|" + "---:|" * len(headings), *lines])


def sequences(results):
    sizes = [(kind, size) for kind in ["policy", "preference"] for size in [LLAMA, GEMMA]]
    headings = [f"{kind}, {' x '.join(size.split('x')[1:])}" for kind, size in sizes]
    return cells_table(headings, [
        (label, [f"{who}/{kind}/forward_backward/bf16/spread/{size}" for kind, size in sizes]) for label, who in [
            ("`linear_log_probabilities`", "tessera"), ("with up to 4 GiB", "tessera_4gib"),
            ("PyTorch by 1024 tokens, logits kept", "torch_chunks_kept"),
            ("PyTorch by 1024 tokens, logits made again", "torch_chunks"), ("Liger Kernel", "liger"),
            ("`torch.compile` over all tokens", "torch_compile"), ("PyTorch", "torch_eager")]], results)


def distillation(results):
    sizes = [(kind, size) for kind in ["jensen_shannon", "forward_kl"] for size in [LLAMA, GEMMA]]
    headings = [f"`{kind}`, {' x '.join(size.split('x')[1:])}" for kind, size in sizes]
    return cells_table(headings, [
        *((label, [f"linear_distillation/{kind}/forward_backward{budget}/bf16/spread/{size}" for kind, size in sizes])
          for label, budget in [("`linear_distillation`", "")] + [
              (f"with up to {size} GiB", f"_{size}GiB") for size in [1, 4, 6]]),
        *((label, [f"{who}/distillation/{kind}/bf16/spread/{size}" for kind, size in sizes]) for label, who in [
            ("PyTorch by 1024 tokens, `torch.compile`", "torch_chunks"), ("Liger Kernel in Triton", "liger"),
            ("`torch.compile` over all tokens", "torch_compile"), ("PyTorch", "torch_eager")])], results)


def tables(results, described):
    return {"papers": papers(results, described), "papers-sequences": sequences(results),
            "papers-distillation": distillation(results)}
