# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of sm_80's code, which was measured on a later GPU, as report_tables.py takes them: the heading of labels,
columns, and pairs of a label and a benchmark."""
from report_contents import CLASSIFIERS


def attention_table():
    """sm_80's code on a later GPU, beside FlashAttention-2, which is sm_80's code, too."""
    rows = []
    for channels in [128, 64, 256]:
        for causal in ["", "/causal"]:
            label, name = f"{channels} channels{', causal' if causal else ''}", f"bf16/d{channels}/16k{causal}"
            rows += [(f"{label}: `sage_attention2`", f"sm_80/attention/forward/{name}"),
                     (f"{label}: `sage_attention2`, quantized before", f"sm_80/attention/codes/{name}"),
                     (f"{label}: `dense_attention` in bf16", f"sm_80/dense_attention/forward/{name}"),
                     (f"{label}: FlashAttention-2 in bf16", f"flash2/forward/{name}")]
    return ("attention of 16K queries to 16K tokens, code for sm_80", ["TFLOP/s", "time, ms", "relative L1 error"],
                 rows)


def loss_table():
    """sm_80's code on a later GPU."""
    rows = []
    for model, (name, size) in CLASSIFIERS.items():
        rows += [(f"{name}, {size.replace('x', ' x ')}: {label}", f"sm_80/cut_cross_entropy/{case}/{size}")
                 for label, case in [
                     ("forward", "forward/bf16/zipf"),
                     ("forward and backward, filtered, zipf data", "forward_backward/bf16/zipf"),
                     ("forward and backward, exact", "forward_backward_exact/bf16/spread"),
                     ("forward and backward, exact, with up to 4 GiB", "forward_backward_exact_4GiB/bf16/spread"),
                     ("forward, also entropies and predictions", "reducers/statistics/forward/bf16/spread"),
                     ("forward and backward, exact, also the four largest logits by a user's Reducer",
                      "reducers/top_four_by_push/forward_backward_exact/bf16/spread")]]
    return ("loss, code for sm_80", ["time, ms", "TFLOP/s", "time without these further outputs, ms",
                                          "extra memory, MiB", "relative error of the hidden states' gradient",
                                          "relative error of the classifier's gradient"], rows)


def memory_table():
    """sm_80's programs that are bound by memory, each above sm_90a's on the same kind of GPU."""
    rows = []
    for label, name in [("decoding, 8 bits, 128K tokens", "attention/decode/bf16/d128/128k"),
                        ("decoding, bf16, 64 sequences of 4K tokens", "minicache/dense_decode/bf16/d128/64x4k"),
                        ("decoding over pages of 4 bits, 64 sequences of 4K tokens",
                         "minicache/decode/4bit/d128/64x4k"),
                        ("making pages of 4 bits, 16 sequences of 4K tokens",
                         "minicache/compress/bf16/d128/32_heads/16x4k"),
                        ("`shadow_kv`, scores of 128K tokens", "shadow/score/128k"),
                        ("`shadow_kv`, a step, 60 % hits, values of the host in e4m3", "shadow/decode/fp8/hit60/128k"),
                        ("NeuZip, decoding bf16, 512 MiB", "neuzip/decode/bf16/gauss/512MiB"),
                        ("NeuZip, encoding bf16, 512 MiB", "neuzip/encode/bf16/gauss/512MiB")]:
        rows += [(f"{label}: code for sm_80", f"sm_80/{name}"), (f"{label}: sm_90a", name)]
    return ("bound by memory", ["time, µs", "TB/s", "part of a read's bandwidth", "part of a copy's bandwidth"],
                 rows)


TABLES = {
    "attention-sm-80": attention_table(),
    "loss-sm-80": loss_table(),
    "memory-sm-80": memory_table(),
}
