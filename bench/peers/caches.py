# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Decoding over MiniCache and ShadowKV of this library beside PyTorch's attention over all keys and values, for run.py.

Steps of decoding follow each other: each writes the keys and values of a token of each sequence and attends to all
tokens so far. Implementations: this library (tessera) and scaled_dot_product_attention over a cache in bf16, which the
token is copied into, with FlashAttention-2 (flash2) and cuDNN (cudnn). `ms` is that of a layer.

MiniCache: two neighbouring layers whose directions are 0.2 radians apart, those of one token in 50 2.2; as a pair, or
as two layers by themselves (single), in 4 bits. ShadowKV: a layer whose keys have 144 directions and a little more,
and change slowly from token to token; each query looks for two chunks of its own, a little differently in every
step. It is given queries and keys before their rotation; peers are given them rotated, and need not rotate.

`cache_MiB` and `host_MiB` are what is kept of all layers, on the device and in pinned memory of the host; errors are
those of a step's results of the first and the last sequence, relative to attention in double to keys and values as
they were.
"""
import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from measuring import DEVICE, MEBIBYTE, SEED, tessera

ROOM = 128  # steps
SAMPLES = (5, 30)
PEERS = {"flash2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
CHANNELS = 128

# Name, sequences, tokens, query heads, key heads.
MERGED = [("16x4k", 16, 4096, 32, 32), ("16x4k_gqa4", 16, 4096, 32, 8)]
LONG = [("4x128k", 4, 131072, 32, 8)]
SMALL_MERGED, SMALL_LONG = [("small", 2, 200, 4, 4)], [("small", 2, 2600, 4, 2)]
CHUNK, TARGETS, DIRECTIONS, ROTARY_BASE = 8, 2, 144, 10000.0


class Tokens:
    """Keys and values, those to be attended to, of all tokens there will be: sequences x heads x tokens x channels."""

    def __init__(self, keys, values, queries, prompt):
        self.keys, self.values = keys, values
        self.queries = queries  # steps x sequences x heads x channels
        self.prompt = prompt

    def at(self, step):
        """Keys and values of a step's token, and its queries, each of one token."""
        token = slice(self.prompt + step, self.prompt + step + 1)
        return self.keys[:, :, token], self.values[:, :, token], self.queries[step][:, :, None]

    def error(self, found, step):
        """The relative L1 error of a step's results: sequences x heads x 1 x channels."""
        apart = length = 0.0
        group = self.queries.shape[2] // self.keys.shape[1]
        for sequence in sorted({0, self.keys.shape[0] - 1}):
            for head in range(self.keys.shape[1]):
                keys, values = (part[sequence, head, :self.prompt + step + 1].double()
                                for part in (self.keys, self.values))
                heads = slice(head * group, (head + 1) * group)
                scores = self.queries[step][sequence, heads].double() @ keys.T / math.sqrt(CHANNELS)
                expected = torch.softmax(scores, 1) @ values
                apart += float((found[sequence, heads, 0].double() - expected).abs().sum())
                length += float(expected.abs().sum())
        return apart / length


class Steps:
    """Calls of a function of the step's number, one after the other."""

    def __init__(self, decode):
        self.decode, self.done = decode, 0

    def __call__(self):
        if self.done == ROOM:
            raise RuntimeError(f"there are {ROOM} steps but another one is asked for")
        self.done += 1
        return self.decode(self.done - 1)


class DenseCache:
    """A layer's keys and values in bf16. Each token takes the place of the one before: for every length PyTorch plans
    its call of cuDNN anew, which takes longer than the call."""

    def __init__(self, tokens):
        self.tokens = tokens
        self.keys, self.values = (part[:, :, :tokens.prompt + 1].clone() for part in (tokens.keys, tokens.values))

    def bytes(self):
        return self.keys.nbytes + self.values.nbytes

    def decode(self, step):
        keys, values, queries = self.tokens.at(step)
        self.keys[:, :, -1:] = keys
        self.values[:, :, -1:] = values
        return F.scaled_dot_product_attention(queries, self.keys, self.values, enable_gqa=True)


