# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cut Cross-Entropy of this library beside other implementations of a linear layer's loss, for run.py.

Implementations, each with its usual settings:

tessera, tessera_exact      this library with its filter and without
tessera_exact_4gib          the same without, with up to 4 GiB of memory from the forward pass to the backward pass
torch_eager, torch_compile  PyTorch's operations one by one, and compiled
torch_native                PyTorch's own linear_cross_entropy (native_loss.py), which versions from 2.13 on have
torch_native_chunked        the same with its options for chunks of tokens, by ATen's operations
torch_native_cute           the same with those options, by 2.15's kernel in CuTe DSL
apple_cce, apple_cce_exact  Apple's cut-cross-entropy with its filter and without (25.4 and later)
liger                       Liger Kernel's fused linear cross-entropy in Triton
liger_cute                  the same package's for sm_90 in CuTe DSL (nvidia-cutlass-dsl)
quack                       QuACK's chunked linear cross-entropy in CuTe DSL (quack-kernels)

Data, in bf16; the first three have the distributions of support/loss_problem.cuh, though not its bits:

flat, spread, zipf  hidden states N(0, 1); classifiers N(0, 1) times 1, 2.4 and 1.5 over the root of the channels. In
                    zipf, channel 0 also makes entries as frequent as words are. Labels are drawn from the softmax.
real                SmolLM2 in tests/data: hidden states of 256 tokens, 512 rows of its classifier, and the next
                    tokens; tokens are repeated up to 8192. There are no other entries, so look at errors, not times.

Exact losses that keep much memory are also measured in turns, a call of one after a call of the other in an order that
changes, so that what the card's clock does in the meantime happens to all of them (`in_turns`).

