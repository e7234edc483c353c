# SPDX-License-Identifier: MIT
"""Which test reaches which line: one run of each test in a tree that is built for gcov.

The map is a file for each test, and is made again only for a test whose own source has changed. A
line of a source that has changed since is looked up where it was then."""

import concurrent.futures
import difflib
import glob
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import time

from tree import GUEST, TOO_LONG, TOP, Tree, read, write

# Children of a test end with _exit(), which leaves out what they have counted.
DUMP = """
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <unistd.h>

void __gcov_dump(void);

__attribute__((visibility("hidden"), noreturn)) void _exit(int status)
{
	__gcov_dump();
	for (;;)
		syscall(SYS_exit_group, status);
}
"""

# kmod/ runs only in the guest, where nothing is known of lines.
ROOMS = ('cache/', 'hook/', 'tools/')
KMOD = 'kmod/'


def digest(text):
    return hashlib.sha256(text.encode('utf-8', 'surrogateescape')).hexdigest()[:16]


def source_of(test):
    """The file that a test is written in, or the nearest to it."""
    name = os.path.basename(test)
    if not test.startswith('build/'):
        return os.path.join(TOP, test)
    found = glob.glob(os.path.join(TOP, 'tests', '**', name + '.c'), recursive=True)
    return found[0] if found else os.path.join(TOP, 'tests/model/main.c')


def lines_of(data_files, root):
    """{file: [lines]} that ran, from gcov's data."""
    reached = {}
    for path in data_files:
        notes = path[:-len('.gcda')] + '.gcno'
        if not os.path.exists(notes):
            os.symlink(os.path.join(root, notes[notes.index('/build/obj/') + 1:]), notes)
    output = subprocess.run(['gcov', '--json-format', '--stdout', *data_files], cwd=root,
                            capture_output=True, check=False).stdout
    for document in output.splitlines():
        for file in json.loads(document)['files']:
            name = os.path.normpath(file['file'])
            if not name.startswith(ROOMS):
                continue
            ran = reached.setdefault(name, set())
            ran.update(line['line_number'] for line in file['lines'] if line['count'])
    return {name: sorted(lines) for name, lines in reached.items()}


class Reach:
    def __init__(self, folder, libraries):
        self.folder = os.path.join(folder, 'reach')
        self.tree = Tree(os.path.join(folder, 'coverage'), '-O0 -g -w --coverage', libraries)
        self.tests = {}     # name: what is known of it
        self.left_out = {}  # the same of tests that are not run
        self.texts = {}     # digest: lines of a source, as it was
        self.moved = {}     # (file, digest): line now -> line then
        os.makedirs(os.path.join(self.folder, 'sources'), exist_ok=True)

    def _path(self, test):
        return os.path.join(self.folder, os.path.basename(test) + '.json.gz')

    def _load(self, test, limit):
        """What is known of a test; None if its source has changed, or it may take longer now."""
        try:
            with gzip.open(self._path(test), 'rt') as file:
                known = json.load(file)
        except (OSError, ValueError):
            return None
        if known['status'] == TOO_LONG and known['seconds'] * 1.5 < limit:
            return None
        return known if known['source'] == digest(read(source_of(test))) else None

    def _run(self, test, limit):
        prefix = os.path.join(self.folder, 'data', os.path.basename(test))
        shutil.rmtree(prefix, ignore_errors=True)
        begin = time.monotonic()
        status = self.tree.run(test, limit, {'GCOV_PREFIX': prefix})
        seconds = time.monotonic() - begin
        data = glob.glob(prefix + '/**/*.gcda', recursive=True)
        reached = lines_of([path for path in data if '/build/obj/' in path], self.tree.root) \
            if data else {}
        shutil.rmtree(prefix, ignore_errors=True)
        files = {}
        for name, lines in reached.items():
            text = read(self.tree.path(name))
            files[name] = [digest(text), lines]
            write(os.path.join(self.folder, 'sources', digest(text)), text)
        known = {'source': digest(read(source_of(test))), 'status': status,
                 'seconds': round(seconds, 2), 'files': files}
        self._save(test, known)
        return known

    def _save(self, test, known):
        self.tests[test] = known
        with gzip.open(self._path(test), 'wt') as file:
            json.dump(known, file)

    def update(self, tests, with_scripts, jobs, limit, say):
        """Completes the map."""
        missing = []
        for test in tests:
            self.tests[test] = self._load(test, limit)
            if not self.tests[test]:
                missing.append(test)
        if not missing:
            return
        say(f'the map of {len(missing)} tests is made')
        self.tree.refresh()
        goals = dict.fromkeys(goal for test in missing
                              for goal in self.tree.goals(test, with_scripts))
        dump = self.tree.path('build/dump.o')
        os.makedirs(os.path.dirname(dump), exist_ok=True)
        subprocess.run(['gcc', '-O1', '-fPIC', '-x', 'c', '-c', '-', '-o', dump], input=DUMP,
                       text=True, check=True)
        self.tree.ldflags = dump
        self.tree.make(goals, os.cpu_count() or 1, ['-k'])

        def map_one(test):
            if not os.path.exists(self.tree.path(test)):
                say(f'  {test}: could not be built here')
                self._save(test, {'source': digest(read(source_of(test))), 'status': 77,
                                  'seconds': 0, 'files': {}})
                return
            known = self._run(test, limit)
            say(f'  {os.path.basename(test)}: {known["seconds"]} s, '
                f'{sum(len(lines) for _, lines in known["files"].values())} lines'
                f'{"" if known["status"] in (0, 77) else ", status " + str(known["status"])}')

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            list(pool.map(map_one, missing))

    def leave_out(self, tests):
        """Tests that are not to run; what is known of them stays known."""
        for test in tests:
            known = self._load(test, 0)
            if known:
                self.left_out[test] = known

    def base_path(self, file):
        """A source in which faults are planted."""
        return os.path.join(os.path.dirname(self.folder), 'base', file)

    def _line_then(self, file, then, line):
        """The line of the source that the map was made with."""
        key = file, then
        if key not in self.moved:
            now = read(self.base_path(file))
            if digest(now) == then:
                self.moved[key] = None
            else:
                old = read(os.path.join(self.folder, 'sources', then)).splitlines()
                match = difflib.SequenceMatcher(None, old, now.splitlines(), autojunk=False)
                self.moved[key] = {b + i + 1: a + i + 1 for a, b, n in match.get_matching_blocks()
                                   for i in range(n)}
        moved = self.moved[key]
        return line if moved is None else moved.get(line)

    def tests_of(self, fault):
        """The tests that reach a fault, the fastest first; the module's: all boots."""
        if fault.file.startswith(KMOD):
            return sorted((test for test in self.tests if test.startswith(GUEST)),
                          key=lambda test: self.tests[test]['seconds'])
        return [test for _, test in sorted(self._reaching(self.tests, fault))]

    def is_beyond_all(self, fault):
        """Whether no test reaches it, not even one that is left out."""
        if fault.file.startswith(KMOD):
            return False
        return not self._reaching({**self.tests, **self.left_out}, fault)

    def is_left_out_of(self, fault):
        """Whether tests that do not run here reach it."""
        return bool(self._reaching(self.left_out, fault))

    def _reaching(self, tests, fault):
        found = []
        for test, known in tests.items():
            then, lines = (known or {'files': {}})['files'].get(fault.file, (None, ()))
            if then and any(self._line_then(fault.file, then, line) in lines
                            for line in range(fault.first_line, fault.last_line + 1)):
                found.append((known['seconds'], test))
        return found
