# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""MiniCacheCache, QuantizedCache and ShadowKVCache in models of transformers: generation, perplexity, bytes, errors."""
import copy
import os
import pathlib
import sys
import warnings

import pytest
import torch

transformers = pytest.importorskip("transformers")

import tessera_torch  # noqa: E402
from tessera_torch.compressed_cache import compressed_attention  # noqa: E402
from tessera_torch.minicache_cache import MiniCacheCache  # noqa: E402
from tessera_torch.quantized_cache import QuantizedCache  # noqa: E402
from tessera_torch.shadow_kv_cache import ShadowKVCache  # noqa: E402
from tessera_torch.wait import wait  # noqa: E402

IMPLEMENTATIONS = ["tessera", "sdpa", "eager"]
PAD = 0

warnings.filterwarnings("ignore", message=".*past_key_values.*deprecated")


def config_of(**changed):
    return transformers.LlamaConfig(**{
        "vocab_size": 211, "hidden_size": 128, "intermediate_size": 192, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 2048, "pad_token_id": PAD,
        "eos_token_id": None, "bos_token_id": 1, "initializer_range": 0.1, **changed})


@pytest.fixture(scope="module")
def models():
    made = {}

    def of(device, dtype=torch.float32):  # bfloat16 is slow on many CPUs
        if (device, dtype) not in made:
            torch.manual_seed(11)
            made[device, dtype] = transformers.LlamaForCausalLM(config_of()).to(device=device, dtype=dtype).eval()
        made[device, dtype].set_attn_implementation("sdpa")
        return made[device, dtype]

    return of


def prompt(device, sequences=2, tokens=300, padding=()):
    ids = torch.randint(2, 211, (sequences, tokens), device=device)
    mask = torch.ones_like(ids)
    for sequence, count in enumerate(padding):
        ids[sequence, :count], mask[sequence, :count] = PAD, 0
    return {"input_ids": ids, "attention_mask": mask}


def generated(model, inputs, cache=None, tokens=20, **options):
    with torch.no_grad():
        made = model.generate(**inputs, max_new_tokens=tokens, do_sample=False, past_key_values=cache,
                              output_logits=True, return_dict_in_generate=True, **options)
    wait(inputs["input_ids"].device)
    return made.sequences, torch.stack(made.logits).float()


def relative(found, expected):
    return ((found - expected).norm() / expected.norm()).item()


def scored(model, inputs, cache, first):
    """The mean loss of the tokens after the first ones, which are read one by one, and their logits."""
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = []
    with torch.no_grad():
        for begin, end in [(0, first)] + [(i, i + 1) for i in range(first, ids.shape[1])]:
            made = model(ids[:, begin:end], attention_mask=mask[:, :end], position_ids=positions[:, begin:end],
                         past_key_values=cache)
            logits.append(made.logits)
    wait(ids.device)
    logits = torch.cat(logits, 1).float()[:, first - 1:-1]
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, first:].flatten()).item(), logits


CACHES = {
    "8 bits": (lambda config, room, **o: QuantizedCache(config, room, bits=8, **o), 0.03),
    "4 bits": (lambda config, room, **o: QuantizedCache(config, room, bits=4, **o), 0.25),
    "3 bits": (lambda config, room, **o: QuantizedCache(config, room, bits=3, **o), 0.5),
    "2 bits": (lambda config, room, **o: QuantizedCache(config, room, bits=2, **o), 0.9),
    "K4V2": (lambda config, room, **o: QuantizedCache(config, room, bits=4, value_bits=2, **o), 0.9),
    "MiniCache, first layers single": (lambda config, room, **o: MiniCacheCache(config, room, first_merged=4, **o),
                                       0.25),
}


@pytest.mark.parametrize("name, implementation", [
    *((name, way) for name in CACHES for way in ["tessera", "sdpa"]), ("4 bits", "eager")])
def test_logits_are_near_those_of_the_exact_cache(models, device, name, implementation):
    model = models(device)
    torch.manual_seed(3)
    inputs = prompt(device, tokens=420, padding=(0, 37))
    _, expected = scored(model, inputs, transformers.DynamicCache(config=model.config), 410)
    model.set_attn_implementation(implementation)
    make, limit = CACHES[name]
    cache = make(model.config, 420, window=0)
    _, found = scored(model, inputs, cache, 410)
    assert 0 < relative(found, expected) < limit
    ways = {"exact": 4, "attended" if implementation == "tessera" else "restored": 40}
    assert dict(cache.calls) == ways
    held = cache.bytes()
    real = 420 * 2 - (37 if implementation == "tessera" else 0)  # this implementation stores no padding
    assert held.plain == real * 4 * 2 * 2 * 32 * 2
    assert held.used < held.plain / 1.5
    assert cache.get_seq_length() == 420 and cache.get_max_length() == 420


