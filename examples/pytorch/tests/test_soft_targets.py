# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""soft_target_cross_entropy() and chosen_log_probabilities() against PyTorch in double precision."""
import pytest
import torch

import tessera_torch
from helpers import refused
from tessera_torch import chosen_log_probabilities, linear_cross_entropy, soft_target_cross_entropy
from test_loss import TYPES, doubles, expect_same, gradients, problem


def targets_of(device, shape, vocabulary, entries=5):
    """Entries, of which some are equal and some none, and weights of either sign."""
    chosen = torch.randint(vocabulary, (*shape, entries))
    chosen[..., 1] = chosen[..., 0]
    chosen.view(-1)[::11] = -1
    chosen.view(-1, entries)[3] = -1  # a token without an entry
    return chosen.to(device), torch.randn(*shape, entries).to(device)


def reference(e, c, bias, entries, entry_weights, softcap=None, temperature=1.0, label_smoothing=0.0, z_loss=0.0):
    logits = e @ c.T + bias
    logits = (logits if softcap is None else softcap * torch.tanh(logits / softcap)) / temperature
    lse = logits.logsumexp(-1, keepdim=True)
    counts = entries >= 0
    of_entries = logits.gather(-1, torch.where(counts, entries, 0))
    each = ((1 - label_smoothing) * (lse - of_entries) + label_smoothing * (lse - logits.mean(-1, keepdim=True))
            + z_loss * lse.square())
    return torch.where(counts, each * entry_weights.double(), 0).sum(-1), counts.any(-1), lse[..., 0]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", [{}, {"softcap": 4.0, "temperature": 1.5, "label_smoothing": 0.1, "z_loss": 0.02}])
def test_loss_and_gradients(device, dtype, options):
    e, c, bias, _ = problem(device, dtype)
    entries, entry_weights = targets_of(device, e.shape[:-1], len(c))
    weights = torch.rand(entries.shape[:-1]).to(device)
    of_doubles = doubles(e, c, bias)
    expected, counts, lse = reference(*of_doubles, entries, entry_weights, **options)
    expected, lse = expected * weights.double(), torch.where(counts, lse, 0)
    for reduction, wanted in [("none", expected), ("sum", expected.sum()),
                              ("mean", expected.sum() / (weights.double() * counts).sum())]:
        found, found_lse = soft_target_cross_entropy(e, c, entries, entry_weights, bias, reduction=reduction,
                                                     filter_eps=None, weights=weights, return_lse=True, **options)
        tessera_torch.wait(device)
        assert found.shape == wanted.shape and torch.allclose(found.double(), wanted, rtol=1e-5, atol=2e-4)
        assert torch.allclose(found_lse.double(), lse, rtol=1e-5, atol=1e-4)
        upstream, of_lse = torch.randn(wanted.shape).to(device), torch.randn(lse.shape).to(device)
        expect_same(gradients((found * upstream).sum() + (found_lse * of_lse).sum(), e, c, bias),
                    torch.autograd.grad((wanted * upstream).sum() + (lse * of_lse).sum(), of_doubles,
                                        retain_graph=True), TYPES[dtype])


def test_one_entry_of_weight_one_is_a_label(device):
    e, c, bias, targets = problem(device, torch.bfloat16)
    soft = soft_target_cross_entropy(e, c, targets[..., None], torch.ones(*targets.shape, 1, device=device), bias)
    hard = linear_cross_entropy(e, c, targets, bias)
    assert torch.allclose(soft, hard, rtol=1e-5)


def test_log_probabilities_of_chosen_entries(device):
    e, c, bias, targets = problem(device, torch.float16)
    entries, _ = targets_of(device, e.shape[:-1], len(c))
    log_q = ((e.double() @ c.double().T + bias.double()) / 0.5).log_softmax(-1).detach()
    labels = targets.clamp(min=0)
    with torch.no_grad():
        _, lse = linear_cross_entropy(e, c, labels, bias, temperature=0.5, return_lse=True)
        found = chosen_log_probabilities(e, c, entries, lse, bias, temperature=0.5)
    tessera_torch.wait(device)
    expected = torch.where(entries < 0, 0, log_q.gather(-1, entries.clamp(min=0)))
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_it_compiles_without_graph_breaks(device):
    e, c, bias, _ = problem(device, torch.bfloat16)
    entries, entry_weights = targets_of(device, e.shape[:-1], len(c))
    torch._dynamo.reset()
    compiled = torch.compile(soft_target_cross_entropy, fullgraph=True)
    found = compiled(e, c, entries, entry_weights, bias)
    expected = soft_target_cross_entropy(e, c, entries, entry_weights, bias)
    assert torch.equal(found, expected)
    for one, other in zip(gradients(found, e, c, bias), gradients(expected, e, c, bias)):
        assert torch.equal(one, other)


def test_wrong_arguments_are_refused(device):
    e, c, bias, _ = (tensor.detach() for tensor in problem(device, torch.bfloat16, (6,), 50, 32))
    entries, weights = targets_of(device, (6,), 50)
    for words, call in [
            (["entries", "(6, 5)", "(6, 4)"], lambda: soft_target_cross_entropy(e, c, entries, weights[:, 1:])),
            (["entries", "(5, 5)", "(6, 32)"], lambda: soft_target_cross_entropy(e, c, entries[1:], weights[1:])),
            (["entries", "float32"], lambda: soft_target_cross_entropy(e, c, weights, weights)),
            (["biases", "Float", "BFloat16"], lambda: soft_target_cross_entropy(e, c, entries, weights, bias.float())),
            (["weights of entries", "gradient"],
             lambda: soft_target_cross_entropy(e, c, entries, weights.clone().requires_grad_())),
            (["log-sum-exps", "(5,)"], lambda: chosen_log_probabilities(e, c, entries, weights[1:, 0]))]:
        refused(words, call, device)
    entries[2, 3] = 50
    loss = soft_target_cross_entropy(e, c, entries, weights)
    assert loss.isnan()
    refused(["50"], lambda: None, device)
