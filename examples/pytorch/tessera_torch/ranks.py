# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses whose classifier is spread over the ranks of a torch.distributed process group."""
import ctypes
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from ._library import ops, wants_gradients

_IN_PLACE = -1  # where parts are added up, as floats, in place of being gathered
_GATHER = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@dataclass(frozen=True)
class VocabParallelOptions:
    """How a classifier is spread over ranks, each of which has the rows of some entries of the vocabulary.

    start, stop: this rank's entries, which may be none; vocabulary: how many there are. group: a process group, None
    for the default one, or for one rank where torch.distributed is not initialized. reduce_e_grad: whether the backward
    pass adds up the ranks' gradients of hidden states, by an all_reduce; else the caller does. sequence_parallel: each
    rank has equal parts of the hidden states, along their first dimension, which an all_gather brings together; their
    gradient is reduced and scattered."""
    start: int
    stop: int
    vocabulary: int
    group: Any = None
    reduce_e_grad: bool = True
    sequence_parallel: bool = False

    def __post_init__(self):
        if not 0 <= self.start <= self.stop <= self.vocabulary:
            raise ValueError(f"VocabParallelOptions: the rank has entries {self.start} to {self.stop} - 1 but there "
                             f"are {self.vocabulary}")
        if self.sequence_parallel and not self.reduce_e_grad:
            raise ValueError("VocabParallelOptions: reduce_e_grad is False but must be True with sequence_parallel")

    @classmethod
    def from_vocab(cls, vocab_size, group=None, reduce_e_grad=True, sequence_parallel=False):
        """Almost equal parts of the vocabulary, in the order of the ranks."""
        rank, ranks = _place(group)
        return cls(vocab_size * rank // ranks, vocab_size * (rank + 1) // ranks, vocab_size, group, reduce_e_grad,
                   sequence_parallel)


def _place(group):
    """This rank, and how many there are."""
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(group), dist.get_world_size(group)


def check_options(function, options, c):
    if not isinstance(options, VocabParallelOptions):
        raise TypeError(f"{function}: vocab_parallel_options are {type(options).__name__} but must be "
                        "VocabParallelOptions")
    if c.shape[0] != options.stop - options.start:
        raise ValueError(f"{function}: the classifier has {c.shape[0]} rows but vocab_parallel_options say that the "
                         f"rank has entries {options.start} to {options.stop} - 1")


