# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of matrix products, as report_tables.py takes them: the heading of labels, columns, and pairs of a label
and a benchmark."""

SPEEDS = ["TFLOP/s", "cuBLAS, TFLOP/s", "speed relative to cuBLAS"]
SCALED = [("fp8_e4m3_128x128", "e4m3, scales of weights for 128 x 128"),
          ("fp8_e4m3_1x128", "e4m3, scales of weights for 1 x 128"),
          ("int8_128x128", "int8, scales of weights for 128 x 128"),
          ("int8_1x128", "int8, scales of weights for 1 x 128")]


def in_words(size):
    """Extents as labels have them."""
    return size.replace("x", " x ")


def matrix_table():
    """Products of matrices, on a line each."""
    sizes = [("bf16", "8192x8192x8192"), ("bf16", "4096x4096x4096"), ("bf16", "8192x28672x4096"),
             ("bf16", "8192x256000x2304"), ("fp16", "8192x8192x8192"), ("tf32", "8192x8192x8192"),
             ("fp8_e4m3", "8192x8192x8192"), ("int8", "8192x8192x8192")]
    rows = [(f"{format}, {in_words(size)}", f"linear/{format}/gauss/{size}") for format, size in sizes]
    return "product of random matrices, tokens x columns x depth", SPEEDS, rows


def transposed_table():
    """Products whose operands lie across the depth."""
    layouts = [("weights across the depth (NN)", "nn", ["8192x8192x8192", "8192x4096x14336"]),
               ("both across it (TN)", "tn", ["8192x8192x8192", "14336x4096x8192"]),
               ("inputs across it (TT)", "tt", ["8192x8192x8192"])]
    rows = [(f"{what}, {in_words(size)}", f"linear/bf16_{layout}/gauss/{size}")
            for what, layout, sizes in layouts for size in sizes]
    rows += [(f"sm_80's code: {what}, {in_words(sizes[0])}", f"sm_80/linear/bf16_{layout}/gauss/{sizes[0]}")
             for what, layout, sizes in layouts]
    return ("product of random matrices in bf16, tokens x columns x depth",
            [*SPEEDS, "relative to operands along the depth"], rows)


def source_table():
    """Products with weights of codes."""
    rows = [(f"{bits} bits, {tokens} x 8192 x 8192", f"linear/w{bits}a16/gauss/{tokens}x8192x8192")
            for tokens in [1, 16, 512, 2048, 4096, 16384] for bits in [8, 4]]
    rows += [(f"{bits} bits, no workspace, {tokens} x 8192 x 8192",
              f"linear/w{bits}a16_without_workspace/gauss/{tokens}x8192x8192")
             for tokens in [2048, 4096, 16384] for bits in [8, 4]]
    rows += [(f"{bits} bits by `scaled_codes`, {tokens} x 8192 x 8192",
              f"linear/w{bits}a16_scaled/gauss/{tokens}x8192x8192") for tokens in [1, 16] for bits in [8, 4]]
    return ("product with weights of codes in groups of 128, tokens x columns x depth", [*SPEEDS, "workspace, MB"],
            rows)


def decoded_table():
    """Products with compressed weights."""
    rows = [(f"{what}, {tokens} x 8192 x 8192", f"linear/decoded_{name}/gauss/{tokens}x8192x8192")
            for name, what in [("fixed", "fixed codes"), ("rans", "rANS, decoded before")]
            for tokens in [1, 16, 512, 2048, 4096, 16384]]
    return "product with compressed weights in bf16, tokens x columns x depth", [*SPEEDS, "workspace, MB"], rows


def scaled_table(prefix, also):
    """Products of codes with scales, with further columns."""
    rows = [(f"{what}, {in_words(size)}", f"{prefix}scaled_linear/{name}/gauss/{size}")
            for name, what in SCALED for size in ["4096x8192x8192", "8192x8192x8192", "4096x18432x7168"]]
    return ("product of 8-bit codes with scales for groups of 128, tokens x columns x depth", [*SPEEDS, *also], rows)


def sm_80_table():
    """Products by sm_80's code, of matrices and of weights from sources."""
    sources = [("codes of 8 bits, with a workspace", "w8a16/gauss"),
               ("codes of 4 bits, with a workspace", "w4a16/gauss"),
               ("codes of 8 bits, without a workspace", "w8a16_without_workspace/gauss"),
               ("codes of 4 bits, without a workspace", "w4a16_without_workspace/gauss"),
               ("NeuZip's fixed codes, with a workspace", "decoded_fixed/gauss")]
    rows = [(f"bf16, {in_words(size)}", f"sm_80/linear/bf16/gauss/{size}")
            for size in ["8192x8192x8192", "4096x4096x4096"]]
    rows += [(f"{label}, {tokens} x 8192 x 8192", f"sm_80/linear/{name}/{tokens}x8192x8192")
             for label, name in sources for tokens in [2048, 4096, 16384]]
    return ("product of random matrices, code for sm_80, tokens x columns x depth",
            ["TFLOP/s", "TFLOP/s with nothing in between", "cuBLAS, TFLOP/s", "speed relative to cuBLAS"], rows)


TABLES = {
    "linear": matrix_table(),
    "linear-transposed": transposed_table(),
    "linear-sources": source_table(),
    "linear-decoded": decoded_table(),
    "linear-sm-80": sm_80_table(),
    "scaled-linear": scaled_table("", []),
    "scaled-linear-sm-80": scaled_table("sm_80/", ["without scales, TFLOP/s", "relative to that"]),
}
