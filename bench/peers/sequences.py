# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Losses of sequences' log-probabilities, both passes, of this library and of others, for run.py: DPO's preferences and
GRPO's policy gradient (examples/papers has both as C++ programs).

Implementations, each with its usual settings:

tessera              this library's linear_log_probabilities, exact, and the objective by PyTorch's operations
tessera_4gib         the same with up to 4 GiB of memory from the forward pass to the backward pass
torch_eager          all logits at once by PyTorch's operations one by one: a label's logit less the log-sum-exp
torch_compile        the same, compiled
torch_chunks         compiled for 1024 tokens at a time, as trainers in PyTorch do, whose logits the backward pass
                     makes again
torch_chunks_kept    the same with logits that are kept
liger                Liger Kernel's fused linear losses, DPO's and GRPO's, compiled, by one pair or sequence at a time

Tokens are sequences of 1024, the first half of which were chosen in DPO, and the others rejected. Hidden states are
N(0, 1), the classifier N(0, 1) times 2.4 over the root of the channels, labels drawn from the softmax. DPO has no
reference model, or one whose log-probabilities are 0: Liger Kernel's makes a reference's logits itself, which others
are given. GRPO is given log-probabilities of the old policy and of a reference, the exact ones with noise, and an
advantage for each sequence. `extra_MiB` is the most memory that PyTorch's allocator held beyond inputs and gradients.
Losses are compared with those in fp32; errors of gradients are lengths, relative to those of exact ones in fp32.
"""
import importlib
import math

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from losses import SHAPES, SMALL_SHAPES
from measuring import DEVICE, SEED, require_close, tessera

KINDS = ["preference", "policy"]
SEQUENCE, SMALL_SEQUENCE = 1024, 50
BETA, CLIP, KL_FACTOR = 0.1, 0.2, 0.04
CHUNK = 1024
WANTED_SECONDS, SAMPLES = 0.2, (4, 15)
LARGEST_ERROR = 3e-2  # relative; logits are rounded to bf16 in some, and a margin is a sum over a sequence


class Problem:
    """Sequences, what an objective is given beside them, and the exact losses with their gradients in fp32."""

    def __init__(self, shape, is_small=False):
        tokens, vocabulary, channels = (int(extent) for extent in shape.split("x"))
        torch.manual_seed(SEED)
        self.title = f"spread/{shape}"
        self.sequence = SMALL_SEQUENCE if is_small else SEQUENCE
        self.hidden = torch.randn(tokens, channels, device=DEVICE, dtype=torch.bfloat16)
        self.classifier = torch.empty(vocabulary, channels, device=DEVICE, dtype=torch.bfloat16)
        for part in self.classifier.split(16384):
            part.copy_(torch.randn(part.shape, device=DEVICE) * (2.4 / math.sqrt(channels)))
        self.labels = torch.cat([torch.multinomial(torch.softmax((part @ self.classifier.T).float(), 1), 1).flatten()
                                 for part in self.hidden.split(512)])
        exact = torch.cat([log_probabilities(part.float(), self.classifier.float(), labels)
                           for part, labels in zip(self.hidden.split(512), self.labels.split(512))])
        self.old = self.in_sequences(exact + 0.1 * torch.randn(tokens, device=DEVICE))
        self.reference = self.in_sequences(exact + 0.3 * torch.randn(tokens, device=DEVICE))
        self.advantages = 0.5 + torch.rand(len(self.old), device=DEVICE)
        self.find_exact(exact)
        self.hidden.requires_grad_()
        self.classifier.requires_grad_()

    def in_sequences(self, tokens):
        return tokens.view(-1, self.sequence)

    def objective(self, kind, found):
        """The loss of tokens' log-probabilities."""
        found = self.in_sequences(found)
        if kind == "preference":
            chosen, rejected = found.sum(1).chunk(2)
            return -F.logsigmoid(BETA * (chosen - rejected)).mean()
        ratio, apart = torch.exp(found - self.old), self.reference - found
        gain = torch.min(ratio * self.advantages[:, None],
                         ratio.clamp(1 - CLIP, 1 + CLIP) * self.advantages[:, None])
        return (KL_FACTOR * (apart.exp() - apart - 1) - gain).mean(1).mean()

    def find_exact(self, found):
        self.exact = {}
        for kind in KINDS:
            leaf = found.clone().requires_grad_()
            loss = self.objective(kind, leaf)
            loss.backward()
            self.exact[kind] = float(loss.detach()), leaf.grad

    def exact_gradients(self, kind):
        """Of hidden states and classifier, in fp32."""
        classifier, by_tokens = self.classifier.detach().float(), self.exact[kind][1]
        of_hidden, of_classifier = [], torch.zeros_like(classifier)
        for some in torch.arange(len(self.labels), device=DEVICE).split(512):
            hidden = self.hidden.detach()[some].float()
            gradient = -torch.softmax(hidden @ classifier.T, 1)
            gradient[torch.arange(len(some), device=DEVICE), self.labels[some]] += 1
            gradient *= by_tokens[some, None]
            of_hidden.append(gradient @ classifier)
            of_classifier.addmm_(gradient.T, hidden)
        return torch.cat(of_hidden), of_classifier

    def errors(self, kind):
        """Of the gradients that a call has left."""
        found = self.hidden.grad, self.classifier.grad
        return {f"{name}_error": float((grad.float() - exact).norm() / exact.norm())
                for name, grad, exact in zip(["hidden", "classifier"], found, self.exact_gradients(kind))}

    def clear(self):
        self.hidden.grad = self.classifier.grad = None

    def gradient_bytes(self):
        return sum(t.grad.numel() * t.grad.element_size() for t in (self.hidden, self.classifier) if t.grad is not None)


