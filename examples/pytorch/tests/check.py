# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks tessera_torch against PyTorch on the CPU and, if there is one, a GPU. Exits with 1 if a check fails."""
import sys

import torch

import tessera_torch

failures = 0


def expect(holds, device, what):
    global failures
    print(f"{device}: {what}: {'right' if holds else 'WRONG'}")
    failures += not holds


def relative(found, expected):
    return ((found.double() - expected.double()).norm() / expected.double().norm()).item()


def check_weights(device):
    torch.manual_seed(1)
    for dtype in [torch.bfloat16, torch.float16, torch.float32]:
        weights = (0.02 * torch.randn(300, 1001)).to(dtype).to(device)
        stream = tessera_torch.compress(weights)
        back = tessera_torch.decompress(stream, weights.shape, dtype)
        tessera_torch.wait(device)
        smaller = stream.numel() < 0.95 * weights.nbytes
        expect(torch.equal(back, weights) and smaller, device,
               f"{dtype} weights come back bit for bit from {stream.numel() / weights.nbytes:.2f} of their bytes")
    stream[200:300] = 255 - stream[200:300]
    tessera_torch.decompress(stream, weights.shape, dtype)
    try:
        tessera_torch.wait(device)
        expect(False, device, "a damaged stream is reported")
    except RuntimeError:
        expect(True, device, "a damaged stream is reported")


def check_frozen(device, hidden, classifier, labels, expected):
    made = []
    backward = tessera_torch._extension.loss_backward

    def recording_backward(*arguments):
        made.append(backward(*arguments))
        return made[-1]

    tessera_torch._extension.loss_backward = recording_backward
    try:
        for wants in [(True, False), (False, True)]:
            inputs = [tensor.clone().requires_grad_(wanted) for tensor, wanted in zip((hidden, classifier), wants)]
            (3 * tessera_torch.linear_cross_entropy(*inputs, labels, exact=True)).backward()
            tessera_torch.wait(device)
            holds = all((tensor is not None and torch.equal(tensor, right)) if wanted else tensor is None
                        for tensor, right, wanted in zip(made[-1], expected[1:], wants))
            frozen = "classifier" if wants[0] else "hidden states"
            expect(holds, device, f"no gradient is made of frozen {frozen}, and the other one is the same")
    finally:
        tessera_torch._extension.loss_backward = backward


def check_loss(device):
    torch.manual_seed(2)
    tokens, vocabulary, channels = 300, 1000, 128
    hidden = torch.randn(tokens, channels).bfloat16().to(device)
    classifier = (0.2 * torch.randn(vocabulary, channels)).bfloat16().to(device)
    labels = torch.randint(vocabulary, (tokens,)).to(device)
    labels[::7] = -100
    results = {}
    for name in ["torch", "exact", "filtered"]:
        h, c = hidden.clone(), classifier.clone()
        if name == "torch":
            h, c = h.double(), c.double()
        h.requires_grad_(), c.requires_grad_()
        if name == "torch":
            loss = torch.nn.functional.cross_entropy(h @ c.T, labels)
        else:
            loss = tessera_torch.linear_cross_entropy(h, c, labels, exact=name == "exact")
        (3 * loss).backward()
        results[name] = loss.detach(), h.grad, c.grad
    tessera_torch.wait(device)
    expected = results["torch"]
    for name, limit in [("exact", 5e-3), ("filtered", 0.1)]:
        loss, of_hidden, of_classifier = results[name]
        errors = [abs(loss.item() / expected[0].item() - 1), relative(of_hidden, expected[1]),
                  relative(of_classifier, expected[2])]
        expect(errors[0] < 1e-5 and max(errors[1:]) < limit, device,
               f"{name} loss and gradients, errors {errors[0]:.1e}, {errors[1]:.1e}, {errors[2]:.1e}")
    without = tessera_torch.linear_cross_entropy(hidden, classifier, labels)
    expect(torch.equal(without, results["filtered"][0]) and not without.requires_grad, device,
           "the same loss where no gradients are asked for")
    check_frozen(device, hidden, classifier, labels, results["exact"])
    empty = torch.empty(0, channels, dtype=torch.bfloat16, device=device)
    loss = tessera_torch.linear_cross_entropy(empty, classifier, labels[:0])
    expect(loss.item() == 0, device, "the loss of no tokens is 0")


def repeated(keys, group):
    return keys.repeat_interleave(group, dim=1)


def check_attention(device):
    torch.manual_seed(3)
    q = torch.randn(2, 6, 200, 64).bfloat16().to(device)
    k, v = (torch.randn(2, 300, 2, 64).bfloat16().to(device).transpose(1, 2) for _ in range(2))  # tokens before heads
    for is_causal in [False, True]:
        mask = torch.ones(200, 300, dtype=torch.bool, device=device).tril(100) if is_causal else None
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.double(), repeated(k, 3).double(), repeated(v, 3).double(), attn_mask=mask)
        found = tessera_torch.attention(q, k, v, is_causal)
        tessera_torch.wait(device)
        error = relative(found, expected)
        expect(error < 0.05, device, f"attention, causal {is_causal}, error {error:.1e}")


