# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Waiting for a device, and the errors that programs have found there."""
from ._library import on, ops


def wait(device="cpu"):
    """Waits for the current stream of a device (of the CPU unless one is given), and raises what programs reported
    there since the last call, as a RuntimeError."""
    ops.wait(on(device))
