#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures compressed weights and caches in SmolLM2-135M, and draws the plots of docs/python from the results.

    python3 examples/real_model/make_model.py                       # once: makes build/real_model
    python3 examples/pytorch/benchmarks/models.py           # measures on the CPU, writes docs/python/models.json
    python3 examples/pytorch/benchmarks/models.py --plot     # draws docs/python/*.svg from that file
    python3 examples/pytorch/benchmarks/models.py --plot --check       # fails if a plot is another

Caches: the model, in float32, reads the first 512 tokens of a book, and then 192 more in passes of 64, each of which
attends to what the cache holds of all earlier tokens. No window stays uncompressed. Weights: bfloat16, as in the
file.
"""
import argparse
import json
import sys
import time
from pathlib import Path
from xml.sax.saxutils import escape

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
DOCS = ROOT / "docs" / "python"
MODEL = ROOT / "build" / "real_model"
PROMPT, PASS, PASSES = 512, 64, 3


def smollm2_config():
    from transformers import LlamaConfig
    return LlamaConfig(vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
                       num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192, rms_norm_eps=1e-5,
                       rope_parameters={"rope_type": "default", "rope_theta": 100000.0}, tie_word_embeddings=True,
                       bos_token_id=1, eos_token_id=2, pad_token_id=2)


def smollm2(folder, compressed):
    """SmolLM2-135M in bfloat16 from make_model.py's file, with compressed weights or plain ones."""
    from transformers import LlamaForCausalLM

    from tessera_torch.compressed_module import decompress_module
    from tessera_torch.safetensors import empty_weights, load_compressed
    with empty_weights():
        model = LlamaForCausalLM(smollm2_config()).eval()
    load_compressed(model, folder / "smollm2_135m.safetensors", strict=False)  # it has the tokenizer, too
    if not compressed:
        decompress_module(model)
    return model


