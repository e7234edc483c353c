# SPDX-License-Identifier: MIT
"""JAX with XLA_PYTHON_CLIENT_ALLOCATOR=platform: each array is an allocation of the driver's."""
import jax
import jax.numpy as jnp

import buffers


@jax.jit
def step(x):
    return jnp.tanh(x @ x.T) * 0.5


def main():
    for size in (64, 512, 1500):
        for round_ in range(4):
            array = jnp.full((size, size), 0.25 * (round_ + 1), dtype=jnp.float32)
            array.block_until_ready()
            address = array.unsafe_buffer_pointer()
            buffers.register(address, array.nbytes)
            print(f"{size}, sum {float(array.sum()):.1f}")
            result = step(array)
            print(f"{size}, step {float(result[0, 0]):.4f}")
            buffers.freed(address)
            array.delete()
            result.delete()
    jax.effects_barrier()
    buffers.finish()


main()
