# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""compress_module() and decompress_module(): the same results and gradients as plain modules, and what is refused."""
import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional

from tessera_torch import compressed_module
from tessera_torch.compressed_module import (CompressedEmbedding, CompressedLinear, check_stream, compress_module,
                                             compressed_weights, compression_report, decompress_module)
from tessera_torch.wait import wait

TYPES = [torch.bfloat16, torch.float16, torch.float32]


class Model(nn.Module):
    """An embedding, two linear layers, and a classifier whose weight is the embedding's."""

    def __init__(self, vocabulary=300, width=48, inner=120):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width, padding_idx=0)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, inner)
        self.down = nn.Linear(inner, width, bias=False)
        self.classifier = nn.Linear(width, vocabulary, bias=False)
        self.classifier.weight = self.embed.weight

    def forward(self, tokens):
        hidden = self.norm(self.embed(tokens))
        return self.classifier(hidden + self.down(functional.gelu(self.up(hidden))))


def made(device, dtype):
    torch.manual_seed(torch.seed() % 2**31)
    model = Model().to(device=device, dtype=dtype)
    return model, copy.deepcopy(model), torch.randint(300, (3, 17), device=device)


@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_the_same_bits(device, dtype):
    model, plain, tokens = made(device, dtype)
    report = compress_module(model)
    assert report.weights == 3
    assert report.plain_bytes == sum(p.nbytes for p in [plain.embed.weight, plain.up.weight, plain.down.weight])
    assert report.compressed_bytes < 0.97 * report.plain_bytes
    assert report.ratio == report.compressed_bytes / report.plain_bytes
    assert compression_report(model) == report
    assert [name for name, _ in model.named_parameters()] == ["norm.weight", "norm.bias", "up.bias"]
    with torch.no_grad():
        assert torch.equal(model(tokens), plain(tokens))
    assert torch.equal(model(tokens), plain(tokens))  # with gradients
    wait(device)


@pytest.mark.parametrize("dtype", TYPES)
def test_decompression_gives_back_every_bit(device, dtype):
    model, plain, tokens = made(device, dtype)
    for parameter in [model.up.weight, plain.up.weight]:
        with torch.no_grad():
            parameter[0, :6] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-38])
    compress_module(model)
    assert type(model.up) is CompressedLinear and type(model.embed) is CompressedEmbedding
    assert torch.equal(model.up.weight.view(torch.uint8), plain.up.weight.view(torch.uint8))
    decompress_module(model)
    assert type(model.up) is nn.Linear and type(model.embed) is nn.Embedding
    assert model.classifier.weight is model.embed.weight
    found, expected = model.state_dict(), plain.state_dict()
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert torch.equal(found[name].view(torch.uint8), value.view(torch.uint8)), name


@pytest.mark.parametrize("dtype", TYPES)
def test_gradients_of_inputs_and_biases(device, dtype):
    torch.manual_seed(7)
    for shape in [(5, 33), (2, 3, 33), (33,), (0, 33)]:
        layer = nn.Linear(33, 21).to(device=device, dtype=dtype)
        plain = copy.deepcopy(layer)
        compress_module(layer)
        inputs = torch.randn(shape, device=device).to(dtype).requires_grad_()
        same = inputs.detach().clone().requires_grad_()
        upstream = torch.randn(*shape[:-1], 21, device=device).to(dtype)
        layer(inputs).backward(upstream)
        plain(same).backward(upstream)
        torch.testing.assert_close(inputs.grad, same.grad)
        torch.testing.assert_close(layer.bias.grad, plain.bias.grad)


def test_second_derivatives(device):
    torch.manual_seed(8)
    layer = nn.Linear(7, 5).to(device=device, dtype=torch.float32)
    plain = copy.deepcopy(layer)
    compress_module(layer)
    seconds = []
    for each in [layer, plain]:
        inputs = torch.linspace(-1, 1, 14, device=device).view(2, 7).requires_grad_()
        first, = torch.autograd.grad(each(inputs).pow(3).sum(), inputs, create_graph=True)
        second, = torch.autograd.grad(first.pow(2).sum(), inputs)
        seconds.append(second)
    torch.testing.assert_close(*seconds)


def test_nothing_decoded_is_kept_for_the_backward_pass(device):
    layer = nn.Linear(64, 64, bias=False).to(device=device, dtype=torch.bfloat16)
    compress_module(layer)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.nbytes) or tensor, lambda x: x):
        result = layer(torch.randn(1, 64, device=device).bfloat16().requires_grad_())
    assert sum(kept) == 0 and result.requires_grad


def test_a_decoded_weight_lives_for_a_call(device, monkeypatch):
    import weakref
    model, _, tokens = made(device, torch.bfloat16)
    compress_module(model)
    living, most = [], []
    decompress = compressed_module._weights.decompress

    def counted(*arguments):
        weight = decompress(*arguments)
        living.append(weakref.ref(weight))
        most.append(sum(each() is not None for each in living))
        return weight

    monkeypatch.setattr(compressed_module._weights, "decompress", counted)
    model(tokens).float().sum().backward()
    assert max(most) == 1 and len(most) == 7  # 4 forward, 3 backward


