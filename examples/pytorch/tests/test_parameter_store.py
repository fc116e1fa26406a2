# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ParameterStore against torch.optim: the same weights after the same steps, from streams."""
import copy
import gc
import io

import pytest
import torch
from torch import nn
from torch.nn import functional

from tessera_torch.compressed_module import compress_module, compressed_weights, decompress_module
from tessera_torch.parameter_store import ParameterStore
from tessera_torch.wait import wait

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd with weight decay": (torch.optim.SGD, {"lr": 0.1, "weight_decay": 0.01}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9}),
    "nesterov": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.02}),
    "adam": (torch.optim.Adam, {"lr": 0.01}),
    "amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "betas": (0.8, 0.95), "weight_decay": 0.1}),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "eps": 1e-6}),
}


def method_of(kind):
    return {torch.optim.SGD: "sgd", torch.optim.Adam: "adam", torch.optim.AdamW: "adamw"}[kind]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(150, 32, padding_idx=0)
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 300)
        self.down = nn.Linear(300, 32, bias=False)
        self.classifier = nn.Linear(32, 150, bias=False)
        self.classifier.weight = self.embed.weight

    def forward(self, tokens):
        hidden = self.norm(self.embed(tokens))
        return self.classifier(hidden + self.down(functional.gelu(self.up(hidden))))


def pair(device, dtype):
    model = Model().to(device=device, dtype=dtype)
    plain = copy.deepcopy(model)
    compress_module(model)
    return model, plain


def loss_of(model, tokens):
    return functional.cross_entropy(model(tokens[:, :-1]).float().flatten(0, 1), tokens[:, 1:].flatten())


def weights_of(model):
    return {name: each.decoded() for name, each in compressed_weights(model).items()}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_torch(device, name, dtype):
    """Gradients are given, so that all bits can be compared."""
    torch.manual_seed(1)
    kind, options = OPTIMIZERS[name]
    if dtype == torch.float16 and kind is not torch.optim.SGD:
        options = {**options, "eps": 1e-3}  # smaller ones are zero in this type
    model, plain = pair(device, dtype)
    store = ParameterStore(model, method_of(kind), **options)
    reference = kind(plain.parameters(), foreach=False, **options)
    targets = {each: compressed_weights(model)[each].gradient_target for each in ["embed", "up", "down"]}
    descended = {each: plain.get_submodule(each).weight.detach().clone() for each in targets}
    for step in range(6):
        for each, target in targets.items():
            gradient = (0.1 ** (step % 3) * torch.randn(target.shape)).to(device=device, dtype=dtype)
            descended[each] = (descended[each].double() - torch.tensor(0.1).double() * gradient.double()).to(dtype)
            target.grad, plain.get_submodule(each).weight.grad = gradient.clone(), gradient.clone()
        for each in ["norm.weight", "norm.bias", "up.bias"]:
            gradient = torch.randn(plain.get_parameter(each).shape).to(device=device, dtype=dtype)
            model.get_parameter(each).grad, plain.get_parameter(each).grad = gradient.clone(), gradient.clone()
        store.step()
        reference.step()
    for each, found in weights_of(model).items():
        expected = plain.get_submodule(each).weight
        if name == "sgd":  # a fused multiply-add rounds once, and PyTorch several times
            torch.testing.assert_close(found, expected, rtol=0, atol=8 * torch.finfo(dtype).eps)
            assert (found == descended[each]).float().mean() > 0.995
        else:
            assert torch.equal(found, expected), each
    assert torch.equal(model.norm.weight, plain.norm.weight) and torch.equal(model.up.bias, plain.up.bias)


@pytest.mark.parametrize("in_backward", [False, True])
@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_training_is_that_of_a_plain_model(device, name, in_backward):
    torch.manual_seed(2)
    kind, options = OPTIMIZERS[name]
    model, plain = pair(device, torch.float32)
    store = ParameterStore(model, method_of(kind), in_backward=in_backward, **options)
    reference = kind(plain.parameters(), **options)
    tokens = torch.randint(150, (4, 20), device=device)
    losses = []
    for _ in range(8):
        pair_of_losses = []
        for each, optimizer in [(model, store), (plain, reference)]:
            loss = loss_of(each, tokens)
            loss.backward()
            if each is model and in_backward:
                assert all(target.grad is None for target in store.targets())
            optimizer.step()
            optimizer.zero_grad()
            pair_of_losses.append(loss.item())
        losses.append(pair_of_losses)
    assert losses[-1][0] < 0.8 * losses[0][0]
    for found, expected in losses:
        assert abs(found - expected) < 2e-3 * expected
    assert all(target.grad is None for target in store.targets())
    store.close()
    decompress_module(model)
    for each, expected in plain.state_dict().items():
        torch.testing.assert_close(model.state_dict()[each], expected, rtol=2e-2, atol=2e-3)
    wait(device)


def test_gradients_are_those_of_a_plain_model(device):
    torch.manual_seed(3)
    model, plain = pair(device, torch.float32)
    tokens = torch.randint(150, (3, 9), device=device)
    tokens[0, :4] = 0  # the embedding's padding
    store = ParameterStore(model, "sgd")
    loss_of(model, tokens).backward()
    loss_of(plain, tokens).backward()
    for each, weight in compressed_weights(model).items():
        torch.testing.assert_close(weight.gradient_target.grad, plain.get_submodule(each).weight.grad)
    norm = torch.nn.utils.clip_grad_norm_(store.targets(), 1e-3)
    assert norm > 1e-3
    clipped = sum(target.grad.pow(2).sum() for target in store.targets()).sqrt()
    assert clipped.item() < 1.01e-3
    loss_of(model, tokens).backward()  # gradients accumulate
    assert store.targets()[0].grad.norm() > 1e-3
    store.zero_grad()
    with torch.no_grad():
        loss_of(model, tokens)
    assert store.targets()[0].grad is None


