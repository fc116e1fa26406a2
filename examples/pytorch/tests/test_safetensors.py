# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""load_compressed(): models from .safetensors files, and the files that it refuses."""
import copy
import json
import os
import struct
import subprocess
import sys
import textwrap

import pytest
import torch
from torch import nn

from tessera_torch.compressed_module import compress_module, decompress_module
from tessera_torch.safetensors import DamagedFile, TensorFile, empty_weights, load_compressed
from tessera_torch.wait import wait

NAMES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32", torch.int64: "I64", torch.uint8: "U8",
         torch.bool: "BOOL"}


def write(path, tensors, header=None, metadata=None, tail=b""):
    """A file in the format, written independently of what is tested. `header`: what to change of it."""
    entries, content = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        raw = bytes(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        entries[name] = {"dtype": NAMES[tensor.dtype], "shape": list(tensor.shape),
                         "data_offsets": [len(content), len(content) + len(raw)]}
        content += raw
    text = json.dumps({**entries, **(header or {})}).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + content + tail)
    return path


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(200, 40)
        self.norm = nn.BatchNorm1d(40)
        self.up = nn.Linear(40, 96)
        self.classifier = nn.Linear(40, 200, bias=False)
        self.classifier.weight = self.embed.weight
        self.register_buffer("positions", torch.arange(40.0), persistent=False)

    def forward(self, tokens):
        hidden = self.norm(self.embed(tokens) + self.positions.to(self.norm.bias.dtype))
        return self.classifier(hidden) + self.up(hidden).sum(-1, keepdim=True)


def plain_model(dtype=torch.bfloat16):
    model = Model().eval()
    model.norm.running_mean.normal_()
    model.norm.num_batches_tracked += 3
    return model.to(dtype)


def file_tensors(model):
    state = model.state_dict()
    return {name: value for name, value in state.items() if name != "classifier.weight"}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("empty", [True, False])
def test_a_model_is_loaded(device, tmp_path, dtype, empty):
    torch.manual_seed(1)
    plain = plain_model(dtype)
    path = write(tmp_path / "m.safetensors", file_tensors(plain), metadata={"format": "pt"})
    if empty:
        with empty_weights():
            model = Model().eval()
        assert all(each.device.type == "meta" for each in model.parameters())
        assert model.classifier.weight is model.embed.weight
    else:
        model = Model().eval()
    report = load_compressed(model, path, device=device)
    assert report.weights == 2 and report.plain_bytes == plain.embed.weight.nbytes + plain.up.weight.nbytes
    assert model.classifier.compressed_weight is model.embed.compressed_weight
    assert all(each.device.type == device for each in [*model.parameters(), *model.buffers()])
    tokens = torch.randint(200, (7,))
    found, expected = model(tokens.to(device)), copy.deepcopy(plain).to(device)(tokens.to(device))
    torch.testing.assert_close(found, expected, **({"rtol": 0, "atol": 0} if device == "cpu" else {}))
    decompress_module(model)
    for name, value in plain.state_dict().items():
        assert torch.equal(model.state_dict()[name].cpu(), value), name
    wait(device)


