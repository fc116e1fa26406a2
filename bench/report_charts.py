# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The contents of the plots of bars (report_bars.py): which benchmarks stand beside each other, and what titles say."""
import report_python
from report_bars import Bar, Bars, Group, Panel
from report_contents import CLASSIFIERS, PEER_TBPS, floor, number


def good(results, name, counter):
    result = results.get(name)
    return None if result is None or result.error else result.counters.get(counter)


def span(values, digits=0):
    """The least and the most of some numbers, in words."""
    texts = [number(value, digits) for value in (min(values), max(values))]
    return texts[0] if texts[0] == texts[1] else " to ".join(texts)


def ratios(results, counter, pairs):
    """The first over the second of each pair of benchmarks, or None where one is missing."""
    found = []
    for names in pairs:
        values = [good(results, name, counter) for name in names]
        if None in values:
            return None
        found.append(values[0] / values[1])
    return found


# --- The loss -----------------------------------------------------------------------------------------------------


def loss_bars(size):
    """Loss and gradients; without a filter the time does not depend on the data."""
    def of(who, operation="forward_backward"):
        return f"{who}/{operation}/bf16/zipf/{size}"

    large = f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}"
    return [Bar("tessera, exact", "tessera", of("tessera_exact")),
            Bar("tessera, exact, allowed 4 GiB", "tessera", large),
            Bar("torch.compile", "pytorch", of("torch_compile")), Bar("PyTorch", "pytorch", of("torch_eager")),
            Bar("QuACK", "quack", of("quack")), Bar("Liger Kernel, CuTe", "liger", of("liger_cute")),
            Bar("Liger Kernel, Triton", "liger", of("liger")),
            Bar("Apple's CCE, exact", "apple", of("apple_cce_exact")),
            Bar("tessera, filtered", "tessera", of("tessera")), Bar("Apple's CCE, filtered", "apple", of("apple_cce"))]


def loss_title(results):
    def pairs(counter, turned=False):
        names = [[f"{who}/forward_backward/bf16/zipf/{size}" for who in ["torch_compile", "tessera_exact"]]
                 for _, size in CLASSIFIERS.values()]
        return ratios(results, counter, [pair[::-1] for pair in names] if turned else names)

    memory, time = pairs("extra_MiB"), pairs("ms", turned=True)
    if memory is None or time is None:
        return None
    return (f"An exact loss with gradients in {span(memory)} times less memory than torch.compile's, "
            f"for {span(time, 1)} times its time")


LOSS = Bars(loss_title, [
    "8192 tokens in bf16 on one H200; entries are as unequally frequent as words. Memory: beyond inputs and gradients.",
    "\"Filtered\" leaves out small parts of gradients, as in the paper: that changes them by 9 to 15 % on these data."],
    [Group(f"{name}'s classifier: {int(size.split('x')[1]):,} entries, {size.split('x')[2]} channels", loss_bars(size))
     for name, size in CLASSIFIERS.values()],
    [Panel("extra memory, MiB", "less is better; logarithmic", "extra_MiB", digits=1, is_logarithmic=True),
     Panel("time, ms", "less is better", "ms", digits=1)])


def loss_alone_title(results):
    pairs = [[f"{who}/forward/bf16/zipf/{size}" for who in ["torch_compile", "tessera"]]
             for _, size in CLASSIFIERS.values()]
    time, memory = ratios(results, "ms", pairs), good(results, pairs[0][1], "extra_MiB")
    if time is None or memory is None:
        return None
    return f"The loss alone: {memory:.1f} MiB of memory, and {span(time, 2)} times as fast as torch.compile"


LOSS_ALONE = Bars(loss_alone_title, ["8192 tokens in bf16 on one H200. Memory: what a call holds beyond its inputs."], [
    Group(f"{name}'s classifier: {int(size.split('x')[1]):,} entries, {size.split('x')[2]} channels", [
        Bar(label, library, f"{who}/forward/bf16/zipf/{size}") for label, library, who in [
            ("tessera", "tessera", "tessera"), ("torch.compile", "pytorch", "torch_compile"),
            ("PyTorch", "pytorch", "torch_eager"), ("QuACK", "quack", "quack"),
            ("Liger Kernel, CuTe", "liger", "liger_cute"), ("Liger Kernel, Triton", "liger", "liger"),
            ("Apple's CCE", "apple", "apple_cce")]]) for name, size in CLASSIFIERS.values()], LOSS.panels)

