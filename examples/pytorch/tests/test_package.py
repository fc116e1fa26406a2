# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That the extension needs nothing of PyTorch but its stable interface, so that one build serves later versions."""
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

import tessera_torch
from helpers import refused
from tessera_torch._library import extension_path

SOURCE = Path(__file__).resolve().parent.parent / "source"


@pytest.mark.skipif(shutil.which("nm") is None, reason="there is no nm")
def test_the_extension_needs_only_stable_symbols():
    listed = subprocess.run(["nm", "-DC", extension_path], capture_output=True, text=True, check=True).stdout
    needed = [line.split(" U ")[1].split("@")[0] for line in listed.splitlines() if " U " in line]
    of_torch = [name for name in needed if re.match(r"(aoti_)?torch_", name)]
    assert len(of_torch) > 10
    unstable = [name for name in needed if re.search(r"\b(at|c10|torch|caffe2|pybind11)::|^_?Py", name)]
    assert not unstable


def test_sources_include_only_stable_headers():
    included = re.compile(r'#include [<"]((?:torch|ATen|c10|pybind11)[^>"]*)')
    stable = re.compile(r"torch/(csrc/stable/|headeronly/|csrc/inductor/aoti_torch/c/shim\.h)")
    sources = [path for path in SOURCE.iterdir() if path.suffix in (".hpp", ".cpp", ".cu")] if SOURCE.exists() else []
    if not sources:
        pytest.skip("the sources are not beside the tests")
    headers = [header for path in sources for header in included.findall(path.read_text(encoding="utf-8"))]
    assert headers and not [header for header in headers if not stable.match(header)]


def test_waiting_for_a_device_that_there_is_not():
    refused(["wait", "Meta"], lambda: torch.ops.tessera_torch.wait(torch.empty(0, device="meta")))


def test_waiting_without_work(device):
    tessera_torch.wait(device)
