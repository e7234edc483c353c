# SPDX-License-Identifier: MIT
"""torch_regions.py [STEPS]: registers as a data-parallel, pipelined training, for `pindown replay`.

A transformer is trained on sentences of many lengths. Each step registers the buffers that a
communication library would send: the activations and their gradients at the border of two stages,
each gradient once it is computed, and now and then the weights for a checkpoint. Every 40th step
returns the allocator's unused memory to the driver, as programs do before they validate. The
program prints the number of buffers that it registered.
"""
import random
import sys

import torch

import buffers

WIDTH, LAYERS, WORDS = 768, 8, 8192
registered = 0


def send(tensor):
    global registered
    registered += 1
    buffers.register(tensor.data_ptr(), tensor.nbytes)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(torch.nn.TransformerEncoderLayer(
            WIDTH, 12, 4 * WIDTH, dropout=0, batch_first=True) for _ in range(LAYERS))
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        state = self.embedding(words)
        for number, layer in enumerate(self.layers):
            state = layer(state)
            if number % 2:  # two layers are a stage
                send(state)
                if state.requires_grad:
                    state.register_hook(send)
        return self.head(state)


def train(steps):
    lengths = random.Random(1)
    model = Model().cuda()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda parameter: send(parameter.grad))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(1, steps + 1):
        words = torch.randint(0, WORDS, (16, 16 * lengths.randint(2, 32)), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            result = model(words[:, :-1])
        torch.nn.functional.cross_entropy(result.float().flatten(0, 1),
                                          words[:, 1:].flatten()).backward()
        optimizer.step()
        if step % 50 == 0:
            for parameter in model.parameters():
                send(parameter)
        if step % 40 == 0:
            torch.cuda.empty_cache()


torch.manual_seed(1)
train(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
print(f"{registered} times registered, {buffers.refused} refused")
sys.exit(buffers.refused != 0)
