# SPDX-License-Identifier: MIT
"""Registers 64 MiB of GPU memory, says so, and waits to be ended."""
import ctypes
import signal

import buffers

cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
for result in (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
               cuda.cuCtxSetCurrent(context),
               cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20))):
    if result != 0:
        raise SystemExit(f"CUDA error {result}")
buffers.register(address.value, 64 << 20)
print("registered" if buffers.PINDOWN and not buffers.refused else "not registered", flush=True)
signal.pause()
