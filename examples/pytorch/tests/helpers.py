# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions that tests share."""
import pytest
import torch

import tessera_torch


def relative(found, expected):
    """The norm of the difference over that of what is expected."""
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def refused(words, call, device="cpu"):
    """Expects an error of `call`, or of waiting for its device, in whose first line all of `words` occur."""
    with pytest.raises((NotImplementedError, RuntimeError, TypeError, ValueError)) as caught:
        call()
        tessera_torch.wait(device)
    first = str(caught.value).split("\n")[0]
    missing = [word for word in words if word not in first]
    assert not missing, f"{missing} should be in: {first}"


def bfloat16(*shape, device="cpu", scale=1.0):
    """Normal numbers in bfloat16. They are made on the CPU, so that every device gets the same."""
    return (scale * torch.randn(shape)).bfloat16().to(device)


def repeated(keys, group):
    """Key heads, each repeated for the query heads of its group."""
    return keys.repeat_interleave(group, dim=1)
