# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SageAttention2 of this library beside other implementations of attention, for run.py.

Implementations, each with its usual settings:

tessera              this library
cudnn, flash2        PyTorch's scaled_dot_product_attention with cuDNN and with FlashAttention-2, in bf16
fa3, fa4             FlashAttention 3 in bf16 (fa3-fwd), and 4 on Hopper (flash-attn-4)
sage1                version 1 of SageAttention (sageattention 1): queries and keys in INT8, values in fp16
sage2, sage2_warps   version 2 by its authors: scales for a thread's elements, which is its default, and for a
                     warp's. A module `sageattention2`, or `sageattention` of version 2, with its programs for sm_90
cudnn_fp8, fa3_fp8   cuDNN (nvidia-cudnn-frontend) and FlashAttention 3 with queries, keys and values in e4m3

`<name>/forward/...` is timed end to end, from bf16 to bf16. Those in fp8 leave the conversion to the caller, who does
it here in PyTorch: one compiled function finds the largest magnitude of a tensor (cudnn_fp8) or of a head (fa3_fp8),
divides and rounds; cuDNN on Hopper also returns e4m3, which is converted back. `<name>/codes/...` are these two without
all of that. `TFLOPs` counts 4 * batch * heads * queries * keys * channels operations, half of them if causal. Errors
are those of some rows against attention in double to the bf16 inputs; `extra_MiB` is the most memory beyond inputs and
the result. attention_problem.py has the data; each length, mask and number of channels is measured on all of them.
"""
import functools
import importlib

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from attention_problem import DATA, Problem
from measuring import DEVICE, peak_of, tessera

LARGEST_ERROR = 0.5  # relative L1: something else was computed
LARGEST_E4M3 = 448.0
SCALE_OF_WEIGHTS = 256.0  # of softmaxes, which are at most 1, for cuDNN's e4m3
SECONDS = {"offset": 0.1, "normal": 0.03, "real": 0.03}  # to be measured for, in each repetition: for rates, for errors

# Channels: (name, batch, heads, tokens), as much work in each.
SHAPES = {128: [("4k", 8, 16, 4096), ("16k", 2, 16, 16384), ("32k", 1, 8, 32768)],
          64: [("4k", 8, 32, 4096), ("16k", 2, 32, 16384), ("32k", 1, 16, 32768)],
          256: [("4k", 4, 16, 4096), ("16k", 1, 16, 16384), ("32k", 1, 4, 32768)]}
SMALL_SHAPES = {128: [("small", 2, 2, 300)], 64: [("small", 1, 3, 200)], 256: [("small", 1, 1, 100)]}


class Calls:
    """One implementation on one problem: all of it from bf16 to bf16, and what it does with codes, if that is asked."""

    def __init__(self, forward, codes=None, finish=lambda result: result):
        self.forward = forward
        self.codes = codes
        self.finish = finish  # makes of what codes() returns what forward() does


# --- In bf16, or with a quantization of their own ------------------------------------------------------------------


def with_backend(backend):
    def calls(problem, is_causal):
        def attend():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(problem.queries, problem.keys, problem.values,
                                                      is_causal=is_causal)
        return Calls(attend)
    return calls


def ours():
    module = tessera()
    return lambda problem, is_causal: Calls(
        lambda: module.attention(problem.queries, problem.keys, problem.values, is_causal))


def sage1():
    package = importlib.import_module("sageattention")
    if hasattr(package, "sageattn_qk_int8_pv_fp8_cuda_sm90"):
        raise RuntimeError("the sageattention that is installed is version 2")
    return lambda problem, is_causal: Calls(
        lambda: package.sageattn(problem.queries, problem.keys, problem.values, is_causal=is_causal))


def sage2(granularity):
    try:
        package = importlib.import_module("sageattention2")
    except ModuleNotFoundError:
        package = importlib.import_module("sageattention")
    attend = getattr(package, "sageattn_qk_int8_pv_fp8_cuda_sm90", None)
    if attend is None:
        raise RuntimeError("the sageattention that is installed is version 1")
    return lambda problem, is_causal: Calls(lambda: attend(
        problem.queries, problem.keys, problem.values, is_causal=is_causal, qk_quant_gran=granularity))


def tokens_first(*tensors):
    """As FlashAttention wants them: batch x tokens x heads x channels, without a copy."""
    return [tensor.transpose(1, 2) for tensor in tensors]


def flash(module):
    attend = importlib.import_module(module).flash_attn_func

    def calls(problem, is_causal):
        def forward():
            result = attend(*tokens_first(problem.queries, problem.keys, problem.values), causal=is_causal)
            return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)
        return Calls(forward)
    return calls


# --- In fp8 -----------------------------------------------------------------------------------------------------


def rounded_rows(rows, dimensions):
    """Codes, and what they are to be multiplied by, one for all elements along these dimensions."""
    factor = rows.abs().amax(dimensions, keepdim=True).float().clamp(min=1e-12) / LARGEST_E4M3
    return (rows.float() / factor).to(torch.float8_e4m3fn), factor


def rows_in_bf16(codes, factor):
    return (codes.float() * factor).to(torch.bfloat16)


@functools.cache
def compiled(function):
    """One compilation for all shapes; on a CPU the function itself."""
    return torch.compile(function, dynamic=True) if DEVICE == "cuda" else function


def rounded_to_e4m3(tensor, of_each_head):
    """Codes of the same shape; factors: batch x heads x 1 x 1, or one."""
    rows = tensor.flatten(0, 1).flatten(1)  # of heads: fewer shapes are compiled for
    codes, factor = compiled(rounded_rows)(rows, (1,) if of_each_head else (0, 1))
    return codes.view(tensor.shape), factor.view(*tensor.shape[:2], 1, 1) if of_each_head else factor.view(1, 1, 1, 1)


def in_bf16(codes, factor):
    """For one factor."""
    return compiled(rows_in_bf16)(codes.flatten(0, 1).flatten(1), factor.view(1, 1)).view(codes.shape)


def flash_fp8():
    attend = importlib.import_module("fa3_fwd_interface").flash_attn_func

    def calls(problem, is_causal):
        def quantize():
            return [rounded_to_e4m3(tensor, True)
                    for tensor in (problem.queries, problem.keys, problem.values)]

        def over(operands):
            factors = {f"{name}_descale": factor[:, :, 0, 0] for name, (_, factor) in zip("qkv", operands)}
            result = attend(*tokens_first(*(codes for codes, _ in operands)), causal=is_causal, **factors)
            return (result[0] if isinstance(result, tuple) else result).transpose(1, 2)

        kept = quantize()
        return Calls(lambda: over(quantize()), lambda: over(kept))
    return calls


class CudnnGraph:
    """cuDNN's attention over e4m3 for one shape. Each operand has one factor; results are e4m3, too."""

    def __init__(self, cudnn, extents, is_causal):
        batch, heads, tokens, channels = extents
        strides = heads * tokens * channels, tokens * channels, channels, 1
        self.handle = cudnn.create_handle()
        cudnn.set_stream(handle=self.handle, stream=torch.cuda.current_stream().cuda_stream)
        graph = cudnn.pygraph(io_data_type=cudnn.data_type.FP8_E4M3, intermediate_data_type=cudnn.data_type.FLOAT,
                              compute_data_type=cudnn.data_type.FLOAT, handle=self.handle)

        def number(name):
            return graph.tensor(dim=(1, 1, 1, 1), stride=(1, 1, 1, 1), data_type=cudnn.data_type.FLOAT, name=name)

        self.inputs = {name: graph.tensor(dim=extents, stride=strides, data_type=cudnn.data_type.FP8_E4M3, name=name)
                       for name in ["q", "k", "v"]}
        self.inputs.update({name: number(name) for name in [
            "descale_q", "descale_k", "descale_v", "descale_s", "scale_s", "scale_o"]})
        causal = {"diagonal_alignment": cudnn.diagonal_alignment.TOP_LEFT, "right_bound": 0} if is_causal else {}
        out, _, *largest = graph.sdpa_fp8(**self.inputs, generate_stats=False, attn_scale=channels ** -0.5, **causal)
        out.set_output(True).set_dim(extents).set_stride(strides).set_data_type(cudnn.data_type.FP8_E4M3)
        for tensor in largest:
            tensor.set_output(True).set_dim((1, 1, 1, 1)).set_stride((1, 1, 1, 1)).set_data_type(cudnn.data_type.FLOAT)
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.graph, self.outputs = graph, [out, *largest]
        self.space = torch.empty(max(graph.get_workspace_size(), 1), dtype=torch.uint8, device=DEVICE)
        self.largest = [torch.empty(1, 1, 1, 1, device=DEVICE) for _ in largest]
        self.weights = {"scale_s": torch.full((1, 1, 1, 1), SCALE_OF_WEIGHTS, device=DEVICE),
                        "descale_s": torch.full((1, 1, 1, 1), 1 / SCALE_OF_WEIGHTS, device=DEVICE)}

    def __call__(self, operands, scale):
        """Results times `scale`, in e4m3."""
        out = torch.empty_like(operands[0][0])
        given = {**self.weights, "scale_o": scale, **{name: codes for name, (codes, _) in zip("qkv", operands)},
                 **{f"descale_{name}": factor for name, (_, factor) in zip("qkv", operands)}}
        pack = {self.inputs[name]: tensor for name, tensor in given.items()}
        pack.update(zip(self.outputs, [out, *self.largest]))
        self.graph.execute(pack, self.space, handle=self.handle)
        return out


