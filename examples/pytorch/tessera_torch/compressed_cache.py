# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What MiniCacheCache and QuantizedCache have in common: a cache of transformers whose keys and values are compressed.

    model.set_attn_implementation("tessera")     # attends over the compressed cache, and restores nothing

Two ways lead to a step's result, and cache.calls counts how often each was taken:

* With the attention implementation "tessera", steps of up to 64 tokens attend over the pages of codes directly.
* With any other one ("eager", "sdpa", ...) the keys and values of one layer at a time are restored for it.

Either way a prompt attends to its own exact keys and values. This module imports transformers.
"""
import collections
import weakref
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from ._library import on, ops, refuse_backward
from .scaled_dot_product_attention import attention_to_pages

IMPLEMENTATION = "tessera"
_MOST_ATTENDED = 64  # tokens of a step that has room in the newest tokens' memory

refuse_backward("layered_cache_attend", "attention over a compressed cache")


@dataclass(frozen=True)
class CacheBytes:
    """Bytes of a cache: those in use, those of the same tokens in 16 bits an element, and all that it has reserved."""
    used: int
    plain: int
    reserved: int

    @property
    def ratio(self):
        """Plain bytes over used ones; 0 if none are used."""
        return self.plain / self.used if self.used else 0.0


def checked_layers(function, config):
    """The number of layers of a model whose layers all attend to all tokens. Raises ValueError for another model."""
    config = config.get_text_config(decoder=True)
    layers = config.num_hidden_layers
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * layers
    if len(kinds) != layers or any(kind != "full_attention" for kind in kinds):
        raise ValueError(f"{function}: the model has layers of the types {sorted(set(kinds))} but all must be "
                         "full_attention")
    window = getattr(config, "sliding_window", None)
    if window is not None and getattr(config, "use_sliding_window", True) and not hasattr(config, "layer_types"):
        raise ValueError(f"{function}: the model has a sliding window of {window} tokens but must have none")
    if getattr(config, "is_encoder_decoder", False):
        raise ValueError(f"{function}: the model is an encoder with a decoder but must be a decoder alone")
    return layers


def padding_counts(function, mask, tokens):
    """The real tokens of each sequence of a prompt by its mask, sequences x 1 x tokens x tokens; None: as many as there
    are. Raises ValueError for any padding but on the left, and for masks that are not of bools. Waits."""
    if mask is None:
        return None
    if mask.dtype != torch.bool or mask.dim() != 4 or mask.shape[-1] < tokens:
        raise ValueError(f"{function}: the attention mask is {mask.dtype} of shape {tuple(mask.shape)} but must be "
                         f"{torch.bool} of sequences x 1 x tokens x {tokens}")
    last = mask[:, 0, -1, :tokens]
    counts = last.sum(-1)
    on_the_left = torch.arange(tokens, device=mask.device) >= tokens - counts[:, None]
    if not torch.equal(last, on_the_left):
        wrong = int((last != on_the_left).any(-1).nonzero()[0])
        raise ValueError(f"{function}: sequence {wrong} has {int(counts[wrong])} tokens of {tokens}, and padding among "
                         "or behind them, but only padding on the left is supported")
    counts = counts.tolist()
    return None if all(count == tokens for count in counts) else counts


def to_the_front(heads, counts):
    """Moves the last counts[i] tokens of each sequence, sequences x heads x tokens x channels, to the front."""
    if counts is None:
        return heads
    tokens = heads.shape[2]
    return torch.stack([each.roll(count - tokens, 1) for each, count in zip(heads, counts)])


class _Pages:
    """The keys and values of all layers, and the pass that is under way."""

    def __init__(self, name, config, room, window, parts, reorders):
        self.name, self.config, self.room, self.window = name, config, room, window
        self.parts, self.reorders = parts, reorders
        self.layers = sum(part[0] for part in parts)
        self.handle = self.free = None
        self.seen = 0         # tokens before the pass, those of padding included
        self.lengths = None   # tokens of each sequence in the cache; None: `seen` of each
        self.counts = None    # of the pass, where they differ
        self.unattended = None  # the layer whose keys went to the attention implementation, until it attends to them
        self.calls = collections.Counter()

    @property
    def attends_directly(self):
        return getattr(self.config, "_attn_implementation", None) == IMPLEMENTATION

    def prepare(self, keys):
        if self.handle is None:
            self.sequences, self.heads, _, self.channels = keys.shape
            self.device = keys.device
            layers, key_bits, value_bits = (list(each) for each in zip(*self.parts))
            self.handle = ops.layered_cache_make(on(self.device), self.sequences, self.room, self.heads, self.channels,
                                                 self.window, layers, key_bits, value_bits, self.reorders)
            self.free = weakref.finalize(self, ops.layered_cache_free, self.handle)
        expected = self.sequences, self.heads, self.channels
        found = keys.shape[0], keys.shape[1], keys.shape[3]
        if found != expected or keys.device != self.device:
            raise ValueError(f"{self.name}: the keys have {found} sequences, heads and channels on {keys.device} but "
                             f"the cache was made for {expected} on {self.device}; make a cache for each batch")

    def update(self, layer, keys, values):
        self.prepare(keys)
        if self.attends_directly:
            self.check_attended()
            self.unattended = layer
            keys._tessera_pass = self, layer  # for attend(), which gets this tensor
            return keys, values
        if self.lengths is not None:
            raise ValueError(f"{self.name}: the prompt was read with the attention implementation {IMPLEMENTATION}, "
                             f"without its padding, but a step is taken with {self.config._attn_implementation}")
        self.begin(layer, keys.shape[2], None)
        restored = keys, values
        if self.seen > 0:
            restored = self.restored(layer, keys, values, self.seen)
        self.calls["restored" if self.seen > 0 else "exact"] += 1
        self.write(layer, keys, values)
        self.finish(layer, keys)
        return restored

    def check_attended(self):
        if self.unattended is not None:
            raise ValueError(f"{self.name}: the keys of layer {self.unattended} went to the attention implementation "
                             f"{IMPLEMENTATION}, which is {AttentionInterface().get(IMPLEMENTATION)} but must be this "
                             "package's")

    def begin(self, layer, tokens, counts):
        if layer == 0:
            ops.layered_cache_begin(self.handle, tokens, counts or [])
            self.counts = counts

    def write(self, layer, keys, values):
        keys, values = (to_the_front(each.detach().to(torch.bfloat16), self.counts) for each in (keys, values))
        ops.layered_cache_write(self.handle, layer, keys, values)

    def finish(self, layer, keys):
        if layer != self.layers - 1:
            return
        ops.layered_cache_end(self.handle)
        if self.seen == 0:
            self.lengths = self.counts
        elif self.lengths is not None:
            self.lengths = [length + keys.shape[2] for length in self.lengths]
        self.seen += keys.shape[2]

    def restored(self, layer, keys, values, before):
        """Keys and values of the first `before` tokens, from the cache, and those of the pass behind them."""
        shape = self.sequences, self.heads, before + keys.shape[2], self.channels
        make = torch.empty if self.lengths is None else torch.zeros  # what is behind a sequence is masked, but is read
        made = [make(shape, dtype=torch.bfloat16, device=self.device) for _ in range(2)]
        ops.layered_cache_restore(self.handle, layer, *(each[:, :, :before] for each in made))
        made = [each.to(keys.dtype) for each in made]
        for each, new in zip(made, (keys, values)):
            each[:, :, before:] = new.detach()
        return made

    def attend(self, module, layer, query, keys, values, mask, scaling, options):
        self.unattended = None
        self.check_options(layer, options)
        tokens = keys.shape[2]
        if layer == 0:
            if self.seen > 0:
                self.check_new_tokens(mask, tokens)
            self.begin(layer, tokens, padding_counts(self.name, mask, tokens) if self.seen == 0 else None)
        if self.seen == 0:
            result, _ = sdpa_attention_forward(module, query, keys, values, mask, scaling=scaling)
            self.write(layer, keys, values)
            self.calls["exact"] += 1
        elif tokens > _MOST_ATTENDED:
            result = self.attend_to_restored(module, layer, query, keys, values, scaling)
            self.write(layer, keys, values)
            self.calls["restored"] += 1
        else:
            self.write(layer, keys, values)
            scale = self.channels ** -0.5 if scaling is None else scaling
            result = ops.layered_cache_attend(self.handle, layer, query.detach().to(torch.bfloat16), scale)
            result = result.transpose(1, 2).to(query.dtype)
            self.calls["attended"] += 1
        self.finish(layer, keys)
        return result

    def attend_to_restored(self, module, layer, query, keys, values, scaling):
        lengths = self.lengths or [self.seen] * self.sequences
        before = max(lengths)
        keys, values = self.restored(layer, keys, values, before)
        tokens = query.shape[2]
        key = torch.arange(before + tokens, device=self.device)
        old = key < torch.tensor(lengths, device=self.device)[:, None]
        new = (key >= before) & (key - before <= torch.arange(tokens, device=self.device)[:, None])
        result, _ = sdpa_attention_forward(module, query, keys, values, old[:, None, None] | new, scaling=scaling)
        return result

    def check_options(self, layer, options):
        for name in ["softcap", "s_aux", "sliding_window", "position_bias"]:
            if options.get(name) is not None:
                raise ValueError(f"{self.name}: the attention of layer {layer} has the option {name} but must have "
                                 f"none of softcap, s_aux, sliding_window and position_bias")
        if options.get("dropout"):
            raise ValueError(f"{self.name}: the dropout of layer {layer} is {options['dropout']} but must be 0")

    def check_new_tokens(self, mask, tokens):
        """Refuses padding among the tokens of a later pass. Waits if the pass has several."""
        if mask is not None and tokens > 1 and not bool(mask[:, 0, -1, -tokens:].all()):
            raise ValueError(f"{self.name}: the attention mask leaves out some of the {tokens} tokens of a pass after "
                             "the prompt, but only prompts may have padding")

    def crop(self, removed):
        if removed < 0:
            raise ValueError(f"{self.name}: crop() takes the number of tokens to remove, as a negative number, but got "
                             f"{-removed}")
        if removed and self.handle is not None:
            ops.layered_cache_crop(self.handle, removed)
            self.seen -= removed
            self.lengths = self.lengths and [length - removed for length in self.lengths]

    def reorder(self, origins):
        if not self.reorders:
            raise ValueError(f"{self.name}: the cache cannot be reordered for beam search unless it is made with "
                             "beams=True, but got beams=False")
        if self.handle is None:
            return
        origins = origins.tolist()
        ops.layered_cache_reorder(self.handle, origins)
        self.lengths = self.lengths and [self.lengths[origin] for origin in origins]

    def reset(self):
        if self.handle is not None:
            ops.layered_cache_reset(self.handle)
        self.seen, self.lengths, self.counts, self.unattended = 0, None, None, None

    def bytes(self):
        return CacheBytes(0, 0, 0) if self.handle is None else CacheBytes(*ops.layered_cache_bytes(self.handle))


class LayerOfAll(CacheLayerMixin):
    """A layer, as transformers sees it, of a cache that keeps all layers together. all_layers: what keeps them, with
    the tokens that each sequence has `seen` and has `room` for."""

    is_sliding = False
    is_compileable = False
    is_croppable = False
    supports_early_init = False

    def __init__(self, all_layers):
        super().__init__()
        self.all_layers = all_layers

    def get_seq_length(self, *args):
        return self.all_layers.seen

    def get_mask_sizes(self, query_length):
        return self.all_layers.seen + query_length, 0

    def get_max_length(self):
        return self.all_layers.room

    get_max_cache_shape = get_max_length  # its name in earlier versions of transformers

    def reset(self):
        """All layers together: the cache does it."""


class CacheOfAll(Cache):
    """A cache of transformers that keeps all layers and all sequences of a batch together."""

    def batch_repeat_interleave(self, repeats):
        raise NotImplementedError(f"{type(self).__name__}: the batch cannot be repeated {repeats} times in the cache; "
                                  "repeat the inputs before the prompt is read")

    def batch_select_indices(self, indices):
        raise NotImplementedError(f"{type(self).__name__}: {len(indices)} sequences cannot be selected in the cache")


class _Layer(LayerOfAll):
    """A layer of a CompressedCache."""

    is_croppable = True

    def __init__(self, pages, index):
        super().__init__(pages)
        self.index = index

    @property
    def is_initialized(self):
        return self.all_layers.handle is not None

    @is_initialized.setter
    def is_initialized(self, value):
        """The pages know; transformers' constructor sets it to False."""

    @property
    def batch_size(self):
        return self.all_layers.sequences

    def lazy_initialization(self, key_states, value_states=None):
        self.all_layers.prepare(key_states)

    def update(self, key_states, value_states, *args, **kwargs):
        return self.all_layers.update(self.index, key_states, value_states)


