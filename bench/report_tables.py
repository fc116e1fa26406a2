# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables that report.py writes into pages: their columns, and for each row the benchmark that its figures are of.

Headings and labels stand by themselves: they say what was measured, on which data, and in which unit. Rows of one table
that belong together have one label up to a colon, and after it what differs.
"""
from dataclasses import dataclass

import report_losses
import report_products
import report_python
import report_real_model
import report_sm_80
from report_contents import CLASSIFIERS, LENGTHS, NATIVE_LOSSES, PEER, PEER_TBPS, floor, number


def percent(value, digits=0):
    return "–" if value is None else f"{100 * value:.{digits}f}%"


# Columns of tables: the heading, and the cell from one benchmark's counters. The limit by memory is the rate at which
# the operation's own traffic would run at the speed of the machine's copy.
COLUMNS = {
    "TB/s": lambda name, c: number(c.get("TBps")),
    "TB/s of uncompressed weights": lambda name, c: number(c.get("TBps")),
    "GB/s of uncompressed weights": lambda name, c: number(c.get("GBps")),
    "GFLOP/s": lambda name, c: number(c.get("GFLOPs"), 1),
    "limit by memory, TB/s": lambda name, c: number(floor(c)),
    "part of a copy's bandwidth": lambda name, c: percent(c.get("of_copy")),
    "part of a read's bandwidth": lambda name, c: percent(c.get("of_read")),
    "part of the bandwidth of copies from the host": lambda name, c: percent(c.get("of_bus")),
    f"{PEER}, TB/s": lambda name, c: number(PEER_TBPS.get(name)),
    "bits per weight": lambda name, c: number(c.get("bits_per_weight")),
    "entropy bound, bits per weight": lambda name, c: number(c.get("entropy_bits")),
    "most device memory in use, MiB": lambda name, c: number(c.get("peak_MiB"), 0),
    "TFLOP/s": lambda name, c: number(c.get("TFLOPs"), 0),
    "TFLOP/s with nothing in between": lambda name, c: number(c.get("alone_TFLOPs"), 0),
    "cuBLAS, TFLOP/s": lambda name, c: number(c.get("cublas_TFLOPs"), 0),
    "workspace, MB": lambda name, c: number(c.get("workspace_MB"), 0),
    "speed relative to `sage_attention2`": lambda name, c: percent(c.get("of_alias")),
    "speed relative to cuBLAS": lambda name, c: percent(c.get("vs_cublas")),
    "without scales, TFLOP/s": lambda name, c: number(c.get("linear_TFLOPs"), 0),
    "relative to that": lambda name, c: percent(c.get("vs_linear")),
    "relative to operands along the depth": lambda name, c: percent(c.get("vs_along")),
    "speed relative to lossless coding": lambda name, c: percent(c.get("vs_lossless")),
    "making them, relative to 4 bits": lambda name, c: percent(c.get("compress_of_4bit")),
    "reading them by bytes, relative to 4 bits": lambda name, c: percent(c.get("decode_of_4bit")),
    "speed relative to `shadow_kv`": lambda name, c: percent(c.get("of_shadow_kv")),
    "speed relative to log-sum-exps alone": lambda name, c: percent(c.get("vs_plain")),
    "tokens": lambda name, c: number(c.get("tokens"), 0),
    "vocabulary entries": lambda name, c: number(c.get("vocabulary"), 0),
    "time, ms": lambda name, c: number(c.get("ms"), 1),
    "time, µs": lambda name, c: number(1e3 * c["ms"] if "ms" in c else None, 0),
    "cuBLAS's time to write the logits, ms": lambda name, c: number(c.get("cublas_logits_ms"), 1),
    "time without these further outputs, ms": lambda name, c: number(c.get("plain_ms"), 1),
    "the same loss with bf16 rows, ms": lambda name, c: number(c.get("plain_ms"), 1),
    "speed relative to that": lambda name, c: percent(c.get("over_plain")),
    "that of the forward pass": lambda name, c: percent(c.get("forward_over_plain")),
    "the exact cross-entropy alone, ms": lambda name, c: number(c.get("exact_ms"), 1),
    "speed of products relative to that": lambda name, c: percent(c.get("over_exact")),
    "its products alone by cuBLAS, ms": lambda name, c: number(c.get("products_ms"), 1),
    "time relative to those": lambda name, c: number(c.get("over_products"), 2),
    "NCCL's own, ms": lambda name, c: number(c.get("nccl_ms"), 2),
    "speed relative to NCCL's": lambda name, c: percent(c.get("over_nccl")),
    "speed relative to NCCL's by copy engines": lambda name, c: percent(c.get("over_nccl_registered")),
    "half of the vocabulary on one GPU, ms": lambda name, c: number(c.get("alone_ms"), 1),
    "efficiency": lambda name, c: percent(c.get("efficiency"), 1),
    "extra memory, MiB": lambda name, c: number(c.get("extra_MiB"), 1),
    "speedup over attention in bf16": lambda name, c: number(c.get("speedup")),
    "blocks that the filter keeps": lambda name, c: percent(c.get("kept")),
    "the same with entries ordered by use": lambda name, c: percent(c.get("kept_ordered")),
    "blocks that the filter keeps, entries ordered by use": lambda name, c: percent(c.get("kept_ordered")),
    "relative L1 error": lambda name, c: percent(c.get("relative_l1"), 2),
    "relative error of the loss": lambda name, c: percent(c.get("loss_error"), 2),
    "relative error of the hidden states' gradient": lambda name, c: percent(c.get("hidden_error"), 2),
    "relative error of the classifier's gradient": lambda name, c: percent(c.get("classifier_error"), 2),
    "rows of the classifier that lose all of their gradient": lambda name, c: percent(c.get("rows_without"), 1),
    "processor time, s": lambda name, c: number(1e-9 * c["cpu_time"] if "/on_cpu/" in name else None, 0),
    "rows of the classifier that never move": lambda name, c: percent(c.get("rows_not_moved"), 1),
    "held-out loss before": lambda name, c: number(c.get("first_held_out_loss"), 4),
    "held-out loss after": lambda name, c: number(c.get("last_held_out_loss"), 4),
    "distance of the classifier from the exact training's": lambda name, c: percent(c.get("classifier_drift"), 1),
    "distance of the adapter from the exact training's": lambda name, c: percent(c.get("adapter_drift"), 1),
    "processor seconds a step": lambda name, c: number(c.get("seconds_a_step"), 1),
    "cosine similarity": lambda name, c: number(c.get("cosine"), 5),
    "cache on the GPU, MiB": lambda name, c: number(c.get("cache_MiB"), 0),
    "cache on the host, MiB": lambda name, c: number(c.get("host_MiB"), 0),
    "size, MB": lambda name, c: number(c.get("MB"), 1),
    "values on the host, MB": lambda name, c: number(c.get("host_MB") or None, 1),
    "times smaller than in 16 bits": lambda name, c: number(c.get("ratio")),
    "perplexity": lambda name, c: number(c.get("perplexity")),
    "same likeliest next token": lambda name, c: percent(c.get("agreement"), 1),
    "KL divergence, nats a token": lambda name, c: number(c.get("divergence"), 4),
}


@dataclass(frozen=True)
class Table:
    """A table between `<!-- bench:NAME begin -->` and `<!-- bench:NAME end -->`. Rows without a result are left
    out, and so are columns without a figure."""
    heading: str       # of the labels
    columns: list
    rows: list         # pairs of (label, benchmark)
    on_cpu: bool = False


# This library as peers/run.py measures it, in one process with others.
BESIDE_PEERS = "tessera"
CPP, PYTHON = "tessera from C++", "tessera from Python"


def loss_table(model):
    """The losses of this library and others for one classifier."""
    name, size = CLASSIFIERS[model]
    apple = "Apple's cut-cross-entropy"
    without_filter = [("apple_cce_exact", apple), ("torch_compile", "torch.compile"),
                      ("torch_eager", "PyTorch"), *NATIVE_LOSSES,
                      ("liger", "Liger Kernel in Triton"), ("liger_cute", "Liger Kernel in CuTe"), ("quack", "QuACK")]
    both, exact = "forward and backward", "forward and backward, exact"
    rows = [(f"forward: {CPP}", f"cut_cross_entropy/forward/bf16/zipf/{size}"),
            (f"forward: {PYTHON}", f"{BESIDE_PEERS}/forward/bf16/zipf/{size}"),
            (f"forward: {apple}", f"apple_cce/forward/bf16/zipf/{size}")]
    rows += [(f"forward: {label}", f"{peer}/forward/bf16/zipf/{size}") for peer, label in without_filter[1:]]
    for data in ["zipf", "flat", "spread"]:
        rows += [(f"{both}, filtered, {data} data: {label}", f"{who}/forward_backward/bf16/{data}/{size}")
                 for who, label in [("cut_cross_entropy", CPP), (BESIDE_PEERS, PYTHON), ("apple_cce", apple)]]
    rows += [(f"{exact}: {CPP}", f"cut_cross_entropy/forward_backward_exact/bf16/spread/{size}"),
             (f"{exact}: {CPP}, with up to 4 GiB",
              f"cut_cross_entropy/forward_backward_exact_4GiB/bf16/spread/{size}"),
             (f"{exact}: {PYTHON}", f"{BESIDE_PEERS}_exact/forward_backward/bf16/spread/{size}")]
    rows += [(f"{exact}: {label}", f"{peer}/forward_backward/bf16/zipf/{size}") for peer, label in without_filter]
    rows += [(f"{exact}, in turns: {label}", f"{who}/in_turns/forward_backward/bf16/zipf/{size}")
             for who, label in [("tessera_exact_4gib", f"{PYTHON}, with up to 4 GiB"), *without_filter]]
    for label, reducer in [("also entropies and predictions", "statistics"),
                           ("also the four largest logits by a user's Reducer", "top_four_by_push")]:
        for passes, operation in [("forward", "forward"), (exact, "forward_backward_exact")]:
            rows += [(f"{passes}, {label}: {CPP}",
                      f"cut_cross_entropy/reducers/{reducer}/{operation}/bf16/spread/{size}")]
    return Table(f"{name}, {size.replace('x', ' x ')} (tokens x vocabulary x channels)",
                 ["time, ms", "cuBLAS's time to write the logits, ms", "time without these further outputs, ms",
                  "extra memory, MiB", "blocks that the filter keeps", "the same with entries ordered by use",
                  "relative error of the loss", "relative error of the hidden states' gradient",
                  "relative error of the classifier's gradient"], rows)


# Label, and the beginning of names of benchmarks.
ATTENTION_PEERS = [("cuDNN in bf16", "cudnn/forward"), ("FlashAttention-2 in bf16", "flash2/forward"),
                   ("FlashAttention 3 in bf16", "fa3/forward"), ("FlashAttention 4 in bf16", "fa4/forward"),
                   ("SageAttention 1", "sage1/forward"), ("SageAttention 2 by its authors", "sage2/forward"),
                   ("SageAttention 2 by its authors, one scale per warp", "sage2_warps/forward"),
                   ("cuDNN in fp8, quantized by PyTorch", "cudnn_fp8/forward"),
                   ("cuDNN in fp8, quantized before", "cudnn_fp8/codes"),
                   ("FlashAttention 3 in fp8, quantized by PyTorch", "fa3_fp8/forward"),
                   ("FlashAttention 3 in fp8, quantized before", "fa3_fp8/codes")]


DENSE = f"`dense_attention` in bf16, {CPP}"

# What names of benchmarks begin with, in words.
IMPLEMENTATIONS = {
    "apple_cce": "Apple's cut-cross-entropy", "apple_cce_exact": "Apple's cut-cross-entropy, exact",
    "cudnn": "cuDNN in bf16", "cudnn_fp8": "cuDNN in fp8", "fa3": "FlashAttention 3 in bf16",
    "fa3_fp8": "FlashAttention 3 in fp8", "fa4": "FlashAttention 4 in bf16", "flash2": "FlashAttention-2 in bf16",
    "liger": "Liger Kernel in Triton", "liger_cute": "Liger Kernel in CuTe", "nvcomp_ans": "nvCOMP's ANS",
    "quack": "QuACK", "sage1": "SageAttention 1", "sage2": "SageAttention 2 by its authors",
    "sage2_warps": "SageAttention 2 by its authors, one scale per warp", "torch_compile": "torch.compile",
    "torch_eager": "PyTorch", **dict(NATIVE_LOSSES)}


def attention_errors_table():
    """Errors of this library and others on other data than in attention_table()."""
    rows = []
    for channels in [128, 64, 256]:
        for data, label in [("real", "SmolLM2's layer 15"), ("normal", "N(0, 1)")]:
            for causal in ["", "/causal"]:
                start = f"{channels} channels, {label}{', causal' if causal else ''}"
                name = f"bf16/d{channels}/16k{causal}/{data}"
                rows += [(f"{start}: {CPP}", f"attention/forward/{name}"),
                         (f"{start}: {PYTHON}", f"{BESIDE_PEERS}/forward/{name}"),
                         (f"{start}: {DENSE}", f"dense_attention/forward/{name}"),
                         *((f"{start}: {peer}", f"{who}/{name}") for peer, who in ATTENTION_PEERS)]
    return Table("attention of 16K queries to 16K tokens", ["TFLOP/s", "relative L1 error", "cosine similarity"], rows)


def attention_table(channels, lengths):
    """Attention by this library and others, with heads of so many channels."""
    rows = []
    for causal in ["", "/causal"]:
        for length in lengths:
            label, name = f"{length.upper()} tokens{', causal' if causal else ''}", f"bf16/d{channels}/{length}{causal}"
            rows += [(f"{label}: {CPP}", f"attention/forward/{name}"),
                     (f"{label}: {CPP}, quantized before", f"attention/codes/{name}"),
                     (f"{label}: {PYTHON}", f"{BESIDE_PEERS}/forward/{name}"),
                     (f"{label}: {DENSE}", f"dense_attention/forward/{name}"),
                     *((f"{label}: {peer}", f"{who}/{name}") for peer, who in ATTENTION_PEERS)]
    rows += [(f"quantization alone, {length.upper()} tokens: {CPP}", f"attention/quantize/bf16/d{channels}/{length}")
             for length in lengths]
    return Table(f"attention, heads of {channels} channels",
                 ["TFLOP/s", "time, ms", "relative L1 error", "extra memory, MiB", "part of a copy's bandwidth"], rows)


def more_attention():
    """Attention with other heads and lengths."""
    settings = [(f"{label}{', causal' if causal else ''}", f"{name}{causal}") for label, name in [
        ("96 channels, 16K tokens", "d96/16k"),
        ("64 query heads, 8 key heads, 16K tokens", "d128/16k_64_query_8_key_heads"),
        ("16 sequences of 1K to 8K tokens", "d128/lengths_1k_to_8k")] for causal in ["", "/causal"]]
    settings += [("1024 queries to 32K tokens, 8 heads", "d128/8_heads/1024_queries/32k"),
                 ("256 queries to 32K tokens, 8 heads", "d128/8_heads/256_queries/32k")]
    rows = []
    for label, name in settings:
        rows += [(label, f"attention/forward/bf16/{name}"),
                 (f"{label}, quantized before", f"attention/codes/bf16/{name}"),
                 (f"{label}, `dense_attention` in bf16", f"dense_attention/forward/bf16/{name}")]
    return Table("attention with other heads and lengths, 128 channels unless stated otherwise",
                 ["TFLOP/s", "time, ms", "relative L1 error"], rows)


def exchanges_table():
    whole, codes = "from bf16 to bf16", "over codes made before"
    rows = [(f"{what}, {channels} channels: {label}", f"exchange/attention/{name}/{part}/bf16/d{channels}/16k")
            for name, what in [("linear_bias", "`linear_bias`"),
                               ("dense_bias", "`dense_bias` in bf16, shared by heads"),
                               ("bias_function", "a function of query and key"),
                               ("smoothed_queries", "smoothed queries"),
                               ("four_bits", "4 bits, a code in a byte, and smoothed queries"),
                               ("int4", "`sage_attention2_int4`"),
                               ("float8", "`float8_attention`: e4m3 queries and keys"),
                               ("block_list", "lists of half of the tiles, speed for each visited tile")]
            for channels in [128, 64] for part, label in [("forward", whole), ("codes", codes)]]
    rows += [(f"packed sequences of 1024 to 8192 tokens, 128 channels{mask}: {whole}",
              f"exchange/attention/packed/forward/bf16/d128/lengths_1k_to_8k{name}")
             for mask, name in [("", ""), (", causal", "/causal")]]
    rows += [(f"192 channels of queries and keys, 128 of values{mask}: {label}",
              f"exchange/attention/wide_keys/{part}/bf16/d192_128/16k{name}")
             for mask, name in [("", ""), (", causal", "/causal")]
             for part, label in [("forward", whole), ("codes", codes)]]
    return Table("what is exchanged", ["TFLOP/s", "speed relative to `sage_attention2`", "relative L1 error"], rows)


def minicache_table():
    """One query over a merged pair's pages and over the same tokens uncompressed, and the making of pages."""
    rows = []
    for label, name in [("64 sequences of 4K tokens, 32 heads", "64x4k"),
                        ("16 sequences of 4K tokens, 32 heads", "16x4k"),
                        ("16 sequences of 4K tokens, 32 query heads, 8 key heads", "16x4k_gqa4"),
                        ("1 sequence of 32K tokens, 32 query heads, 8 key heads", "1x32k_gqa4")]:
        rows += [(f"decoding, {label}: 4 bits", f"minicache/decode/4bit/d128/{name}"),
                 (f"decoding, {label}: 4 bits, 2% of tokens retained",
                  f"minicache/decode/4bit/d128/{name}/retained_2_percent"),
                 (f"decoding, {label}: uncompressed in bf16", f"minicache/dense_decode/bf16/d128/{name}")]
    rows += [(f"decoding, 64 sequences of 4K tokens, 32 heads: {bits} bits", f"minicache/decode/{bits}bit/d128/64x4k")
             for bits in [2, 3, 8]]
    compress = "compression, 16 sequences of 4K tokens, 32 heads: 4 bits"
    rows += [(compress, "minicache/compress/bf16/d128/32_heads/16x4k"),
             (f"{compress}, 2% of tokens retained", "minicache/compress/bf16/d128/32_heads/16x4k/retained_2_percent")]
    return Table("one layer of a merged pair, 128 channels",
                 ["time, µs", "speedup over attention in bf16", "part of a read's bandwidth",
                  "part of a copy's bandwidth", "relative L1 error"], rows)