Forward passes run without autograd. `extra_MiB` is the most memory that PyTorch's allocator held beyond inputs and
gradients. Each loss is compared with an exact one, `loss_error` is relative; errors of gradients are lengths, relative
to those of exact gradients in fp32.
"""
import importlib
import math

import torch
import torch.nn.functional as F

import native_loss
from measuring import DEVICE, SEED, passes_of, peak_of, require_close, tensors_of, tessera, version_of

SHAPES = ["8192x256000x2304", "8192x128256x4096"]  # Gemma 2 2B, Llama 3 8B: tokens, vocabulary, channels
SMALL_SHAPES = ["300x1000x128"]
REAL_SHAPES, SMALL_REAL_SHAPES = ["8192x512x576"], ["256x512x576"]
WANTED_SECONDS, SAMPLES = 0.2, (4, 15)
IN_TURNS_SECONDS, IN_TURNS_ROUNDS = 0.8, (12, 24)
LARGEST_LOSS_ERROR = 2e-3  # relative; logits are rounded to bf16 in some implementations
# PyTorch's own returns a loss in bf16; by ATen's operations that of chunks is also added up in bf16, where a chunk's
# part is soon no more than a few steps of the sum: 64 chunks came 5 % too high on an H200.
LARGEST_LOSS_ERRORS = {"torch_native": 2e-2, "torch_native_cute": 2e-2, "torch_native_chunked": 0.2}


class Problem:
    """Hidden states, classifier and labels; and the exact loss with its gradients in fp32."""

    def __init__(self, data, shape):
        self.title = f"{data}/{shape}"
        tokens, vocabulary, channels = (int(extent) for extent in shape.split("x"))
        if data == "real":
            self.take_real(tokens)
        else:
            self.draw(data, tokens, vocabulary, channels)
        self.find_exact_gradients()
        self.hidden.requires_grad_()
        self.classifier.requires_grad_()

    def draw(self, data, tokens, vocabulary, channels):
        torch.manual_seed(SEED)
        deviation = {"flat": 1.0, "spread": 2.4, "zipf": 1.5}[data]
        self.hidden = torch.randn(tokens, channels, device=DEVICE, dtype=torch.bfloat16)
        self.classifier = torch.empty(vocabulary, channels, device=DEVICE, dtype=torch.bfloat16)
        for part in self.classifier.split(16384):  # so that samples are rounded once
            part.copy_(torch.randn(part.shape, device=DEVICE) * (deviation / math.sqrt(channels)))
        if data == "zipf":
            ranks = torch.randperm(vocabulary, device=DEVICE) + 1
            self.hidden[:, 0] = 4
            self.classifier[:, 0] = -0.3 * torch.log(ranks.float())
        self.labels = torch.cat([torch.multinomial(torch.softmax((part @ self.classifier.T).float(), 1), 1).flatten()
                                 for part in self.hidden.split(512)])

    def take_real(self, tokens):
        tensors = tensors_of("smollm2_classifier.safetensors")
        times = -(-tokens // len(tensors["hidden"]))
        self.hidden = tensors["hidden"].repeat(times, 1)[:tokens].to(DEVICE)
        self.labels = tensors["next_token_rows"].long().repeat(times)[:tokens].to(DEVICE)
        self.classifier = tensors["classifier_rows"].to(DEVICE)

    def find_exact_gradients(self):
        classifier = self.classifier.float()
        self.exact_hidden = torch.empty(self.hidden.shape, device=DEVICE)
        self.exact_classifier = torch.zeros(self.classifier.shape, device=DEVICE)
        losses = []
        for first in range(0, len(self.labels), 1024):
            some = slice(first, first + 1024)
            hidden, labels = self.hidden[some].float(), self.labels[some]
            logits = hidden @ classifier.T
            losses.append(F.cross_entropy(logits, labels, reduction="sum").double())
            gradient = torch.softmax(logits, 1)
            gradient[torch.arange(len(labels), device=DEVICE), labels] -= 1
            gradient /= len(self.labels)
            self.exact_hidden[some] = gradient @ classifier
            self.exact_classifier.addmm_(gradient.T, hidden)
        self.exact_loss = float(sum(losses)) / len(self.labels)

    def clear(self):
        self.hidden.grad = self.classifier.grad = None

    def gradient_bytes(self):
        return sum(t.grad.numel() * t.grad.element_size() for t in (self.hidden, self.classifier) if t.grad is not None)

    def errors(self):
        """Of the gradients that a call has left."""
        pairs = {"hidden_error": (self.hidden.grad, self.exact_hidden),
                 "classifier_error": (self.classifier.grad, self.exact_classifier)}
        return {name: float((found.float() - exact).norm() / exact.norm()) for name, (found, exact) in pairs.items()}


# Functions of hidden states, classifier and labels that return the mean loss.


def dense_loss(hidden, classifier, labels):
    return F.cross_entropy((hidden @ classifier.T).float(), labels)


def torch_eager():
    return dense_loss


def torch_compile():
    torch._dynamo.reset()  # else a second shape is compiled for any shape
    return torch.compile(dense_loss, fullgraph=True, dynamic=False)


def apple(implementation):
    package = importlib.import_module("cut_cross_entropy")
    if implementation.upper() not in package.LinearCrossEntropyImpl.__members__:
        raise RuntimeError(f"cut-cross-entropy {version_of('cut_cross_entropy')} has no {implementation}")
    return lambda hidden, classifier, labels: package.linear_cross_entropy(hidden, classifier, labels,
                                                                           impl=implementation)


def liger():
    loss = importlib.import_module("liger_kernel.transformers.fused_linear_cross_entropy")
    module = loss.LigerFusedLinearCrossEntropyLoss()
    return lambda hidden, classifier, labels: module(classifier, hidden, labels)


def liger_cute():
    return importlib.import_module(
        "liger_kernel.ops.cutedsl.ops.fused_linear_cross_entropy_sm90").liger_fused_linear_cross_entropy_sm90


def quack():
    loss = importlib.import_module("quack.linear_cross_entropy").chunked_linear_cross_entropy

    def chunked(hidden, classifier, labels):
        """By its default of 4096 tokens at a time, but by 2048 of 4096 channels: it takes no square chunk there."""
        return loss(hidden, classifier, labels, **({"chunk_size": 2048} if hidden.shape[1] == 4096 else {}))

    return chunked


def ours(**options):
    module = tessera()
    return lambda hidden, classifier, labels: module.linear_cross_entropy(hidden, classifier, labels, **options)


IMPLEMENTATIONS = {
    "tessera": ours, "tessera_exact": lambda: ours(impl="cce_exact"),
    "tessera_exact_4gib": lambda: ours(impl="cce_exact", workspace_bytes=4 << 30), "torch_eager": torch_eager,
    "torch_compile": torch_compile, "torch_native": native_loss.without_options,
    "torch_native_chunked": lambda: native_loss.chunked(in_cute=False),
    "torch_native_cute": lambda: native_loss.chunked(in_cute=True), "apple_cce": lambda: apple("cce"),
    "apple_cce_exact": lambda: apple("cce_exact"), "liger": liger, "liger_cute": liger_cute, "quack": quack}
NATIVE = ["torch_native", "torch_native_chunked", "torch_native_cute"]
IN_TURNS = ["tessera_exact_4gib", "torch_compile", *NATIVE, "liger_cute", "quack"]
FILTERED = ["tessera", "apple_cce"]
# Only with a filter does the time depend on the data.
MEASURED = {"zipf": list(IMPLEMENTATIONS), "real": list(IMPLEMENTATIONS), "flat": FILTERED,
            "spread": [*FILTERED, "tessera_exact"]}


def right_loss(name, loss, problem):
    """Counters of a loss, which is refused where it is further from the exact one than its type explains."""
    found = require_close(name, "loss", loss, problem.exact_loss, LARGEST_LOSS_ERRORS.get(name, LARGEST_LOSS_ERROR))
    return {"loss": found, "loss_error": abs(found / problem.exact_loss - 1)}


def measure_forward(run, name, problem):
    loss = IMPLEMENTATIONS[name]()
    constants = problem.hidden.detach(), problem.classifier.detach(), problem.labels  # of which none makes gradients

    def forward():
        with torch.no_grad():
            return loss(*constants)

    counters = {**right_loss(name, forward(), problem), **peak_of(forward, lambda _: 0)}
    return run.time(f"{name}/forward/bf16/{problem.title}", forward, counters, None, WANTED_SECONDS, SAMPLES)


def loss_of(name, problem):
    loss = IMPLEMENTATIONS[name]()
    return lambda: loss(problem.hidden, problem.classifier, problem.labels)


def measure_both(run, name, problem):
    return run.time_passes(f"{name}/forward_backward/bf16/{problem.title}", loss_of(name, problem), problem,
                           lambda result: {**right_loss(name, result, problem), **problem.errors()},
                           WANTED_SECONDS, SAMPLES)


def measure_in_turns(run, names, problem):
    """Those that can be measured; what keeps another one from it stands with its own rows."""
    operations = {}
    for name in names:
        title = f"{name}/in_turns/forward_backward/bf16/{problem.title}"
        try:
            run.require_time()
            both = passes_of(loss_of(name, problem), problem)
            counters = right_loss(name, both().detach(), problem)
        except Exception as trouble:
            run.note_failure(title, f"{type(trouble).__name__}: {str(trouble).strip().split(chr(10))[0][:200]}")
        else:
            operations[title] = (both, counters)
    run.rows += run.time_in_turns(operations, IN_TURNS_SECONDS, IN_TURNS_ROUNDS) if operations else []
    problem.clear()


def shapes_of(data, is_small):
    if data == "real":
        return SMALL_REAL_SHAPES if is_small else REAL_SHAPES
    return SMALL_SHAPES if is_small else SHAPES


def measure_all(run):
    for data, implementations in MEASURED.items():
        names = [name for name in implementations if run.wants(name)]
        for shape in shapes_of(data, run.is_small) if names else []:
            problem = Problem(data, shape)
            for name in names:
                if data == "zipf" and not name.startswith("tessera_exact"):  # the filter is for gradients
                    run.attempt(f"{name}/forward/bf16/{problem.title}", lambda: measure_forward(run, name, problem))
                run.attempt(f"{name}/forward_backward/bf16/{problem.title}",
                            lambda: measure_both(run, name, problem))
            if data == "zipf":
                measure_in_turns(run, [name for name in names if name in IN_TURNS], problem)
            del problem
