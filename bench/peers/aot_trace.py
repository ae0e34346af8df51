#!/usr/bin/env python3
"""How long Python's AOTAutograd takes to trace the models of examples/models, forward and backward.

Reads names of models from standard input, one in a line, and answers each with the name and the
milliseconds of one trace: processor time of the thread, as in bench/bench_trace.cpp. Dynamo captures the
model once, before any time is taken; what is timed is AOTAutograd alone, with compilers that return the
graphs as they are. It cuts the graph by its default partition, or by its smallest cut where the name has
`min_cut/` before it.
"""

import sys
import time

import torch
from functorch.compile import default_partition, make_boxed_func, min_cut_rematerialization_partition
from torch import nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch.nn import functional as F


class Mlp(nn.Module):
    def __init__(self, inputs=64, hidden=256, classes=10):
        super().__init__()
        self.first = nn.Linear(inputs, hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, classes)

    def forward(self, x, target):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))
        return F.cross_entropy(self.third(x), target)


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        query, key, value = (
            part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, dim=2)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, layers=12, width=256, heads=8, vocabulary=512, context=64):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(context, width))
        self.blocks = nn.ModuleList([GptBlock(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens, targets):
        x = self.embedding(tokens) + self.positions
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


class ResBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x):
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(x + self.norm2(self.conv2(inner)))


class ResNet(nn.Module):
    def __init__(self, depth=8, channels=32, classes=10):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.ModuleList([ResBlock(channels) for _ in range(depth)])
        self.head = nn.Linear(channels, classes)

    def forward(self, images, targets):
        x = self.stem(images)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), targets)


class Lstm(nn.Module):
    def __init__(self, inputs=128, hidden=128):
        super().__init__()
        self.cell = nn.LSTMCell(inputs, hidden)

    def forward(self, sequence, target):
        h = sequence.new_zeros(sequence.size(1), self.cell.hidden_size)
        c = torch.zeros_like(h)
        for x in sequence:
            h, c = self.cell(x, (h, c))
        return (h - target).pow(2).mean()


def tokens():
    return torch.randint(512, (4, 64))


def labels(count):
    return torch.randint(10, (count,))


# The physics-informed network is left out: dynamo does not capture torch.autograd.grad.
MODELS = {
    "mlp": lambda: (Mlp(), (torch.randn(32, 64), labels(32))),
    "gpt12": lambda: (Gpt(), (tokens(), tokens())),
    "resnet8": lambda: (ResNet(), (torch.randn(8, 3, 32, 32), labels(8))),
    "lstm": lambda: (Lstm(), (torch.randn(32, 16, 128), torch.randn(16, 128))),
}


def as_it_is(graph, _inputs):
    return make_boxed_func(graph.forward)


def capture(name):
    """Returns a function that has AOTAutograd trace what dynamo makes of the model."""
    partition = min_cut_rematerialization_partition if name.startswith("min_cut/") else default_partition
    model, arguments = MODELS[name.removeprefix("min_cut/")]()
    captured = []

    def keep(graph, inputs):
        captured.append((graph, inputs))
        return graph.forward

    torch.compile(model, backend=keep, fullgraph=True)(*arguments)
    graph, inputs = captured[0]
    options = dict(fw_compiler=as_it_is, bw_compiler=as_it_is, partition_fn=partition)
    return lambda: aot_module_simplified(graph, inputs, **options)


def main():
    traces = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in traces:
            traces[name] = capture(name)
            traces[name]()
        start = time.thread_time()
        traces[name]()
        print(name, 1e3 * (time.thread_time() - start), flush=True)


if __name__ == "__main__":
    main()