# --- Attention ----------------------------------------------------------------------------------------------------

# Label, library, and the beginning of names of benchmarks; all from bf16 to bf16, quantization included.
ATTENTION = [("tessera's SageAttention2", "tessera", "tessera"),
             ("SageAttention 2 by its authors", "sage", "sage2_warps"), ("SageAttention 1", "sage", "sage1"),
             ("cuDNN, fp8", "cudnn", "cudnn_fp8"), ("FlashAttention 3, fp8", "flash", "fa3_fp8"),
             ("FlashAttention 4, bf16", "flash", "fa4"), ("FlashAttention 3, bf16", "flash", "fa3"),
             ("cuDNN, bf16", "cudnn", "cudnn"), ("FlashAttention-2, bf16", "flash", "flash2")]
IN_BF16, IN_FP8 = ["fa4", "fa3", "cudnn", "flash2"], ["cudnn_fp8", "fa3_fp8"]


def attention_bars(case):
    return [Bar(label, library, f"{who}/forward/bf16/{case}") for label, library, who in ATTENTION]


def best(results, who, case, counter):
    values = [good(results, f"{each}/forward/bf16/{case}", counter) for each in who]
    known = [value for value in values if value is not None]
    return (max if counter == "TFLOPs" else min)(known) if known else None


def attention_title(results):
    case = "d128/16k/real"
    rate, error = (good(results, f"tessera/forward/bf16/{case}", counter) for counter in ["TFLOPs", "relative_l1"])
    dense, fp8 = best(results, IN_BF16, case, "TFLOPs"), best(results, IN_FP8, case, "relative_l1")
    if None in (rate, error, dense, fp8):
        return None
    return (f"Attention on a real layer: {rate / dense:.1f} times the speed of the fastest in bf16, at an error of "
            f"{100 * error:.1f} % (in fp8: {100 * fp8:.1f} %)")


def percent(value):
    return f"{value:.2f} %" if value < 1 else f"{value:.1f} %"


SPEED = Panel("speed, TFLOP/s", "more is better; quantization included", "TFLOPs")
ATTENTION_ON_REAL_DATA = Bars(attention_title, [
    "2 sequences of 16K tokens, 16 heads of 128 channels (SmolLM2's layer 15, repeated), bf16 to bf16, one H200.",
    "Error: sum of absolute differences from attention in double precision, over the sum of absolute values there."],
    [Group("without a mask", attention_bars("d128/16k/real")),
     Group("with a causal mask", attention_bars("d128/16k/causal/real"))],
    [SPEED, Panel("error", "less is better", "relative_l1", 100, percent)])

SIZES = [(f"{channels} channels, {length.upper()} tokens", f"d{channels}/{length}")
         for channels, lengths in [(64, ["4k", "16k"]), (128, ["4k", "16k", "32k"]), (256, ["16k"])]
         for length in lengths]
MASKS = [("", "without a mask"), ("/causal", "causal")]


def sizes_title(results):
    """Counts the sizes in which this library is the fastest."""
    others = [who for _, _, who in ATTENTION[1:]]
    pairs = [(good(results, f"tessera/forward/bf16/{case}{mask}", "TFLOPs"),
              best(results, others, f"{case}{mask}", "TFLOPs")) for _, case in SIZES for mask, _ in MASKS]
    known = [pair for pair in pairs if None not in pair]
    if not known:
        return None
    return (f"Attention by size: tessera's SageAttention2 is the fastest from bf16 to bf16 in "
            f"{sum(ours > most for ours, most in known)} of {len(known)} cases")


ATTENTION_BY_SIZE = Bars(sizes_title, ["8, 2 and 1 sequences of 4K, 16K and 32K tokens (256 channels: 1 of 16K), "
                                       "speed in TFLOP/s on one H200."],
                         [Group(title, [Bar(label, library, [f"{who}/forward/bf16/{case}{mask}" for mask, _ in MASKS])
                                        for label, library, who in ATTENTION]) for title, case in SIZES],
                         [Panel(f"speed, {title}", "more is better", "TFLOPs") for _, title in MASKS])

