# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The contents of report.py's reports: the figures of summary.json, tables of pages, and the plots."""
import math
from dataclasses import dataclass, field


def floor(counters):
    """The rate of the benchmark's bytes if its traffic ran at the speed of a copy."""
    return counters["TBps"] / counters["of_copy"] if counters.get("of_copy") and "TBps" in counters else None


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def percent(value, digits=0):
    return "–" if value is None else f"{100 * value:.{digits}f}%"


# key in summary.json: (how, counter, benchmarks). "value" has one benchmark, "ratio" is the first over the second,
# "largest" is the largest of several, "largest of any" that of those which have results. All figures are needed:
# without one there is no report.
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
# Classifiers whose loss is measured: tokens, vocabulary and channels, as in names of benchmarks.
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
            "sage.d256.16k.tflops": ("value", "TFLOPs", ["attention/forward/bf16/d256/16k"]),
            "sage.d256.16k.causal.tflops": ("value", "TFLOPs", ["attention/forward/bf16/d256/16k/causal"]),
            "sage.relative_l1": ("largest", "relative_l1", [f"attention/forward/bf16/d128/{length}"
                                                            for length in LENGTHS]),
            "sage.quantize.copy_fraction": ("value", "of_copy", ["attention/quantize/bf16/d128/16k"]),
            "sage.decode128k.read_fraction": ("value", "of_read", ["attention/decode/bf16/d128/128k"])}


FIGURES.update(attention_figures())


def awaited_figures():
    """Figures of peers, which not every machine has, and of benchmarks that are younger than the last results."""
    def of_peer(who, operation, counter, size):
        return ("value", counter, [f"{who}/{operation}/{size}"])

    both = "forward_backward/bf16/zipf"
    return {
        "sage.relative_l1.normal": ("largest", "relative_l1", [f"attention/forward/bf16/d128/{length}/normal"
                                                               for length in LENGTHS]),
        # In fp8 over codes: their time does not include the quantization, which the caller must do first.
        **{f"peer.cudnn_fp8.d128.{length}.tflops": of_peer("cudnn_fp8", "codes", "TFLOPs", f"bf16/d128/{length}")
           for length in LENGTHS},
        "peer.fa3_fp8.d128.16k.tflops": of_peer("fa3_fp8", "codes", "TFLOPs", "bf16/d128/16k"),
        "peer.sage2.d128.16k.tflops": ("largest of any", "TFLOPs", [f"{who}/forward/bf16/d128/16k"
                                                                    for who in ["sage2", "sage2_warps"]]),
        "peer.quack.llama.both.ms": of_peer("quack", both, "ms", CLASSIFIERS["llama"][1]),
        "peer.torch_compile.llama.both.ms": of_peer("torch_compile", both, "ms", CLASSIFIERS["llama"][1]),
        "peer.torch_compile.gemma.both.ms": of_peer("torch_compile", both, "ms", CLASSIFIERS["gemma"][1]),
        "neuzip.zeros_over_dense": ("ratio", "TBps", ["neuzip/decode/bf16/gauss_with_zeros/512MiB",
                                                      "neuzip/decode/bf16/gauss/512MiB"]),
        "neuzip.gpu_differences": ("value", "gpu_differences", ["neuzip/broken_streams"]),
        # The time of a loss over the time of a loss that also computes entropies and predictions.
        "swap.loss_statistics": ("value", "vs_plain", ["cut_cross_entropy/reducers/statistics/forward_backward_exact/"
                                                       f"bf16/spread/{CLASSIFIERS['llama'][1]}"]),
    }


# Figures that are null in summary.json, and reported as missing, while there is no result for them.
AWAITED = awaited_figures()


def minicache_figures():
    decoding = {f"minicache.decode.{name}.speedup": ("value", "speedup", [f"minicache/decode/4bit/d128/{name}"])
                for name in ["64x4k", "16x4k", "1x32k_gqa4"]}
    return {"minicache.compress.copy_fraction": ("value", "of_copy", ["minicache/compress/bf16/d128/32_heads/16x4k"]),
            "minicache.dense_decode.read_fraction": ("value", "of_read", ["minicache/dense_decode/bf16/d128/64x4k"]),
            **decoding}


