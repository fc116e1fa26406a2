# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import contextlib
import math
import warnings

import pytest
import torch
import torch.nn.functional as F

import tessera_torch
from helpers import refused, relative
from tessera_torch import replaced_attention, scaled_dot_product_attention
from tessera_torch.scaled_dot_product_attention import _torch_attention, _warned

METHODS = [("fp16", torch.float16, 1e-3), ("bf16", torch.bfloat16, 6e-3), ("sage2", torch.bfloat16, 0.06),
           ("sage2", torch.float32, 0.06)]
EACH = pytest.mark.parametrize("method, dtype, limit", METHODS)


@pytest.fixture(autouse=True)
def warnings_are_errors(request):
    """A test that goes to PyTorch's own attention without expecting it fails."""
    values = getattr(getattr(request.node, "callspec", None), "params", {})
    if values.get("device") == "cuda" and values.get("dtype") == torch.float32:
        pytest.skip("float32 on GPUs goes to PyTorch")
    _warned.clear()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="tessera_torch")
        yield


def normal(*shape, dtype=torch.bfloat16, device="cpu"):
    return torch.randn(shape).to(dtype).to(device)


def expected_of(query, key, value, attn_mask=None, **options):
    """PyTorch's own in double on the CPU, where rows that see no key are zeros."""
    query, key, value = (tensor.detach().cpu().double() for tensor in (query, key, value))
    if attn_mask is not None:
        attn_mask = attn_mask.cpu() if attn_mask.dtype == torch.bool else attn_mask.cpu().double()
    is_causal = options.pop("is_causal", False)
    return _torch_attention(query, key, value, attn_mask, 0.0, is_causal, **options).nan_to_num(0.0)


def agrees(found, expected, limit, dtype):
    assert found.shape == expected.shape and found.dtype == dtype
    assert relative(found.cpu(), expected) < limit if expected.any() else not found.any()


@EACH
@pytest.mark.parametrize("queries", [1, 7, 64, 65])
@pytest.mark.parametrize("keys", [1, 7, 63, 64, 129])
@pytest.mark.parametrize("is_causal", [False, True])
def test_causal_masks_begin_at_the_first_query(device, method, dtype, limit, queries, keys, is_causal):
    q = normal(2, 4, queries, 64, dtype=dtype, device=device)
    k, v = (normal(2, 4, keys, 64, dtype=dtype, device=device) for _ in range(2))
    found = scaled_dot_product_attention(q, k, v, is_causal=is_causal, method=method)
    agrees(found, expected_of(q, k, v, is_causal=is_causal), limit, dtype)


@EACH
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2, 1), (1, 4), (2, 4)])
@pytest.mark.parametrize("kind", ["bool", "added", "float32"])
def test_masks(device, method, dtype, limit, shape, kind):
    q = normal(2, 4, 33, 64, dtype=dtype, device=device)
    k, v = (normal(2, 4, 70, 64, dtype=dtype, device=device) for _ in range(2))
    mask = torch.rand(*shape, 33, 70) > 0.4
    mask[..., 5, :] = False  # a query that sees no key
    if kind != "bool":
        mask = (torch.randn(mask.shape).masked_fill(~mask, -math.inf)).to(dtype if kind == "added" else torch.float32)
    found = scaled_dot_product_attention(q, k, v, mask.to(device), method=method)
    agrees(found, expected_of(q, k, v, mask), limit, dtype)
    assert not found[..., 5, :].any()
    of_keys = mask[..., :1, :]
    found = scaled_dot_product_attention(q, k, v, of_keys.to(device), method=method)
    agrees(found, expected_of(q, k, v, of_keys), limit, dtype)


@EACH
@pytest.mark.parametrize("leading", [(), (3,), (2, 4), (2, 3, 2), (2, 1, 2, 2)])
def test_batches_of_any_dimensions(device, method, dtype, limit, leading):
    q = normal(*leading, 20, 32, dtype=dtype, device=device)
    k, v = (normal(*leading, 35, 32, dtype=dtype, device=device) for _ in range(2))
    for mask in (None, torch.rand(20, 35) > 0.3, torch.rand(*leading, 20, 35) > 0.3):
        found = scaled_dot_product_attention(q, k, v, None if mask is None else mask.to(device), method=method)
        agrees(found, expected_of(q, k, v, mask), limit, dtype)


