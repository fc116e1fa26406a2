# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots of curves, as report.py draws them: panels beside each other, with a line for each benchmark in each panel. A
curve is a list of numbers in a benchmark's row."""
import math
from dataclasses import dataclass
from xml.sax.saxutils import escape

from report_contents import number

STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .page { fill: #ffffff }
  .axis { stroke: #8c959f; stroke-width: 1 }
  .first, .second, .third { fill: none; stroke-width: 2 }
  .first { stroke: #57606a; stroke-width: 5; stroke-opacity: 0.4 }
  .second { stroke: #2f6fbe }
  .third { stroke: #bc4c00; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .page { fill: #0d1117 }
    .axis { stroke: #768390 }
    .first { stroke: #adbac7 }
    .second { stroke: #539bf5 }
    .third { stroke: #f0883e }
  }
"""
STYLES = ["first", "second", "third"]  # of lines; the first is wide and pale, so that others on it are seen


@dataclass(frozen=True)
class Panel:
    title: str
    values: str       # the name of the list
    places: str = ""  # the name of the list of abscissas; without one these are 1, 2, ...


@dataclass(frozen=True)
class Curves:
    title: str  # what is drawn
    lines: list  # pairs of (label, benchmark)
    panels: list
    abscissa: str
    finding: object = None  # a function of the results that says what they show


def fine_tuning_finding(results):
    last = [results[f"fine_tuning/{name}/{REAL}"].series["held_out_loss"][-1] for name in ["exact", "filtered"]]
    return f"Fine-tuning with filtered gradients ends {abs(last[1] - last[0]):.3f} nats from the exact one"


REAL = "smollm2/49152x576"
CURVES = {
    "loss_fine_tuning.svg": Curves("Fine-tuning SmolLM2's classifier: loss, nats a token", [
        ("exact gradients", f"fine_tuning/exact/{REAL}"),
        ("both gradients filtered", f"fine_tuning/filtered/{REAL}"),
        ("classifier's gradient whole", f"fine_tuning/full_classifier/{REAL}")],
        [Panel("of each step's tokens", "training_loss"),
         Panel("of tokens held out", "held_out_loss", "held_out_steps")], "steps", fine_tuning_finding),
}


def points(panel, series):
    values = series[panel.values]
    return list(zip(series[panel.places] if panel.places else range(1, len(values) + 1), values))


def ticks(low, high):
    """Multiples of 1, 2 or 5 times a power of ten from the one below `low` to the one above `high`, 3 to 10 of them."""
    least = max(high - low, 1e-6 * max(abs(high), 1)) / 7
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [step * i for i in range(first, max(last, first + 1) + 1)]


def draw_panel(panel, rows, place, abscissa):
    left, top, width, height = place
    lines = [points(panel, series) for series in rows]
    across = ticks(0, max(x for line in lines for x, _ in line))
    up = ticks(min(y for line in lines for _, y in line), max(y for line in lines for _, y in line))

    def at(x, y):
        return (left + width * (x - across[0]) / (across[-1] - across[0]),
                top + height * (1 - (y - up[0]) / (up[-1] - up[0])))

    out = [f'<text x="{left}" y="{top - 12}">{escape(panel.title)}</text>',
           f'<path class="axis" fill="none" d="M{left} {top}V{top + height}H{left + width}"/>']
    digits = max(0, -math.floor(math.log10((up[1] - up[0]) * 1.001)))
    for y in up:
        out.append(f'<text x="{left - 8}" y="{at(0, y)[1] + 4:.1f}" text-anchor="end">{number(y, digits)}</text>')
    for x in across:
        out.append(f'<text x="{at(x, 0)[0]:.1f}" y="{top + height + 18}" text-anchor="middle">{number(x, 0)}</text>')
    out.append(f'<text x="{left + width / 2:.1f}" y="{top + height + 36}" text-anchor="middle">{abscissa}</text>')
    for style, line in zip(STYLES, lines):
        corners = " ".join("{:.1f},{:.1f}".format(*at(x, y)) for x, y in line)
        out.append(f'<polyline class="{style}" points="{corners}"/>')
    return out


def svg(curves, results):
    """The plot, or None without results of all lines."""
    rows = [results[name].series for _, name in curves.lines if name in results and not results[name].error]
    if len(rows) < len(curves.lines) or not all(panel.values in row for panel in curves.panels for row in rows):
        return None
    left, top, width, height, between = 60, 90, 330, 220, 70
    whole = left + (width + between) * len(curves.panels) - between + 20
    tall = top + height + 84
    finding = curves.finding(results) if curves.finding else curves.title
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole}" height="{tall}" viewBox="0 0 {whole} {tall}" '
           'role="img">', f"<title>{escape(curves.title)}</title>", f"<style>{STYLE}</style>",
           f'<rect class="page" width="{whole}" height="{tall}" rx="6"/>',
           f'<text class="title" x="8" y="22">{escape(finding)}</text>',
           f'<text x="8" y="42">{escape(curves.title)}</text>']
    for i, panel in enumerate(curves.panels):
        out += draw_panel(panel, rows, (left + i * (width + between), top, width, height), curves.abscissa)
    x = left
    for style, (label, _) in zip(STYLES, curves.lines):
        out.append(f'<polyline class="{style}" points="{x},{tall - 20} {x + 28},{tall - 20}"/>')
        out.append(f'<text x="{x + 36}" y="{tall - 16}">{escape(label)}</text>')
        x += 66 + 8 * len(label)
    return "\n".join(out + ["</svg>"]) + "\n"
