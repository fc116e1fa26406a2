#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Puts what the package's programs have written together for bench/report.py: the figures python.* of summary.json.

    run_apple_tests.py CHECKOUT --json apple.json
    graph_breaks.py --json breaks.json
    overhead.py --json overhead.json
    figures.py apple.json breaks.json overhead.json --commit COMMIT --out python.json     # in any order
    bench/report.py --adopt python.json

A file is known by its members. Apple's tests may be spread over several files, of runs with --only: they are added up.
"""
import argparse
import datetime
import json
from pathlib import Path


def rows_of(contents):
    """Rows as those of Google Benchmark; raises ValueError for a file of another program."""
    apple, rows = {}, []
    for path, found in contents.items():
        if {"passed", "failed"} <= found.keys():
            for counter in ("passed", "failed", "skipped"):
                apple[counter] = apple.get(counter, 0) + found[counter]
        elif "graph_breaks" in found:
            rows.append({"name": "python/graph_breaks", "graph_breaks": found["graph_breaks"],
                         "functions": found["functions"]})
        elif "overhead" in found:
            rows.append({"name": "python/overhead", "overhead_us": found["overhead"],
                         "attention_us": found["attention"], "cpp_us": found["cpp"]})
        else:
            raise ValueError(f"{path} has {sorted(found)}, which none of the package's programs writes")
    if apple:
        rows.append({"name": "python/apple_tests", **apple})
    return [{"run_type": "iteration", "iterations": 1, "real_time": 0.0, "cpu_time": 0.0, "time_unit": "ms", **row}
            for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--commit", required=True, help="of this repository, that was measured")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    options = parser.parse_args()
    contents = {str(path): json.loads(path.read_text(encoding="utf-8")) for path in options.files}
    known = {key: found[key] for found in contents.values() for key in ("torch", "device") if key in found}
    context = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "executable": Path(__file__).name, "commit": options.commit, "gpu": known.get("device", ""),
               "pytorch": known.get("torch", "")}
    result = {"context": context, "benchmarks": rows_of(contents)}
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