def measure_dense(run, peer, title, layers):
    """PyTorch over the caches of these layers' tokens."""
    with sdpa_kernel(PEERS[peer]):
        caches = [DenseCache(tokens) for tokens in layers]
        steps = Steps(lambda step: [cache.decode(step) for cache in caches])
        found = steps()
        error = sum(tokens.error(result, 0) for tokens, result in zip(layers, found)) / len(layers)
        counters = {"relative_l1": error, "cache_MiB": sum(cache.bytes() for cache in caches) / MEBIBYTE}
        return rows_of_layer(run, f"{peer}/{title}", steps, counters, len(layers))


def rows_of_layer(run, title, steps, counters, layers):
    least, most = SAMPLES
    rows = run.time(title, steps, counters, samples=(least, most))
    for row in rows:
        for name in ("ms", "real_time", "cpu_time"):
            row[name] /= layers
    return rows


# --- MiniCache ---------------------------------------------------------------------------------------------------


def neighbouring_layers(sequences, tokens, query_heads, key_heads):
    """Keys and values of two layers that point nearly the same way."""
    torch.manual_seed(SEED)
    shape = sequences, key_heads, tokens + ROOM, CHANNELS
    turned = torch.where(torch.arange(tokens + ROOM, device=DEVICE) % 50 == 7, 2.2, 0.2)[:, None]
    first, second = [], []
    for _ in range(2):
        along, across = (torch.randn(shape, device=DEVICE) for _ in range(2))
        first.append(along.bfloat16())
        second.append((1.22 * (turned.cos() * along + turned.sin() * across)).bfloat16())
    queries = torch.randn(ROOM, sequences, query_heads, CHANNELS, device=DEVICE).bfloat16()
    return [Tokens(*layer, queries, tokens) for layer in (first, second)]


def measure_merged(run, title, layers, parts):
    module = tessera()
    sequences, heads, tokens, _ = layers[0].keys.shape
    prompt = layers[0].prompt
    cache = module.MiniCache(sequences, tokens, heads, CHANNELS, parts, device=DEVICE)
    cache.append([layer.keys[:, :, :prompt] for layer in layers], [layer.values[:, :, :prompt] for layer in layers])

    def decode(step):
        cache.begin_token()
        results = [cache.write_and_attend(number, *layer.at(step)) for number, layer in enumerate(layers)]
        cache.end_token()
        return results

    steps = Steps(decode)
    found = steps()
    module.wait(DEVICE)
    error = sum(tokens.error(result, 0) for tokens, result in zip(layers, found)) / len(layers)
    counters = {"relative_l1": error, "cache_MiB": cache.bytes()[0] / MEBIBYTE}
    rows = rows_of_layer(run, title, steps, counters, len(layers))
    module.wait(DEVICE)
    return rows


# --- ShadowKV ----------------------------------------------------------------------------------------------------


def rotated(heads, positions, back=False):
    """Rotary embedding of the last dimension's halves, by positions of the one before; or its inverse."""
    half = heads.shape[-1] // 2
    frequencies = ROTARY_BASE ** (-torch.arange(half, device=heads.device).double() / half)
    angles = positions[:, None].double() * (-frequencies if back else frequencies)
    cosines, sines = angles.cos().float(), angles.sin().float()
    a, b = heads[..., :half].float(), heads[..., half:].float()
    return torch.cat([a * cosines - b * sines, a * sines + b * cosines], -1)


