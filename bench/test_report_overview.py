#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of report_overview.py: `python3 bench/test_report_overview.py`. test_report.py has the tests of whole pages."""
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report
import report_overview


class OverviewTest(unittest.TestCase):
    def test_without_results_there_is_no_table(self):
        self.assertEqual(report_overview.overview({}), "Not measured yet.")

    def test_others_are_named_where_they_are_better_and_only_there(self):
        def results(**rates):
            return {f"{who}/forward/bf16/d128/16k": report.Result({"TFLOPs": 900.0, "relative_l1": 0.002, **values},
                                                                  "", {}) for who, values in rates.items()}

        overview = report_overview.attention()
        found = report_overview.ahead(results(tessera={}, fa3={"TFLOPs": 950.0}, flash2={"TFLOPs": 910.0}), overview)
        self.assertEqual(found, {"speed": {"FlashAttention 3 in bf16": ["speed: 950 against 900 TFLOP/s"]}})
        found = report_overview.ahead(results(tessera={}, fa3={"relative_l1": 0.001}, flash2={}), overview)
        self.assertEqual(found, {"error": {"FlashAttention 3 in bf16":
                                           ["error on data with offsets: 0.10 % against 0.20 %"]}})
        self.assertEqual(report_overview.ahead(results(fa3={}), overview), {})

    def test_every_row_of_the_first_page_has_one_of_ours_beside_it(self):
        for overview in report_overview.overviews():
            for row in overview.rows:
                if row.beside >= 0:
                    self.assertIn("tessera", overview.rows[row.beside].label)
                    self.assertNotIn("tessera", row.label)
                headings = [column.heading for column in overview.columns]
                for named in [*row.leaves_out, *row.names]:
                    self.assertIn(named, headings)

    def test_the_headline_leaves_out_what_was_not_measured(self):
        self.assertEqual(report_overview.headline({}), "Not measured yet.")
        some = {f"{who}/forward/bf16/d128/16k": report.Result({"TFLOPs": rate}, "", {})
                for who, rate in [("attention", 1061.4), ("cudnn", 626.0)]}
        self.assertEqual(report_overview.headline(some), "On one NVIDIA H200: attention from bf16 to bf16 runs at "
                         "**1,061 TFLOP/s**, quantization included (cuDNN in bf16: 626).")
        del some["cudnn/forward/bf16/d128/16k"]
        self.assertEqual(report_overview.headline(some), "Not measured yet.")


if __name__ == "__main__":
    unittest.main()
