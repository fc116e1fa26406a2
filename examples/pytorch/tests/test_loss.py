# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""linear_cross_entropy() and its relatives against PyTorch in double precision."""
import pytest
import torch
from torch.nn.functional import cross_entropy

import tessera_torch
from helpers import refused, relative
from tessera_torch import linear_cross_entropy, linear_log_probabilities, linear_statistics

TYPES = {torch.bfloat16: 5e-3, torch.float16: 1e-3, torch.float32: 1e-5}  # and the error of gradients
# Options, and what they make of logits and targets.
OPTIONS = [{}, {"softcap": 5.0}, {"temperature": 0.7}, {"softcap": 3.0, "temperature": 2.0, "label_smoothing": 0.1},
           {"label_smoothing": 0.3}, {"z_loss": 0.01}, {"with_weights": True}, {"with_class_weights": True},
           {"ignore_index": 7}, {"with_weights": True, "with_class_weights": True, "z_loss": 0.1, "softcap": 4.0}]


def problem(device, dtype, shape=(3, 41), vocabulary=301, channels=48, ignore_index=-100):
    """Hidden states, classifier, bias, and labels of which some are ignored."""
    e = torch.randn(*shape, channels).to(dtype).to(device).requires_grad_()
    c = (0.3 * torch.randn(vocabulary, channels)).to(dtype).to(device).requires_grad_()
    bias = torch.randn(vocabulary).to(dtype).to(device).requires_grad_()
    targets = torch.randint(vocabulary, shape, device="cpu")
    targets.view(-1)[::7] = ignore_index
    return e, c, bias, targets.to(device)


def doubles(*tensors):
    return [None if tensor is None else tensor.detach().double().requires_grad_() for tensor in tensors]


def reference(e, c, targets, bias=None, ignore_index=-100, softcap=None, reduction="mean", shift=0, temperature=1.0,
              label_smoothing=0.0, z_loss=0.0, weights=None, class_weights=None):
    """The equations of cut_cross_entropy.hpp, with all logits in memory."""
    shift = int(shift)
    logits = e @ c.T + (0 if bias is None else bias)
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    logits = logits / temperature
    if shift:
        logits, targets = logits[..., :-shift, :], targets[..., shift:]
        weights = None if weights is None else weights[..., :-shift]
    counts = targets != ignore_index
    labels = torch.where(counts, targets, 0)
    lse = logits.logsumexp(-1)
    of_label = logits.gather(-1, labels[..., None])[..., 0]
    losses = lse - (1 - label_smoothing) * of_label - label_smoothing * logits.mean(-1) + z_loss * lse.square()
    factors = counts.double() if weights is None else counts * weights.double()
    factors = factors if class_weights is None else factors * class_weights.double()[labels]
    losses = losses * factors
    lse = torch.where(counts, lse, 0)
    if reduction == "none":
        return losses, lse
    return (losses.sum() if reduction == "sum" else losses.sum() / factors.sum()), lse


def gradients(result, *inputs):
    return torch.autograd.grad(result, [tensor for tensor in inputs if tensor is not None])


def expect_same(found, expected, limits):
    for number, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.shape == other.shape
        assert relative(one, other) < limits, f"gradient {number}: {relative(one, other)}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("shift", [0, True, 3])
def test_loss_and_gradients(device, dtype, has_bias, reduction, shift):
    e, c, bias, targets = problem(device, dtype)
    bias = bias if has_bias else None
    of_doubles = doubles(e, c, bias)
    found, lse = linear_cross_entropy(e, c, targets, bias, reduction=reduction, shift=shift, return_lse=True,
                                      impl="cce_exact")
    expected, expected_lse = reference(*of_doubles[:2], targets, of_doubles[2], reduction=reduction, shift=shift)
    tessera_torch.wait(device)
    assert found.dtype == lse.dtype == torch.float32 and found.shape == expected.shape
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
    assert torch.allclose(lse.double(), expected_lse, rtol=1e-5, atol=1e-4)
    upstream = torch.randn(found.shape).to(device)
    of_lse = 0.01 * torch.randn(lse.shape).to(device)
    expect_same(gradients((found * upstream).sum() + (lse * of_lse).sum(), e, c, bias),
                gradients((expected * upstream.double()).sum() + (expected_lse * of_lse.double()).sum(), *of_doubles),
                TYPES[dtype])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) or "none")
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_options(device, dtype, options, reduction):
    options = dict(options)
    e, c, bias, targets = problem(device, dtype, ignore_index=options.get("ignore_index", -100))
    if options.pop("with_weights", False):
        options["weights"] = torch.rand(targets.shape).to(device)
    if options.pop("with_class_weights", False):
        options["class_weights"] = torch.rand(len(c)).to(device)
    of_doubles = doubles(e, c, bias)
    found = linear_cross_entropy(e, c, targets, bias, reduction=reduction, filter_eps=None, **options)
    expected, _ = reference(*of_doubles[:2], targets, of_doubles[2], reduction=reduction, **options)
    tessera_torch.wait(device)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
    expect_same(gradients(found.sum(), e, c, bias), gradients(expected.sum(), *of_doubles), TYPES[dtype])