def test_fewer_bits_are_fewer_bytes_and_larger_errors(models, device):
    model = models(device)
    torch.manual_seed(4)
    inputs = prompt(device, tokens=330)
    _, expected = scored(model, inputs, transformers.DynamicCache(config=model.config), 325)
    found = []
    for bits in [8, 4, 3, 2]:
        cache = QuantizedCache(model.config, 400, bits=bits, window=0)
        _, logits = scored(model, inputs, cache, 325)
        found.append((relative(logits, expected), cache.bytes().used))
    errors, used = zip(*found)
    assert list(errors) == sorted(errors) and list(used) == sorted(used, reverse=True)


@pytest.mark.parametrize("implementation, dtype", [
    ("tessera", torch.float32), ("sdpa", torch.float32), ("eager", torch.float32), ("tessera", torch.float16),
    ("tessera", torch.bfloat16), ("sdpa", torch.bfloat16)])
def test_generation_of_a_batch(models, device, implementation, dtype):
    """Within the window of exact tokens generation is that of the exact cache, up to rounding."""
    model = models(device, dtype)
    torch.manual_seed(5)
    inputs = prompt(device, sequences=3, tokens=90, padding=(0, 25, 89))
    sequences, expected = generated(model, inputs)
    model.set_attn_implementation(implementation)
    found, logits = generated(model, inputs, QuantizedCache(model.config, 128, bits=8))
    same = (found == sequences).float().mean().item()
    assert relative(logits[0], expected[0]) < 0.02 and relative(logits[1], expected[1]) < 0.05
    assert same > 0.9, same


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_prompts_and_passes_of_any_length(models, device, implementation):
    model = models(device)
    torch.manual_seed(6)
    for lengths in [(1, 1), (7, 1, 63), (64, 64, 64), (65, 1, 64, 65), (200, 3, 130, 1)]:
        ids = prompt(device, tokens=sum(lengths))["input_ids"]
        logits = []
        for kind in ["exact", "8 bits"]:
            model.set_attn_implementation("sdpa" if kind == "exact" else implementation)
            cache = (transformers.DynamicCache(config=model.config) if kind == "exact"
                     else QuantizedCache(model.config, 512, bits=8))
            ends = torch.tensor(lengths).cumsum(0).tolist()
            with torch.no_grad():
                logits.append(torch.cat([model(ids[:, begin:end], past_key_values=cache).logits
                                         for begin, end in zip([0] + ends, ends)], 1).float())
            wait(device)
        assert relative(logits[1], logits[0]) < 0.03, lengths


def test_passes_of_many_tokens_after_a_padded_prompt(models, device):
    model = models(device)
    torch.manual_seed(7)
    inputs = prompt(device, tokens=290, padding=(0, 70))
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    logits = []
    for implementation in ["sdpa", "tessera"]:
        model.set_attn_implementation(implementation)
        cache = (transformers.DynamicCache(config=model.config) if implementation == "sdpa"
                 else QuantizedCache(model.config, 512, bits=8))
        with torch.no_grad():
            for begin, end in [(0, 150), (150, 250), (250, 290)]:
                made = model(ids[:, begin:end], attention_mask=mask[:, :end], position_ids=positions[:, begin:end],
                             past_key_values=cache)
                logits.append(made.logits.float())
        wait(device)
    for found, expected in zip(logits[4:], logits[1:3]):
        assert relative(found, expected) < 0.03
    assert cache.calls["restored"] == 4 and cache.calls["attended"] == 4


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_pairs_of_layers(models, device, implementation):
    """Both ways of reading pages give the same results, and pairs take fewer bytes."""
    model = models(device)
    model.set_attn_implementation(implementation)
    torch.manual_seed(8)
    inputs = prompt(device, tokens=400)
    logits = []
    for cache in [MiniCacheCache(model.config, 512, window=0),
                  MiniCacheCache(model.config, 512, first_merged=4, window=0)]:
        for begin, end in [(0, 200), (200, 201), (201, 260), (260, 400)]:
            with torch.no_grad():
                logits.append(model(inputs["input_ids"][:, begin:end], past_key_values=cache).logits.float())
        logits.append(cache.bytes().used)
    wait(device)
    assert logits[4] < logits[9] < 2 * logits[4]
    assert torch.equal(logits[0], logits[5])  # a prompt attends to its exact keys
    made = results.setdefault(device, logits)
    for found, first in zip(logits, made):  # however they are read, the pages are the same, but for keys that differ
        if isinstance(found, int):          # in rounding, of which others may be kept as they are
            assert abs(found - first) <= 0.01 * first
        else:
            assert relative(found, first) < 0.02


