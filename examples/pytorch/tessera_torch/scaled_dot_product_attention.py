# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""tessera's attention in place of PyTorch's: a function with the arguments of torch's scaled_dot_product_attention,
what patches that function, and what transformers calls."""
import contextlib
import math
import warnings

import torch

from .attention import _dtypes_of_methods, attention, methods

_torch_attention = torch._C._nn.scaled_dot_product_attention  # PyTorch's own, whatever has been patched
_dtypes = (torch.bfloat16, torch.float16, torch.float32)
_warned = set()


@torch.compiler.assume_constant_result
def _warn_once(what, why):
    """Warns that a call is not tessera's, once for each reason; in compiled code when it is compiled."""
    if why not in _warned:
        _warned.add(why)
        warnings.warn(f"tessera_torch: {what}, since {why}", UserWarning, stacklevel=3)


def _why_gradients(dropout_p, *tensors):
    """Why a call is part of a training step, or None."""
    if dropout_p > 0:
        return "dropout_p is not 0, and tessera's attention has no dropout"
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        return "a gradient is required, and tessera's attention has no backward pass"
    return None


def _why_types(query, key, value, attn_mask, method):
    device, dtype = query.device, query.dtype
    for tensor in (query, key, value) if attn_mask is None else (query, key, value, attn_mask):
        if tensor.is_nested or tensor.layout != torch.strided:
            return "a tensor is nested or sparse"
        if tensor.device != device:
            return "the tensors are not on one CPU or CUDA device"
    if device.type not in ("cpu", "cuda"):
        return "the tensors are not on one CPU or CUDA device"
    if dtype not in _dtypes or key.dtype != dtype or value.dtype != dtype:
        return "query, key and value are not all bfloat16, float16 or float32"
    if dtype == torch.float32 and device.type == "cuda":
        return "the query is float32 on a GPU, where tessera's fast attention takes bfloat16 and float16 alone"
    if method in _dtypes_of_methods and query.dtype != _dtypes_of_methods[method]:
        return f"the method is {method} and the query of another type"
    if attn_mask is not None and attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        return "attn_mask is neither boolean nor float32 nor of the query's type"
    return None


def _why_shapes(query, key, value, attn_mask, is_causal, enable_gqa, method):
    rank = query.dim()
    if rank < 2 or key.dim() != rank or value.dim() != rank or key.shape[:-1] != value.shape[:-1]:
        return "query, key and value are not of shapes that belong together"
    if query.shape[-1] != key.shape[-1] or not 0 < query.shape[-1] <= 256 or not 0 < value.shape[-1] <= 256:
        return "a head does not have from 1 to 256 channels"
    if query.shape[:-3] != key.shape[:-3]:
        return "query and key have different sequences"
    heads = (query.shape[-3], key.shape[-3]) if rank > 2 else (1, 1)
    if heads[0] != heads[1] and not (enable_gqa and heads[1] > 0 and heads[0] % heads[1] == 0):
        return "query heads do not share key heads"
    if heads[0] == 0:
        return "there are no heads"
    if method in _dtypes_of_methods and query.shape[-1] != value.shape[-1]:
        return f"values have other channels than keys, which {method} does not take"
    if attn_mask is not None and is_causal:
        return "there are an attn_mask and is_causal"
    if attn_mask is not None:
        whole = (*query.shape[:-1], key.shape[-2])
        sizes = attn_mask.shape
        if len(sizes) > len(whole) or any(size not in (1, of) for size, of in zip(reversed(sizes), reversed(whole))):
            return "attn_mask is not of a shape that repeats to that of scores"
    return None


def _of_autocast(*tensors):
    """Tensors of floats in autocast's type, as PyTorch's attention casts them."""
    kind = tensors[0].device.type
    if kind not in ("cpu", "cuda") or not torch.is_autocast_enabled(kind):
        return tensors
    dtype = torch.get_autocast_dtype(kind)
    return [tensor.to(dtype) if tensor is not None and tensor.dtype.is_floating_point and tensor.dtype != torch.float64
            else tensor for tensor in tensors]


def _padded(heads, multiple=16):
    """Heads with as many channels as attention() takes: zeros more, which change no score."""
    missing = -heads.shape[-1] % multiple
    return torch.nn.functional.pad(heads, (0, missing)) if missing else heads


def _four_dimensional(heads):
    """batch x heads x tokens x channels."""
    if heads.dim() == 4:
        return heads
    return heads.flatten(0, -4) if heads.dim() > 4 else heads[(None,) * (4 - heads.dim())]


