#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of what needs no GPU and no peer: `python3 bench/peers/test_peers.py`. Skipped where PyTorch is missing."""
import json
import math
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
try:
    import torch
except ModuleNotFoundError:
    torch = None
else:
    import attention
    import attention_problem
    import distillation
    import losses
    import measuring
    import run
    import sequences


@unittest.skipIf(torch is None, "PyTorch is not installed")
class PeersTest(unittest.TestCase):
    def test_attention_of_the_problem_is_that_of_pytorch_in_double(self):
        for data in attention_problem.DATA:
            problem = attention_problem.Problem(data, 128, "small", 2, 3, 150)
            for is_causal in (False, True):
                exact = torch.nn.functional.scaled_dot_product_attention(
                    *(x.double() for x in (problem.queries, problem.keys, problem.values)), is_causal=is_causal)
                found = problem.errors(exact, is_causal)
                self.assertLess(found["relative_l1"], 1e-12)
                self.assertAlmostEqual(found["cosine"], 1)
                self.assertGreater(problem.errors(exact * 1.01, is_causal)["relative_l1"], 0.0099)

    def test_errors_of_another_shape_are_refused(self):
        problem = attention_problem.Problem("normal", 64, "small", 1, 2, 100)
        with self.assertRaisesRegex(RuntimeError, "the result is"):
            problem.errors(problem.queries.transpose(1, 2), False)

    def test_offsets_lie_where_they_should(self):
        problem = attention_problem.Problem("offset", 128, "small", 4, 16, 2000)
        keys = problem.keys.float().mean(2)
        away = keys.abs() > 0.15  # means of 2000 normal numbers have a deviation of 0.022
        self.assertAlmostEqual(float(away.float().mean()), 0.06, delta=0.015)
        self.assertAlmostEqual(float(keys[away].std()), 4.0, delta=0.5)
        values = problem.values.float().mean(2)
        self.assertAlmostEqual(float(values.std()), 0.5, delta=0.03)
        plain = attention_problem.Problem("normal", 128, "small", 4, 16, 2000)
        self.assertLess(float(plain.keys.float().mean(2).abs().max()), 0.15)

    def test_real_heads_are_the_models_again_and_again(self):
        tensors = measuring.tensors_of("smollm2_attention.safetensors")
        keys, queries = tensors["layers.15.keys_post_rope"], tensors["layers.15.queries_post_rope"]
        problem = attention_problem.Problem("real", 64, "small", 2, 5, 1100)
        for head, (query, key) in enumerate([(0, 0), (3, 1), (6, 2), (1, 0), (4, 1)]):
            self.assertTrue(torch.equal(problem.keys[1, head, :512].cpu(), keys[key]), head)
            self.assertTrue(torch.equal(problem.queries[0, head, :512].cpu(), queries[query]), head)
        self.assertTrue(torch.equal(problem.keys[0, 0, 512:1024].cpu(), keys[0]))
        wide = attention_problem.Problem("real", 128, "small", 1, 2, 512)
        self.assertTrue(torch.equal(wide.keys[0, 0].cpu(), torch.cat([keys[0], keys[1]], -1)))
        self.assertTrue(torch.equal(wide.queries[0, 1].cpu(), torch.cat([queries[3], queries[6]], -1)))

    def test_titles_of_the_usual_data_are_as_they_were(self):
        offset, normal = (attention_problem.Problem(data, 64, "4k", 1, 1, 10) for data in ["offset", "normal"])
        self.assertEqual(offset.title(True), "bf16/d64/4k/causal")
        self.assertEqual(normal.title(False), "bf16/d64/4k/normal")
        self.assertEqual(normal.title(True), "bf16/d64/4k/causal/normal")

    def test_codes_of_e4m3_use_all_of_the_range(self):
        heads = torch.randn(2, 3, 100, 64, dtype=torch.bfloat16) * torch.tensor([1e-3, 1, 50])[:, None, None]
        codes, factor = attention.rounded_to_e4m3(heads.bfloat16(), True)
        self.assertEqual(factor.shape, (2, 3, 1, 1))
        self.assertTrue(bool((codes.float().abs().amax((2, 3)) == attention.LARGEST_E4M3).all()))
        self.assertLess(float((codes.float() * factor - heads).norm() / heads.norm()), 0.04)
        codes, factor = attention.rounded_to_e4m3(heads.bfloat16(), False)
        self.assertEqual(factor.shape, (1, 1, 1, 1))
        self.assertEqual(float(codes.float().abs().max()), attention.LARGEST_E4M3)
        back = attention.in_bf16(codes, factor)
        self.assertEqual((back.dtype, back.shape), (torch.bfloat16, heads.shape))
        self.assertLess(float((back.float() - heads).norm() / heads.norm()), 0.04)
        zeros, _ = attention.rounded_to_e4m3(torch.zeros(1, 1, 4, 4, dtype=torch.bfloat16), False)
        self.assertEqual(float(zeros.float().abs().max()), 0)

    def test_exact_gradients_are_those_of_autograd(self):
        for data, shape in [("zipf", "64x200x32"), ("real", "300x512x576")]:
            problem = losses.Problem(data, shape)
            hidden, classifier = (x.detach().double().requires_grad_() for x in (problem.hidden, problem.classifier))
            loss = torch.nn.functional.cross_entropy(hidden @ classifier.T, problem.labels)
            loss.backward()
            self.assertAlmostEqual(float(loss.detach()), problem.exact_loss, places=5)
            for exact, found in [(hidden.grad, problem.exact_hidden), (classifier.grad, problem.exact_classifier)]:
                self.assertLess(float((exact - found).norm() / exact.norm()), 1e-5)

    def test_the_real_loss_is_below_the_models_own_over_all_rows(self):
        tensors = measuring.tensors_of("smollm2_classifier.safetensors")
        problem = losses.Problem("real", "256x512x576")
        self.assertLess(problem.exact_loss, float(tensors["loss_all_rows"].mean()))
        self.assertGreater(problem.exact_loss, 0.5 * float(tensors["loss_all_rows"].mean()))

    def test_a_loss_is_refused_where_it_is_further_away_than_its_type_explains(self):
        problem = losses.Problem("real", "256x512x576")
        exact = problem.exact_loss
        self.assertAlmostEqual(losses.right_loss("torch_eager", 1.001 * exact, problem)["loss_error"], 0.001)
        self.assertAlmostEqual(losses.right_loss("torch_native", 0.99 * exact, problem)["loss_error"], 0.01)
        for name, factor in [("torch_eager", 1.01), ("torch_native", 0.97), ("torch_native_chunked", math.nan)]:
            with self.assertRaisesRegex(RuntimeError, f"{name}: the loss is .* but should be"):
                losses.right_loss(name, factor * exact, problem)

    def test_nothing_is_measured_in_turns_once_the_time_is_over(self):
        some = measuring.Run(-1, True)
        losses.measure_in_turns(some, ["torch_eager"], losses.Problem("real", "256x512x576"))
        self.assertIn("the time of all is over", some.rows[0]["error_message"])

    def test_a_newer_pytorchs_loss_is_measured_under_one_that_has_none(self):
        files = {
            "version.py": "__version__ = '2.99.1'",
            "nn/modules/linear_cross_entropy_options.py": "class LinearCrossEntropyOptions:\n    rows = 100",
            "nn/modules/linear_cross_entropy.py": """
import torch
def in_chunks(input, weight, target, rows):
    parts = [torch.nn.functional.cross_entropy((some @ weight.T).float(), labels, reduction="sum")
             for some, labels in zip(input.split(rows), target.split(rows))]
    return sum(parts) / len(target)
""", "nn/functional.py": """
import math
from torch.nowhere import nothing
def _linear_cross_entropy_logits(input, weight):
    return linear(input, weight) * math.exp(0)
def linear_cross_entropy(input, linear_weight, target, *, options=None):
    if options is None:
        return cross_entropy(_linear_cross_entropy_logits(input, linear_weight), target)
    from torch.nn.modules.linear_cross_entropy import in_chunks
    return in_chunks(input, linear_weight, target, options.rows)
raise RuntimeError("other parts are not run")
"""}
        with tempfile.TemporaryDirectory() as folder:
            wheel, out = Path(folder, "torch-2.99.1-py3-none-any.whl"), Path(folder, "peers.json")
            with zipfile.ZipFile(wheel, "w") as archive:
                for name, text in files.items():
                    archive.writestr(f"torch/{name}", text)
            command = [sys.executable, run.__file__, "--small", "--parts", "losses", "--only", *losses.NATIVE,
                       "--native-loss", str(wheel), "--out", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            if hasattr(torch.nn.functional, "linear_cross_entropy"):
                self.assertIn("has its own linear_cross_entropy", done.stderr)
                return
            self.assertEqual(done.returncode, 0, done.stderr)
            content = json.loads(out.read_text())
            with zipfile.ZipFile(wheel, "w") as archive:
                archive.writestr("torch/version.py", files["version.py"])
            without = subprocess.run(command, capture_output=True, text=True)
        self.assertIn("has no torch/nn/functional.py", without.stderr)
        self.assertEqual(content["context"]["linear_cross_entropy"], "2.99.1's Python files")
        rows, small = {row["name"]: row for row in content["benchmarks"]}, "bf16/zipf/300x1000x128"
        for who, error in [("torch_native", 0.02), ("torch_native_chunked", 1e-3)]:
            for how in ["forward_backward", "in_turns/forward_backward"]:
                self.assertLess(rows[f"{who}/{how}/{small}"]["loss_error"], error)
        in_cute = rows[f"torch_native_cute/forward_backward/{small}"]
        self.assertIn("kernel in CuTe DSL is not in use", in_cute["error_message"])

    def test_divergences_are_those_of_their_definitions_in_double(self):
        problem = distillation.Problem("30x50x16")
        own, other = (torch.log_softmax(hidden.detach().double() @ classifier.detach().double().T, -1)
                      for hidden, classifier in [(problem.hidden, problem.classifier),
                                                 (problem.teacher_hidden, problem.teacher_classifier)])
        mixed = torch.log((own.exp() + other.exp()) / 2)
        expected = {"forward_kl": (other.exp() * (other - own)).sum(-1).mean(),
                    "jensen_shannon": (other.exp() * (other - mixed) + own.exp() * (own - mixed)).sum(-1).mean() / 2}
        for kind in distillation.KINDS:
            self.assertAlmostEqual(problem.exact[kind], float(expected[kind]), places=5)
            found = float(distillation.torch_eager(kind)(*problem.operands()).detach())
            self.assertLess(abs(found - problem.exact[kind]), 1e-2 * problem.exact[kind])

    def test_objectives_of_sequences_are_those_of_their_definitions_in_double(self):
        problem = sequences.Problem("200x90x16", is_small=True)
        hidden, classifier = (x.detach().double().requires_grad_() for x in (problem.hidden, problem.classifier))
        found = torch.log_softmax(hidden @ classifier.T, -1)[range(200), problem.labels].view(4, 50)
        margins = sequences.BETA * (found[:2].sum(1) - found[2:].sum(1))
        ratios, apart = torch.exp(found - problem.old), problem.reference - found
        gains = [min(float(r) * float(a), min(max(float(r), 0.8), 1.2) * float(a))
                 for row, a in zip(ratios.detach(), problem.advantages) for r in row]
        penalties = sequences.KL_FACTOR * (apart.exp() - apart - 1).mean()
        expected = {"preference": float(torch.log1p(torch.exp(-margins)).mean().detach()),
                    "policy": float(penalties.detach()) - sum(gains) / 200}
        for kind in sequences.KINDS:
            self.assertAlmostEqual(problem.exact[kind][0], expected[kind], places=4)
            gradients = torch.autograd.grad(problem.objective(kind, found.flatten()), (hidden, classifier),
                                            retain_graph=True)
            for gradient, exact in zip(gradients, problem.exact_gradients(kind)):
                self.assertLess(float((gradient - exact).norm() / exact.norm()), 1e-4)

    def test_chunks_of_sequences_have_the_loss_and_gradients_of_all_logits(self):
        problem = sequences.Problem("200x90x16", is_small=True)
        for kind in sequences.KINDS:
            loss = sequences.IMPLEMENTATIONS["torch_eager"](kind, problem)()
            loss.backward()
            self.assertLess(abs(float(loss.detach()) - problem.exact[kind][0]), 0.03 * abs(problem.exact[kind][0]))
            self.assertTrue(all(error < 0.05 for error in problem.errors(kind).values()), problem.errors(kind))
            problem.clear()

    def test_every_implementation_is_measured_and_a_missing_one_gives_its_reason(self):
        self.assertEqual(losses.MEASURED["zipf"], list(losses.IMPLEMENTATIONS))
        self.assertEqual(losses.MEASURED["real"], list(losses.IMPLEMENTATIONS))
        some = measuring.Run(1e9, True, only=["nothing/by/this"])
        some.attempt("nothing/by/this/name", lambda: 1)
        self.assertEqual(some.rows, [])
        some = measuring.Run(1e9, True)
        some.attempt("peer/forward/x", lambda: __import__("no_such_package"))
        self.assertEqual(len(some.rows), 1)
        self.assertTrue(some.rows[0]["error_occurred"])
        self.assertEqual(some.rows[0]["run_name"], "peer/forward/x")
        self.assertIn("no_such_package", some.rows[0]["error_message"])

    def test_an_implementation_that_takes_too_long_is_stopped_and_not_begun_again(self):
        some = measuring.Run(1e9, True, limit_of_each=0.2)
        start = time.monotonic()
        some.attempt("slow/a", lambda: time.sleep(20))
        self.assertLess(time.monotonic() - start, 5)
        some.attempt("slow/b", lambda: self.fail("it was begun"))
        some.attempt("quick/a", lambda: [{"name": "quick/a"}])
        self.assertIn("time is over", some.rows[0]["error_message"])
        self.assertIn("0 seconds are over", some.rows[1]["error_message"])
        self.assertEqual(some.rows[2], {"name": "quick/a"})
        some.begin_part()
        some.attempt("slow/c", lambda: [{"name": "slow/c"}])
        self.assertEqual(some.rows[3], {"name": "slow/c"})

    def test_calls_in_turns_change_their_order_and_each_has_its_rows(self):
        some, calls = measuring.Run(1e9, False), []
        def call(name, seconds):
            def run_it():
                calls.append(name)
                time.sleep(seconds)
            return run_it
        rows = some.time_in_turns({"quick/x": (call("quick", 0.001), {"loss": 1.0}),
                                   "slow/x": (call("slow", 0.004), {})}, 0.01, (3, 3))
        rounds = [tuple(calls[i:i + 2]) for i in range(4, len(calls), 2)]  # two calls of each say how many there are
        self.assertEqual(len(rounds), 3 * measuring.REPETITIONS)
        self.assertEqual(set(rounds), {("quick", "slow"), ("slow", "quick")})
        self.assertEqual([row["name"] for row in rows], ["quick/x", "slow/x"] * measuring.REPETITIONS)
        self.assertTrue(all(row["loss"] == 1.0 for row in rows[::2]))
        self.assertTrue(all(0.9 <= row["ms"] < slow["ms"] for row, slow in zip(rows[::2], rows[1::2])))

    def test_a_reason_is_told_once(self):
        told = run.told(["a/x: Missing: no", "a/y: Missing: no", "b/x: Missing: no"])
        self.assertEqual(told, ["not measured: a: Missing: no (a/x, a/y)", "not measured: b: Missing: no (b/x)"])

    def test_folders_and_wheels_become_importable_with_the_paths_that_they_add(self):
        with tempfile.TemporaryDirectory() as folder:
            package = Path(folder, "given", "site-packages")
            Path(package, "inner").mkdir(parents=True)
            Path(package, "inner", "tessera_test_of_paths.py").write_text("here = 1\n")
            Path(package, "added.pth").write_text("inner\n")
            before = list(sys.path)
            try:
                measuring.use_packages([package], folder)
                self.assertEqual(__import__("tessera_test_of_paths").here, 1)
            finally:
                sys.path[:] = before

    def test_a_small_run_writes_rows_and_failures_that_the_report_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "peers.json")
            done = subprocess.run([sys.executable, str(Path(run.__file__)), "--small", "--parts", "weights",
                                   "attention", "losses", "sequences", "papers", "--only", "flash2", "torch_eager",
                                   "torch_native", "fa3_fp8", "nvcomp_ans", "cublas", "torch_fused", "--out", str(out)],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            content = json.loads(out.read_text())
        rows = {}
        for row in content["benchmarks"]:
            rows.setdefault(row["name"], []).append(row)
        for kind in sequences.KINDS:  # at a clip's edge rounded logits say which tokens count
            row = rows[f"torch_eager/{kind}/forward_backward/bf16/spread/300x1000x128"][0]
            self.assertLess(row["hidden_error"], 0.15)
        for name in ["cublas/papers/weight_only_linear/3x128x256", "flash2/papers/kivi_decode/2x70",
                     "torch_eager/papers/softmax_top_k/3x100x8", "torch_eager/papers/distillation_loss/20x300x64"]:
            self.assertLess(rows[name][0]["error"], 0.02, name)
        self.assertIn("torch_fused/papers/eight_bit_adam/1000", rows)
        names = ["flash2/forward/bf16/d128/small", "flash2/forward/bf16/d256/small/causal/real",
                 "torch_eager/forward/bf16/zipf/300x1000x128", "torch_eager/forward_backward/bf16/real/256x512x576"]
        for name in names:
            self.assertEqual(len(rows[name]), measuring.REPETITIONS, name)
            self.assertGreater(rows[name][0]["ms"], 0)
        for error in ["relative_l1", "cosine", "TFLOPs"]:
            self.assertTrue(math.isfinite(rows[names[0]][0][error]))
        self.assertLess(rows[names[3]][0]["hidden_error"], 0.05)
        self.assertTrue(rows["fa3_fp8/forward/bf16/d64/small/normal"][0]["error_message"])
        for title in ["bf16/gauss", "fp16/gauss", "fp32/gauss", "bf16/minilm"]:
            self.assertIn(f"nvcomp_ans/decode/{title}/1MiB", rows)
        self.assertEqual(content["context"]["seed"], measuring.SEED)


if __name__ == "__main__":
    unittest.main()
