# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of losses that are made of several, and those of several GPUs, as report_tables.py takes them: the heading
of labels, columns, and pairs of a label and a benchmark."""
from report_contents import CLASSIFIERS, NATIVE_LOSSES


def distillation_table():
    """Both passes; other implementations keep logits, or some, in bf16."""
    rows = []
    for model, (name, size) in CLASSIFIERS.items():
        for kind, label in [("forward_kl", "forward KL"), ("reverse_kl", "reverse KL"),
                            ("jensen_shannon", "Jensen-Shannon")]:
            rows += [(f"{label}, {name}: {how}", f"{benchmark}/bf16/spread/{size}") for how, benchmark in [
                ("tessera from C++", f"linear_distillation/{kind}/forward_backward"),
                *((f"tessera from C++, with up to {most} GiB",
                   f"linear_distillation/{kind}/forward_backward_{most}GiB")
                  for most in [1, 4, 6] if kind != "reverse_kl"),
                ("torch.compile", f"torch_compile/distillation/{kind}"),
                ("torch.compile by 1024 tokens", f"torch_chunks/distillation/{kind}"),
                ("PyTorch", f"torch_eager/distillation/{kind}"),
                ("Liger Kernel in Triton", f"liger/distillation/{kind}")]]
    return ("loss and gradients of a student, 8192 tokens, from a teacher with as many channels",
                 ["time, ms", "the exact cross-entropy alone, ms", "speed of products relative to that",
                  "extra memory, MiB", "relative error of the hidden states' gradient",
                  "relative error of the classifier's gradient"], rows)


def sequences_table():
    """Both passes of losses of sequences' log-probabilities, from Python (bench/peers/sequences.py)."""
    return ("loss and gradients of 8192 tokens in sequences of 1024, from Python", [
        "time, ms", "extra memory, MiB", "relative error of the hidden states' gradient",
        "relative error of the classifier's gradient"], [
        (f"{label}, {name}: {how}", f"{who}/{kind}/forward_backward/bf16/spread/{size}")
        for name, size in CLASSIFIERS.values() for kind, label in [("preference", "DPO"), ("policy", "GRPO")]
        for how, who in [
            ("tessera, exact", "tessera"), ("tessera, exact, with up to 4 GiB", "tessera_4gib"),
            ("torch.compile by 1024 tokens, logits made again", "torch_chunks"),
            ("torch.compile by 1024 tokens, logits kept", "torch_chunks_kept"), ("torch.compile", "torch_compile"),
            ("PyTorch", "torch_eager"), ("Liger Kernel's fused loss", "liger")]])


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


def loss_on_real_data():
    """Both passes over real hidden states and a part of a real classifier."""
    return ("forward and backward from Python, SmolLM2's data, 8192 x 512 x 576 (tokens x vocabulary x channels)", [
        "time, ms", "extra memory, MiB", "relative error of the loss", "relative error of the hidden states' gradient",
        "relative error of the classifier's gradient"], [
        (label, f"{who}/forward_backward/bf16/real/8192x512x576") for label, who in [
            ("tessera, filtered", "tessera"), ("tessera, exact", "tessera_exact"),
            ("Apple's cut-cross-entropy, filtered", "apple_cce"),
            ("Apple's cut-cross-entropy, exact", "apple_cce_exact"), ("torch.compile", "torch_compile"),
            ("PyTorch", "torch_eager"), *((label, who) for who, label in NATIVE_LOSSES),
            ("Liger Kernel in Triton", "liger"), ("Liger Kernel in CuTe", "liger_cute"), ("QuACK", "quack")]])


def classifiers_table():
    """Losses whose classifier is a source of rows."""
    return ("loss and gradients of 8192 tokens, zipf data", [
        "time, ms", "the same loss with bf16 rows, ms", "speed relative to that", "that of the forward pass",
        "extra memory, MiB"], [
        (f"{name}, {rows} rows: {how}", f"with_classifier/{loss}_{kind}_rows/forward_backward/bf16/zipf/{size}")
        for name, size in CLASSIFIERS.values() for kind, rows in [("fp32", "fp32"), ("fp8", "fp8")]
        for loss, how in [("exact", "exact"), ("filtered", "filtered")]])


FILTERED_REAL, FILTERED_ZIPF = "smollm2/whole", "zipf/8192x49152x576"
KEPT = ["blocks that the filter keeps", "the same with entries ordered by use"]
CHANGED = ["relative error of the hidden states' gradient", "relative error of the classifier's gradient",
           "rows of the classifier that lose all of their gradient"]


def filter_table():
    """What the filter keeps and changes on real data, and beside it on synthetic ones."""
    cpu = "cut_cross_entropy/on_cpu/forward_backward"
    return ("loss and gradients of 8192 tokens, blocks of 128 x 128 below 2^-12 left out", [
        "vocabulary entries", *KEPT, *CHANGED, "processor time, s"], [
        ("SmolLM2, entries ordered by use", f"{cpu}_ordered/bf16/{FILTERED_REAL}"),
        ("SmolLM2, entries in their own order", f"{cpu}/bf16/{FILTERED_REAL}"),
        ("the same, the classifier's gradient whole", f"{cpu}_full_classifier/bf16/{FILTERED_REAL}"),
        ("SmolLM2, exact", f"{cpu}_exact/bf16/{FILTERED_REAL}"),
        ("zipf data of these extents, entries ordered by use", f"{cpu}_ordered/bf16/{FILTERED_ZIPF}"),
        ("the same, entries in their own order", f"{cpu}/bf16/{FILTERED_ZIPF}"),
        *gpu_rows()])


