# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""PyTorch's own linear_cross_entropy for losses.py: the installed PyTorch's or, where that has none, a newer one's.

It came with 2.13 and is written in Python, over operations that older versions have. There are three of it:

without options   a product that writes all logits, and cross_entropy
chunked           with LinearCrossEntropyOptions(): ATen's operations for some tokens at a time. The loss makes both
                  gradients, the classifier's by adding to it in its own type for each chunk; the backward pass scales
in CuTe DSL       the same with one kernel of 2.15 for what is between the products, which PyTorch takes where
                  nvidia-cutlass-dsl and apache-tvm-ffi are installed and TORCH_DISABLE_NATIVE_JIT is not 1

use() lets a PyTorch without it run these Python files of a newer one's wheel. Products and operations are then those of
the installed PyTorch and its cuBLAS, so results must say so (`described`).
"""
import ast
import importlib
import importlib.util
import sys
import types
import zipfile
from pathlib import Path

import torch
import torch.nn.functional as F

FILES = ("torch/version.py", "torch/nn/functional.py", "torch/nn/modules/linear_cross_entropy.py",
         "torch/nn/modules/linear_cross_entropy_options.py")
OF_KERNELS = ("torch/_native/", "torch/_vendor/quack/")
OPERATION = "_linear_cross_entropy_batch_chunked"
KERNELS = "torch._native.ops.linear_cross_entropy"

# What use() took: "version", of the files; "library", which has the kernel of the operator; "in_cute", whether the next
# call is the kernel's, or that of ATen's operations.
_used = {}


def unpacked(package, folder):
    """The folder that holds the files of a wheel, or of a folder that a wheel is unpacked in."""
    if package.is_dir():
        return package
    with zipfile.ZipFile(package) as archive:
        names = [name for name in archive.namelist() if name in FILES or name.startswith(OF_KERNELS)]
        archive.extractall(folder, names)
    return Path(folder)


def use(package, folder):
    """Gives torch.nn.functional the linear_cross_entropy of another version's wheel, and torch.nn its options.

    folder: an empty one, which must stay. Raises RuntimeError where the installed PyTorch has its own, or the package
    has none."""
    if hasattr(F, "linear_cross_entropy"):
        raise RuntimeError(f"PyTorch {torch.__version__} has its own linear_cross_entropy: leave this out")
    root = unpacked(Path(package), folder)
    missing = [file for file in FILES if not (root / file).is_file()]
    if missing:
        raise RuntimeError(f"{package} has no {missing[0]}")
    torch.nn.modules.__path__.append(str(root / "torch/nn/modules"))
    options = importlib.import_module("torch.nn.modules.linear_cross_entropy_options").LinearCrossEntropyOptions
    torch.nn.LinearCrossEntropyOptions = torch.nn.modules.LinearCrossEntropyOptions = options
    F.linear_cross_entropy = function_of(root / "torch/nn/functional.py")
    version = {}
    exec((root / "torch/version.py").read_text(encoding="utf-8"), version)
    _used["version"] = version["__version__"]
    if (root / "torch/_native/ops/linear_cross_entropy").is_dir():
        use_kernels(root)


def function_of(file):
    """linear_cross_entropy, and what it calls by a name with this in it, over the installed PyTorch's functions."""
    tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    tree.body = [part for part in tree.body if isinstance(part, ast.Import) or
                 isinstance(part, ast.FunctionDef) and "linear_cross_entropy" in part.name]
    names = dict(vars(F))
    exec(compile(tree, str(file), "exec", dont_inherit=True), names)
    return names["linear_cross_entropy"]


def use_kernels(root):
    """Registers the kernel in CuTe DSL for the operator, where PyTorch would."""
    from torch._logging import _internal as logs
    if importlib.util.find_spec("torch._native") is not None:
        raise RuntimeError(f"PyTorch {torch.__version__} has kernels of its own, beside which another's cannot be")
    for name, folder in [("torch._native", "_native"), ("torch._native.ops", "_native/ops"),
                         (KERNELS, "_native/ops/linear_cross_entropy")]:
        sys.modules[name] = package = types.ModuleType(name)  # whose own __init__ registers kernels of other operators
        package.__path__ = [str(root / "torch" / folder)]
    torch._vendor.__path__.append(str(root / "torch/_vendor"))
    if "native_dsl_compile" not in logs.log_registry.artifact_names:
        logs.register_artifact("native_dsl_compile", "", off_by_default=True)
    if kernels_are_available():
        by_operations = getattr(importlib.import_module("torch.nn.modules.linear_cross_entropy"), OPERATION)._init_fn
        overrides = importlib.import_module(f"{KERNELS}.cutedsl_impl")._OVERRIDES
        takes, kernel = next(pair for name, *pair in overrides if name == OPERATION)

        def chosen(*arguments):
            if not _used["in_cute"]:
                return by_operations(*arguments)
            if not takes(*arguments):
                raise RuntimeError("PyTorch's kernel in CuTe DSL does not take this call")
            return kernel(*arguments)

        _used["library"] = torch.library.Library("torch_nn", "IMPL")
        _used["library"].impl(OPERATION, chosen, "CUDA")


def kernels_are_available():
    """Whether PyTorch takes its kernel in CuTe DSL on a GPU: by its own conditions when it is imported."""
    try:
        language = importlib.import_module("torch._native.cutedsl_utils")
        importlib.import_module(KERNELS)
    except ImportError:
        return False
    return bool(torch.cuda.is_available() and language.runtime_available() and not language.check_native_jit_disabled()
                and language._version_is_ok())


def function():
    if not hasattr(F, "linear_cross_entropy"):
        raise RuntimeError(f"PyTorch {torch.__version__} has no linear_cross_entropy; 2.13 and later do")
    return F.linear_cross_entropy


def without_options():
    return function()


def chunked(in_cute):
    """in_cute: by the kernel in CuTe DSL, or by ATen's operations; refused where PyTorch takes the other."""
    loss = function()
    if in_cute and not kernels_are_available():
        raise RuntimeError("PyTorch's kernel in CuTe DSL is not in use: it needs 2.15, a GPU, nvidia-cutlass-dsl in a "
                           "version that PyTorch knows, and apache-tvm-ffi")
    if not in_cute and kernels_are_available() and "library" not in _used:
        raise RuntimeError("PyTorch takes its kernel in CuTe DSL; with TORCH_DISABLE_NATIVE_JIT=1 it does not")
    options = torch.nn.LinearCrossEntropyOptions()

    def in_chunks(hidden, classifier, labels):
        _used["in_cute"] = in_cute
        return loss(hidden, classifier, labels, options=options)

    return in_chunks


def described():
    """What results must say of the files that use() took; nothing without it."""
    return {"linear_cross_entropy": f"{_used['version']}'s Python files"} if "version" in _used else {}
