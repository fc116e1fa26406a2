#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of report_real_model.py on made-up results: `python3 bench/test_report_real_model.py`."""
import sys
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report
import report_real_model
import report_tables


def result(divergence, ratio=2.0, error=""):
    return report.Result({"divergence": divergence, "ratio": ratio, "perplexity": 12.0, "agreement": 0.5, "MB": 3.0,
                          "host_MB": 0.0}, error, {"cpu": "Some CPU", "commit": "0123", "date": "2026-01-02"})


def places(drawing):
    """The points of a plot: [(x, y)], without those of the legend."""
    circles = [c for c in xml.fromstring(drawing) if c.tag.endswith("circle")]
    return [(float(c.get("cx")), float(c.get("cy"))) for c in circles[len(report_real_model.COLOURS):]]


class RealModelTest(unittest.TestCase):
    def draw(self, results):
        return report_real_model.svg({f"real_model/{name}": r for name, r in results.items()})

    def test_nothing_is_drawn_without_results(self):
        self.assertIsNone(self.draw({}))
        self.assertIsNone(self.draw({"exact": result(0.1)}))
        self.assertIsNone(self.draw({"4bit": result(0.1, error="failed")}))

    def test_further_from_the_model_is_higher_and_more_bytes_are_further_right(self):
        (x4, y4), (x2, y2) = places(self.draw({"4bit": result(0.005, 3.4), "2bit": result(0.2, 6.0)}))
        self.assertLess(x2, x4)
        self.assertLess(y2, y4)

    def test_divergences_are_on_a_logarithmic_scale(self):
        ys = [y for _, y in places(self.draw({"8bit": result(0.001), "4bit": result(0.01), "3bit": result(0.1)}))]
        self.assertAlmostEqual(ys[0] - ys[1], ys[1] - ys[2], delta=0.2)

    def test_rows_that_are_exact_but_for_rounding_are_not_drawn(self):
        self.assertEqual(len(places(self.draw({"weights7": result(0.0), "4bit": result(0.01)}))), 1)

    def test_points_stay_within_the_axes_also_where_a_method_takes_more_memory(self):
        for x, y in places(self.draw({"shadow_all_chunks": result(0.0005, 0.6), "4bit": result(0.005, 3.4)})):
            self.assertTrue(report_real_model.LEFT <= x <= report_real_model.LEFT + report_real_model.WIDTH)
            self.assertTrue(report_real_model.TOP <= y <= report_real_model.TOP + report_real_model.HEIGHT)

    def test_the_table_has_all_rows_with_results(self):
        results = {f"real_model/{name}": result(0.01) for _, name in report_real_model.ROWS}
        lines = report.markdown(report_tables.TABLES["real-model"], results).splitlines()
        self.assertEqual(sum(line.startswith("| ") for line in lines), len(report_real_model.ROWS) + 1)
        self.assertIn("| cache: 4 bits | 3.0 | 2.00 | 12.00 | 50.0% | 0.0100 |", lines)

    def test_the_short_table_has_a_column_for_each_method_that_was_measured(self):
        self.assertEqual(report_real_model.short_table({}), "Not measured yet.")
        results = {"real_model/exact": result(0.0, 1.0), "real_model/4bit": result(0.01, 3.44),
                   "real_model/2bit": result(0.2, error="failed")}
        self.assertEqual(report_real_model.short_table(results).splitlines(), [
            "| SmolLM2-135M | exact | 4 bits |", "|---|---:|---:|", "| times smaller | 1.0 | 3.4 |",
            "| perplexity | 12.0 | 12.0 |", "| same likeliest next token | 50.0% | 50.0% |"])
        names = [name for _, name in report_real_model.ROWS]
        self.assertLessEqual({name for _, name in report_real_model.SHORT}, set(names))

    def test_all_figures_are_those_of_rows(self):
        names = {f"real_model/{name}" for _, name in report_real_model.ROWS}
        for _, counter, benchmarks in report_real_model.FIGURES.values():
            self.assertIn(counter, ["perplexity", "agreement"])
            self.assertLessEqual(set(benchmarks), names)


if __name__ == "__main__":
    unittest.main()
