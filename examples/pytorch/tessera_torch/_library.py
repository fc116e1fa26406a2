# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Loads the extension, whose operators are torch.ops.tessera_torch, and what all modules of this package need."""
from pathlib import Path

import torch

_folder = Path(__file__).resolve().parent


def _load():
    found = sorted(_folder.glob("_extension*.so"))
    if not found:
        raise ImportError(f"tessera_torch: there is no _extension*.so in {_folder}. Install the wheel, or build it: "
                          "cmake -S examples/pytorch -B build/pytorch && cmake --build build/pytorch")
    if len(found) > 1:
        raise ImportError(f"tessera_torch: there are {len(found)} extensions in {_folder} but must be 1: "
                          + ", ".join(path.name for path in found))
    torch.ops.load_library(str(found[0]))
    return found[0]


extension_path = _load()
ops = torch.ops.tessera_torch


def on(device):
    """An empty tensor on a device, by which an operator without other tensors knows the device."""
    return torch.empty(0, device=device)


@torch.compiler.assume_constant_result  # compiled code is guarded by this setting, but cannot read it
def _is_tf32_allowed():
    return torch.get_float32_matmul_precision() != "highest"


def uses_tf32(allow_tf32, tensor):
    """Whether float32 is multiplied as tf32; None: on CUDA devices as PyTorch is set."""
    return bool(allow_tf32) if allow_tf32 is not None else (tensor.is_cuda and _is_tf32_allowed())


def refuse_backward(operator, function):
    """Makes a backward pass through an operator of this extension an error that names the function."""
    def backward(ctx, *_):
        raise NotImplementedError(f"{function}: there is no backward pass")

    torch.library.register_autograd(f"tessera_torch::{operator}", backward)


def wants_gradients(*tensors):
    """Whether a backward pass may follow that goes to one of some tensors, or None."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def empty_gradients(e, *wanted, dtype=None):
    """What the operators of backward passes give where nothing runs: for each (tensor, whether a gradient is a result).
    e: a tensor on their device; dtype: None for that of e."""
    return tuple(e.new_empty(tensor.shape if is_wanted else (0,), dtype=dtype) for tensor, is_wanted in wanted)


def typed_gradients(found, tensors, wanted):
    """Gradients in the types of their tensors, or None where they are not results."""
    return tuple(gradient.to(tensor.dtype) if is_wanted else None
                 for gradient, tensor, is_wanted in zip(found, tensors, wanted))


def check_fake_devices(function, first, **others):
    """Checks, where nothing runs, that tensors are on one device: what the operators check where they run."""
    for name, tensor in others.items():
        if tensor is not None and tensor.device != first.device:
            raise RuntimeError(f"{function}: the {name.replace('_', ' ')} are on {tensor.device} but the call runs on "
                               f"{first.device}")