# Figures that are needed where a file of results exists, and left out where it does not.
FIGURES_OF_FILE = {
    # Microseconds that a call takes on the host beyond its launches; the larger of a prompt's and a token's call.
    "host.json": {
        "host.attention.us": ("largest", "us_beyond", ["host/attention/forward/1024", "host/attention/forward/1"]),
        "host.loss.us": ("value", "us_beyond", ["host/cut_cross_entropy/forward_backward"]),
    },
    "house.json": {  # the repository itself, by bench/house.py
        "ci.cold.minutes": ("value", "minutes", ["house/ci"]),
        "house.concepts_unused": ("value", "unused", ["house/concepts"]),
        "house.headers_in_largest_folder": ("value", "headers", ["house/folders"])},
    "loss_reducers.json": {"swap.loss_statistics": ("value", "vs_plain", [
        "cut_cross_entropy/reducers/statistics/forward_backward_exact/bf16/spread/8192x128256x4096"])},
    "minicache.json": minicache_figures(),
    "shadow_kv.json": {
        "shadow.decode.host.hit60.speedup": ("value", "speedup", ["shadow/decode/host/hit60/128k"]),
        "shadow.decode.fp8.hit60.speedup": ("value", "speedup", ["shadow/decode/fp8/hit60/128k"]),
        "shadow.decode.device.speedup": ("value", "speedup", ["shadow/decode/device/hit60/128k"]),
        "shadow.score.read_fraction": ("value", "of_read", ["shadow/score/128k"]),
        "shadow.fetch.pcie_fraction": ("value", "of_bus", ["shadow/fetch/host/128k"]),
        "shadow.gpu_bytes.ratio": ("value", "gpu_bytes_ratio", ["shadow/decode/host/hit60/128k"]),
        "shadow.prefill.factorize.ms": ("value", "ms", ["shadow/prefill/factorize/128k"]),
    },
}

# Another implementation's rate for the same operation, distribution and size on the same kind of card, but measured
# apart from our runs: one H200, CUDA 13.0, PyTorch 2.11, medians of CUDA-event times after warm-up, 2026-11-21. These
# are the only rates that are typed by hand: there is no file of results for them. They are shown beside our figures and
# never enter summary.json. Source: https://github.com/facebookresearch/dietgpu
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
    "of read speed": lambda name, c: percent(c.get("of_read")),
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
    "us": lambda name, c: number(1e3 * c["ms"] if "ms" in c else None, 0),
    "cuBLAS's logits, ms": lambda name, c: number(c.get("cublas_logits_ms"), 1),
    "without statistics, ms": lambda name, c: number(c.get("plain_ms"), 1),
    "extra MiB": lambda name, c: number(c.get("extra_MiB"), 1),
    "speedup": lambda name, c: number(c.get("speedup")),
    "blocks kept": lambda name, c: percent(c.get("kept")),
    "ordered": lambda name, c: percent(c.get("kept_ordered")),
    "error, L1": lambda name, c: percent(c.get("relative_l1"), 2),
    "error, hidden": lambda name, c: percent(c.get("hidden_error"), 2),
    "error, classifier": lambda name, c: percent(c.get("classifier_error"), 2),
    "times dense decoding": lambda name, c: number(c.get("speedup")),
    "of copies from the host": lambda name, c: percent(c.get("of_bus")),
    "cosine": lambda name, c: number(c.get("cosine"), 5),
    "cache MiB": lambda name, c: number(c.get("cache_MiB"), 0),
    "host MiB": lambda name, c: number(c.get("host_MiB"), 0),
}


@dataclass(frozen=True)
class Table:
    """A table between `<!-- bench:NAME begin -->` and `<!-- bench:NAME end -->`. Rows without a result are left
    out, and so are columns without a figure."""
    heading: str
    columns: list
    rows: list         # pairs of (label, benchmark)
    on_cpu: bool = False


# This library as peers/run.py measures it, in one process with others.
BESIDE_PEERS = "tessera"


