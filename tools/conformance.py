#!/usr/bin/env python3
"""Counts what docs/conformance.md, docs/conformance_aot.csv and docs/conformance_ca.csv claim and checks
that it is true.

docs/conformance.md has a row for each feature: one that is done must name a test, which is a `Suite.Name`
that some file below tests/ defines or a file tests/graphs/<pass>/<case>.txt, and code that begins with an
existing path.

The csv files have a row for each of upstream's tests of AOTAutograd and of Compiled Autograd, under its
section, file and mark there (B behaviour, BR behaviour and number of captures, E error, G graph, BG
both, S needs a subclass written in Python, P about Python itself, X disabled): one that is ported must name a test that exists and has upstream's
name; a ported test that is DISABLED_ is counted on its own. A port that compiles something must assert that this ran, and
not the function itself in its place: by the counts of calls, by Options::fullgraph, or, for errors, by what is
thrown; itself or in a helper that it calls. One whose function runs eagerly is no port.

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
# What can run eagerly instead, and what shows that it did not, or that it did.
COMPILES = re.compile(r"\bcompile\(|\bEnable\b")
PROOF = re.compile(r"\b(eager_calls|cache_hits|eager_fallbacks|captures)\b|fullgraph = true")
ERROR = re.compile(r"\b(error_of|EXPECT_THROW|expect_error\w*|expect_refus\w*)\b")
EAGER = re.compile(r"\bexpect_runs_eagerly\(|\bRuns::Eagerly\b")
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


def port_problems(ports, tests, unproven):
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
            if port["detail"] in unproven:
                found.append(f"{where}: '{port['detail']}' {unproven[port['detail']]}")
    return found


def add_definition(found, header, text):
    """Notes the text of a test, as `Suite.Name`, of a function or of a class."""
    test = re.search(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)", header)
    other = re.search(r"\b(?:struct|class)\s+(\w+)[^()]*$", header) or re.search(r"(\w+)\s*\(", header)
    name = f"{test[1]}.{test[2]}" if test else other[1] if other else None
    if name:
        found[name] = found.get(name, "") + text


def definitions(text):
    """What a formatted file defines or declares outside of functions, by name: such a thing begins in the first
    column, and so does the line of its closing brace, or all braces are closed."""
    found, header, inside = {}, "", False
    for line in text.splitlines(keepends=True):
        stripped = line.strip()
        if not header and (not stripped or line[0] in " }#/" or stripped.startswith("namespace")):
            continue
        header, begin = header + line, header
        if inside:
            if line[0] != "}" and header.count("{") != header.count("}"):
                continue
        elif stripped.endswith("{"):
            inside, name = True, header
            continue
        elif not stripped.endswith((";", "}")):
            continue
        add_definition(found, name if inside else begin + line, header)
        header, inside = "", False
    return found


def merged(texts, paths):
    """The same and what these files define: texts of one name are joined."""
    texts = dict(texts)
    for path in sorted(paths):
        for name, text in definitions(path.read_text(encoding="utf-8")).items():
            texts[name] = texts.get(name, "") + text
    return texts


def mentioning(pattern, texts):
    """The names of those functions and classes whose text has the pattern, or mentions another one of them."""
    words = {name: set(re.findall(r"\w+", text)) for name, text in texts.items() if "." not in name}
    known = {name for name in words if pattern.search(texts[name])}
    while more := {name for name in words if name not in known and known & words[name]}:
        known |= more
    return known


def unproven_ports(folder):
    """For each test of ports that may compare eager with eager, why."""
    found = {}
    shared = merged({}, folder.glob("support/*.*"))
    for directory in sorted({path.parent for path in folder.rglob("*_test.cpp")}):
        sources = [*directory.glob("*.h"), *directory.glob("*.cpp")]
        helpers = merged(shared, (path for path in sources if not path.name.endswith("_test.cpp")))
        for path in sorted(directory.glob("*_test.cpp")):
            texts = merged(helpers, [path])
            known = {pattern: mentioning(pattern, texts) for pattern in (COMPILES, PROOF)}
            for name in (name for name in texts if "." in name):
                words = set(re.findall(r"\w+", texts[name]))
                has = {p: p.search(texts[name]) or words & known[p] for p in known}
                if ERROR.search(texts[name]):
                    continue
                if EAGER.search(texts[name]):
                    found[name] = "runs eagerly"
                elif has[COMPILES] and not has[PROOF]:
                    found[name] = "does not assert that nothing ran eagerly"
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
    unproven = unproven_ports(ROOT / "tests")
    read = merged({}, (ROOT / "tests").rglob("*_test.cpp"))
    unproven |= {name: "cannot be read" for name in tests if "/" not in name and name not in read}
    print_features(all_rows)
    for of_what, name in PORTS.items():
        with open(ROOT / "docs" / name, encoding="utf-8", newline="") as file:
            ports = list(csv.DictReader(file))
        print_ports(of_what, ports)
        found += port_problems(ports, tests, unproven) if ports else [f"{name} is empty"]
    print("\n".join(found))
    return 1 if found or not all_rows else 0


if __name__ == "__main__":
    sys.exit(main())
