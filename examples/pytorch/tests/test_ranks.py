# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses over the ranks of a process group are those of the whole classifier in double precision: gloo's on CPUs, and
NCCL's where there are two GPUs."""
import os
import tempfile

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import test_distillation
import test_loss
import tessera_torch
from helpers import refused, relative
from tessera_torch import (VocabParallelOptions, chosen_log_probabilities, linear_cross_entropy, linear_distillation,
                           linear_statistics, soft_target_cross_entropy, top_log_probabilities)
from test_stored_classifiers import CODES, rounded, stored

CHANNELS, VOCABULARY, TOKENS = 48, 301, (6, 41)
LIMITS = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 2e-3}
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.device_count() >= 2 else [])


def begin_of(rank, ranks):
    """Of uneven parts, of which the second of three has none."""
    return [[0, VOCABULARY], [0, 100, VOCABULARY], [0, 90, 90, VOCABULARY]][ranks - 1][rank]


def options_of(rank, ranks, **others):
    return VocabParallelOptions(begin_of(rank, ranks), begin_of(rank + 1, ranks), VOCABULARY, **others)


def own_rows(options, *tensors):
    return [None if tensor is None else tensor.detach()[options.start:options.stop].clone().requires_grad_()
            for tensor in tensors]


def own_tokens(options, e, rank, ranks):
    own = e.detach().chunk(ranks)[rank] if options.sequence_parallel else e.detach()
    return own.clone().requires_grad_()


def expect_gradients(found, expected, options, rank, ranks, limit):
    """found: of hidden states, then of rows; expected: of all of them."""
    of_e = expected[0].chunk(ranks)[rank] if options.sequence_parallel else expected[0]
    assert relative(found[0], of_e) <= limit
    for gradient, whole in zip(found[1:], expected[1:]):
        part = whole[options.start:options.stop]
        assert gradient.shape == part.shape and (part.numel() == 0 or relative(gradient, part) <= 2 * limit)


def check_labels(rank, ranks, device, dtype, options, **given):
    e, c, bias, targets = test_loss.problem(device, dtype, TOKENS, VOCABULARY, CHANNELS)
    of_doubles = test_loss.doubles(e, c, bias)
    weights, class_weights = torch.rand(TOKENS).to(device), torch.rand(VOCABULARY).to(device) + 0.5
    given = {**given, "weights": weights, "class_weights": class_weights}
    rows, own_bias = own_rows(options, c, bias)
    own = own_tokens(options, e, rank, ranks)
    for reduction in ["mean", "none"]:
        expected, lse = test_loss.reference(*of_doubles[:2], targets, of_doubles[2], reduction=reduction, **given)
        found, found_lse = linear_cross_entropy(own, rows, targets, own_bias, reduction=reduction, return_lse=True,
                                                filter_eps=None, vocab_parallel_options=options, **given)
        tessera_torch.wait(device)
        assert torch.allclose(found.double(), expected, rtol=1e-4, atol=1e-4)
        assert torch.allclose(found_lse.double(), lse, rtol=1e-4, atol=1e-4)
        upstream = torch.rand(expected.shape).to(device)
        expect_gradients(torch.autograd.grad((found * upstream).sum() + 0.1 * found_lse.sum(), (own, rows, own_bias)),
                         torch.autograd.grad((expected * upstream).sum() + 0.1 * lse.sum(), of_doubles),
                         options, rank, ranks, LIMITS[dtype])


def check_statistics(rank, ranks, device, options):
    e, c, bias, targets = test_loss.problem(device, torch.float32, TOKENS, VOCABULARY, CHANNELS)
    rows, own_bias = own_rows(options, c, bias)
    own = own_tokens(options, e, rank, ranks)
    results = [linear_statistics(e, c, targets, bias, filter_eps=None),
               linear_statistics(own, rows, targets, own_bias, filter_eps=None, vocab_parallel_options=options)]
    for whole, part in zip(*results):
        assert torch.allclose(whole.double(), part.double(), rtol=1e-4, atol=1e-5)
    whole, part = (torch.autograd.grad((found.log_probability + 0.3 * found.entropy).sum(), inputs)
                   for found, inputs in zip(results, [(e, c, bias), (own, rows, own_bias)]))
    expect_gradients(part, whole, options, rank, ranks, 1e-5)