def loss_table(model):
    """The losses of this library and others for one classifier."""
    name, size = CLASSIFIERS[model]
    apple = "Apple's cut-cross-entropy"
    without_filter = [("apple_cce_exact", f"{apple}, exact"), ("torch_compile", "torch.compile"),
                      ("torch_eager", "PyTorch"), ("torch_native", "PyTorch's linear_cross_entropy"),
                      ("liger", "Liger Kernel"), ("liger_cute", "Liger Kernel, CuTe"), ("quack", "QuACK")]
    rows = [("forward", f"cut_cross_entropy/forward/bf16/zipf/{size}"),
            ("forward, tessera from Python", f"{BESIDE_PEERS}/forward/bf16/zipf/{size}"),
            (f"forward, {apple}", f"apple_cce/forward/bf16/zipf/{size}")]
    rows += [(f"forward, {label}", f"{peer}/forward/bf16/zipf/{size}") for peer, label in without_filter[1:]]
    for data in ["zipf", "flat", "spread"]:
        rows += [(f"both passes, {data}", f"cut_cross_entropy/forward_backward/bf16/{data}/{size}"),
                 (f"both passes, {data}, tessera from Python", f"{BESIDE_PEERS}/forward_backward/bf16/{data}/{size}"),
                 (f"both passes, {data}, {apple}", f"apple_cce/forward_backward/bf16/{data}/{size}")]
    rows += [("both passes, exact", f"cut_cross_entropy/forward_backward_exact/bf16/spread/{size}"),
             ("both passes, exact, up to 4 GiB", f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}"),
             ("both passes, exact, tessera from Python", f"{BESIDE_PEERS}_exact/forward_backward/bf16/spread/{size}")]
    for label, reducer in [("entropies and predictions", "statistics"), ("a user's four largest", "top_four_by_push")]:
        for passes, operation in [("forward", "forward"), ("both passes, exact", "forward_backward_exact")]:
            rows += [(f"{passes}, {label}", f"cut_cross_entropy/reducers/{reducer}/{operation}/bf16/spread/{size}")]
    rows += [(f"both passes, {label}", f"{peer}/forward_backward/bf16/zipf/{size}") for peer, label in without_filter]
    return Table(f"{name}, {size.replace('x', ' x ')}",
                 ["ms", "cuBLAS's logits, ms", "without statistics, ms", "extra MiB", "blocks kept", "ordered",
                  "error, hidden", "error, classifier"], rows)


def loss_on_real_data():
    """Both passes over real hidden states and a part of a real classifier."""
    return Table("SmolLM2, 8192 x 512 x 576, from Python", ["ms", "extra MiB", "error, hidden", "error, classifier"], [
        (label, f"{who}/forward_backward/bf16/real/8192x512x576") for label, who in [
            ("tessera, filter", BESIDE_PEERS), ("tessera, exact", f"{BESIDE_PEERS}_exact"),
            ("Apple's cut-cross-entropy", "apple_cce"), ("Apple's cut-cross-entropy, exact", "apple_cce_exact"),
            ("torch.compile", "torch_compile"), ("PyTorch", "torch_eager"),
            ("PyTorch's linear_cross_entropy", "torch_native"), ("Liger Kernel", "liger"),
            ("Liger Kernel, CuTe", "liger_cute"), ("QuACK", "quack")]])


# Label, and the beginning of names of benchmarks.
ATTENTION_PEERS = [("cuDNN in bf16", "cudnn/forward"), ("FlashAttention-2", "flash2/forward"),
                   ("FlashAttention 3", "fa3/forward"), ("FlashAttention 4", "fa4/forward"),
                   ("SageAttention 1", "sage1/forward"), ("SageAttention 2 by its authors", "sage2/forward"),
                   ("SageAttention 2 by its authors, scales for warps", "sage2_warps/forward"),
                   ("cuDNN in fp8, quantized by PyTorch", "cudnn_fp8/forward"),
                   ("cuDNN in fp8, given codes", "cudnn_fp8/codes"),
                   ("FlashAttention 3 in fp8, quantized by PyTorch", "fa3_fp8/forward"),
                   ("FlashAttention 3 in fp8, given codes", "fa3_fp8/codes")]


def attention_errors_table():
    """Errors of this library and others on other data than in attention_table()."""
    rows = []
    for channels in [128, 64, 256]:
        for data, label in [("real", "SmolLM2's layer 15"), ("normal", "N(0, 1)")]:
            for causal in ["", "/causal"]:
                start = f"{channels} channels, {label}{', causal' if causal else ''}"
                name = f"bf16/d{channels}/16k{causal}/{data}"
                rows += [(start, f"attention/forward/{name}"),
                         (f"{start}, tessera from Python", f"{BESIDE_PEERS}/forward/{name}"),
                         *((f"{start}, {peer}", f"{who}/{name}") for peer, who in ATTENTION_PEERS)]
    return Table("16K tokens", ["TFLOP/s", "error, L1", "cosine"], rows)