def keys_of_few_directions(tokens, key_heads):
    """Keys before their rotation: heads x tokens x channels. Those of eight tokens are alike."""
    directions = torch.randn(DIRECTIONS, key_heads * CHANNELS, device=DEVICE) / math.sqrt(DIRECTIONS)
    chunks = torch.randn(-(-tokens // CHUNK), DIRECTIONS, device=DEVICE).repeat_interleave(CHUNK, 0)[:tokens]
    keys = (chunks + 0.3 * torch.randn(tokens, DIRECTIONS, device=DEVICE)) @ directions
    keys += 0.05 * torch.randn(keys.shape, device=DEVICE)
    return keys.view(tokens, key_heads, CHANNELS).transpose(0, 1)


def looking_for_chunks(keys, prompt, query_heads):
    """Queries of all steps for some chunks of a prompt: steps x heads x channels, for keys that were rotated."""
    group = query_heads // keys.shape[0]
    chosen = torch.randint(prompt // CHUNK - 64, (query_heads, TARGETS), device=DEVICE) + 16  # not the latest tokens
    chunks = keys[:, :prompt // CHUNK * CHUNK].float().unflatten(1, (-1, CHUNK)).mean(2)
    heads = torch.arange(query_heads, device=DEVICE) // group
    targets = F.normalize(chunks[heads[:, None], chosen], dim=-1).sum(1)
    queries = targets + 0.3 * math.sqrt(TARGETS / CHANNELS) * torch.randn(ROOM, *targets.shape, device=DEVICE)
    return queries * 20  # so that the chunks have most of the weight


class LongLayer:
    """A layer's tokens, rotated for attention, and as they were for ShadowKV."""

    def __init__(self, sequences, tokens, query_heads, key_heads):
        torch.manual_seed(SEED)
        positions = torch.arange(tokens + ROOM, device=DEVICE)
        self.keys, turned, self.queries, asked = [], [], [], []
        for _ in range(sequences):
            self.keys.append(keys_of_few_directions(tokens + ROOM, key_heads).bfloat16())
            turned.append(rotated(self.keys[-1], positions).bfloat16())
            asking = looking_for_chunks(turned[-1], tokens, query_heads).transpose(0, 1)
            self.queries.append(rotated(asking, positions[tokens:], back=True).bfloat16().transpose(0, 1))
            asked.append(rotated(self.queries[-1].transpose(0, 1), positions[tokens:]).bfloat16().transpose(0, 1))
        values = torch.randn(sequences, key_heads, tokens + ROOM, CHANNELS, device=DEVICE).bfloat16()
        self.tokens = Tokens(torch.stack(turned), values, torch.stack(asked, 1).contiguous(), tokens)
        self.queries = torch.stack(self.queries, 1).contiguous()
        self.new_keys = torch.stack([keys[:, tokens:] for keys in self.keys])
        self.sequences, self.key_heads, self.query_heads = sequences, key_heads, query_heads

    def drop_prompt(self):
        """ShadowKV has its own."""
        self.keys = None


def measure_offloaded(run, title, layer):
    module = tessera()
    tokens = layer.tokens
    cache = module.ShadowKV(layer.query_heads, layer.key_heads, CHANNELS,
                            [tokens.prompt + ROOM] * layer.sequences, rotary_base=ROTARY_BASE, device=DEVICE)
    for sequence, keys in enumerate(layer.keys):
        cache.prefill(sequence, keys[:, :tokens.prompt], tokens.values[sequence, :, :tokens.prompt])
    layer.drop_prompt()

    def decode(step):
        return cache.decode(layer.queries[step], layer.new_keys[:, :, step], tokens.values[:, :, tokens.prompt + step])

    steps = Steps(decode)
    for _ in range(3):  # the first one finds nothing in slots
        found = steps()
    module.wait(DEVICE)
    on_device, on_host = cache.bytes()
    counters = {"relative_l1": tokens.error(found[:, :, None], 2), "cache_MiB": on_device / MEBIBYTE,
                "host_MiB": on_host / MEBIBYTE}
    rows = rows_of_layer(run, title, steps, counters, 1)
    module.wait(DEVICE)
    return [{**row, "hits": cache.hit_rate()} for row in rows]


def measure_all(run):
    if not any(run.wants(name) for name in ["tessera", *PEERS]):
        return
    for name, *extents in SMALL_MERGED if run.is_small else MERGED:
        layers = neighbouring_layers(*extents)
        for kind, parts in ("pair", [2]), ("single", [1, 1]):
            title = f"tessera/decode/minicache_{kind}/d{CHANNELS}/{name}"
            run.attempt(title, lambda: measure_merged(run, title, layers, parts))
        for peer in PEERS:
            title = f"decode/bf16/d{CHANNELS}/{name}"
            run.attempt(f"{peer}/{title}", lambda: measure_dense(run, peer, title, layers))
        del layers
    for name, *extents in SMALL_LONG if run.is_small else LONG:
        layer = LongLayer(*extents)
        for peer in PEERS:
            title = f"decode/bf16/d{CHANNELS}/{name}"
            run.attempt(f"{peer}/{title}", lambda: measure_dense(run, peer, title, [layer.tokens]))
        title = f"tessera/decode/shadow_kv/d{CHANNELS}/{name}"
        run.attempt(title, lambda: measure_offloaded(run, title, layer))
        del layer