# --- Caches -------------------------------------------------------------------------------------------------------


def cache_title(results):
    ours = ["tessera/decode/minicache_single/d128/16x4k", "tessera/decode/shadow_kv/d128/4x128k"]
    pairs = [[f"cudnn/decode/bf16/{name.split('/', 3)[3]}", name] for name in ours]
    time, memory = ratios(results, "ms", pairs), ratios(results, "cache_MiB", pairs)
    errors = [good(results, name, "relative_l1") for name in ours]
    if time is None or memory is None or None in errors:
        return None
    return (f"Decoding over smaller caches: {span(time, 1)} times as fast, in {span(memory, 1)} times less GPU memory, "
            f"errors of {span([100 * e for e in errors])} %")


def cache_bars(size, *ours):
    return [*(Bar(label, "tessera", f"tessera/decode/{operation}/d128/{size}") for label, operation in ours),
            Bar("cuDNN, bf16", "cudnn", f"cudnn/decode/bf16/d128/{size}"),
            Bar("FlashAttention-2, bf16", "flash", f"flash2/decode/bf16/d128/{size}")]


CACHES = Bars(cache_title, [
    "One step from Python on one H200, 128 channels; synthetic data, on which merged layers are alike.",
    "Error: as for attention, relative to the original keys and values. ShadowKV also keeps 1,025 MiB on the host."],
    [Group("16 sequences of 4K tokens, 32 heads, two layers", cache_bars(
        "16x4k", ("tessera's MiniCache, 4 bits", "minicache_single"),
        ("the same, layers merged in pairs", "minicache_pair"))),
     Group("4 sequences of 128K tokens, 32 query and 8 key heads, one layer", cache_bars(
         "4x128k", ("tessera's ShadowKV", "shadow_kv")))],
    [Panel("GPU memory, MiB", "less is better", "cache_MiB"), Panel("a step, µs", "less is better", "ms", 1e3),
     Panel("error", "less is better", "relative_l1", 100, percent)])

# --- Weights ------------------------------------------------------------------------------------------------------

WEIGHTS = [("bf16, N(0, 0.02)", "bf16/gauss/512MiB"), ("bf16, MiniLM's, repeated", "bf16/minilm/512MiB"),
           ("fp16, N(0, 0.02)", "fp16/gauss/512MiB"), ("fp32, N(0, 0.02)", "fp32/gauss/512MiB")]


def weights_bars(name):
    """Benchmarks for the panels: decoding, encoding, size. DietGPU's have no file of results."""
    def of(who):
        return [f"{who}/decode/{name}", f"{who}/encode/{name}", f"{who}/decode/{name}"]

    return [Bar("tessera", "tessera", of("neuzip")), Bar("nvCOMP's ANS", "nvcomp", of("nvcomp_ans")),
            Bar("DietGPU", "dietgpu", [f"dietgpu/{way}" for way in of("neuzip")[:2]] + [""])]


def weights_title(results):
    bits = good(results, "neuzip/decode/bf16/gauss/512MiB", "bits_per_weight")
    pairs = [[f"{who}/decode/{name}" for who in ["neuzip", "nvcomp_ans"]] for _, name in WEIGHTS]
    rates = ratios(results, "TBps", pairs)
    if bits is None or rates is None:
        return None
    return f"NeuZip: bf16 weights in {bits:.1f} of 16 bits, decoded at {span(rates, 2)} times nvCOMP's speed"


NEUZIP = Bars(weights_title, [
    "512 MiB of weights on one H200, lossless. Lines: the rate at which the same bytes would run at a copy's speed.",
    "DietGPU's rates are of a run of its own on an H200; nvCOMP leaves gaps between the parts of its output."],
    [Group(title, weights_bars(name)) for title, name in WEIGHTS],
    [Panel("decoding, TB/s of weights", "more is better", "TBps", digits=2, mark=lambda name, c: floor(c)),
     Panel("encoding, TB/s of weights", "more is better", "TBps", digits=2, mark=lambda name, c: floor(c)),
     Panel("size, bits per weight", "less is better", "bits_per_weight", digits=2)],
    {f"dietgpu/{name}": rate for name, rate in PEER_TBPS.items()})

