# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of losses that are made of several, as report_tables.py takes them: the heading of labels, columns, and
pairs of a label and a benchmark."""
from report_contents import CLASSIFIERS


def distillation_table():
    """Both passes; other implementations keep logits, or some, in bf16."""
    rows = []
    for model, (name, size) in CLASSIFIERS.items():
        for kind, label in [("forward_kl", "forward KL"), ("reverse_kl", "reverse KL"),
                            ("jensen_shannon", "Jensen-Shannon")]:
            rows += [(f"{label}, {name}: {how}", f"{benchmark}/bf16/spread/{size}") for how, benchmark in [
                ("tessera from C++", f"linear_distillation/{kind}/forward_backward"),
                ("torch.compile", f"torch_compile/distillation/{kind}"),
                ("torch.compile by 1024 tokens", f"torch_chunks/distillation/{kind}"),
                ("PyTorch", f"torch_eager/distillation/{kind}"),
                ("Liger Kernel in Triton", f"liger/distillation/{kind}")]]
    return ("loss and gradients of a student, 8192 tokens, from a teacher with as many channels",
                 ["time, ms", "the exact cross-entropy alone, ms", "speed of products relative to that",
                  "extra memory, MiB"], rows)


def parallel_table():
    return ("exact loss, half of the vocabulary on each of two GPUs", [
        "time, ms", "half of the vocabulary on one GPU, ms", "efficiency", "extra memory, MiB"], [
        (f"{name}: {what}", f"vocabulary_parallel/{operation}/bf16/spread/2gpus/{size}")
        for name, size in CLASSIFIERS.values()
        for operation, what in [("forward_exact", "loss"), ("forward_backward_exact", "loss and gradients")]])


def tokens_table():
    return ("log-probabilities and entropies of tokens, with gradients by both, exact", [
        "time, ms", "the exact cross-entropy alone, ms", "speed of products relative to that", "extra memory, MiB"], [
        (f"{name}, {size.replace('x', ' x ')}",
         f"cut_cross_entropy/log_probabilities_and_entropies/forward_backward_exact/bf16/spread/{size}")
        for name, size in CLASSIFIERS.values()])


TABLES = {"distillation": distillation_table(), "loss-tokens": tokens_table(), "vocabulary-parallel": parallel_table()}
