#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of report.py on made-up results in a temporary folder: `python3 bench/test_report.py`."""
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report
import report_contents
import report_exchanges
import report_overview

CONTEXT = {"date": "2026-01-02T03:04:05+00:00", "host_name": "secret", "executable": "/home/someone/tessera_bench",
           "load_avg": [1.0], "gpu": "Some GPU", "driver": "1.2.3", "cuda_runtime": "13.0",
           "commit": "0123456789abcdef", "copy_tbps": "4.2", "cpu": "Some CPU", "compiler": "gcc 12"}


def rows(name, **counters):
    """Three repetitions and their aggregates; the second repetition holds the medians."""
    run = {"name": name + "/iterations:1/manual_time", "run_name": name + "/iterations:1/manual_time", "iterations": 1,
           "real_time": 1.0, "time_unit": "us"}
    out = [{**run, "run_type": "iteration", "repetition_index": i, **{k: v * f for k, v in counters.items()}}
           for i, f in enumerate((0.5, 1.0, 3.0))]
    mean = {**run, "run_type": "aggregate", "aggregate_name": "mean", **{k: v * 1.5 for k, v in counters.items()}}
    return out + [mean]


def needed():
    """Rows for everything in FIGURES, with a different rate for each benchmark."""
    counters = {}
    for _, counter, names in report_contents.FIGURES.values():
        for name in names:
            counters.setdefault(name, {})[counter] = round(1 + 0.01 * len(counters), 2)
    counters["neuzip/decode/bf16/gauss/512MiB"].update(TBps=2.0, of_copy=0.8, peak_MiB=1234.0)
    counters["neuzip/decode/bf16/gauss/32x32MiB"].update(TBps=1.9)
    return {name: rows(name, **values) for name, values in counters.items()}


