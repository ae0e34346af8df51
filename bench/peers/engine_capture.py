#!/usr/bin/env python3
"""How long Python's compiled autograd takes to capture the backward of a model, and to run it again.

Reads names from standard input, one in a line: those of aot_trace.py's models, or `chain200`, a chain of
200 nodes on 16 numbers. Answers each with the name, the milliseconds of one capture (a first backward less a
later one), of a backward found in the cache, and of one in the eager engine: processor time of the thread.
The captured graph runs as it is, with no compiler behind it.
"""

import sys
import time

import torch
from torch._dynamo import compiled_autograd

import aot_trace


class Chain(torch.nn.Module):
    def __init__(self, length=200):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(16))
        self.length = length

    def forward(self, x):
        x = x * self.weight
        for _ in range(self.length // 2 - 1):
            x = torch.sin(x) * 1.01
        return x.sum()


def make(name):
    return (Chain(), (torch.randn(16),)) if name == "chain200" else aot_trace.MODELS[name]()


def backward_ms(model, arguments, compiled):
    model.zero_grad()
    loss = model(*arguments)
    if not compiled:
        start = time.thread_time()
        loss.backward()
        return 1e3 * (time.thread_time() - start)
    with compiled_autograd._enable(lambda graph: graph):
        start = time.thread_time()
        loss.backward()
        return 1e3 * (time.thread_time() - start)


def measure(name):
    model, arguments = make(name)
    backward_ms(model, arguments, compiled=False)
    compiled_autograd.reset()
    first = backward_ms(model, arguments, compiled=True)
    # A size may become dynamic on the second sight; what counts is the steady state.
    later = [backward_ms(model, arguments, compiled=True) for _ in range(5)]
    eager = [backward_ms(model, arguments, compiled=False) for _ in range(5)]
    return first - min(later), min(later), min(eager)


def main():
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(line.strip(), *measure(line.strip()), flush=True)


if __name__ == "__main__":
    main()
