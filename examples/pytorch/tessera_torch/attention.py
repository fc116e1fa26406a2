# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over codes of 8 or 4 bits, or over 16-bit numbers: SageAttention2, FlashAttention-3's e4m3, and neither."""
import torch

from ._library import check_fake_devices, ops, refuse_backward

# The numbers of methods in source/attention_request.hpp.
methods = {"sage2": 0, "int4": 1, "fp8": 2, "bf16": 3, "fp16": 3, "sage2_smoothed": 4}
_dtypes_of_methods = {"bf16": torch.bfloat16, "fp16": torch.float16}


def _check_fake_rank(function, rank, **tensors):
    for name, tensor in tensors.items():
        if tensor.dim() != rank:
            raise RuntimeError(f"{function}: the {name} have {tensor.dim()} dimensions but must have {rank}")


@torch.library.register_fake("tessera_torch::attention")
def _(queries, keys, values, method, is_causal, window_left, window_right, softmax_scale, sinks, bias, slopes,
      query_lengths, key_lengths, block_counts, block_tiles, wants_log_sum_exp):
    check_fake_devices("attention", queries, keys=keys, values=values, sinks=sinks, biases=bias, slopes=slopes)
    _check_fake_rank("attention", 4, queries=queries, keys=keys, values=values)
    batch, heads, tokens, _ = queries.shape
    if queries.stride(1) < queries.stride(2):
        result = queries.new_empty(batch, tokens, heads, values.shape[3]).transpose(1, 2)
    else:
        result = queries.new_empty(batch, heads, tokens, values.shape[3])
    return result, queries.new_empty((batch, heads, tokens) if wants_log_sum_exp else (0,), dtype=torch.float32)


@torch.library.register_fake("tessera_torch::attention_packed")
def _(queries, keys, values, query_starts, key_starts, longest_queries, longest_keys, method, is_causal, window_left,
      window_right, softmax_scale, sinks, bias, slopes, query_lengths, key_lengths, block_counts, block_tiles,
      wants_log_sum_exp):
    check_fake_devices("attention_packed", queries, keys=keys, values=values, sinks=sinks, biases=bias, slopes=slopes)
    _check_fake_rank("attention_packed", 3, queries=queries, keys=keys, values=values)
    tokens, heads, _ = queries.shape
    result = queries.new_empty(tokens, heads, values.shape[2])
    return result, queries.new_empty((heads, tokens) if wants_log_sum_exp else (0,), dtype=torch.float32)


refuse_backward("attention", "attention")
refuse_backward("attention_packed", "attention_packed")


def _call(operator, *arguments):
    """Calls an operator, past the registered backward pass where no gradient is required, which saves microseconds."""
    if torch.compiler.is_compiling() or (torch.is_grad_enabled() and any(
            isinstance(given, torch.Tensor) and given.requires_grad for given in arguments)):
        return operator(*arguments)
    with torch._C._AutoDispatchBelowAutograd():
        return operator(*arguments)


def _tensor(given, function, name):
    """A tensor, or what shares its memory by DLPack, as a tensor."""
    if isinstance(given, torch.Tensor):
        return given
    if hasattr(given, "__dlpack__"):
        return torch.from_dlpack(given)
    raise TypeError(f"{function}: the {name} are of type {type(given).__name__} but must be a tensor or have "
                    "__dlpack__")


def _floats(given, function, name):
    """A list of float32, or None."""
    return None if given is None else _tensor(given, function, name).to(torch.float32).contiguous()


def _counts(given, function, name):
    """A list of int32, or None. Numbers of 64 bits beyond it become the largest one or a negative one, not others."""
    if given is None:
        return None
    given = _tensor(given, function, name)
    if given.dtype == torch.int32:
        return given.contiguous()
    if given.dtype.is_floating_point or given.dtype.is_complex or given.dtype == torch.bool:
        raise TypeError(f"{function}: the {name} are of type {given.dtype} but must be integers")
    if given.dtype != torch.int64:
        return given.to(torch.int32)
    return given.clamp(-1, 2**31 - 1).to(torch.int32)


def _window(window, function):
    """The keys to the left and to the right that a query sees, -1 for all."""
    if window is None:
        return -1, -1
    if isinstance(window, (int, torch.SymInt)):
        window = window, window
    if not (isinstance(window, (tuple, list)) and len(window) == 2):
        raise ValueError(f"{function}: the window is {window!r} but must be a number, a pair (left, right) or None")
    return tuple(-1 if side is None else side for side in window)


