# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import math

import numpy
import pytest
import torch

import tessera_torch
from attention_reference import reference
from helpers import bfloat16, refused, relative
from tessera_torch import attention, attention_packed, tile_list

# The largest relative error of a method's results and the largest error of its log-sum-exps, on normal numbers.
LIMITS = {("bf16", torch.bfloat16): (4e-3, 3e-4), ("fp16", torch.float16): (5e-4, 3e-4)}
for name, limit in [("sage2", (0.05, 0.1)), ("sage2_smoothed", (0.05, 0.1)), ("fp8", (0.07, 0.15)),
                    ("int4", (0.25, 0.7))]:
    LIMITS.update({(name, dtype): limit for dtype in (torch.bfloat16, torch.float16, torch.float32)})
ALL = [pytest.param(*key, id=f"{key[0]}-{str(key[1])[6:]}") for key in LIMITS]
SOME = [key for key in ALL if key.values in [("fp16", torch.float16), ("bf16", torch.bfloat16),
                                             ("sage2", torch.bfloat16), ("sage2", torch.float32)]]
CUDA_ONLY = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def heads(device, dtype, shape=(2, 4, 2, 140, 200, 64), value_channels=None):
    """Normal queries, keys and values: batch, query heads, key heads, queries, keys, channels."""
    batch, query_heads, key_heads, queries, keys, channels = shape

    def normal(*sizes):
        return torch.randn(sizes).to(dtype).to(device)

    return (normal(batch, query_heads, queries, channels), normal(batch, key_heads, keys, channels),
            normal(batch, key_heads, keys, value_channels or channels))


def agrees(found, expected, method, dtype):
    """Asserts that (result, log-sum-exps) are those of the reference, and have none where it has none."""
    results, sums = (part.detach().double().cpu() for part in found)
    limit, limit_of_sums = LIMITS[method, dtype]
    assert results.shape == expected[0].shape and sums.shape == expected[1].shape
    assert found[0].dtype == dtype and found[1].dtype == torch.float32
    hidden = expected[1] == -math.inf
    assert torch.equal(sums == -math.inf, hidden) and not results[hidden].any()
    if expected[0].any():
        assert relative(results, expected[0]) < limit
    if not hidden.all():
        assert (sums - expected[1])[~hidden].abs().max() < limit_of_sums


def check(tensors, method, dtype, **options):
    found = attention(*tensors, return_lse=True, method=method, **options)
    alone = attention(*tensors, method=method, **options)
    tessera_torch.wait(tensors[0].device)
    agrees(found, reference(*tensors, **options), method, dtype)
    assert (alone - found[0]).norm() <= 0.02 * found[0].norm()  # programs may differ where there are no log-sum-exps


@pytest.mark.parametrize("method, dtype", ALL)
@pytest.mark.parametrize("is_causal", [False, True])
def test_methods_and_types(device, method, dtype, is_causal):
    check(heads(device, dtype), method, dtype, is_causal=is_causal)


@pytest.mark.parametrize("method, dtype", SOME)
@pytest.mark.parametrize("queries", [0, 1, 7, 63, 64, 65, 127, 128, 129])
def test_awkward_extents(device, method, dtype, queries):
    for keys in (0, 1, 7, 63, 65, 127, 128, 129):
        for is_causal in (False, True):
            check(heads(device, dtype, (1, 2, 1, queries, keys, 32)), method, dtype, is_causal=is_causal)
    empty = heads(device, dtype, (0, 2, 1, queries, 65, 32))
    assert attention(*empty, method=method).shape == empty[0].shape


