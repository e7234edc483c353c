# SPDX-License-Identifier: MIT
"""A training loop of many small steps with allocations in each; prints "NAME<tab>NANOSECONDS"."""
import time

import torch

STEPS = 200
ROUNDS = 15


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512),
                                torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, target = torch.randn(64, 256).cuda(), torch.randint(0, 10, (64,)).cuda()
    times = []
    for _ in range(ROUNDS + 3):
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data), target).backward()
            optimizer.step()
        torch.cuda.synchronize()
        times.append((time.perf_counter_ns() - begin) / STEPS)
    times = sorted(times[3:])
    allocator = torch.cuda.memory.get_allocator_backend()
    name = "PyTorch training step" + ("" if allocator == "native" else f", {allocator}")
    print(f"{name}\t{times[len(times) // 2]:.1f}")


main()
