# SPDX-License-Identifier: MIT
"""For all Python programs here: they note the addresses that their framework freed and, if pindown
is preloaded, register some of their buffers as a communication library would.

GPU_FREED   a file for the freed addresses, one a line
GPU_STATS   a file for pindown's statistics, "name value" lines
"""
import ctypes
import os


class Stats(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "hits", "misses", "pins", "unpins", "pin_failures", "evictions", "invalidations",
        "lost_races", "missed_invalidations", "tag_checks", "regions", "bytes", "kept_regions",
        "kept_bytes", "peak_regions", "peak_bytes", "max_regions", "max_bytes")] + [
        ("intercepting", ctypes.c_uint32), ("distrusted", ctypes.c_uint32),
        ("backend", ctypes.c_char * 16)]


def find_pindown():
    process = ctypes.CDLL(None)
    try:
        process.pindown_get.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint,
                                        ctypes.POINTER(ctypes.c_void_p)]
        process.pindown_put.argtypes = [ctypes.c_void_p]
        process.pindown_put.restype = None
        process.pindown_stats.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    except AttributeError:
        return None
    return process


PINDOWN = find_pindown()
freed_addresses = []
refused = 0


def register(address, size):
    """Registers a buffer and leaves it in the cache; later frees must remove it."""
    global refused
    region = ctypes.c_void_p()
    if PINDOWN is None:
        return
    if PINDOWN.pindown_get(address, size, 0, ctypes.byref(region)) == 0:
        PINDOWN.pindown_put(region)
    else:
        refused += 1


def freed(address):
    freed_addresses.append(address)


def finish():
    if os.environ.get("GPU_FREED"):
        with open(os.environ["GPU_FREED"], "w") as file:
            file.writelines(f"{address:#x}\n" for address in freed_addresses)
    if PINDOWN is not None and os.environ.get("GPU_STATS"):
        stats = Stats()
        PINDOWN.pindown_stats(ctypes.byref(stats), ctypes.sizeof(stats), -1)
        with open(os.environ["GPU_STATS"], "w") as file:
            file.writelines(f"{name} {getattr(stats, name)}\n"
                            for name, kind in Stats._fields_ if kind == ctypes.c_uint64)
            file.write(f"intercepting {stats.intercepting}\nrefused {refused}\n")