def check_sums(rank, ranks, device, options):
    e, c, bias, targets = test_loss.problem(device, torch.bfloat16, TOKENS, VOCABULARY, CHANNELS)
    of_doubles = test_loss.doubles(e, c)
    expected, _ = test_loss.reference(*of_doubles, targets)
    of_e, of_c = torch.autograd.grad(expected, of_doubles)
    (rows,) = own_rows(options, c)
    own = own_tokens(options, e, rank, ranks)
    sums = torch.ones(rows.shape, device=device)
    for _ in range(2):
        linear_cross_entropy(own, rows, targets, filter_eps=None, classifier_gradient=sums,
                             vocab_parallel_options=options).backward()
    assert rows.grad is None
    expect_gradients((own.grad, sums - 1), (2 * of_e, 2 * of_c), options, rank, ranks, LIMITS[torch.bfloat16])


def check_soft_targets(rank, ranks, device, dtype, options):
    e, c, bias, _ = test_loss.problem(device, dtype, TOKENS, VOCABULARY, CHANNELS)
    entries = torch.randint(-1, VOCABULARY, (*TOKENS, 5), device="cpu").to(device)
    entry_weights = torch.rand(entries.shape).to(device)
    rows, own_bias = own_rows(options, c, bias)
    own = own_tokens(options, e, rank, ranks)
    given = {"label_smoothing": 0.2, "filter_eps": None, "temperature": 1.3}
    results = [soft_target_cross_entropy(e, c, entries, entry_weights, bias, **given),
               soft_target_cross_entropy(own, rows, entries, entry_weights, own_bias, vocab_parallel_options=options,
                                         **given)]
    assert torch.allclose(results[0], results[1], rtol=1e-4)
    whole, part = (torch.autograd.grad(found, inputs)
                   for found, inputs in zip(results, [(e, c, bias), (own, rows, own_bias)]))
    expect_gradients(part, whole, options, rank, ranks, LIMITS[dtype])


def check_chosen_entries(rank, ranks, device, dtype, options):
    e, c, bias, _ = (tensor.detach() for tensor in test_loss.problem(device, dtype, TOKENS, VOCABULARY, CHANNELS))
    entries = torch.randint(-1, VOCABULARY, (*TOKENS, 5)).to(device)
    (rows, own_bias), own = own_rows(options, c, bias), own_tokens(options, e, rank, ranks)
    logits = (e.double() @ c.double().T + bias.double()) / 1.3
    lse = logits.logsumexp(-1).float()
    found = chosen_log_probabilities(own, rows, entries, lse, own_bias, temperature=1.3,
                                     vocab_parallel_options=options)
    tessera_torch.wait(device)
    expected = torch.where(entries < 0, 0, logits.log_softmax(-1).gather(-1, entries.clamp(0)))
    assert found.shape == entries.shape and torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
    refused(["chosen_log_probabilities", "no backward pass"], lambda: found.sum().backward(), device)
    entries[1, 2, 3] = VOCABULARY
    found = chosen_log_probabilities(own, rows, entries, lse, own_bias, vocab_parallel_options=options)
    refused(["vocabulary_parallel.forward", f"entry {VOCABULARY}", "chosen"], lambda: None, device)
    assert found[1, 2, 3].isnan() and found.isnan().sum() == 1


def check_top_entries(rank, ranks, device, dtype, options):
    e, c, bias, _ = (tensor.detach() for tensor in test_loss.problem(device, dtype, TOKENS, VOCABULARY, CHANNELS))
    (rows, own_bias), own = own_rows(options, c, bias), own_tokens(options, e, rank, ranks)
    of_all = (torch.tanh((e.double() @ c.double().T + bias.double()) / 9) * 9).log_softmax(-1)
    for k in [1, 4, 9, 20]:
        found = top_log_probabilities(own, rows, k, own_bias, softcap=9.0, vocab_parallel_options=options)
        tessera_torch.wait(device)
        expected = of_all.topk(k).values
        assert found.entries.shape == (*TOKENS, k) and found.entries.dtype == torch.int64
        assert torch.allclose(found.log_probabilities.double(), expected, rtol=1e-5, atol=1e-4)
        assert torch.allclose(of_all.gather(-1, found.entries), expected, rtol=1e-5, atol=1e-4)
        again = chosen_log_probabilities(own, rows, found.entries, found.log_sum_exp, own_bias, softcap=9.0,
                                         vocab_parallel_options=options)
        assert torch.allclose(again, found.log_probabilities, rtol=1e-5, atol=1e-4)
    refused(["top_log_probabilities", "no backward pass"], lambda: found.log_probabilities.sum().backward(), device)
    refused(["top_log_probabilities", "k is 49", "48"],
            lambda: top_log_probabilities(own, rows, 49, own_bias, vocab_parallel_options=options), device)