@EACH
@pytest.mark.parametrize("channels", [1, 8, 40, 72, 250])
def test_channels_that_are_no_multiple_of_16(device, method, dtype, limit, channels):
    q, k, v = (normal(1, 2, 40, channels, dtype=dtype, device=device) for _ in range(3))
    agrees(scaled_dot_product_attention(q, k, v, method=method), expected_of(q, k, v), limit, dtype)
    if method == "sage2":
        other = normal(1, 2, 40, 24, dtype=dtype, device=device)
        agrees(scaled_dot_product_attention(q, k, other), expected_of(q, k, other), limit, dtype)


@EACH
def test_scales_and_shared_key_heads(device, method, dtype, limit):
    q = normal(2, 6, 40, 64, dtype=dtype, device=device)
    k, v = (normal(2, 2, 50, 64, dtype=dtype, device=device) for _ in range(2))
    for options in ({}, {"scale": 0.3}, {"is_causal": True}):
        found = scaled_dot_product_attention(q, k, v, enable_gqa=True, method=method, **options)
        agrees(found, expected_of(q, k, v, enable_gqa=True, **options), limit, dtype)


def test_no_queries_and_no_keys(device):
    q, k = normal(2, 4, 5, 64, device=device), normal(2, 4, 0, 64, device=device)
    assert not scaled_dot_product_attention(q, k, k).any()
    assert scaled_dot_product_attention(k, q, q, is_causal=True).shape == (2, 4, 0, 64)
    assert not scaled_dot_product_attention(q, k, k, is_causal=True).any()


def test_strides_and_the_order_of_dimensions(device):
    q, k, v = (normal(2, 40, 4, 64, device=device).transpose(1, 2) for _ in range(3))
    found = scaled_dot_product_attention(q, k, v, is_causal=True)
    assert found.transpose(1, 2).is_contiguous()
    whole = [tensor.contiguous() for tensor in (q, k, v)]
    assert torch.equal(found, scaled_dot_product_attention(*whole, is_causal=True))


def test_autocast_casts_as_pytorchs_attention_does(device):
    q, k, v = (normal(1, 2, 40, 64, dtype=torch.float32, device=device) for _ in range(3))
    mask = torch.randn(40, 40, device=device)
    with torch.autocast(device, dtype=torch.bfloat16):
        found = scaled_dot_product_attention(q, k, v, mask)
        assert found.dtype == _torch_attention(q, k, v, mask).dtype == torch.bfloat16
    agrees(found, expected_of(q, k, v, mask), 0.06, torch.bfloat16)


def test_what_goes_to_pytorch_says_why_once(device):
    q, k = normal(1, 4, 20, 64, device=device), normal(1, 2, 30, 64, device=device)
    wide = normal(1, 2, 20, 320, device=device)
    training = q.clone().requires_grad_()
    mask = torch.zeros(20, 20, device=device, dtype=q.dtype, requires_grad=True)
    cases = [("float32 on a GPU", [q.float()] * 3, {})] if device == "cuda" else []
    cases += [("dropout", (q, q, q), {"dropout_p": 0.5}), ("gradient", (training, q, q), {}),
             ("gradient", (q, q, q, mask), {}), ("float16 or float32", [q.double()] * 3, {}),
             ("256 channels", [wide] * 3, {}), ("positive", (q, q, q), {"scale": -0.5}),
             ("share key heads", (q, k[:, :1], k[:, :1]), {}),
             ("different sequences", (q.expand(2, -1, -1, -1), q, q), {})]
    for words, tensors, options in cases:
        _warned.clear()
        torch.manual_seed(5)
        with pytest.warns(UserWarning, match=words) as caught:
            found = scaled_dot_product_attention(*tensors, **options)
        assert len(caught) == 1 and "tessera_torch" in str(caught[0].message)
        torch.manual_seed(5)
        torch.testing.assert_close(found, _torch_attention(*tensors, **options), rtol=0, atol=0, equal_nan=True)
        with warnings.catch_warnings():  # the second time it says nothing
            warnings.simplefilter("error")
            scaled_dot_product_attention(*tensors, **options)