def attention_table(channels, lengths):
    """Attention by this library and others, with heads of so many channels."""
    rows = []
    for causal in ["", "/causal"]:
        for length in lengths:
            label, name = f"{length.upper()} tokens{', causal' if causal else ''}", f"bf16/d{channels}/{length}{causal}"
            rows += [(label, f"attention/forward/{name}"),
                     (f"{label}, over codes", f"attention/codes/{name}"),
                     (f"{label}, tessera from Python", f"{BESIDE_PEERS}/forward/{name}"),
                     *((f"{label}, {peer}", f"{who}/{name}") for peer, who in ATTENTION_PEERS)]
    rows += [(f"quantization, {length.upper()} tokens", f"attention/quantize/bf16/d{channels}/{length}")
             for length in lengths]
    return Table(f"Attention, {channels} channels", ["TFLOP/s", "ms", "error, L1", "extra MiB", "of copy speed"], rows)


def more_attention():
    """Attention with other heads and lengths."""
    rows = []
    for label, name in [("96 channels, 16K tokens", "d96/16k"),
                        ("64 query heads, 8 key heads, 16K tokens", "d128/16k_64_query_8_key_heads"),
                        ("16 sequences of 1K to 8K tokens", "d128/lengths_1k_to_8k")]:
        for causal in ["", "/causal"]:
            rows += [(f"{label}{', causal' if causal else ''}", f"attention/forward/bf16/{name}{causal}"),
                     (f"{label}{', causal' if causal else ''}, over codes", f"attention/codes/bf16/{name}{causal}")]
    for label, name in [("1024 queries over 32K tokens, 8 heads", "d128/8_heads/1024_queries/32k"),
                        ("256 queries over 32K tokens, 8 heads", "d128/8_heads/256_queries/32k")]:
        rows += [(label, f"attention/forward/bf16/{name}"), (f"{label}, over codes", f"attention/codes/bf16/{name}")]
    return Table("Attention, other heads and lengths", ["TFLOP/s", "ms", "error, L1"], rows)


def minicache_table():
    """One query over a merged pair's pages and over the same tokens uncompressed, and the making of pages."""
    rows = []
    for label, name in [("64 sequences of 4K tokens, 32 heads", "64x4k"), ("16 of 4K, 32 heads", "16x4k"),
                        ("16 of 4K, 32 query heads, 8 key heads", "16x4k_gqa4"),
                        ("1 of 32K, 32 query heads, 8 key heads", "1x32k_gqa4")]:
        rows += [(f"decoding, {label}", f"minicache/decode/4bit/d128/{name}"),
                 (f"decoding, {label}, 2% retained", f"minicache/decode/4bit/d128/{name}/retained_2_percent"),
                 (f"decoding, {label}, bf16 as it is", f"minicache/dense_decode/bf16/d128/{name}")]
    rows += [(f"decoding with {bits} bits, 64 sequences of 4K tokens, 32 heads",
              f"minicache/decode/{bits}bit/d128/64x4k") for bits in [2, 3, 8]]
    rows += [("compression, 16 sequences of 4K tokens, 32 heads", "minicache/compress/bf16/d128/32_heads/16x4k"),
             ("compression, 2% retained", "minicache/compress/bf16/d128/32_heads/16x4k/retained_2_percent")]
    return Table("128 channels, a layer of a pair",
                 ["us", "speedup", "of read speed", "of copy speed", "error, L1"], rows)


def caches_table():
    """Steps of decoding from Python, over our caches and over all keys and values in bf16."""
    rows = []
    for label, name in [("16 sequences of 4K tokens, 32 heads", "16x4k"),
                        ("16 of 4K, 32 query heads, 8 key heads", "16x4k_gqa4"),
                        ("4 of 128K, 32 query heads, 8 key heads", "4x128k")]:
        rows += [(f"{label}, {how}", f"{who}/d128/{name}") for how, who in [
            ("MiniCache, a layer of a pair", f"{BESIDE_PEERS}/decode/minicache_pair"),
            ("MiniCache, a layer by itself", f"{BESIDE_PEERS}/decode/minicache_single"),
            ("ShadowKV", f"{BESIDE_PEERS}/decode/shadow_kv"),
            ("FlashAttention-2 over bf16", "flash2/decode/bf16"), ("cuDNN over bf16", "cudnn/decode/bf16")]]
    return Table("A step of a layer, 128 channels", ["us", "cache MiB", "host MiB", "error, L1"], rows)


