# SPDX-License-Identifier: MIT
"""Copies of the source tree, in which faults are planted, and the commands that run there."""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading

GUEST = 'guest:'  # and the name of a boot: a test of the kernel module
TOO_LONG = 124  # the status of a test that was ended
TOP = os.path.realpath(os.path.join(os.path.dirname(__file__), '..', '..'))

# They look at documents and at the tree, build the tree again, or take very long and are about
# other programs.
LEFT_OUT = {'check-library', 'check-install', 'check-manual', 'check-examples', 'check-rooms',
            'check-make', 'check-debugging', 'check-fetch', 'check-protocol', 'check-patterns',
            'check-mutants', 'check-no-points', 'check-roots', 'check-page', 'check-perftest',
            'check-softnic-gtest', 'check-softnic-ucx', 'check-ucx', 'check-guest',
            'check-fuzz', 'check-recipes', 'check-abi', 'check-releases', 'check-guide',
            'check-packaging', 'check-tsan', 'check-facts'}
# Those of one lock never run at the same time.
PORTS, PROCESSES = threading.Lock(), threading.Lock()
LOCKS = {'check-softnic': PORTS, 'check-stale': PORTS, 'check-top': PROCESSES}


def tracked_files():
    """All files of the tree but what was built; in a checkout, what git knows or would add."""
    try:
        output = subprocess.run(['git', 'ls-files', '-zco', '--exclude-standard'], cwd=TOP,
                                check=True, capture_output=True).stdout
        return [name for name in os.fsdecode(output).split('\0') if name]
    except (OSError, subprocess.CalledProcessError):
        files = []
        for folder, folders, names in os.walk(TOP):
            folders[:] = [name for name in folders if name not in ('.git', 'build')]
            files += [os.path.relpath(os.path.join(folder, name), TOP) for name in names]
        return files


def read(path):
    with open(path, encoding='utf-8', errors='surrogateescape', newline='') as file:
        return file.read()


def write(path, text):
    with open(path, 'w', encoding='utf-8', errors='surrogateescape', newline='') as file:
        file.write(text)


def can_isolate():
    """Whether a test can have processes of its own, so that none outlives it."""
    command = ['unshare', '-mpf', '--mount-proc', '--kill-child', 'true']
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


ISOLATE = ['unshare', '-mpf', '--mount-proc', '--kill-child'] if can_isolate() else []


# A fault may make a test take all memory: it must not take the machine's. (RLIMIT_AS is no use: the
# library reserves address space.)
LIMITED = ['bash', '-c', 'echo 1000 >/proc/self/oom_score_adj; ulimit -d 8388608; exec "$@"', '-']

RUNNING = set()  # the tests' processes


