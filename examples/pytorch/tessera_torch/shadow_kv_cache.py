# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ShadowKVCache: ShadowKV as a cache of transformers, for models of Llama's architecture. It imports transformers.

ShadowKV keeps keys before their rotation, which a cache of transformers does not get. So the cache is made with the
model, and the model's attention modules pass their queries and keys to it directly, whatever the attention
implementation is. With other caches, or none, they compute what they did before.
"""
import types
from dataclasses import dataclass

import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from .compressed_cache import CacheOfAll, LayerOfAll, checked_layers, padding_counts
from .shadow_kv import ShadowKV

_ATTENTIONS = "LlamaAttention", "MistralAttention", "Qwen2Attention"


@dataclass(frozen=True)
class ShadowKVBytes:
    """Bytes that all layers' caches take on the device and on the host, and those that as many tokens take in 16 bits
    an element. They are the same however many tokens there are."""
    device: int
    host: int
    plain: int


def _rotary_base(config):
    rotary = getattr(config, "rope_parameters", None)
    if rotary is None:  # transformers before 5
        rotary = {"rope_type": "default", **(getattr(config, "rope_scaling", None) or {}),
                  "rope_theta": config.rope_theta}
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    part = rotary.get("partial_rotary_factor", getattr(config, "partial_rotary_factor", None))
    if kind != "default" or part not in (None, 1, 1.0):
        raise ValueError(f"ShadowKVCache: the model's rotary embedding is of type {kind} for a part of {part or 1} of "
                         "the channels but must be of type default for all of them")
    return float(rotary["rope_theta"])


def _attentions(model, layers):
    found = [module for module in model.modules() if type(module).__name__ in _ATTENTIONS]
    if len(found) != layers or sorted(module.layer_idx for module in found) != list(range(layers)):
        kinds = sorted({type(module).__name__ for module in model.modules() if hasattr(module, "layer_idx")})
        raise ValueError(f"ShadowKVCache: the model has {len(found)} attention modules of the types "
                         f"{', '.join(_ATTENTIONS)} for {layers} layers; its modules with a number of a layer are of "
                         f"the types {', '.join(kinds) or 'none'}")
    return found


def _rotated(heads, cos, sin):
    first, second = heads.chunk(2, -1)
    return heads * cos[:, None] + torch.cat((-second, first), -1) * sin[:, None]


def _forward(self, hidden_states, position_embeddings=None, attention_mask=None, **options):
    """The forward pass of an attention module whose model has a ShadowKVCache."""
    cache = options.get("cache", options.get("past_key_values"))
    if not isinstance(cache, ShadowKVCache):
        return type(self).forward(self, hidden_states, position_embeddings=position_embeddings,
                                  attention_mask=attention_mask, **options)
    shape = hidden_states.shape[:-1]
    heads = [project(hidden_states).view(*shape, -1, self.head_dim).transpose(1, 2)
             for project in (self.q_proj, self.k_proj, self.v_proj)]
    result = cache._attend(self, *heads, position_embeddings, attention_mask)
    return self.o_proj(result.reshape(*shape, -1).contiguous()), None


class _Layer(LayerOfAll):
    """A layer of a ShadowKVCache."""

    def lazy_initialization(self, key_states, value_states=None):
        """Nothing: the first pass makes the caches."""

    def update(self, key_states, value_states, *args, **kwargs):
        raise ValueError("ShadowKVCache: a model's attention gave keys after their rotation, but those before it are "
                         "needed: make the cache with the model itself, which must be of Llama's architecture")


class ShadowKVCache(CacheOfAll):
    """Keys in 160 directions on the device, values on the host; a step attends to `chunks` chunks of 8 tokens of each
    head besides the latest tokens: model.generate(past_key_values=...).

        cache = tessera_torch.ShadowKVCache(model, max_cache_len=32768)
        model.generate(**inputs, past_key_values=cache)

    model: a LlamaForCausalLM, or one of Mistral or Qwen2 without sliding windows, whose rotary embedding is of the type
    default. Making the cache gives its attention modules a forward method that knows such caches. max_cache_len: tokens
    that each sequence has room for. A prompt attends to its own exact keys and values; later passes go token by token.

    Supported: batches, padding on the left of the prompt, which is not stored. Refused, with a ValueError or
    NotImplementedError: other padding, crop(), reordering for beam search, batch_repeat_interleave() and
    batch_select_indices(). Positions must follow each other from the first real token on, as generate() makes them. The
    cache stays on the stream that was current at its first pass."""

    def __init__(self, model, max_cache_len, chunks=256):
        config = model.config.get_text_config(decoder=True)
        count = checked_layers("ShadowKVCache", config)
        attentions = _attentions(model, count)
        self._base = _rotary_base(config)
        self.room, self._chunks, self.seen = max_cache_len, chunks, 0
        self._caches, self._counts = None, None
        for module in attentions:
            if module.scaling != module.head_dim ** -0.5:
                raise ValueError(f"ShadowKVCache: the scale of scores is {module.scaling} but must be "
                                 f"{module.head_dim ** -0.5}")
        for module in attentions:
            module.forward = types.MethodType(_forward, module)
        super().__init__(layers=[_Layer(self) for _ in range(count)])

    @property
    def is_initialized(self):
        return self._caches is not None

    @property
    def batch_size(self):
        return -1 if self._caches is None else self._shape[0]

    def _prepare(self, query, keys):
        shape = keys.shape[0], query.shape[1], keys.shape[1], keys.shape[3], keys.device
        if self._caches is None:
            self._shape = shape
            self._caches = [ShadowKV(*shape[1:4], [self.room] * shape[0], self._chunks, self._base, shape[4])
                            for _ in self.layers]
        if shape != self._shape:
            raise ValueError(f"ShadowKVCache: the sequences, query heads, key heads, channels and device are {shape} "
                             f"but the cache was made for {self._shape}")
        if self.seen + keys.shape[2] > self.room:
            raise ValueError(f"ShadowKVCache: sequences would have {self.seen + keys.shape[2]} tokens but have room "
                             f"for {self.room}")

    def _attend(self, module, query, keys, values, position_embeddings, mask):
        """Attention of a pass in a layer, batch x tokens x heads x channels; queries and keys before their rotation."""
        layer, tokens = module.layer_idx, keys.shape[2]
        if layer == 0:
            self._prepare(query, keys)
        if mask is not None and mask.is_floating_point():
            mask = mask >= 0  # the mask of the attention implementation "eager", which is added to scores
        if self.seen == 0:
            if layer == 0:
                self._counts = padding_counts("ShadowKVCache", mask, tokens)
            rotated = [_rotated(heads, *position_embeddings) for heads in (query, keys)]
            result, _ = sdpa_attention_forward(module, *rotated, values, mask, scaling=module.scaling)
            self._prefill(layer, keys, values)
        else:
            if layer == 0 and mask is not None and tokens > 1 and not bool(mask[:, 0, -1, -tokens:].all()):
                raise ValueError(f"ShadowKVCache: the attention mask leaves out some of the {tokens} tokens of a pass "
                                 "after the prompt, but only prompts may have padding")
            result = self._decode(layer, query, keys, values)
        if layer == len(self.layers) - 1:
            self.seen += tokens
        return result

    def _prefill(self, layer, keys, values):
        tokens = keys.shape[2]
        for sequence in range(keys.shape[0]):
            first = 0 if self._counts is None else tokens - self._counts[sequence]
            self._caches[layer].prefill(sequence, *(heads[sequence, :, first:].detach().to(torch.bfloat16)
                                                    for heads in (keys, values)))

    def _decode(self, layer, *heads):
        made = []
        for token in range(heads[0].shape[2]):
            step = [each[:, :, token].detach().to(torch.bfloat16) for each in heads]
            made.append(self._caches[layer].decode(*step))
        return torch.stack(made, 1).to(heads[0].dtype)

    def bytes(self):
        """The ShadowKVBytes of all layers and sequences."""
        if self._caches is None:
            return ShadowKVBytes(0, 0, 0)
        device, host = (sum(each) for each in zip(*(cache.bytes() for cache in self._caches)))
        sequences, _, heads, channels, _ = self._shape
        return ShadowKVBytes(device, host, len(self.layers) * sequences * self.room * heads * channels * 4)

    def hit_rate(self):
        """The part of the selected chunks that were on the device already, as the mean of layers. Waits."""
        return 0.0 if self._caches is None else sum(each.hit_rate() for each in self._caches) / len(self._caches)

    def reset(self):
        """Forgets all tokens. The same batch size follows."""
        self.seen, self._counts = 0, None

    def crop(self, tokens_to_remove):
        """Refused, except for 0 tokens."""
        if tokens_to_remove:
            raise NotImplementedError(f"ShadowKVCache: the cache cannot be cropped by {tokens_to_remove} tokens, since "
                                      "it has archived them; assisted decoding needs another cache")

    def reorder_cache(self, beam_idx):
        raise NotImplementedError(f"ShadowKVCache: the {len(beam_idx)} sequences cannot be reordered for beam search; "
                                  "use QuantizedCache with beams=True")