def test_folders_and_lists_of_files(tmp_path):
    torch.manual_seed(2)
    plain = plain_model()
    tensors = file_tensors(plain)
    names = list(tensors)
    parts = [{name: tensors[name] for name in names[:3]}, {name: tensors[name] for name in names[3:]}]
    paths = [write(tmp_path / f"part-{i}.safetensors", part) for i, part in enumerate(parts)]
    places = {name: f"part-{i}.safetensors" for i, part in enumerate(parts) for name in part}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    one = tmp_path / "one"
    one.mkdir()
    write(one / "model.safetensors", tensors)
    for where in [tmp_path, str(tmp_path), paths, one]:
        model = Model().eval()
        load_compressed(model, where)
        assert torch.equal(model.embed.weight, plain.embed.weight)
    wrong = {**places, "other": places[names[0]]}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": wrong}))
    with pytest.raises(DamagedFile, match="other"):
        load_compressed(Model(), tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../x"}}))
    with pytest.raises(DamagedFile, match="same folder"):
        load_compressed(Model(), tmp_path)
    with pytest.raises(DamagedFile, match="part-0"):
        load_compressed(Model(), [*paths, paths[0]])


def test_streams_in_a_file(tmp_path):
    torch.manual_seed(3)
    plain = plain_model()
    saved = copy.deepcopy(plain)
    compress_module(saved)
    tensors = {name: value for name, value in saved.state_dict().items() if not name.startswith("classifier")}
    path = write(tmp_path / "m.safetensors", tensors)
    with empty_weights():
        model = Model().eval()
    load_compressed(model, path)
    assert torch.equal(model.up.weight, plain.up.weight) and torch.equal(model.classifier.weight, plain.embed.weight)
    load_compressed(model, write(tmp_path / "n.safetensors", file_tensors(plain)))  # into a model that is compressed
    assert torch.equal(model.up.weight, plain.up.weight)
    tensors["up.compressed_weight.stream"] = tensors["embed.compressed_weight.stream"]
    with pytest.raises(ValueError, match="3840"):
        load_compressed(model, write(tmp_path / "o.safetensors", tensors))


def test_names_shapes_and_types_that_do_not_fit(tmp_path):
    torch.manual_seed(4)
    plain = plain_model()
    tensors = file_tensors(plain)

    def refused(changed, *words, **options):
        model = Model()
        before = copy.deepcopy(model.state_dict())
        with pytest.raises(ValueError) as error:
            load_compressed(model, write(tmp_path / "m.safetensors", changed), **options)
        assert all(word in str(error.value) for word in words), error.value
        assert type(model.up) is nn.Linear
        assert all(torch.equal(model.state_dict()[name], value) for name, value in before.items())

    refused({name: value for name, value in tensors.items() if name != "norm.bias"}, "norm.bias")
    refused({name: value for name, value in tensors.items() if name != "embed.weight"}, "embed.weight",
            "classifier.weight")
    refused({**tensors, "more": torch.zeros(3)}, "more", "strict")
    refused({**tensors, "up.weight": tensors["up.weight"][1:]}, "up.weight", "95", "96")
    refused({**tensors, "norm.weight": torch.zeros(40, dtype=torch.int64)}, "norm.weight", "int64")
    refused({**tensors, "classifier.weight": tensors["embed.weight"] + 1}, "tied", "classifier.weight")
    refused(tensors, "tied", "classifier", filter=lambda name, _: name != "classifier")
    load_compressed(Model(), write(tmp_path / "m.safetensors", {**tensors, "more": torch.zeros(3)}), strict=False)
    renamed = {f"transformer.{name}": value for name, value in tensors.items()}
    model = Model()
    load_compressed(model, write(tmp_path / "m.safetensors", renamed), rename=lambda name: name[12:])
    assert torch.equal(model.up.weight, plain.up.weight)
    chosen = Model()
    report = load_compressed(chosen, write(tmp_path / "m.safetensors", tensors), filter=lambda name, _: name == "up")
    assert report.weights == 1 and chosen.classifier.weight is chosen.embed.weight
    with torch.device("meta"):
        without_buffers = Model()
    with pytest.raises(ValueError, match="positions.*empty_weights"):
        load_compressed(without_buffers, write(tmp_path / "m.safetensors", tensors))


def entry(dtype="F32", shape=(2, 3), first=0, last=24):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [first, last]}


