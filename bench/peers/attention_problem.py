# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What attention is measured on in attention.py, and how far results are from attention in double.

Data, batch x heads x tokens x channels, in bf16:

offset  those of support/attention_problem.cuh, though not their bits: normal numbers; 6 % of the channels of a head's
        keys lie 4 N(0, 1) away from zero, 6 % of those of its queries 2 N(0, 1), each of its values 0.5 N(0, 1).
normal  N(0, 1).
real    layer 15 of SmolLM2 in tests/data: 9 query heads and 3 key heads of 512 tokens and 64 channels, after RoPE. It
        is shorter than what is measured: tokens are repeated, heads are, too, and for 128 and 256 channels those of
        two and four neighbouring heads stand side by side. Sequences of a batch are the same.
"""
import math

import torch

from measuring import DEVICE, SEED, tensors_of

DATA = ["offset", "normal", "real"]
CHECKED_ROWS = 64


def normal_heads(extents, share=0.0, deviation=0.0):
    """Normal numbers; this share of the channels of each head lie away from zero."""
    batch, heads, _, channels = extents
    made = torch.randn(extents, device=DEVICE)
    if share > 0:
        offsets = torch.randn(batch, heads, 1, channels, device=DEVICE) * deviation
        made += offsets * (torch.rand(offsets.shape, device=DEVICE) < share)
    return made.to(torch.bfloat16)


def repeated(heads, extents):
    """Real heads x tokens x channels for these extents."""
    batch, wanted, tokens, channels = extents
    several = channels // heads.shape[-1]  # heads side by side
    count = len(heads)
    wide = torch.stack([torch.cat([heads[(i + j) % count] for j in range(several)], -1) for i in range(count)])
    some = wide[torch.arange(wanted) % count]
    long = some.repeat(1, -(-tokens // some.shape[1]), 1)[:, :tokens]
    return long.to(DEVICE).expand(batch, -1, -1, -1).contiguous()


def real_heads(extents):
    """Queries, keys and values; query head h of the model belongs to key head h / 3."""
    tensors = tensors_of("smollm2_attention.safetensors")
    queries, keys, values = (tensors[f"layers.15.{name}"]
                             for name in ["queries_post_rope", "keys_post_rope", "values"])
    group = len(queries) // len(keys)
    first = torch.arange(len(keys)) * group
    # One round over the key heads after the other, each with the next query head of each group.
    queries = torch.cat([queries[first + i] for i in range(group)])
    keys, values = keys.repeat(group, 1, 1), values.repeat(group, 1, 1)
    return [repeated(heads, extents) for heads in (queries, keys, values)]


class Problem:
    """Queries, keys and values, and exact results of some rows of the first and the last head."""

    def __init__(self, data, channels, name, batch, heads, tokens):
        self.data, self.size = data, f"d{channels}/{name}"
        self.extents = batch, heads, tokens, channels
        self.exact = {}
        torch.manual_seed(SEED)
        if data == "real":
            self.queries, self.keys, self.values = real_heads(self.extents)
        elif data == "normal":
            self.queries, self.keys, self.values = (normal_heads(self.extents) for _ in range(3))
        else:
            self.queries, self.keys, self.values = (normal_heads(self.extents, *offsets)
                                                    for offsets in [(0.06, 2.0), (0.06, 4.0), (1.0, 0.5)])

    def title(self, is_causal):
        """As benchmarks are named: data with offsets are the usual ones."""
        parts = [self.size] + ["causal"] * is_causal + [self.data] * (self.data != "offset")
        return "bf16/" + "/".join(parts)

    def operations(self, is_causal):
        batch, heads, tokens, channels = self.extents
        return 4 * batch * heads * tokens * tokens * channels / (2 if is_causal else 1)

    def rows(self):
        return torch.linspace(0, self.extents[2] - 1, CHECKED_ROWS, device=DEVICE).long()

    def exact_rows(self, is_causal):
        """{(sequence, head): rows in double}"""
        if is_causal not in self.exact:
            batch, heads, tokens, channels = self.extents
            found = {}
            for at in [(0, 0), (batch - 1, heads - 1)]:
                q, k, v = (x[at].double() for x in (self.queries, self.keys, self.values))
                scores = q[self.rows()] @ k.T / math.sqrt(channels)
                if is_causal:
                    scores.masked_fill_(torch.arange(tokens, device=DEVICE) > self.rows()[:, None], -math.inf)
                found[at] = torch.softmax(scores, 1) @ v
            self.exact[is_causal] = found
        return self.exact[is_causal]

    def errors(self, found, is_causal):
        """Relative L1 and cosine of these rows."""
        if found.shape != self.queries.shape:
            raise RuntimeError(f"the result is {tuple(found.shape)} and not {tuple(self.queries.shape)}")
        apart = length = product = squares = own = 0.0
        for at, expected in self.exact_rows(is_causal).items():
            result = found[at][self.rows()].double()
            apart += float((result - expected).abs().sum())
            length += float(expected.abs().sum())
            product += float((result * expected).sum())
            squares += float((expected * expected).sum())
            own += float((result * result).sum())
        return {"relative_l1": apart / length, "cosine": product / math.sqrt(squares * own)}
