# SPDX-License-Identifier: MIT
"""torch_turns.py NAME LIBRARY TRACE: what a preload costs a PyTorch training loop.

Three processes of torch_loop.py, without, preloaded and traced, are alive at once and take turns of a
few milliseconds, on the same processors, so that a machine that changes its speed does so for all of
them: each turn is compared with the one without that was taken beside it. Done anew a few times, since
a process's luck with its memory lasts for its life. Prints lines "KIND<tab>NAME<tab>NANOSECONDS": the
median without, and that times the median of the ratios.
"""
import os
import statistics
import subprocess
import sys

PROCESSES = 4
WARM_UP = 10
TURNS = 60
KINDS = ("direct", "preloaded", "traced")


def start(kind, library, trace):
    environment = dict(os.environ)
    if kind != "direct":
        environment["LD_PRELOAD"] = library
    if kind == "traced":
        environment["PINDOWN_TRACE"] = trace
    loop = os.path.join(os.path.dirname(__file__), "torch_loop.py")
    return subprocess.Popen([sys.executable, loop], env=environment, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def take_turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def measure(library, trace):
    processes = {kind: start(kind, library, trace) for kind in KINDS}
    times = {kind: [] for kind in KINDS}
    for turn in range(WARM_UP + TURNS):
        order = KINDS if turn % 2 else KINDS[::-1]
        for kind in order:
            time = take_turn(processes[kind])
            if turn >= WARM_UP:
                times[kind].append(time)
    for process in processes.values():
        process.stdin.close()
        if process.wait() != 0:
            sys.exit("a training loop failed")
    return times


def main():
    name, library, trace = sys.argv[1:]
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[-4:])  # its loop, autograd's thread, and the driver's
    direct, ratios = [], {kind: [] for kind in KINDS}
    for _ in range(PROCESSES):
        times = measure(library, trace)
        direct.append(statistics.median(times["direct"]))
        for kind in KINDS:
            ratios[kind].append(statistics.median(
                mine / base for mine, base in zip(times[kind], times["direct"])))
            print(f"{kind}: {ratios[kind][-1]:.4f} of direct", file=sys.stderr)
    for kind in KINDS:
        print(f"{kind}\t{name}\t{statistics.median(direct) * statistics.median(ratios[kind]):.1f}")


main()