def tokenizer(folder):
    """The tokenizer of make_model.py's file."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from tessera_torch.safetensors import TensorFile
    file = TensorFile(folder / "smollm2_135m.safetensors")
    lines = {name: bytes(file.read(f"tokenizer.{name}").tolist()).decode().split("\n") for name in ["tokens", "merges"]}
    made = Tokenizer(models.BPE({token: i for i, token in enumerate(lines["tokens"])},
                                [tuple(pair.split(" ")) for pair in lines["merges"]]))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False)])
    made.decoder = decoders.ByteLevel()
    return made


def text_tokens(folder, count):
    import torch
    ids = tokenizer(folder).encode((folder / "esther.txt").read_text(encoding="utf-8")).ids
    return torch.tensor([ids[:count]])


def perplexity_of(model, ids, cache):
    """The perplexity of the tokens after the prompt, and the seconds of the later passes."""
    import torch
    losses, seconds = [], 0.0
    begins = [0] + [PROMPT + PASS * i for i in range(PASSES)]
    ends = begins[1:] + [PROMPT + PASS * PASSES]
    with torch.no_grad():
        for begin, end in zip(begins, ends):
            start = time.perf_counter()
            logits = model(ids[:, begin:end], past_key_values=cache, logits_to_keep=0 if begin else 1).logits[0]
            seconds += time.perf_counter() - start if begin else 0.0
            if begin:
                losses.append(torch.nn.functional.cross_entropy(logits, ids[0, begin + 1:end + 1], reduction="none"))
    return torch.cat(losses).mean().exp().item(), seconds


def measure_caches(folder):
    import transformers

    from tessera_torch.minicache_cache import MiniCacheCache
    from tessera_torch.quantized_cache import QuantizedCache
    from tessera_torch.shadow_kv_cache import ShadowKVCache
    model = smollm2(folder, False).float()
    room = PROMPT + PASS * PASSES
    ids = text_tokens(folder, room + 1)
    config = model.config

    def quantized(*bits):
        return lambda: QuantizedCache(config, room, *bits, window=0)

    makers = {"exact": lambda: transformers.DynamicCache(config=config), "8 bits": quantized(8), "4 bits": quantized(4),
              "3 bits": quantized(3), "2 bits": quantized(2), "K4V2": quantized(4, 2),
              "MiniCache": lambda: MiniCacheCache(config, room, window=0),
              "ShadowKV, 32 chunks": lambda: ShadowKVCache(model, room, chunks=32)}
    rows = []
    for name, make in makers.items():
        model.set_attn_implementation("sdpa")  # which reads the same pages as "tessera"
        cache = make()
        perplexity, seconds = perplexity_of(model, ids, cache)
        plain = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * 64 * room
        held = (plain if name == "exact" else cache.bytes().device if "Shadow" in name else cache.bytes().used)
        rows.append({"name": name, "perplexity": perplexity, "seconds": seconds, "bytes": held, "plain_bytes": plain})
        print(rows[-1], flush=True)
    return rows


def measure_weights(folder):
    import torch
    rows = []
    ids = text_tokens(folder, 64)
    for name in ["plain", "compressed"]:
        model = smollm2(folder, name == "compressed")
        from tessera_torch.compressed_module import compression_report
        report = compression_report(model)
        held = (report.compressed_bytes if name == "compressed" else
                sum(each.nbytes for each in model.parameters() if each.dim() == 2))
        seconds = []
        with torch.no_grad():
            for _ in range(4):
                start = time.perf_counter()
                logits = model(ids).logits
                seconds.append(time.perf_counter() - start)
        rows.append({"name": name, "bytes": held, "seconds": min(seconds), "checksum": logits.double().sum().item()})
        print(rows[-1], flush=True)
    return rows


# Plots. Colours and letters are those of bench/report.py's.

STYLE = """<style>text{font:13px system-ui,sans-serif;fill:#24292f}.title{font-size:14px;font-weight:600}
.small{font-size:11px;fill:#57606a}
.bar{fill:#2f6f9f}.other{fill:#b9c4ce}.axis{stroke:#d0d7de}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.small{fill:#9198a1}.other{fill:#57606a}
.axis{stroke:#3d444d}}</style>"""


def svg(width, height, parts, title):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            f'role="img"><title>{escape(title)}</title>{STYLE}\n' + "\n".join(parts) + "\n</svg>\n")


def bars(title, rows, unit):
    """A bar for each (name, value, note, whether it is ours)."""
    most = max(value for _, value, _, _ in rows)
    left, room, line = 170, 330, 30
    parts = [f'<text class="title" x="8" y="22">{escape(title)}</text>']
    for i, (name, value, note, ours) in enumerate(rows):
        y = 40 + line * i
        width = room * value / most
        parts.append(f'<text x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect class="{"bar" if ours else "other"}" x="{left}" y="{y}" width="{width:.1f}" height="20" '
                     'rx="2"/>')
        parts.append(f'<text class="small" x="{left + width + 6:.1f}" y="{y + 15}">{escape(f"{value:.1f} {unit}")}'
                     f'{escape(note)}</text>')
    height = 48 + line * len(rows)
    parts.append(f'<line class="axis" x1="{left}" y1="34" x2="{left}" y2="{height - 10}"/>')
    return svg(720, height, parts, title)


def named(rows, name):
    return next(row for row in rows if row["name"] == name)


def plots(results):
    plain, compressed = (named(results["weights"], name) for name in ["plain", "compressed"])
    exact, coded = (named(results["caches"], name) for name in ["exact", "4 bits"])
    weights = [(row["name"], row["bytes"] / 1e6, f', {row["seconds"]:.2f} s for 64 tokens', row["name"] != "plain")
               for row in results["weights"]]
    caches = [(row["name"], row["bytes"] / 1e6, f', perplexity {row["perplexity"]:.2f}', row["name"] != "exact")
              for row in results["caches"]]
    return {"weights.svg": bars("SmolLM2-135M's weights, without loss, take "
                                f"{plain['bytes'] / compressed['bytes']:.2f} times less memory", weights, "MB"),
            "caches.svg": bars(f"SmolLM2-135M's cache: 4 bits take {exact['bytes'] / coded['bytes']:.1f} times less "
                               f"memory, perplexity {coded['perplexity']:.2f} for {exact['perplexity']:.2f}", caches,
                               "MB")}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=MODEL, help="the folder of make_model.py's files (%(default)s)")
    parser.add_argument("--json", type=Path, default=DOCS / "models.json", help="the results (%(default)s)")
    parser.add_argument("--plot", action="store_true", help="draw the plots instead of measuring")
    parser.add_argument("--check", action="store_true", help="with --plot: compare the plots instead of writing them")
    options = parser.parse_args()
    if options.plot:
        made = plots(json.loads(options.json.read_text(encoding="utf-8")))
        for name, content in made.items():
            path = DOCS / name
            if not options.check:
                path.write_text(content, encoding="utf-8")
            elif not path.exists() or path.read_text(encoding="utf-8") != content:
                sys.exit(f"{path}: this is not what follows from {options.json}: run models.py --plot")
        return
    sys.path.insert(0, str(HERE.parent))
    import torch
    results = {"machine": {"torch": torch.__version__, "threads": torch.get_num_threads()},
               "weights": measure_weights(options.model), "caches": measure_caches(options.model)}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
