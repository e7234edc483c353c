# SPDX-License-Identifier: MIT
"""Commands for gdb that show pindown's state, in a process or in a core file.

    (gdb) source pindown-gdb.py
    (gdb) pindown regions [ADDRESS]   all regions, or the region that contains the address
    (gdb) pindown guards              memory that threads are about to free: cache/end/guard.h
    (gdb) pindown flights             the memory that threads are pinning at this moment

They read memory and call no function, so they also work in a core file, and in a process that has
stopped anywhere. libpindown.so must have its debug information (it has, unless it was stripped).
"""
import os

import gdb


class Missing(gdb.GdbError):
    """Something is not there; gdb shows the text as one line."""


def library():
    """The file that contains the cache: libpindown.so, or a test that is linked with the cache."""
    for objfile in gdb.objfiles():
        if objfile.lookup_global_symbol("pdn_regions"):
            return objfile
    if any("libpindown.so" in objfile.filename for objfile in gdb.objfiles()):
        raise Missing("libpindown.so was stripped, or its version is not that of this script")
    raise Missing("libpindown.so is not in this process")


def variable(name, file=None):
    """A variable of libpindown.so; for a static one, also the file that defines it.

    Where the library was optimized as a whole, its debug information has a static variable twice:
    in its own file without an address, and with its address in the file that all were joined to."""
    objfile, found = library(), []
    if not file:
        symbol = objfile.lookup_global_symbol(name)
        found = [symbol] if symbol else []
    else:
        found = [s for s in gdb.lookup_static_symbols(name) if s.symtab.objfile == objfile]
        found = [s for s in found if not s.value().is_optimized_out]
        found.sort(key=lambda s: os.path.basename(s.symtab.filename) != file)
    if not found:
        raise Missing(f"there is no {name}: this script's version is not that of libpindown.so")
    return found[0].value()


def choice(kind, value, prefix):
    """The name of an enum's value: live for PDN_LIVE."""
    for field in gdb.lookup_type(kind).fields():
        if field.enumval == int(value):
            return field.name.removeprefix(prefix).lower()
    return str(int(value))


def span(begin, end):
    """An address and a length."""
    return f"0x{int(begin):x}  {int(end) - int(begin):>12}"


def flags_of(value):
    names = [(1, "volatile"), (2, "no-sync"), (4, "missed"), (8, "spans"), (16, "objects"),
             (32, "awaits"), (64, "window"), (128, "replaced"), (256, "fell-back"), (512, "pcie"),
             (8192, "unasked"), (32768, "leaving")]
    return " ".join(name for bit, name in names if int(value) & bit)


def holds_of(number):
    """The sum over all stripes of hold counts that are in use; each of them wraps."""
    holds, used = variable("pdn_holds"), variable("pdn_stripes")
    return sum(int(holds[stripe][number]) for stripe in range(holds.type.range()[1] + 1)
               if int(used[stripe // 64]) >> stripe % 64 & 1 and int(holds[stripe])) & 0xFFFFFFFF


def descriptor_of(record, number):
    """Of its dma-buf, or -1: only a region with the flag PDN_REGION_BACKED may have one."""
    backed = int(record["flags"]) & 1024
    return int(variable("pdn_backings")[number]["descriptor"]) - 1 if backed else -1


class Regions(gdb.Command):
    """pindown regions [ADDRESS]: all pinned regions, or the one that contains ADDRESS.

    State: live (look-ups find it), checked (the same, but each hit asks the driver), past (of
    before a checkpoint), dying (a thread is unpinning it), kept (its memory was freed, and it is
    still held)."""

    def __init__(self):
        super().__init__("pindown regions", gdb.COMMAND_DATA, gdb.COMPLETE_EXPRESSION)

    def invoke(self, argument, from_tty):
        wanted = int(gdb.parse_and_eval(argument)) if argument else None
        records, briefs = variable("pdn_regions"), variable("pdn_briefs")
        used = int(variable("table", "region.c")["used"])
        shown = 0
        for number in range(1, used + 1):
            record, state = records[number], briefs[number]["state"]
            if int(state) == 0:
                continue
            if wanted is not None and not int(record["base"]) <= wanted < int(record["end"]):
                continue
            if not shown:
                print(f"{'region':>6}  {'state':<9}  {'base':<14}  {'bytes':>12}  holds  device"
                      f"  {'fd':>4}  buffer id  flags")
            shown += 1
            print(f"{number:>6}  {choice('enum pdn_state', state, 'PDN_'):<9}"
                  f"  {span(record['base'], record['end'])}  {holds_of(number):>5}"
                  f"  {int(record['device']):>6}  {descriptor_of(record, number):>4}"
                  f"  {int(record['buffer_id']):>9}  {flags_of(record['flags'])}")
        if not shown:
            print("no region" + (f" contains 0x{wanted:x}" if wanted is not None else ""))


class Guards(gdb.Command):
    """pindown guards: the memory that threads are about to end. A guard is up from before its
    thread looks for regions until the driver's free has returned."""

    def __init__(self):
        super().__init__("pindown guards", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        shown = 0
        for thread in self.threads():
            slots = thread["guards"]
            for slot in range(slots.type.range()[1] + 1):
                kind = choice("enum pdn_guard_kind", slots[slot]["kind"], "PDN_GUARD_")
                if kind == "none":
                    continue
                shown += 1
                print(f"thread {int(thread['tid'])}  {kind:<8}  {self.what(kind, slots[slot])}")
        if not shown:
            print("no guard")

    @staticmethod
    def threads():
        """The records that living threads own: in blocks, each with a word of a bit for each."""
        blocks = variable("record_blocks", "thread_records.c")
        for number in range(blocks.type.range()[1] + 1):
            records, owned = blocks[number]["records"], int(blocks[number]["owned"])
            if not int(records):
                break
            for bit in range(64):
                if owned >> bit & 1:
                    yield records[bit]

    @staticmethod
    def what(kind, slot):
        if kind == "range":
            return span(slot["begin"], slot["end"])
        if kind == "context":
            return f"context 0x{int(slot['begin']):x}"
        return f"device {int(slot['device'])}" if kind == "device" else "everything"


class Flights(gdb.Command):
    """pindown flights: the memory that threads are pinning at this moment."""

    def __init__(self):
        super().__init__("pindown flights", gdb.COMMAND_DATA, gdb.COMPLETE_NONE)

    def invoke(self, argument, from_tty):
        work, found = variable("pdn_works"), False
        while int(work):
            if choice("enum pdn_work_kind", work["kind"], "PDN_") == "flies":
                found = True
                self.show(work.cast(gdb.lookup_type("struct pdn_flight").pointer()))
            work = work["next"]
        if not found:
            print("no flight")

    @staticmethod
    def show(flight):
        what = span(flight["reach_begin"], flight["reach_end"])
        state = "lost" if flight["lost"] else ""
        print(f"thread {int(flight['work']['tid'])}  {what}  {state}".rstrip())


class Pindown(gdb.Command):
    """pindown regions, guards, flights: the state of libpindown.so in this process or core file."""

    def __init__(self):
        super().__init__("pindown", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument, from_tty):
        for command in SHOWN:
            command.invoke("", from_tty)


Pindown()
SHOWN = (Regions(), Guards(), Flights())