def test_gradients_are_pytorchs(device):
    made = []
    for function in (scaled_dot_product_attention, _torch_attention):
        torch.manual_seed(4)
        q, k, v = (normal(1, 2, 20, 32, device=device).requires_grad_() for _ in range(3))
        with pytest.warns(UserWarning, match="backward") if function is scaled_dot_product_attention else \
                contextlib.nullcontext():
            function(q, k, v, is_causal=True).sum().backward()
        made.append([q.grad, k.grad, v.grad])
    assert all(relative(one, other) < 1e-3 for one, other in zip(*made))  # on a GPU sums have no fixed order
    with torch.no_grad():
        assert not scaled_dot_product_attention(q, k, v).requires_grad


def test_wrong_arguments_are_refused_by_pytorch(device):
    q, k = normal(1, 4, 20, 64, device=device), normal(1, 4, 30, 64, device=device)
    for tensors, options in [((q, k[..., :32], k), {}), ((q, k, k.float()), {}),
                             ((q, k[:, :3], k[:, :3]), {"enable_gqa": True}),
                             ((q, k, k, torch.ones(20, 29, device=device)), {})]:
        _warned.clear()
        with pytest.warns(UserWarning, match="since"), pytest.raises(RuntimeError):
            scaled_dot_product_attention(*tensors, **options)
    refused(["scaled_dot_product_attention", "'sage3'", "sage2"],
            lambda: scaled_dot_product_attention(q, k, k, method="sage3"))


def test_replaced_attention(device):
    q, k, v = (normal(1, 4, 40, 64, device=device) for _ in range(3))
    before = F.scaled_dot_product_attention
    of_torch = before(q, k, v)
    with replaced_attention():
        found = F.scaled_dot_product_attention(q, k, v)
        with replaced_attention("bf16"):
            in_bf16 = F.scaled_dot_product_attention(q, k, v)
        again = F.scaled_dot_product_attention(q, k, v)
    assert torch.equal(found, scaled_dot_product_attention(q, k, v)) and torch.equal(found, again)
    assert torch.equal(in_bf16, scaled_dot_product_attention(q, k, v, method="bf16"))
    assert not torch.equal(found, of_torch) and not torch.equal(found, in_bf16)
    with pytest.raises(KeyError), replaced_attention():
        raise KeyError
    assert F.scaled_dot_product_attention is before
    refused(["replaced_attention", "'sage3'"], lambda: replaced_attention("sage3").__enter__())


def test_a_module_with_replaced_attention(device):
    module = torch.nn.MultiheadAttention(128, 4, batch_first=True, bias=False).to(device).bfloat16()
    tokens = normal(2, 30, 128, device=device)
    padding = torch.arange(30, device=device)[None] >= torch.tensor([[30], [11]], device=device)
    module.train()  # eval() would run a path that PyTorch has in one piece
    with torch.no_grad():
        expected = module(tokens, tokens, tokens, key_padding_mask=padding, need_weights=False)[0]
        with replaced_attention():
            found = module(tokens, tokens, tokens, key_padding_mask=padding, need_weights=False)[0]
    assert 0 < relative(found, expected) < 0.05


def test_compiled_without_graph_breaks(device):
    q, k, v = (normal(2, 4, 40, 64, device=device) for _ in range(3))
    mask = torch.rand(40, 40, device=device) > 0.3
    longer = normal(2, 4, 70, 64, device=device)

    def layer(q, k, v, mask=None, is_causal=False):
        return F.scaled_dot_product_attention(q, k, v, mask, is_causal=is_causal).transpose(1, 2).flatten(2) + 1

    with replaced_attention():
        for dynamic in (False, True):
            compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
            for tensors, options in (((q, k, v), {"is_causal": True}), ((q, k, v), {"mask": mask}),
                                     ((q, longer, longer), {"is_causal": True}), ((longer, k, v), {"is_causal": True})):
                assert torch.equal(compiled(*tensors, **options), layer(*tensors, **options))