def _attend(query, key, value, attn_mask, is_causal, scale, method, sinks=None):
    """PyTorch's attention, whose causal mask has the first query see the first key, of tensors that fit."""
    queries, keys, channels = query.shape[-2], key.shape[-2], value.shape[-1]
    scale = scale if scale is not None else 1 / math.sqrt(query.shape[-1])
    leading = query.shape[:-2]
    if attn_mask is not None and len(leading) > 2 and attn_mask.dim() > 2:
        attn_mask = attn_mask.expand(*leading, *attn_mask.shape[-2:])
        attn_mask = attn_mask.reshape(-1, *attn_mask.shape[-3:])
    window = None
    if is_causal and queries < keys:  # keys behind the last query's own are hidden from all
        key, value = key[..., :queries, :], value[..., :queries, :]
    elif is_causal and queries > keys:  # tessera's last query sees the last key: here earlier ones do
        is_causal, window = False, (-1, queries - keys)
    query, key, value = (_padded(_four_dimensional(heads)) for heads in (query, key, value))
    result = attention(query, key, value, is_causal, window, sinks, attn_mask, softmax_scale=scale, method=method)
    if result.shape[-1] != channels:
        result = result[..., :channels]
    return result if len(leading) == 2 else result.reshape(*leading, queries, channels)


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False, *, method="sage2"):
    """torch.nn.functional.scaled_dot_product_attention by tessera's attention, with the same arguments and results.

    Boolean masks (True is seen) and added ones, causal masks of which the first query sees the first key, batches of
    any dimensions, autocast and, with enable_gqa, shared key heads are PyTorch's. Heads whose channels are no multiple
    of 16 are copied with zeros behind. A query that sees no key gets zeros. method: as in attention().

    What tessera's attention does not do goes to PyTorch's own, with a warning that says why, once for each reason:
    dropout, required gradients, nested tensors, float64, float32 on GPUs, devices that are neither CPU nor CUDA, more
    than 256 channels, scales that are not positive, key heads and sequences that repeat otherwise; and wrong arguments,
    which PyTorch refuses."""
    if method not in methods:
        raise ValueError(f"scaled_dot_product_attention: the method is {method!r} but must be one of "
                         f"{', '.join(methods)}")
    given = query, key, value, attn_mask
    why = _why_gradients(dropout_p, *given)
    if why is None:
        query, key, value, attn_mask = _of_autocast(*given)
        why = (_why_types(query, key, value, attn_mask, method)
               or _why_shapes(query, key, value, attn_mask, is_causal, enable_gqa, method))
    if why is None and scale is not None and not 0 < scale < math.inf:
        why = "the scale is not a positive number"
    if why is not None:
        _warn_once("scaled_dot_product_attention is PyTorch's own", why)
        return _torch_attention(*given, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    return _attend(query, key, value, attn_mask, is_causal, scale, method)


@contextlib.contextmanager
def replaced_attention(method="sage2"):
    """Has torch.nn.functional.scaled_dot_product_attention be tessera's, in the whole process, within a with statement.

        with tessera_torch.replaced_attention():
            model(tokens)                           # what calls torch.nn.functional.scaled_dot_product_attention

    Code that took the function from that module before, or that PyTorch runs in one piece, such as the fast path of
    nn.TransformerEncoder, keeps PyTorch's. What was there before comes back behind the statement, also after an error.
    method: as in attention()."""
    if method not in methods:
        raise ValueError(f"replaced_attention: the method is {method!r} but must be one of {', '.join(methods)}")

    def replacement(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        return scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa,
                                            method=method)

    before = torch.nn.functional.scaled_dot_product_attention
    torch.nn.functional.scaled_dot_product_attention = replacement
    try:
        yield
    finally:
        torch.nn.functional.scaled_dot_product_attention = before


def attention_to_pages(module, query, key, value, attention_mask, scaling, options):
    """What transformers' attention implementation gives where `key` came from a compressed cache, which is to attend to
    its pages; None for other keys."""
    found = getattr(key, "_tessera_pass", None)
    if found is None:
        return None
    pages, layer = found
    return pages.attend(module, layer, query, key, value, attention_mask, scaling, options), None


def _forward_of_transformers(method):
    def forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, s_aux=None,
                softcap=None, position_bias=None, **others):
        of_pages = attention_to_pages(module, query, key, value, attention_mask, scaling,
                                      {**others, "dropout": dropout, "s_aux": s_aux, "softcap": softcap,
                                       "position_bias": position_bias})
        if of_pages is not None:
            return of_pages
        if softcap is not None:
            raise ValueError(f"tessera's attention: softcap is {softcap} but must be None")
        if others.get("output_attentions", False):
            _warn_once("the weights of attention are None", "output_attentions is True and no weights are in memory")
        why = _why_gradients(dropout, query, key, value, attention_mask, s_aux, position_bias)
        if why is not None and s_aux is not None:
            raise NotImplementedError(f"tessera's attention: {why}, and PyTorch's attention has no sinks")
        if why is not None:
            from transformers.integrations.sdpa_attention import sdpa_attention_forward
            _warn_once("attention is PyTorch's own", why)
            if position_bias is not None:
                others["position_bias"] = position_bias
            return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                          is_causal=is_causal, **others)
        is_causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        is_causal = bool(query.shape[2] > 1 and attention_mask is None and is_causal)
        bias = attention_mask
        if position_bias is not None and attention_mask is not None:
            bias = (torch.where(attention_mask, position_bias, -math.inf) if attention_mask.dtype == torch.bool
                    else position_bias + attention_mask)
        elif position_bias is not None:
            bias = position_bias
        if is_causal and bias is not None and query.shape[2] < key.shape[2]:
            bias = bias[..., :query.shape[2]] if bias.shape[-1] > 1 else bias
        query, key, value, bias = _of_autocast(query, key, value, bias)
        result = _attend(query, key, value, bias, is_causal, scaling, method, s_aux)
        return result.transpose(1, 2).contiguous(), None

    return forward


def register_attention(name="tessera", method="sage2"):
    """Registers tessera's attention with transformers, for attn_implementation=name.

        tessera_torch.register_attention()
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="tessera")

    Masks are those of "sdpa". Sinks and shared key heads are read as they are. With the name "tessera" it also attends
    to the pages of a QuantizedCache or MiniCacheCache, whatever the method is. Required gradients and dropout go to
    transformers' "sdpa" with a warning, once; soft caps of scores are refused. method: as in attention()."""
    if method not in methods:
        raise ValueError(f"register_attention: the method is {method!r} but must be one of {', '.join(methods)}")
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    AttentionInterface.register(name, _forward_of_transformers(method))
    AttentionMaskInterface.register(name, sdpa_mask)