def cudnn_fp8():
    cudnn = importlib.import_module("cudnn")
    graphs = {}

    def calls(problem, is_causal):
        key = problem.extents, is_causal
        if key not in graphs:
            graphs.clear()  # its workspace
            graphs[key] = CudnnGraph(cudnn, *key)
        graph = graphs[key]

        def quantize():
            return [rounded_to_e4m3(tensor, False)
                    for tensor in (problem.queries, problem.keys, problem.values)]

        def forward():  # results are no larger than the largest value, whose code is the largest
            operands = quantize()
            return in_bf16(graph(operands, operands[2][1].reciprocal()), operands[2][1])

        kept = quantize()
        scale = kept[2][1].reciprocal()
        return Calls(forward, lambda: graph(kept, scale), lambda result: in_bf16(result, kept[2][1]))
    return calls


IMPLEMENTATIONS = {
    "tessera": ours, "cudnn": lambda: with_backend(SDPBackend.CUDNN_ATTENTION),
    "flash2": lambda: with_backend(SDPBackend.FLASH_ATTENTION), "sage1": sage1,
    "sage2": lambda: sage2("per_thread"), "sage2_warps": lambda: sage2("per_warp"),
    "fa3": lambda: flash("fa3_fwd_interface"), "fa3_fp8": flash_fp8, "cudnn_fp8": cudnn_fp8,
    "fa4": lambda: flash("flash_attn.cute")}