def check_minicache(device):
    torch.manual_seed(4)
    layers, tokens, channels = 4, 300, 64
    first = torch.randn(2, 2, 2, tokens, channels)   # keys and values of a layer; neighbours hardly differ
    data = [(first + 0.05 * torch.randn_like(first)).bfloat16().to(device) for _ in range(layers)]
    cache = tessera_torch.MiniCache(2, 512, 2, channels, [1, 1, 2], device=device)
    cache.append([d[0][:, :, :-1] for d in data], [d[1][:, :, :-1] for d in data])
    cache.begin_token()
    for layer, (keys, values) in enumerate(data):
        q = torch.randn(2, 4, 1, channels).bfloat16().to(device)
        found = cache.write_and_attend(layer, keys[:, :, -1:], values[:, :, -1:], q)
        expected = torch.nn.functional.scaled_dot_product_attention(
            q.double(), repeated(keys, 2).double(), repeated(values, 2).double())
        tessera_torch.wait(device)
        error = relative(found, expected)
        expect(error < 0.3, device, f"attention over layer {layer} of a compressed cache, error {error:.2f}")
    cache.end_token()
    used, plain = cache.bytes()
    expect(used < plain, device, f"a cache with {plain / used:.2f} times fewer bytes, its latest tokens included")


def rotated(heads, positions, base=10000.0):
    half = heads.shape[-1] // 2
    angles = positions[:, None].double() * base ** (-torch.arange(half, device=heads.device).double() / half)
    a, b = heads.double()[..., :half], heads.double()[..., half:]
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1)


def check_shadow_kv(device):
    torch.manual_seed(5)
    tokens, heads, channels = 600, 4, 64
    directions = torch.randn(100, heads * channels) / 10
    keys = (torch.randn(tokens + 1, 100) @ directions).view(tokens + 1, heads, channels).transpose(0, 1)
    keys, values = keys.bfloat16().to(device), torch.randn(heads, tokens + 1, channels).bfloat16().to(device)
    q = torch.randn(1, 2 * heads, channels).bfloat16().to(device)
    cache = tessera_torch.ShadowKV(2 * heads, heads, channels, [tokens + 64], chunks=83, device=device)  # all chunks
    cache.prefill(0, keys[:, :tokens], values[:, :tokens])
    found = cache.decode(q, keys[None, :, tokens], values[None, :, tokens])
    positions = torch.arange(tokens + 1, device=device)
    expected = torch.nn.functional.scaled_dot_product_attention(
        rotated(q[0], positions[tokens:])[None, :, None], repeated(rotated(keys, positions)[None], 2),
        repeated(values[None], 2).double())[:, :, 0]
    tessera_torch.wait(device)
    error = relative(found, expected)
    expect(error < 0.02, device, f"a step over all chunks of a cache in 160 directions, error {error:.1e}")