def caches_table():
    """Steps of decoding from Python, over our caches and over all keys and values in bf16."""
    rows = []
    for label, name in [("16 sequences of 4K tokens, 32 heads", "16x4k"),
                        ("16 sequences of 4K tokens, 32 query heads, 8 key heads", "16x4k_gqa4"),
                        ("4 sequences of 128K tokens, 32 query heads, 8 key heads", "4x128k")]:
        rows += [(f"{label}: {how}", f"{who}/d128/{name}") for how, who in [
            ("MiniCache, layers merged in pairs", f"{BESIDE_PEERS}/decode/minicache_pair"),
            ("MiniCache, each layer by itself", f"{BESIDE_PEERS}/decode/minicache_single"),
            ("ShadowKV", f"{BESIDE_PEERS}/decode/shadow_kv"),
            ("FlashAttention-2 over keys and values in bf16", "flash2/decode/bf16"),
            ("cuDNN over keys and values in bf16", "cudnn/decode/bf16")]]
    return Table("a decoding step of one layer, 128 channels",
                 ["time, µs", "cache on the GPU, MiB", "cache on the host, MiB", "relative L1 error"], rows)


def decoding_table():
    """Attention of one query, or a few, over codes that were made before."""
    return Table("attention of one query to keys and values in 8 bits, 32 query heads and 8 key heads unless stated "
                 "otherwise", ["time, µs", "TB/s", "part of a read's bandwidth", "relative L1 error"], [
        (label, f"attention/decode/bf16/{name}") for label, name in [
            ("1 sequence of 128K tokens, 128 channels", "d128/128k"),
            ("64 sequences of 4K tokens, 128 channels", "d128/batch64/4k"),
            ("16 sequences of 16K tokens, 128 channels", "d128/batch16/16k"),
            ("4 sequences of 32K tokens, 128 channels, 4 queries, 64 query heads",
             "d128/batch4/64_query_heads/4_queries/32k"),
            ("1 sequence of 128K tokens, 256 channels", "d256/128k"),
            ("1 sequence of 128K tokens, 96 channels", "d96/128k"),
            ("1 sequence of 128K tokens, 64 channels", "d64/128k"),
            ("64 sequences of 4K tokens, 64 channels", "d64/batch64/4k")]])


