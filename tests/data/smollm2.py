# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M in NumPy: tokenizer, forward pass and next-token losses, from the weights of a GGUF file.

All arithmetic is float64, so the results, rounded to bfloat16, do not depend on the BLAS library or the thread count.
"""

import re
from typing import NamedTuple

import numpy as np

from gguf_file import GgufFile

HEAD_CHANNELS = 64
ROPE_THETA = 100000.0
QUERY_BLOCK = 512  # rows of the attention matrix that exist at one time
TOKEN_BLOCK = 256  # rows of the logits that exist at one time


class Tokenizer:
    """Byte-level BPE as in GPT-2, with every digit on its own."""

    _WORDS = re.compile(r"'(?:s|t|re|ve|m|ll|d)| ?[^\W\d_]+| ?(?:[^\s\w]|_)+|\s+(?!\S)|\s+")

    def __init__(self, fields):
        self._ids = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(fields["tokenizer.ggml.merges"])}
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self._letters = {byte: chr(byte) for byte in printable}
        self._letters.update((byte, chr(256 + index)) for index, byte in enumerate(others))
        self._known = {}

    def _merge(self, word):
        parts = [self._letters[byte] for byte in word.encode()]
        while len(parts) > 1:
            ranks = [self._ranks.get(pair, len(self._ranks)) for pair in zip(parts, parts[1:])]
            best = min(ranks)
            if best == len(self._ranks):
                break
            at = ranks.index(best)
            parts[at:at + 2] = [parts[at] + parts[at + 1]]
        return [self._ids[part] for part in parts]

    def encode(self, text):
        """The ids of the text's tokens, without special ones."""
        ids = []
        for piece in re.split(r"(\d)", text):
            for word in [piece] if piece.isdigit() else self._WORDS.findall(piece):
                if word not in self._known:
                    self._known[word] = self._merge(word)
                ids.extend(self._known[word])
        return np.array(ids, dtype="<i4")


class AttentionTrace(NamedTuple):
    """What one layer's attention works on, [heads, tokens, channels]; `rotated_*` are after RoPE."""

    keys: np.ndarray
    rotated_keys: np.ndarray
    values: np.ndarray
    queries: np.ndarray
    rotated_queries: np.ndarray


class Scores(NamedTuple):
    loss: np.ndarray  # a position's negative log-likelihood of its next token
    log_sum_exp: np.ndarray  # of a position's logits over the whole vocabulary
    mean_probability: np.ndarray  # a token's probability, averaged over the positions


def rotate(heads, positions):
    """RoPE of [heads, tokens, channels]: channels i and i + channels/2 turn by position * theta^(-2i/channels)."""
    half = heads.shape[-1] // 2
    angles = np.asarray(positions, dtype="f8")[:, None] * ROPE_THETA ** (-np.arange(half) / half)
    cosine, sine = np.cos(angles), np.sin(angles)
    first, second = heads[..., :half], heads[..., half:]
    return np.concatenate([first * cosine - second * sine, second * cosine + first * sine], axis=-1)


def split_halves(weights):
    """Undoes GGUF's order of query and key channels: from neighbouring pairs to pairs that are half a head apart."""
    rows, columns = weights.shape
    pairs = weights.reshape(rows // HEAD_CHANNELS, HEAD_CHANNELS // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def attend(queries, keys, values):
    """Causal softmax attention; query heads share key heads in runs of neighbours."""
    share, count = queries.shape[0] // keys.shape[0], queries.shape[1]
    out = np.empty_like(queries)
    for head, query in enumerate(queries):
        key, value = keys[head // share], values[head // share]
        for start in range(0, count, QUERY_BLOCK):
            end = min(start + QUERY_BLOCK, count)
            scores = query[start:end] @ key[:end].T / np.sqrt(HEAD_CHANNELS)
            scores[np.arange(end) > np.arange(start, end)[:, None]] = -np.inf
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            out[head, start:end] = scores @ value[:end] / scores.sum(axis=-1, keepdims=True)
    return out


class Model:
    def __init__(self, path):
        self._file = GgufFile(path)
        fields = self._file.fields
        self.layers = fields["llama.block_count"]
        self.context = fields["llama.context_length"]
        self._epsilon = fields["llama.attention.layer_norm_rms_epsilon"]
        if (fields["llama.rope.dimension_count"], fields["llama.rope.freq_base"]) != (HEAD_CHANNELS, ROPE_THETA):
            raise ValueError(f"{path}: its RoPE is not that of SmolLM2-135M")
        self.tokenizer = Tokenizer(fields)

    def classifier(self, rows=None):
        """Rows of the classifier, which is also the embedding, in float32."""
        return self._file.tensor("token_embd.weight", rows)

    def _weights(self, layer, name):
        return self._file.tensor(f"blk.{layer}.{name}.weight").astype("f8")

    def _normalise(self, hidden, weights):
        return hidden / np.sqrt(np.mean(hidden**2, axis=-1, keepdims=True) + self._epsilon) * weights

    def _attention(self, layer, hidden):
        inputs = self._normalise(hidden, self._weights(layer, "attn_norm"))
        positions = np.arange(len(hidden))

        def heads(weights):
            return (inputs @ weights.T).reshape(len(hidden), -1, HEAD_CHANNELS).swapaxes(0, 1)

        queries, keys = (heads(split_halves(self._weights(layer, name))) for name in ("attn_q", "attn_k"))
        trace = AttentionTrace(keys, rotate(keys, positions), heads(self._weights(layer, "attn_v")), queries,
                               rotate(queries, positions))
        mixed = attend(trace.rotated_queries, trace.rotated_keys, trace.values)
        return mixed.swapaxes(0, 1).reshape(hidden.shape) @ self._weights(layer, "attn_output").T, trace

    def _feed_forward(self, layer, hidden):
        inputs = self._normalise(hidden, self._weights(layer, "ffn_norm"))
        gate, up = (inputs @ self._weights(layer, name).T for name in ("ffn_gate", "ffn_up"))
        return gate / (1 + np.exp(-gate)) * up @ self._weights(layer, "ffn_down").T

    def forward(self, tokens, visit):
        """The normalised hidden states [tokens, channels]; calls visit(layer, AttentionTrace) for every layer."""
        if len(tokens) > self.context:
            raise ValueError(f"{len(tokens)} tokens are more than the model's context of {self.context}")
        hidden = self.classifier(tokens).astype("f8")
        for layer in range(self.layers):
            change, trace = self._attention(layer, hidden)
            visit(layer, trace)
            hidden = hidden + change
            hidden = hidden + self._feed_forward(layer, hidden)
        return self._normalise(hidden, self._file.tensor("output_norm.weight").astype("f8"))

    def score(self, hidden, next_tokens):
        """Losses over the whole vocabulary."""
        weights = self.classifier().astype("f8")
        log_sum_exp, chosen = np.empty(len(hidden)), np.empty(len(hidden))
        probability = np.zeros(len(weights))
        for start in range(0, len(hidden), TOKEN_BLOCK):
            part = slice(start, min(start + TOKEN_BLOCK, len(hidden)))
            logits = hidden[part] @ weights.T
            chosen[part] = logits[np.arange(len(logits)), next_tokens[part]]
            largest = logits.max(axis=-1, keepdims=True)
            np.exp(logits - largest, out=logits)
            sums = logits.sum(axis=-1, keepdims=True)
            log_sum_exp[part] = (largest + np.log(sums))[:, 0]
            probability += (logits / sums).sum(axis=0)
        return Scores(log_sum_exp - chosen, log_sum_exp, probability / len(hidden))
