# SPDX-License-Identifier: MIT
"""PyTorch with NCCL: a process for each GPU reduces gradients of many sizes, and returns its memory
to the driver and allocates it again.

Rank 0, which is the process that was started, notes the addresses that it freed.
"""
import os

import torch
import torch.distributed
import torch.multiprocessing

import buffers


def reduce_all(rank, ranks):
    for turn in range(3):
        for mib in (1, 3, 20, 64):
            gradient = torch.full((mib << 18,), float(rank + 1), device="cuda")
            buffers.register(gradient.data_ptr(), gradient.nbytes)
            torch.distributed.all_reduce(gradient)
            if rank == 0:
                mean = gradient.sum().item() / gradient.numel()
                print(f"{turn}: {mib} MiB, {mean * 2 / (ranks * (ranks + 1)):.3f}")
            del gradient
            torch.cuda.empty_cache()


def work(rank, ranks):
    torch.cuda.set_device(rank)
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python",
                                             max_entries=1000000)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=ranks)
    reduce_all(rank, ranks)
    torch.distributed.destroy_process_group()
    if rank == 0:
        for event in torch.cuda.memory._snapshot()["device_traces"][0]:
            if event["action"] in ("segment_free", "segment_unmap"):
                buffers.freed(event["addr"])
        buffers.finish()


def main():
    ranks = torch.cuda.device_count()
    # NVLink's multicast is off: it can put GPUs out of service that others share.
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", NCCL_NVLS_ENABLE="0")
    others = torch.multiprocessing.get_context("spawn")
    started = [others.Process(target=work, args=(rank, ranks)) for rank in range(1, ranks)]
    for process in started:
        process.start()
    work(0, ranks)
    for process in started:
        process.join()
    print("ended", [process.exitcode for process in started])


if __name__ == "__main__":
    main()
