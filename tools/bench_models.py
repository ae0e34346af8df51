#!/usr/bin/env python3
"""Compares steps of models with those of torch.compile, JAX and eager LibTorch, all in turns.

    bench_models.py [--quick] [--models gpt12,mlp] [--ways step,update,inside] [--engines native,Inductor]
                    [--rounds N] [--block SECONDS] [--no-cold] [--processor-time] [--build FOLDER]

Builds nothing; `make bench-models` does. Each engine has a process of its own for each model, and runs a block of steps
when it is asked to; who begins changes from round to round. A block in which other programs were busy is repeated, at
most twice. Milliseconds are the least mean of a block, ratios the median of those of each round. Losses and norms of
gradients must agree. After each model out/bench_models.json and out/bench_models.svg are written anew.
"""

import argparse
import contextlib
import json
import os
import pathlib
import platform
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from bench import ROOT, interpreter_of_libtorch, say

PEERS = ROOT / "bench" / "models"
sys.path.insert(0, str(PEERS))

from chart import write_chart  # noqa: E402
from machine import MOST_FOREIGN, Watch, processors  # noqa: E402
from report import ENGINES, print_report, verdicts  # noqa: E402
from required import EAGER, INDUCTOR, JAX, NATIVE  # noqa: E402

THREADS = 2
MODELS = ("mlp", "gpt12", "resnet8", "lstm", "norm_chain", "attention", "unet", "vit", "vae", "pinn", "tiny")
# Without a step of AdamW: what has no parameters to train.
WITHOUT_UPDATE = ("attention",)
# Those whose gradient is also taken inside of the function.
INSIDE = ("tiny",)
# How far losses and norms of gradients may be from those of eager C++, as a share.
MOST_LOSS, MOST_NORM = 2e-4, 2e-3
MOST_SECONDS = 600
TRIES = 3


class Failed(Exception):
    pass


def command_of(engine, build, numbers):
    """How the process of an engine is started; raises Failed where it is not installed."""
    names = {EAGER: "eager", "interpreter": "interpreter", NATIVE: "native"}
    if engine in names:
        return [str(build / "bench" / "models" / "bench_models"), names[engine]]
    if engine == JAX:
        python = ROOT / ".venv-peers" / "bin" / "python"
        if not python.exists():
            raise Failed("not installed; tools/setup.sh peers does it")
        return [str(python), str(PEERS / "jax_worker.py"), numbers]
    try:
        python = interpreter_of_libtorch()
    except SystemExit as error:
        raise Failed(str(error)) from None
    kind = "inductor" if engine == INDUCTOR else "eager"
    return [python, "-W", "ignore", str(PEERS / "torch_worker.py"), kind, numbers]


def environment_of(cache):
    """Where the engines keep what they compiled."""
    return {
        **os.environ, "OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS),
        "AHEAD_CACHE_DIR": f"{cache}/ahead", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor",
        "JAX_COMPILATION_CACHE_DIR": f"{cache}/jax", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1", "JAX_PLATFORMS": "cpu",
    }


class Worker:
    """A process that runs models with one engine. Only processors of the measurement are its own."""

    def __init__(self, engine, setting, cache):
        command = command_of(engine, setting.build, setting.numbers)
        os.makedirs(f"{cache}/ahead", mode=0o700, exist_ok=True)
        self.process = subprocess.Popen(
            ["taskset", "-c", ",".join(map(str, setting.processors)), *command], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment_of(cache),
        )

    def ask(self, *words):
        try:
            self.process.stdin.write(" ".join(map(str, words)) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], MOST_SECONDS)
            line = self.process.stdout.readline() if ready else ""
        except BrokenPipeError:
            line = ""
        if not line:
            self.process.kill()
            raise Failed(f"the process ended, or took more than {MOST_SECONDS} seconds, when asked to {' '.join(words[:1])}")
        answer = json.loads(line)
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def close(self):
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait()