class _GatheredTokens(torch.autograd.Function):
    """Hidden states of all ranks, along the first dimension."""

    @staticmethod
    def forward(ctx, group, e):
        ctx.group = group
        _, ranks = _place(group)
        if ranks == 1:
            return e.clone()
        whole = e.new_empty((ranks * e.shape[0], *e.shape[1:]))
        dist.all_gather_into_tensor(whole, e.contiguous(), group=group)
        return whole

    @staticmethod
    def backward(ctx, gradient):
        _, ranks = _place(ctx.group)
        if ranks == 1:
            return None, gradient
        own = gradient.new_empty((gradient.shape[0] // ranks, *gradient.shape[1:]))
        dist.reduce_scatter_tensor(own, gradient.contiguous(), group=ctx.group)
        return None, own


class _SharedTokens(torch.autograd.Function):
    """Hidden states that all ranks have, and the sum of their gradients."""

    @staticmethod
    def forward(ctx, group, e):
        ctx.group = group
        return e.view_as(e)

    @staticmethod
    def backward(ctx, gradient):
        _, ranks = _place(ctx.group)
        if ranks > 1:
            gradient = gradient.clone(memory_format=torch.contiguous_format)
            dist.all_reduce(gradient, group=ctx.group)
        return None, gradient


def tokens_of_all(function, options, e, has_gradient=True):
    """Hidden states of all tokens, whose gradient is that of all ranks. has_gradient: a teacher's have none."""
    if options is None:
        return e
    if options.sequence_parallel:
        if e.dim() < 2:
            raise ValueError(f"{function}: the hidden states are {tuple(e.shape)} but must have 2 dimensions or more "
                             "with sequence_parallel")
        return _GatheredTokens.apply(options.group, e)
    return _SharedTokens.apply(options.group, e) if options.reduce_e_grad and has_gradient else e


class _Gathering:
    """What an operator calls to gather parts of a workspace, and the error that this ended with."""

    def __init__(self, workspace, group, ranks):
        self.error = None

        def gather(begin, size, into):
            try:
                own = workspace[begin:begin + size]
                if into == _IN_PLACE:
                    if ranks > 1:
                        dist.all_reduce(own.view(torch.float32), group=group)
                elif ranks == 1:
                    workspace[into:into + size].copy_(own)
                else:
                    dist.all_gather_into_tensor(workspace[into:into + ranks * size], own, group=group)
                return 0
            except BaseException as error:  # it must not leave a function that C++ calls
                self.error = error
                return 1

        self.function = _GATHER(gather)

    @property
    def address(self):
        return ctypes.cast(self.function, ctypes.c_void_p).value


class _OverRanks(torch.autograd.Function):
    """A loss's operators over ranks. call: _Call; tensors: those of its operators, of which some may be None."""

    @staticmethod
    def forward(ctx, call, *tensors):
        found, workspace, place = call.run(*tensors)
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(*(found[number] for number in call.constants))
        ctx.save_for_backward(*tensors, workspace)
        ctx.call, ctx.place = call, place
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *upstream):
        *tensors, workspace = ctx.saved_tensors
        call = ctx.call
        upstream = [gradient for number, gradient in enumerate(upstream) if number not in call.constants]
        if all(gradient is None for gradient in upstream):
            return (None,) * (len(tensors) + 1)
        if upstream[0] is None:  # the operators take none for ones
            upstream[0] = workspace.new_zeros(() if call.is_reduced else tensors[0].shape[:1], dtype=torch.float32)
        wants = [ctx.needs_input_grad[number + 1] for number in call.differentiable]
        upstream += [None] * (call.upstreams - len(upstream))
        found = getattr(ops, call.name + "_backward")(*tensors, *call.sums, *call.settings, workspace, *ctx.place,
                                                      *upstream, *wants)
        into = dict(zip(call.differentiable[1:], call.sums))  # of the classifier and the bias
        gradients = [None] * len(tensors)
        for number, gradient, is_wanted in zip(call.differentiable, found, wants):
            if is_wanted and into.get(number) is None:
                gradients[number] = gradient.to(tensors[number].dtype)
        torch.autograd.graph.increment_version([each for each in call.sums if each is not None])
        return (None, *gradients)


class _ForwardOverRanks(torch.autograd.Function):
    """The same for operators without a backward pass."""

    @staticmethod
    def forward(ctx, call, function, *tensors):
        ctx.function = function
        return call.run(*tensors)[0]

    @staticmethod
    def backward(ctx, *_):
        raise NotImplementedError(f"{ctx.function}: there is no backward pass")


@dataclass
class _Call:
    name: str              # of the operators
    options: VocabParallelOptions
    settings: tuple
    is_reduced: bool = False
    for_backward: bool = False
    differentiable: tuple = ()  # numbers of tensors
    constants: tuple = ()       # numbers of results without gradients
    upstreams: int = 0          # gradients by results that the operator takes
    sums: tuple = ()            # tensors that gradients are added to, or None

    def run(self, *tensors):
        """The results of the forward pass, its workspace, and the rank's place."""
        rank, ranks = _place(self.options.group)
        arguments = (*tensors, *self.sums, *self.settings)
        size = getattr(ops, self.name + "_bytes")(*arguments, ranks, self.for_backward)
        workspace = tensors[0].new_empty(size, dtype=torch.uint8)
        place = rank, ranks, self.options.start, self.options.vocabulary
        gathering = _Gathering(workspace, self.options.group, ranks)
        try:
            found = getattr(ops, self.name + "_forward")(*arguments, workspace, *place, gathering.address)
        except RuntimeError:
            if gathering.error is not None:
                raise gathering.error
            raise
        return (found if isinstance(found, tuple) else (found,)), workspace, place


def _apply(name, options, tensors, settings, *, is_reduced, differentiable, constants=(), upstreams, sums=()):
    wanted = wants_gradients(*(tensors[number] for number in differentiable))
    return _OverRanks.apply(_Call(name, options, settings, is_reduced, wanted, differentiable, constants, upstreams,
                                  sums), *tensors)


@torch.compiler.disable  # process groups and their order are Python's
def loss_over_ranks(options, tensors, sums, settings):
    """The results of linear_cross_entropy's operator without its workspace."""
    has_statistics = settings[-2]
    return _apply("rank_loss", options, tensors, settings, is_reduced=settings[0] != 0, differentiable=(0, 1, 3),
                  constants=(2, 4) if has_statistics else (2, 3, 4), upstreams=3, sums=sums)


@torch.compiler.disable
def soft_targets_over_ranks(options, tensors, settings):
    return _apply("rank_soft_target", options, tensors, settings, is_reduced=settings[0] != 0,
                  differentiable=(0, 1, 4), upstreams=2)


@torch.compiler.disable
def distillation_over_ranks(options, tensors, settings):
    return _apply("rank_distillation", options, tensors, settings, is_reduced=settings[2] != 0,
                  differentiable=(0, 1), upstreams=1)[0]


@torch.compiler.disable
def chosen_over_ranks(options, tensors, settings):
    return _ForwardOverRanks.apply(_Call("rank_chosen", options, settings), "chosen_log_probabilities", *tensors)[0]


@torch.compiler.disable
def top_over_ranks(options, tensors, settings):
    return _ForwardOverRanks.apply(_Call("rank_top", options, settings), "top_log_probabilities", *tensors)