def keys(*more):
    """The figures that every summary has."""
    return set(report_contents.FIGURES) | set(report_contents.AWAITED) | set().union(*more)


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.results = self.root / "bench" / "results"
        self.results.mkdir(parents=True)
        (self.root / "README.md").write_text(
            "Before\n<!-- bench:neuzip begin -->\nold\n<!-- bench:neuzip end -->\nAfter\n")

    def write(self, benchmarks, file="run.json"):
        path = self.results / file
        path.write_text(json.dumps({"context": CONTEXT, "benchmarks": sum(benchmarks.values(), [])}))
        return path

    def report(self, *arguments):
        """Runs report.py, and returns (exit code, everything printed)."""
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = report.main(["--root", str(self.root), *arguments])
        return code, text.getvalue()

    def summary(self):
        return json.loads((self.results / "summary.json").read_text())

    def test_the_summary_holds_the_medians_under_every_key(self):
        self.write(needed())
        self.assertEqual(self.report()[0], 0)
        self.assertEqual(set(self.summary()), keys())
        self.assertEqual(self.summary()["neuzip.decode.bf16.tbps"], 2.0)
        self.assertEqual(self.summary()["neuzip.batched_over_single"], 0.95)

    def test_figures_of_a_file_are_needed_where_the_file_is(self):
        figures = report_contents.FIGURES_OF_FILE["shadow_kv.json"]
        counters = {}
        for _, counter, names in figures.values():
            counters.setdefault(names[0], {})[counter] = 2.5
        self.write(needed())
        self.write({name: rows(name, **values) for name, values in counters.items()}, "shadow_kv.json")
        self.assertEqual(self.report()[0], 0)
        self.assertEqual(set(self.summary()), keys(figures))
        self.assertEqual(self.summary()["shadow.decode.host.hit60.speedup"], 2.5)
        del counters["shadow/score/128k"]
        self.write({name: rows(name, **values) for name, values in counters.items()}, "shadow_kv.json")
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn("shadow.score.read_fraction: there is no result of shadow/score/128k", text)

    def test_the_table_of_exchanges_has_the_rows_with_all_of_their_results(self):
        self.assertEqual(report_exchanges.exchanges({}), "Not measured yet.")
        page = self.root / "docs" / "exchanges.md"
        page.parent.mkdir()
        page.write_text("<!-- bench:exchanges begin -->\n<!-- bench:exchanges end -->\n")
        name = "exchange/attention/{}/bf16/d128/16k".format
        measured = {name("bias_function/forward"): 0.581, name("bias_function/codes"): 0.57,
                    name("dense_bias/forward"): 0.77}
        self.write({**needed(), **{key: rows(key, of_alias=value) for key, value in measured.items()}})
        self.assertEqual(self.report()[0], 0)
        self.assertIn("| **0.58**, over codes 0.57 of `sage_attention2`", page.read_text())
        self.assertNotIn("dense_bias", page.read_text())

    def test_papers_stand_beside_the_fastest_peer_that_was_measured(self):
        page = self.root / "examples" / "papers" / "README.md"
        page.parent.mkdir(parents=True)
        page.write_text("<!-- bench:papers begin -->\n<!-- bench:papers end -->\n")
        self.write({**needed(), **{name: rows(name, ms=ms, error=0.00237, TBps=3.0) for name, ms in [
            ("papers/kivi_decode/384_key_heads_8256_tokens", 0.398), ("flash2/papers/kivi_decode/384x8256", 0.41),
            ("cudnn/papers/kivi_decode/384x8256", 0.395), ("papers/softmax_top_k/4096_x_128256_top_8", 2.0)]}})
        self.assertEqual(self.report()[0], 0)
        text = page.read_text()
        self.assertIn("8 key heads, 2 bits | 0.0024 | 0.398 | 3.00 | – | cuDNN over bf16 | 0.395 |", text)
        self.assertIn("| `softmax_top_k` | 4096 x 128256, top 8 | 0.0024 | 2.00 | 3.00 | – | – | – |", text)
        self.assertNotIn("preference_loss", text)

    def test_the_copy_figure_is_that_of_the_faster_copy(self):
        results = needed()
        results["machine/copy/memcpy/2GiB"] = rows("machine/copy/memcpy/2GiB", TBps=4.0)
        results["machine/copy/kernel/2GiB"] = rows("machine/copy/kernel/2GiB", TBps=4.25)
        self.write(results)
        self.report()
        self.assertEqual(self.summary()["machine.copy.tbps"], 4.25)

    def test_a_file_of_aggregates_alone_gives_its_median(self):
        results = needed()
        for name, several in results.items():
            middle = {**several[1], "run_type": "aggregate", "aggregate_name": "median"}
            results[name] = [several[-1], middle]
        self.write(results)
        self.assertEqual(self.report()[0], 0)
        self.assertEqual(self.summary()["neuzip.decode.bf16.tbps"], 2.0)

    def test_the_readme_changes_between_the_marks_only(self):
        self.write(needed())
        self.report()
        text = (self.root / "README.md").read_text()
        self.assertTrue(text.startswith("Before\n<!-- bench:neuzip begin -->\n| weights N(0, 0.02) "))
        self.assertTrue(text.endswith("<!-- bench:neuzip end -->\nAfter\n"))
        self.assertIn("| decode bf16, 512 MiB | 2.00 | 2.50 | 80% | 1.00 | – | 1,234 |", text)
        self.assertIn("Some GPU, driver 1.2.3, CUDA 13.0, commit 0123456789ab, 2026-01-02", text)
        self.assertNotIn("old", text)

    def overview_of(self, *files):
        """The README's first page for these results and the needed ones."""
        (self.root / "README.md").write_text("<!-- bench:overview begin -->\n<!-- bench:overview end -->\n")
        self.write(needed())
        for i, benchmarks in enumerate(files):
            self.write_of_peers(benchmarks, f"peers{i}.json")
        code, text = self.report()
        self.assertEqual(code, 0, text)
        return (self.root / "README.md").read_text()

    def write_of_peers(self, benchmarks, file="peers.json"):
        path = self.write(benchmarks, file)
        content = json.loads(path.read_text())
        content["context"]["executable"] = "peers/run.py"
        path.write_text(json.dumps(content))

    def test_a_figure_that_is_awaited_is_null_and_told_until_there_is_a_result(self):
        self.write(needed())
        code, text = self.report()
        self.assertEqual(code, 0)
        key, name = "peer.fa3_fp8.d128.16k.tflops", "fa3_fp8/codes/bf16/d128/16k"
        self.assertIn(f"not measured: {key}: there is no result of {name}", text)
        self.assertIn(f'"{key}": null', (self.results / "summary.json").read_text())
        self.write_of_peers({name: rows(name, TFLOPs=800.0)})
        self.assertNotIn(key, self.report()[1])
        self.assertEqual(self.summary()[key], 800.0)

    def test_of_two_settings_of_a_peer_the_faster_one_counts_and_one_is_enough(self):
        self.write(needed())
        one, two = (f"{who}/forward/bf16/d128/16k" for who in ["sage2", "sage2_warps"])
        for names, rate in [([one], 600.0), ([one, two], 700.0)]:
            self.write_of_peers({name: rows(name, TFLOPs=600.0 + 100.0 * (name == two)) for name in names})
            self.report()
            self.assertEqual(self.summary()["peer.sage2.d128.16k.tflops"], rate)

    def test_a_peer_that_did_not_run_is_no_error_but_this_library_beside_it_is(self):
        def failed(name, message="ModuleNotFoundError: No module named 'it'"):
            return [{"name": name, "run_name": name, "run_type": "iteration", "error_occurred": True,
                     "error_message": message}]

        self.write(needed())
        name = "fa3_fp8/codes/bf16/d128/16k"
        self.write_of_peers({name: failed(name)})
        code, text = self.report()
        self.assertEqual(code, 0, text)
        self.assertIn(f"{name} did not run: ModuleNotFoundError: No module named 'it'", text)
        self.assertEqual(report.not_measured(report.read_results(self.results)),
                         "* FlashAttention 3 in fp8, 1 benchmark: ModuleNotFoundError: No module named 'it'")
        self.write_of_peers({name: rows(name, TFLOPs=800.0)}, "later.json")  # in this later run it did not fail
        self.assertEqual(self.report()[0], 0)
        self.assertEqual(self.summary()["peer.fa3_fp8.d128.16k.tflops"], 800.0)
        ours = "tessera/forward/bf16/d128/16k"
        self.write_of_peers({ours: failed(ours)})
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn(f"{ours} did not run", text)
        self.write_of_peers({ours: failed(ours, "TimeoutError: the time of all is over")})
        self.assertEqual(self.report()[0], 0)

    def test_the_first_page_has_a_table_where_something_was_measured_and_names_what_was_not(self):
        self.assertNotIn("A decoding step", self.overview_of())
        weights = {f"{who}/{way}/bf16/{data}/512MiB": (who, way) for who in ["tessera", "nvcomp_ans"]
                   for way in ["encode", "decode"] for data in ["gauss", "minilm"]}
        peers = {name: rows(name, TBps=2.0 if who == "tessera" else 2.5, bits_per_weight=10.5)
                 for name, (who, way) in weights.items()}
        text = self.overview_of(peers)
        self.assertIn("| nvCOMP's ANS | 10.50 | 2.50 | 2.50 | 10.50 | 2.50 | 2.50 |", text)
        self.assertIn("* Faster: nvCOMP's ANS (decoding real weights: 2.50 against 2.00 TB/s,", text)
        self.assertNotIn("Smaller", text)
        quack = f"quack/forward_backward/bf16/zipf/{report_overview.GEMMA}"
        eager = f"torch_eager/forward_backward/bf16/zipf/{report_overview.GEMMA}"
        losses = {eager: rows(eager, ms=60.0, extra_MiB=2.0, hidden_error=0.002),
                  quack: [{"name": quack, "run_name": quack, "error_occurred": True, "error_message": "too old"}]}
        text = self.overview_of(peers, losses)
        line = next(line for line in text.split("\n") if line.startswith("| PyTorch |"))
        self.assertIn("| 60.0 | 2.0 | 0.20 % | not measured |", line)
        self.assertNotIn("| QuACK", text)
        self.assertIn("QuACK (too old).", text)
        self.assertIn("Liger Kernel in CuTe (not run yet)", text)

    def test_a_table_of_cpu_figures_names_the_cpu(self):
        self.write(needed())
        (self.root / "README.md").write_text("<!-- bench:neuzip-cpu begin -->\n<!-- bench:neuzip-cpu end -->\n")
        self.report()
        text = (self.root / "README.md").read_text()
        self.assertIn("Measured on: Some CPU, gcc 12, commit 0123456789ab, 2026-01-02.", text)
        self.assertNotIn("Some GPU", text)

    def test_a_peer_measured_on_the_same_machine_stands_below_our_row_and_not_in_the_summary(self):
        name = "nvcomp_ans/decode/bf16/gauss/512MiB"
        self.write(needed())
        self.write({name: rows(name, TBps=1.25, bits_per_weight=10.9)}, "nvcomp.json")
        (self.root / "README.md").write_text("<!-- bench:neuzip-nvcomp begin -->\n<!-- bench:neuzip-nvcomp end -->\n")
        self.assertEqual(self.report()[0], 0)
        lines = (self.root / "README.md").read_text().split("\n")
        ours = next(i for i, line in enumerate(lines) if line.startswith("| decode bf16: tessera from C++ | 2.00 |"))
        self.assertEqual(lines[ours + 1], "| decode bf16: nvCOMP's ANS with its best settings | 1.25 | 10.90 |")
        self.assertEqual(set(self.summary()), keys())

    def test_times_and_memory_of_losses_are_in_the_summary_for_each_classifier(self):
        results = needed()
        for model, (_, size) in report_contents.CLASSIFIERS.items():
            scale = {"gemma": 1, "llama": 2}[model]
            for name, ms, extra in [("forward/bf16/zipf", 10, 2), ("forward_backward/bf16/zipf", 20, 64),
                                    ("forward_backward/bf16/spread", 30, 65),
                                    ("forward_backward_exact/bf16/spread", 40, 66)]:
                title = f"cut_cross_entropy/{name}/{size}"
                results[title] = rows(title, ms=ms * scale, extra_MiB=extra * scale)
        self.write(results)
        self.assertEqual(self.report()[0], 0)
        found = {key: value for key, value in self.summary().items() if key.startswith("cce.") and value is not None}
        self.assertEqual(found, {
            "cce.gemma.forward.ms": 10, "cce.gemma.zipf.ms": 20, "cce.gemma.spread.ms": 30, "cce.gemma.exact.ms": 40,
            "cce.gemma.forward.extra_mib": 2, "cce.gemma.backward.extra_mib": 64,
            "cce.llama.forward.ms": 20, "cce.llama.zipf.ms": 40, "cce.llama.spread.ms": 60, "cce.llama.exact.ms": 80,
            "cce.llama.forward.extra_mib": 4, "cce.llama.backward.extra_mib": 128})

    def test_losses_in_turns_are_compared_with_peers_of_the_same_process(self):
        size = report_contents.CLASSIFIERS["llama"][1]
        names = {who: f"{who}/in_turns/forward_backward/bf16/zipf/{size}"
                 for who in ["tessera_exact_4gib", "quack", "torch_compile", "torch_native_cute"]}
        self.write(needed())
        times = {"quack": 41.0, "torch_compile": 38.0, "torch_native_cute": 50.0}
        self.write({name: rows(name, ms=times.get(who, 40.0)) for who, name in names.items()}, "turns.json")
        self.assertEqual(self.report()[0], 0)
        self.assertAlmostEqual(self.summary()["cce.llama.exact_4gib.over_quack"], 1.025)
        self.assertAlmostEqual(self.summary()["cce.llama.exact_4gib.over_torch_compile"], 0.95)
        self.assertAlmostEqual(self.summary()["cce.llama.exact_4gib.over_torch_native_cute"], 1.25)

    def test_a_table_of_losses_has_what_was_measured_and_names_the_versions_of_other_packages(self):
        size = report_contents.CLASSIFIERS["gemma"][1]
        ours, apple, eager = (f"{name}/forward_backward/bf16/zipf/{size}"
                              for name in ["cut_cross_entropy", "apple_cce", "torch_eager"])
        results = needed()
        results[ours] = rows(ours, ms=41.26, extra_MiB=2345.67, kept=0.25, kept_ordered=0.12,
                             hidden_error=0.0123, classifier_error=0.004)
        self.write(results)
        path = self.write({apple: rows(apple, ms=57.7, extra_MiB=1.0, hidden_error=0.15),
                           eager: rows(eager, ms=65.8, extra_MiB=22839.0)}, "loss_peers.json")
        content = json.loads(path.read_text())
        content["context"].update(cut_cross_entropy="25.6.4", pytorch="2.11.0")
        path.write_text(json.dumps(content))
        (self.root / "README.md").write_text("<!-- bench:loss-gemma begin -->\n<!-- bench:loss-gemma end -->\n")
        self.assertEqual(self.report()[0], 0)
        text = (self.root / "README.md").read_text()
        self.assertIn("| Gemma 2 2B, 8192 x 256000 x 2304 (tokens x vocabulary x channels) | time, ms |", text)
        both = "| forward and backward"
        zipf = f"{both}, filtered, zipf data"
        self.assertIn(f"{zipf}: tessera from C++ | 41.3 | 2,345.7 | 25% | 12% | 1.23% | 0.40% |", text)
        self.assertIn(f"{zipf}: Apple's cut-cross-entropy | 57.7 | 1.0 | – | – | 15.00% | – |", text)
        self.assertIn(f"{both}, exact: PyTorch | 65.8 | 22,839.0 | – | – | – | – |", text)
        self.assertNotIn("cuBLAS's time", text)  # a column without a figure
        self.assertNotIn("Liger", text)  # not measured
        self.assertIn("CUDA 13.0, cut-cross-entropy 25.6.4, PyTorch 2.11.0, commit", text)

    def test_matrix_products_stand_beside_those_of_cublas(self):
        name = "linear/bf16/gauss/8192x8192x8192"
        results = needed()
        results[name] = rows(name, TFLOPs=693.4, cublas_TFLOPs=710.6, vs_cublas=0.976)
        self.write(results)
        (self.root / "README.md").write_text("<!-- bench:linear begin -->\n<!-- bench:linear end -->\n")
        self.assertEqual(self.report()[0], 0)
        self.assertIn("| bf16, 8192 x 8192 x 8192 | 693 | 711 | 98% |", (self.root / "README.md").read_text())

    def test_a_mark_without_its_end_is_refused(self):
        self.write(needed())
        (self.root / "README.md").write_text("<!-- bench:neuzip begin -->\n")
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn("<!-- bench:neuzip end -->", text)

    def test_check_passes_after_writing_and_fails_after_any_change(self):
        self.write(needed())
        self.assertEqual(self.report("--check")[0], 1)
        self.assertFalse((self.results / "summary.json").exists())
        self.report()
        self.assertEqual(self.report("--check")[0], 0)
        for name in ["README.md", "bench/results/summary.json"]:
            path = self.root / name
            good = path.read_text()
            path.write_text(good.replace("2.0", "2.1"))
            code, text = self.report("--check")
            self.assertEqual(code, 1)
            self.assertIn(f"out of date: {name}", text)
            path.write_text(good)
        changed = needed()
        changed["neuzip/decode/bf16/gauss/512MiB"] = rows("neuzip/decode/bf16/gauss/512MiB", TBps=1.5)
        self.write(changed)
        self.assertEqual(self.report("--check")[0], 1)

    def test_figures_of_a_cache_are_needed_once_its_results_are_there(self):
        self.write(needed())
        self.assertEqual(self.report()[0], 0)
        self.assertFalse([key for key in self.summary() if key.startswith("minicache.")])
        compress = "minicache/compress/bf16/d128/32_heads/16x4k"
        dense = "minicache/dense_decode/bf16/d128/64x4k"
        results = {compress: rows(compress, of_copy=0.71), dense: rows(dense, of_read=0.93)}
        for name, speedup in [("64x4k", 3.2), ("16x4k", 3.1), ("1x32k_gqa4", 2.9)]:
            title = f"minicache/decode/4bit/d128/{name}"
            results[title] = rows(title, speedup=speedup, ms=0.25, of_read=0.9, relative_l1=0.001)
        self.write(results, "minicache.json")
        (self.root / "README.md").write_text("<!-- bench:minicache begin -->\n<!-- bench:minicache end -->\n")
        self.assertEqual(self.report()[0], 0)
        found = {key: value for key, value in self.summary().items() if key.startswith("minicache.")}
        self.assertEqual(found, {
            "minicache.compress.copy_fraction": 0.71, "minicache.dense_decode.read_fraction": 0.93,
            "minicache.decode.64x4k.speedup": 3.2, "minicache.decode.16x4k.speedup": 3.1,
            "minicache.decode.1x32k_gqa4.speedup": 2.9})
        self.assertIn("| decoding, 16 sequences of 4K tokens, 32 heads: 4 bits | 250 | 3.10 | 90% | – | 0.10% |",
                      (self.root / "README.md").read_text())
        del results[compress]
        self.write(results, "minicache.json")
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn(f"minicache.compress.copy_fraction: there is no result of {compress}", text)

    def test_a_missing_benchmark_is_refused_by_name_unless_allowed(self):
        results = needed()
        del results["neuzip/decode/fp16/gauss/512MiB"]
        self.write(results)
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn("neuzip.decode.fp16.tbps: there is no result of neuzip/decode/fp16/gauss/512MiB", text)
        self.assertFalse((self.results / "summary.json").exists())
        self.assertEqual(self.report("--allow-missing")[0], 0)
        self.assertNotIn("neuzip.decode.fp16.tbps", self.summary())
        self.assertIn("neuzip.decode.bf16.tbps", self.summary())

    def test_a_failed_or_skipped_benchmark_is_refused_with_its_message(self):
        name = "neuzip/decode/fp32/gauss/512MiB"
        for failure in [{"error_occurred": True, "error_message": "no CUDA device"},
                        {"skipped": True, "skip_message": "no CUDA device"}]:
            results = needed()
            results[name].append({"name": name, "run_name": name, "run_type": "iteration", **failure})
            self.write(results)
            code, text = self.report()
            self.assertEqual(code, 1)
            self.assertIn(f"{name} did not run: no CUDA device", text)

    def test_a_needed_benchmark_without_its_counter_is_refused(self):
        results = needed()
        results["neuzip/encode/bf16/gauss/512MiB"] = rows("neuzip/encode/bf16/gauss/512MiB", TBps=1.0)
        self.write(results)
        self.assertIn("neuzip/encode/bf16/gauss/512MiB has no counter bits_per_weight", self.report()[1])

    def test_one_benchmark_in_two_files_is_refused(self):
        self.write(needed())
        self.write({"x": rows("machine/read/2GiB", TBps=1.0)}, "more.json")
        self.assertEqual(self.report()[0], 0)
        self.write(needed(), "more.json")
        code, text = self.report()
        self.assertEqual(code, 1)
        self.assertIn("is in another file too", text)

    def test_what_is_not_a_result_is_refused(self):
        for content in ["", "[]", '{"benchmarks": []}', "{"]:
            (self.results / "bad.json").write_text(content)
            code, text = self.report()
            self.assertEqual(code, 1)
            self.assertIn("bad.json: not the JSON of Google Benchmark", text)

    def test_adopted_results_do_not_name_the_machine(self):
        path = self.write(needed())
        outside = self.root / "fresh.json"
        path.rename(outside)
        self.assertEqual(self.report("--adopt", str(outside))[0], 0)
        text = (self.results / "fresh.json").read_text()
        self.assertNotIn("secret", text)
        self.assertNotIn("someone", text)
        self.assertEqual(json.loads(text)["context"]["gpu"], "Some GPU")
        self.assertEqual(self.summary()["neuzip.decode.bf16.tbps"], 2.0)

    def test_an_adopted_file_replaces_those_whose_benchmarks_are_all_in_it(self):
        self.write(needed())
        first, second, third = (f"{who}/forward/bf16/d128/4k" for who in ["cudnn", "flash2", "sage1"])
        self.write({name: rows(name, TFLOPs=1.0) for name in [first, second]}, "attention_peers.json")
        self.write({third: rows(third, TFLOPs=1.0)}, "others.json")
        fresh = self.write({name: rows(name, TFLOPs=2.0) for name in [first, second]}, "peers.json")
        outside = self.root / "peers.json"
        fresh.rename(outside)
        code, text = self.report("--adopt", str(outside))
        self.assertEqual(code, 0, text)
        self.assertIn("removed attention_peers.json, all of which peers.json has", text)
        self.assertEqual(sorted(path.name for path in self.results.glob("*.json")),
                         ["others.json", "peers.json", "run.json", "summary.json"])
        self.write({second: rows(second, TFLOPs=1.0), third: rows(third, TFLOPs=1.0)}, "others.json")
        code, text = self.report("--adopt", str(outside))  # a part of others.json would be lost
        self.assertEqual(code, 1)
        self.assertIn("is in another file too", text)

    def test_caches_stand_beside_attention_over_all_keys(self):
        self.write(needed())
        ours, dense = "tessera/decode/shadow_kv/d128/4x128k", "flash2/decode/bf16/d128/4x128k"
        self.write({ours: rows(ours, ms=0.25, cache_MiB=300.0, host_MiB=1024.0, relative_l1=0.03),
                    dense: rows(dense, ms=0.75, cache_MiB=2050.0, relative_l1=0.0015)}, "peers.json")
        (self.root / "README.md").write_text("<!-- bench:caches begin -->\n<!-- bench:caches end -->\n")
        self.assertEqual(self.report()[0], 0)
        text = (self.root / "README.md").read_text()
        label = "| 4 sequences of 128K tokens, 32 query heads, 8 key heads"
        self.assertIn(f"{label}: ShadowKV | 250 | 300 | 1,024 | 3.00% |\n"
                      f"{label}: FlashAttention-2 over keys and values in bf16 | 750 | 2,050 | – | 0.15% |", text)

    def test_without_results_there_is_nothing_to_report(self):
        self.assertEqual(self.report("--check"), (0, "bench/results holds no results: nothing to report\n"))
        self.report()
        self.assertFalse((self.results / "summary.json").exists())

    def test_what_was_measured_beside_the_peers_is_ours(self):
        self.assertTrue(report.is_ours_beside_peers("tessera_exact/forward_backward/bf16/zipf/1x2x3"))
        self.assertFalse(report.is_ours_beside_peers("torch_compile/forward_backward/bf16/zipf/1x2x3"))

    def test_the_name_of_a_benchmark_is_found_under_google_benchmarks_additions(self):
        for added in ["", "/manual_time", "/iterations:1/repeats:5/manual_time", "/min_time:0.100/threads:2/real_time"]:
            self.assertEqual(report.plain_name("neuzip/decode/fp16/1MiB" + added), "neuzip/decode/fp16/1MiB")


class RepositoryTest(unittest.TestCase):
    def test_what_is_committed_is_what_the_results_say(self):
        text = io.StringIO()
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            code = report.main(["--check", "--allow-missing"])
        self.assertEqual(code, 0, text.getvalue())


if __name__ == "__main__":
    unittest.main()
