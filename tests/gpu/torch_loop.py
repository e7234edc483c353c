# SPDX-License-Identifier: MIT
"""torch_loop.py NAME: a training loop of many small steps, a round of them for each line on
standard input; prints the time of a step for each round. See turns.py."""
import sys
import time

import torch

STEPS = 40


def main():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, target = torch.randn(64, 256).cuda(), torch.randint(0, 10, (64,)).cuda()
    for _ in sys.stdin:
        torch.cuda.synchronize()
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data), target).backward()
            optimizer.step()
        torch.cuda.synchronize()
        print(f"{sys.argv[1]}\t{(time.perf_counter_ns() - begin) / STEPS}\n", flush=True)


main()
