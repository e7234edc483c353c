# SPDX-License-Identifier: MIT
"""CuPy (static libcudart): arrays from its pool, from cudaMalloc for each, and stream-ordered."""
import cupy

import buffers


def arrays(what):
    for size in (1000, 1 << 20, 5 << 20):
        for _ in range(4):
            array = cupy.arange(size, dtype=cupy.float32)
            buffers.register(array.data.ptr, array.nbytes)
            buffers.freed(array.data.ptr)
            print(f"{what}, sum {float(array.sum(dtype=cupy.float64)):.0f}")
            del array


def pooled():
    pool = cupy.get_default_memory_pool()
    block = cupy.ones((3000, 1000))
    print(f"pooled, sum {float(block.sum()):.0f}")
    address = block.data.ptr
    del block
    buffers.freed(address)
    pool.free_all_blocks()


def main():
    pooled()
    cupy.cuda.set_allocator(None)
    arrays("each by itself")
    cupy.cuda.set_allocator(cupy.cuda.malloc_async)
    arrays("stream-ordered")
    cupy.cuda.set_allocator(None)
    a = cupy.random.RandomState(1).standard_normal((500, 500))
    print(f"product {float(cupy.linalg.norm(a @ a)):.3f}")
    cupy.cuda.runtime.deviceSynchronize()
    buffers.finish()


main()
