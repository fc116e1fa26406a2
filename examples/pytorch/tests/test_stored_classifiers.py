# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Classifiers of another type than the hidden states give what their rounded rows do, for each loss."""
import pytest
import torch

import tessera_torch
from helpers import refused, relative
from tessera_torch import (chosen_log_probabilities, linear_cross_entropy, linear_distillation,
                           linear_log_probabilities, linear_statistics, soft_target_cross_entropy,
                           top_log_probabilities)
from test_loss import TYPES, doubles, gradients, reference

CODES = torch.float8_e4m3fn
PAIRS = [(e, c) for e in TYPES for c in (*TYPES, CODES) if e != c]  # types of hidden states and classifier
OF_BFLOAT16 = [pair for pair in PAIRS if pair[0] == torch.bfloat16]


def names(pairs=PAIRS):
    return ["-".join(str(dtype).removeprefix("torch.") for dtype in pair) for pair in pairs]


def stored(values, dtype, device):
    """A classifier in a type, which requires a gradient where it can have one, and the scales of its rows, or None."""
    if dtype != CODES:
        return values.to(dtype).to(device).requires_grad_(), None
    scale = values.abs().amax(1).clamp(min=1e-4) / 448
    return (values / scale[:, None]).to(CODES).to(device), scale.to(device)


def rounded(c, scale, dtype):
    """The rows that are multiplied."""
    rows = c.detach().float() if scale is None else c.detach().float() * scale[:, None]
    return rows.to(dtype).requires_grad_()


def problem(device, pair, shape=(3, 41), vocabulary=301, channels=48):
    """Hidden states, classifier, its scales, its rounded rows, bias and labels of which some are ignored."""
    dtype, of_classifier = pair
    e = torch.randn(*shape, channels).to(dtype).to(device).requires_grad_()
    c, scale = stored(0.3 * torch.randn(vocabulary, channels), of_classifier, device)
    bias = torch.randn(vocabulary).to(dtype).to(device).requires_grad_()
    targets = torch.randint(vocabulary, shape)
    targets.view(-1)[::7] = -100
    return e, c, scale, rounded(c, scale, dtype), bias, targets.to(device)


def expect_gradients(result, expected, inputs, references, limit):
    """inputs: of which classifiers of codes have no gradient, and others have gradients of their types."""
    wanted = [number for number, tensor in enumerate(inputs) if tensor.requires_grad]
    found = gradients(result, *(inputs[number] for number in wanted))
    of_references = gradients(expected, *(references[number] for number in wanted))
    for gradient, reference_gradient, number in zip(found, of_references, wanted):
        assert gradient.dtype == inputs[number].dtype and gradient.shape == inputs[number].shape
        assert relative(gradient, reference_gradient) < max(limit, TYPES[gradient.dtype]), f"gradient {number}"


@pytest.mark.parametrize("pair", PAIRS, ids=names())
@pytest.mark.parametrize("options", [{}, {"softcap": 3.0, "temperature": 2.0, "label_smoothing": 0.1, "z_loss": 0.01},
                                     {"shift": 1, "has_weights": True}], ids=["plain", "all", "weights"])
def test_loss_and_gradients(device, pair, options):
    e, c, scale, rows, bias, targets = problem(device, pair)
    options = dict(options)
    if options.pop("has_weights", False):
        options.update(weights=torch.rand(targets.shape).to(device), class_weights=torch.rand(len(c)).to(device))
    of_doubles = doubles(e, rows, bias)
    for reduction in ["mean", "none"]:
        found, lse = linear_cross_entropy(e, c, targets, bias, reduction=reduction, return_lse=True, filter_eps=None,
                                          classifier_scale=scale, **options)
        of_rows = linear_cross_entropy(e, rows, targets, bias, reduction=reduction, filter_eps=None, **options)
        expected, expected_lse = reference(*of_doubles[:2], targets, of_doubles[2], reduction=reduction, **options)
        tessera_torch.wait(device)
        assert found.dtype == torch.float32 and torch.allclose(found, of_rows, rtol=1e-5, atol=1e-5)
        assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
        assert torch.allclose(lse.double(), expected_lse, rtol=1e-5, atol=1e-4)
        upstream = torch.randn(expected.shape).to(device)
        expect_gradients((found * upstream).sum() + 0.1 * lse.sum(),
                         (expected * upstream.double()).sum() + 0.1 * expected_lse.sum(), (e, c, bias), of_doubles,
                         TYPES[e.dtype])