results = {}


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
def test_beam_search(models, device, implementation):
    model = models(device, torch.float32)
    torch.manual_seed(9)
    inputs = prompt(device, tokens=140, padding=(0, 11))
    options = {"num_beams": 3, "tokens": 24}
    sequences, _ = generated(model, inputs, **options)
    model.set_attn_implementation(implementation)
    cache = QuantizedCache(model.config, 256, bits=8, window=64, beams=True)
    found, _ = generated(model, inputs, cache, **options)
    assert (found == sequences).float().mean().item() > 0.9
    with pytest.raises(ValueError, match="beams=True"):
        generated(model, inputs, QuantizedCache(model.config, 256), **options)


def test_reordering_continues_the_right_sequences(models, device):
    model = models(device)
    model.set_attn_implementation("tessera")
    torch.manual_seed(10)
    ids = prompt(device, sequences=3, tokens=330)["input_ids"]
    more = prompt(device, sequences=3, tokens=100)["input_ids"]
    origins = torch.tensor([2, 0, 2], device=device)
    logits = []
    for reorders in [True, False]:
        cache = QuantizedCache(model.config, 512, bits=8, window=64, beams=True)
        with torch.no_grad():
            model(ids if reorders else ids[origins], past_key_values=cache)
            if reorders:
                cache.reorder_cache(origins)
                cache.reorder_cache(torch.tensor([0, 1, 2], device=device))
            for token in range(100):
                made = model(more[:, token:token + 1], past_key_values=cache)
        logits.append(made.logits.float())
        wait(device)
    assert relative(*logits) < 1e-3


@pytest.mark.parametrize("implementation", ["tessera", "sdpa"])
def test_crop_and_reset(models, device, implementation):
    model = models(device)
    model.set_attn_implementation(implementation)
    torch.manual_seed(12)
    ids = prompt(device, tokens=260)["input_ids"]
    cache = QuantizedCache(model.config, 512, bits=4)

    def last():
        with torch.no_grad():
            model(ids[:, :-1], past_key_values=cache)
            made = model(ids[:, -1:], past_key_values=cache).logits.float()
        wait(device)
        return made

    expected = last()
    cache.reset()
    assert cache.get_seq_length() == 0 and torch.equal(last(), expected)
    with torch.no_grad():
        for _ in range(9):
            model(ids[:, :4], past_key_values=cache)
        cache.crop(-37)
        assert cache.get_seq_length() == 259
        assert relative(model(ids[:, -1:], past_key_values=cache).logits.float(), expected) < 0.02
        cache.crop(0)
        with pytest.raises(RuntimeError, match="132"):
            cache.crop(-150)
        with pytest.raises(ValueError, match="7"):
            cache.crop(7)
    wait(device)


def test_assisted_generation(models, device):
    model = models(device, torch.float32)
    torch.manual_seed(13)
    inputs = prompt(device, sequences=1, tokens=100)
    expected = model.generate(**inputs, max_new_tokens=16, do_sample=False)
    model.set_attn_implementation("tessera")
    cache = QuantizedCache(model.config, 256, bits=8)
    found = model.generate(**inputs, max_new_tokens=16, do_sample=False, past_key_values=cache,
                           prompt_lookup_num_tokens=4)
    wait(device)
    assert (found == expected).float().mean().item() > 0.9