def offloaded_table():
    """Steps over a cache whose values are on the host, and the programs of a step."""
    places = [("host", "values on the host"), ("fp8", "values on the host in e4m3"), ("device", "values on the GPU")]
    rows = [(f"whole step, {label}: {hits}% of chunks in slots", f"shadow/decode/{place}/hit{hits}/128k")
            for place, label in places for hits in [0, 30, 60, 80]]
    rows += [(f"whole step of one sequence, {label}: 60% of chunks in slots",
              f"shadow/decode/{place}/hit60/128k/1_sequence") for place, label in places]
    rows += [("scores of landmarks alone", "shadow/score/128k"), ("selection of chunks alone", "shadow/select/128k"),
             ("fetching values from the host alone, no chunk in slots", "shadow/fetch/host/128k"),
             ("fetching values in e4m3 from the host alone, no chunk in slots", "shadow/fetch/fp8/128k"),
             ("rebuilding keys alone, no chunk in slots", "shadow/rebuild/128k"),
             ("attention to selected tokens alone", "shadow/attend/128k")]
    rows += [(f"landmarks in bf16, whole step, {label}: 60% of chunks in slots",
              f"shadow/paper/decode/{place}/hit60/128k") for place, label in places]
    rows += [("landmarks in bf16, their scores alone", "shadow/paper/score/128k")]
    return Table("decoding over 16 sequences of 128K tokens, 32 query heads, 8 key heads of 128 channels",
                 ["time, µs", "speedup over attention in bf16", "part of a read's bandwidth",
                  "part of the bandwidth of copies from the host", "relative L1 error"], rows)


