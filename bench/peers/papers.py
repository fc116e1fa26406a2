# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What examples/papers stands beside, for run.py: the same work by PyTorch, on operands of the same extents.

flash2, cudnn     scaled_dot_product_attention over keys and values in bf16 with this backend; where query heads share
                  keys, the four of a key head are its four queries
torch_int4        torch._weight_int4pack_mm, 4-bit weights in groups of 128
cublas            torch.mm with weights in bf16
torch_eager       PyTorch's operations one by one
scaled_mm         torch._scaled_mm in e4m3 with scales for 1 x 128 inputs and 128 x 128 weights
scaled_mm_rows    the same with a scale for each row and column
torch_compile     PyTorch's operations, compiled
torch_fused       torch.optim.AdamW(fused=True), weights and moments in fp32

`error` is the largest difference from results in fp32 of rows that stand for all, relative to the largest of these.
Names end in the extents of a program's trial, in its order. Losses of policies and preferences have a part of their
own, sequences.py, and distillation by hidden states has distillation.py.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measuring import DEVICE, SEED

CHANNELS, PAGE, LARGEST_E4M3 = 128, 16, 448.0
BACKENDS = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
WANTED_SECONDS, SAMPLES = 0.06, (4, 20)


def made(*shape, scale=1.0):
    return (torch.randn(shape, device=DEVICE) * scale).bfloat16()


def apart(found, exact):
    return float((found.float() - exact.float()).abs().max() / exact.float().abs().max())


# Functions of extents that give a call, its counters, and what it moves or does: the name of a rate, and 10^12 of it.


def attention(backend, queries, keys, values):
    def call():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(queries, keys, values)

    one = [part[:1, :1].float() for part in (queries[:, :, :64], keys, values)]
    return call, {"error": apart(call()[:1, :1, :64], F.scaled_dot_product_attention(*one))}


def decoding(backend):
    def of(key_heads, tokens):
        heads = min(key_heads, 8)
        shape = key_heads // heads, heads, tokens, CHANNELS
        keys, values = made(*shape), made(*shape)
        queries = made(*shape[:2], 4, CHANNELS)
        return *attention(backend, queries, keys, values), ("TBps", 4e-12 * keys.numel())

    return of


def prompt(backend):
    def of(heads, tokens):
        q, k, v = (made(1, heads, tokens, CHANNELS) for _ in range(3))
        return *attention(backend, q, k, v), ("TFLOPs", 4e-12 * heads * tokens * tokens * CHANNELS)

    return of


def work_of_product(tokens, columns, depth):
    return "TFLOPs", 2e-12 * tokens * columns * depth


