# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the parts of run.py share: calls from a cold cache, rows, descriptions, packages, and tessera itself."""
import contextlib
import datetime
import importlib
import importlib.metadata
import os
import random
import signal
import site
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import torch

MEBIBYTE = 1 << 20
ROOT = Path(__file__).resolve().parent.parent.parent
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SEED = 1
REPETITIONS = 3


class Flush:
    """Empties the L2 cache, and of its own writes too: the measured call need not write them back."""

    def __init__(self):
        count = 32 * MEBIBYTE if DEVICE == "cuda" else 1
        self.dirty = torch.zeros(count, dtype=torch.int32, device=DEVICE)
        self.clean = torch.zeros(count, dtype=torch.int32, device=DEVICE)

    def __call__(self):
        self.dirty.add_(1)
        self.clean.max()


def synchronize():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def seconds_of(operation, flush, samples):
    """Median seconds of a call, each from a cold L2 cache. On a CPU by its clock."""
    operation()
    if DEVICE == "cpu":
        return statistics.median(seconds_on_cpu(operation) for _ in range(samples))
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for start, stop in marks:
        flush()
        start.record()
        operation()
        stop.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(stop) for start, stop in marks) * 1e-3


def once_from_cold(operation, flush):
    """Seconds of one call from a cold L2 cache."""
    if DEVICE == "cpu":
        return seconds_on_cpu(operation)
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    flush()
    start.record()
    operation()
    stop.record()
    torch.cuda.synchronize()
    return start.elapsed_time(stop) * 1e-3


def seconds_on_cpu(operation):
    start = time.perf_counter()
    operation()
    return time.perf_counter() - start


def peak_of(operation, bytes_left):
    """{"extra_MiB": the most memory beyond what was there and what is left}; nothing on a CPU.

    bytes_left: of what operation() returned and left, the bytes."""
    if DEVICE == "cpu":
        operation()
        return {}
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = operation()
    torch.cuda.synchronize()
    return {"extra_MiB": (torch.cuda.max_memory_allocated() - before - bytes_left(result)) / MEBIBYTE}


def require_close(name, what, found, exact, largest_error):
    """`found` as a number, unless it is further from the exact one than `largest_error`, which is relative."""
    found = float(found)
    if not abs(found - exact) <= largest_error * abs(exact):
        raise RuntimeError(f"{name}: the {what} is {found} but should be {exact}")
    return found


def passes_of(loss, problem):
    """Both passes of loss() as one operation, which begins without gradients."""
    def both():
        problem.clear()
        result = loss()
        result.backward()
        return result

    return both


def row(title, seconds, repetition, repetitions, counters):
    """One repetition as Google Benchmark writes it."""
    return {"name": title, "run_name": title, "run_type": "iteration", "repetitions": repetitions,
            "repetition_index": repetition, "iterations": 1, "real_time": seconds * 1e6, "cpu_time": seconds * 1e6,
            "time_unit": "us", **counters}


def failed(title, reason):
    """What stands in the results for a benchmark that could not be measured."""
    return {"name": title, "run_name": title, "run_type": "iteration", "repetition_index": 0, "iterations": 0,
            "error_occurred": True, "error_message": reason}