WEIGHTS_512 = "512 MiB of weights"


def nvcomp_table():
    rows = []
    for operation in ["decode", "encode"]:
        for label, data in [("bf16", "bf16/gauss"), ("fp16", "fp16/gauss"), ("fp32", "fp32/gauss"),
                            ("bf16, MiniLM's weights repeated", "bf16/minilm")]:
            rows += [(f"{operation} {label}: {how}", f"{who}/{operation}/{data}/512MiB") for how, who in [
                (CPP, "neuzip"), (PYTHON, BESIDE_PEERS), ("nvCOMP's ANS with its best settings", "nvcomp_ans")]]
    return Table(f"{WEIGHTS_512}, N(0, 0.02) unless stated otherwise",
                 ["TB/s of uncompressed weights", "bits per weight"], rows)


def neuzip_table():
    """Decoding and encoding on the GPU."""
    normal = [("bf16, 512 MiB", "", "bf16/gauss/512MiB"),
              ("bf16, 32 tensors of 32 MiB in one call", "", "bf16/gauss/32x32MiB"),
              ("bf16, one tensor of 4096 x 4096", "", "bf16/gauss/4096x4096"),
              ("bf16, one tensor of 1024 x 1024", "", "bf16/gauss/1024x1024"),
              ("bf16, codes of fixed length, 512 MiB", "_fixed", "bf16/gauss/512MiB"),
              ("fp16, 512 MiB", "", "fp16/gauss/512MiB"), ("fp32, 512 MiB", "", "fp32/gauss/512MiB"),
              ("fp8 e4m3, N(0, 1), 512 MiB", "", "fp8_e4m3/gauss/512MiB"),
              ("fp8 e5m2, N(0, 1), 512 MiB", "", "fp8_e5m2/gauss/512MiB"),
              ("bf16, 1 % zeros, 512 MiB", "", "bf16/gauss_with_zeros/512MiB")]
    return Table("weights N(0, 0.02) unless stated otherwise", [
        "TB/s of uncompressed weights", "limit by memory, TB/s", "part of a copy's bandwidth", f"{PEER}, TB/s",
        "bits per weight", "most device memory in use, MiB"], [
        (f"{operation} {label}", f"neuzip/{operation}{suffix}/{name}") for operation in ["decode", "encode"]
        for label, suffix, name in normal])


