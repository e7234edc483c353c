# SPDX-License-Identifier: MIT
"""turns.py LIBRARY TRACE PROCESSORS SETS TURNS COMMAND...: the cost of a preload, by turns.

COMMAND does a round of its work for each line on its standard input, and prints "NAME<tab>NS" for
each measurement, and an empty line. Four processes of it (without the preload, once more without
as a control, preloaded, traced) are alive at once and take turns of milliseconds on the same
PROCESSORS. So a machine that changes its speed does so for all of them: each turn is compared with
the neighbouring turn without the preload. This is repeated with SETS of processes, since the layout
of a process's memory lasts for its life; the distance of the control from 1 shows how much of that
influence is left.

Prints lines "KIND<tab>NAME<tab>NS": the median without the preload, and that median times the
median of the ratios.
"""
import os
import statistics
import subprocess
import sys

WARM_UP = 4
KINDS = ("direct", "control", "preloaded", "traced")
# Each kind comes once in each row, and equally often after each other kind, so that none finds the
# processor's caches as it left them more often than the others.
ORDERS = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))


def start(kind, library, trace, command):
    # Address spaces and hashes are as equal as possible; the environments have the same size.
    wanted = {"direct": (), "control": (), "preloaded": ("LD_PRELOAD",),
              "traced": ("LD_PRELOAD", "PINDOWN_TRACE")}
    changes = {"LD_PRELOAD": library, "PINDOWN_TRACE": trace}
    others = "".join(f"{name}={value} " for name, value in changes.items()
                     if name not in wanted[kind])
    environment = dict(os.environ, PYTHONHASHSEED="0", PADDING=others,
                       **{name: changes[name] for name in wanted[kind]})
    return subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE)


def take_turn(process):
    process.stdin.write("\n")
    process.stdin.flush()
    figures = {}
    while line := process.stdout.readline().rstrip("\n"):
        name, value = line.split("\t")
        figures[name] = float(value)
    if not figures:
        sys.exit("a process ended before its time")
    return figures


def measure_set(library, trace, turns, command):
    processes = {kind: start(kind, library, trace, command) for kind in KINDS}
    rounds = {kind: [] for kind in KINDS}
    for turn in range(WARM_UP + turns):
        for place in ORDERS[turn % len(ORDERS)]:
            figures = take_turn(processes[KINDS[place]])
            if turn >= WARM_UP:
                rounds[KINDS[place]].append(figures)
    for process in processes.values():
        process.stdin.close()
        if process.wait() != 0:
            sys.exit("a process failed")
    return rounds


def without_randomization(command):
    works = subprocess.run(["setarch", "-R", "true"], capture_output=True, check=False)
    return (["setarch", "-R"] if works.returncode == 0 else []) + command


def main():
    library, trace = sys.argv[1:3]
    processors, sets, turns = (int(argument) for argument in sys.argv[3:6])
    command = without_randomization(sys.argv[6:])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-processors:])
    direct, ratios = {}, {}
    for _ in range(sets):
        rounds = measure_set(library, trace, turns, command)
        for name in rounds["direct"][0]:
            base = [figures[name] for figures in rounds["direct"]]
            direct.setdefault(name, []).append(statistics.median(base))
            for kind in KINDS:
                ratio = statistics.median(figures[name] / without for figures, without
                                          in zip(rounds[kind], base))
                ratios.setdefault((name, kind), []).append(ratio)
    for name, kind in ratios:
        value = statistics.median(direct[name]) * statistics.median(ratios[name, kind])
        print(f"{kind}\t{name}\t{value:.1f}")
        print(name, kind, *(f"{ratio:.4f}" for ratio in sorted(ratios[name, kind])),
              file=sys.stderr)


main()