def gpu_rows():
    return [(f"zipf data of {name}'s extents on a GPU, entries ordered by use",
             f"cut_cross_entropy/forward_backward/bf16/zipf/{size}") for name, size in CLASSIFIERS.values()]


def filter_beside_zipf_table():
    """The rows for the first page."""
    cpu = "cut_cross_entropy/on_cpu/forward_backward"
    return ("data of 8192 tokens", [
        "vocabulary entries", "blocks that the filter keeps, entries ordered by use", *CHANGED], [
        ("SmolLM2's text and classifier", f"{cpu}_ordered/bf16/{FILTERED_REAL}"),
        ("synthetic zipf data of the same extents", f"{cpu}_ordered/bf16/{FILTERED_ZIPF}"),
        *((label.split(",")[0].replace("zipf", "synthetic zipf"), name) for label, name in gpu_rows())])


def short_filter_table(results):
    """The same beside entries in their own order, for the README: no more than real and synthetic data of one size."""
    cpu, lines = "cut_cross_entropy/on_cpu/forward_backward", []
    for label, data in [("SmolLM2's text and classifier", FILTERED_REAL), ("synthetic zipf data", FILTERED_ZIPF)]:
        names = [f"{cpu}/bf16/{data}", f"{cpu}_ordered/bf16/{data}"]
        if any(name not in results or results[name].error for name in names):
            return "Not measured yet."
        own, ordered = (results[name].counters for name in names)
        pairs = [(own["kept"], ordered["kept_ordered"], 0),
                 *((own[key], ordered[key], digits) for key, digits in [
                     ("hidden_error", 2), ("classifier_error", 2), ("rows_without", 0)])]
        cells = [f"{100 * one:.{digits}f}%, {100 * other:.{digits}f}%" for one, other, digits in pairs]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join([
        "| the filter on 8192 tokens and 49,152 entries: in their own order, ordered by use ([a "
        "fine-tuning](bench/results/loss_fine_tuning.svg)) | blocks kept | error of the hidden states' gradient | of "
        "the classifier's gradient | rows without any gradient |", "|---|---:|---:|---:|---:|",
        *lines])


def fine_tuning_table():
    return ("fine-tuning of SmolLM2's whole classifier and an adapter", [
        "held-out loss before", "held-out loss after", "rows of the classifier that never move",
        "distance of the classifier from the exact training's", "distance of the adapter from the exact training's",
        "processor seconds a step"], [
        (label, f"fine_tuning/{name}/smollm2/49152x576") for label, name in [
            ("exact gradients", "exact"), ("both gradients filtered", "filtered"),
            ("the hidden states' gradient filtered, the classifier's whole", "full_classifier")]])


def products_table():
    """The exact loss beside what it must multiply."""
    return ("exact loss and gradients, 8192 tokens", [
        "time, ms", "its products alone by cuBLAS, ms", "time relative to those", "extra memory, MiB"], [
        (f"{name}, {data}: {how}", f"exact_cross_entropy/forward_backward/{memory}/bf16/{data}/{size}")
        for name, size in CLASSIFIERS.values() for data in ["zipf", "spread"]
        for memory, how in [("4GiB", "with memory for the softmaxes, 3 products"),
                            ("160MiB", "usual memory, 4 products"),
                            ("10MiB", "little memory, gradients in fp32, 4 products"),
                            ("10MiB_gradients_in_bf16", "little memory, gradients in bf16, 4 products")]])


# What no collective has these options for.
COLLECTIVES_WITHOUT = [("broadcast", "for_copy_engines"), ("reduce_scatter", "for_copy_engines"),
                       ("broadcast", "for_peer_memory")]


def collectives_table():
    """Collectives of compressed weights, with the options that each wire is meant to have."""
    return ("bf16 weights, two GPUs, bytes of each of them", [
        "time, ms", "NCCL's own, ms", "speed relative to NCCL's", "speed relative to NCCL's by copy engines",
        "extra memory, MiB"], [
        (f"{collective}, {wire}, {size}",
         f"compressed_collectives/{collective}/bf16/gauss/{name}/2gpus/{size}/{options}")
        for wire, name, options in [("without peer access", "pcie", "for_slow_wires"),
                                    ("NVLink, stores to peers", "nvlink", "for_peer_memory"),
                                    ("NVLink, copy engines", "nvlink", "for_copy_engines"),
                                    ("NVLink, NCCL's programs", "nvlink", "default")]
        for collective in ["all_gather", "broadcast", "reduce_scatter"]
        if (collective, options) not in COLLECTIVES_WITHOUT for size in ["64MiB", "256MiB", "1GiB"]])


TABLES = {"compressed-collectives": collectives_table(), "loss-products": products_table(),
          "loss-real-peers": loss_on_real_data(), "distillation": distillation_table(),
          "sequences": sequences_table(), "loss-filter": filter_table(),
          "loss-classifiers": classifiers_table(), "loss-filter-beside-zipf": filter_beside_zipf_table(),
          "loss-fine-tuning": fine_tuning_table(),
          "loss-tokens": tokens_table(), "vocabulary-parallel": parallel_table()}