@pytest.mark.parametrize("tokens", [0, 1, 127, 128, 129])
@pytest.mark.parametrize("vocabulary", [1, 128, 131])
def test_extents(device, tokens, vocabulary):
    e, c, bias, targets = problem(device, torch.float32, (tokens,), vocabulary, 7, ignore_index=-100)
    of_doubles = doubles(e, c, bias)
    found = linear_cross_entropy(e, c, targets, bias, reduction="sum", filter_eps=None)
    expected, _ = reference(*of_doubles[:2], targets, of_doubles[2], reduction="sum")
    tessera_torch.wait(device)
    assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-4)
    for one, other in zip(gradients(found, e, c, bias), gradients(expected, *of_doubles)):
        assert torch.allclose(one.double(), other, rtol=1e-4, atol=1e-5)


def test_of_no_tokens_with_a_label_the_loss_is_zero(device):
    e, c, bias, targets = problem(device, torch.bfloat16)
    loss = linear_cross_entropy(e, c, torch.full_like(targets, -100), bias)
    assert loss.item() == 0 and not any(gradient.any() for gradient in gradients(loss, e, c, bias))


@pytest.mark.parametrize("impl", ["cce_exact", "cce_kahan_full_c"])
def test_the_filter_leaves_out_what_is_small(device, impl):
    """Of a peaked softmax most entries matter little: the filter takes their gradients, if it is asked for."""
    e, c, bias, targets = problem(device, torch.bfloat16, (256,), 4096, 64)
    with torch.no_grad():
        e.mul_(4)
        c[128:].mul_(0.01)
        targets.remainder_(128)
    filtered = gradients(linear_cross_entropy(e, c, targets), e, c)
    given = gradients(linear_cross_entropy(e, c, targets, filter_eps=2.0 ** -12), e, c)
    whole = gradients(linear_cross_entropy(e, c, targets, filter_eps=None), e, c)
    chosen = gradients(linear_cross_entropy(e, c, targets, impl=impl), e, c)
    tessera_torch.wait(device)
    assert all(torch.equal(*both) for both in zip(filtered, given))
    beyond = filtered[1][128:].any(dim=1).sum()  # a GPU takes entries in an order of its own, of which it keeps blocks
    assert beyond <= (0 if device == "cpu" else 256) and whole[1][128:].any(dim=1).sum() > 1000
    assert torch.equal(chosen[1], whole[1])
    assert relative(filtered[0], whole[0]) < 0.05
    one_sided = gradients(linear_cross_entropy(e, c, targets, filter_c_grad=False), c)
    assert relative(one_sided[0], whole[1]) <= (0 if device == "cpu" else 1e-3)


def test_no_gradient_is_made_of_frozen_inputs(device, monkeypatch):
    e, c, bias, targets = problem(device, torch.bfloat16)
    whole = gradients(linear_cross_entropy(e, c, targets, bias), e, c, bias)
    made = []
    operators = tessera_torch._loss_operators.ops
    backward = operators.loss_backward

    class Recording:
        def __getattr__(self, name):
            return getattr(operators, name)

        @staticmethod
        def loss_backward(*arguments):
            made.append(backward(*arguments))
            return made[-1]

    monkeypatch.setattr(tessera_torch._loss_operators, "ops", Recording())
    for wanted in range(3):
        inputs = [tensor.detach().clone().requires_grad_(number == wanted)
                  for number, tensor in enumerate((e, c, bias))]
        linear_cross_entropy(inputs[0], inputs[1], targets, inputs[2]).backward()
        tessera_torch.wait(device)
        for number, tensor in enumerate(inputs):
            assert (tensor.grad is not None) == (made[-1][number].numel() > 0) == (number == wanted)
        assert torch.equal(inputs[wanted].grad, whole[wanted])