def options_of(batch, query_heads, queries, keys):
    """Options by name, each with random numbers."""
    def normal(*shape):
        return torch.randn(shape)

    seen = torch.rand(batch, 1, queries, keys) > 0.5
    lengths = torch.tensor([keys, keys // 9, 0][:batch])
    sinks, slopes = normal(query_heads), 0.1 * torch.rand(query_heads)
    return {
        "window": {"window": 40},
        "window to the left": {"window": (30, None)},
        "window and causal": {"window": (30, -1), "is_causal": True},
        "window of itself": {"window": (0, 0)},
        "sinks": {"sinks": sinks},
        "sinks in 16 bits": {"sinks": sinks.bfloat16(), "is_causal": True},
        "bias of keys": {"bias": normal(keys)},
        "bias of all": {"bias": normal(batch, query_heads, queries, keys).bfloat16()},
        "bias of heads in fp16": {"bias": normal(query_heads, 1, keys).half()},
        "bias of queries, transposed": {"bias": normal(keys, queries).T, "is_causal": True},
        "mask": {"bias": seen},
        "mask of nothing": {"bias": torch.zeros(1, keys, dtype=torch.bool)},
        "mask of some keys": {"bias": torch.arange(keys) < 5, "is_causal": True},
        "slopes": {"alibi_slopes": slopes},
        "slopes and causal": {"alibi_slopes": slopes, "is_causal": True},
        "slopes, bias and sinks": {"alibi_slopes": slopes, "bias": normal(query_heads, queries, keys), "sinks": sinks},
        "lengths": {"lengths": lengths},
        "lengths in int32, causal": {"lengths": lengths.int(), "is_causal": True},
        "lengths of queries": {"query_lengths": torch.tensor([0, queries, queries // 2][:batch]), "is_causal": True},
        "both lengths": {"lengths": lengths, "query_lengths": torch.tensor([queries // 3, 1, 9][:batch]),
                         "window": (20, 3), "sinks": sinks},
        "lengths that are too long": {"lengths": torch.full((batch,), 2**40)},
        "lengths that are negative": {"lengths": torch.tensor([-2**40, 5, -1][:batch])},
        "lengths in 8 bits": {"lengths": torch.tensor([3, 127, 0][:batch], dtype=torch.uint8)},
        "scale": {"softmax_scale": 0.3},
    }


@pytest.mark.parametrize("method, dtype", SOME)
@pytest.mark.parametrize("name", options_of(3, 4, 70, 150))
def test_options(device, method, dtype, name):
    batch, query_heads, queries, keys = 3, 4, 70, 150
    options = {key: value.to(device) if torch.is_tensor(value) else value
               for key, value in options_of(batch, query_heads, queries, keys)[name].items()}
    check(heads(device, dtype, (batch, query_heads, 2, queries, keys, 64)), method, dtype, **options)


@pytest.mark.parametrize("method, dtype", ALL)
def test_all_options_together_by_every_method(device, method, dtype):
    options = {"bias": torch.randn(4, 90, 300).to(dtype), "sinks": torch.randn(4), "window": (100, 2),
               "alibi_slopes": 0.1 * torch.rand(4), "lengths": torch.tensor([300, 131]), "softmax_scale": 0.1}
    options = {name: value.to(device) if torch.is_tensor(value) else value for name, value in options.items()}
    check(heads(device, dtype, (2, 4, 2, 90, 300, 128)), method, dtype, **options)


@pytest.mark.parametrize("method, dtype", SOME)
@pytest.mark.parametrize("channels", [16, 48, 64, 80, 128, 192, 256])
def test_channels(device, method, dtype, channels):
    check(heads(device, dtype, (1, 2, 2, 65, 129, channels)), method, dtype, is_causal=True)


@pytest.mark.parametrize("method, dtype", [key for key in ALL if key.values[0] not in ("bf16", "fp16")])
@pytest.mark.parametrize("channels, of_values", [(192, 128), (32, 96), (64, 16)])
def test_values_of_other_channels(device, method, dtype, channels, of_values):
    check(heads(device, dtype, (1, 4, 2, 65, 129, channels), of_values), method, dtype, is_causal=True)


@pytest.mark.parametrize("method, dtype", SOME)
def test_strides(device, method, dtype):
    q, k, v = heads(device, dtype)
    whole = attention(q, k, v, is_causal=True, method=method)
    by_tokens = [tensor.transpose(1, 2).contiguous().transpose(1, 2) for tensor in (q, k, v)]
    found = attention(*by_tokens, is_causal=True, method=method)

    def same(one, other):
        """Equal bits on the CPU; a GPU has other programs for strides that TMA does not load."""
        return torch.equal(one, other) if device == "cpu" else relative(one, other) < 0.02

    assert same(found, whole) and found.transpose(1, 2).is_contiguous() and whole.is_contiguous()
    every_second = [tensor.repeat_interleave(2, -1)[..., ::2] for tensor in (q, k, v)]
    assert same(attention(*every_second, is_causal=True, method=method), whole)
    one = k[:, :1].expand(-1, 2, -1, -1), v[:, :1].expand(-1, 2, -1, -1)
    copies = [tensor.contiguous() for tensor in one]
    assert same(attention(q, *one, method=method), attention(q, *copies, method=method))
    reversed_heads = q.flip(1)
    assert same(attention(reversed_heads[:, :2], k[:, 1:], v[:, 1:], method=method).flip(1),
                attention(q[:, 2:], k[:, 1:], v[:, 1:], method=method))


@pytest.mark.parametrize("method, dtype", ALL)
def test_query_heads_share_key_heads(device, method, dtype):
    q, k, v = heads(device, dtype, (1, 8, 2, 33, 70, 64))
    found = attention(q, k, v, method=method)
    each = attention(q, k.repeat_interleave(4, 1), v.repeat_interleave(4, 1), method=method)
    assert relative(found, each) < 3e-3


@pytest.mark.parametrize("method, dtype", ALL)
@pytest.mark.parametrize("is_causal", [False, True])
def test_packed_sequences(device, method, dtype, is_causal):
    lengths_q, lengths_k = [5, 0, 129, 64, 1], [70, 3, 129, 0, 200]
    starts_q, starts_k = ([0, *torch.tensor(lengths).cumsum(0).tolist()] for lengths in (lengths_q, lengths_k))
    q = torch.randn(starts_q[-1] + 9, 4, 64).to(dtype).to(device)
    k, v = (torch.randn(starts_k[-1], 2, 64).to(dtype).to(device) for _ in range(2))
    sinks, slopes = torch.randn(4, device=device), 0.1 * torch.rand(4, device=device)
    options = {"is_causal": is_causal, "sinks": sinks, "alibi_slopes": slopes, "window": (90, -1)}
    of_both = (torch.tensor(starts, device=device) for starts in (starts_q, starts_k))
    found, sums = attention_packed(q, k, v, *of_both, return_lse=True, method=method, **options)
    tessera_torch.wait(device)
    for i in range(5):
        of_q, of_k = slice(starts_q[i], starts_q[i + 1]), slice(starts_k[i], starts_k[i + 1])
        one = [part.transpose(0, 1)[None] for part in (q[of_q], k[of_k], v[of_k])]
        agrees((found[of_q].transpose(0, 1)[None], sums[None, :, of_q]), reference(*one, **options), method, dtype)
    assert not found[starts_q[-1]:].any() and (sums[:, starts_q[-1]:] == -math.inf).all()


def test_packed_sequences_of_one_list(device):
    q, k, v = (torch.randn(100, 2, 32, device=device).half() for _ in range(3))
    starts = torch.tensor([0, 30, 100], dtype=torch.int32, device=device)
    found = attention_packed(q, k, v, starts, max_seqlen_q=80, is_causal=True, method="fp16")
    same = attention_packed(q, k, v, starts, starts.long(), is_causal=True, method="fp16")
    assert torch.equal(found, same) and found.any(-1).all()


@pytest.mark.parametrize("method, dtype", ALL)
@pytest.mark.parametrize("with_bias", [False, True])
def test_lists_of_tiles(device, method, dtype, with_bias):
    seen = torch.rand(1, 4, 3, 3) > 0.5  # 140 queries, 300 keys
    seen[0, 1, 2] = False
    block_list = tile_list(seen.to(device))
    options = {"bias": torch.randn(140, 300).to(device)} if with_bias else {}
    tensors = heads(device, dtype, (1, 4, 2, 140, 300, 64))
    check(tensors, method, dtype, block_list=block_list, is_causal=True, **options)


def test_tile_list_lists_tiles():
    seen = torch.tensor([[[[True, False, True], [False, False, False]]]])
    counts, tiles = tile_list(seen)
    assert counts.tolist() == [[[2, 0]]] and tiles[0, 0, 0, :2].tolist() == [0, 2]
    assert counts.dtype == tiles.dtype == torch.int32
    refused(["tile_list", "float32", "bool"], lambda: tile_list(seen.float()))


@pytest.mark.parametrize("method, dtype", ALL)
def test_nan_and_infinity(device, method, dtype):
    q, k, v = heads(device, dtype, (1, 2, 2, 64, 256, 64))
    clean = attention(q, k, v, method=method)
    poisoned = q.clone()
    poisoned[0, 0, 40, 5] = math.nan
    found = attention(poisoned, k, v, method=method)
    assert found[0, 0, 40].isnan().all() and not found[0, 1].isnan().any()
    others = [row for row in range(64) if row not in (32, 40, 48)]  # two queries share a scale
    assert relative(found[0, 0, others], clean[0, 0, others]) < (0.3 if method == "int4" else 0.1)
    for number in (math.nan, math.inf):
        keys = k.clone()
        keys[0, 1, 200, 3] = number
        found = attention(q, keys, v, method=method)
        assert not found[0, 0].isnan().any() and not found[0, 1].isfinite().all()
        hidden = attention(q, keys, v, method=method, lengths=torch.tensor([200], device=device))
        assert hidden.isfinite().all()
    values = v.clone()
    values[0, 0, 7, 9] = math.nan
    found = attention(q, k, values, method=method)
    assert found[0, 0, :, 9].isnan().all() and not found[0, 1].isnan().any()


def test_a_bias_of_infinities(device):
    q, k, v = heads(device, torch.float16, (1, 1, 1, 5, 70, 32))
    bias = torch.full((5, 70), -math.inf, device=device)
    bias[:4, 3] = 0
    for method in ("fp16", "sage2", "sage2_smoothed", "int4", "fp8"):
        found, sums = attention(q, k, v, bias=bias, return_lse=True, method=method)
        assert relative(found[0, 0, :4], v[0, 0, 3].expand(4, 32)) < 0.05
        assert not found[0, 0, 4].any() and sums[0, 0, 4] == -math.inf


@pytest.mark.parametrize("method, dtype", ALL)
@pytest.mark.parametrize("of_bias", [torch.bfloat16, torch.float16, torch.float32])
def test_a_bias_of_the_lowest_numbers_hides_keys(device, method, dtype, of_bias):
    tensors = heads(device, dtype, (1, 2, 2, 5, 70, 32))
    seen = torch.rand(5, 70, device=device) > 0.5
    lowest = torch.zeros(5, 70, dtype=of_bias, device=device).masked_fill(~seen, torch.finfo(of_bias).min)
    found, expected = (attention(*tensors, bias=bias, method=method) for bias in (lowest, seen))
    assert relative(found, expected) < 1e-2
    if of_bias != torch.float16:
        assert not attention(*tensors, bias=torch.full_like(lowest, torch.finfo(of_bias).min), method=method).any()


def test_objects_with_dlpack(device):
    generator = numpy.random.default_rng(1)
    arrays = [generator.standard_normal((1, 2, 33, 32), dtype=numpy.float32) for _ in range(3)]
    sinks = numpy.ones(2, numpy.float32)
    expected = attention(*map(torch.from_numpy, arrays), sinks=torch.ones(2), is_causal=True)
    assert torch.equal(attention(*arrays, sinks=sinks, is_causal=True), expected)
    packed = [array[0].transpose(1, 0, 2) for array in arrays]
    found = attention_packed(*packed, numpy.array([0, 33]), sinks=sinks, is_causal=True)
    assert torch.equal(found.transpose(0, 1)[None], expected)
    if device != "cpu":
        class shared:
            """What another framework's array of the device is."""
            def __init__(self, tensor):
                self.tensor = tensor

            def __dlpack__(self, **options):
                return self.tensor.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.tensor.__dlpack_device__()

        there = [torch.from_numpy(array).to(device) for array in arrays]
        assert torch.equal(attention(*map(shared, there)), attention(*there))


def test_wrong_arguments_are_refused(device):
    q, k = bfloat16(1, 4, 20, 64, device=device), bfloat16(1, 2, 30, 64, device=device)
    ones = torch.ones(4, device=device)
    other = "meta"
    for words, call in [
            (["attention", "queries", "3", "4"], lambda: attention(q[0], k, k)),
            (["attention", "keys", "5", "4"], lambda: attention(q, k[None], k)),
            (["attention", "keys", "meta", device], lambda: attention(q, k.to(other), k)),
            (["attention", "values", "Half", "BFloat16"], lambda: attention(q, k, k.half())),
            (["attention", "queries", "Double", "BFloat16"], lambda: attention(q.double(), k.double(), k.double())),
            (["attention", "3", "2"], lambda: attention(q[:, :3], k, k)),
            (["attention", "48", "64"], lambda: attention(q, k[..., :48], k)),
            (["attention", "40", "16", "256"], lambda: attention(q[..., :40], k[..., :40], k)),
            (["attention", "29", "30"], lambda: attention(q, k, k[:, :, 1:])),
            (["attention", "scale", "0"], lambda: attention(q, k, k, softmax_scale=0)),
            (["attention", "scale", "inf"], lambda: attention(q, k, k, softmax_scale=math.inf)),
            (["attention", "nan"], lambda: attention(q, k, k, softmax_scale=math.nan)),
            (["attention", "'sage3'", "sage2"], lambda: attention(q, k, k, method="sage3")),
            (["attention", "fp16", "bfloat16"], lambda: attention(q, k, k, method="fp16")),
            (["attention", "64", "32"], lambda: attention(q, k, k[..., :32], method="bf16")),
            (["attention", "window", "(1, 2, 3)"], lambda: attention(q, k, k, window=(1, 2, 3))),
            (["attention", "window", "-2", "-1"], lambda: attention(q, k, k, window=(-2, 4))),
            (["attention", "sinks", "3", "4"], lambda: attention(q, k, k, sinks=ones[:3])),
            (["attention", "sinks", "meta", device], lambda: attention(q, k, k, sinks=ones.to(other))),
            (["attention", "sinks", "list"], lambda: attention(q, k, k, sinks=[1.0] * 4)),
            (["attention", "slopes", "3", "4"], lambda: attention(q, k, k, alibi_slopes=ones[:3])),
            (["attention", "lengths of keys", "2", "1"], lambda: attention(q, k, k, lengths=ones[:2].int())),
            (["attention", "lengths of queries", "float32"], lambda: attention(q, k, k, query_lengths=ones[:1])),
            (["attention", "biases", "29", "30"], lambda: attention(q, k, k, bias=torch.ones(29, device=device))),
            (["attention", "biases", "5", "4"], lambda: attention(q, k, k, bias=ones[None, None, None, None])),
            (["attention", "biases", "Double", "Bool"], lambda: attention(q, k, k, bias=ones[:1].double())),
            (["attention", "biases", "meta", device], lambda: attention(q, k, k, bias=torch.ones(30).to(other))),
            (["attention", "block list", "Tensor"], lambda: attention(q, k, k, block_list=ones)),
            (["attention", "block list", "3", "4"], lambda: attention(q, k, k, block_list=tile_list(
                torch.ones(1, 3, 1, 1, dtype=torch.bool, device=device)))),
            (["attention", "backward"], lambda: attention(q.clone().requires_grad_(), k, k).sum().backward()),
            (["attention", "backward"],
             lambda: attention(q, k, k, sinks=ones.clone().requires_grad_()).sum().backward())]:
        refused(words, call, device)
    refused(["attention", "queries", "str", "__dlpack__"], lambda: attention("q", k, k))


def test_wrong_packed_sequences_are_refused(device):
    q = torch.randn(20, 4, 64, device=device).half()

    def packed(numbers, tensors=(q, q, q), **options):
        return lambda: attention_packed(*tensors, torch.tensor(numbers, device=device), **options)

    for words, call in [
            (["attention_packed", "queries", "4", "3"], packed([0, 20], (q[None], q, q))),
            (["attention_packed", "21", "20"], packed([0, 21])),
            (["attention_packed", "15", "10"], packed([0, 15, 10])),
            (["attention_packed", "-3"], packed([-3, 10])),
            (["attention_packed", str(2**33)], packed([0, 2**33])),
            (["attention_packed", "cu_seqlens", "(1, 2)"], packed([[0, 20]])),
            (["attention_packed", "cu_seqlens", "float32"], packed([0.0, 20.0])),
            (["attention_packed", "20", "19"], packed([0, 20], (q, q, q[:19]))),
            (["attention", "40", "16"], packed([0, 20], (q[..., :40], q[..., :40], q))),
            (["attention_packed", "backward"],
             lambda: packed([0, 20], (q.clone().requires_grad_(), q, q))().sum().backward())]:
        refused(words, call, device)
    if device == "cpu":
        refused(["attention_packed", "12", "19"], packed([0, 19], max_seqlen_q=12))


def test_attention_is_compiled_without_graph_breaks(device):
    q, k, v = heads(device, torch.bfloat16)
    bias, sinks, lengths = torch.randn(140, 200, device=device), torch.randn(4, device=device), torch.tensor([200, 20])

    def plain(q, k, v):
        return attention(q, k, v, is_causal=True) + 1

    def with_options(q, k, v):
        result, sums = attention(q.transpose(1, 2).contiguous().transpose(1, 2), k, v, window=(50, 3), sinks=sinks,
                                 bias=bias, lengths=lengths.to(device), return_lse=True, method="int4",
                                 block_list=tile_list(torch.ones(2, 4, 3, 2, dtype=torch.bool, device=device)))
        return result.transpose(1, 2).flatten(2) * 2, sums

    for function, backend, dynamic in ((plain, "inductor", False), (plain, "aot_eager", True),
                                       (with_options, "aot_eager", False), (with_options, "aot_eager", True)):
        found = torch.compile(function, fullgraph=True, dynamic=dynamic, backend=backend)(q, k, v)
        expected = function(q, k, v)
        for one, other in zip(found if isinstance(found, tuple) else [found],
                              expected if isinstance(expected, tuple) else [expected]):
            assert torch.equal(one, other) and one.stride() == other.stride()


def test_packed_attention_is_compiled_without_graph_breaks(device):
    q, k, v = (torch.randn(60, 2, 32, device=device).half() for _ in range(3))
    starts = torch.tensor([0, 20, 60], device=device)

    def packed(q, k, v):
        return attention_packed(q, k, v, starts, max_seqlen_q=40, is_causal=True, method="fp16") + 1

    for dynamic in (False, True):
        compiled = torch.compile(packed, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        assert torch.equal(compiled(q, k, v), packed(q, k, v))


def test_operators_are_registered_rightly(device):
    q, k, v = heads(device, torch.float16, (2, 4, 2, 20, 30, 32))
    sinks, bias = torch.randn(4, device=device), torch.randn(30, device=device)
    lengths = torch.tensor([30, 3], dtype=torch.int32, device=device)
    for method in (0, 3):
        for tensors in ((q, k, v), (q.transpose(1, 2).contiguous().transpose(1, 2), k, v)):
            options = True, 5, -1, 0.0, sinks, bias, None, None, lengths, None, None, True
            torch.library.opcheck(torch.ops.tessera_torch.attention.default, (*tensors, method, *options))
    packed = [tensor[0].transpose(0, 1).contiguous() for tensor in (q, k, v)]
    starts = torch.zeros(1, dtype=torch.int32, device=device)
    torch.library.opcheck(torch.ops.tessera_torch.attention_packed.default,
                          (*packed, starts, starts, 20, 30, 0, False, -1, -1, 0.2, *[None] * 7, False))


def test_fake_tensors_have_the_shapes_of_results():
    q, k, v = (torch.empty(2, 4, 20, 64, dtype=torch.bfloat16, device="meta") for _ in range(3))
    result, sums = attention(q, k, v[..., :32], return_lse=True)
    assert result.shape == (2, 4, 20, 32) and sums.shape == (2, 4, 20) and result.dtype == torch.bfloat16
    refused(["attention", "5", "4"], lambda: attention(q[None], k, v))


@CUDA_ONLY
@pytest.mark.parametrize("method, dtype", ALL)
def test_calls_are_captured_in_graphs(method, dtype):
    tensors = heads("cuda", dtype, (2, 4, 2, 200, 300, 64))
    sinks, lengths = torch.randn(4, device="cuda"), torch.tensor([300, 20], device="cuda")
    expected = attention(*tensors, is_causal=True, sinks=sinks, lengths=lengths, method=method)  # makes the executor
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        attention(*tensors, is_causal=True, sinks=sinks, lengths=lengths, method=method)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = attention(*tensors, is_causal=True, sinks=sinks, lengths=lengths, method=method)
    other = heads("cuda", dtype, (2, 4, 2, 200, 300, 64))
    for tensor, new in zip(tensors, other):
        tensor.copy_(new)
    graph.replay()
    expected_of_other = attention(*other, is_causal=True, sinks=sinks, lengths=lengths, method=method)
    tessera_torch.wait("cuda")
    assert torch.equal(found, expected_of_other) and not torch.equal(found, expected)


@CUDA_ONLY
def test_calls_run_on_the_current_stream():
    tensors = heads("cuda", torch.bfloat16, (2, 8, 8, 2048, 2048, 64))
    expected = attention(*tensors)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        late = torch.zeros_like(tensors[0])
        torch.cuda._sleep(200_000_000)  # about 0.1 s, in which the queries are still zeros
        late.copy_(tensors[0])
        found = attention(late, *tensors[1:])
        tessera_torch.wait("cuda")
    assert torch.equal(found, expected)


@CUDA_ONLY
def test_calls_do_not_wait():
    tensors = heads("cuda", torch.bfloat16, (1, 4, 4, 512, 512, 64))
    starts = torch.tensor([0, 100, 512], device="cuda")
    packed = [tensor[0].transpose(0, 1).contiguous() for tensor in tensors]
    attention(*tensors), attention_packed(*packed, starts, max_seqlen_q=412)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(2_000_000_000)
    done.record()
    attention(*tensors, is_causal=True, lengths=torch.full((1,), 300, device="cuda"))
    attention_packed(*packed, starts, max_seqlen_q=412)
    assert not done.query()


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there are not two GPUs")
def test_calls_run_on_the_device_of_tensors():
    tensors = heads("cuda:1", torch.bfloat16)
    assert torch.equal(attention(*tensors).cpu(), attention(*[tensor.to("cuda:0") for tensor in tensors]).cpu())
