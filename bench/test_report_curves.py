#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of report_curves.py on made-up results: `python3 bench/test_report_curves.py`."""
import json
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report
import report_curves
from report_curves import Curves, Panel, ticks

CURVES = Curves("Losses", [("a", "some/a"), ("b", "some/b")],
                [Panel("all", "loss"), Panel("few", "held", "at")], "steps")


def results(**of_b):
    a = {"loss": [3.0, 2.0, 1.0], "held": [3.0, 2.5], "at": [0, 3]}
    return {"some/a": report.Result({}, "", {}, a), "some/b": report.Result({}, "", {}, {**a, **of_b})}


class CurvesTest(unittest.TestCase):
    def test_each_panel_has_a_line_for_each_benchmark_at_its_places(self):
        root = xml.fromstring(report_curves.svg(CURVES, results(loss=[3.0, 2.5, 2.0])))
        lines = [line for line in root.iter("{http://www.w3.org/2000/svg}polyline")]
        corners = [[tuple(map(float, c.split(","))) for c in line.get("points").split()] for line in lines]
        self.assertEqual([len(each) for each in corners[:4]], [3, 3, 2, 2])
        self.assertEqual([line.get("class") for line in lines[:4]], ["first", "second"] * 2)
        self.assertEqual(corners[0][0], corners[1][0])
        falls = [line[0][1] - line[-1][1] for line in corners[:2]]
        self.assertAlmostEqual(falls[0], 2 * falls[1], delta=0.2)  # losses fall by 2 and by 1
        self.assertLess(falls[0], 0)                               # down the page
        self.assertEqual(corners[2], corners[3])
        self.assertEqual(corners[2][0][0], 60 + 330 + 70)          # step 0 is at the axis

    def test_without_a_result_or_a_list_there_is_no_plot(self):
        some = results()
        del some["some/b"].series["held"]
        self.assertIsNone(report_curves.svg(CURVES, some))
        some = results()
        some["some/b"].error = "failed"
        self.assertIsNone(report_curves.svg(CURVES, some))
        self.assertIsNone(report_curves.svg(CURVES, {}))

    def test_ticks_are_few_and_around_all_values(self):
        for low, high in [(0, 28), (0, 1), (1.97, 2.03), (1.2, 2.2), (5, 5), (-3, 12000), (0.11, 0.1100001)]:
            found = ticks(low, high)
            self.assertLessEqual(found[0], low + 1e-9)
            self.assertGreaterEqual(found[-1], high - 1e-9)
            self.assertIn(len(found), range(2, 11))
        self.assertEqual(ticks(0, 28), [0, 5, 10, 15, 20, 25, 30])

    def test_lists_are_read_from_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "some.json"
            row = {"name": "some/a", "loss": [1.5, 1], "names": ["x"], "none": [], "last": 1}
            path.write_text(json.dumps({"context": {}, "benchmarks": [row]}))
            self.assertEqual(report.read_file(path)["some/a"].series, {"loss": [1.5, 1]})
            self.assertEqual(report.read_file(path)["some/a"].counters, {"last": 1})


if __name__ == "__main__":
    unittest.main()
