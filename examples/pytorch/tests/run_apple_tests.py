#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the tests of Apple's cut_cross_entropy against tessera_torch.linear_cross_entropy, from a checkout of yours.

    git clone https://github.com/apple/ml-cross-entropy
    run_apple_tests.py ml-cross-entropy --json apple.json               # on the GPU where there is one, or the CPU

The test files are taken as they are: `from cut_cross_entropy import linear_cross_entropy` finds this library's
function, and what else they import (constants, references of the z-loss and the softcap) is the checkout's. Those are
the files that test linear_cross_entropy, with each implementation of Cut Cross-Entropy's own; the others test Triton
kernels of that package, its PyTorch code ("torch_compile") or several processes. The files ask for CUDA; without a GPU
their tensors are made on the CPU. Needs pytest. Prints counts, and writes {passed, failed, skipped, commit, device,
seconds}. Exits with 1 unless all tests passed.
"""
import argparse
import json
import subprocess
import sys
import time
import types
from pathlib import Path

import pytest
import torch

import tessera_torch

FILES = ["test_cce_loss_forward.py", "test_cce_loss_backward.py"]
FACTORIES = ["randn", "randint", "randperm"]  # by which the files make tensors on a device


def stand_in(checkout):
    """The package cut_cross_entropy, of which only the modules that tests import besides are the checkout's."""
    package = types.ModuleType("cut_cross_entropy")
    package.__path__ = [str(checkout / "cut_cross_entropy")]
    package.linear_cross_entropy = tessera_torch.linear_cross_entropy
    package.LinearCrossEntropy = tessera_torch.LinearCrossEntropy
    sys.modules["cut_cross_entropy"] = package


def make_tensors_on_the_cpu():
    """What asks for CUDA gets the CPU, and torch.compile does nothing: only references of the files are compiled."""
    def on_the_cpu(function):
        return lambda *arguments, device=None, **named: function(*arguments, device="cpu", **named)

    for name in FACTORIES:
        setattr(torch, name, on_the_cpu(getattr(torch, name)))
    torch.cuda.is_available = lambda: True
    torch.cuda.manual_seed = torch.manual_seed
    torch._dynamo.config.disable = True


class Counter:
    def __init__(self):
        self.outcomes = {"passed": 0, "failed": 0, "skipped": 0}

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.outcome] += 1


def commit_of(checkout):
    found = subprocess.run(["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--json", type=Path, help="the file to write")
    parser.add_argument("--commit", help="of the checkout, where it is none of git's")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="a further condition, as pytest's -k takes it")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    stand_in(options.checkout.resolve())
    if device == "cpu":
        make_tensors_on_the_cpu()
    counter = Counter()
    chosen = "not torch_compile" + (f" and ({options.only})" if options.only else "")
    began = time.monotonic()
    pytest.main(["-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", "-k", chosen,
                 "--rootdir", str(options.checkout),
                 *(str(options.checkout / "tests" / name) for name in FILES)], plugins=[counter])
    result = {**counter.outcomes, "commit": options.commit or commit_of(options.checkout), "device": device,
              "seconds": round(time.monotonic() - began, 1)}
    if options.json:
        options.json.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(json.dumps(result))
    sys.exit(0 if result["passed"] > 0 and result["passed"] == sum(counter.outcomes.values()) else 1)


if __name__ == "__main__":
    main()