@contextlib.contextmanager
def interrupted_after(seconds):
    """Raises TimeoutError inside if it takes longer, as soon as Python runs again: a call into a library ends first."""
    def stop(*_):
        raise TimeoutError("the implementation's time is over")
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Run:
    """What has been measured, and what could not be.

    limit: seconds after which nothing is begun any more. limit_of_each: seconds for an implementation in a part; what
    would run longer is interrupted. only: implementations to be measured; none: all."""

    def __init__(self, limit, is_small, limit_of_each=1e9, only=()):
        self.end = time.monotonic() + limit
        self.limit_of_each = limit_of_each
        self.only = set(only)
        self.is_small = is_small
        self.flush = Flush()
        self.clocks = {}  # of each part
        self.rows = []
        self.failures = []
        self.begin_part()

    def begin_part(self):
        self.used = {}  # seconds of each implementation

    def wants(self, implementation):
        return not self.only or implementation in self.only

    def require_time(self):
        if time.monotonic() > self.end:
            raise TimeoutError("the time of all is over")

    def attempt(self, title, measure):
        """Adds the rows that measure() returns, or one that says why there are none; others' rows stay.

        title: the benchmark's name, whose first part is the implementation."""
        implementation = title.split("/")[0]
        if not self.wants(implementation):
            return
        start = time.monotonic()
        left = self.limit_of_each - self.used.get(implementation, 0.0)
        try:
            self.require_time()
            if left <= 0:
                raise TimeoutError(f"the implementation's {self.limit_of_each:.0f} seconds are over")
            with interrupted_after(min(left, 1e6)):
                self.rows += measure()
        except Exception as trouble:  # whatever another package throws
            text = str(trouble).strip().split("\n")[0][:200]
            self.note_failure(title, f"{type(trouble).__name__}: {text}")
        finally:
            self.used[implementation] = self.used.get(implementation, 0.0) + time.monotonic() - start
        if DEVICE == "cuda":
            torch.cuda.empty_cache()

    def note_failure(self, title, reason):
        self.rows.append(failed(title, reason))
        self.failures.append(f"{title}: {reason}")
        print(self.failures[-1], file=sys.stderr, flush=True)

    def time(self, title, operation, counters, rate=None, wanted_seconds=0.12, samples=(4, 30)):
        """Rows of a call that ran before. rate: a counter's name, and what it counts of a call, in 10^12."""
        least, most = (1, 1) if self.is_small else samples
        once = max(seconds_of(operation, self.flush, 1), 1e-9)
        rounds = min(max(int(wanted_seconds / once), least), most)
        times = [seconds_of(operation, self.flush, rounds) for _ in range(REPETITIONS)]
        shown = ", ".join(f"{name} {value:.4g}" for name, value in counters.items())
        print(f"{title}: {1e3 * statistics.median(times):.3f} ms, {shown}", flush=True)
        rates = [{rate[0]: rate[1] / seconds} if rate else {} for seconds in times]
        return [row(title, seconds, i, REPETITIONS, {"ms": 1e3 * seconds, "rounds": rounds, **rates[i], **counters})
                for i, seconds in enumerate(times)]

    def time_passes(self, title, loss, problem, counters_of, wanted_seconds, samples):
        """Rows of both passes of loss(), whose gradients are the problem's.

        counters_of(result): of the first call, while its gradients are there; it raises where the result is wrong."""
        both = passes_of(loss, problem)
        try:
            counters = counters_of(both().detach())
            problem.clear()
            counters.update(peak_of(both, lambda _: problem.gradient_bytes()))
            return self.time(title, both, counters, None, wanted_seconds, samples)
        finally:
            problem.clear()

    def time_in_turns(self, operations, wanted_seconds, samples):
        """Rows of calls that ran before, in turns: one call of each, then the next one of each. The order changes from
        round to round: what a call follows has an effect on its time, by the power that the card may still draw.

        operations: {title: (call, counters)}."""
        least, most = (1, 1) if self.is_small else samples
        once = {title: max(seconds_of(call, self.flush, 1), 1e-9) for title, (call, _) in operations.items()}
        rounds = min(max(int(wanted_seconds * len(once) / sum(once.values())), least), most)
        orders = random.Random(SEED)
        rows = []
        for i in range(REPETITIONS):
            times = {title: [] for title in operations}
            for _ in range(rounds):
                for title in orders.sample(list(operations), len(operations)):
                    times[title].append(once_from_cold(operations[title][0], self.flush))
            for title, (_, counters) in operations.items():
                seconds = statistics.median(times[title])
                rows.append(row(title, seconds, i, REPETITIONS, {"ms": 1e3 * seconds, "rounds": rounds, **counters}))
        for title in operations:
            found = [each["ms"] for each in rows if each["name"] == title]
            print(f"{title}: {statistics.median(found):.3f} ms in turns", flush=True)
        return rows