def check_stored_classifiers(rank, ranks, device, of_classifier, options):
    """Rows of another type than the hidden states' give what the rows that they are rounded to do."""
    e, _, bias, targets = test_loss.problem(device, torch.bfloat16, TOKENS, VOCABULARY, CHANNELS)
    c, scale = stored(0.3 * torch.randn(VOCABULARY, CHANNELS), of_classifier, device)
    whole = rounded(c, scale, torch.bfloat16)
    own_scale = None if scale is None else scale[options.start:options.stop]
    rows = c.detach()[options.start:options.stop].clone().requires_grad_(scale is None)
    rounded_rows, own_bias = own_rows(options, whole, bias)
    own = own_tokens(options, e, rank, ranks)
    entries = torch.randint(-1, VOCABULARY, (*TOKENS, 5)).to(device)
    weights = torch.rand(entries.shape).to(device)
    given = {"vocab_parallel_options": options, "classifier_scale": own_scale}
    for found, expected in [
            (linear_cross_entropy(own, rows, targets, own_bias, filter_eps=None, label_smoothing=0.1, **given),
             linear_cross_entropy(e, whole, targets, bias, filter_eps=None, label_smoothing=0.1)),
            (soft_target_cross_entropy(own, rows, entries, weights, own_bias, filter_eps=None, **given),
             soft_target_cross_entropy(e, whole, entries, weights, bias, filter_eps=None)),
            (linear_distillation(own, rows, own.detach().flip(-1), rows, teacher_classifier_scale=own_scale, **given),
             linear_distillation(e, whole, e.detach().flip(-1), whole))]:
        tessera_torch.wait(device)
        assert torch.allclose(found, expected, rtol=1e-4, atol=1e-5)
        inputs, references = ((own, rows), (e, whole)) if scale is None else ((own,), (e,))
        expect_gradients(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, references), options, rank,
                         ranks, LIMITS[torch.bfloat16])
    frozen = [tensor.detach() for tensor in (own, rows, own_bias)]
    top = top_log_probabilities(frozen[0], frozen[1], 7, frozen[2], **given)
    expected = top_log_probabilities(e.detach(), whole.detach(), 7, bias.detach())
    assert torch.equal(top.entries, expected.entries)
    assert torch.allclose(top.log_probabilities, expected.log_probabilities, rtol=1e-5, atol=1e-5)
    again = chosen_log_probabilities(frozen[0], frozen[1], top.entries, top.log_sum_exp, frozen[2], **given)
    assert torch.allclose(again, top.log_probabilities, rtol=1e-5, atol=1e-4)


def check_distillation(rank, ranks, device, dtype, options, divergence):
    e, c, teacher_e, teacher_c = test_distillation.problem(device, dtype, TOKENS, VOCABULARY)
    of_doubles = test_loss.doubles(e, c, teacher_e, teacher_c)
    expected = test_distillation.reference(*of_doubles, divergence, temperature=1.5).mean()
    rows, teacher_rows = own_rows(options, c, teacher_c)
    own, own_teacher = (own_tokens(options, states, rank, ranks) for states in (e, teacher_e))
    found = linear_distillation(own, rows, own_teacher, teacher_rows, divergence, temperature=1.5,
                                vocab_parallel_options=options)
    tessera_torch.wait(device)
    assert torch.allclose(found.double(), expected, rtol=1e-3, atol=1e-5)
    expect_gradients(torch.autograd.grad(found, (own, rows)), torch.autograd.grad(expected, of_doubles[:2]), options,
                     rank, ranks, 2 * LIMITS[dtype])