def test_without_gradients_the_loss_is_the_same_and_memory_small(device):
    e, c, bias, targets = problem(device, torch.bfloat16, (512,), 5000, 64)
    found = linear_cross_entropy(e, c, targets, bias)
    with torch.no_grad():
        without = linear_cross_entropy(e, c, targets, bias)
        assert torch.equal(found, without) and not without.requires_grad
    arguments = (None, None, None, None, None, None, 2, -100, 0, 0, 0.0, 1.0, 0.0, 0.0, -1.0, -1.0, 0, False, False)
    sizes = [torch.ops.tessera_torch.loss_forward(e.detach(), c.detach(), targets, *arguments, for_backward)[-1].numel()
             for for_backward in (False, True)]
    assert sizes[0] < sizes[1] and sizes[0] < 1 << 20


def test_statistics_and_their_gradients(device):
    e, c, bias, targets = problem(device, torch.float32)
    of_doubles = doubles(e, c, bias)
    found = linear_statistics(e, c, targets, bias, filter_eps=None, temperature=1.5, shift=1)
    logits = ((of_doubles[0] @ of_doubles[1].T + of_doubles[2]) / 1.5)[:, :-1]
    labels = targets[:, 1:]
    counts = labels != -100
    log_q = logits.log_softmax(-1)
    expected = [log_q.gather(-1, torch.where(counts, labels, 0)[..., None])[..., 0], logits.logsumexp(-1),
                -(log_q.exp() * log_q).sum(-1)]
    expected = [torch.where(counts, values, 0) for values in expected]
    tessera_torch.wait(device)
    for one, other in zip(found, expected):
        assert torch.allclose(one.double(), other, rtol=1e-5, atol=1e-4)
    assert torch.equal(found.prediction, torch.where(counts, logits.argmax(-1), -1).int())
    upstream = [torch.randn(labels.shape).to(device) for _ in expected]
    for chosen in [[0], [1], [2], [0, 1, 2]]:
        one = sum((found[i] * upstream[i]).sum() for i in chosen)
        other = sum((expected[i] * upstream[i].double()).sum() for i in chosen)
        expect_same(torch.autograd.grad(one, (e, c, bias), retain_graph=True),
                    torch.autograd.grad(other, of_doubles, retain_graph=True), 1e-5)
    log_probabilities = linear_log_probabilities(e, c, targets, bias, temperature=1.5, shift=1)
    assert torch.allclose(log_probabilities, found.log_probability, atol=1e-5)


def test_autocast(device):
    e, c, bias, targets = problem(device, torch.float32)
    with torch.autocast(device, torch.bfloat16):
        loss = linear_cross_entropy(e, c, targets, bias)
    of_bfloat16 = linear_cross_entropy(e.bfloat16(), c.bfloat16(), targets, bias.bfloat16())
    assert torch.equal(loss, of_bfloat16) and loss.dtype == torch.float32
    assert gradients(loss, e)[0].dtype == torch.float32


def test_labels_and_operands_of_any_strides(device):
    e, c, bias, targets = problem(device, torch.bfloat16)
    expected = linear_cross_entropy(e, c, targets, bias)
    assert torch.equal(linear_cross_entropy(e, c, targets.int(), bias), expected)
    spread = [tensor.detach().repeat_interleave(2, -1)[..., ::2] for tensor in (e, c, targets, bias)]
    assert torch.equal(linear_cross_entropy(*spread), expected)
    turned = [e.detach().transpose(0, 1), c.detach().T.contiguous().T, targets.T, bias.detach()]
    assert torch.allclose(linear_cross_entropy(*turned), expected, rtol=1e-6)


def test_a_workspace_may_move_between_the_passes(device):
    """Hooks for saved tensors may bring them back at other addresses."""
    e, c, bias, targets = problem(device, torch.bfloat16)
    expected = gradients(linear_cross_entropy(e, c, targets, bias), e, c, bias)

    def moved(tensor):
        if tensor.dtype != torch.uint8:
            return tensor
        step = 64 if tensor.device.type == "cpu" else 512
        room = tensor.new_empty(tensor.numel() + 4 * step)
        for begin in range(0, 4 * step, step):
            place = room[begin:begin + tensor.numel()]
            if (place.data_ptr() - tensor.data_ptr()) % 256 == (64 if step == 64 else 0):
                return place.copy_(tensor)
        raise AssertionError("no place has another alignment")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, moved):
        loss = linear_cross_entropy(e, c, targets, bias)
    found = gradients(loss, e, c, bias)
    tessera_torch.wait(device)
    assert all(torch.equal(*both) for both in zip(found, expected))