class Clocks:
    """What nvidia-smi says while something is measured, five times a second."""
    QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu"

    def __enter__(self):
        self.file = tempfile.TemporaryFile("w+")
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", f"--query-gpu={self.QUERY}", "--format=csv,noheader,nounits", "--id=0", "-lms", "200"],
                stdout=self.file, stderr=subprocess.DEVNULL)
        except OSError:
            self.process = None
        return self

    def __exit__(self, *_):
        if self.process is not None:
            self.process.terminate()
            self.process.wait()

    def described(self):
        """Medians and extremes of the samples in which the device was busy for most of the time before."""
        self.file.seek(0)
        return described_clocks(self.file.read())


def described_clocks(text):
    samples = []
    for line in text.splitlines():
        try:
            samples.append([float(cell) for cell in line.split(",")])
        except ValueError:  # a line that was cut off, or "[N/A]"
            continue
    busy = [sample for sample in samples if len(sample) == 5 and sample[4] >= 50]
    if not busy:
        return "unknown"
    sm, memory, power, temperature, _ = zip(*busy)
    return (f"SM {statistics.median(sm):.0f} MHz ({min(sm):.0f} to {max(sm):.0f}), memory "
            f"{statistics.median(memory):.0f} MHz, {statistics.median(power):.0f} W (at most {max(power):.0f}), "
            f"{max(temperature):.0f} C, {len(busy)} samples under load")


def first_line(*command):
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip().split("\n")[0]
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def of_device(query):
    return first_line("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader", "--id=0")


def context(commit=None, **more):
    """The description of a run; `more` names what was measured."""
    on_cuda = DEVICE == "cuda"
    return {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **more,
            "gpu": torch.cuda.get_device_name() if on_cuda else "none", "driver": of_device("driver_version"),
            "clocks_sm_mem_maxsm": of_device("clocks.sm,clocks.mem,clocks.max.sm"),
            "power_limit": of_device("power.limit"), "cuda_runtime": torch.version.cuda or "none",
            "pytorch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "seed": SEED,
            "commit": commit or os.environ.get("TESSERA_COMMIT") or first_line("git", "-C", str(ROOT), "rev-parse",
                                                                               "--short=12", "HEAD")}


def version_of(module, distribution=None):
    """Of a package that was imported, or that is installed; "unknown" for others."""
    try:
        return importlib.metadata.version(distribution or module)
    except importlib.metadata.PackageNotFoundError:
        return getattr(sys.modules.get(module), "__version__", None) or "unknown"


def tensors_of(file):
    """{name: tensor} of one of the safetensors files of tests/data, on the CPU."""
    folder = ROOT / "tests" / "data"
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    tensors, _ = importlib.import_module("safetensors_file").read(folder / file)
    return {name: torch.from_numpy(array["bfloat16"].astype("int16")).view(torch.bfloat16)
            if array.dtype.names else torch.from_numpy(array.copy()) for name, array in tensors.items()}


def tessera():
    """The package of examples/pytorch: installed, or built in place as its README says."""
    folder = str(ROOT / "examples" / "pytorch")
    if folder not in sys.path:
        sys.path.append(folder)
    return importlib.import_module("tessera_torch")


def use_packages(packages, folder):
    """Makes wheels and folders importable. Wheels go into a folder named site-packages, as if they were installed:
    packages ask for that name, and for the paths that wheels add."""
    installed = Path(folder) / "site-packages"
    installed.mkdir()
    for package in packages:
        if package.suffix == ".whl":
            with zipfile.ZipFile(package) as archive:
                archive.extractall(installed)  # Triton reads the source of its kernels, which it cannot in an archive
    for folder in [*(package for package in packages if package.suffix != ".whl"), installed]:
        sys.path.insert(0, str(folder.resolve()))
        site.addsitedir(str(folder.resolve()))
