# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""top_log_probabilities() against torch.topk of all log-probabilities in double precision."""
import pytest
import torch

import tessera_torch
from helpers import refused
from tessera_torch import chosen_log_probabilities, soft_target_cross_entropy, top_log_probabilities
from test_loss import TYPES, problem


def log_probabilities(e, c, bias=None, softcap=None, temperature=1.0):
    logits = e.double() @ c.double().T + (0 if bias is None else bias.double())
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    return (logits / temperature).log_softmax(-1), (logits / temperature).logsumexp(-1)


def frozen(*arguments):
    return [tensor.detach() for tensor in problem(*arguments)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("k", [1, 3, 4, 5, 12, 13, 48])
@pytest.mark.parametrize("options", [{}, {"softcap": 4.0, "temperature": 0.7}], ids=["plain", "capped"])
def test_entries_and_log_probabilities(device, dtype, k, options):
    e, c, bias, _ = frozen(device, dtype)
    of_all, lse = log_probabilities(e, c, bias, **options)
    expected = of_all.topk(k)
    found = top_log_probabilities(e, c, k, bias, **options)
    tessera_torch.wait(device)
    assert found.entries.dtype == torch.int64 and found.log_probabilities.dtype == torch.float32
    assert found.entries.shape == found.log_probabilities.shape == (3, 41, k) and found.entries.is_contiguous()
    assert torch.allclose(found.log_probabilities.double(), expected.values, rtol=1e-5, atol=1e-4)
    assert torch.allclose(found.log_sum_exp.double(), lse, rtol=1e-5, atol=1e-4)
    # Where two logits are as near as rounding, either may come first; none comes twice.
    assert torch.allclose(of_all.gather(-1, found.entries), expected.values, rtol=1e-5, atol=1e-4)
    assert (found.entries.sort(-1).values.diff(dim=-1) > 0).all()


def test_tf32(device):
    e, c, bias, _ = frozen(device, torch.float32)
    found = top_log_probabilities(e, c, 7, bias, allow_tf32=True)
    expected = log_probabilities(e, c, bias)[0].topk(7).values
    assert torch.allclose(found.log_probabilities.double(), expected, rtol=1e-2, atol=1e-2)
    assert not torch.equal(found.log_probabilities, top_log_probabilities(e, c, 7, bias).log_probabilities)


@pytest.mark.parametrize("tokens, vocabulary, channels, k", [(0, 9, 8, 2), (1, 1, 8, 1), (129, 131, 7, 48),
                                                             (70, 2000, 64, 20), (5, 48, 8, 48)])
def test_extents(device, tokens, vocabulary, channels, k):
    e, c, bias, _ = frozen(device, torch.bfloat16, (tokens,), vocabulary, channels)
    found = top_log_probabilities(e, c, k, bias)
    expected = log_probabilities(e, c, bias)[0].topk(k).values
    assert found.entries.shape == (tokens, k)
    assert torch.allclose(found.log_probabilities.double(), expected, rtol=1e-5, atol=1e-4)


def test_the_first_of_equal_entries_comes_first(device):
    e, c, _, _ = frozen(device, torch.bfloat16, (9,), 200, 32)
    found = top_log_probabilities(e, c[:1].expand(200, 32), 6)
    assert torch.equal(found.entries.cpu(), torch.arange(6).expand(9, 6))


def test_masked_entries_and_nans(device):
    """As topk() has it, what the bias masks comes last. NaNs are no entries."""
    e, c, _, _ = frozen(device, torch.float32, (9,), 40, 32)
    bias = torch.full((40,), -torch.inf, device=device)
    bias[[5, 30]] = 0
    found = top_log_probabilities(e, c, 4, bias)
    assert torch.equal(found.entries[:, :2].sort().values.cpu(), torch.tensor([[5, 30]]).expand(9, 2))
    assert found.log_probabilities[:, :2].isfinite().all() and (found.log_probabilities[:, 2:] == -torch.inf).all()
    bias[1:] = torch.nan
    bias[0] = 0
    found = top_log_probabilities(e, c, 4, bias)
    assert torch.equal(found.entries.cpu(), torch.tensor([[0, -1, -1, -1]]).expand(9, 4))


def test_a_student_learns_from_them(device):
    """What it gives is what the functions of chosen entries and of soft targets take."""
    e, c, bias, _ = problem(device, torch.bfloat16)
    teacher = top_log_probabilities(e, c, 8, bias, temperature=2.0)
    again = chosen_log_probabilities(e.detach(), c.detach(), teacher.entries, teacher.log_sum_exp.detach(),
                                     bias.detach(), temperature=2.0)
    assert torch.allclose(again, teacher.log_probabilities.detach(), atol=1e-4)
    soft_target_cross_entropy(e, c, teacher.entries, teacher.log_probabilities.detach().exp(), bias).backward()
    assert e.grad.any()


def test_autocast(device):
    e, c, bias, _ = frozen(device, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        found = top_log_probabilities(e, c, 3, bias)
        again = chosen_log_probabilities(e, c, found.entries, found.log_sum_exp, bias)
    expected = top_log_probabilities(e.bfloat16(), c.bfloat16(), 3, bias.bfloat16())
    assert all(torch.equal(*both) for both in zip(found, expected))
    assert torch.allclose(again, found.log_probabilities, atol=1e-4)


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_it_compiles_without_graph_breaks(device, is_dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(top_log_probabilities, fullgraph=True, dynamic=is_dynamic)
    for tokens in [33, 80]:
        e, c, bias, _ = frozen(device, torch.bfloat16, (2, tokens))
        assert all(torch.equal(*both) for both in zip(compiled(e, c, 5, bias), top_log_probabilities(e, c, 5, bias)))


def test_pytorchs_checks_of_the_operator(device):
    e, c, bias, _ = frozen(device, torch.float16, (20,))
    torch.library.opcheck(torch.ops.tessera_torch.top_log_probabilities.default, (e, c, bias, None, 5, 0.0, 1.0, False),
                          test_utils=("test_schema", "test_faketensor"))


def test_wrong_arguments_are_refused(device):
    e, c, bias, _ = frozen(device, torch.bfloat16, (6,), 50, 32)
    for words, call in [
            (["k is 0", "48"], lambda: top_log_probabilities(e, c, 0)),
            (["k is 49", "48"], lambda: top_log_probabilities(e, c, 49)),
            (["k is 7", "6"], lambda: top_log_probabilities(e, c[:6], 7)),
            (["32", "31"], lambda: top_log_probabilities(e, c[:, 1:], 3)),
            (["classifier", "Double", "BFloat16"], lambda: top_log_probabilities(e, c.double(), 3)),
            (["top_log_probabilities", "Double"], lambda: top_log_probabilities(e.double(), c, 3)),
            (["bias", "49", "50"], lambda: top_log_probabilities(e, c, 3, bias[1:])),
            (["temperature", "0"], lambda: top_log_probabilities(e, c, 3, temperature=0.0)),
            (["no backward pass"],
             lambda: top_log_probabilities(e.clone().requires_grad_(), c, 3).log_probabilities.sum().backward())]:
        refused(words, call, device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
def test_a_cuda_graph_replays_it():
    e, c, bias, _ = frozen("cuda", torch.bfloat16, (256,), 1000, 64)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        top_log_probabilities(e, c, 5, bias)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = top_log_probabilities(e, c, 5, bias)
    e.copy_(torch.randn(e.shape))
    graph.replay()
    assert all(torch.equal(*both) for both in zip(found, top_log_probabilities(e, c, 5, bias)))