def _options(function, queries, is_causal, window, sinks, bias, alibi_slopes, lengths, query_lengths, softmax_scale,
             return_lse, method, block_list):
    """The operators' arguments behind the tensors that they attend to."""
    if method not in methods:
        raise ValueError(f"{function}: the method is {method!r} but must be one of {', '.join(methods)}")
    if method in _dtypes_of_methods and queries.dtype != _dtypes_of_methods[method]:
        raise ValueError(f"{function}: the method is {method} but queries are of type {queries.dtype}")
    if softmax_scale is not None and not softmax_scale > 0:
        raise ValueError(f"{function}: the scale of the softmax is {softmax_scale} but must be positive")
    if block_list is not None and (not isinstance(block_list, (tuple, list)) or len(block_list) != 2):
        raise ValueError(f"{function}: the block list is {type(block_list).__name__} but must be a pair of counts and "
                         "tiles")
    counts, tiles = block_list or (None, None)
    return (methods[method], bool(is_causal), *_window(window, function), softmax_scale or 0.0,
            _floats(sinks, function, "sinks"), None if bias is None else _tensor(bias, function, "biases"),
            _floats(alibi_slopes, function, "slopes"), _counts(query_lengths, function, "lengths of queries"),
            _counts(lengths, function, "lengths of keys"), _counts(counts, function, "counts of tiles"),
            _counts(tiles, function, "tiles"), bool(return_lse))


def attention(q, k, v, is_causal=False, window=None, sinks=None, bias=None, lengths=None, softmax_scale=None,
              return_lse=False, method="sage2", *, alibi_slopes=None, query_lengths=None, block_list=None):
    """Attention of queries to keys and values, all batch x heads x tokens x channels, on the current stream.

    q, k, v: bfloat16, float16 or float32, all of one type, of any strides: tensors, or objects with __dlpack__ such as
    NumPy's arrays. Channels are a multiple of 16 up to 256; values may have others than keys. Query heads share key
    heads where those are fewer. Gives batch x query heads x queries x channels of values, in the type and in the order
    of dimensions in memory of q; a query that sees no key gets zeros.

    is_causal: a query sees no key behind its own; the last query's own is the last key of its sequence, so that fewer
        queries than keys are the latest ones. PyTorch has the first query see the first key instead.
    window: how many keys before and behind its own a query sees, a number or (left, right), None or -1 for all. Behind
        its own it sees none if is_causal.
    sinks: a score for each query head, that takes weight and has no value.
    bias: added to scaled scores: float32 or 16 bits, or booleans, where False hides a key. It has up to four dimensions
        that are those of batch x query heads x queries x keys or 1. Minus infinity hides a key.
    alibi_slopes: a slope for each query head, that is multiplied by (number of the key - number of the query).
    lengths, query_lengths: the keys and the queries of each sequence, integers; those behind are not read, and results
        of queries behind are zeros. Longer lengths are the tensor's, negative ones 0.
    softmax_scale: of scores, positive; 1 / sqrt(channels) if it is None.
    return_lse: gives (result, log-sum-exps), of which the second are batch x query heads x queries in float32, natural,
        of scaled scores with biases and sinks; minus infinity where no key is seen.
    method: "sage2": SageAttention2 with codes of 8 bits. "sage2_smoothed": it, with smoothed queries, which is more
        exact. "int4": its codes of 4 bits. "fp8": e4m3 codes. "bf16", "fp16": no codes; these must be the type of q,
        and values have the channels of keys.
    block_list: (counts, tiles) of tile_list(): the tiles of 64 queries x 128 keys that are seen.

    On GPUs the fast programs take 16-bit numbers, without a bias for "bf16" and "fp16"; others are much slower. Forward
    pass only: a backward pass through it is an error. Nothing waits or is copied but lists that are not float32
    or int32, and calls can be captured in CUDA graphs. Wrong arguments are a RuntimeError, ValueError or TypeError that
    shows both values."""
    q, k, v = (_tensor(given, "attention", name) for given, name in ((q, "queries"), (k, "keys"), (v, "values")))
    options = _options("attention", q, is_causal, window, sinks, bias, alibi_slopes, lengths, query_lengths,
                       softmax_scale, return_lse, method, block_list)
    result, log_sum_exp = _call(ops.attention.default, q, k, v, *options)
    return (result, log_sum_exp) if return_lse else result