class CompressedCache(CacheOfAll):
    """A cache of transformers whose keys and values are compressed; MiniCacheCache and QuantizedCache are ones.

    Supported: models whose layers all attend to all tokens, in bfloat16, float16 or float32 (whose keys and values are
    rounded to bfloat16); batches; several passes; padding on the left, which is stored like tokens and masked, or, with
    the attention implementation "tessera", not stored; crop() of the tokens that are not compressed yet, at least
    the newest `window`; beam search with beams=True. All else is refused with a ValueError or NotImplementedError:
    other padding with "tessera", sliding windows, batch_repeat_interleave(), batch_select_indices(), torch.compile."""

    def __init__(self, config, max_cache_len, parts, window, beams):
        name = type(self).__name__
        config = config.get_text_config(decoder=True)
        layers = checked_layers(name, config)
        if sum(part[0] for part in parts) != layers:
            raise ValueError(f"{name}: the parts have {sum(part[0] for part in parts)} layers but the model has "
                             f"{layers}")
        if window < 0 or window % 64:
            raise ValueError(f"{name}: the window has {window} tokens but must have a multiple of 64")
        self._pages = _Pages(name, config, max_cache_len, window, parts, beams)
        super().__init__(layers=[_Layer(self._pages, index) for index in range(layers)])

    @property
    def calls(self):
        """How many layers of passes were computed in which way, a Counter: "exact", a prompt over its own keys and
        values; "attended", over compressed pages directly; "restored", over keys and values that were restored."""
        return self._pages.calls

    def bytes(self):
        """The CacheBytes of all layers and sequences. Waits."""
        return self._pages.bytes()

    def crop(self, tokens_to_remove):
        """Removes the newest -tokens_to_remove tokens, which must not be compressed yet; the newest `window` are not.
        Raises ValueError for a positive number, and RuntimeError where tokens are compressed."""
        self._pages.crop(-tokens_to_remove)

    def reorder_cache(self, beam_idx):
        """Sequence i continues what was sequence beam_idx[i]. Waits for beam_idx. The cache must have beams=True."""
        self._pages.reorder(beam_idx)

    def reset(self):
        """Removes all tokens. The same batch size follows."""
        self._pages.reset()


def compressed_attention(module, query, key, value, attention_mask, scaling=None, **options):
    """The attention implementation "tessera" of transformers unless register_attention() gives it another: over the
    compressed cache where a cache of this package is used, else that of "sdpa"."""
    found = attention_to_pages(module, query, key, value, attention_mask, scaling, options)
    if found is not None:
        return found
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **options)


if IMPLEMENTATION not in AttentionInterface():
    AttentionInterface.register(IMPLEMENTATION, compressed_attention)
    AttentionMaskInterface.register(IMPLEMENTATION, sdpa_mask)