def test_what_compressed_caches_refuse(models, device):
    model = models(device)
    model.set_attn_implementation("tessera")
    inputs = prompt(device, tokens=40, padding=(0, 0))

    def refused(error, words, call):
        with pytest.raises(error) as found:
            call()
        assert all(word in str(found.value) for word in words), found.value

    config = model.config
    refused(ValueError, ["5 bits", "2, 3, 4 or 8"], lambda: QuantizedCache(config, 64, bits=5))
    refused(ValueError, ["values", "6"], lambda: QuantizedCache(config, 64, value_bits=6))
    refused(ValueError, ["window", "100", "64"], lambda: QuantizedCache(config, 64, window=100))
    refused(ValueError, ["MiniCacheCache", "1", "3"], lambda: MiniCacheCache(config, 64, first_merged=1))
    refused(ValueError, ["sliding"], lambda: QuantizedCache(transformers.Gemma2Config(), 64))
    refused(ValueError, ["sliding window", "4096"],
            lambda: QuantizedCache(transformers.MistralConfig(sliding_window=4096), 64))

    on_the_right = {**inputs, "attention_mask": inputs["attention_mask"].clone()}
    on_the_right["attention_mask"][1, -3:] = 0
    refused(ValueError, ["sequence 1", "37", "40", "left"],
            lambda: model(**on_the_right, past_key_values=QuantizedCache(config, 64)))
    cache = QuantizedCache(config, 64)
    refused(RuntimeError, ["65", "64"], lambda: generated(model, inputs, cache, tokens=26))
    cache.reset()
    model(**inputs, past_key_values=cache)
    refused(ValueError, ["1", "2"], lambda: model(inputs["input_ids"][:1], past_key_values=cache))
    refused(NotImplementedError, ["3"], lambda: cache.batch_repeat_interleave(3))
    refused(NotImplementedError, ["1"], lambda: cache.batch_select_indices(torch.tensor([0])))
    padded = prompt(device, tokens=40, padding=(0, 9))
    cache = QuantizedCache(config, 64)
    model(**padded, past_key_values=cache)
    model.set_attn_implementation("sdpa")
    refused(ValueError, ["tessera", "sdpa"], lambda: model(padded["input_ids"][:, :1], past_key_values=cache))
    wait(device)


@pytest.fixture
def registry():
    """transformers' attention implementations, whose "tessera" comes back behind the test."""
    functions = transformers.AttentionInterface()
    before = functions["tessera"]
    yield functions
    functions.register("tessera", before)


@pytest.mark.parametrize("make", [QuantizedCache, MiniCacheCache])
def test_registered_attention_attends_to_pages(models, device, registry, make):
    """Whichever of the package's functions has the name "tessera", and never another one in silence."""
    model = models(device)
    model.set_attn_implementation("tessera")
    torch.manual_seed(16)
    inputs = prompt(device, tokens=200, padding=(0, 30))
    found = []
    for function in [compressed_attention, None]:
        if function is None:
            tessera_torch.register_attention()
        else:
            registry.register("tessera", function)
        cache = make(model.config, 256, window=0)
        found.append(scored(model, inputs, cache, 195)[1])
        assert dict(cache.calls) == {"exact": 4, "attended": 20}
    assert torch.equal(*found)
    registry.register("tessera", registry["sdpa"])
    cache = make(model.config, 256)
    with pytest.raises(ValueError, match="the keys of layer 0 .* sdpa_attention_forward .* must be this package's"):
        model(**inputs, past_key_values=cache)
    tessera_torch.register_attention()
    cache.reset()
    with torch.no_grad():
        model(**inputs, past_key_values=cache)
    assert cache.calls["exact"] == 4


def test_copies_of_a_model_keep_their_own_caches(models, device):
    model = models(device)
    torch.manual_seed(14)
    inputs = prompt(device, tokens=100)
    expected = generated(model, inputs)[1]
    ShadowKVCache(model, 256)
    assert torch.equal(generated(model, inputs)[1], expected)  # without a cache all is as before
    twin = copy.deepcopy(model)
    cache = ShadowKVCache(twin, 256)
    assert relative(generated(twin, inputs, cache)[1], expected) < 0.05
    assert twin.model.layers[0].self_attn.forward.__self__ is twin.model.layers[0].self_attn


@pytest.mark.parametrize("implementation, dtype", [("sdpa", torch.float32), ("eager", torch.float32),
                                                   ("tessera", torch.float32), ("sdpa", torch.bfloat16)])
def test_shadow_kv_over_all_chunks(models, device, dtype, implementation):
    model = models(device, dtype)
    torch.manual_seed(15)
    inputs = prompt(device, tokens=700, padding=(0, 61))
    _, expected = scored(model, inputs, transformers.DynamicCache(config=model.config), 680)
    model.set_attn_implementation(implementation)
    cache = ShadowKVCache(model, 1024, chunks=128)
    _, found = scored(model, inputs, cache, 680)
    assert relative(found, expected) < (0.03 if dtype == torch.float32 else 0.08)
    assert cache.get_seq_length() == 700 and cache.hit_rate() > 0
    few = ShadowKVCache(model, 1024, chunks=4)
    _, approximate = scored(model, inputs, few, 680)
    assert relative(found, expected) < relative(approximate, expected) < 0.7
    assert few.bytes().device < cache.bytes().device and few.bytes().plain == 4 * 2 * 1024 * 2 * 32 * 4


