# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The contents of report.py's reports: the figures of summary.json. report_tables.py has the tables, report_charts.py
the plots."""
import report_python
import report_real_model


def floor(counters):
    """The rate of the benchmark's bytes if its traffic ran at the speed of a copy."""
    return counters["TBps"] / counters["of_copy"] if counters.get("of_copy") and "TBps" in counters else None


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


# key in summary.json: (how, counter, benchmarks). "value" has one benchmark, "ratio" is the first over the second, with
# a list of both counters where these are two,
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
# PyTorch's own losses of bench/peers/losses.py, in words.
NATIVE_LOSSES = [("torch_native", "PyTorch's linear_cross_entropy"),
                 ("torch_native_chunked", "PyTorch's linear_cross_entropy by chunks"),
                 ("torch_native_cute", "PyTorch's linear_cross_entropy by chunks, in CuTe")]
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
    gemma = CLASSIFIERS["gemma"][1]
    product, decoding = "linear/bf16/gauss/8192x8192x8192", "attention/decode/bf16/d128/128k"
    return {
        "sage.relative_l1.normal": ("largest", "relative_l1", [f"attention/forward/bf16/d128/{length}/normal"
                                                               for length in LENGTHS]),
        # In fp8 over codes: their time does not include the quantization, which the caller must do first.
        **{f"peer.cudnn_fp8.d128.{length}.tflops": of_peer("cudnn_fp8", "codes", "TFLOPs", f"bf16/d128/{length}")
           for length in LENGTHS},
        "peer.fa3_fp8.d128.16k.tflops": of_peer("fa3_fp8", "codes", "TFLOPs", "bf16/d128/16k"),
        "peer.sage2.d128.16k.tflops": ("largest of any", "TFLOPs", [f"{who}/forward/bf16/d128/16k"
                                                                    for who in ["sage2", "sage2_warps"]]),
        # The package of examples/pytorch, by its own programs (benchmarks/figures.py puts them together).
        "python.apple_tests_passed": ("value", "passed", ["python/apple_tests"]),
        "python.compile_graph_breaks": ("value", "graph_breaks", ["python/graph_breaks"]),
        "python.overhead.us": ("value", "overhead_us", ["python/overhead"]),
        "demo.seconds": ("value", "seconds", ["house/demo"]),  # with compiling, by bench/house.py
        "peer.quack.llama.both.ms": of_peer("quack", both, "ms", CLASSIFIERS["llama"][1]),
        "peer.torch_compile.llama.both.ms": of_peer("torch_compile", both, "ms", CLASSIFIERS["llama"][1]),
        "peer.torch_compile.gemma.both.ms": of_peer("torch_compile", both, "ms", CLASSIFIERS["gemma"][1]),
        # A peer's time over ours with up to 4 GiB, in turns: above 1 where ours is faster.
        **{f"cce.{model}.exact_4gib.over_{who}": ("ratio", "ms", [
            f"{peer}/in_turns/{both}/{size}" for peer in [who, "tessera_exact_4gib"]])
           for model, (_, size) in CLASSIFIERS.items()
           for who in ["quack", "torch_compile", "liger_cute", *dict(NATIVE_LOSSES)]},
        "neuzip.zeros_over_dense": ("ratio", "TBps", ["neuzip/decode/bf16/gauss_with_zeros/512MiB",
                                                      "neuzip/decode/bf16/gauss/512MiB"]),
        "neuzip.encode_zeros_over_dense": ("ratio", "TBps", ["neuzip/encode/bf16/gauss_with_zeros/512MiB",
                                                             "neuzip/encode/bf16/gauss/512MiB"]),
        "neuzip.gpu_differences": ("value", "gpu_differences", ["neuzip/broken_streams"]),
        # The rate of a product with decoded weights over that of cuBLAS with weights in bf16.
        "swap.linear_w8a16": ("value", "vs_cublas", ["linear/w8a16/gauss/4096x8192x8192"]),
        "swap.linear_w4a16": ("value", "vs_cublas", ["linear/w4a16/gauss/4096x8192x8192"]),
        "swap.few_rows_w4a16": ("value", "vs_cublas", ["linear/w4a16_scaled/gauss/1x8192x8192"]),
        "swap.few_rows16_w4a16": ("value", "vs_cublas", ["linear/w4a16_scaled/gauss/16x8192x8192"]),
        "swap.linear_decoded": ("value", "vs_cublas", ["linear/decoded_rans/gauss/4096x8192x8192"]),
        "swap.few_rows1_decoded": ("value", "vs_cublas", ["linear/decoded_fixed/gauss/1x8192x8192"]),
        "swap.few_rows_decoded": ("value", "vs_cublas", ["linear/decoded_fixed/gauss/16x8192x8192"]),  # of 16 rows
        # Products of fp8 with scales by groups of 128, over those of cuBLAS without.
        "swap.linear_w8a8_groups": ("value", "vs_cublas", ["scaled_linear/fp8_e4m3_128x128/gauss/4096x8192x8192"]),
        # The time of a loss over that of the same with a user's own reducers, which are called for each logit.
        "swap.loss_top4": ("value", "vs_plain", ["cut_cross_entropy/reducers/top_four_by_push/forward_backward_exact/"
                                                 f"bf16/spread/{CLASSIFIERS['gemma'][1]}"]),
        "swap.loss_push_entropy": ("value", "vs_plain", ["cut_cross_entropy/reducers/entropy_by_push/forward/"
                                                         f"bf16/spread/{CLASSIFIERS['gemma'][1]}"]),
        # By bytes: lossy weights over lossless ones; pages over those of 4 bits, the lower of making and reading them.
        "swap.neuzip_lossy": ("value", "vs_lossless", ["neuzip/decode_lossy/bf16/gauss/kept3"]),
        "swap.pages_3bit": ("value", "of_4bit", ["minicache/exchange/3bit/d128/64x4k"]),
        "swap.pages_k4v2": ("value", "of_4bit", ["minicache/exchange/k4v2/d128/64x4k"]),
        # A step with Quest's boxes over one with shadow_kv's landmarks, values in pinned memory of the host.
        "swap.shadow_quest": ("value", "of_shadow_kv", ["shadow/quest/decode/host/hit60/128k"]),
        # The rate of attention with an exchanged part over that of sage_attention2, both from bf16 to bf16.
        "swap.attention_smoothed": ("value", "of_alias", ["exchange/attention/smoothed_queries/forward/bf16/d128/16k"]),
        "swap.attention_int4": ("value", "of_alias", ["exchange/attention/int4/forward/bf16/d128/16k"]),
        "swap.attention_fp8": ("value", "of_alias", ["exchange/attention/float8/forward/bf16/d128/16k"]),
        # Of runs of their own.
        "swap.attention_bf16_over_cudnn": ("ratio", "TFLOPs", ["dense_attention/forward/bf16/d128/16k",
                                                               "cudnn/forward/bf16/d128/16k"]),
        # sm_80's code, which runs on later GPUs: over FlashAttention-2 there, of a run of its own.
        **{f"sm80.attention.{channels}.over_fa2": ("ratio", "TFLOPs", [f"sm_80/attention/forward/bf16/{channels}/16k",
                                                                       f"flash2/forward/bf16/{channels}/16k"])
           for channels in ["d128", "d64"]},
        "sm80.gemm.tflops": ("value", "alone_TFLOPs", [f"sm_80/{product}"]),
        # A forward pass in turns with cuBLAS over a product in turns with it; both passes alone over a product alone.
        "sm80.loss.forward_over_gemm": ("ratio", "TFLOPs", [f"sm_80/cut_cross_entropy/forward/bf16/zipf/{gemma}",
                                                            f"sm_80/{product}"]),
        "sm80.loss.both_over_gemm": ("ratio", ["TFLOPs", "alone_TFLOPs"],
                                     [f"sm_80/cut_cross_entropy/forward_backward_exact/bf16/spread/{gemma}",
                                      f"sm_80/{product}"]),
        "sm80.pages.read_fraction": ("value", "of_read", ["sm_80/minicache/decode/4bit/d128/64x4k"]),
        "sm80.decode128k.read_fraction": ("value", "of_read", [f"sm_80/{decoding}"]),
        **{f"sm80.neuzip.{operation}_over_sm90": ("ratio", "TBps", [f"sm_80/neuzip/{operation}/bf16/gauss/512MiB",
                                                                    f"neuzip/{operation}/bf16/gauss/512MiB"])
           for operation in ["decode", "encode"]},
        # The time of sm_90a's step over that of sm_80's code.
        "sm80.shadow.step_over_sm90": ("ratio", "ms", ["shadow/decode/fp8/hit60/128k",
                                                       "sm_80/shadow/decode/fp8/hit60/128k"]),
        # For each tile that is visited; also over codes, since lists do not make quantization less.
        "swap.attention_block_list": ("value", "of_alias", ["exchange/attention/block_list/forward/bf16/d128/16k"]),
        "swap.attention_block_list_codes": ("value", "of_alias", ["exchange/attention/block_list/codes/bf16/d128/16k"]),
        "swap.attention_bias": ("value", "of_alias", ["exchange/attention/dense_bias/forward/bf16/d128/16k"]),
        "swap.attention_alibi": ("value", "of_alias", ["exchange/attention/linear_bias/forward/bf16/d128/16k"]),
        "swap.attention_packed": ("value", "of_alias",
                                  ["exchange/attention/packed/forward/bf16/d128/lengths_1k_to_8k"]),
        "swap.attention_192_128": ("value", "of_alias", ["exchange/attention/wide_keys/forward/bf16/d192_128/16k"]),
        "swap.attention_function": ("value", "of_alias", ["exchange/attention/bias_function/forward/bf16/d128/16k"]),
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
        "host.loss.us": ("largest", "us_beyond", ["host/cut_cross_entropy/forward", "host/cut_cross_entropy/backward"]),
    },
    "cpu_products.json": {  # of one core
        "cpu.loss.gflops_per_core": ("value", "GFLOPs", ["exact_cross_entropy/cpu/forward/avx2/256x8192x512/1thread"]),
        "cpu.attention.gflops_per_core": ("value", "GFLOPs", ["sage_attention2/cpu/avx2/d128/2x1k/1thread"]),
    },
    "cpu_products_avx512.json": {
        "cpu.loss.avx512.gflops_per_core":
            ("value", "GFLOPs", ["exact_cross_entropy/cpu/forward/avx512/256x8192x512/1thread"]),
        "cpu.loss_both.avx512.gflops_per_core":
            ("value", "GFLOPs", ["exact_cross_entropy/cpu/both/avx512/256x8192x512/1thread"]),
        "cpu.dense_attention.avx512.gflops_per_core":
            ("value", "GFLOPs", ["dense_attention/cpu/avx512/d128/2x1k/1thread"]),
        "cpu.attention.avx512.gflops_per_core": ("value", "GFLOPs", ["sage_attention2/cpu/avx512/d128/2x1k/1thread"]),
    },
    "house.json": {  # the repository itself, by bench/house.py
        "ci.cold.minutes": ("value", "minutes", ["house/ci"]),
        "house.concepts_unused": ("value", "unused", ["house/concepts"]),
        "house.headers_in_largest_folder": ("value", "headers", ["house/folders"])},
    # The rate of distillation's products over that of the exact loss's, in turns.
    "linear_distillation.json": {"cce.distill.over_exact": ("value", "over_exact", [
        "linear_distillation/forward_kl/forward_backward/bf16/spread/8192x256000x2304"])},
    # The time of both passes over that of the products that they need, by cuBLAS, and what little memory costs.
    "exact_cross_entropy.json": {f"cce.{model}.{key}": ("value", counter, [
        f"exact_cross_entropy/forward_backward/{memory}/bf16/spread/{size}"])
        for model, (_, size) in CLASSIFIERS.items()
        for key, counter, memory in [("exact_4gib.over_products", "over_products", "4GiB"),
                                     ("exact.over_products", "over_products", "160MiB"),
                                     ("exact_10mib.ms", "ms", "10MiB"),
                                     ("exact_10mib.extra_mib", "extra_MiB", "10MiB")]},
    # The time of the exact loss over that of log-probabilities and entropies with gradients, the lower of two.
    "loss_tokens.json": {"cce.logprob_entropy.over_exact": ("value", "over_exact", [
        "cut_cross_entropy/log_probabilities_and_entropies/forward_backward_exact/bf16/spread/8192x256000x2304"])},
    # The time of a GPU's half alone over that of its part; of the classifier whose ratios are lower.
    "vocabulary_parallel.json": {f"parallel.loss.{key}_efficiency": ("value", "efficiency", [
        f"vocabulary_parallel/{operation}_exact/bf16/spread/2gpus/8192x256000x2304"])
        for key, operation in [("forward", "forward"), ("both", "forward_backward")]},
    # What the filter keeps and changes on a real classifier, with entries in the order of GPUs, and in their own.
    "loss_real.json": {f"cce.real.{key}": ("value", counter, [f"cut_cross_entropy/on_cpu/{passes}/bf16/smollm2/whole"])
                       for passes, suffix in [("forward_backward_ordered", ""), ("forward_backward", "_own_order")]
                       for key, counter in [(f"blocks_kept{suffix}", f"kept{'' if suffix else '_ordered'}"),
                                            (f"hidden_error{suffix}", "hidden_error"),
                                            (f"classifier_error{suffix}", "classifier_error")]},
    # How far a fine-tuning with filtered gradients ends from one with exact ones: nats of tokens that were held out.
    "loss_fine_tuning.json": {f"cce.fine_tuning.{name}.held_out_loss": (
        "value", "last_held_out_loss", [f"fine_tuning/{name}/smollm2/49152x576"])
        for name in ["exact", "filtered", "full_classifier"]},
    # The time of NCCL's collective over that of the compressed one, the lowest of lists of 64 MiB and more. NCCL's as
    # it comes, or of lists that are registered at a communicator that sends by copy engines.
    "compressed_collectives.json": {f"parallel.{figure}": ("smallest", counter, [
        f"compressed_collectives/{collective}/bf16/gauss/{wire}/2gpus/{size}/{options}"
        for size in ["64MiB", "256MiB", "1GiB"]])
        for collective, figure, counter, wire, options in [
            ("all_gather", "allgather.nvlink_over_nccl", "over_nccl", "nvlink", "for_peer_memory"),
            ("all_gather", "allgather.nvlink_over_nccl_registered", "over_nccl_registered", "nvlink",
             "for_peer_memory"),
            ("all_gather", "allgather.nvlink_by_copy_engines_over_nccl", "over_nccl", "nvlink", "for_copy_engines"),
            ("all_gather", "allgather.nvlink_by_programs_over_nccl", "over_nccl", "nvlink", "default"),
            ("all_gather", "allgather.pcie_over_nccl", "over_nccl", "pcie", "for_slow_wires"),
            ("reduce_scatter", "reducescatter.nvlink_over_nccl", "over_nccl", "nvlink", "for_peer_memory")]},
    # The time of a loss over the time of a loss that also computes entropies and predictions.
    "loss_reducers.json": {"swap.loss_statistics": ("value", "vs_plain", [
        "cut_cross_entropy/reducers/statistics/forward_backward_exact/bf16/spread/8192x128256x4096"])},
    "minicache.json": minicache_figures(),
    "real_model.json": report_real_model.FIGURES,
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

# The pages that tables stand in.
PAGES = ["README.md", "docs/measured.md", "docs/exchanges.md", "docs/guide.md", "docs/real_model.md",
         "examples/papers/README.md", *report_python.PAGES]