@pytest.mark.parametrize("header, size, words", [
    ({"a": entry(last=25)}, 25, ["a", "25", "24"]),
    ({"a": entry(), "b": entry(first=20, last=44)}, 44, ["b", "20", "24"]),
    ({"a": entry(), "b": entry(first=28, last=52)}, 52, ["b", "28", "24"]),
    ({"a": entry()}, 23, ["24", "23"]),
    ({"a": entry()}, 25, ["24", "25"]),
    ({"a": entry(dtype="F7")}, 24, ["a", "F7"]),
    ({"a": entry(dtype=3)}, 24, ["a", "3"]),
    ({"a": entry(shape=(2, -3))}, 24, ["a", "-3"]),
    ({"a": entry(shape=(2, 3.5))}, 24, ["a", "3.5"]),
    ({"a": entry(shape=(2**62, 2**62))}, 24, ["a"]),
    ({"a": entry(first=-24, last=0)}, 24, ["a", "-24"]),
    ({"a": entry(first=24, last=0)}, 24, ["a"]),
    ({"a": {"dtype": "F32"}}, 0, ["a", "data_offsets"]),
    ({"a": [1, 2]}, 0, ["a"]),
    (["a"], 0, ["list"]),
    ("{", 0, ["JSON"]),
    ('{"a": ' + json.dumps(entry()) + ', "a": ' + json.dumps(entry()) + "}", 24, ["a", "twice"]),
    ("[" * 100000, 0, ["JSON"]),
    (b"\xff\xfe{}", 0, ["JSON"]),
])
def test_damaged_headers(tmp_path, header, size, words):
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    with pytest.raises(DamagedFile) as error:
        TensorFile(path)
    assert all(word in str(error.value) for word in [str(path), *words]), error.value


def test_truncated_files_are_refused_at_every_length(tmp_path):
    path = write(tmp_path / "m.safetensors", {"a": torch.arange(6.0), "b": torch.zeros(0, 3)})
    content = path.read_bytes()
    read = TensorFile(path)
    assert torch.equal(read.read("a"), torch.arange(6.0)) and read.read("b").shape == (0, 3)
    for length in range(len(content)):
        path = tmp_path / "part.safetensors"
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFile):
            TensorFile(path)
    for length in [2**63, 2**64 - 1, 200_000_000, len(content)]:
        path.write_bytes(struct.pack("<Q", length) + content[8:])
        with pytest.raises(DamagedFile, match=str(length)):
            TensorFile(path)


def test_tensors_at_odd_places(tmp_path):
    tensors = {"flag": torch.tensor([True, False, True]), "a": torch.randn(5), "b": torch.randn(3, 2).half()}
    read = TensorFile(write(tmp_path / "m.safetensors", tensors))
    for name, value in tensors.items():
        assert torch.equal(read.read(name), value)


def test_files_of_the_safetensors_package(tmp_path):
    package = pytest.importorskip("safetensors.torch")
    tensors = {"a": torch.randn(3, 5).bfloat16(), "b": torch.arange(7), "c": torch.randn(2, 2, 2).half()}
    package.save_file(tensors, tmp_path / "m.safetensors", metadata={"format": "pt"})
    read = TensorFile(tmp_path / "m.safetensors")
    assert read.metadata == {"format": "pt"} and read.tensors.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(read.read(name), value)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_the_whole_model_is_never_in_memory(tmp_path):
    layers = 6
    torch.manual_seed(5)
    weight = (0.02 * torch.randn(4096, 6144)).bfloat16()  # 48 MiB
    path = write(tmp_path / "m.safetensors", {f"{i}.weight": weight for i in range(layers)})
    program = textwrap.dedent(f"""
        import sys
        import torch
        from torch import nn
        from tessera_torch.safetensors import empty_weights, load_compressed

        def resident(which):
            text = open("/proc/self/status").read()
            return int(text.split(which)[1].split()[1]) / 1024

        with empty_weights():
            model = nn.Sequential(*(nn.Linear(6144, 4096, bias=False) for _ in range({layers})))
        with empty_weights():
            first = nn.Sequential(nn.Linear(6144, 4096, bias=False))
        load_compressed(first, {str(path)!r}, strict=False)  # for what is in memory once
        del first
        before = resident("VmRSS")
        open("/proc/self/clear_refs", "w").write("5")  # the peak begins here
        report = load_compressed(model, {str(path)!r})
        print(resident("VmHWM") - before, report.compressed_bytes / 2**20)
    """)
    # glibc keeps what is freed of the 12 MiB of a codec's workspace, in a heap with holes: here it shall give it back.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    made = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    grown, compressed = map(float, made.stdout.split())
    assert compressed < 0.72 * 48 * layers
    assert grown < compressed + 3 * 48, (grown, compressed)  # the file has 6 * 48