def refused(device, what, words, call):
    """Expects an error of `call` in whose text all of `words` occur."""
    try:
        call()
        tessera_torch.wait(device)
        expect(False, device, f"refused, {what}")
    except (NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        first = str(error).split("\n")[0]
        expect(all(word in first for word in words), device, f"refused, {what}: {first}")


def check_refusals(device):
    def some(*shape):
        return torch.randn(shape, dtype=torch.float32).bfloat16().to(device)

    compress, attention, loss = tessera_torch.compress, tessera_torch.attention, tessera_torch.linear_cross_entropy
    refused(device, "weights in double", ["compress", "Double", "BFloat16"], lambda: compress(some(9).double()))
    stream = compress(some(9))
    refused(device, "a stream of other numbers", ["decompress", "Char", "Byte"],
            lambda: tessera_torch.decompress(stream.char(), (9,), torch.bfloat16))
    refused(device, "another shape", ["header"], lambda: tessera_torch.decompress(stream, (8,), torch.bfloat16))
    hidden, classifier, labels = some(6, 32), some(50, 32), torch.arange(6, device=device)
    for what, words, inputs in [
            ("hidden states in float", ["hidden states", "Float"], (hidden.float(), classifier, labels)),
            ("a classifier of a dimension", ["classifier", "1 dim", "2"], (hidden, classifier[0], labels)),
            ("labels in int", ["labels", "Int", "Long"], (hidden, classifier, labels.int())),
            ("labels elsewhere", ["labels", "meta", device], (hidden, classifier, labels.to("meta"))),
            ("labels of another shape", ["(6, 1)", "(6, 32)"], (hidden, classifier, labels[:, None])),
            ("other channels", ["32", "16"], (hidden, classifier[:, :16], labels)),
            ("a label that is no entry", ["label 50", "token 0"], (hidden, classifier, labels + 50)),
            ("a vocabulary of 0", ["vocabulary", "0"], (hidden, classifier[:0], labels))]:
        refused(device, what, words, lambda: loss(*inputs))
    first, = torch.autograd.grad(loss(hidden.requires_grad_(), classifier, labels), hidden, create_graph=True)
    refused(device, "a second derivative", ["gradient", "linear_cross_entropy", "backward"],
            lambda: first.sum().backward())
    strided = loss(hidden.detach(), classifier, labels.repeat_interleave(2)[::2])
    expect(torch.equal(strided, loss(hidden.detach(), classifier, labels)), device, "labels have any stride")

    q, k = some(1, 4, 20, 64), some(1, 2, 30, 64)
    for what, words, call in [
            ("queries of 3 dimensions", ["attention", "queries", "3", "4"], lambda: attention(q[0], k, k)),
            ("keys elsewhere", ["keys", "meta", device], lambda: attention(q, k.to("meta"), k)),
            ("values in half", ["values", "Half", "BFloat16"], lambda: attention(q, k, k.half())),
            ("3 query heads for 2", ["3", "2"], lambda: attention(q[:, :3], k, k)),
            ("a scale of 0", ["scale", "0"], lambda: attention(q, k, k, scale=0)),
            ("its backward pass", ["attention", "backward"],
             lambda: attention(q.clone().requires_grad_(), k, k).sum().backward())]:
        refused(device, what, words, call)
    nothing = attention(q, k[:, :, :0], k[:, :, :0])
    expect(nothing.shape == q.shape and not nothing.any(), device, "attention to no keys gives zeros")


def check_refusals_of_caches(device):
    torch.manual_seed(6)
    prompt = [torch.randn(2, 2, 70, 64).bfloat16().to(device) for _ in range(3)]
    token, q = [keys[:, :, -1:] for keys in prompt], torch.randn(2, 4, 1, 64).bfloat16().to(device)
    results = []
    for tries_wrong_calls in [False, True]:
        cache = tessera_torch.MiniCache(2, 96, 2, 64, [1, 2], device=device)
        if tries_wrong_calls:
            for what, words, keys in [("a layer in float", ["keys", "Float"], [*prompt[:2], prompt[2].float()]),
                                      ("2 layers of 3", ["3", "2"], prompt[:2]),
                                      ("a layer of other tokens", ["69", "70"], [*prompt[:2], prompt[2][:, :, 1:]])]:
                refused(device, what, ["append", *words], lambda: cache.append(keys, prompt))
            refused(device, "a token before it begins", ["begin_token"],
                    lambda: cache.write_and_attend(0, token[0], token[0], q))
        cache.append(prompt, prompt)
        cache.begin_token()
        if tries_wrong_calls:
            refused(device, "append() within a token", ["append", "0 of its 3"], lambda: cache.append(prompt, prompt))
            refused(device, "a token of 1 layer", ["end_token", "0", "3"], cache.end_token)
            for layer in [1, -1, 1 << 32]:
                refused(device, f"layer {layer} before layer 0", [f"layer {layer} ", "next", "0"],
                        lambda: cache.write_and_attend(layer, token[0], token[0], q))
        results.append([cache.write_and_attend(layer, token[layer], token[layer], q) for layer in range(3)])
        cache.end_token()
        tessera_torch.wait(device)
        results[-1].append(torch.tensor(cache.bytes()))
    expect(all(torch.equal(*both) for both in zip(*results)), device, "refused calls leave a cache as it was")
    refused(device, "more tokens than there is room for", ["97", "96"],
            lambda: cache.append(*2 * [[keys[:, :, :26] for keys in prompt]]))

    for what, words, changed in [("-1 chunks", ["-1"], {"chunks": -1}), ("63 channels", ["63"], {"channels": 63}),
                                 ("no sequence", ["0 seq"], {"tokens": []}),
                                 ("a base of 0", ["base", "0"], {"rotary_base": 0})]:
        shape = {"query_heads": 4, "key_heads": 2, "channels": 64, "tokens": [200], "device": device, **changed}
        refused(device, what, words, lambda: tessera_torch.ShadowKV(**shape))
    cache = tessera_torch.ShadowKV(4, 2, 64, [200], device=device)
    keys = prompt[0][0]
    refused(device, "keys in float", ["prefill", "keys", "Float"], lambda: cache.prefill(0, keys.float(), keys))
    refused(device, "sequence 1 of 1", ["1"], lambda: cache.prefill(1, keys, keys))
    cache.prefill(0, keys, keys)
    refused(device, "queries of 4 dimensions", ["decode", "queries", "4", "3"],
            lambda: cache.decode(q[:1], token[0][:1, :, 0], token[0][:1, :, 0]))


def main():
    for device in ["cpu"] + (["cuda"] if torch.cuda.is_available() else []):
        for check in [check_weights, check_loss, check_attention, check_minicache, check_shadow_kv,
                      check_refusals, check_refusals_of_caches]:
            check(device)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