def log_probabilities(hidden, classifier, labels):
    logits = hidden @ classifier.T
    return logits.gather(1, labels[:, None])[:, 0].float() - torch.logsumexp(logits.float(), 1)


# Functions of a kind and a problem that return functions without arguments, which give the loss.


def of_log_probabilities(found_by):
    """An implementation that gives tokens' log-probabilities, to which the objective is applied."""
    def made(kind, problem):
        find = found_by()
        return lambda: problem.objective(kind, find(problem.hidden, problem.classifier, problem.labels))

    return made


def ours(**options):
    def found_by():
        module = tessera()
        return lambda *operands: module.linear_log_probabilities(*operands, filter_eps=None, **options)

    return of_log_probabilities(found_by)


def compiled():
    torch._dynamo.reset()
    return torch.compile(log_probabilities, fullgraph=True, dynamic=False)


def chunks(are_kept):
    def found_by():
        of_chunk = compiled()

        def of_some(hidden, classifier, labels):
            if are_kept:
                return of_chunk(hidden, classifier, labels)
            return checkpoint(of_chunk, hidden, classifier, labels, use_reentrant=False)

        return lambda hidden, classifier, labels: torch.cat(
            [of_some(own, classifier, some) for own, some in zip(hidden.split(CHUNK), labels.split(CHUNK))])

    return of_log_probabilities(found_by)


def liger(kind, problem):
    torch._dynamo.reset()
    package = importlib.import_module("liger_kernel.chunked_loss")
    shape = len(problem.old), problem.sequence
    labels = problem.labels.view(shape)
    if kind == "preference":
        loss = package.LigerFusedLinearDPOLoss(beta=BETA, use_ref_model=False)
        return lambda: loss(problem.classifier, problem.hidden.view(*shape, -1), labels)[0]
    loss = package.LigerFusedLinearGRPOLoss(beta=KL_FACTOR, epsilon_low=CLIP, epsilon_high=CLIP, loss_type="grpo",
                                            use_ref_model=True)
    mask = torch.ones(shape, device=DEVICE)
    return lambda: loss(problem.hidden.view(*shape, -1), problem.classifier, labels, mask, problem.advantages,
                        ref_per_token_logps=problem.reference, old_per_token_logps=problem.old)[0]


IMPLEMENTATIONS = {
    "tessera": ours(), "tessera_4gib": ours(workspace_bytes=4 << 30),
    "torch_eager": of_log_probabilities(lambda: log_probabilities), "torch_compile": of_log_probabilities(compiled),
    "torch_chunks": chunks(False), "torch_chunks_kept": chunks(True), "liger": liger}


def measure_both(run, name, kind, problem):
    def counters_of(result):
        return {"loss": require_close(name, "loss", result, problem.exact[kind][0], LARGEST_ERROR),
                **problem.errors(kind)}

    return run.time_passes(f"{name}/{kind}/forward_backward/bf16/{problem.title}",
                           IMPLEMENTATIONS[name](kind, problem), problem, counters_of, WANTED_SECONDS, SAMPLES)


def measure_all(run):
    names = [name for name in IMPLEMENTATIONS if run.wants(name)]
    for shape in (SMALL_SHAPES if run.is_small else SHAPES) if names else []:
        problem = Problem(shape, run.is_small)
        for kind in KINDS:
            for name in names:
                run.attempt(f"{name}/{kind}/forward_backward/bf16/{problem.title}",
                            lambda: measure_both(run, name, kind, problem))
        del problem
