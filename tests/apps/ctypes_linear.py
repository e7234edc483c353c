# SPDX-License-Identifier: MIT
"""Python reaches libcuda by ctypes: dlopen, and dlsym from within a C extension."""
import ctypes
import os
import sys

cuda = ctypes.CDLL("libcuda.so.1")
calls = os.environ.get("APP_CALLS")


def note(name, result, address=0):
    print(f"{name}: {result}", flush=True)
    if calls:
        with open(calls, "a") as file:
            file.write(f"{name} {result} {hex(address if result == 0 else 0)}\n")


def main():
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    out = ctypes.create_string_buffer(b"from Python", 64)
    back = ctypes.create_string_buffer(64)

    cuda.cuInit(0)
    note("cuDevicePrimaryCtxRetain", cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    cuda.cuCtxSetCurrent(context)
    for size in 64, 1 << 20, 5 << 20:
        result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
        note("cuMemAlloc_v2", result, address.value)
        cuda.cuMemcpyHtoD_v2(address, out, ctypes.c_size_t(64))
        cuda.cuMemcpyDtoH_v2(back, address, ctypes.c_size_t(64))
        print(back.value.decode())
        note("cuMemFree_v2", cuda.cuMemFree_v2(address), address.value)
    note("cuMemFree_v2", cuda["cuMemFree_v2"](ctypes.c_uint64(12345)), 12345)
    note("cuDevicePrimaryCtxRelease_v2", cuda.cuDevicePrimaryCtxRelease_v2(0))
    try:
        cuda.cuThisIsNot
    except AttributeError:
        print("no such function")
    return 23


sys.exit(main())