def end_all():
    """Ends the tests that run."""
    for process in list(RUNNING):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Tree:
    """A copy of the tree, built with options of its own."""

    ldflags = ''

    def __init__(self, root, cflags, libraries=None):
        self.root, self.cflags = root, cflags
        self.libraries = os.path.realpath(libraries) if libraries else None

    def path(self, name):
        return os.path.join(self.root, name)

    def refresh(self):
        """Makes the sources those of the checkout; what is unchanged keeps its time."""
        names = set(tracked_files())
        for folder, folders, files in os.walk(self.root):
            folders[:] = [name for name in folders if name != 'build']
            for file in files:
                name = os.path.relpath(os.path.join(folder, file), self.root)
                if name not in names:
                    os.unlink(os.path.join(folder, file))
        for name in names:
            source, target = os.path.join(TOP, name), self.path(name)
            if not os.path.isfile(source) or os.path.islink(source):
                continue
            with open(source, 'rb') as file:
                content = file.read()
            if os.path.exists(target):
                with open(target, 'rb') as file:
                    if file.read() == content:
                        continue
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copy(source, target)

    def with_guest(self):
        """What the guest runs is there, with the kernel that the checkout may have fetched."""
        fetched, here = os.path.join(TOP, 'build/guest/stock'), self.path('build/guest/stock')
        if os.path.exists(fetched) and not os.path.exists(here):
            subprocess.run(['cp', '-a', '--parents', 'build/guest/stock', self.root], check=True,
                           cwd=TOP)
        names = self.variables('GUEST_PROGRAMS', 'GUEST_BUILD')
        return self.make([name for line in names for name in line.split()], os.cpu_count() or 1)

    def module_object(self, file):
        """The code of a file of the kernel module; b'' if the module does not compile."""
        at = self.path('build/guest/stock/modules/of-mutate')
        os.makedirs(at, exist_ok=True)
        kmod = self.path('kmod')
        for name in os.listdir(kmod):
            if name.endswith(('.c', '.h')) or name == 'Kbuild':
                text = read(os.path.join(kmod, name))
                if not os.path.exists(os.path.join(at, name)) or \
                        read(os.path.join(at, name)) != text:
                    write(os.path.join(at, name), text)
        environment = self.environment()
        del environment['CC']
        command = ['make', '-C', self.path('build/guest/stock/headers'), f'M={at}',
                   'PINDOWN_SIM=1', 'NVIDIA_SRC=none', 'modules']
        if subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                          env=environment).returncode:
            return b''
        return self.stripped(os.path.join(at, os.path.basename(file)[:-1] + 'o'))

    def stripped(self, path):
        """An object file without what debuggers read."""
        to = self.path('stripped.o')
        subprocess.run(['strip', '-g', '-o', to, path], check=True)
        with open(to, 'rb') as file:
            return file.read()

    def environment(self):
        build = self.path('build')
        new = dict(os.environ, BUILD=build, CC='gcc', SAN='', SAN_PRELOAD='', CHECK_OPTIONAL='1',
                   CHECK_LONG='', FUZZ_RUNS='1', LC_ALL='C', NEED_INSTALL='0')
        for name in ('MAKEFLAGS', 'MFLAGS', 'MAKELEVEL', 'MAKEOVERRIDES'):
            new.pop(name, None)
        if self.libraries:
            new['CPATH'] = os.path.join(self.libraries, 'include')
        return new

    def make(self, goals, jobs=1, more=(), limit=1800):
        """True if it was built."""
        ldflags = self.ldflags
        command = ['make', '-s', f'-j{jobs}', 'LTO=', f'CFLAGS={self.cflags}', *more]
        if self.libraries:
            at = os.path.join(self.libraries, 'lib')
            command += ['CHECK_CFLAGS=', 'CHECK_LIBS=-lcheck -lsubunit -lrt -lm']
            ldflags += f' -L{at} -Wl,-rpath,{at}'
        command.append(f'LDFLAGS={ldflags}')
        with open(self.path('make.log'), 'w', encoding='utf-8') as log:
            try:
                return subprocess.run(command + list(goals), cwd=self.root, check=False,
                                      stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                      env=self.environment(), timeout=limit).returncode == 0
            except subprocess.TimeoutExpired:
                return False

    def variables(self, *names):
        """The values of make's variables."""
        rule = 'values:;@' + '; '.join(f'echo $({name})' for name in names)
        return subprocess.run(['make', '-s', '--eval', rule, 'values'], cwd=self.root, check=True,
                              capture_output=True, text=True,
                              env=self.environment()).stdout.splitlines()

    def lists(self):
        """The goals for scripts, and all tests."""
        output = self.variables('ALL) $(CHECK_WITH', 'CHECK_UNIT) $(CHECK_SIM) $(CHECK_TREE')
        with_scripts = [goal for goal in dict.fromkeys(output[0].split())
                        if 'fuzz/fuzz' not in goal and '/guest/' not in goal
                        and 'peers' not in goal and 'ucx' not in goal and 'perftest' not in goal]
        tests = [test for test in output[1].split() if os.path.basename(test) not in LEFT_OUT]
        return with_scripts, tests

    def goals(self, test, with_scripts):
        if test.startswith(GUEST):
            return []
        return [test] if test.startswith('build/unit/test_') and 'table' not in test else \
            [*([test] if test.startswith('build/') else []), *with_scripts]

    def run(self, test, limit, more=None):
        """The exit status of a test, or TOO_LONG."""
        with LOCKS.get(os.path.basename(test), contextlib.nullcontext()):
            return self._run(test, limit, more)

    def _run(self, test, limit, more):
        command = [self.path(test)]
        if test.startswith(GUEST):
            command = [self.path('tests/guest/run'), '--short', test[len(GUEST):]]
            more = dict(more or {}, GUEST_LIMIT=str(int(limit)))
            limit += 60  # the script's own limit is that of the boot alone
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
            environment = dict(self.environment(), TMPDIR=scratch, **(more or {}))
            output = os.path.join(scratch, 'output')
            with open(output, 'wb') as log:
                process = subprocess.Popen([*ISOLATE, *LIMITED, *command], cwd=self.root,
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           env=environment, start_new_session=True)
                RUNNING.add(process)
                try:
                    return self._end_of(process, test, output, limit)
                except subprocess.TimeoutExpired:
                    return TOO_LONG
                finally:
                    try:
                        os.killpg(process.pid, signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                    process.wait()
                    RUNNING.discard(process)

    @staticmethod
    def _end_of(process, test, output, limit):
        """The exit status. A script, or a guest, in which something has failed need not go on."""
        if test.startswith('build/') or not ISOLATE:
            return process.wait(limit)
        for _ in range(int(limit * 4)):
            try:
                return process.wait(0.25)
            except subprocess.TimeoutExpired:
                if '\nFAIL' in '\n' + read(output):
                    return 1
        raise subprocess.TimeoutExpired(process.args, limit)
