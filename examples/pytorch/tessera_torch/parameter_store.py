# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Training of compressed weights: an optimizer that decodes each weight, changes it, and encodes it again in place.

    tessera_torch.compress_module(model)
    optimizer = tessera_torch.ParameterStore(model, "adamw", lr=1e-4)
    loss(model(inputs)).backward()
    optimizer.step()
    optimizer.zero_grad()
    ...
    optimizer.close()                                    # the model keeps the weights, as frozen streams
"""
import contextlib
import weakref
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

from . import weights as _weights
from ._library import on, ops
from .compressed_module import compressed_weights

_DEFAULTS = {
    "sgd": {"lr": 1e-3, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "maximize": False},
    "adam": {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False},
}
_DEFAULTS["adamw"] = {**_DEFAULTS["adam"], "weight_decay": 1e-2}


@dataclass(frozen=True)
class ParameterStoreBytes:
    """The bytes of a store, by use: streams with their room to grow; decoded weights; the stream that is being encoded;
    blocks that have outgrown their room; workspace. `plain`: what the weights take without compression."""
    streams: int
    scratch: int
    staging: int
    overflow: int
    workspace: int
    plain: int

    @property
    def total(self):
        """All bytes of the store."""
        return self.streams + self.scratch + self.staging + self.overflow + self.workspace


class _Held:
    """A weight in the store: the operator's store and number, and the parameter to which gradients go."""

    def __init__(self, weight, handle, number):
        self.weight, self.handle, self.number = weight, handle, number
        self.device = weight.device
        one = torch.zeros((), dtype=weight.dtype, device=weight.device)
        self.target = nn.Parameter(one.expand(weight.shape))


def _step_sgd(weight, gradient, state, group):
    momentum = [state.get("momentum_buffer")]
    sgd([weight], [gradient], momentum, foreach=False, fused=False, weight_decay=group["weight_decay"],
        momentum=group["momentum"], lr=group["lr"], dampening=group["dampening"], nesterov=group["nesterov"],
        maximize=group["maximize"])
    if group["momentum"] != 0:
        state["momentum_buffer"] = momentum[0]


def _step_adam(function):
    def step(weight, gradient, state, group):
        if not state:
            state["step"] = torch.tensor(0.0)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
            if group["amsgrad"]:
                state["max_exp_avg_sq"] = torch.zeros_like(weight)
        function([weight], [gradient], [state["exp_avg"]], [state["exp_avg_sq"]],
                 [state["max_exp_avg_sq"]] if group["amsgrad"] else [], [state["step"]], foreach=False, fused=False,
                 amsgrad=group["amsgrad"], beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"],
                 weight_decay=group["weight_decay"], eps=group["eps"], maximize=group["maximize"])
    return step


_STEPS = {"sgd": _step_sgd, "adam": _step_adam(adam), "adamw": _step_adam(adamw)}


