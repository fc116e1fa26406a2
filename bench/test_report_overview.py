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
        some = {f"{who}/forward/bf16/d128/16k/real": report.Result({"TFLOPs": rate, "relative_l1": error}, "", {})
                for who, rate, error in [("tessera", 1061.4, 0.03), ("fa3", 626.0, 0.0027), ("fa3_fp8", 803.0, 0.072)]}
        self.assertEqual(report_overview.headline(some).split("\n")[2:], [
            "| SageAttention2: bf16 to bf16, 16K tokens of a real layer | **1,061 TFLOP/s**, error 3.0 % | "
            "FlashAttention 3 in bf16: 626, 0.3 %; in fp8: 803, 7.2 % |"])
        del some["fa3_fp8/forward/bf16/d128/16k/real"]
        self.assertEqual(report_overview.headline(some), "Not measured yet.")


if __name__ == "__main__":
    unittest.main()