def factorization_table():
    """The search for the directions of a prompt's keys, and its stages."""
    return Table("one layer's keys of 128K tokens, 8 heads of 128 channels, 160 directions", ["time, µs", "TFLOP/s"], [
        (label, f"shadow/prefill/{name}") for label, name in [
            ("all of it: directions and coefficients", "factorize/128k"),
            ("all of it, with products in pieces of 8K tokens", "factorize/128k/pieces_8k"),
            ("products of channels", "products/128k"), ("search for directions, all rounds", "search/1024x160"),
            ("coefficients", "project/128k"), ("one round of the search: images", "images/1024x160"),
            ("one round of the search: products of images", "shares/1024x160"),
            ("one round of the search: factorization of these products", "factor/160"),
            ("one round of the search: orthonormal columns", "solve/1024x160")]])


LOSS_ON_CPU = "exact_cross_entropy/cpu"
LOSS_SHAPE = "256x8192x512/1thread"

TABLES = {
    "factorization": factorization_table(),
    "offloaded": offloaded_table(),
    "attention-128": attention_table(128, LENGTHS),
    "attention-64": attention_table(64, LENGTHS),
    "attention-256": attention_table(256, LENGTHS),
    "attention-drawn": attention_table(128, ["16k"]),
    "attention-errors": attention_errors_table(),
    "attention-more": more_attention(),
    "attention-exchanges": exchanges_table(),
    **{name: Table(*parts) for name, parts in {**report_sm_80.TABLES, **report_losses.TABLES,
                                              **report_products.TABLES, **report_python.TABLES}.items()},
    "attention-decoding": decoding_table(),
    "minicache": minicache_table(),
    "caches": caches_table(),
    "loss-reducers": Table("what is computed besides, classifier", [
        "time, ms", "time without these further outputs, ms", "speed relative to log-sum-exps alone"], [
        (f"{what}, {model}: {label}", f"cut_cross_entropy/reducers/{name}/{part}/bf16/spread/{CLASSIFIERS[key][1]}")
        for name, what in [("statistics", "entropies and predictions"),
                           ("top_four_by_push", "the four largest logits, a user's reducer"),
                           ("entropy_by_push", "entropies, a user's reducer")]
        for key, model in [("gemma", "Gemma"), ("llama", "Llama")]
        for part, label in [("forward", "loss"), ("forward_backward_exact", "loss and gradients")]
    ]),
    "neuzip-lossy": Table("weights of N(0, 0.02)", [
        "TB/s of uncompressed weights", "bits per weight", "speed relative to lossless coding"], [
        (f"{call}d, {format}, {kept} bits of the mantissa kept{label}",
         f"neuzip/{call}_lossy/{format}/gauss/kept{kept}{name}")
        for call in ["decode", "encode"] for format, kept, name, label in [
            ("bf16", 3, "", ""), ("bf16", 3, "/normalized512", ", blocks of 512 normalized"), ("bf16", 0, "", ""),
            ("bf16", 0, "/normalized512", ", blocks of 512 normalized"), ("fp16", 3, "", ""), ("fp32", 7, "", ""),
            ("fp32", 7, "/normalized512", ", blocks of 512 normalized")]
    ]),
    "minicache-exchanges": Table("codes of 64 sequences of 4K tokens, 32 heads of 128 channels", [
        "making them, relative to 4 bits", "reading them by bytes, relative to 4 bits", "relative L1 error"], [
        ("3 bits", "minicache/exchange/3bit/d128/64x4k"),
        ("4 bits for keys, 2 for values", "minicache/exchange/k4v2/d128/64x4k")
    ]),
    "quest": Table("step with Quest's boxes, 128K tokens, 60 % of the chunks in slots", [
        "time, µs", "speed relative to `shadow_kv`"], [
        ("values on the host", "shadow/quest/decode/host/hit60/128k"),
        ("values on the host in e4m3", "shadow/quest/decode/fp8/hit60/128k"),
        ("values on the device", "shadow/quest/decode/device/hit60/128k")
    ]),
    "quantized-matrices": Table("matrix of 16384 x 8192 in bf16", ["time, µs", "TB/s", "part of a copy's bandwidth"], [
        (f"{what}, {label}", f"quantized_matrix/{call}/{format}/bf16/gauss/16384x8192")
        for call, what in [("quantize", "to codes"), ("dequantize", "from codes")] for label, format in [
            ("8 bits in groups of 64", "symmetric_8_by_64"), ("8 bits in groups of 128", "symmetric_8_by_128"),
            ("4 bits in groups of 128", "symmetric_4_by_128"),
            ("4 bits with a minimum in groups of 64", "asymmetric_4_by_64"), ("8 bits by rows", "symmetric_8_by_row"),
            ("8 bits by the tensor", "symmetric_8_by_tensor"), ("e4m3 in groups of 128", "e4m3_by_128")]
    ]),
    "row-reductions": Table("rows of bf16 in memory", ["time, µs", "TB/s", "part of a copy's bandwidth"], [
        (f"{label}, {rows} rows of {columns}", f"row_reduction/{reducer}/bf16/gauss/{rows}x{columns}")
        for rows, columns in [(262144, 576), (32768, 4096), (1024, 128256)] for label, reducer in [
            ("largest magnitude", "absolute_maximum"), ("first largest value", "arg_max"),
            ("log-sum-exp", "log_sum_exp"), ("entropy", "entropy")]
    ]),
    "loss-gemma": loss_table("gemma"),
    "loss-llama": loss_table("llama"),
    "loss-real": Table("SmolLM2's hidden states and 512 rows of its classifier", [
        "tokens", "vocabulary entries", "time, ms", "extra memory, MiB", "blocks that the filter keeps",
        "the same with entries ordered by use", "relative error of the hidden states' gradient",
        "relative error of the classifier's gradient"], [
        (f"forward and backward, filtered: {CPP}", "cut_cross_entropy/forward_backward/bf16/smollm2/all"),
    ]),
    "real-model": Table("SmolLM2-135M", report_real_model.TABLE_COLUMNS, report_real_model.TABLE_ROWS, on_cpu=True),
    "machine": Table("access to device memory", ["TB/s"], [
        ("copy by the CUDA runtime, bytes read and written", "machine/copy/memcpy/2GiB"),
        ("copy by a kernel of this repository, bytes read and written", "machine/copy/kernel/2GiB"),
        ("only reading", "machine/read/2GiB"),
        ("only writing", "machine/write/2GiB"),
    ]),
    "neuzip": neuzip_table(),
    "neuzip-nvcomp": nvcomp_table(),
    "neuzip-cpu": Table("64 MiB of bf16 weights, N(0, 0.02), on the CPU", ["GB/s of uncompressed weights"], [
        ("decode on one core, portable code", "neuzip/cpu/decode/bf16/gauss/scalar/64MiB/1thread"),
        ("decode on one core, AVX2", "neuzip/cpu/decode/bf16/gauss/avx2/64MiB/1thread"),
        ("decode on one core, AVX-512", "neuzip/cpu/decode/bf16/gauss/avx512/64MiB/1thread"),
        ("decode on all cores", "neuzip/cpu/decode/bf16/gauss/64MiB/all_threads"),
        ("encode on one core", "neuzip/cpu/encode/bf16/gauss/64MiB/1thread"),
        ("encode on all cores", "neuzip/cpu/encode/bf16/gauss/64MiB/all_threads"),
    ], on_cpu=True),
    "products-cpu": Table("one core of a CPU", ["GFLOP/s"], [
        (f"{what}{how}", name.format(level)) for what, name in [
            ("the exact loss, 256 tokens x 8192 entries x 512 channels, forward: ",
             LOSS_ON_CPU + "/forward/{}/" + LOSS_SHAPE),
            ("the exact loss, forward and backward: ", LOSS_ON_CPU + "/both/{}/" + LOSS_SHAPE),
            ("`sage_attention2`, 2 heads of 1024 tokens and 128 channels: ",
             "sage_attention2/cpu/{}/d128/2x1k/1thread"),
            ("`dense_attention` of the same heads: ", "dense_attention/cpu/{}/d128/2x1k/1thread"),
        ] for how, level in [("AVX-512", "avx512"), ("AVX2", "avx2"), ("plain loops", "scalar")]
    ], on_cpu=True),
    "neuzip-size": Table("distribution of bf16 weights", ["bits per weight", "entropy bound, bits per weight"], [
        ("N(0, 0.02)", "neuzip/encode/bf16/gauss/512MiB"),
        ("Laplace", "neuzip/encode/bf16/laplace/512MiB"),
        ("Student's t with 4 degrees of freedom", "neuzip/encode/bf16/student_t/512MiB"),
        ("the weights of MiniLM-L6", "neuzip/encode/bf16/minilm/all"),
    ]),
}