class ParameterStore(torch.optim.Optimizer):
    """A torch.optim.Optimizer of the compressed weights of a model, and of its other parameters that require gradients.

    model: one with compressed weights; the store takes their streams. method: "sgd" (with momentum, dampening,
    nesterov, weight_decay), "adam" or "adamw" (with betas, eps, weight_decay, amsgrad); options have PyTorch's names
    and defaults, and the results are those of torch.optim up to the rounding of plain SGD, which is a fused
    multiply-add. Moments are plain tensors of the weights' type.

    others: whether the store also updates parameters that are not compressed. in_backward: whether each parameter is
    updated as soon as the backward pass has its gradient, which is dropped then, so that there is never more than one
    weight's; step() follows as always. slack: the room of streams to grow. part: weights that are encoded at a time.
    scratch_slots: how many weights can be decoded at the same time.

    Gradients come to targets() and can be clipped there; learning-rate schedulers and state_dict() work as for any
    optimizer, and the model's state_dict() has streams of the current weights. A step waits once. The store stays on
    the stream that was current when it was made. It cannot be copied. close() gives the weights back to the model.

    Raises ValueError if the model has no compressed weight, if another store holds one, and for unknown options."""

    def __init__(self, model, method="adamw", others=True, in_backward=False, slack=0.02, part=1 << 26,
                 scratch_slots=2, **options):
        if method not in _STEPS:
            raise ValueError(f"ParameterStore: the method is {method!r} but must be one of {', '.join(_STEPS)}")
        unknown = sorted(options.keys() - _DEFAULTS[method].keys())
        if unknown:
            raise ValueError(f"ParameterStore: {method} has no option {unknown[0]} but "
                             f"{', '.join(_DEFAULTS[method])}")
        options = {**_DEFAULTS[method], **options}
        self._check_options(options)
        weights = compressed_weights(model)
        if not weights:
            raise ValueError("ParameterStore: the model has 0 compressed weights but needs at least 1; "
                             "compress_module() makes them")
        for name, weight in weights.items():
            if weight.store is not None:
                raise ValueError(f"ParameterStore: the weight of {name} is in another store, which must be closed "
                                 "first")
        self.method, self.in_backward = method, in_backward
        self._settings = scratch_slots, slack, part
        self._handles, self._frees, self._held, self._hooks = {}, [], {}, []
        self._of_target = {}
        plain = [each for each in model.parameters() if each.requires_grad] if others else []
        for name, weight in sorted(weights.items(), key=lambda item: -item[1].plain_bytes):
            self._add(name, weight)
        targets = [self._held[id(weight)].target for weight in weights.values()]
        super().__init__(targets + plain, options)
        if in_backward:
            groups = {id(each): group for group in self.param_groups for each in group["params"]}
            for each in targets + plain:
                self._hooks.append(each.register_post_accumulate_grad_hook(
                    lambda parameter: self._step_of_backward(parameter, groups[id(parameter)])))

    @staticmethod
    def _check_options(options):
        for name in ["lr", "momentum", "weight_decay", "eps"]:
            if not options.get(name, 0.0) >= 0:
                raise ValueError(f"ParameterStore: the option {name} is {options[name]} but must be at least 0")
        if options.get("nesterov") and (options["momentum"] == 0 or options["dampening"] != 0):
            raise ValueError(f"ParameterStore: nesterov needs a momentum and no dampening, but they are "
                             f"{options['momentum']} and {options['dampening']}")
        if not all(0 <= beta < 1 for beta in options.get("betas", ())):
            raise ValueError(f"ParameterStore: betas are {options['betas']} but must be at least 0 and below 1")

    def _add(self, name, weight):
        kind = weight.dtype, weight.device
        if kind not in self._handles:
            self._handles[kind] = ops.parameter_store_make(on(weight.device).to(weight.dtype), *self._settings)
            self._frees.append(weakref.finalize(self, ops.parameter_store_free, self._handles[kind]))
        handle = self._handles[kind]
        held = _Held(weight, handle, ops.parameter_store_add(handle, name, weight.decoded()))
        weight.stream = weight.stream.new_empty(0)
        weight.store = self
        self._held[id(weight)] = held
        self._of_target[id(held.target)] = held

    def __deepcopy__(self, memo):
        raise TypeError("ParameterStore: a store cannot be copied, nor a model whose weights are in one; close() it")

    def _known(self, weight):
        if id(weight) not in self._held:
            raise ValueError("ParameterStore: the weight is in no store any more; the store was closed")
        return self._held[id(weight)]

    # What CompressedWeight asks for.

    def device_of(self, weight):
        """The device of a weight."""
        return self._known(weight).device

    def compressed_bytes(self, weight):
        """The bytes of a weight's stream, with its room to grow."""
        held = self._known(weight)
        return ops.parameter_store_compressed_bytes(held.handle, held.number)

    def gradient_target(self, weight):
        """The parameter to which a weight's gradient goes."""
        return self._known(weight).target

    @contextlib.contextmanager
    def leased(self, weight):
        """A context in which a weight is decoded, in memory of the store that other weights have later."""
        held = self._known(weight)
        plain = ops.parameter_store_acquire(held.handle, held.number)
        try:
            if held.device.type == "cpu":
                ops.parameter_store_wait(held.handle)  # raises where a stream is damaged
            yield plain.view(weight.shape)
        finally:
            ops.parameter_store_release(held.handle, held.number)

    def replace(self, weight, plain):
        """Gives a weight other values. Waits."""
        with self.leased(weight) as old:
            old.copy_(plain)
            held = self._known(weight)
            ops.parameter_store_update(held.handle, held.number)
        self.resolve()

    # The optimizer.

    def targets(self):
        """The parameters whose `grad` has the gradients of compressed weights. They have the weights' shapes, and
        memory of one element: their values mean nothing."""
        return [held.target for held in self._held.values()]

    @torch.no_grad()
    def step(self, closure=None):
        """Updates all parameters that have gradients. Gives the closure's result. Waits; raises RuntimeError for what
        was reported: an update that found no room leaves its weight as it was."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)
        self.resolve()
        return loss

    def _step_of_backward(self, parameter, group):
        with torch.no_grad():
            self._update(parameter, group)
        parameter.grad = None

    def _update(self, parameter, group):
        held = self._of_target.get(id(parameter))
        gradient, state = parameter.grad, self.state[parameter]
        if held is None:
            _STEPS[self.method](parameter, gradient, state, group)
            return
        with self.leased(held.weight) as weight:
            rate = group["lr"]
            if self._is_plain_sgd(group):
                ops.parameter_store_sgd_update(held.handle, held.number, gradient.contiguous().flatten(), float(rate))
            else:
                _STEPS[self.method](weight, gradient.contiguous(), state, group)
                ops.parameter_store_update(held.handle, held.number)

    def _is_plain_sgd(self, group):
        return (self.method == "sgd" and group["momentum"] == 0 and group["weight_decay"] == 0
                and not group["maximize"])

    def resolve(self):
        """Gives streams that have outgrown their room more of it, and says how many there were. Waits."""
        return sum(ops.parameter_store_resolve(handle) for handle in self._handles.values())

    def prefetch(self, weight):
        """Begins to decode a CompressedWeight that will be used soon. False if all slots are taken."""
        held = self._known(weight)
        return ops.parameter_store_prefetch(held.handle, held.number)

    def bytes(self):
        """The ParameterStoreBytes of the store, without moments and gradients."""
        parts = [ops.parameter_store_bytes(handle) for handle in self._handles.values()] or [(0,) * 5]
        return ParameterStoreBytes(*map(sum, zip(*parts)),
                                   sum(held.weight.plain_bytes for held in self._held.values()))

    @torch.no_grad()
    def close(self):
        """Gives all weights back to the model as streams, and frees the store's memory. step() does not work any more.
        Waits."""
        for held in self._held.values():
            stream = _weights.compress(held.weight.decoded())
            held.weight.store = None
            held.weight.stream = stream
        for hook in self._hooks:
            hook.remove()
        self._held, self._of_target, self._handles, self._hooks = {}, {}, {}, []
        for free in self._frees:
            free()
        self.param_groups.clear()
        self.state.clear()
