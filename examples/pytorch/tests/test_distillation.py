# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linear_distillation() against PyTorch in double precision."""
import pytest
import torch

import tessera_torch
from helpers import refused
from tessera_torch import linear_distillation
from test_loss import doubles, expect_same, gradients

TYPES = {torch.bfloat16: 1e-2, torch.float16: 2e-3, torch.float32: 1e-4}


def problem(device, dtype, shape=(3, 41), vocabulary=301):
    sizes = [(*shape, 48), (vocabulary, 48), (*shape, 80), (vocabulary, 80)]
    return [(scale * torch.randn(size)).to(dtype).to(device).requires_grad_(number < 2)
            for number, (size, scale) in enumerate(zip(sizes, (1, 0.3, 1, 0.2)))]


def log_softmax(e, c, cap, temperature):
    logits = e @ c.T
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    return (logits / temperature).log_softmax(-1)


def reference(e, c, teacher_e, teacher_c, divergence, temperature=1.0, softcap=None, teacher_softcap=None, beta=0.5):
    log_q = log_softmax(e, c, softcap, temperature)
    log_p = log_softmax(teacher_e, teacher_c, teacher_softcap, temperature)
    p, q = log_p.exp(), log_q.exp()
    if divergence == "forward_kl":
        return (p * (log_p - log_q)).sum(-1)
    if divergence == "reverse_kl":
        return (q * (log_q - log_p)).sum(-1)
    log_m = (beta * p + (1 - beta) * q).log()
    return (beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)).sum(-1)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"softcap": 5.0, "teacher_softcap": 7.0, "temperature": 1.5, "beta": 0.2}])
@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", "jensen_shannon"])
def test_loss_and_gradients(device, dtype, options, divergence):
    tensors = problem(device, dtype)
    of_doubles = doubles(*tensors)
    weights = torch.rand(3, 41).to(device)
    expected = reference(*of_doubles, divergence, **options) * weights.double()
    for reduction, wanted in [("none", expected), ("sum", expected.sum()), ("mean", expected.sum() / weights.sum())]:
        found = linear_distillation(*tensors, divergence, reduction, weights=weights, **options)
        tessera_torch.wait(device)
        assert found.shape == wanted.shape and torch.allclose(found.double(), wanted, rtol=1e-4, atol=1e-4)
        upstream = torch.randn(wanted.shape).to(device)
        expect_same(gradients((found * upstream).sum(), *tensors[:2]),
                    torch.autograd.grad((wanted * upstream).sum(), of_doubles[:2], retain_graph=True), TYPES[dtype])


def test_frozen_inputs_and_no_gradients(device):
    e, c, *teacher = problem(device, torch.bfloat16)
    whole = gradients(linear_distillation(e, c, *teacher), e, c)
    assert torch.equal(gradients(linear_distillation(e, c.detach(), *teacher), e)[0], whole[0])
    assert torch.equal(gradients(linear_distillation(e.detach(), c, *teacher), c)[0], whole[1])
    with torch.no_grad():
        assert not linear_distillation(e, c, *teacher).requires_grad


def test_it_compiles_without_graph_breaks(device):
    tensors = problem(device, torch.bfloat16)
    torch._dynamo.reset()
    found = torch.compile(linear_distillation, fullgraph=True)(*tensors, "reverse_kl", temperature=2.0)
    expected = linear_distillation(*tensors, "reverse_kl", temperature=2.0)
    assert torch.equal(found, expected)
    for one, other in zip(gradients(found, *tensors[:2]), gradients(expected, *tensors[:2])):
        assert torch.equal(one, other)


def test_wrong_arguments_are_refused(device):
    e, c, teacher_e, teacher_c = (tensor.detach() for tensor in problem(device, torch.bfloat16, (6,), 50))
    for words, call in [
            (["divergence", "'other'"], lambda: linear_distillation(e, c, teacher_e, teacher_c, "other")),
            (["beta", "1"], lambda: linear_distillation(e, c, teacher_e, teacher_c, "jensen_shannon", beta=1.0)),
            (["(5, 80)", "(6, 48)"], lambda: linear_distillation(e, c, teacher_e[1:], teacher_c)),
            (["50", "49"], lambda: linear_distillation(e, c, teacher_e, teacher_c[1:])),
            (["teacher's hidden states", "Float"], lambda: linear_distillation(e, c, teacher_e.float(), teacher_c)),
            (["temperature", "0"], lambda: linear_distillation(e, c, teacher_e, teacher_c, temperature=0.0))]:
        refused(words, call, device)