class Setting:
    """What does not change during a measurement."""

    def __init__(self, options):
        self.build = options.build
        self.processors = processors(THREADS)
        self.out = ROOT / "out"
        self.cache = str(self.out / "bench_models_cache")
        self.numbers = str(self.out / "bench_models_numbers")
        os.makedirs(self.numbers, exist_ok=True)
        subprocess.run([str(self.build / "bench" / "models" / "bench_models"), "--write", self.numbers], check=True)


def measured_block(worker, count, setting):
    """Returns the mean of a block in milliseconds and the share of other programs in it; a quiet one if there is any."""
    best = None
    for _ in range(TRIES):
        time.sleep(0.02)
        watch = Watch(setting.processors)
        answer = worker.ask("run", count)
        foreign = watch.foreign(answer["processor_seconds"])
        block = (1e3 * answer[setting.clock] / count, foreign)
        if best is None or foreign < best[1]:
            best = block
        if foreign <= MOST_FOREIGN:
            break
    return best


def load_all(model, way, workers, row, setting):
    """Lets each engine compile the model; those that cannot are left out, with the reason in the row."""
    ready = {}
    for engine, worker in workers.items():
        say(f"{model}, {way}: {engine} prepares")
        try:
            answer = worker.ask("load", model, way)
            row[engine] = {**answer, "blocks_ms": [], "foreign": []}
            worker.ask("run", 1)
            once = worker.ask("run", 2)["seconds"] / 2
            ready[engine] = (worker, max(1, round(setting.block / once)))
        except Failed as error:
            row[engine] = {"failed": str(error)}
    return ready


def compare_results(row):
    """Notes engines whose loss or norm of gradients differs from eager C++'s."""
    base = row.get(EAGER, {})
    for engine in row.values():
        for field, most in (("loss", MOST_LOSS), ("gradient_norm", MOST_NORM)):
            ours, theirs = engine.get(field), base.get(field)
            if ours is None or theirs is None:
                continue
            if not abs(ours - theirs) <= most * max(abs(theirs), 1e-6):
                engine["disagrees"] = f"{field} {ours:.8g}, eager C++ has {theirs:.8g}"


def run_block(engine, ready, row, setting):
    """Adds a block to what was found of an engine; one that fails is left out from then on."""
    if engine not in ready:
        return
    worker, count = ready[engine]
    try:
        mean, foreign = measured_block(worker, count, setting)
        row[engine]["blocks_ms"].append(mean)
        row[engine]["foreign"].append(foreign)
    except Failed as error:
        row[engine] = {"failed": str(error)}
        del ready[engine]


def finish_row(found, worker, count):
    """Adds what all blocks of an engine say together, and its memory where it is known."""
    found.update(ms=min(found["blocks_ms"]), steps_of_a_block=count)
    found["loaded"] = sum(share > MOST_FOREIGN for share in found["foreign"])
    try:
        peak = worker.ask("memory")["peak_bytes"]
    except Failed as error:
        found["no_memory"] = str(error)
        return
    if peak is not None:
        found["peak_bytes"] = peak


def measure_row(model, way, workers, setting):
    """Runs the blocks of one model in one way and returns {engine: what was found}."""
    row = {}
    ready = load_all(model, way, workers, row, setting)
    compare_results(row)
    order = list(ready)
    for number in range(setting.rounds):
        say(f"{model}, {way}: round {number + 1} of {setting.rounds}")
        shift = number % max(1, len(order))
        for engine in order[shift:] + order[:shift]:
            run_block(engine, ready, row, setting)
    for engine, (worker, count) in ready.items():
        finish_row(row[engine], worker, count)
    return row


def first_call(model, engine, setting, cache):
    worker = Worker(engine, setting, cache)
    try:
        answer = worker.ask("load", model, "step")
        return {"seconds": answer["first_seconds"], "steps": answer["first_steps"]}
    finally:
        worker.close()


def measure_first_calls(model, engines, setting):
    """Seconds of the first call, from an empty cache and, in another process, from the one that the first filled."""
    row = {}
    for engine in engines:
        cache = tempfile.mkdtemp(prefix="bench_models_")
        try:
            for kind in ("cold", "warm"):
                say(f"{model}: first call, {engine}, {kind}")
                row.setdefault(engine, {})[kind] = first_call(model, engine, setting, cache)
        except Failed as error:
            row[engine] = {"failed": str(error)}
        finally:
            shutil.rmtree(cache, ignore_errors=True)
    return row


