# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of docs/exchanges.md: what a program with an exchanged part has of the speed of the one without."""
from report_contents import CLASSIFIERS, number

GEMMA, LLAMA = (CLASSIFIERS[model][1] for model in ["gemma", "llama"])


def product(name, tokens=4096):
    return f"linear/{name}/gauss/{tokens}x8192x8192", "vs_cublas"


def scaled(name):
    return f"scaled_linear/{name}/gauss/4096x8192x8192", "vs_cublas"


def attention(name, operation="forward", size="d128/16k"):
    return f"exchange/attention/{name}/{operation}/bf16/{size}", "of_alias"


def reducers(name, size):
    return f"cut_cross_entropy/reducers/{name}/bf16/spread/{size}", "vs_plain"


def classifier(name, size):
    return f"with_classifier/exact_{name}_rows/forward_backward/bf16/zipf/{size}", "over_plain"


def quest(values):
    return f"shadow/quest/decode/{values}/hit60/128k", "of_shadow_kv"


def rate(name):
    return f"{name}/forward/bf16/d128/16k", "TFLOPs"


WHY = "([why](measured.md#why-some-exchanges-of-attention-cost-more))"
# The exchange, a sentence with a place for each figure, and a figure's benchmark and counter. Two pairs in one place
# are a ratio.
ROWS = [
    ("codes of 8 and 4 bits for weights (`dequantized`), 4096 tokens: with a workspace of 134 MB; without",
     "{} and {} of cuBLAS; {} and {}",
     [product("w8a16"), product("w4a16"), product("w8a16_without_workspace"), product("w4a16_without_workspace")]),
    ("the same, 512 tokens", "{} and {} of cuBLAS", [product("w8a16", 512), product("w4a16", 512)]),
    ("the same, 1 token; 16 tokens", "{} and {} times cuBLAS; {} and {}",
     [product(f"w{bits}a16", tokens) for tokens in [1, 16] for bits in [8, 4]]),
    ("codes of 4 bits, 1 and 16 tokens: `scaled_codes`", "{} and {} times cuBLAS",
     [product("w4a16_scaled", 1), product("w4a16_scaled", 16)]),
    ("NeuZip's weights, 4096 tokens: rANS decoded before; fixed codes with a workspace", "{} and {} of cuBLAS",
     [product("decoded_rans"), product("decoded_fixed")]),
    ("NeuZip's fixed codes, 1 and 16 tokens", "{} and {} of cuBLAS",
     [product("decoded_fixed", 1), product("decoded_fixed", 16)]),
    ("`scaled_linear` in e4m3 by groups of 128, 4096 tokens: scales of weights for 128 x 128; for 1 x 128",
     "{} and {} of cuBLAS in fp8, which has one scale", [scaled("fp8_e4m3_128x128"), scaled("fp8_e4m3_1x128")]),
    ("a user's function as bias, **whatever it returns**",
     f"**{{}}**, over codes {{}} of `sage_attention2` {WHY}",
     [attention("bias_function"), attention("bias_function", "codes")]),
    ("a bias that is linear in the distance, as `linear_bias` (ALiBi)", "{}, over codes {}",
     [attention("linear_bias"), attention("linear_bias", "codes")]),
    ("a bias from memory, as `dense_bias`", "{}, over codes {}",
     [attention("dense_bias"), attention("dense_bias", "codes")]),
    ("smoothed queries; `sage_attention2_int4`, which has them, too", f"{{}}; {{}}, over codes {{}}; {{}} {WHY}",
     [attention("smoothed_queries"), attention("int4"), attention("smoothed_queries", "codes"),
      attention("int4", "codes")]),
    ("lists of half of the tiles, for each tile: a list for 64 queries; for 128",
     f"{{}}; {{}}, over codes {{}}; {{}} {WHY}",
     [attention(f"block_list{lists}", operation) for operation in ["forward", "codes"] for lists in ["", "_of_128"]]),
    ("queries and keys in FP8: `float8_attention`", "{}, over codes {}",
     [attention("float8"), attention("float8", "codes")]),
    ("packed sequences", "{} of a padded batch", [attention("packed", size="d128/lengths_1k_to_8k")]),
    ("queries and keys of 192 channels with values of 128, in operations a second", "{} of `sage_attention2` with 128",
     [attention("wide_keys", size="d192_128/16k")]),
    ("bf16 as it is: `dense_attention`, in runs of their own", "{} of `sage_attention2`; {} of cuDNN in bf16",
     [(rate("dense_attention"), rate("attention")), (rate("dense_attention"), rate("cudnn"))]),
    ("entropies and predictions in the loss, both passes: Gemma's classifier; Llama's", "{}; {} of the loss alone",
     [reducers("statistics/forward_backward_exact", size) for size in [GEMMA, LLAMA]]),
    ("a user's own entropy and four largest logits by push(), forward: Gemma's classifier; Llama's",
     "{} and {}; {} and {} of the loss alone",
     [reducers(f"{name}_by_push/forward", size) for size in [GEMMA, LLAMA] for name in ["entropy", "top_four"]]),
    ("a classifier of fp32 rows; of fp8 rows with a scale each (`with_classifier`), both passes: Gemma's; Llama's",
     "{}; {}, and {}; {} of the loss with bf16 rows",
     [classifier(rows, size) for size in [GEMMA, LLAMA] for rows in ["fp32", "fp8"]]),
    ("lossy NeuZip of 3 bits; pages of 3 bits, and of 4 bits for keys and 2 for values",
     "{} of lossless; {} and {} of 4 bits",
     [("neuzip/decode_lossy/bf16/gauss/kept3", "vs_lossless"), ("minicache/exchange/3bit/d128/64x4k", "of_4bit"),
      ("minicache/exchange/k4v2/d128/64x4k", "of_4bit")]),
    ("Quest's boxes in ShadowKV, values on the host; on the host in e4m3; on the device",
     "{}; {}; {} of `shadow_kv`", [quest("host"), quest("fp8"), quest("device")]),
]


def value_of(results, benchmark, counter):
    result = results.get(benchmark)
    return None if result is None or result.error else result.counters.get(counter)


def ratio(results, figure):
    """A figure of ROWS, or None where it was not measured."""
    if isinstance(figure[0], str):
        return value_of(results, *figure)
    ours, other = (value_of(results, *each) for each in figure)
    return ours / other if ours is not None and other else None


def exchanges(results):
    """The table; a row that has not all of its results is left out."""
    lines = []
    for exchange, sentence, figures in ROWS:
        values = [ratio(results, figure) for figure in figures]
        if None not in values:
            lines.append(f"| {exchange} | {sentence.format(*map(number, values))} |")
    return "\n".join(["| exchange | speed |", "|---|---|", *lines]) if lines else "Not measured yet."