def test_shadow_kv_generates(models, device):
    model = models(device, torch.float32)
    torch.manual_seed(16)
    inputs = prompt(device, tokens=120, padding=(0, 33))
    sequences, expected = generated(model, inputs)
    cache = ShadowKVCache(model, 256)
    found, logits = generated(model, inputs, cache)
    assert (found == sequences).float().mean().item() > 0.9 and relative(logits[:2], expected[:2]) < 0.03
    cache.reset()
    assert torch.equal(generated(model, inputs, cache)[0], found)
    with torch.no_grad():  # a later pass of several tokens
        ids = prompt(device, tokens=5)["input_ids"]
        exact = transformers.DynamicCache(config=model.config)
        cache = ShadowKVCache(model, 256)
        for each in [exact, cache]:
            model(inputs["input_ids"], past_key_values=each)
        assert relative(model(ids, past_key_values=cache).logits, model(ids, past_key_values=exact).logits) < 0.03
    wait(device)


def test_what_shadow_kv_refuses(models, device):
    model = models(device)
    inputs = prompt(device, tokens=40)

    def refused(error, words, call):
        with pytest.raises(error) as found:
            call()
        assert all(word in str(found.value) for word in words), found.value

    other = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_embd=32, n_head=2, vocab_size=50))
    refused(ValueError, ["GPT2Attention", "LlamaAttention"], lambda: ShadowKVCache(other, 64))
    scaled = transformers.LlamaForCausalLM(config_of(num_hidden_layers=1, rope_parameters={
        "rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}))
    refused(ValueError, ["linear", "default"], lambda: ShadowKVCache(scaled, 64))
    cache = ShadowKVCache(model, 64)
    model(**inputs, past_key_values=cache)
    refused(ValueError, ["80", "64"], lambda: model(**inputs, past_key_values=cache))
    refused(NotImplementedError, ["3", "crop"], lambda: cache.crop(-3))
    refused(NotImplementedError, ["beam"], lambda: cache.reorder_cache(torch.tensor([0, 0])))
    on_the_right = {**inputs, "attention_mask": inputs["attention_mask"].clone()}
    on_the_right["attention_mask"][0, -1] = 0
    refused(ValueError, ["sequence 0", "39", "40"],
            lambda: model(**on_the_right, past_key_values=ShadowKVCache(model, 64)))
    unpatched = transformers.LlamaForCausalLM(config_of()).to(device)
    refused(ValueError, ["before", "rotation"],
            lambda: unpatched(**inputs, past_key_values=ShadowKVCache(model, 64)))
    wait(device)


SMOLLM2 = pathlib.Path(os.environ.get("TESSERA_REAL_MODEL",
                                      pathlib.Path(__file__).resolve().parents[3] / "build" / "real_model"))


@pytest.mark.slow
@pytest.mark.skipif(not (SMOLLM2 / "smollm2_135m.safetensors").exists(),
                    reason="examples/real_model/make_model.py makes the model")
def test_smollm2():
    """Perplexities of a real model over each cache, its generation, and its compressed weights."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "benchmarks"))
    import models as measure_models
    model = measure_models.smollm2(SMOLLM2, True)
    from tessera_torch.compressed_module import compression_report, decompress_module
    assert compression_report(model).ratio < 0.7
    decompress_module(model)
    model.float()
    room = measure_models.PROMPT + measure_models.PASS * measure_models.PASSES
    ids = measure_models.text_tokens(SMOLLM2, room + 1)
    exact, _ = measure_models.perplexity_of(model, ids, transformers.DynamicCache(config=model.config))
    assert exact < 25
    for implementation in ["tessera", "sdpa"]:
        model.set_attn_implementation(implementation)
        for bits, limit in [(8, 1.005), (4, 1.05)]:
            cache = QuantizedCache(model.config, room, bits=bits, window=0)
            found, _ = measure_models.perplexity_of(model, ids, cache)
            assert exact / limit < found < exact * limit
            assert cache.bytes().ratio > {8: 1.8, 4: 3.2}[bits]
    found, _ = measure_models.perplexity_of(model, ids, ShadowKVCache(model, room, chunks=192))
    assert found < exact * 1.1
    inputs = {"input_ids": ids[:, :200].repeat(2, 1), "attention_mask": torch.ones(2, 200, dtype=torch.int64)}
    inputs["attention_mask"][1, :13] = 0
    model.set_attn_implementation("sdpa")
    expected, _ = generated(model, inputs, tokens=16)
    model.set_attn_implementation("tessera")
    found, _ = generated(model, inputs, QuantizedCache(model.config, 256, bits=8), tokens=16)
    assert (found == expected).float().mean() > 0.95