# --- Attention from Python ----------------------------------------------------------------------------------------


def python_bars(place, backends):
    rows = report_python.attention_rows(place, backends)
    return [Bar(report_python.plain(label), "tessera" if "/tessera/" in name else "pytorch", name)
            for label, name in rows]


def python_errors_title(results):
    names = [f"{report_python.ATTENTION}/{who}/error/real" for who in ["tessera/sage2", "tessera/int4", "torch/flash"]]
    errors = [good(results, name, "relative_l1") for name in names]
    if None in errors:
        return None
    return "Attention from Python on a layer of a real model: errors of {} in 8 bits, {} in 4, {} in bf16".format(
        *(percent(100 * error) for error in errors))


def python_speed_title(results):
    ours, theirs = (good(results, f"{report_python.ATTENTION}/{who}/forward/d128/16k", "TFLOPs")
                    for who in ["tessera/sage2", "torch/cudnn"])
    if None in (ours, theirs):
        return None
    return f"Attention from Python: 8 bits have {ours / theirs:.1f} times the speed of cuDNN in bf16"


PYTHON_ERRORS = Bars(python_errors_title, [
    "Causal, 512 tokens, 9 heads of 64 channels of SmolLM2's layer 15. Error: sum of absolute differences from",
    "attention in double precision, over the sum of absolute values there."],
    [Group("methods of attention()", python_bars("error/real", [("PyTorch in bf16", "flash")]))],
    [Panel("error", "less is better; logarithmic", "relative_l1", 100, percent, is_logarithmic=True)])

PYTHON_SPEED = Bars(python_speed_title, [
    "One H200, 2 sequences of 16K tokens, inputs in bf16 (fp16 where said): numbers with offsets, from a cold L2."],
    [Group(f"{channels} channels", [
        Bar(bar.label, bar.library, [f"{bar.names}{mask}" for mask, _ in MASKS])
        for bar in python_bars(f"forward/d{channels}/16k", report_python.BACKENDS)]) for channels in (128, 64)],
    [Panel(f"TFLOP/s, {title}", "more is better", "TFLOPs") for _, title in MASKS])

# --- The loss from Python -----------------------------------------------------------------------------------------


def python_loss_title(results):
    sizes = [size for _, size in CLASSIFIERS.values()]
    memory = [good(results, f"tessera/forward_backward/bf16/zipf/{size}", "extra_MiB") for size in sizes]
    time = ratios(results, "ms", [[f"{who}/forward_backward/bf16/zipf/{size}" for who in ["torch_compile", "tessera"]]
                                  for size in sizes])
    if time is None or None in memory:
        return None
    return (f"linear_cross_entropy with gradients: {span(memory)} MiB beside them, {span(time, 1)} times as fast as "
            "torch.compile on zipf data")


PYTHON_LOSS = Bars(python_loss_title, [
    "8192 tokens in bf16 on one H200. Logits: N(0, 1) in flat data, N(0, 2.4²) in spread data; in zipf data entries",
    "are as unequally frequent as words. The default leaves out small parts of gradients, filter_eps=None nothing.",
    "Error: length of the difference of e's gradient from the exact one, over the length of that."],
    [Group(f"{name}'s classifier: {int(size.split('x')[1]):,} entries, {size.split('x')[2]} channels",
           [Bar(*row) for row in report_python.loss_rows(size)]) for name, size in CLASSIFIERS.values()],
    [Panel("extra memory, MiB", "less is better; logarithmic", "extra_MiB", is_logarithmic=True), LOSS.panels[1],
     Panel("error of e's gradient", "less is better", "hidden_error", 100, percent)])

CHARTS = {"loss.svg": LOSS, "loss_alone.svg": LOSS_ALONE, "attention.svg": ATTENTION_ON_REAL_DATA,
          "attention_sizes.svg": ATTENTION_BY_SIZE, "caches.svg": CACHES, "neuzip.svg": NEUZIP,
          "python_attention_errors.svg": PYTHON_ERRORS, "python_attention.svg": PYTHON_SPEED,
          "python_loss.svg": PYTHON_LOSS}
