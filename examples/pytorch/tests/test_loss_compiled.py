# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The loss under torch.compile, and PyTorch's own checks of operators."""
import pytest
import torch

import tessera_torch
from tessera_torch import linear_cross_entropy, linear_statistics
from test_loss import gradients, problem

FUNCTIONS = {
    "mean": lambda e, c, t, b: linear_cross_entropy(e, c, t, b),
    "options": lambda e, c, t, b: linear_cross_entropy(e, c, t, b, softcap=5.0, shift=1, reduction="sum",
                                                       label_smoothing=0.1, z_loss=0.01),
    "tokens": lambda e, c, t, b: linear_cross_entropy(e, c, t, None, reduction="none").square().sum() + b.sum(),
    "log_sum_exps": lambda e, c, t, b: sum(part.sum() for part in linear_cross_entropy(e, c, t, b, return_lse=True)),
    "statistics": lambda e, c, t, b: (lambda found: (found.log_probability * 2 + found.entropy).sum())(
        linear_statistics(e, c, t, b))}


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_there_are_no_graph_breaks_and_results_are_the_same(device, name):
    e, c, bias, targets = problem(device, torch.bfloat16)
    function = FUNCTIONS[name]
    expected = function(e, c, targets, bias)
    compiled = torch.compile(function, fullgraph=True)
    found = compiled(e, c, targets, bias)
    tessera_torch.wait(device)
    assert torch.allclose(found, expected, rtol=1e-6)
    for one, other in zip(gradients(found, e, c, bias), gradients(expected, e, c, bias)):
        assert torch.equal(one, other)
    explained = torch._dynamo.explain(function)(e, c, targets, bias)
    assert explained.graph_break_count == 0 and explained.graph_count == 1


def test_compiled_code_follows_the_precision_of_products(device):
    """tf32 is PyTorch's setting on CUDA devices; on the CPU it is an argument alone."""
    e, c, bias, targets = problem(device, torch.float32)
    compiled = torch.compile(FUNCTIONS["mean"], fullgraph=True)
    whole, rounded = (linear_cross_entropy(e, c, targets, bias, allow_tf32=allowed) for allowed in (False, True))
    assert not torch.equal(whole, rounded)
    before = torch.get_float32_matmul_precision()
    try:
        for precision, expected in [("highest", whole), ("high", rounded if device == "cuda" else whole),
                                    ("highest", whole)]:
            torch.set_float32_matmul_precision(precision)
            assert torch.equal(FUNCTIONS["mean"](e, c, targets, bias), expected)
            assert torch.equal(compiled(e, c, targets, bias), expected)
    finally:
        torch.set_float32_matmul_precision(before)


def test_extents_may_change(device):
    compiled = torch.compile(FUNCTIONS["mean"], fullgraph=True, dynamic=True)
    for tokens in [33, 80, 129]:
        e, c, bias, targets = problem(device, torch.bfloat16, (2, tokens))
        found, expected = compiled(e, c, targets, bias), FUNCTIONS["mean"](e, c, targets, bias)
        assert torch.equal(found, expected)
        for one, other in zip(gradients(found, e, c, bias), gradients(expected, e, c, bias)):
            assert torch.equal(one, other)


@pytest.mark.parametrize("reduction", [0, 2])
@pytest.mark.parametrize("has_statistics", [False, True])
def test_pytorchs_checks_of_the_operator(device, reduction, has_statistics):
    e, c, bias, targets = problem(device, torch.float32, (20,))
    weights = torch.rand(20, device=device)
    arguments = (e, c, targets, bias, weights, None, None, None, None, reduction, -100, 0, 0, 5.0, 1.0, 0.0, 0.0, 0.0,
                 0.0, 0, has_statistics, False, True)
    torch.library.opcheck(torch.ops.tessera_torch.loss_forward.default, arguments,
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
def test_a_cuda_graph_replays_the_loss_and_its_gradients():
    e, c, bias, targets = problem("cuda", torch.bfloat16, (256,), 1000, 64)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(linear_cross_entropy(e, c, targets, bias), e, c, bias)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = linear_cross_entropy(e, c, targets, bias)
        found = gradients(loss, e, c, bias)
    with torch.no_grad():
        e.copy_(torch.randn(e.shape))
    graph.replay()
    expected = linear_cross_entropy(e, c, targets, bias)
    assert torch.equal(loss, expected)
    for one, other in zip(found, gradients(expected, e, c, bias)):
        assert torch.equal(one, other)
