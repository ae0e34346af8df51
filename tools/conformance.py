#!/usr/bin/env python3
"""Counts what docs/conformance.md, docs/conformance_aot.csv and docs/conformance_ca.csv claim and checks
that it is true.

docs/conformance.md has a row for each feature: one that is done must name a test, which is a `Suite.Name`
that some file below tests/ defines or a file tests/graphs/<pass>/<case>.txt, and code that begins with an
existing path.

The csv files have a row for each of upstream's tests of AOTAutograd and of Compiled Autograd, under its
section, file and mark there (B behaviour, BR behaviour and number of captures, E error, G graph, BG
both, S needs a subclass written in Python, P about Python itself, X disabled): one that is ported must name a test that exists and has upstream's
name; a ported test that is DISABLED_ is counted on its own.

Exits with 1 and a list of the false claims otherwise.
"""

import collections
import csv
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STATUSES = ("done", "not applicable", "open")
PORT_STATUSES = ("ported", "not applicable", "open")
DISABLED = "DISABLED_"
PORTS = {"AOTAutograd": "conformance_aot.csv", "Compiled Autograd": "conformance_ca.csv"}


def rows(text):
    """Yields (section, id, status, code, test) for every row of every table."""
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].strip()
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("|") and len(cells) == 4 and re.fullmatch(r"[A-Z]+\d+[a-z]?", cells[0]):
            yield (section, *cells)


def defined_tests(folder):
    """All `Suite.Name` that the C++ files below the folder define, and the paths of the tests of passes."""
    pattern = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
    in_code = {
        f"{suite}.{name}"
        for path in folder.rglob("*.cpp")
        for suite, name in pattern.findall(path.read_text(encoding="utf-8"))
    }
    in_text = {path.relative_to(folder.parent).as_posix() for path in folder.glob("graphs/*/*.txt")}
    return in_code | in_text


def problems(all_rows, tests, root):
    """The claims about features that are not true, in words."""
    found = []
    for _, row_id, status, code, test in all_rows:
        if not status.startswith(STATUSES):
            found.append(f"{row_id}: unknown status '{status}'")
        if status.startswith("not applicable") and len(status) < len("not applicable") + 5:
            found.append(f"{row_id}: not applicable without a reason")
        if status != "done":
            continue
        if test not in tests:
            found.append(f"{row_id}: there is no test '{test}'")
        if not code or not (root / code.split(" ")[0]).exists():
            found.append(f"{row_id}: there is no file '{code}'")
    ids = [row[1] for row in all_rows]
    found += [f"{row_id}: listed twice" for row_id, n in collections.Counter(ids).items() if n > 1]
    return found


def port_problems(ports, tests):
    """The claims about ported tests that are not true, in words."""
    found = []
    for port in ports:
        where = f"section {port['section']}, {port['test']}"
        if port["status"] not in PORT_STATUSES:
            found.append(f"{where}: unknown status '{port['status']}'")
        elif port["status"] == "not applicable" and not port["detail"]:
            found.append(f"{where}: not applicable without a reason")
        elif port["status"] == "ported":
            if port["detail"] not in tests:
                found.append(f"{where}: there is no test '{port['detail']}'")
            if port["detail"].split(".")[-1].removeprefix(DISABLED) != port["test"]:
                found.append(f"{where}: '{port['detail']}' has another name")
    return found


def print_features(all_rows):
    counts = collections.defaultdict(collections.Counter)
    for section, _, status, _, _ in all_rows:
        key = next((s for s in STATUSES if status.startswith(s)), "unknown")
        counts[section][key] += 1
        counts["all"][key] += 1
    for section, count in counts.items():
        total = sum(count.values())
        print(f"{section:32} {count['done']:4} done {count['not applicable']:4} n/a "
              f"{count['open']:4} open of {total}")


def print_ports(of_what, ports):
    counts = collections.defaultdict(collections.Counter)
    for port in ports:
        status = port["status"]
        if status == "ported" and DISABLED in port["detail"]:
            status = "disabled"
        for key in (f"section {port['section']}", "all"):
            counts[key][status] += 1
    print(f"\nUpstream's tests of {of_what}")
    for section, count in counts.items():
        portable = sum(count.values()) - count["not applicable"]
        print(f"{section:32} {count['ported']:4} ported of {portable:4} "
              f"({count['disabled']} disabled, {count['open']} open), "
              f"{count['not applicable']} not applicable")


def main():
    all_rows = list(rows((ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")))
    tests = defined_tests(ROOT / "tests")
    found = problems(all_rows, tests, ROOT)
    print_features(all_rows)
    for of_what, name in PORTS.items():
        with open(ROOT / "docs" / name, encoding="utf-8", newline="") as file:
            ports = list(csv.DictReader(file))
        print_ports(of_what, ports)
        found += port_problems(ports, tests) if ports else [f"{name} is empty"]
    print("\n".join(found))
    return 1 if found or not all_rows else 0


if __name__ == "__main__":
    sys.exit(main())