def test_compiled_calls_that_go_to_pytorch_say_why(device):
    q, k, v = (normal(1, 2, 20, 64, device=device).requires_grad_() for _ in range(3))
    compiled = torch.compile(lambda *tensors: scaled_dot_product_attention(*tensors) * 2, fullgraph=True,
                             backend="aot_eager")
    with pytest.warns(UserWarning, match="gradient"):
        found = compiled(q, k, v)
    found.sum().backward()
    assert q.grad is not None


transformers = pytest.importorskip("transformers")


def small_model(kind, device, implementation="eager", **others):
    torch.manual_seed(7)
    sizes = {"vocab_size": 300, "hidden_size": 128, "intermediate_size": 128, "num_hidden_layers": 2,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 256}
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **others}, attn_implementation=implementation)
    model = getattr(transformers, f"{kind}ForCausalLM")(config).eval().to(device).bfloat16()
    for name, parameter in model.named_parameters():
        if "sinks" in name:
            torch.nn.init.normal_(parameter)
    return model


MODELS = {"Llama": {}, "Mistral": {"sliding_window": 8}, "GptOss": {"num_local_experts": 2, "num_experts_per_tok": 2,
                                                                    "sliding_window": 8}}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_of_transformers(device, kind):
    tessera_torch.register_attention(method="bf16")
    tessera_torch.register_attention("tessera_sage2")
    tokens = torch.randint(300, (2, 24), device=device)
    mask = torch.ones_like(tokens)
    mask[0, :9] = 0  # padded to the left
    logits = {}
    for implementation in ("eager", "tessera", "tessera_sage2"):
        model = small_model(kind, device, implementation, **MODELS[kind])
        with torch.no_grad():
            whole = model(tokens).logits
            padded = model(tokens, attention_mask=mask).logits[0, 9:]
            cache = model(tokens[:, :20], use_cache=True).past_key_values
            steps = model(tokens[:, 20:22], past_key_values=cache, use_cache=True)
            last = model(tokens[:, 22:23], past_key_values=steps.past_key_values).logits
        logits[implementation] = whole, padded, steps.logits, last
    for implementation, limit in (("tessera", 0.03), ("tessera_sage2", 0.06)):
        for found, expected in zip(logits[implementation], logits["eager"]):
            assert relative(found, expected) < limit
        assert not torch.equal(logits[implementation][0], logits["eager"][0])


def test_a_model_of_transformers_generates(device):
    tessera_torch.register_attention(method="bf16")
    tokens = torch.randint(300, (2, 10), device=device)
    mask = torch.ones_like(tokens)
    mask[1, :4] = 0
    made = [small_model("Llama", device, implementation).generate(tokens, attention_mask=mask, max_new_tokens=6,
                                                                  do_sample=False, pad_token_id=0)
            for implementation in ("sdpa", "tessera")]
    assert made[0].shape == made[1].shape == (2, 16)
    assert (made[0] == made[1]).double().mean() > 0.8  # logits of random models are close to each other


def test_training_a_model_of_transformers_goes_to_pytorch(device):
    tessera_torch.register_attention()
    tokens = torch.randint(300, (1, 12), device=device)
    model = small_model("Llama", device, "tessera").train()
    with pytest.warns(UserWarning, match="gradient"):
        loss = model(tokens, labels=tokens).loss
    loss.backward()
    same = small_model("Llama", device, "sdpa").train()
    assert torch.equal(loss, same(tokens, labels=tokens).loss)
    with_sinks = small_model("GptOss", device, "tessera", **MODELS["GptOss"]).train()
    refused(["gradient", "sinks"], lambda: with_sinks(tokens))


def test_soft_caps_are_refused(device):
    tessera_torch.register_attention()
    forward = transformers.AttentionInterface()["tessera"]
    q = normal(1, 2, 5, 32, device=device)
    refused(["softcap", "50.0", "None"], lambda: forward(torch.nn.Module(), q, q, q, None, softcap=50.0))
    refused(["register_attention", "'sage3'"], lambda: tessera_torch.register_attention(method="sage3"))