def check_refusals(rank, ranks, device):
    """A call that one rank refuses, and then one that all of them take."""
    options = options_of(rank, ranks)
    e, c, _, targets = test_loss.problem(device, torch.float32, TOKENS, VOCABULARY, CHANNELS)
    (rows,) = own_rows(options, c)
    refused(["linear_cross_entropy", f"{len(rows)} rows", f"{options.start} to {options.stop + 1} - 1"],
            lambda: linear_cross_entropy(e, rows, targets, vocab_parallel_options=VocabParallelOptions(
                options.start, options.stop + 1, VOCABULARY + 1)), device)
    targets[2, 5] = VOCABULARY
    loss = linear_cross_entropy(e, rows, targets, reduction="none", vocab_parallel_options=options)
    refused(["vocabulary_parallel.forward", str(VOCABULARY)], lambda: None, device)
    assert loss[2, 5].isnan() and loss[2, 4].isfinite()
    partial = linear_cross_entropy(e, rows, targets.clamp(max=3), filter_eps=None,
                                   vocab_parallel_options=options_of(rank, ranks, reduce_e_grad=False))
    (gradient,) = torch.autograd.grad(partial, e)
    if ranks > 1:
        dist.all_reduce(gradient)
    reference, _ = test_loss.reference(*test_loss.doubles(e, c), targets.clamp(max=3))
    assert torch.allclose(reference, partial.double(), rtol=1e-4)
    whole = linear_cross_entropy(e, c, targets.clamp(max=3), filter_eps=None)
    assert relative(gradient, torch.autograd.grad(whole, e)[0]) <= 1e-5


def check_all(rank, ranks, device):
    for spreads in [False, True]:
        options = options_of(rank, ranks, sequence_parallel=spreads)
        for dtype in LIMITS:
            torch.manual_seed(3)  # the same problem on each rank
            check_labels(rank, ranks, device, dtype, options)
            check_labels(rank, ranks, device, dtype, options, softcap=3.0, label_smoothing=0.1, z_loss=0.01, shift=1)
            check_soft_targets(rank, ranks, device, dtype, options)
            check_chosen_entries(rank, ranks, device, dtype, options)
            check_top_entries(rank, ranks, device, dtype, options)
            for divergence in ["forward_kl", "reverse_kl", "jensen_shannon"]:
                check_distillation(rank, ranks, device, dtype, options, divergence)
        check_statistics(rank, ranks, device, options)
        check_sums(rank, ranks, device, options)
        for of_classifier in [torch.float32, torch.float16, CODES]:
            torch.manual_seed(4)
            check_stored_classifiers(rank, ranks, device, of_classifier, options)
    check_refusals(rank, ranks, device)


def process(rank, ranks, device, file):
    torch.set_num_threads(1)
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group("nccl" if device == "cuda" else "gloo", init_method=f"file://{file}", rank=rank,
                            world_size=ranks)
    try:
        check_all(rank, ranks, device)
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_available(), reason="PyTorch has no torch.distributed")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("kind", DEVICES)
def test_losses_over_ranks(kind, ranks):
    if kind == "cuda" and torch.cuda.device_count() < ranks:
        pytest.skip(f"there are no {ranks} GPUs")
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(process, (ranks, kind, os.path.join(folder, "meeting")), nprocs=ranks)


def test_losses_of_one_rank(device):
    torch.manual_seed(3)
    check_all(0, 1, device)


def test_options():
    assert VocabParallelOptions.from_vocab(301) == VocabParallelOptions(0, 301, 301)
    refused(["VocabParallelOptions", "3 to 12 - 1", "10"], lambda: VocabParallelOptions(3, 12, 10))
    refused(["reduce_e_grad is False"], lambda: VocabParallelOptions(0, 1, 1, None, False, True))
    e, c, _, targets = test_loss.problem("cpu", torch.float32)
    refused(["linear_cross_entropy", "dict", "VocabParallelOptions"],
            lambda: linear_cross_entropy(e, c, targets, vocab_parallel_options={}))


def test_an_error_of_a_group_is_the_caller_s(monkeypatch):
    def broken(*_, **__):
        raise ConnectionError("the other rank is gone")

    monkeypatch.setattr(tessera_torch.ranks, "_place", lambda _: (0, 2))
    monkeypatch.setattr(dist, "all_gather_into_tensor", broken)
    e, c, _, targets = test_loss.problem("cpu", torch.float32)
    with pytest.raises(ConnectionError, match="the other rank is gone"):
        linear_cross_entropy(e, c, targets, vocab_parallel_options=VocabParallelOptions(0, 301, 301))
