# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots of bars, as report.py draws them: rows in groups, a group for each case, and panels beside each other, one for
each quantity. A library has one colour in all plots, and this one the strongest. Titles say what was found, with
figures from the results. report_charts.py has the contents.

Colours are those of Okabe and Ito, which colour-blind people can tell apart, or of their lightness; every bar has its
label and its figure beside it, so that no plot needs them. Plots have a background of their own: they are read on light
and on dark pages, and beside a viewer who does not know which of them it is on.
"""
import math
import textwrap
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from report_contents import number

# A library's colour on light and on dark pages.
LIBRARIES = {
    "tessera": ("#0062b1", "#4aa3ff"),
    "pytorch": ("#e69f00", "#e8b03a"),
    "apple": ("#8b8f94", "#9aa0a6"),
    "liger": ("#4f9f86", "#4f9f86"),
    "quack": ("#cc79a7", "#cc79a7"),
    "cudnn": ("#8a9a3b", "#9aab4a"),
    "flash": ("#d55e00", "#dd7a33"),
    "sage": ("#86bbdc", "#7fa9c4"),
    "nvcomp": ("#8a9a3b", "#9aab4a"),  # NVIDIA's, as cuDNN
    "dietgpu": ("#8b8f94", "#9aa0a6"),
}


def style():
    def rules(which, indent):
        return "\n".join(f"{indent}.{name} {{ fill: {colours[which]} }}" for name, colours in LIBRARIES.items())

    return f"""
  text {{ font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }}
  .title {{ font-size: 16px; font-weight: 600 }}
  .group {{ font-weight: 600 }}
  .ours {{ font-weight: 600 }}
  .small {{ font-size: 12px; fill: #59636e }}
  .page {{ fill: #ffffff }}
  .grid {{ stroke: #d1d9e0; stroke-width: 1 }}
  .axis {{ stroke: #8c959f; stroke-width: 1 }}
  .mark {{ stroke: #1f2328; stroke-width: 2 }}
{rules(0, "  ")}
  @media (prefers-color-scheme: dark) {{
    text {{ fill: #e6edf3 }}
    .small {{ fill: #9198a1 }}
    .page {{ fill: #0d1117 }}
    .grid {{ stroke: #30363d }}
    .axis {{ stroke: #768390 }}
    .mark {{ stroke: #e6edf3 }}
{rules(1, "    ")}
  }}
"""


@dataclass(frozen=True)
class Bar:
    """label: what it is, beside the colour of its library; names: the benchmark, or one for each panel."""
    label: str
    library: str
    names: object

    def name(self, panel):
        return self.names if isinstance(self.names, str) else self.names[panel]


@dataclass(frozen=True)
class Group:
    title: str
    bars: list


@dataclass(frozen=True)
class Panel:
    """title: the quantity with its unit; says: which direction is better. digits: after the point, or a function that
    writes a value. mark: a value to draw as a line across a bar, from its name and counters."""
    title: str
    says: str
    counter: str
    factor: float = 1.0
    digits: object = 0
    is_logarithmic: bool = False
    mark: object = None
    mark_title: str = ""

    def text(self, value):
        return self.digits(value) if callable(self.digits) else number(value, self.digits)


@dataclass(frozen=True)
class Bars:
    """title: a function of the results that says what they show, or None without them; notes: lines below it."""
    title: object
    notes: list
    groups: list
    panels: list
    constants: dict = field(default_factory=dict)  # values of benchmarks that have no file: {name: value}


WIDTH, MARGIN, STEP, THICK, GROUP = 860, 12, 19, 14, 22
LETTER, STRONG = 7.1, 7.9  # the width of a letter in most fonts, and of one of this library's labels
SMALL = 6.2                # of one of a scale
TITLE_LETTERS = 90


def counters_of(chart, bar, panel, results):
    name = bar.name(panel)
    if name in chart.constants:
        return {chart.panels[panel].counter: chart.constants[name]}
    result = results.get(name)
    return {} if result is None or result.error else result.counters


def value_of(chart, bar, panel, results):
    value = counters_of(chart, bar, panel, results).get(chart.panels[panel].counter)
    return None if value is None else value * chart.panels[panel].factor


def drawn_groups(chart, results):
    """Groups with the bars that have a value in some panel."""
    found = []
    for group in chart.groups:
        bars = [bar for bar in group.bars
                if any(value_of(chart, bar, p, results) is not None for p in range(len(chart.panels)))]
        if bars:
            found.append(Group(group.title, bars))
    return found


def scale_of(panel, values, width):
    """The length of a bar, and where grid lines are: [(value, length)]."""
    if panel.is_logarithmic:
        first = math.floor(math.log10(min(values)))
        last = max(math.log10(max(values)), first + 1)

        def length(value):
            return width * (math.log10(value) - first) / (last - first)

        return length, [(10.0**power, length(10.0**power)) for power in range(first, math.floor(last) + 1)]
    most = max(values)
    return (lambda value: width * value / most), [(0, 0.0)]


def svg(chart, results):
    """The plot, or None without a result of this library in each panel."""
    groups = drawn_groups(chart, results)
    title = chart.title(results)
    if not groups or title is None:
        return None
    titles = textwrap.wrap(title.replace(" %", "\N{NO-BREAK SPACE}%"), TITLE_LETTERS)
    left = MARGIN + 14 + max(len(bar.label) * letter(bar) for group in groups for bar in group.bars)
    room = (WIDTH - MARGIN - left) / len(chart.panels)
    first_note = 26 + 21 * len(titles)
    top = first_note + 18 * len(chart.notes) + 38
    height = top + sum(GROUP + STEP * len(group.bars) for group in groups) + 24
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
           f'viewBox="0 0 {WIDTH} {height}" role="img">', f"<title>{escape(title)}</title>",
           f"<style>{style()}</style>", f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>']
    out += [f'<text class="title" x="{MARGIN}" y="{26 + 21 * i}">{escape(line)}</text>'
            for i, line in enumerate(titles)]
    out += [f'<text class="small" x="{MARGIN}" y="{first_note + 18 * i}">{escape(note)}</text>'
            for i, note in enumerate(chart.notes)]
    rows, y = [], top
    for group in groups:
        out.append(f'<text class="group" x="{MARGIN}" y="{y + 13}">{escape(group.title)}</text>')
        y += GROUP
        rows.append([])
        for bar in group.bars:
            rows[-1].append((bar, y))
            out.append(f'<text{kind(bar)} x="{left - 8:.1f}" y="{y + 11}" text-anchor="end">'
                       f"{escape(bar.label)}</text>")
            y += STEP
    for p in range(len(chart.panels)):
        out += panel_svg(chart, p, rows, results, (left + p * room, room, top))
    return "\n".join(out + ["</svg>"]) + "\n"


def kind(bar):
    return ' class="ours"' if bar.library == "tessera" else ""


def letter(bar):
    return STRONG if bar.library == "tessera" else LETTER


def mark_of(chart, bar, p, results):
    mark = chart.panels[p].mark
    return mark(bar.name(p), counters_of(chart, bar, p, results)) if mark is not None else None


def marks_of(chart, panels, groups, results):
    found = [mark_of(chart, bar, p, results) for p in panels for rows in groups for bar, _ in rows]
    return [mark for mark in found if mark is not None]


def panel_svg(chart, p, groups, results, place):
    """A panel for groups of bars and their places: [[(bar, y)]]."""
    left, room, top = place
    panel = chart.panels[p]
    values = {y: value_of(chart, bar, p, results) for rows in groups for bar, y in rows}
    known = [value for value in values.values() if value is not None]
    if not known:
        return []
    marks = {y: mark_of(chart, bar, p, results) for rows in groups for bar, y in rows}
    alike = [each for each, other in enumerate(chart.panels) if other.counter == panel.counter]  # they share a scale
    all_known = [value for each in alike for rows in groups for bar, _ in rows
                 if (value := value_of(chart, bar, each, results)) is not None]
    widest = STRONG * max(len(panel.text(value)) for value in all_known)
    length, grid = scale_of(panel, all_known + marks_of(chart, alike, groups, results), room - 24 - widest)
    out = [f'<text class="group" x="{left:.1f}" y="{top - 24}">{escape(panel.title)}</text>',
           f'<text class="small" x="{left:.1f}" y="{top - 7}">{escape(panel.says)}</text>']
    for rows in groups:
        for value, at in grid:
            out.append(f'<line class="{"axis" if at == 0 else "grid"}" x1="{left + at:.1f}" y1="{rows[0][1] - 3}" '
                       f'x2="{left + at:.1f}" y2="{rows[-1][1] + STEP}"/>')
    if panel.is_logarithmic:
        bottom = groups[-1][-1][1] + STEP + 12
        names = [number(value, 0) if value >= 1 else f"{value:g}" for value, _ in grid]
        every = 1 if len(grid) < 2 else math.ceil(SMALL * (max(map(len, names)) + 1) / (grid[1][1] - grid[0][1]))
        out += [f'<text class="small" x="{left + at:.1f}" y="{bottom}" text-anchor="middle">{name}</text>'
                for name, (_, at) in list(zip(names, grid))[::every]]
    for bar, y in (row for rows in groups for row in rows):
        value, mark = values[y], marks[y]
        if value is None:
            out.append(f'<text class="small" x="{left + 6:.1f}" y="{y + 11}">–</text>')
            continue
        end = max(length(value), 1.0)
        out.append(f'<rect class="{bar.library}" x="{left:.1f}" y="{y}" width="{end:.1f}" height="{THICK}"/>')
        if mark is not None:
            x = left + length(mark)
            out.append(f'<line class="mark" x1="{x:.1f}" y1="{y - 1}" x2="{x:.1f}" y2="{y + THICK + 1}"/>')
            end = max(end, length(mark))
        out.append(f'<text{kind(bar)} x="{left + end + 5:.1f}" y="{y + 11}">{escape(panel.text(value))}</text>')
    return out
