"""What the workers in Python share: the numbers that models start from, and the loop that answers requests."""

import json
import pathlib
import resource
import sys
import time

import numpy

RATE, DECAY = 1e-4, 1e-2
# Losses are compared after as many steps.
STEPS = 4


def numbers_of(folder, model):
    """Returns the parameters and the inputs that `bench_models --write` wrote, as lists of arrays."""
    content = (pathlib.Path(folder) / f"{model}.numbers").read_bytes()
    header, _, _ = content.partition(b"\n\n")
    at = len(header) + 2
    arrays = {"parameter": [], "input": []}
    for line in header.decode().splitlines():
        kind, dtype, *shape = line.split()
        shape = [int(size) for size in shape]
        count = int(numpy.prod(shape))
        array = numpy.frombuffer(content, dtype, count, at).reshape(shape).copy()
        at += array.nbytes
        arrays[kind].append(array)
    return arrays["parameter"], arrays["input"]


def processor_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class Runner:
    """One model that one engine runs in one way. Subclasses make it in __init__."""

    def step(self):
        """Runs one step to its end and returns its loss."""
        raise NotImplementedError

    def gradient_norm(self):
        """Of the gradients that the last step left behind; None where there are none."""
        raise NotImplementedError

    def peak_bytes(self):
        """The most memory of a step beyond what was there before; None where nobody knows."""
        return None


def load(make, model, way):
    runner = make(model, way)
    before = time.perf_counter()
    loss = runner.step()
    first = time.perf_counter() - before
    for _ in range(STEPS - 1):
        loss = runner.step()
    answer = {"loss": float(loss), "gradient_norm": runner.gradient_norm(), "first_seconds": first, "first_steps": 1}
    return runner, answer


def run(runner, count):
    processor, before = processor_seconds(), time.perf_counter()
    for _ in range(count):
        runner.step()
    seconds = time.perf_counter() - before
    return {"seconds": seconds, "processor_seconds": processor_seconds() - processor}


def serve(make):
    """Answers requests until there are no more. `make(model, way)` makes a Runner."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what compilers print must not come between answers
    runner = None
    for line in sys.stdin:
        what, *words = line.split()
        try:
            if what == "load":
                runner = None
                runner, answer = load(make, *words)
            elif what == "run":
                answer = run(runner, int(words[0]))
            else:
                answer = {"peak_bytes": runner.peak_bytes()}
        except Exception as error:  # the driver reports it and goes on
            answer = {"failed": f"{type(error).__name__}: {error}".splitlines()[0][:300]}
        print(json.dumps(answer), file=answers, flush=True)