@functools.cache
def found(name):
    """The implementation, or why there is none: it is looked for once."""
    try:
        return IMPLEMENTATIONS[name](), None
    except Exception as trouble:  # whatever an import raises
        return None, trouble


def implementation(name):
    calls, trouble = found(name)
    if trouble is not None:
        raise trouble
    return calls


def measured_call(run, title, call, finish, problem, is_causal):
    counters = problem.errors(finish(call()), is_causal)
    if not counters["relative_l1"] <= LARGEST_ERROR:
        raise RuntimeError(f"the relative L1 error is {counters['relative_l1']}")
    counters.update(peak_of(call, lambda result: result.nbytes))
    return run.time(title, call, counters, ("TFLOPs", 1e-12 * problem.operations(is_causal)), SECONDS[problem.data])


def measure(run, name, problem, is_causal):
    """Rows of all of it; over codes for the usual data only, since there the time is what matters."""
    calls = implementation(name)(problem, is_causal)
    title = problem.title(is_causal)
    rows = measured_call(run, f"{name}/forward/{title}", calls.forward, lambda result: result, problem, is_causal)
    if calls.codes and problem.data == "offset":
        rows += measured_call(run, f"{name}/codes/{title}", calls.codes, calls.finish, problem, is_causal)
    return rows


def measure_all(run):
    names = [name for name in IMPLEMENTATIONS if run.wants(name)]
    if not names:
        return
    for channels, shapes in (SMALL_SHAPES if run.is_small else SHAPES).items():
        for shape in shapes:
            for data in DATA:
                problem = Problem(data, channels, *shape)
                for is_causal in (False, True):
                    for name in names:
                        run.attempt(f"{name}/forward/{problem.title(is_causal)}",
                                    lambda: measure(run, name, problem, is_causal))
                del problem
