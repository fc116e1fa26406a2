# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The part of report.py for a whole model: the table of examples/real_model, its figures, and a plot of quality against
bytes."""
import math
from xml.sax.saxutils import escape

# label: a kind, which has a colour in the plot, and after the colon what differs
ROWS = [
    ("exact: cache in bf16", "exact"),
    ("cache: 8 bits", "8bit"),
    ("cache: 4 bits", "4bit"),
    ("cache: 3 bits", "3bit"),
    ("cache: 2 bits", "2bit"),
    ("cache: keys 4 bits, values 2", "k4v2"),
    ("MiniCache: 4 bits, merged from layer 16", "merged16"),
    ("MiniCache: 4 bits, merged from layer 24", "merged24"),
    ("MiniCache: 4 bits, merged from layer 28", "merged28"),
    ("aligned first: 4 bits, merged from layer 16", "merged16_aligned"),
    ("aligned first: 4 bits, merged from layer 24", "merged24_aligned"),
    ("aligned first: 4 bits, merged from layer 28", "merged28_aligned"),
    ("ShadowKV: rank 160, all chunks", "shadow_all_chunks"),
    ("ShadowKV: rank 160, 32 chunks of 8 tokens", "shadow_32_chunks"),
    ("ShadowKV: rank 160, 8 chunks of 8 tokens", "shadow_8_chunks"),
    ("SageAttention2: INT8", "sage_int8"),
    ("SageAttention2: INT4", "sage_int4"),
    ("NeuZip: all 7 bits of mantissas", "weights7"),
    ("NeuZip: 3 bits of mantissas", "weights3"),
    ("NeuZip: 1 bit of mantissas", "weights1"),
    ("NeuZip: 0 bits of mantissas", "weights0"),
]
PREFIX = "real_model/"
TABLE_ROWS = [(label, PREFIX + name) for label, name in ROWS]
TABLE_COLUMNS = ["size, MB", "values on the host, MB", "times smaller than in 16 bits", "perplexity",
                 "same likeliest next token", "KL divergence, nats a token"]
FIGURES = {
    **{f"real.ppl.{name}": ("value", "perplexity", [PREFIX + name])
       for name in ["exact", "4bit", "k4v2", "merged16_aligned", "shadow_32_chunks"]},
    "real.agreement.4bit": ("value", "agreement", [PREFIX + "4bit"]),
}

# The README's table has a column for each of these rows.
SHORT = [("exact", "exact"), ("cache in 8 bits", "8bit"), ("4 bits", "4bit"), ("3 bits", "3bit"), ("2 bits", "2bit"),
         ("keys 4, values 2", "k4v2"), ("MiniCache from layer 16", "merged16"), ("aligned first", "merged16_aligned"),
         ("ShadowKV, 32 chunks", "shadow_32_chunks"), ("SageAttention2", "sage_int8"),
         ("weights, 3 mantissa bits", "weights3")]
SHORT_LINES = [("times smaller", "ratio", "{:.1f}"), ("perplexity", "perplexity", "{:,.1f}"),
               ("same likeliest next token", "agreement", "{:.1%}")]

PLOT = "real_model.svg"
TITLE = ("SmolLM2-135M: distance from the exact model against bytes (further left and down is better); "
         "L16: merged from layer 16 of 30")
STYLE = """
  text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  .page { fill: #ffffff }
  .axis { stroke: #8c959f; stroke-width: 1 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .page { fill: #0d1117 }
    .axis { stroke: #768390 }
  }
"""
# Of Okabe and Ito, in tones that light and dark pages both bear.
COLOURS = {"cache": "#2f7fd1", "MiniCache": "#d55e00", "aligned first": "#009e73", "ShadowKV": "#cc79a7",
           "SageAttention2": "#56a4c9", "NeuZip": "#b58900"}
# Where a point's label is, so that labels of neighbours do not meet: to the right, pixels down, and what lies there.
PLACES = {"cache": (-9, 4, "end"), "aligned first": (0, -9, "middle"), "SageAttention2": (8, -4, "start")}
LEFT, TOP, WIDTH, HEIGHT = 70, 96, 560, 380
LEAST_DIVERGENCE = 1e-5  # what is nearer is exact but for rounding


def points(results):
    """(kind, what differs, part of the bytes, divergence) of rows that can be drawn."""
    found = []
    for label, name in TABLE_ROWS:
        if name not in results or results[name].error:
            continue
        counters = results[name].counters
        kind, what = label.split(": ")
        if kind in COLOURS and counters["divergence"] >= LEAST_DIVERGENCE:
            found.append((kind, what, 1 / counters["ratio"], counters["divergence"]))
    return found


def short_table(results):
    """Methods side by side, without those that were not measured."""
    known = [(title, results[PREFIX + name].counters) for title, name in SHORT
             if PREFIX + name in results and not results[PREFIX + name].error]
    if not known:
        return "Not measured yet."
    lines = [f"| SmolLM2-135M | {' | '.join(title for title, _ in known)} |", f"|---|{'---:|' * len(known)}"]
    lines += [f"| {title} | {' | '.join(form.format(counters[counter]) for _, counters in known)} |"
              for title, counter, form in SHORT_LINES]
    return "\n".join(lines)


def finding(results):
    """What the plot says, where the rows are there that it takes."""
    names = ["4bit", "merged16"]
    if any(PREFIX + name not in results or results[PREFIX + name].error for name in names):
        return TITLE
    four, merged = (results[PREFIX + name].counters for name in names)
    return (f"A cache in 4 bits is {four['ratio']:.1f}x smaller and {four['divergence']:.3f} nats off; with merged "
            f"layers {merged['divergence']:.1f} nats")


def svg(results):
    """The plot, or None without points. Divergences are on a logarithmic scale."""
    drawn = points(results)
    if not drawn:
        return None
    widest = max(1.0, max(part for _, _, part, _ in drawn))
    first = math.floor(math.log10(min(d for *_, d in drawn)))
    last = math.ceil(math.log10(max(d for *_, d in drawn)))
    last = max(last, first + 1)

    def x(part):
        return LEFT + WIDTH * part / widest

    def y(divergence):
        return TOP + HEIGHT * (last - math.log10(divergence)) / (last - first)

    full_width, full_height = LEFT + WIDTH + 200, TOP + HEIGHT + 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{full_width}" height="{full_height}" '
           f'viewBox="0 0 {full_width} {full_height}" role="img">',
           f"<title>{escape(TITLE)}</title>", f"<style>{STYLE}</style>",
           f'<rect class="page" width="{full_width}" height="{full_height}" rx="6"/>',
           f'<text class="title" x="8" y="24">{escape(finding(results))}</text>',
           f'<text class="small" x="8" y="44">{escape(TITLE)}</text>']
    out += legend()
    for exponent in range(first, last + 1):
        at = y(10.0**exponent)
        out.append(f'<line class="axis" stroke-dasharray="2 4" x1="{LEFT}" y1="{at:.1f}" x2="{LEFT + WIDTH}" '
                   f'y2="{at:.1f}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{10.0**exponent:g}</text>')
    for percent in range(0, int(100 * widest) + 1, 20):
        out.append(f'<text x="{x(percent / 100):.1f}" y="{TOP + HEIGHT + 20}" text-anchor="middle">{percent} %</text>')
    out.append(f'<line class="axis" x1="{LEFT}" y1="{TOP}" x2="{LEFT}" y2="{TOP + HEIGHT}"/>')
    out.append(f'<line class="axis" x1="{LEFT}" y1="{TOP + HEIGHT}" x2="{LEFT + WIDTH}" y2="{TOP + HEIGHT}"/>')
    out.append(f'<text x="{LEFT + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 44}" text-anchor="middle">'
               "bytes of cache, codes or weights, of those in 16 bits</text>")
    out.append(f'<text x="8" y="{TOP - 12}">KL divergence, nats a token</text>')
    for kind, what, part, divergence in drawn:
        out.append(f'<circle cx="{x(part):.1f}" cy="{y(divergence):.1f}" r="5" fill="{COLOURS[kind]}"/>')
        across, down, anchor = PLACES.get(kind, (9, 4, "start"))
        out.append(f'<text x="{x(part) + across:.1f}" y="{y(divergence) + down:.1f}" text-anchor="{anchor}">'
                   f"{escape(short(what))}</text>")
    return "\n".join(out + ["</svg>"]) + "\n"


def short(what):
    """A label that fits beside a point."""
    for long, brief in [("4 bits, merged from layer ", "L"), ("rank 160, ", ""), (" of 8 tokens", ""),
                        ("keys 4 bits, values 2", "K4V2"), (" of mantissas", "")]:
        what = what.replace(long, brief)
    return what


def legend():
    out, at = [], LEFT + 150
    for kind, colour in COLOURS.items():
        out.append(f'<circle cx="{at}" cy="{TOP - 28}" r="5" fill="{colour}"/>')
        out.append(f'<text x="{at + 9}" y="{TOP - 24}">{escape(kind)}</text>')
        at += round(40 + 6.6 * len(kind))
    return out
