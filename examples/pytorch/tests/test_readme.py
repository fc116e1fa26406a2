# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The README's Python runs as it stands there, and prints what it says in comments, but for random numbers' luck."""
import contextlib
import io
import re
from pathlib import Path

import pytest
import torch

import tessera_torch

README = Path(__file__).resolve().parent.parent.parent.parent / "README.md"
NUMBER = r"-?\d+(?:\.\d+)?"


def blocks():
    return re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def claims(block):
    """What the block says that its print() calls print: the comments behind them."""
    return [line.rsplit("# ", 1)[1].strip() for line in block.splitlines() if line.startswith("print(")]


def test_the_readme_has_a_block_for_each_algorithm():
    assert len(blocks()) == 5 and all(len(claims(block)) == 1 for block in blocks())


def test_the_readme_prints_what_it_says():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(1)
    names = {"torch": torch, "tessera_torch": tessera_torch, "transformers": transformers}
    for block in blocks():
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "README.md", "exec"), names)
        for claim, line in zip(claims(block), printed.getvalue().splitlines(), strict=True):
            assert re.sub(NUMBER, "N", line) == re.sub(NUMBER, "N", claim)
            found, expected = ([float(number) for number in re.findall(NUMBER, text)] for text in (line, claim))
            assert found == pytest.approx(expected, rel=0.03), line
