# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts that measure other implementations share: calls from a cold cache, rows and the run's description."""
import datetime
import os
import statistics
import subprocess
from pathlib import Path

import torch

MEBIBYTE = 1 << 20


class Flush:
    """Empties the L2 cache, and of its own writes too: the measured call need not write them back."""

    def __init__(self):
        self.dirty = torch.zeros(32 * MEBIBYTE, dtype=torch.int32, device="cuda")
        self.clean = torch.zeros(32 * MEBIBYTE, dtype=torch.int32, device="cuda")

    def __call__(self):
        self.dirty.add_(1)
        self.clean.max()


def seconds_of(operation, flush, samples):
    """Median seconds of a call, each from a cold L2 cache."""
    operation()
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for start, stop in marks:
        flush()
        start.record()
        operation()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in marks) * 1e-3


def row(title, seconds, repetition, repetitions, counters):
    """One repetition as Google Benchmark writes it."""
    return {"name": title, "run_name": title, "run_type": "iteration", "repetitions": repetitions,
            "repetition_index": repetition, "iterations": 1, "real_time": seconds * 1e6, "cpu_time": seconds * 1e6,
            "time_unit": "us", **counters}


def context(**more):
    """The description of a run; `more` names what was measured."""
    def first_line(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("\n")[0]
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **more,
            "gpu": torch.cuda.get_device_name(),
            "driver": first_line("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "cuda_runtime": torch.version.cuda, "pytorch": torch.__version__,
            "commit": os.environ.get("TESSERA_COMMIT") or first_line("git", "-C", str(Path(__file__).parent),
                                                                     "rev-parse", "--short=12", "HEAD")}