def decoding_table():
    """Attention of one query, or a few, over codes that were made before."""
    return Table("Decoding over codes, 32 query heads, 8 key heads", ["us", "TB/s", "of read speed", "error, L1"], [
        (label, f"attention/decode/bf16/{name}") for label, name in [
            ("128K tokens, 128 channels", "d128/128k"),
            ("64 sequences of 4K tokens, 128 channels", "d128/batch64/4k"),
            ("16 sequences of 16K tokens, 128 channels", "d128/batch16/16k"),
            ("4 sequences of 32K tokens, 4 queries, 64 query heads", "d128/batch4/64_query_heads/4_queries/32k"),
            ("128K tokens, 256 channels", "d256/128k"), ("128K tokens, 96 channels", "d96/128k"),
            ("128K tokens, 64 channels", "d64/128k"),
            ("64 sequences of 4K tokens, 64 channels", "d64/batch64/4k")]])


def offloaded_table():
    """Steps over a cache whose values are on the host, and the programs of a step."""
    places = [("host", "values of the host"), ("fp8", "values of the host in e4m3"), ("device", "values on the device")]
    rows = [(f"step, {label}, {hits}% in slots", f"shadow/decode/{place}/hit{hits}/128k")
            for place, label in places for hits in [0, 30, 60, 80]]
    rows += [(f"step, {label}, 60% in slots, one sequence", f"shadow/decode/{place}/hit60/128k/1_sequence")
             for place, label in places]
    rows += [("scores of landmarks", "shadow/score/128k"), ("selection", "shadow/select/128k"),
             ("values from the host", "shadow/fetch/host/128k"),
             ("values from the host in e4m3", "shadow/fetch/fp8/128k"), ("keys", "shadow/rebuild/128k"),
             ("attention over what is selected", "shadow/attend/128k")]
    rows += [(f"landmarks in bf16: step, {label}, 60% in slots", f"shadow/paper/decode/{place}/hit60/128k")
             for place, label in places]
    rows += [("landmarks in bf16: scores", "shadow/paper/score/128k")]
    return Table("16 sequences of 128K tokens, 32 query heads, 8 key heads of 128 channels",
                 ["us", "times dense decoding", "of read speed", "of copies from the host", "error, L1"], rows)


def nvcomp_table():
    rows = []
    for operation in ["decode", "encode"]:
        for label, data in [("bf16", "bf16/gauss"), ("fp16", "fp16/gauss"), ("fp32", "fp32/gauss"),
                            ("bf16, MiniLM's weights repeated", "bf16/minilm")]:
            rows += [(f"{operation} {label}{how}", f"{who}/{operation}/{data}/512MiB") for how, who in [
                ("", "neuzip"), (", tessera from Python", BESIDE_PEERS),
                (", nvCOMP's ANS, its best settings", "nvcomp_ans")]]
    return Table("GPU, 512 MiB, N(0, 0.02), same machine", ["TB/s", "bits per weight"], rows)


def factorization_table():
    """The search for the directions of a prompt's keys, and its stages."""
    return Table("One layer's keys of 128K tokens, 8 heads of 128 channels, 160 directions", ["us", "TFLOP/s"], [
        (label, f"shadow/prefill/{name}") for label, name in [
            ("directions and coefficients", "factorize/128k"),
            ("the same, products in pieces of 8K tokens", "factorize/128k/pieces_8k"),
            ("products of channels", "products/128k"), ("search for directions", "search/1024x160"),
            ("coefficients", "project/128k"), ("a round: images", "images/1024x160"),
            ("a round: their products", "shares/1024x160"), ("a round: factorization", "factor/160"),
            ("a round: orthonormal columns", "solve/1024x160")]])