def ways_of(model):
    yield "step"
    if model not in WITHOUT_UPDATE:
        yield "update"
    if model in INSIDE:
        yield "inside"


def start_workers(engines, setting, missing):
    workers = {}
    for engine in engines:
        try:
            workers[engine] = Worker(engine, setting, setting.cache)
        except Failed as error:
            missing[engine] = str(error)
    return workers


def note_machine(results):
    """How quiet it was in the blocks that count."""
    shares = [share for row in results["rows"].values() for engine in row.values() for share in engine.get("foreign", ())]
    results["machine"].update(
        most_foreign=MOST_FOREIGN, blocks=len(shares), loaded_blocks=sum(share > MOST_FOREIGN for share in shares),
        median_foreign=statistics.median(shares) if shares else 0.0,
    )


def save(results, setting):
    note_machine(results)
    results["required"] = [dict(required=what, measured=text, holds=holds) for what, text, holds in verdicts(results)]
    path = setting.out / "bench_models.json"
    path.with_suffix(".part").write_text(json.dumps(results, indent=1, ensure_ascii=False))
    path.with_suffix(".part").replace(path)
    write_chart(results, setting.out / "bench_models.svg")


def measure_model(model, options, setting, results):
    missing = {}
    workers = start_workers(options.engines, setting, missing)
    try:
        for way in ways_of(model):
            if way not in options.ways:
                continue
            row = measure_row(model, way, workers, setting)
            row.update({engine: {"missing": why} for engine, why in missing.items()})
            results["rows"][f"{model}/{way}"] = row
            save(results, setting)
    finally:
        for worker in workers.values():
            worker.close()
    cold = [engine for engine in options.cold if engine in workers]
    if cold:
        results["first_calls"][f"{model}/step"] = measure_first_calls(model, cold, setting)
        save(results, setting)


def parse():
    names = lambda text: text.split(",")  # noqa: E731
    parser = argparse.ArgumentParser(description="Compares steps of models with those of other compilers.")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--models", type=names, default=MODELS)
    parser.add_argument("--ways", type=names, default=["step", "update", "inside"])
    parser.add_argument("--engines", type=names, default=ENGINES)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--block", type=float, help="seconds of a block")
    parser.add_argument("--quick", action="store_true", help="three short rounds; first calls of Ahead's kernels alone")
    parser.add_argument("--no-cold", action="store_true", help="no first calls from an empty cache")
    parser.add_argument(
        "--processor-time", action="store_true",
        help="take the processor time of all threads, for busy machines; says nothing about threads that wait",
    )
    options = parser.parse_args()
    options.rounds = options.rounds or (3 if options.quick else 9)
    options.block = options.block or (0.15 if options.quick else 0.3)
    options.cold = [] if options.no_cold else [NATIVE] if options.quick else [NATIVE, INDUCTOR, JAX]
    return options


def main():
    options = parse()
    setting = Setting(options)
    setting.rounds, setting.block = options.rounds, options.block
    setting.clock = "processor_seconds" if options.processor_time else "seconds"
    results = {"machine": {"processor": platform.processor() or platform.machine(), "load": os.getloadavg()[0]}}
    results.update(clock=setting.clock, rounds=options.rounds, block=options.block, rows={}, first_calls={})
    began = time.time()
    for number, model in enumerate(options.models, 1):
        say(f"{model}: {number} of {len(options.models)} models, {time.time() - began:.0f} seconds so far")
        measure_model(model, options, setting, results)
    say("")
    print_report(results)
    print(f"{time.time() - began:.0f} seconds. The numbers are in out/bench_models.json, the chart in out/bench_models.svg.")
    return 1 if any(holds is False for _, _, holds in verdicts(results)) else 0


if __name__ == "__main__":
    sys.exit(main())
