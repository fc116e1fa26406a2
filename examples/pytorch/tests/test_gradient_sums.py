# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of linear_cross_entropy() that are added to float32 tensors of the caller's."""
import pytest
import torch

import tessera_torch
from helpers import refused, relative
from tessera_torch import LinearCrossEntropy, linear_cross_entropy, linear_log_probabilities, linear_statistics
from test_loss import TYPES, doubles, gradients, problem, reference


def sums_of(*tensors):
    """Float32 tensors with other numbers in them, of which those of the second dimension do not lie together."""
    made = [torch.randn(*tensor.shape[:-1], 2 * tensor.shape[-1]).to(tensor.device) for tensor in tensors]
    return [each[..., :tensor.shape[-1]] if tensor.dim() > 1 else each[:len(tensor)].clone()
            for each, tensor in zip(made, tensors)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.1, "softcap": 5.0, "reduction": "sum"}],
                         ids=["plain", "smoothed"])
@pytest.mark.parametrize("given", [(True, False), (False, True), (True, True)], ids=["classifier", "bias", "both"])
def test_gradients_are_added_over_micro_batches(device, dtype, options, given):
    e, c, bias, targets = problem(device, dtype)
    sums = sums_of(c, bias)
    before = [each.clone() for each in sums]
    arguments = {name: each for name, each, is_given in zip(("classifier_gradient", "bias_gradient"), sums, given)
                 if is_given}
    expected = [torch.zeros_like(each, dtype=torch.float64) for each in (c, bias)]
    for batch in range(2):
        with torch.no_grad():
            e.copy_(torch.randn(e.shape))
        e.grad = None
        linear_cross_entropy(e, c, targets, bias, filter_eps=None, **options, **arguments).backward()
        of_doubles = doubles(e, c, bias)
        found = gradients(reference(*of_doubles[:2], targets, of_doubles[2], **options)[0], *of_doubles)
        assert e.grad.dtype == dtype and relative(e.grad, found[0]) < TYPES[dtype]
        for total, each in zip(expected, found[1:]):
            total += each
    tessera_torch.wait(device)
    for tensor, each, old, is_given, total in zip((c, bias), sums, before, given, expected):
        if is_given:
            assert tensor.grad is None and each._version == 2
            assert relative(each.double() - old.double(), total) < TYPES[dtype]
        else:
            assert torch.equal(each, old) and tensor.grad.dtype == dtype
            assert relative(tensor.grad, total) < 2 * TYPES[dtype]


def test_what_is_added_is_what_would_be_the_gradient(device):
    """In float32 of 0 and of one pass the same bits, and the other gradients are those without a sum."""
    e, c, bias, targets = problem(device, torch.float32)
    whole = gradients(linear_cross_entropy(e, c, targets, bias), e, c, bias)
    sums = [torch.zeros_like(each) for each in (c, bias)]
    found = linear_cross_entropy(e, c, targets, bias, classifier_gradient=sums[0], bias_gradient=sums[1])
    found.backward()
    assert all(torch.equal(*both) for both in zip((e.grad, *sums), whole))
    e, c, bias = (each.detach().bfloat16().requires_grad_() for each in (e, c, bias))
    whole = gradients(linear_cross_entropy(e, c, targets, bias), e, c, bias)
    found = linear_cross_entropy(e, c, targets, bias, classifier_gradient=sums[0])
    assert torch.equal(found, linear_cross_entropy(e, c, targets, bias))
    for one, other in zip(gradients(found, e, bias), (whole[0], whole[2])):
        assert relative(one, other) < 4e-3


def test_passes_may_come_in_any_order(device):
    """As with pipelines, where several forward passes come before their backward passes."""
    e, c, _, targets = problem(device, torch.bfloat16)
    total = torch.zeros(c.shape, device=device)
    losses = [linear_cross_entropy(e, c, targets, classifier_gradient=total) for _ in range(3)]
    for loss in losses:
        loss.backward()
    once = torch.zeros_like(total)
    linear_cross_entropy(e, c, targets, classifier_gradient=once).backward()
    assert relative(total, 3 * once) < 1e-6


def test_relatives_of_the_loss_add_gradients(device):
    e, c, bias, targets = problem(device, torch.float16)
    whole = [gradients(function(e, c, targets, bias).sum(), c)[0] for function in (
        LinearCrossEntropy(), linear_log_probabilities, lambda *tensors: linear_statistics(*tensors).entropy)]
    total = torch.zeros(c.shape, device=device)
    for function in (LinearCrossEntropy(classifier_gradient=total),
                     lambda *tensors: linear_log_probabilities(*tensors, classifier_gradient=total),
                     lambda *tensors: linear_statistics(*tensors, classifier_gradient=total).entropy):
        function(e, c, targets, bias).sum().backward()
    assert relative(total, sum(each.float() for each in whole)) < TYPES[torch.float16]


