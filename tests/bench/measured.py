# SPDX-License-Identifier: MIT
"""What the scripts share that measure the caches: the peers' environments, what a table says of the
machine and its load, and the page docs/internals/measured.md."""
import datetime
import os
import pathlib
import platform
import subprocess
import sys
import time

DOCS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs/internals"
BUILD = pathlib.Path(os.environ.get("BUILD", "build")).resolve()
QUIET = 0.5  # more other work than this, and the table says so


def environment(peer, regions=2000000, driver="bench/null", backend="none"):
    """The environment in which a program of this peer runs."""
    result = dict(os.environ)
    for name in list(result):
        if name.startswith(("PINDOWN", "UCX_")):
            del result[name]
    if peer == "pindown":
        result.update(LD_PRELOAD=str(BUILD / "libpindown.so"), PINDOWN_BACKEND=backend,
                      PINDOWN_MAX_REGIONS=str(regions), BENCH_COMMAND=str(BUILD / "pindown"))
        if driver:
            result["LD_LIBRARY_PATH"] = str(BUILD / driver)
    if peer == "ucx":
        result["UCX_MODULE_DIR"] = "/nonexistent"  # its hooks of the machine's own CUDA driver
    return result


def ucx_version():
    """The UCX that is measured, in words."""
    program = BUILD / "bench/scale-ucx"
    if not program.exists():
        return "no UCX"
    done = subprocess.run([program, "version"], env=environment("ucx"), stdout=subprocess.PIPE,
                          text=True, check=False)
    return f"UCX {done.stdout.strip() or 'of an unknown version'}"


def processor():
    """Number and name of the processors."""
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                return f"{os.cpu_count()} x {line.split(':')[1].strip()}"
    except OSError:
        pass
    return f"{os.cpu_count()} x {platform.processor() or '?'}"


class Load:
    """The machine's other work: the load average at the start, which has nothing of the measuring
    yet, and the processor time that other processes used until the end."""

    def __init__(self):
        self.average = os.getloadavg()[0]
        self.begin = self.now()

    @staticmethod
    def now():
        """Seconds: elapsed; of all processes; of this one and its children; taken by the host."""
        tick = os.sysconf("SC_CLK_TCK")
        try:
            with open("/proc/stat", encoding="utf-8") as stat:
                values = [int(word) / tick for word in stat.readline().split()[1:9]]
        except OSError:
            values = [0.0] * 8
        user, nice, system, _idle, _wait, irq, softirq, stolen = values
        return time.monotonic(), user + nice + system + irq + softirq, sum(os.times()[:4]), stolen

    def words(self):
        """The load, and whether the machine was quiet."""
        elapsed, all_of_it, own, stolen = (b - a for a, b in zip(self.begin, self.now()))
        others = max(0.0, all_of_it - own) / max(elapsed, 1e-9)
        text = (f"load average {self.average:.2f} at the start, other work meanwhile: "
                f"{others:.2f} processors")
        if stolen > 0.001 * elapsed * (os.cpu_count() or 1):
            text += f", taken by the host: {stolen / max(elapsed, 1e-9):.2f}"
        if self.average > QUIET or others > QUIET:
            text += " (NOT QUIET)"
        return text


def about():
    """The facts about this machine, as lines."""
    return (f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}, Linux {platform.release()}, "
            f"{processor()}; {ucx_version()}")


def fill(script, text):
    """Replaces a script's earlier text in the page: that between the two lines that name it."""
    page = DOCS / "measured.md"
    begin, end = (f"<!-- tests/bench/{script}: {where} here -->" for where in ("from", "to"))
    old = page.read_text(encoding="utf-8")
    if begin not in old or end not in old:
        sys.exit(f"tests/bench/{script}: docs/internals/measured.md has no lines '{begin}' and "
                 f"'{end}'")
    head, rest = old.split(begin)
    page.write_text(f"{head}{begin}\n{text}\n{end}{rest.split(end)[1]}", encoding="utf-8")
