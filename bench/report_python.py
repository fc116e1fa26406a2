# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of report.py for the package of examples/pytorch: tables of docs/python, from what its benchmarks measure,
and which rows plots draw."""
ATTENTION = "python_attention"
METHODS = [("`sage2`: 8 bits", "sage2"), ("`sage2_smoothed`: 8 bits, smoothed queries", "sage2_smoothed"),
           ("`int4`: 4 bits", "int4"), ("`fp8`: e4m3", "fp8"), ("`bf16`: no codes", "bf16"),
           ("`fp16`: no codes, inputs in fp16", "fp16")]
BACKENDS = [("PyTorch, cuDNN", "cudnn"), ("PyTorch, FlashAttention-2", "flash"), ("PyTorch, efficient", "efficient")]
DATA = [("SmolLM2's layer 15", "real"), ("normal numbers", "normal"), ("normal numbers with offsets", "offset")]
LOSS_DATA = ["zipf", "flat", "spread"]


def attention_rows(place, backends):
    """(what, benchmark) of ours and PyTorch's at a place, which ends the benchmarks' names."""
    return ([(label, f"{ATTENTION}/tessera/{name}/{place}") for label, name in METHODS] +
            [(label, f"{ATTENTION}/torch/{name}/{place}") for label, name in backends])


def loss_rows(size):
    """(what, library, benchmark) of the loss with gradients; what is not filtered takes as long with any data."""
    def of(who, data="zipf"):
        return f"{who}/forward_backward/bf16/{data}/{size}"

    return ([(f"the default, {data} data", "tessera", of("tessera", data)) for data in LOSS_DATA] +
            [("filter_eps=None", "tessera", of("tessera_exact")), ("torch.compile", "pytorch", of("torch_compile")),
             ("PyTorch", "pytorch", of("torch_eager"))] +
            [(f"Apple's package, {data} data", "apple", of("apple_cce", data)) for data in LOSS_DATA])


def plain(label):
    return label.replace("`", "")


# name: (heading, columns, rows, whether they are of a CPU), as report_tables.Table takes them
TABLES = {
    "python-attention-errors": ("causal attention of 512 tokens, 9 heads of 64 channels", ["relative L1 error"], [
        (f"{where}: {label}", name) for where, data in DATA
        for label, name in attention_rows(f"error/{data}", [("PyTorch in bf16", "flash")])], True),
    "python-attention-speed": ("attention from Python", ["TFLOP/s", "time, ms", "relative L1 error"], [
        (f"{channels} channels, {length.upper()} tokens{', causal' * is_causal}: {label}", name)
        for channels in (128, 64) for length in ("4k", "16k") for is_causal in (False, True)
        for label, name in attention_rows(f"forward/d{channels}/{length}{'/causal' * is_causal}", BACKENDS)]),
}

PAGES = ["docs/python/attention.md"]
