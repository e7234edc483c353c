#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""recipes.py TREE VERSION: reads the files for Spack and EasyBuild in a tree's packaging/ as these
programs do, and asks make in that tree, by a dry run, whether it understands what they call it
with. Prints what is wrong.

It knows Spack's directives with their arguments (v1.0's language), and EasyBuild's parameters (of
5.0's --avail-easyconfig-params) that a file of this kind may have: any other name is an error.
"""
import inspect
import os
import re
import subprocess
import sys
import types

tree, version = sys.argv[1:]


def wrong(text):
    print(text)


def dry_run(what, arguments):
    """Does make in the tree understand these arguments, and would it do something by them?"""
    ran = subprocess.run(["make", "-n", "-C", tree, *arguments], capture_output=True, text=True)
    if ran.returncode != 0 or len(ran.stdout.splitlines()) < 10:
        wrong(f"{what}: make {' '.join(arguments)} fails: {ran.stderr}")
    if "tests/" in ran.stdout:
        wrong(f"{what}: make {' '.join(arguments)} would build something of tests/")
    return ran.stdout


# ---- Spack ---------------------------------------------------------------------------------------

SPEC = re.compile(r"[a-z0-9-]*(@[0-9a-z.:=]+)?([+~][a-z_]+)*"
                  r"( ?(target|platform|%)=?[a-z0-9_:.]+)?$")
seen = {"version": [], "variant": [], "when": [], "depends_on": []}


def check_spec(spec):
    if not SPEC.match(spec):
        wrong(f"spack: '{spec}' is no spec")


def note_when(when):
    if when is not None:
        check_spec(when)
        seen["when"].append(when)


class Directives:
    """What a class of a package may call in its body."""

    @staticmethod
    def version(ver, checksum=None, *, url=None, sha256=None, git=None, commit=None, tag=None,
                branch=None, preferred=None, deprecated=None, submodules=None):
        seen["version"].append(ver)

    @staticmethod
    def variant(name, default=None, description="", values=None, multi=None, validator=None,
                when=None, sticky=False):
        if not description:
            wrong(f"spack: the variant {name} has no description")
        seen["variant"].append(name)

    @staticmethod
    def depends_on(spec, when=None, type=("build", "link"), patches=None):
        check_spec(spec)
        note_when(when)
        for one in (type,) if isinstance(type, str) else type:
            if one not in ("build", "link", "run", "test"):
                wrong(f"spack: a dependency has no type '{one}'")
        seen["depends_on"].append(spec)

    @staticmethod
    def conflicts(conflict_spec, when=None, msg=None):
        check_spec(conflict_spec)
        note_when(when)

    @staticmethod
    def requires(*requirement_specs, policy="one_of", when=None, msg=None):
        for spec in requirement_specs:
            check_spec(spec)
        note_when(when)

    @staticmethod
    def license(license_identifier, checked_by=None, when=None):
        if license_identifier != "MIT":
            wrong(f"spack: the licence is '{license_identifier}'")

    @staticmethod
    def maintainers(*names):
        pass


class MakefilePackage:
    """The base class: a package with build() and install() that call make."""


def read_spack():
    path = os.path.join(tree, "packaging/spack/packages/pindown/package.py")
    calls = []

    def make(*arguments, **options):
        calls.append(arguments)

    def run_after(phase):
        if phase not in ("edit", "build", "install"):
            wrong(f"spack: MakefilePackage has no phase '{phase}'")
        return lambda function: function

    def on_package_attributes(run_tests=None):
        return lambda function: function

    package = types.ModuleType("spack.package")
    for name, function in inspect.getmembers(Directives, inspect.isfunction):
        setattr(package, name, function)
    package.MakefilePackage = MakefilePackage
    package.make = make
    package.spack_cc = "cc"
    package.run_after = run_after
    package.on_package_attributes = on_package_attributes
    package.Executable = lambda name: lambda *arguments: None
    sys.modules["spack"] = types.ModuleType("spack")
    sys.modules["spack.package"] = package
    names = {"__name__": "package"}
    with open(path, encoding="utf-8") as file:
        exec(compile(file.read(), path, "exec"), names)  # as Spack does

    made = names.get("Pindown")
    if made is None or not issubclass(made, MakefilePackage):
        wrong("spack: packages/pindown has no class Pindown")
        return
    if not (made.__doc__ or "").strip() or not made.homepage:
        wrong("spack: there is no description, or no homepage")
    if seen["version"] != [version]:
        wrong(f"spack: versions {seen['version']}")
    for when in seen["when"]:
        for name in re.findall(r"[+~]([a-z_]+)", when):
            if name not in seen["variant"]:
                wrong(f"spack: '{when}' names no variant")
    if "c" not in seen["depends_on"]:
        wrong("spack: it does not depend on a C compiler")

    class Prefix(str):
        def __getattr__(self, name):
            return Prefix(os.path.join(self, name))

    class Spec:
        """A spec with some variants and without the others."""

        def __init__(self, *variants):
            self.variants = variants

        def satisfies(self, spec):
            check_spec(spec)
            return (spec[0] == "+") == (spec[1:] in self.variants)

    def build(*variants):
        calls.clear()
        one = made()
        one.prefix = Prefix("/opt/pindown")
        one.spec = Spec(*variants)
        one.build(one.spec, one.prefix)
        one.install(one.spec, one.prefix)
        one.check_install()
        if [call[0] for call in calls] != ["all", "install"]:
            wrong(f"spack: it calls make with {calls}")
        return [dry_run("spack", call) for call in calls]

    if "/opt/pindown/lib/libpindown.so.0" not in build("symbols", "verbs")[1]:
        wrong("spack: the library would be installed elsewhere")
    for variants, source in (((), "symbols_none.c"), ((), "try_unbuilt.c"),
                             (("verbs",), "symbols_none.c"), (("symbols",), "try_unbuilt.c")):
        for said in build(*variants):
            if source not in said:
                wrong(f"spack: of the variants, with {variants} only, {source} is not built")


# ---- EasyBuild -----------------------------------------------------------------------------------

PARAMETERS = """easyblock name version homepage description toolchain sources builddependencies
dependencies skipsteps buildopts installopts prebuildopts preinstallopts sanity_check_paths
sanity_check_commands moduleclass source_urls checksums patches docurls""".split()
MANDATORY = "name version homepage description toolchain".split()
STEPS = "fetch source patch prepare configure build test install sanitycheck cleanup module".split()
CLASSES = """base bio cae chem compiler data debugger devel geo ide lang lib math mpi numlib perf
quantum phys system toolchain tools vis""".split()


def read_easybuild():
    folder = os.path.join(tree, "packaging/easybuild")
    for file in os.listdir(folder):
        path = os.path.join(folder, file)
        given = {"SOURCE_TAR_GZ": "%(name)s-%(version)s.tar.gz"}
        names = dict(given)
        with open(path, encoding="utf-8") as text:
            exec(compile(text.read(), path, "exec"), names)  # as EasyBuild does
        for name in names:
            if name not in PARAMETERS and name not in given and not name.startswith("local_") \
                    and name != "__builtins__":
                wrong(f"easybuild: no parameter is called '{name}'")
        for name in MANDATORY:
            if not names.get(name):
                wrong(f"easybuild: '{name}' is mandatory")
        chain = names["toolchain"]
        if sorted(chain) != ["name", "version"]:
            wrong(f"easybuild: toolchain {chain}")
        if file != f"{names['name']}-{names['version']}-{chain['name']}-{chain['version']}.eb":
            wrong(f"easybuild: {file} is not what it is looked for by")
        if names["moduleclass"] not in CLASSES:
            wrong(f"easybuild: moduleclass '{names['moduleclass']}'")
        for step in names["skipsteps"]:
            if step not in STEPS:
                wrong(f"easybuild: no step is called '{step}'")
        for one in names["dependencies"] + names["builddependencies"]:
            if not (isinstance(one, tuple) and len(one) in (2, 3, 4)):
                wrong(f"easybuild: {one} is no dependency")
        if sorted(names["sanity_check_paths"]) != ["dirs", "files"]:
            wrong("easybuild: sanity_check_paths has files and dirs")
        for goal, options in (("all", "buildopts"), ("install", "installopts")):
            words = names[options] % {"installdir": "/opt/pindown"}
            said = dry_run("easybuild", [goal, *__import__("shlex").split(words)])
        for one in names["sanity_check_paths"]["files"]:
            if os.path.basename(one) not in said:
                wrong(f"easybuild: make install does not make {one}")


read_spack()
read_easybuild()