@pytest.mark.skipif(not hasattr(torch, "autocast"), reason="there is no autocast")
def test_autocast(device):
    layer = nn.Linear(33, 21).to(device)
    plain = copy.deepcopy(layer)
    compress_module(layer)
    gradients = []
    for each in [layer, plain]:
        inputs = torch.linspace(-1, 1, 66, device=device).view(2, 33).requires_grad_()
        with torch.autocast(device, torch.bfloat16):
            result = each(inputs)
        assert result.dtype == torch.bfloat16
        result.float().sum().backward()
        gradients.append(inputs.grad)
    torch.testing.assert_close(*gradients, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dtype", TYPES)
def test_state_dict_holds_streams(device, dtype):
    model, plain, tokens = made(device, dtype)
    compress_module(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    assert file.tell() < sum(p.nbytes for p in plain.parameters()) + 8000
    file.seek(0)
    other = Model().to(device=device, dtype=dtype)
    compress_module(other)
    assert not torch.equal(other(tokens), plain(tokens))
    other.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(other(tokens), plain(tokens))
    third = Model().to(device=device, dtype=dtype)
    compress_module(third)
    third.load_state_dict(plain.state_dict())  # plain weights are compressed when they are loaded
    assert torch.equal(third(tokens), plain(tokens))


def test_wrong_streams_are_not_loaded(device):
    model, plain, tokens = made(device, torch.bfloat16)
    compress_module(model)
    state = model.state_dict()
    key = "up.compressed_weight.stream"

    def refused(stream, *words):
        with pytest.raises(RuntimeError) as error:
            model.load_state_dict({**state, key: stream})
        assert all(word in str(error.value) for word in [key, *words]), error.value

    flipped = state[key].clone()
    flipped[40] ^= 255
    for stream, words in [(state[key][:-1], ["number of bytes", str(state[key].numel() - 1)]), (state[key][:9], ["64"]),
                          (state[key].char(), ["int8", "uint8"]), (flipped, ["checksum"])]:
        refused(stream, *words)
    refused(compressed_module._weights.compress(plain.up.weight.float().detach()), "type", "2", "0")
    refused(compressed_module._weights.compress(plain.up.weight[1:].detach().contiguous()), "weights", "5712", "5760")
    with pytest.raises(RuntimeError, match="Missing"):
        model.load_state_dict({name: value for name, value in state.items() if name != key})
    with pytest.raises(RuntimeError, match="up.weight"):
        model.load_state_dict({**{n: v for n, v in state.items() if n != key}, "up.weight": plain.up.weight.float()})
    assert torch.equal(model(tokens), plain(tokens))


def test_a_damaged_stream_is_an_error_of_the_call(device):
    model, _, tokens = made(device, torch.bfloat16)
    compress_module(model)
    stream = model.up.compressed_weight.stream
    stream[-900:-100] = 255 - stream[-900:-100]
    with pytest.raises(RuntimeError):
        model(tokens)
        wait(device)
    with pytest.raises(RuntimeError):
        decompress_module(model)


def test_what_is_refused(device):
    def refused(module, *words, error=ValueError, **options):
        before = {name: type(each) for name, each in module.named_modules()}
        with pytest.raises(error) as found:
            compress_module(module, **options)
        assert all(word in str(found.value) for word in ["compress_module", *words]), found.value
        assert before == {name: type(each) for name, each in module.named_modules()}

    refused(nn.Sequential(nn.Linear(3, 3), nn.Embedding(4, 3, max_norm=1.0)).to(device), "1", "1.0")
    refused(nn.Embedding(4, 3, sparse=True).to(device), "Embedding", "sparse")
    refused(nn.Linear(3, 3, dtype=torch.float64).to(device), "float64", "bfloat16")
    refused(nn.Linear(3, 3, device="meta"), "meta", "load_compressed")
    model = Model().to(device)
    refused(model, "classifier.weight", "tied", filter=lambda name, _: name != "classifier")
    compress_module(model)
    assert compress_module(model).weights == 3  # once more changes nothing
    with pytest.raises(AttributeError, match="compressed"):
        model.up.weight = nn.Parameter(torch.zeros(120, 48))
    with pytest.raises(ValueError, match="header"):
        check_stream("a stream", torch.zeros(3, dtype=torch.uint8), (1,), torch.float32)


def test_a_filter_chooses_modules(device):
    model, plain, tokens = made(device, torch.bfloat16)
    report = compress_module(model, filter=lambda name, module: name in ("up", "down"))
    assert report.weights == 2 and list(compressed_weights(model)) == ["up", "down"]
    assert type(model.embed) is nn.Embedding
    assert torch.equal(model(tokens), plain(tokens))


def test_hooks_and_copies(device):
    model, plain, tokens = made(device, torch.bfloat16)
    calls = []
    model.up.register_forward_hook(lambda *_: calls.append(1))
    compress_module(model)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(tokens), plain(tokens)) and len(calls) == 1
    assert twin.classifier.compressed_weight is twin.embed.compressed_weight
    assert twin.up.compressed_weight is not model.up.compressed_weight
    moved = model.to("cpu")
    assert moved.classifier.compressed_weight is moved.embed.compressed_weight


@pytest.mark.parametrize("rows, columns", [(0, 5), (1, 1), (1, 7), (1024, 8), (8191, 1), (8193, 1)])
def test_awkward_extents(device, rows, columns):
    layer = nn.Linear(columns, rows).to(device=device, dtype=torch.bfloat16)
    plain = copy.deepcopy(layer)
    compress_module(layer)
    inputs = torch.randn(3, columns, device=device).bfloat16()
    assert torch.equal(layer(inputs), plain(inputs))
    wait(device)