def int4(tokens, columns, depth):
    inputs, codes = made(tokens, depth), torch.randint(0, 256, (columns, depth // 2), device=DEVICE).to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(codes, 8)
    scales = torch.zeros(depth // 128, columns, 2, device=DEVICE, dtype=torch.bfloat16)
    scales[:, :, 0] = 0.0078125

    def call():
        return torch._weight_int4pack_mm(inputs, packed, 128, scales)

    some = torch.stack([codes[:64] >> 4, codes[:64] & 15], 2).flatten(1).float()  # 8 stands for 0
    exact = inputs.float() @ ((some - 8) * 0.0078125).T
    return call, {"error": apart(call()[:, :64], exact)}, work_of_product(tokens, columns, depth)


def cublas(tokens, columns, depth):
    inputs, weights = made(tokens, depth), made(columns, depth, scale=0.02)

    def call():
        return torch.mm(inputs, weights.T)

    counters = {"error": apart(call()[:, :64], inputs.float() @ weights[:64].float().T)}
    return call, counters, work_of_product(tokens, columns, depth)


def quest(heads, pages, taken):
    queries, keys, values = made(heads, 4, CHANNELS), *(made(heads, pages * PAGE, CHANNELS) for _ in range(2))
    paged = keys.view(heads, pages, PAGE, CHANNELS)
    boxes = torch.cat([paged.amax(2), paged.amin(2)], 2).transpose(1, 2)
    rows = [part.view(heads * pages, PAGE * CHANNELS) for part in (keys, values)]
    first = torch.arange(heads, device=DEVICE)[:, None] * pages

    def call():
        signed = torch.cat([queries.clamp(min=0), queries.clamp(max=0)], 2)
        best = (signed @ boxes).amax(1).topk(taken, 1, sorted=False).indices + first
        some = [part.index_select(0, best.flatten()).view(1, heads, taken * PAGE, CHANNELS) for part in rows]
        return F.scaled_dot_product_attention(queries[None], *some)

    call()
    return call, {}, ("TBps", 4e-12 * heads * CHANNELS * (pages + taken * PAGE))


def with_scales(values, dimensions):
    """Codes in e4m3 and scales: `values` has groups, along these dimensions."""
    scales = values.float().abs().amax(dimensions, keepdim=True).clamp(min=1e-30) / LARGEST_E4M3
    return (values / scales).to(torch.float8_e4m3fn), scales


def scaled_mm(is_by_blocks, is_quantized_before):
    def of(tokens, columns, depth):
        inputs, weights = made(tokens, depth), made(columns, depth, scale=0.02)
        if is_by_blocks:
            codes, scales = with_scales(weights.view(columns // 128, 128, depth // 128, 128), (1, 3))
            scales = scales.view(columns // 128, depth // 128).T
        else:
            codes, scales = with_scales(weights, 1)
            scales = scales.T
        codes = codes.view(columns, depth).T

        def quantized():
            if not is_by_blocks:
                return with_scales(inputs, 1)
            found, by_group = with_scales(inputs.view(tokens, depth // 128, 128), 2)
            return found.view(tokens, depth), by_group.view(tokens, depth // 128).T.contiguous().T

        before = quantized()

        def call():
            own = before if is_quantized_before else quantized()
            return torch._scaled_mm(own[0], codes, own[1], scales, out_dtype=torch.bfloat16)

        counters = {"error": apart(call()[:, :64], inputs.float() @ weights[:64].float().T)}
        return call, counters, work_of_product(tokens, columns, depth)

    return of


def divergence(hidden, classifier, teacher):
    own = F.log_softmax((hidden @ classifier.T).float(), 1)
    return F.kl_div(own, F.log_softmax(teacher.float(), 1), reduction="none", log_target=True).sum(1)


def distillation(is_compiled):
    def of(tokens, vocabulary, channels):
        torch._dynamo.reset()
        hidden, classifier = made(tokens, channels), made(vocabulary, channels, scale=0.05)
        teacher = made(tokens, vocabulary, scale=2.0)
        hidden.requires_grad_()
        loss = torch.compile(divergence, fullgraph=True, dynamic=False) if is_compiled else divergence

        def call():
            hidden.grad = None
            found = loss(hidden, classifier, teacher)
            found.sum().backward()
            return found.detach()

        exact = divergence(hidden.detach()[:16].float(), classifier.float(), teacher[:16])
        counters = {"error": apart(call()[:16], exact)}
        return call, counters, ("TFLOPs", 4e-12 * tokens * vocabulary * channels)

    return of


def top_k(rows, columns, k):
    logits = made(rows, columns, scale=3.0)

    def call():
        sums, (values, entries) = torch.logsumexp(logits, 1), torch.topk(logits, k, 1)
        return sums, entries, torch.exp(values.float() - sums[:, None])

    counters = {"error": apart(call()[0][:64], torch.logsumexp(logits[:64].float(), 1))}
    return call, counters, ("TBps", 2e-12 * rows * columns)


def fused_adam(parameters):
    weights = torch.nn.Parameter(torch.randn(parameters, device=DEVICE))
    weights.grad = torch.randn(parameters, device=DEVICE) * 1e-3
    adam = torch.optim.AdamW([weights], lr=1e-3, weight_decay=0.01, fused=True)
    return adam.step, {}, ("TBps", 28e-12 * parameters)


# Program: its extents, those for trying the script, and {implementation: function of the extents}.
PAPERS = {
    "eight_bit_adam": ([(1 << 28,)], [(1000,)], {"torch_fused": fused_adam}),
    "kivi_decode": ([(384, 8256)], [(2, 70)], {who: decoding(who) for who in BACKENDS}),
    "weight_only_linear": ([(tokens, 28672, 8192) for tokens in (1, 16, 256, 4096)], [(3, 128, 256)],
                           {"torch_int4": int4, "cublas": cublas}),
    "quest_selection": ([(64, 4096, 128)], [(2, 20, 3)], {"torch_eager": quest}),
    "group_scaled_linear": ([(4096, 18432, 7168)], [(16, 128, 256)], {
        "scaled_mm": scaled_mm(True, False), "scaled_mm_before": scaled_mm(True, True),
        "scaled_mm_rows": scaled_mm(False, False), "scaled_mm_rows_before": scaled_mm(False, True)}),
    "softmax_top_k": ([(4096, 128256, 8)], [(3, 100, 8)], {"torch_eager": top_k}),
    "float8_attention": ([(16, 8192)], [(2, 70)], {who: prompt(who) for who in BACKENDS}),
    "distillation_loss": ([(2048, 128256, 2048)], [(20, 300, 64)],
                          {"torch_eager": distillation(False), "torch_compile": distillation(True)}),
}


def measure_one(run, title, make, extents):
    torch.manual_seed(SEED)
    call, counters, rate = make(*extents)
    return run.time(title, call, counters, rate, WANTED_SECONDS, SAMPLES)


def measure_all(run):
    for program, (usual, small, makers) in PAPERS.items():
        for extents in small if run.is_small else usual:
            for who, make in makers.items():
                title = f"{who}/papers/{program}/" + "x".join(map(str, extents))
                run.attempt(title, lambda: measure_one(run, title, make, extents))