def test_autocast(device):
    e, c, _, targets = problem(device, torch.float32)
    total = torch.zeros_like(c, requires_grad=False)
    with torch.autocast(device, torch.bfloat16):
        linear_cross_entropy(e, c, targets, classifier_gradient=total).backward()
        expected = gradients(linear_cross_entropy(e, c, targets), c)[0]
    assert relative(total, expected) < 4e-3 and c.grad is None


def test_without_gradients_the_sums_stay(device):
    e, c, _, targets = problem(device, torch.bfloat16)
    total = torch.ones(c.shape, device=device)
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(e, c, targets, classifier_gradient=total),
                           linear_cross_entropy(e, c, targets))
    assert total.eq(1).all() and total._version == 0


def test_compiled_code_adds_gradients(device):
    e, c, bias, targets = problem(device, torch.bfloat16)
    torch._dynamo.reset()

    def function(total, of_bias):
        return linear_cross_entropy(e, c, targets, bias, softcap=9.0, classifier_gradient=total, bias_gradient=of_bias)

    compiled = torch.compile(function, fullgraph=True)
    totals = [[torch.zeros(each.shape, device=device) for each in (c, bias)] for _ in range(2)]
    for _ in range(2):
        found = [gradients(way(*total), e)[0] for way, total in zip((function, compiled), totals)]
        assert torch.equal(*found) and all(torch.equal(*both) for both in zip(*totals))
    losses = [compiled(*totals[1]) for _ in range(2)]
    for loss in losses:
        loss.backward()
    assert relative(totals[1][0], 2 * totals[0][0]) < 1e-6
    explained = torch._dynamo.explain(function)(*totals[0])
    assert explained.graph_break_count == 0 and explained.graph_count == 1


@pytest.mark.parametrize("has_statistics", [False, True])
def test_pytorchs_checks_of_the_operator(device, has_statistics):
    e, c, bias, targets = problem(device, torch.bfloat16, (20,))
    sums = [torch.zeros(each.shape, device=device) for each in (c, bias)]
    options = (0, -100, 0, 0, 5.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0, has_statistics, False)
    arguments = (e, c, targets, bias, None, None, None, *sums, *options)
    torch.library.opcheck(torch.ops.tessera_torch.loss_forward.default, (*arguments, True),
                          test_utils=("test_schema", "test_autograd_registration", "test_faketensor"))
    workspace = torch.ops.tessera_torch.loss_forward(*arguments, True)[-1]
    upstream = torch.rand(20, device=device)
    tensors = [each.detach() for each in (e, c, targets, bias)]
    # Its schema does not say that a pass leaves other numbers in the workspace, which nobody reads.
    torch.library.opcheck(torch.ops.tessera_torch.loss_backward_into.default,
                          (*tensors, None, None, None, *sums, *options, workspace, upstream, None, None, True, True,
                           True),
                          test_utils=("test_faketensor",))


def test_wrong_arguments_are_refused(device):
    e, c, bias, targets = problem(device, torch.bfloat16, (6,), 50, 32)
    total, of_bias = torch.zeros(50, 32, device=device), torch.zeros(50, device=device)

    def loss(c=c, bias=bias, **sums):
        return linear_cross_entropy(e, c, targets, bias, **sums)

    for words, call in [
            (["classifier_gradient", "bfloat16", "float32"], lambda: loss(classifier_gradient=total.bfloat16())),
            (["classifier_gradient", "(49, 32)", "(50, 32)"], lambda: loss(classifier_gradient=total[1:])),
            (["classifier_gradient", "meta"], lambda: loss(classifier_gradient=total.to("meta"))),
            (["bias_gradient", "(49,)", "(50,)"], lambda: loss(bias_gradient=of_bias[1:])),
            (["bias_gradient", "(50,)", "None"], lambda: loss(bias=None, bias_gradient=of_bias)),
            (["classifier", "requires no gradient"], lambda: loss(c=c.detach(), classifier_gradient=total)),
            (["classifier_gradient", "one, too"], lambda: loss(classifier_gradient=total.clone().requires_grad_())),
            (["classifier's gradients", "stride of 0"], lambda: loss(classifier_gradient=total[:1].expand(50, 32))),
            (["no backward pass"],
             lambda: torch.autograd.grad(loss(classifier_gradient=total), e, create_graph=True))]:
        refused(words, call, device)
    assert not total.any() and not of_bias.any()
    targets[2] = 50
    loss(classifier_gradient=total).backward()
    assert e.grad.isfinite().all() and total.isfinite().all()  # for gradients a token with a wrong label has none
    refused(["50"], lambda: None, device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
def test_a_cuda_graph_adds_gradients_each_time():
    e, c, _, targets = problem("cuda", torch.bfloat16, (256,), 1000, 64)
    total, once = (torch.zeros(c.shape, device="cuda") for _ in range(2))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(linear_cross_entropy(e, c, targets, classifier_gradient=total), e)
    torch.cuda.current_stream().wait_stream(stream)
    total.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        gradients(linear_cross_entropy(e, c, targets, classifier_gradient=total), e)
    for _ in range(3):
        graph.replay()
    gradients(linear_cross_entropy(e, c, targets, classifier_gradient=once), e)
    assert relative(total, 3 * once) < 1e-6