def test_a_second_backward_pass_and_accumulated_gradients(device):
    e, c, bias, targets = problem(device, torch.bfloat16)
    loss = linear_cross_entropy(e, c, targets, bias)
    first = torch.autograd.grad(loss, (e, c, bias), retain_graph=True)
    second = torch.autograd.grad(loss, (e, c, bias))
    assert all(torch.equal(*both) for both in zip(first, second))
    first, = torch.autograd.grad(linear_cross_entropy(e, c, targets), e, create_graph=True)
    refused(["gradient", "linear_cross_entropy", "backward"], lambda: first.sum().backward(), device)


def test_wrong_arguments_are_refused(device):
    e, c, bias, targets = (tensor.detach() for tensor in problem(device, torch.bfloat16, (6,), 50, 32))
    for words, call in [
            (["hidden states", "Double"], lambda: linear_cross_entropy(e.double(), c, targets)),
            (["rows of the classifier", "Double", "Float8_e4m3fn"],
             lambda: linear_cross_entropy(e, c.double(), targets)),
            (["biases", "Float", "BFloat16"], lambda: linear_cross_entropy(e, c, targets, bias.float())),
            (["biases", "2 dim", "1"], lambda: linear_cross_entropy(e, c, targets, bias[None])),
            (["bias", "49", "50"], lambda: linear_cross_entropy(e, c, targets, bias[1:])),
            (["classifier", "1 dim", "2"], lambda: linear_cross_entropy(e, c[0], targets)),
            (["labels", "float32", "int64"], lambda: linear_cross_entropy(e, c, targets.float())),
            (["labels", "meta", device], lambda: linear_cross_entropy(e, c, targets.to("meta"))),
            (["labels", "(6, 1)", "(6, 32)"], lambda: linear_cross_entropy(e, c, targets[:, None])),
            (["channels", "32", "16"], lambda: linear_cross_entropy(e, c[:, :16], targets)),
            (["vocabulary", "0"], lambda: linear_cross_entropy(e, c[:0], targets)),
            (["reduction", "'max'"], lambda: linear_cross_entropy(e, c, targets, reduction="max")),
            (["shift", "6"], lambda: linear_cross_entropy(e, c, targets, shift=6)),
            (["shift", "-1"], lambda: linear_cross_entropy(e, c, targets, shift=-1)),
            (["temperature", "0"], lambda: linear_cross_entropy(e, c, targets, temperature=0.0)),
            (["softcap", "-1"], lambda: linear_cross_entropy(e, c, targets, softcap=-1.0)),
            (["smoothing", "2"], lambda: linear_cross_entropy(e, c, targets, label_smoothing=2.0)),
            (["filter_eps", "'some'"], lambda: linear_cross_entropy(e, c, targets, filter_eps="some")),
            (["impl", "'other'"], lambda: linear_cross_entropy(e, c, targets, impl="other")),
            (["weights", "(5,)", "(6,)"], lambda: linear_cross_entropy(e, c, targets, weights=torch.ones(5))),
            (["weights of classes", "49", "50"],
             lambda: linear_cross_entropy(e, c, targets, class_weights=torch.ones(49, device=device))),
            (["weights", "gradient"],
             lambda: linear_cross_entropy(e, c, targets, weights=torch.ones(6, device=device, requires_grad=True))),
            (["weights", "gradient"],
             lambda: linear_cross_entropy(e, c, targets, class_weights=torch.ones(50, requires_grad=True).to(device))),
            (["vocab_parallel_options"], lambda: linear_cross_entropy(e, c, targets, vocab_parallel_options=1))]:
        refused(words, call, device)


def test_a_label_that_is_no_entry_is_reported_once(device):
    e, c, bias, targets = problem(device, torch.bfloat16, (6,), 50, 32)
    targets[:] = torch.tensor([1, 2, 50, 3, -5, 4])
    loss = linear_cross_entropy(e, c, targets, bias)
    assert loss.isnan()
    refused(["label 50 of token 2", "50"], lambda: None, device)
    tessera_torch.wait(device)
    losses = linear_cross_entropy(e, c, targets, reduction="none")
    refused(["label"], lambda: None, device)
    assert losses.isnan().tolist() == [False, False, True, False, True, False]


def test_agreement_with_pytorch(device):
    """Once without the reference of this file."""
    e, c, bias, targets = problem(device, torch.float32)
    expected = cross_entropy((e.double() @ c.double().T + bias.double()).flatten(0, 1), targets.flatten(),
                             label_smoothing=0.2)
    assert abs(linear_cross_entropy(e, c, targets, bias, label_smoothing=0.2) - expected) < 1e-5
    module = tessera_torch.LinearCrossEntropy(label_smoothing=0.2)
    assert abs(module(e, c, targets, bias) - expected) < 1e-5 and "label_smoothing=0.2" in repr(module)