def _sequences(cu_seqlens, longest, tokens, what):
    """The starts and lengths of packed sequences and the longest length, which waits where it is not given."""
    given = _tensor(cu_seqlens, "attention_packed", f"cu_seqlens of {what}")
    cu_seqlens = _counts(given, "attention_packed", f"cu_seqlens of {what}")
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"attention_packed: the cu_seqlens of {what} are {tuple(cu_seqlens.shape)} but must be a "
                         "number more than there are sequences")
    starts, lengths = cu_seqlens[:-1], cu_seqlens[1:] - cu_seqlens[:-1]
    if torch.compiler.is_compiling() or (longest is not None and not cu_seqlens.is_cpu):
        if longest is None:
            raise ValueError(f"attention_packed: the longest sequence of {what} is None but must be a number in "
                             "compiled code, which does not read cu_seqlens")
        return starts, lengths, longest
    numbers = given.tolist()
    for before, after in zip(numbers, numbers[1:]):
        if not 0 <= before <= after:
            raise ValueError(f"attention_packed: a sequence of {what} goes from {before} to {after} in cu_seqlens")
    if numbers[-1] > tokens:
        raise ValueError(f"attention_packed: the cu_seqlens of {what} end at {numbers[-1]} but there are {tokens} "
                         "tokens")
    found = max((after - before for before, after in zip(numbers, numbers[1:])), default=0)
    if longest is not None and longest < found:
        raise ValueError(f"attention_packed: the longest sequence of {what} is said to have {longest} tokens but has "
                         f"{found}")
    return starts, lengths, found if longest is None else longest


def attention_packed(q, k, v, cu_seqlens_q, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, is_causal=False,
                     window=None, sinks=None, bias=None, softmax_scale=None, return_lse=False, method="sage2", *,
                     alibi_slopes=None, block_list=None):
    """attention() of sequences that lie one behind the other: q, k and v are tokens x heads x channels.

    cu_seqlens_q, cu_seqlens_k: integers, where each sequence begins, and where the last one ends; keys have those of
    queries if they have none of their own. max_seqlen_q, max_seqlen_k: the tokens of the longest sequence, or a larger
    number. Without them, or on the CPU, cu_seqlens are read and checked, which waits for a device; with them a sequence
    on a GPU that is longer counts as so long alone. bias: batch x heads x max_seqlen_q x max_seqlen_k, each dimension
    possibly 1. Gives tokens x query heads x channels of values, and log-sum-exps as query heads x tokens; tokens of no
    sequence get zeros and minus infinity. All else is as in attention()."""
    names = ((q, "queries"), (k, "keys"), (v, "values"))
    q, k, v = (_tensor(given, "attention_packed", name) for given, name in names)
    for tensor, (_, name) in zip((q, k, v), names):
        if tensor.dim() != 3:
            raise ValueError(f"attention_packed: the {name} have {tensor.dim()} dimensions but must have 3")
    has_own = cu_seqlens_k is not None
    starts_q, lengths_q, longest_q = _sequences(cu_seqlens_q, max_seqlen_q, q.shape[0], "queries")
    if has_own or k.shape[0] != q.shape[0]:
        cu_seqlens_k = cu_seqlens_k if has_own else cu_seqlens_q
        starts_k, lengths_k, longest_k = _sequences(cu_seqlens_k, max_seqlen_k, k.shape[0], "keys")
    else:
        starts_k, lengths_k, longest_k = starts_q, lengths_q, longest_q if max_seqlen_k is None else max_seqlen_k
    options = _options("attention_packed", q, is_causal, window, sinks, bias, alibi_slopes, lengths_k, lengths_q,
                       softmax_scale, return_lse, method, block_list)
    result, log_sum_exp = _call(ops.attention_packed.default, q, k, v, starts_q, starts_k, longest_q, longest_k,
                                *options)
    return (result, log_sum_exp) if return_lse else result


def tile_list(seen):
    """The block_list of tiles: for each block of 64 queries those tiles of 128 keys where `seen` is True.

    seen: batch x query heads x ceil(queries / 64) x ceil(keys / 128), booleans. Gives counts, batch x heads x blocks,
    and the numbers of the tiles, ascending, batch x heads x blocks x tiles, both int32."""
    if seen.dim() != 4 or seen.dtype != torch.bool:
        raise ValueError(f"tile_list: the tiles that are seen are {seen.dim()}-dimensional {seen.dtype} but must be "
                         "4-dimensional torch.bool")
    return seen.sum(-1, dtype=torch.int32), torch.argsort(~seen, dim=-1, stable=True).to(torch.int32)
