#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Turns the Google Benchmark JSON in bench/results into summary.json, the tables of PAGES and the plots.

    report.py                       write the pages that follow from the results
    report.py --check               fail if a page is not what follows from the results
    report.py --adopt build/*.json  first copy new results, without fields that name their machine

Every figure is the median over a benchmark's repetitions. Nothing is typed by hand but another implementation's rates
(PEER_TBPS): to show another figure, add it to report_contents.py (summary.json), to report_charts.py (plots of bars),
to report_curves.py (plots of curves), to report_tables.py, for docs/exchanges.md to report_exchanges.py, for
examples/papers to report_papers.py, or for the README's table to report_overview.py. A figure of AWAITED that has no
result is null, and is reported as missing.
Needs Python 3.9 and nothing else.
"""
import argparse
import json
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent))
import report_bars
import report_charts
import report_curves
import report_exchanges
import report_losses
import report_overview
import report_papers
import report_real_model
from report_contents import AWAITED, FIGURES, FIGURES_OF_FILE, PAGES, number
from report_tables import BESIDE_PEERS, COLUMNS, IMPLEMENTATIONS, TABLES

# --- Reading -----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The results cannot be reported; the message says why."""


SUFFIX = re.compile(r"/(iterations|repeats|threads|min_time|min_warmup_time):[^/]+$|/(manual|real|process)_time$")
NOT_COUNTERS = {"family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads", "iterations",
                "real_time"}
NAMES_THE_MACHINE = ("host_name", "load_avg")
PEER_PACKAGES = {"cudnn_frontend": "cuDNN frontend", "cut_cross_entropy": "cut-cross-entropy",
                 "cutlass_dsl": "CuTe DSL", "linear_cross_entropy": "linear_cross_entropy from",
                 "flash_attention_3": "fa3-fwd", "flash_attention_4": "flash-attn-4",
                 "liger_kernel": "Liger Kernel", "nvcomp": "nvCOMP", "pytorch": "PyTorch", "quack": "QuACK",
                 "sageattention": "SageAttention", "sageattention2": "SageAttention"}
PROGRAM_OF_PEERS = "run.py"


def plain_name(run_name):
    """The name that a benchmark was registered with, without the suffixes that Google Benchmark appends to it."""
    while SUFFIX.search(run_name):
        run_name = SUFFIX.sub("", run_name)
    return run_name


@dataclass
class Result:
    counters: dict  # medians
    error: str      # empty for a good result
    context: dict
    series: dict = field(default_factory=dict)  # lists of numbers, of the first repetition


def read_file(path):
    """The results of one JSON file: {benchmark: Result}."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        context, rows = content["context"], content["benchmarks"]
    except (ValueError, KeyError, TypeError) as error:
        raise Refused(f"{path.name}: not the JSON of Google Benchmark ({error})") from error
    groups = {}
    for row in rows:
        groups.setdefault(plain_name(row.get("run_name", row["name"])), []).append(row)
    return {name: Result(medians(group), first_error(group), context, series_of(group[0]))
            for name, group in groups.items()}


def series_of(row):
    """The lists of numbers in a row, as curves are."""
    return {key: value for key, value in row.items()
            if isinstance(value, list) and value and all(isinstance(each, (int, float)) for each in value)}


def first_error(rows):
    for row in rows:
        if row.get("error_occurred") or row.get("skipped"):
            return row.get("error_message") or row.get("skip_message") or "skipped without a reason"
    return ""


def medians(rows):
    single = [r for r in rows if r.get("run_type", "iteration") == "iteration"]
    if not single:  # the file holds aggregates only
        single = [r for r in rows if r.get("aggregate_name") == "median"]
    values = {}
    for row in single:
        for key, value in row.items():
            if key not in NOT_COUNTERS and isinstance(value, (int, float)) and not isinstance(value, bool):
                values.setdefault(key, []).append(value)
    return {key: median(several) for key, several in values.items()}


def read_results(folder):
    results = {}
    for path in sorted(folder.glob("*.json")):
        if path.name == "summary.json":
            continue
        for name, result in read_file(path).items():
            if name in results and not results[name].error and not result.error:
                raise Refused(f"{path.name}: {name} is in another file too; remove one of the two results")
            if name not in results or results[name].error:  # another run may have measured what failed
                results[name] = result
    return results


def is_ours_beside_peers(name):
    return name.split("/")[0].split("_")[0] == BESIDE_PEERS


def is_excused(name, result):
    """Whether a missing result is reported but is no error. Others' implementations are not available, or do not run,
    everywhere, and time may be short. This library must run beside them."""
    program = Path(result.context.get("executable", "")).name
    is_late = result.error.startswith("TimeoutError")
    return program == PROGRAM_OF_PEERS and (is_late or not is_ours_beside_peers(name))


# --- Computing ---------------------------------------------------------------------------------------------------


def needed_figures(folder):
    """The figures of FIGURES, and those of FIGURES_OF_FILE whose files exist."""
    figures = dict(FIGURES)
    for file, more in FIGURES_OF_FILE.items():
        if (folder / file).exists():
            figures.update(more)
    return figures


def figure(results, key, meaning):
    """The number for a key of figures; Refused names the benchmark that is missing or has failed."""
    how, counter, names = meaning
    counters = counter if isinstance(counter, list) else [counter] * len(names)
    values, problems = [], []
    for name, counter in zip(names, counters):
        if name not in results:
            problems.append(f"{key}: there is no result of {name}")
        elif results[name].error:
            problems.append(f"{key}: {name} did not run: {results[name].error}")
        elif counter not in results[name].counters:
            problems.append(f"{key}: {name} has no counter {counter}")
        else:
            values.append(results[name].counters[counter])
    if problems and not (how == "largest of any" and values):
        raise Refused(problems[0])
    if how == "ratio":
        result = values[0] / values[1]
    else:
        result = min(values) if how == "smallest" else max(values)  # a "value" is the largest of a single one
    return float(f"{result:.5g}")


def summarize(results, figures, allow_missing):
    numbers, problems = {}, []
    for key, meaning in figures.items():
        try:
            numbers[key] = figure(results, key, meaning)
        except Refused as problem:
            problems.append(str(problem))
    for name, result in sorted(results.items()):
        if result.error and not is_excused(name, result) and not any(name in n for _, _, n in figures.values()):
            problems.append(f"{name} did not run: {result.error}")
    if problems and not allow_missing:
        raise Refused("\n".join(problems) + "\n(--allow-missing reports what there is)")
    for problem in problems:
        print(f"missing: {problem}", file=sys.stderr)
    return {**numbers, **awaited(results)}


def awaited(results):
    """The figures of AWAITED; a missing one is None, which is written as null."""
    numbers = {}
    for key, meaning in AWAITED.items():
        try:
            numbers[key] = figure(results, key, meaning)
        except Refused as problem:
            numbers[key] = None
            print(f"not measured: {problem}", file=sys.stderr)
    return numbers


def rows_with_results(table, results):
    return [(label, name, results[name].counters) for label, name in table.rows
            if name in results and not results[name].error]


def described(context, on_cpu):
    """Where and when a result was measured."""
    if on_cpu or "gpu" not in context:
        parts = [context.get("cpu"), context.get("compiler")]
    else:
        parts = [context.get("gpu"), "driver " + context.get("driver", "unknown"),
                 "CUDA " + context.get("cuda_runtime", "unknown")]
    parts += [f"{label} {context[key]}" for key, label in PEER_PACKAGES.items() if key in context]
    parts += ["commit " + context.get("commit", "unknown")[:12], context.get("date", "")[:10]]
    return ", ".join(part for part in parts if part)


def markdown(table, results):
    rows = rows_with_results(table, results)
    if not rows:
        return "Not measured yet."
    cells = {c: [COLUMNS[c](name, counters) for _, name, counters in rows] for c in table.columns}
    columns = {c: values for c, values in cells.items() if set(values) != {number(None)}}
    lines = [f"| {table.heading} | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for i, (label, _, _) in enumerate(rows):
        lines.append(f"| {label} | " + " | ".join(values[i] for values in columns.values()) + " |")
    runs = sorted({described(results[name].context, table.on_cpu) for _, name, _ in rows})
    return "\n".join(lines + ["", "Measured on: " + "; ".join(runs) + "."])


def not_measured(results):
    """The implementations without results and the reasons, each reason once."""
    counts = {}
    for name, result in sorted(results.items()):
        if result.error:
            key = name.split("/")[0], result.error.split("\n")[0]
            counts[key] = counts.get(key, 0) + 1
    lines = [f"* {IMPLEMENTATIONS.get(who, who)}, {count} benchmark{'s' if count > 1 else ''}: {why}"
             for (who, why), count in counts.items()]
    return "\n".join(lines) or "Nothing."


def with_tables(page, text, results):
    tables = {name: markdown(table, results) for name, table in TABLES.items()}
    tables.update(overview=report_overview.overview(results), headline=report_overview.headline(results),
                  exchanges=report_exchanges.exchanges(results), **report_papers.tables(results, described),
                  **{"not-measured": not_measured(results), "real-model-short": report_real_model.short_table(results),
                     "loss-filter-short": report_losses.short_filter_table(results)})
    for name, table in tables.items():
        begin, end = f"<!-- bench:{name} begin -->", f"<!-- bench:{name} end -->"
        if text.count(begin) != text.count(end) or text.count(begin) > 1:
            raise Refused(f"{page}: {begin} and {end} must come once each, or not at all")
        if begin in text:
            before, rest = text.split(begin)
            if end not in rest:
                raise Refused(f"{page}: {end} comes before {begin}")
            text = before + begin + "\n" + table + "\n" + end + rest.split(end)[1]
    return text


# --- Writing -----------------------------------------------------------------------------------------------------


def adopt(files, folder):
    """Copies result files into the folder without the fields that name a machine or a path on it."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in files:
        read_file(path)  # refuses what is not a result
        content = json.loads(path.read_text(encoding="utf-8"))
        for key in NAMES_THE_MACHINE:
            content["context"].pop(key, None)
        if "executable" in content["context"]:
            content["context"]["executable"] = Path(content["context"]["executable"]).name
        (folder / path.name).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        print(f"took over {path.name}")
        remove_replaced(folder, path.name)


def remove_replaced(folder, name):
    """The files whose benchmarks are all in the new file."""
    new = set(read_file(folder / name))
    for other in sorted(folder.glob("*.json")):
        if other.name not in (name, "summary.json") and set(read_file(other)) <= new:
            other.unlink()
            print(f"removed {other.name}, all of which {name} has")


def outputs(root, allow_missing):
    """All texts that follow from the results: {path: text}."""
    folder = root / "bench" / "results"
    results = read_results(folder)
    if not results:
        return {}
    numbers = summarize(results, needed_figures(folder), allow_missing)
    written = {folder / "summary.json": json.dumps(numbers, indent=2) + "\n"}
    for page in [root / name for name in PAGES]:
        if page.exists():
            written[page] = with_tables(page.name, page.read_text(encoding="utf-8"), results)
    drawings = {name: report_bars.svg(chart, results) for name, chart in report_charts.CHARTS.items()}
    drawings.update({name: report_curves.svg(curves, results) for name, curves in report_curves.CURVES.items()})
    drawings[report_real_model.PLOT] = report_real_model.svg(results)
    written.update({folder / name: drawing for name, drawing in drawings.items() if drawing is not None})
    return written


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent, help="the repository")
    parser.add_argument("--adopt", type=Path, nargs="+", default=[], metavar="FILE",
                        help="result files to take over first")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if something is out of date")
    parser.add_argument("--allow-missing", action="store_true", help="report although needed benchmarks are missing")
    options = parser.parse_args(arguments)
    try:
        if options.check and options.adopt:
            raise Refused("--check writes nothing, so it cannot go with --adopt")
        adopt(options.adopt, options.root / "bench" / "results")
        written = outputs(options.root, options.allow_missing)
    except (Refused, OSError) as problem:
        print(f"report.py: {problem}", file=sys.stderr)
        return 1
    if not written:
        print("bench/results holds no results: nothing to report")
        return 0
    stale = [path for path, text in written.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in stale:
        print(f"{'out of date' if options.check else 'wrote'}: {path.relative_to(options.root)}")
        if not options.check:
            path.write_text(written[path], encoding="utf-8")
    if not stale:
        print(f"{len(written)} files are up to date")
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
