# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests share. Each test with the fixture `device` runs on the CPU and, where there is one, on a GPU."""
import pytest
import torch

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(params=DEVICES)
def device(request):
    torch.manual_seed(1)
    return request.param
