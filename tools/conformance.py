#!/usr/bin/env python3
"""Counts the rows of docs/conformance.md and checks that what they claim exists.

A row that is done must name a test `Suite.Name` that some file below tests/ defines, and code that
begins with an existing path. Exits with 1 and a list of the false claims otherwise.
"""

import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STATUSES = ("done", "not applicable", "open")


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
    """All `Suite.Name` that the C++ files below the folder define."""
    pattern = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")
    return {
        f"{suite}.{name}"
        for path in folder.rglob("*.cpp")
        for suite, name in pattern.findall(path.read_text(encoding="utf-8"))
    }


def problems(all_rows, tests, root):
    """The claims that are not true, in words."""
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


def main():
    all_rows = list(rows((ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")))
    counts = collections.defaultdict(collections.Counter)
    for section, _, status, _, _ in all_rows:
        key = next((s for s in STATUSES if status.startswith(s)), "unknown")
        counts[section][key] += 1
        counts["all"][key] += 1
    for section, count in counts.items():
        total = sum(count.values())
        print(f"{section:32} {count['done']:4} done {count['not applicable']:4} n/a "
              f"{count['open']:4} open of {total}")
    found = problems(all_rows, defined_tests(ROOT / "tests"), ROOT)
    print("\n".join(found))
    return 1 if found or not all_rows else 0


if __name__ == "__main__":
    sys.exit(main())