@pytest.mark.parametrize("pair", OF_BFLOAT16, ids=names(OF_BFLOAT16))
@pytest.mark.parametrize("tokens, vocabulary, channels", [(0, 9, 8), (1, 1, 1), (127, 128, 7), (128, 129, 64),
                                                          (129, 1000, 33), (5, 65, 512)])
def test_extents(device, pair, tokens, vocabulary, channels):
    e, c, scale, rows, bias, targets = problem(device, pair, (tokens,), vocabulary, channels)
    of_doubles = doubles(e, rows, bias)
    found = linear_cross_entropy(e, c, targets, bias, reduction="sum", filter_eps=None, classifier_scale=scale)
    expected, _ = reference(*of_doubles[:2], targets, of_doubles[2], reduction="sum")
    tessera_torch.wait(device)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
    for one, other in zip(gradients(found, e, bias), gradients(expected, of_doubles[0], of_doubles[2])):
        assert torch.allclose(one.double(), other, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("pair", OF_BFLOAT16, ids=names(OF_BFLOAT16))
def test_any_strides(device, pair):
    e, c, scale, _, bias, targets = problem(device, pair)
    expected = linear_cross_entropy(e, c, targets, bias, classifier_scale=scale)
    for strided in (lambda matrix: matrix.T.contiguous().T, lambda matrix: torch.cat([matrix, matrix], 1)[:, :48],
                    lambda matrix: torch.stack([matrix, matrix], -1)[..., 0]):
        of_bytes = c.detach().view(torch.uint8) if scale is not None else c.detach()
        turned = strided(of_bytes)
        turned = turned.view(CODES) if scale is not None else turned
        spread = None if scale is None else torch.stack([scale, scale], 1)[:, 0]
        found = linear_cross_entropy(e, turned, targets, bias, classifier_scale=spread)
        assert torch.allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("pair", PAIRS, ids=names())
def test_statistics_and_their_gradients(device, pair):
    e, c, scale, rows, bias, targets = problem(device, pair)
    found = linear_statistics(e, c, targets, bias, filter_eps=None, classifier_scale=scale)
    expected = linear_statistics(e, rows, targets, bias, filter_eps=None)
    assert torch.equal(found.prediction, expected.prediction)
    for one, other in zip(found, expected):
        assert torch.allclose(one.double(), other.double(), rtol=1e-5, atol=1e-5)
    alone = linear_log_probabilities(e, c, targets, bias, classifier_scale=scale)
    assert torch.allclose(alone, expected.log_probability, rtol=1e-5, atol=1e-5)
    results = [(each.log_probability + 0.3 * each.entropy + 0.1 * each.log_sum_exp).sum() for each in (found, expected)]
    expect_gradients(*results, (e, c, bias), (e, rows, bias), TYPES[e.dtype])


@pytest.mark.parametrize("pair", PAIRS, ids=names())
def test_soft_targets_and_chosen_entries(device, pair):
    e, c, scale, rows, bias, _ = problem(device, pair)
    entries = torch.randint(-1, len(c), (3, 41, 5)).to(device)
    entry_weights = torch.rand(entries.shape).to(device)
    given = {"label_smoothing": 0.1, "temperature": 1.3, "filter_eps": None}
    found, lse = soft_target_cross_entropy(e, c, entries, entry_weights, bias, return_lse=True, classifier_scale=scale,
                                           **given)
    expected, expected_lse = soft_target_cross_entropy(e, rows, entries, entry_weights, bias, return_lse=True, **given)
    assert torch.allclose(found, expected, rtol=1e-5)
    expect_gradients(found + 0.1 * lse.sum(), expected + 0.1 * expected_lse.sum(), (e, c, bias), (e, rows, bias),
                     TYPES[e.dtype])
    chosen = [chosen_log_probabilities(e.detach(), matrix.detach(), entries, lse.detach(), bias.detach(),
                                       temperature=1.3, **others)
              for matrix, others in [(c, {"classifier_scale": scale}), (rows, {})]]
    assert torch.allclose(*chosen, rtol=1e-5, atol=1e-5)
    assert torch.equal(chosen[0] == 0, entries < 0)


@pytest.mark.parametrize("pair", PAIRS, ids=names())
@pytest.mark.parametrize("k", [3, 9, 20])
def test_top_entries(device, pair, k):
    e, c, scale, rows, bias, _ = (None if each is None else each.detach() for each in problem(device, pair))
    found = top_log_probabilities(e, c, k, bias, softcap=20.0, classifier_scale=scale)
    expected = top_log_probabilities(e, rows, k, bias, softcap=20.0)
    assert torch.equal(found.entries, expected.entries)
    assert torch.allclose(found.log_probabilities, expected.log_probabilities, rtol=1e-5, atol=1e-5)
    assert torch.allclose(found.log_sum_exp, expected.log_sum_exp, rtol=1e-5)


@pytest.mark.parametrize("pair", PAIRS, ids=names())
@pytest.mark.parametrize("divergence", ["forward_kl", "reverse_kl", "jensen_shannon"])
@pytest.mark.parametrize("is_stored", [(True, False), (False, True), (True, True)],
                         ids=["student", "teacher", "both"])
def test_distillation(device, pair, divergence, is_stored):
    e, c, scale, rows, _, _ = problem(device, pair)
    teacher_e, teacher_c, teacher_scale, teacher_rows, *_ = problem(device, pair, channels=80)
    expected = linear_distillation(e, rows, teacher_e, teacher_rows, divergence)
    if not is_stored[0]:
        c, scale = rows, None
    if not is_stored[1]:
        teacher_c, teacher_scale = teacher_rows, None
    found = linear_distillation(e, c, teacher_e, teacher_c, divergence, classifier_scale=scale,
                                teacher_classifier_scale=teacher_scale)
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    expect_gradients(found, expected, (e, c), (e, rows), 2 * TYPES[e.dtype])


@pytest.mark.parametrize("pair", OF_BFLOAT16[:2], ids=names(OF_BFLOAT16[:2]))
def test_sums_of_gradients(device, pair):
    e, c, _, rows, bias, targets = problem(device, pair)
    total, of_bias = torch.ones(c.shape, device=device), torch.zeros(bias.shape, device=device)
    for _ in range(2):
        linear_cross_entropy(e, c, targets, bias, filter_eps=None, classifier_gradient=total).backward()
    of_e, of_c, expected_bias = gradients(linear_cross_entropy(e, rows, targets, bias, filter_eps=None), e, rows, bias)
    assert c.grad is None and relative(total - 1, 2 * of_c) < 5e-3 and relative(e.grad, 2 * of_e) < 5e-3
    linear_cross_entropy(e, c, targets, bias, filter_eps=None, bias_gradient=of_bias).backward()
    assert c.grad.dtype == c.dtype and relative(c.grad, of_c) < 5e-3 and relative(of_bias, expected_bias) < 5e-3


def test_a_bias_of_the_classifiers_type(device):
    e, c, _, rows, bias, targets = problem(device, (torch.bfloat16, torch.float32))
    whole = (bias.detach().float() + 1e-3).requires_grad_()
    found = linear_cross_entropy(e, c, targets, whole, filter_eps=None)
    expected = linear_cross_entropy(e, rows, targets, whole.bfloat16(), filter_eps=None)
    assert torch.allclose(found, expected, rtol=1e-6)
    expect_gradients(found, expected, (e, c, whole), (e, rows, whole), 5e-3)


def test_gradients_of_float32_rows_are_not_rounded(device):
    """Each entry is the label of one token: its row's gradient is finer than bfloat16."""
    e, c, _, rows, _, targets = problem(device, (torch.bfloat16, torch.float32), (256,), 200, 64)
    of_c, = gradients(linear_cross_entropy(e, c, targets, filter_eps=None), c)
    of_rows, = gradients(linear_cross_entropy(e, rows, targets, filter_eps=None), rows)
    assert not torch.equal(of_c, of_c.bfloat16().float()) and relative(of_c, of_rows) < 5e-3


def test_frozen_classifiers(device):
    e, c, scale, _, _, targets = problem(device, (torch.bfloat16, CODES))
    linear_cross_entropy(e, c, targets, classifier_scale=scale).backward()
    assert e.grad.dtype == torch.bfloat16 and e.grad.any()
    e, c, _, _, _, targets = problem(device, (torch.bfloat16, torch.float32))
    whole, = gradients(linear_cross_entropy(e, c, targets), e)
    assert torch.equal(gradients(linear_cross_entropy(e, c.detach(), targets), e)[0], whole)
    with torch.no_grad():
        assert not linear_cross_entropy(e, c, targets).requires_grad


def test_autocast(device):
    """Codes stay as they are, and are multiplied in autocast's type."""
    e, c, scale, _, bias, targets = problem(device, (torch.float32, CODES))
    with torch.autocast(device, torch.bfloat16):
        loss = linear_cross_entropy(e, c, targets, bias, classifier_scale=scale)
    assert torch.equal(loss, linear_cross_entropy(e.bfloat16(), c, targets, bias.bfloat16(), classifier_scale=scale))
    assert gradients(loss, e)[0].dtype == torch.float32


FUNCTIONS = {
    "loss": lambda e, c, scale, t: linear_cross_entropy(e, c, t, softcap=9.0, classifier_scale=scale),
    "statistics": lambda e, c, scale, t: linear_statistics(e, c, t, classifier_scale=scale).entropy.sum(),
    "soft_targets": lambda e, c, scale, t: soft_target_cross_entropy(
        e, c, t.clamp(0)[..., None], torch.ones_like(t[..., None], dtype=torch.float32), classifier_scale=scale),
    "distillation": lambda e, c, scale, t: linear_distillation(e, c, e.detach(), c.detach(), temperature=2.0,
                                                               classifier_scale=scale, teacher_classifier_scale=scale)}


@pytest.mark.parametrize("pair", OF_BFLOAT16, ids=names(OF_BFLOAT16))
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_it_compiles_without_graph_breaks(device, pair, name, is_dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(FUNCTIONS[name], fullgraph=True, dynamic=is_dynamic)
    e, c, scale, _, _, targets = problem(device, pair)
    found, expected = compiled(e, c, scale, targets), FUNCTIONS[name](e, c, scale, targets)
    assert torch.allclose(found, expected, rtol=1e-6)
    inputs = [tensor for tensor in (e, c) if tensor.requires_grad]
    for one, other in zip(gradients(found, *inputs), gradients(expected, *inputs)):
        assert one.dtype == other.dtype and torch.equal(one, other)


@pytest.mark.parametrize("pair", OF_BFLOAT16, ids=names(OF_BFLOAT16))
def test_pytorchs_checks_of_the_operators(device, pair):
    e, c, scale, _, bias, targets = problem(device, pair, (20,))
    of_schema = ("test_schema",) if scale is None else ()  # it compares tensors in a way that codes do not have
    operators = torch.ops.tessera_torch
    options = (0, -100, 0, 0, 5.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0, False, False)
    tensors = (e, c, targets, bias, None, None, scale)
    torch.library.opcheck(operators.loss_forward.default, (*tensors, None, None, *options, True),
                          test_utils=(*of_schema, "test_autograd_registration", "test_faketensor"))
    workspace = operators.loss_forward(*tensors, None, None, *options, True)[-1]
    tensors = [None if each is None else each.detach() for each in tensors]
    torch.library.opcheck(operators.loss_backward.default,
                          (*tensors, *options, workspace, torch.rand(20, device=device), None, None, True,
                           scale is None, True), test_utils=("test_faketensor",))
    frozen = [None if each is None else each.detach() for each in (e, c, bias, scale)]
    torch.library.opcheck(operators.top_log_probabilities.default, (*frozen, 5, 0.0, 1.0, False),
                          test_utils=(*of_schema, "test_faketensor"))


def test_wrong_arguments_are_refused(device):
    e, c, scale, rows, bias, targets = (
        each.detach() for each in problem(device, (torch.bfloat16, CODES), (6,), 50, 32))
    entries = targets.clamp(0)[:, None]
    with_gradient = c.clone().requires_grad_()

    def loss(c=c, scale=scale, **others):
        return linear_cross_entropy(e, c, targets, classifier_scale=scale, **others)

    for words, call in [
            (["linear_cross_entropy", "Float8_e4m3fn", "no scales"], lambda: loss(scale=None)),
            (["linear_cross_entropy", "BFloat16", "scales", "Float8_e4m3fn"], lambda: loss(c=rows)),
            (["rows of the classifier", "Float and", "Float8_e4m3fn"], lambda: loss(c=rows.float())),
            (["rows of the classifier", "Char", "Float8_e4m3fn"], lambda: loss(c=rows.to(torch.int8), scale=None)),
            (["rows of the classifier", "Float8_e5m2", "Float8_e4m3fn"],
             lambda: loss(c=rows.to(torch.float8_e5m2), scale=None)),
            (["scales", "Double", "Float"], lambda: loss(scale=scale.double())),
            (["scales", "2 dim", "1"], lambda: loss(scale=scale[:, None])),
            (["49 scales", "50 rows of the classifier"], lambda: loss(scale=scale[1:])),
            (["scales", "meta", device], lambda: loss(scale=scale.to("meta"))),
            (["classifier", "1 dim", "2"], lambda: loss(c=c[0])),
            (["channels", "32", "16"], lambda: loss(c=c[:, :16])),
            (["biases", "Half", "BFloat16"], lambda: loss(bias=bias.half())),
            (["linear_cross_entropy", "float8_e4m3fn", "gradient", "codes"], lambda: loss(c=with_gradient)),
            (["classifier_scale", "gradient"], lambda: loss(scale=scale.clone().requires_grad_())),
            (["classifier requires no gradient"],
             lambda: loss(classifier_gradient=torch.zeros(50, 32, device=device))),
            (["soft_target_cross_entropy", "no scales"],
             lambda: soft_target_cross_entropy(e, c, entries, entries.float())),
            (["soft_target_cross_entropy", "codes"],
             lambda: soft_target_cross_entropy(e, with_gradient, entries, entries.float(), classifier_scale=scale)),
            (["chosen_log_probabilities", "no scales"],
             lambda: chosen_log_probabilities(e, c, entries, scale[:6])),
            (["top_log_probabilities", "no scales"], lambda: top_log_probabilities(e, c, 3)),
            (["linear_distillation", "rows of the classifier", "no scales"],
             lambda: linear_distillation(e, c, e, rows)),
            (["linear_distillation", "rows of the teacher's classifier", "no scales"],
             lambda: linear_distillation(e, rows, e, c))]:
        refused(words, call, device)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the CPU's allocator does not say its peak")
def test_there_is_no_copy_of_the_classifier():
    vocabulary, channels = 128000, 4096
    e = torch.randn(512, channels, device="cuda").bfloat16().requires_grad_()
    c = torch.randn(vocabulary, channels, device="cuda")
    targets = torch.randint(vocabulary, (512,), device="cuda")
    linear_cross_entropy(e, c, targets).backward()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    linear_cross_entropy(e, c, targets).backward()
    torch.cuda.synchronize()
    assert torch.cuda.max_memory_allocated() - before < vocabulary * channels  # half of a copy in bfloat16


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs CUDA")
def test_a_cuda_graph_replays_the_loss_and_its_gradients():
    e, c, scale, _, _, targets = problem("cuda", (torch.bfloat16, CODES), (256,), 1000, 64)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(linear_cross_entropy(e, c, targets, classifier_scale=scale), e)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = linear_cross_entropy(e, c, targets, classifier_scale=scale)
        found, = gradients(loss, e)
    with torch.no_grad():
        e.copy_(torch.randn(e.shape))
    graph.replay()
    expected = linear_cross_entropy(e, c, targets, classifier_scale=scale)
    assert torch.equal(loss, expected) and torch.equal(found, gradients(expected, e)[0])
