# SPDX-License-Identifier: MIT
"""PyTorch: trains a small model, returns memory and allocates it again, and replays a graph.

PYTORCH_CUDA_ALLOC_CONF decides whether it maps its segments piece by piece. PyTorch's own history
of segments has the addresses that it returned to the driver.
"""
import torch

import buffers


def train(steps):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(),
                                torch.nn.Linear(512, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data, target = torch.randn(128, 256).cuda(), torch.randint(0, 10, (128,)).cuda()
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
    print(f"loss {loss.item():.4f}")


def come_and_go():
    for size in (1, 3, 20, 50, 200):
        for _ in range(3):
            block = torch.full((size << 18,), 1.0, device="cuda")
            buffers.register(block.data_ptr(), block.nbytes)
            print(f"{size} MiB, sum {block.sum().item():.0f}")
            del block
            torch.cuda.empty_cache()


def replay():
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros(1 << 16, device="cuda")
    with torch.cuda.graph(graph):
        result = (static + 1) * 2
    for value in (1.0, 2.0):
        static.fill_(value)
        graph.replay()
        print(f"replayed, sum {result.sum().item():.0f}")
    del graph, result
    torch.cuda.empty_cache()


def main():
    torch.cuda.init()
    torch.cuda.memory._record_memory_history("all", context=None, stacks="python",
                                             max_entries=1000000)
    train(50)
    come_and_go()
    replay()
    torch.cuda.synchronize()
    for trace in torch.cuda.memory._snapshot()["device_traces"]:
        for event in trace:
            if event["action"] in ("segment_free", "segment_unmap"):
                buffers.freed(event["addr"])
    buffers.finish()


main()