TABLES = {
    "factorization": factorization_table(),
    "offloaded": offloaded_table(),
    "attention-128": attention_table(128, LENGTHS),
    "attention-64": attention_table(64, LENGTHS),
    "attention-256": attention_table(256, LENGTHS),
    "attention-drawn": attention_table(128, ["16k"]),
    "attention-errors": attention_errors_table(),
    "attention-more": more_attention(),
    "attention-decoding": decoding_table(),
    "minicache": minicache_table(),
    "caches": caches_table(),
    "linear": Table("GPU, tokens x columns x depth, N(0, 1)", ["TFLOP/s", "cuBLAS", "of cuBLAS"], [
        (f"{format} {size.replace('x', ' x ')}", f"linear/{format}/gauss/{size}") for format, size in [
            ("bf16", "8192x8192x8192"), ("bf16", "4096x4096x4096"), ("bf16", "8192x28672x4096"),
            ("bf16", "8192x256000x2304"), ("fp16", "8192x8192x8192"), ("tf32", "8192x8192x8192"),
            ("fp8_e4m3", "8192x8192x8192"), ("int8", "8192x8192x8192")]
    ]),
    "loss-gemma": loss_table("gemma"),
    "loss-llama": loss_table("llama"),
    "loss-real-peers": loss_on_real_data(),
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
        ("decode bf16, 1 % zeros, 512 MiB", "neuzip/decode/bf16/gauss_with_zeros/512MiB"),
        ("encode bf16, 512 MiB", "neuzip/encode/bf16/gauss/512MiB"),
        ("encode bf16, 1 % zeros, 512 MiB", "neuzip/encode/bf16/gauss_with_zeros/512MiB"),
        ("encode bf16, 32 tensors of 32 MiB", "neuzip/encode/bf16/gauss/32x32MiB"),
        ("encode bf16, 4096 x 4096", "neuzip/encode/bf16/gauss/4096x4096"),
        ("encode bf16, 1024 x 1024", "neuzip/encode/bf16/gauss/1024x1024"),
        ("encode bf16, fixed-length codes, 512 MiB", "neuzip/encode_fixed/bf16/gauss/512MiB"),
        ("encode fp16, 512 MiB", "neuzip/encode/fp16/gauss/512MiB"),
        ("encode fp32, 512 MiB", "neuzip/encode/fp32/gauss/512MiB"),
        ("encode fp8 e4m3, N(0, 1), 512 MiB", "neuzip/encode/fp8_e4m3/gauss/512MiB"),
        ("encode fp8 e5m2, N(0, 1), 512 MiB", "neuzip/encode/fp8_e5m2/gauss/512MiB"),
    ]),
    "neuzip-nvcomp": nvcomp_table(),
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


# The pages that tables stand in.
PAGES = ["README.md", "docs/measured.md"]


def linear(values, width):
    """The length of a bar for a value, where the largest value's bar has length `width`."""
    return lambda value: width * value / max(values)


def logarithmic(values, width):
    """The length of a bar on a logarithmic scale that begins at the power of ten below the smallest value."""
    first = math.floor(math.log10(min(values)))
    return lambda value: width * (math.log10(value) - first) / (math.log10(max(values)) - first)


@dataclass(frozen=True)
class Chart:
    """A bar for each row of a table that has the counter, with marks to compare it with. Where this library was
    measured beside its peers, those rows take the place of its own programs' rows."""
    title: str
    table: str
    counter: str
    marks: list = field(default_factory=list)  # tuples of (label, style, function of name and counters)
    own: str = ""           # the beginning of names of our own benchmarks; others' bars are pale
    scale: object = linear
    digits: int = 2


CHARTS = {
    "neuzip.svg": Chart("NeuZip on the GPU, TB/s of uncompressed weights (more is better)", "neuzip", "TBps", [
        ("limit by memory", "floor", lambda name, c: floor(c)),
        (PEER, "reference", lambda name, c: PEER_TBPS.get(name)),
    ]),
    "neuzip_size.svg": Chart("NeuZip, bits per bf16 weight (less is better)", "neuzip-size", "bits_per_weight", [
        ("entropy bound", "floor", lambda name, c: c.get("entropy_bits")),
        ("uncompressed", "reference", lambda name, c: 16),
    ]),
    "loss_time.svg": Chart("Loss of Gemma 2 2B's classifier, ms (less is better)", "loss-gemma", "ms",
                           own="cut_cross_entropy/", digits=1),
    "loss_memory.svg": Chart("The same, MiB beyond inputs and gradients, by powers of ten (less is better)",
                             "loss-gemma", "extra_MiB", own="cut_cross_entropy/", scale=logarithmic, digits=1),
    "attention.svg": Chart("Attention, 128 channels, TFLOP/s (more is better)", "attention-drawn", "TFLOPs",
                           own="attention/", digits=0),
}
