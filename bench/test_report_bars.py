#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tests of report_bars.py and report_charts.py on made-up results: `python3 bench/test_report_bars.py`."""
import re
import sys
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report
import report_bars
import report_charts
from report_bars import Bar, Bars, Group, Panel

SVG = "{http://www.w3.org/2000/svg}"
PANELS = [Panel("memory, MiB", "less", "MiB", is_logarithmic=True), Panel("time, ms", "less", "ms", digits=1)]
CHART = Bars(lambda results: "A finding", ["A note"], [
    Group("one case", [Bar("ours", "tessera", "tessera/a"), Bar("theirs", "pytorch", "torch/a")]),
    Group("another", [Bar("theirs", "pytorch", "torch/b")])], PANELS)


def results(**counters):
    return {name.replace("_", "/"): report.Result(values, "", {}) for name, values in counters.items()}


ALL = results(tessera_a={"MiB": 1.0, "ms": 5.0}, torch_a={"MiB": 100.0, "ms": 10.0},
              torch_b={"MiB": 1000.0, "ms": 20.0})


def bars_of(drawing):
    """The bars: [(library, x, y, width)], panel by panel."""
    found = [r for r in xml.fromstring(drawing).findall(f"{SVG}rect") if r.get("class") != "page"]
    return [(r.get("class"), *(float(r.get(key)) for key in ("x", "y", "width"))) for r in found]


class BarsTest(unittest.TestCase):
    def test_bars_are_grouped_and_have_their_librarys_colour(self):
        bars = bars_of(report_bars.svg(CHART, ALL))
        self.assertEqual([library for library, *_ in bars], ["tessera", "pytorch", "pytorch"] * 2)
        first, second, third = bars[:3]
        self.assertEqual(second[2] - first[2], report_bars.STEP)
        self.assertEqual(third[2] - second[2], report_bars.STEP + report_bars.GROUP)
        self.assertEqual([y for _, _, y, _ in bars[:3]], [y for _, _, y, _ in bars[3:]])  # a row has all panels

    def test_lengths_are_to_scale_and_powers_of_ten_have_one_length(self):
        widths = [width for *_, width in bars_of(report_bars.svg(CHART, ALL))]
        self.assertAlmostEqual(widths[1] / 2, widths[2] / 3, delta=0.2)  # 100 and 1000 from 1 on
        self.assertAlmostEqual(widths[5], 2 * widths[4], delta=0.2)
        self.assertAlmostEqual(widths[4], 2 * widths[3], delta=0.2)

    def test_panels_of_one_counter_share_a_scale(self):
        chart = Bars(CHART.title, [], [Group("case", [Bar("ours", "tessera", ["tessera/a", "torch/b"])])],
                     [Panel("left", "", "ms"), Panel("right", "", "ms")])
        widths = [width for *_, width in bars_of(report_bars.svg(chart, ALL))]
        self.assertAlmostEqual(widths[1], 4 * widths[0], delta=0.2)

    def test_what_has_no_result_has_no_bar_and_a_group_without_one_is_left_out(self):
        some = dict(ALL)
        del some["torch/b"]
        self.assertNotIn("another", report_bars.svg(CHART, some))
        some["torch/a"] = report.Result({}, "it failed", {})
        self.assertEqual([library for library, *_ in bars_of(report_bars.svg(CHART, some))], ["tessera"] * 2)
        self.assertIsNone(report_bars.svg(CHART, {}))
        self.assertIsNone(report_bars.svg(Bars(lambda r: None, [], CHART.groups, PANELS), ALL))

    def test_values_stand_beside_bars_and_marks_across_them(self):
        chart = Bars(CHART.title, [], CHART.groups, [Panel("time", "", "ms", digits=1, mark=lambda name, c: 40.0)])
        drawing = report_bars.svg(chart, ALL)
        self.assertIn(">20.0<", drawing)
        bars = bars_of(drawing)
        marks = [line for line in xml.fromstring(drawing).findall(f"{SVG}line") if line.get("class") == "mark"]
        self.assertAlmostEqual(float(marks[2].get("x1")) - bars[2][1], 2 * bars[2][3], delta=0.2)

    def test_colours_are_there_for_light_and_dark_pages_and_ours_is_no_others(self):
        style = report_bars.style()
        light, dark = style.split("@media (prefers-color-scheme: dark)")
        for name, colours in report_bars.LIBRARIES.items():
            self.assertIn(f".{name} {{ fill: {colours[0]} }}", light)
            self.assertIn(f".{name} {{ fill: {colours[1]} }}", dark)
        ours = report_bars.LIBRARIES["tessera"]
        self.assertEqual([name for name, colours in report_bars.LIBRARIES.items() if colours == ours], ["tessera"])


class ChartsTest(unittest.TestCase):
    def test_every_bar_has_a_known_library_and_every_plot_of_the_repository_is_drawn_within_its_width(self):
        found = report.read_results(Path(__file__).resolve().parent / "results")
        for name, chart in report_charts.CHARTS.items():
            for group in chart.groups:
                for bar in group.bars:
                    self.assertIn(bar.library, report_bars.LIBRARIES)
            drawing = report_bars.svg(chart, found)
            self.assertIsNotNone(drawing, name)
            for _, x, _, width in bars_of(drawing):
                self.assertLess(x + width, report_bars.WIDTH)
            title = xml.fromstring(drawing).find(f"{SVG}title").text
            self.assertTrue(re.search(r"\d", title), f"{name}: its title has no figure: {title}")


if __name__ == "__main__":
    unittest.main()
