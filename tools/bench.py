#!/usr/bin/env python3
"""Runs the benchmarks and their peers in turns and says whether Ahead keeps its promises.

    bench.py [--build FOLDER] [--rounds N] [--quick]

Builds nothing; `make bench` does. Prints one table, writes out/bench.json, and returns 1 if a required
value is missed. A round runs every C++ benchmark and every peer once, so that both sides see the same
machine. Of traces, the least processor time of all rounds counts; of steps, the median of the ratios of
pairs that ran one right after the other.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Ahead's joint trace must be this many times faster than AOTAutograd's; None: only reported.
TRACES = {"mlp": 200, "gpt12": 100, "resnet8": 100, "lstm": None}
# How many times as long the trace of a model of 16 times the layers may take: an eighth more for what
# grows with the working set.
MOST_TIMES = 18
# A step from the graph may take this share of the eager one, with as many threads as the peers use.
STEPS = {"mlp": 0.7, "gpt12": 1.0, "resnet8": 1.0, "lstm": 1.0, "pinn": 1.0, "norms": 1.0}
STEP_THREADS = 2
# A compiled call, forward and backward, may take this share of the eager one.
CALLS = {"tanh": 0.8, "chain": 0.6, "mutation": 1.5, "two_tensor": 1.0, "two_tensor_training": 1.0}
# A call that is observed, and the first one, in which a function is observed and compiled, may take
# this many times as long as the eager one.
OBSERVED = {"tanh": 2.0, "gpt12": 1.3}
FIRST_CALLS = {"gpt12": 1.4}
# What programs for many sizes may take: a call, against that of a program for the sizes at hand; their compilation,
# against that for one choice of sizes; calls whose sizes never come again, against eager ones.
SIZED = {"sized_hit/tiny": 1.1, "sized_hit/mlp": 1.1, "sized_hit/gpt12": 1.1, "sized_compile/gpt12": 2.0, "sized_crops": 1.05}
# Steps with kernels of the native backend may take this share of eager ones; None: only reported.
NATIVE = {
    "norm_chain": 0.5, "tiny": 0.5, "tiny_inside": 0.15, "gpt12": None, "lstm": None, "resnet8": None, "mlp": None,
    "pinn": None,
}
# The most memory that a step with kernels may take, gradients included, in megabytes: what Inductor's takes, and less for
# the chain of norms; None: only as much as eager's and the interpreter's, which holds for all.
PEAKS = {
    "mlp": 2.82, "gpt12": 53.4, "resnet8": 35.7, "lstm": 2.12, "norm_chain": 60, "attention": 12.9, "unet": None,
    "vit": None, "vae": None, "pinn": None, "tiny": None,
}
# The update of 9.8 million parameters may take this share of LibTorch's, and a whole compiled step of training, with
# clipping and Adam or AdamW, this share of the eager one with those of LibTorch. With STEP_THREADS threads, that of the
# GPT, where each side has a process of its own.
OPTIMIZERS = {"adamw": 0.5}
TRAINING = {"tiny": 0.5}
TRAINING_ALONE = {"gpt12": 0.9}
# The most memory that such a step takes may be this many times eager's.
MOST_OBSERVED_MEMORY = 1.05
# The look-up among the guards of 150 tensors, in milliseconds; it must not allocate.
MOST_GUARD_MS = 0.004
# A whole compilation must be this many times faster than AOTAutograd's with its smallest cut.
COMPILATIONS = {"gpt12": 100}
# The smallest cut of 20,000 nodes, in milliseconds.
MOST_MIN_CUT_MS = 1000
# A backward with compiled autograd may take this share of the eager engine's; None: only reported.
BACKWARDS = {"gpt12": 1.0, "gpt12_hooks": 1.05, "chain200": 1.0, "mlp": None, "resnet8": None, "lstm": None}
# The look-up of a backward of 1,000 nodes, in milliseconds.
MOST_LOOKUP_MS = 0.15
# Capturing a backward must be this many times faster than Python's compiled autograd.
CAPTURES = {"gpt12": 100, "chain200": None}
# What `#include <ahead/ahead.h>` may add to a file that includes torch/torch.h, in milliseconds.
MOST_INCLUDE_MS = 2000


def say(text):
    """Shows what is going on: in a line that changes on a terminal, in a line of its own elsewhere."""
    terminal = sys.stderr.isatty()
    print(f"\r\033[K{text}" if terminal else text, end="" if terminal else "\n", file=sys.stderr, flush=True)


def interpreter_of_libtorch():
    """Returns the Python whose torch package is the LibTorch that Ahead is built with."""
    torch_dir = pathlib.Path((ROOT / ".deps" / "torch_dir").read_text().strip())
    find = "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    candidates = [folder / "bin" / "python3" for folder in torch_dir.parents] + [pathlib.Path(sys.executable)]
    for python in filter(pathlib.Path.exists, candidates):
        found = subprocess.run([python, "-c", find], capture_output=True, text=True)
        if found.returncode == 0 and torch_dir.samefile(found.stdout.strip()):
            return str(python)
    raise SystemExit(f"No Python has {torch_dir} as its torch package, so there is nothing to compare with.")


class Peer:
    """A program of bench/peers in a process of its own, which waits for work and so does not start anew."""

    def __init__(self, program, environment):
        self.program = program
        self.process = subprocess.Popen(
            [interpreter_of_libtorch(), str(ROOT / "bench" / "peers" / program)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )

    def ask(self, name):
        """Returns the numbers that the program answers."""
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if len(answer) < 2:
            raise SystemExit(f"bench/peers/{self.program} ended without an answer for {name}.")
        return [float(number) for number in answer[1:]]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run_benchmark(build, program, pattern, seconds, environment):
    """Runs one Google Benchmark program and returns {benchmark name: its fields}."""
    command = [
        str(build / "bench" / program), f"--benchmark_filter={pattern}",
        f"--benchmark_min_time={seconds}", "--benchmark_format=json",
    ]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    entries = json.loads(output)["benchmarks"]
    return {entry["name"].removesuffix("/manual_time"): entry for entry in entries}


def include_ms():
    """Returns how much longer a file takes to compile that includes ahead/ahead.h after torch/torch.h."""
    torch = pathlib.Path((ROOT / ".deps" / "torch_dir").read_text().strip())
    command = [
        os.environ.get("CXX", "g++"), "-std=c++20", "-fsyntax-only", "-x", "c++", "-", f"-I{ROOT / 'include'}",
        "-isystem", str(torch / "include"), "-isystem", str(torch / "include/torch/csrc/api/include"),
    ]

    def compile_ms(text):
        before = os.times().children_user
        subprocess.run(command, input=text, text=True, check=True, capture_output=True)
        return 1e3 * (os.times().children_user - before)

    base = "#include <torch/torch.h>\n"
    return compile_ms(base + "#include <ahead/ahead.h>\n") - compile_ms(base)


def measure(build, rounds, seconds, environment):
    """Returns every sample: {name: [value of round 1, value of round 2, ...]}."""
    samples = collections.defaultdict(list)
    peer, engine_peer = Peer("aot_trace.py", environment), Peer("engine_capture.py", environment)
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}: traces")
        for name, entry in run_benchmark(build, "bench_trace", "", seconds, environment).items():
            for field, value in entry.items():
                if field.endswith(("_ms", "ratio")):
                    samples[f"{name}/{field}"].append(value)
        for model in TRACES:
            say(f"round {number} of {rounds}: AOTAutograd traces {model}")
            samples["peer/" + model] += peer.ask(model)
        say(f"round {number} of {rounds}: steps")
        # Two threads of one process that share a core wait for each other in every kernel.
        bound = {**environment, "OMP_PROC_BIND": "true"}
        for name, entry in run_benchmark(build, "bench_interpreter", "", seconds, bound).items():
            for field in ("eager_ms", "ahead_ms", "ratio"):
                samples[f"{name}/{field}"].append(entry[field])
        say(f"round {number} of {rounds}: compiled calls")
        for program in ("bench_compile", "bench_sizes", "bench_subclass", "bench_native", "bench_memory"):
            for name, entry in run_benchmark(build, program, "", seconds, environment).items():
                for field, value in entry.items():
                    if field.endswith(("_ms", "_mb", "ratio", "allocations")):
                        samples[f"{name}/{field}"].append(value)
        say(f"round {number} of {rounds}: whole steps of training")
        for name, entry in run_benchmark(build, "bench_training", "optim/|train/", seconds, environment).items():
            for field in ("eager_ms", "ahead_ms", "ratio"):
                samples[f"{name}/{field}"].append(entry[field])
        for model in TRAINING_ALONE:
            for threads in (1, STEP_THREADS):
                stem = f"alone/{model}/threads:{threads}"
                for side in ("eager", "ahead"):
                    entries = run_benchmark(build, "bench_training", f"{stem}/{side}", seconds, bound)
                    samples[f"{stem}/{side}_ms"] += [entry["median_ms"] for entry in entries.values()]
                samples[f"{stem}/ratio"].append(samples[f"{stem}/ahead_ms"][-1] / samples[f"{stem}/eager_ms"][-1])
        for model in COMPILATIONS:
            say(f"round {number} of {rounds}: AOTAutograd compiles {model}")
            samples["peer/min_cut/" + model] += peer.ask("min_cut/" + model)
        samples["include_ms"].append(include_ms())
        say(f"round {number} of {rounds}: captured backwards")
        for name, entry in run_benchmark(build, "bench_engine", "", seconds, environment).items():
            for field, value in entry.items():
                if field.endswith(("_ms", "_us", "ratio", "captures")):
                    samples[f"{name}/{field}"].append(value)
        for model in CAPTURES:
            say(f"round {number} of {rounds}: Python's compiled autograd captures {model}")
            capture, cached, eager = engine_peer.ask(model)
            samples[f"peer/capture/{model}"].append(capture)
            samples[f"peer/backward/{model}/ratio"].append(cached / eager)
        say(f"round {number} of {rounds}: graphs")
        for program in ("bench_ir", "bench_partition"):
            for name, entry in run_benchmark(build, program, "", seconds / 4, environment).items():
                samples["ir/" + name].append(entry["min_ms"])
    peer.close()
    engine_peer.close()
    say("")
    return samples


class Row(collections.namedtuple("Row", "measure ahead other ratio required holds")):
    """One line of the table; holds is None where nothing is required."""


def rows_of(samples):
    for model, required in TRACES.items():
        ours, theirs = min(samples[f"trace/{model}/min_ms"]), min(samples["peer/" + model])
        times = theirs / ours
        holds = None if required is None else times >= required
        text = "" if required is None else f"≥ {required}×"
        yield Row(f"trace {model}, against AOTAutograd", ours, theirs, f"{times:.0f}×", text, holds)
    for model in ("pinn",):
        yield Row(f"trace {model}", min(samples[f"trace/{model}/min_ms"]), None, "", "", None)

    for work, what in (("trace", "trace of 176 layers (19,386 nodes), against 11"), ("eager", "the same of eager steps")):
        few, many, ratio = (statistics.median(samples[f"growth/{work}/{of}"]) for of in ("few_ms", "many_ms", "ratio"))
        is_required = work == "trace"
        yield Row(
            what, many, few, f"{ratio:.1f}×", f"≤ {MOST_TIMES}×" if is_required else "",
            ratio <= MOST_TIMES if is_required else None,
        )

    threaded = {"step": ("step", STEPS), "by_hand": ("by hand", {}), "alone": ("whole step of training", TRAINING_ALONE)}
    for name in [name for name in samples if name.split("/")[0] in threaded and name.endswith("/ratio")]:
        what, model, threads, _ = name.split("/")
        title, most = threaded[what]
        threads = int(threads.removeprefix("threads:"))
        stem = name.removesuffix("/ratio")
        ratio = statistics.median(samples[name])
        required = most.get(model) if threads == STEP_THREADS else None
        yield Row(
            f"{title} {model}, {threads} thread{'s'[:threads - 1]}, against eager",
            statistics.median(samples[stem + "/ahead_ms"]),
            statistics.median(samples[stem + "/eager_ms"]),
            f"{ratio:.2f}×", "" if required is None else f"≤ {required}×",
            None if required is None else ratio <= required,
        )
    yield from compile_rows(samples)
    yield from engine_rows(samples)
    for name in [name for name in samples if name.startswith("ir/")]:
        action, graph = name.removeprefix("ir/").split("/")
        yield Row(f"{action} {graph}", min(samples[name]), None, "", "", None)


def against_eager(samples, stem, title, required, ours="ahead_ms"):
    """The row of what was measured in turns with eager; `required`: the largest share, None: only reported."""
    ratio = statistics.median(samples[f"{stem}/ratio"])
    return Row(
        f"{title}, against eager", statistics.median(samples[f"{stem}/{ours}"]),
        statistics.median(samples[f"{stem}/eager_ms"]), f"{ratio:.2f}×",
        "" if required is None else f"≤ {required}×", None if required is None else ratio <= required,
    )


def compile_rows(samples):
    for call, required in CALLS.items():
        yield against_eager(samples, f"call/{call}", f"compiled call {call}", required)
    kinds = (
        ("observed", "observed call", OBSERVED), ("first", "first call", FIRST_CALLS),
        ("optim", "update by", OPTIMIZERS), ("train", "whole step", TRAINING),
    )
    for kind, title, calls in kinds:
        for call, required in calls.items():
            yield against_eager(samples, f"{kind}/{call}", f"{title} {call}", required)
    for model, required in NATIVE.items():
        yield against_eager(samples, f"native/{model}", f"native step {model}", required)
    yield from peak_rows(samples)
    for name, required in SIZED.items():
        ratio = statistics.median(samples[f"{name}/ratio"])
        yield Row(f"many sizes: {name.removeprefix('sized_')}", 0, None, f"{ratio:.2f}×", f"≤ {required}×", ratio <= required)
    guards, allocations = min(samples["guards/150/min_ms"]), min(samples["guards/150/allocations"])
    yield Row(
        "guards of 150 tensors", guards, None, f"{allocations:.2f} allocations", "≤ 4 µs, none",
        guards <= MOST_GUARD_MS and allocations < 0.01,
    )
    for model, required in COMPILATIONS.items():
        ours, theirs = min(samples[f"compile/{model}/min_ms"]), min(samples["peer/min_cut/" + model])
        yield Row(
            f"compile {model}, against AOTAutograd", ours, theirs, f"{theirs / ours:.0f}×", f"≥ {required}×",
            theirs / ours >= required,
        )
    cut = min(samples["ir/partition_min_cut/20k_nodes"])
    yield Row("smallest cut of 20k nodes", cut, None, "", "≤ 1 s", cut <= MOST_MIN_CUT_MS)
    include = statistics.median(samples["include_ms"])
    yield Row("#include <ahead/ahead.h>", include, None, "", "≤ 2 s", include <= MOST_INCLUDE_MS)

    name = next(name for name in samples if name.startswith("memory/") and name.endswith("/eager_mb"))
    stem = name.removesuffix("/eager_mb")
    captured, eager = samples[f"{stem}/captured_mb"][0], samples[f"{stem}/eager_mb"][0]
    yield Row(
        "peak MB of a step with captured backward, against eager", captured, eager, f"{captured / eager:.2f}×",
        "≤ 1×", captured <= eager,
    )
    for kind, title in (("observed", "an observed step"), ("first", "the first step")):
        observed = samples[f"{stem}/{kind}_mb"][0]
        yield Row(
            f"peak MB of {title}, against eager", observed, eager, f"{observed / eager:.2f}×",
            f"≤ {MOST_OBSERVED_MEMORY}×", observed <= MOST_OBSERVED_MEMORY * eager,
        )
    peaks = [samples[f"{stem}/{field}_mb"][0] for field in ("eager", "budget_1.0", "budget_0.5", "budget_0.2")]
    falls = all(after < before for before, after in zip(peaks, peaks[1:]))
    text = " > ".join(f"{peak:.1f}" for peak in peaks)
    yield Row("peak MB of a step: eager > budget 1 > 0.5 > 0.2", peaks[1], peaks[0], text, "falls", falls)


def peak_rows(samples):
    for model, required in PEAKS.items():
        eager, interpreter, native = (samples[f"peak/{model}/{of}_mb"][0] for of in ("eager", "interpreter", "native"))
        holds = native <= min(eager, interpreter) and (required is None or native <= required)
        text = "≤ 1×" if required is None else f"≤ 1×, {required} MB"
        yield Row(f"peak MB of a native step {model}, against eager", native, eager, f"{native / eager:.2f}×", text, holds)


def engine_rows(samples):
    for model, required in BACKWARDS.items():
        yield against_eager(samples, f"backward/{model}", f"captured backward {model}", required, ours="compiled_ms")
    for model, required in CAPTURES.items():
        ours, theirs = min(samples[f"backward/{model}/capture_ms"]), min(samples[f"peer/capture/{model}"])
        yield Row(
            f"capture {model}, against Python", ours, theirs, f"{theirs / ours:.0f}×",
            "" if required is None else f"≥ {required}×", None if required is None else theirs / ours >= required,
        )
        ratio = statistics.median(samples[f"peer/backward/{model}/ratio"])
        yield Row(f"Python's captured backward {model}, against eager", 0, None, f"{ratio:.2f}×", "", None)
    look = 1e-3 * min(samples["backward/look_up/least_us"])
    yield Row("look-up of 1,000 nodes", look, None, "", "≤ 150 µs", look <= MOST_LOOKUP_MS)
    sizes = "backward/batch_sizes"
    captures = max(samples[f"{sizes}/captures"])
    first, later = statistics.median(samples[f"{sizes}/first_ms"]), statistics.median(samples[f"{sizes}/later_ms"])
    yield Row(
        f"captures over batches of 2 to 9: {captures:.0f}; a later batch, against the first", later, first,
        f"{first / later:.1f}×", "≤ 2", captures <= 2,
    )


def print_table(rows):
    header = Row("measure", "Ahead, ms", "other, ms", "ratio", "required", "ok?")
    verdict = {True: "yes", False: "NO", None: ""}
    lines = [header] + [
        Row(
            row.measure, f"{row.ahead:.3g}", "" if row.other is None else f"{row.other:.3g}", row.ratio,
            row.required, verdict[row.holds],
        )
        for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [line[0].ljust(widths[0])] + [line[i].rjust(widths[i]) for i in range(1, len(header))]
        print("  ".join(cells).rstrip())


def main():
    parser = argparse.ArgumentParser(description="Runs the benchmarks and their peers in turns.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that all works")
    options = parser.parse_args()

    environment = dict(os.environ)
    rounds, seconds = (1, 0.05) if options.quick else (options.rounds, 0.5)
    samples = measure(options.build, rounds, seconds, environment)
    rows = list(rows_of(samples))
    print_table(rows)

    load, cores = os.getloadavg()[1], os.cpu_count()
    if load > cores + 0.5:
        print(f"The machine was busy ({load:.1f} programs on {cores} cores): steps with several threads are rough.")
    report = {"load": load, "rounds": rounds, "samples": samples, "rows": [row._asdict() for row in rows]}
    (ROOT / "out").mkdir(exist_ok=True)
    (ROOT / "out" / "bench.json").write_text(json.dumps(report, indent=1, ensure_ascii=False))
    return 1 if any(row.holds is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