def test_weights_grow_and_shrink(device):
    """Updates that change what weights take are kept, and resolve() makes room."""
    torch.manual_seed(4)
    layer = nn.Linear(512, 512, bias=False).to(device=device, dtype=torch.bfloat16)
    compress_module(layer)
    store = ParameterStore(layer, "sgd", lr=1.0, slack=0.0)
    weight = layer.compressed_weight
    small = weight.compressed_bytes
    values = (torch.randn(512, 512).abs() ** 9 * torch.randn(512, 512)).to(device).bfloat16()  # many exponents
    weight.gradient_target.grad = layer.weight - values
    store.step()
    torch.testing.assert_close(layer.weight, values, rtol=0.02, atol=0.05)
    assert weight.compressed_bytes > small
    weight.gradient_target.grad = layer.weight.clone()
    store.step()
    assert not layer.weight.any()


def test_state_of_optimizer_and_model(device):
    torch.manual_seed(5)
    tokens = torch.randint(150, (2, 12), device=device)
    model, plain = pair(device, torch.bfloat16)
    store = ParameterStore(model, "adam", lr=0.01)
    for _ in range(3):
        loss_of(model, tokens).backward()
        store.step()
        store.zero_grad()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "store": store.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    other, _ = pair(device, torch.bfloat16)
    again = ParameterStore(other, "adam", lr=0.5)
    other.load_state_dict(saved["model"])  # into the store
    again.load_state_dict(saved["store"])
    assert again.param_groups[0]["lr"] == 0.01
    for each, optimizer in [(model, store), (other, again)]:
        loss_of(each, tokens).backward()
        optimizer.step()
    for name, value in weights_of(model).items():
        assert torch.equal(weights_of(other)[name], value), name
    store.close()
    assert torch.equal(model(tokens), other(tokens))


def test_learning_rate_schedulers(device):
    model, _ = pair(device, torch.float32)
    store = ParameterStore(model, "sgd", lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(store, 1, 0.5)
    before = model.up.weight
    for expected in [1.0, 0.5]:
        target = model.up.compressed_weight.gradient_target
        target.grad = torch.ones_like(target)
        store.step()
        store.zero_grad()
        scheduler.step()
        torch.testing.assert_close(before - model.up.weight, torch.full_like(before, expected))
        before = model.up.weight


def test_bytes(device):
    layers = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(20))).to(device=device,
                                                                                     dtype=torch.bfloat16)
    compress_module(layers)
    store = ParameterStore(layers, "sgd")
    held = store.bytes()
    assert held.plain == 20 * 2 * 256 * 256
    assert held.streams < 0.78 * held.plain and held.total < 1.2 * held.plain
    assert held.streams == sum(each.compressed_bytes for each in compressed_weights(layers).values())
    assert all(target.untyped_storage().nbytes() <= 8 for target in store.targets())
    assert store.prefetch(layers[3].compressed_weight)
    layers(torch.zeros(1, 256, device=device).bfloat16())
    wait(device)


def test_what_is_refused(device):
    model, _ = pair(device, torch.float32)

    def refused(*words, error=ValueError, **options):
        with pytest.raises(error) as found:
            ParameterStore(model, **options)
        assert all(word in str(found.value) for word in words), found.value
        assert all(each.store is None or options == {} for each in compressed_weights(model).values())

    refused("lion", "adamw", method="lion")
    refused("beta", "lr", method="sgd", beta=3)
    with pytest.raises(ValueError, match="0 compressed"):
        ParameterStore(Model(), "sgd")
    store = ParameterStore(model, "sgd")
    refused("another store")
    with pytest.raises(ValueError, match="closed"):
        decompress_module(model)
    with pytest.raises(TypeError, match="copied"):
        copy.deepcopy(model)
    weight = model.up.compressed_weight
    with pytest.raises(RuntimeError, match="10.*9600"):
        with store.leased(weight):
            held = store._known(weight)
            torch.ops.tessera_torch.parameter_store_sgd_update(held.handle, held.number, torch.zeros(10, device=device),
                                                               0.1)
    with pytest.raises(RuntimeError, match="acquired"):
        torch.ops.tessera_torch.parameter_store_update(store._known(weight).handle, 1)
    plain = torch.optim.SGD(store.targets(), lr=0.1)  # not the optimizer of these
    weight.gradient_target.grad = torch.ones(weight.shape, device=device)
    with pytest.raises(RuntimeError):
        plain.step()
    store.close()
    assert weight.store is None and model(torch.tensor([[1]], device=device)).isfinite().all()


def test_negative_options_change_nothing(device):
    for method, options in [("sgd", {"lr": -1.0}), ("adam", {"eps": -1.0}), ("adam", {"betas": (1.0, 0.9)}),
                            ("sgd", {"nesterov": True}), ("sgd", {"momentum": float("nan")})]:
        model, _ = pair(device, torch.float32)
        before = model.up.weight
        with pytest.raises(ValueError):
            ParameterStore(model, method, **options)
        assert model.up.compressed_weight.store is None and torch.equal(model.up.weight, before)


def test_stores_are_freed(device):
    model, _ = pair(device, torch.float32)
    store = ParameterStore(model, "sgd")
    handle = store._known(model.up.compressed_weight).handle
    del model, store
    gc.collect()
    with pytest.raises(RuntimeError, match=str(handle)):
        torch.ops.tessera_torch.parameter_store_resolve(handle)
