# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What scripts that measure other implementations share: calls from a cold cache, rows, descriptions, packages."""
import datetime
import importlib.metadata
import os
import statistics
import subprocess
import sys
import zipfile
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


def version_of(name):
    module = sys.modules.get(name)
    try:
        return getattr(module, "__version__", None) or importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def use_packages(packages, folder):
    """Makes wheels and source folders importable; not the folder of this file, which is named like a package."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [path for path in sys.path if Path(path).resolve() != here]
    for package in packages:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as archive:
                archive.extractall(folder)  # Triton reads the source of its kernels, which it cannot in an archive
        else:
            sys.path.insert(0, str(package.resolve()))
    sys.path.insert(0, folder)
