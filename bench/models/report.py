"""Tables of what tools/bench_models.py measured, and which of the required values hold."""

import statistics

from required import EAGER, INDUCTOR, JAX, LIMITS, NATIVE, RATIOS

ENGINES = (EAGER, "interpreter", NATIVE, "eager Python", INDUCTOR, JAX)


def ratio(results, row, engine, other):
    """Of the times of two engines, in the same round each time, the median; None where one is not there."""
    ours, theirs = (results["rows"].get(row, {}).get(name, {}).get("blocks_ms") for name in (engine, other))
    return statistics.median(a / b for a, b in zip(ours, theirs)) if ours and theirs else None


def value_of(results, row, engine, measure):
    """A number about one engine that is no ratio of steps; None where it was not measured."""
    if measure in ("cold", "warm"):
        first = results["first_calls"].get(row, {}).get(engine, {}).get(measure)
        if first is None:
            return None
        steps = results["rows"].get(row, {}).get(engine, {}).get("ms", 0) * 1e-3 * first["steps"]
        return first["seconds"] - (steps if measure == "warm" else 0)
    return results["rows"].get(row, {}).get(engine, {}).get("peak_bytes")


def share_of(results, row, required):
    if required.measure == "step":
        return ratio(results, row, NATIVE, required.other)
    ours, theirs = (value_of(results, row, engine, required.measure) for engine in (NATIVE, required.other))
    return None if ours is None or not theirs else ours / theirs


def verdicts(results):
    """Yields (what is required, what was measured, whether it holds), the last None where nothing was measured."""
    for required in RATIOS:
        rows = required.rows or tuple(results["rows"])
        shares = {row: share_of(results, row, required) for row in rows}
        known = {row: share for row, share in shares.items() if share is not None}
        what = f"{required.measure}, against {required.other}"
        if required.mean:
            mean = statistics.geometric_mean(known.values()) if known else None
            text = "not measured" if mean is None else f"{mean:.3f}"
            yield f"{what}, geometric mean ≤ {required.most:.3g}", text, None if mean is None else mean <= required.most
            continue
        missed = {row: share for row, share in known.items() if share > required.most}
        scope = ", ".join(required.rows) or "each model"
        if not known:
            yield f"{what}, {scope} ≤ {required.most:.3g}", "not measured", None
            continue
        listed = missed or (known if required.rows else {})
        text = ", ".join(f"{row} {share:.3f}" for row, share in sorted(listed.items(), key=lambda item: -item[1]))
        worst = max(known.values())
        yield f"{what}, {scope} ≤ {required.most:.3g}", text or f"at most {worst:.3f}", not missed
    for limit in LIMITS:
        value = value_of(results, limit.row, NATIVE, limit.measure)
        text = "not measured" if value is None else f"{value:.4g}"
        yield f"{limit.measure}, {limit.row} ≤ {limit.most:.4g}", text, None if value is None else value <= limit.most


def table(header, lines):
    lines = [header, *lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = [line[0].ljust(widths[0])] + [line[i].rjust(widths[i]) for i in range(1, len(header))]
        print("  ".join(cells).rstrip())
    print()


def number(value, digits=3, unit=1.0):
    return "" if value is None else f"{value * unit:.{digits}g}"


def cell(engine):
    if "ms" in engine:
        return number(engine["ms"]) + ("*" if engine["loaded"] else "")
    return "missing" if "missing" in engine else "fails" if "failed" in engine else ""


def print_steps(results):
    pairs = (EAGER, INDUCTOR, JAX)
    lines = []
    for row, engines in results["rows"].items():
        ratios = (ratio(results, row, NATIVE, other) for other in pairs)
        shares = ["" if share is None else f"{share:.2f}" for share in ratios]
        lines.append([row, *(cell(engines.get(name, {})) for name in ENGINES), *shares])
    clock = "ms of a step" if results["clock"] == "seconds" else "ms of processors"
    table([clock, *ENGINES, *(f"native/{name}" for name in pairs)], lines)


def print_first_calls(results):
    rows = results["first_calls"]
    names = [name for name in (NATIVE, INDUCTOR, JAX) if any(name in row for row in rows.values())]
    lines = []
    for row, engines in rows.items():
        numbers = (engines.get(name, {}).get(kind, {}).get("seconds") for name in names for kind in ("cold", "warm"))
        lines.append([row, *map(number, numbers)])
    if lines:
        table(["seconds of the first call", *(f"{name}, {kind}" for name in names for kind in ("cold", "warm"))], lines)


def print_peaks(results):
    lines = []
    for row, engines in results["rows"].items():
        peaks = [engines.get(name, {}).get("peak_bytes") for name in ENGINES]
        if any(peak is not None for peak in peaks):
            lines.append([row, *(number(peak, 3, 1e-6) for peak in peaks)])
    if lines:
        table(["MB, peak of a step", *ENGINES], lines)


def print_report(results):
    print_steps(results)
    print_first_calls(results)
    print_peaks(results)
    for row, engines in results["rows"].items():
        for name, engine in engines.items():
            for problem in ("failed", "missing", "disagrees"):
                if problem in engine:
                    print(f"{row}, {name}: {problem}: {engine[problem]}")
    print()
    verdict = {True: "yes", False: "NO", None: "?"}
    table(["required", "measured", "ok?"], [[what, text, verdict[holds]] for what, text, holds in verdicts(results)])
    quiet = results["machine"]
    print(
        f"Of {quiet['blocks']} blocks that count, other programs took more than {quiet['most_foreign']:.0%} of the processors "
        f"in {quiet['loaded_blocks']}; in the middle one {quiet['median_foreign']:.1%}. Models marked * have such blocks."
    )
