#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Measures the repository itself, and writes what it finds as the JSON of Google Benchmark, for bench/report.py.

    .ci/run 2>&1 | tee build/ci.log                                # from a fresh clone, with empty compiler caches
    bench/house.py --ci-log build/ci.log --out build/house.json

house/concepts: how many concepts constrain nothing (tests/checks/concepts.cmake). house/folders: how many headers the
largest folder has, detail/ aside (tests/checks/layering.cmake). house/ci: how many minutes .ci/run took, whose last
lines the log ends with; a run with failures is refused. house/demo: how many seconds its stage with the demo took,
compiling included.
"""

import argparse
import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def number_of_check(name, pattern):
    """The number that a check prints."""
    command = ["cmake", "-D", f"INCLUDE={ROOT / 'include'}", "-P", str(ROOT / "tests" / "checks" / f"{name}.cmake")]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    said = run.stdout + run.stderr
    found = re.search(pattern, said)
    if run.returncode != 0 or found is None:
        sys.exit(f"house.py: {name}.cmake prints no {pattern}:\n{said}")
    return int(found[1])


def minutes_of_ci(log):
    """The minutes that a log of .ci/run says it took."""
    text = log.read_text(encoding="utf-8", errors="replace")
    seconds = re.findall(r"^==== summary, (\d+) s$", text, re.MULTILINE)
    counts = re.findall(r"^\d+ passed, (\d+) failed, \d+ skipped$", text, re.MULTILINE)
    if not seconds or not counts:
        sys.exit(f"house.py: {log} does not end as a log of .ci/run does")
    if counts[-1] != "0":
        sys.exit(f"house.py: {log} is of a run in which {counts[-1]} tests failed")
    return int(seconds[-1]) / 60


def seconds_of_demo(log):
    """The seconds that a log of .ci/run says the demo took."""
    text = log.read_text(encoding="utf-8", errors="replace")
    seconds = re.findall(r"^demo +\d+ passed +\d+ failed +\d+ skipped +(\d+) s$", text, re.MULTILINE)
    if not seconds:
        sys.exit(f"house.py: {log} has no stage with the demo")
    return int(seconds[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ci-log", type=Path, required=True, metavar="FILE", help="what .ci/run printed")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the JSON to write")
    options = parser.parse_args()
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True,
                            check=True).stdout.strip()
    found = {
        "house/ci": {"minutes": round(minutes_of_ci(options.ci_log), 1)},
        "house/demo": {"seconds": seconds_of_demo(options.ci_log)},
        "house/concepts": {"unused": number_of_check("concepts", r"house\.concepts_unused (\d+)")},
        "house/folders": {"headers": number_of_check("layering", r"house\.headers_in_largest_folder (\d+)")},
    }
    content = {
        "context": {"date": datetime.now(timezone.utc).isoformat(timespec="seconds"), "executable": "house.py",
                    "num_cpus": os.cpu_count(), "commit": commit},
        "benchmarks": [{"name": name, "run_name": name, "run_type": "iteration", **counters}
                       for name, counters in found.items()],
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
