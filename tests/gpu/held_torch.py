# SPDX-License-Identifier: MIT
"""Trains nothing, but uses memory as a training with a cache of registrations does: tensors are
registered with ibv_reg_mr on the recording libibverbs, and found again by their address; the oldest
of MOST registrations is deregistered for a new one. Every few steps PyTorch gives its memory back
to the driver. A registration that is found for memory which has been given back since is stale.
Usage: held_torch.py STEPS. Exits 1 if any is, or if the process grows.
"""
import ctypes
import os
import random
import sys

import torch

MIB, ACCESS, MOST = 1 << 20, 7, 1000
verbs = ctypes.CDLL("libibverbs.so.1")
for name, result, arguments in (
        ("ibv_get_device_list", ctypes.POINTER(ctypes.c_void_p), [ctypes.c_void_p]),
        ("ibv_open_device", ctypes.c_void_p, [ctypes.c_void_p]),
        ("ibv_alloc_pd", ctypes.c_void_p, [ctypes.c_void_p]),
        ("ibv_reg_mr", ctypes.c_void_p,
         [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]),
        ("ibv_dereg_mr", ctypes.c_int, [ctypes.c_void_p])):
    getattr(verbs, name).restype = result
    getattr(verbs, name).argtypes = arguments


def lines_of_maps():
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return sum(1 for _ in maps)


def main():
    steps = int(sys.argv[1])
    domain = verbs.ibv_alloc_pd(verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0]))
    dice, cache, given_back = random.Random(7), {}, {}
    maps = made = stale = found = 0
    for step in range(steps):
        tensors = [torch.empty(dice.choice((2, 20, 24, 64)) * MIB, dtype=torch.uint8,
                               device="cuda") for _ in range(4)]
        for tensor in tensors:
            at = tensor.data_ptr()
            if at in cache and cache[at][0] >= tensor.nbytes:
                found += 1
                stale += given_back.get(at, -1) >= cache[at][1]
                continue
            for old in [at] if at in cache else list(cache)[:len(cache) - MOST + 1]:
                if verbs.ibv_dereg_mr(cache.pop(old)[2]) != 0:
                    sys.exit("ibv_dereg_mr failed")
            mr = verbs.ibv_reg_mr(domain, at, tensor.nbytes, ACCESS)
            if not mr:
                sys.exit("ibv_reg_mr: refused")
            cache[at], made = (tensor.nbytes, step, mr), made + 1
        del tensor, tensors
        if step % 4 == 3:
            torch.cuda.empty_cache()
            for at in cache:
                given_back[at] = step
        if step == steps // 2:
            maps = lines_of_maps()
    print(f"{steps} steps: {made} registrations, {found} found again, {stale} of them stale; "
          f"lines of maps {maps} at half, {lines_of_maps()} at the end; "
          f"{torch.cuda.mem_get_info()[0] >> 20} MiB free")
    sys.stdout.flush()
    os._exit(1 if stale or lines_of_maps() > maps + 100 else 0)


main()
