#!/usr/bin/env python3
"""Checks that every header can be included first.

The library is compiled in batches of files, which would hide it if a header forgot to include something of the
project: an earlier file of the batch may have done so. Here each header of include/ and src/ is compiled alone,
on top of the precompiled header of the tests, which has LibTorch and nothing of the project.

    check_headers.py BUILD_FOLDER [JOBS]   check the tree that this folder is a build of
    check_headers.py --self-test           check the checker
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def headers_below(root):
    """All headers of the library, public ones first."""
    return sorted(root.glob("include/**/*.h")) + sorted(root.glob("src/**/*.h"))


def command_for_headers(commands):
    """How a test is compiled on top of the precompiled header, without its file and its output."""
    for entry in commands:
        words = shlex.split(entry["command"])
        if "-include" not in words or "cmake_pch.hxx" not in entry["command"] or "-o" not in words:
            continue
        if not entry["file"].endswith("_test.cpp"):
            continue
        output = words.index("-o")
        return words[:output] + ["-fsyntax-only", "-x", "c++"], entry["directory"]
    return None


def complaint_about(header, command, folder):
    """What the compiler says about a file that includes this header only, or nothing."""
    done = subprocess.run(command + ["-"], cwd=folder, input=f'#include "{header}"\n', text=True,
                          capture_output=True, check=False)
    return "" if done.returncode == 0 else f"{header}: it cannot be included alone\n{done.stderr}"


def check(headers, command, folder, jobs):
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        found = pool.map(lambda header: complaint_about(header, command, folder), headers)
        return [complaint for complaint in found if complaint]


def main(build, jobs):
    found = command_for_headers(json.loads((build / "compile_commands.json").read_text()))
    if found is None:
        print("Headers: this build has no tests, whose precompiled header is needed.")
        return 1
    headers = headers_below(ROOT)
    complaints = check(headers, *found, jobs)
    for complaint in complaints:
        print(complaint)
    if not complaints:
        print(f"Headers: each of {len(headers)} can be included alone.")
    return 1 if complaints else 0


class SelfTest(unittest.TestCase):
    def test_command(self):
        commands = [
            {"command": "c++ -o a_test.o -c a_test.cpp", "directory": "x", "file": "a_test.cpp"},
            {"command": "c++ -include b/cmake_pch.hxx -o p.o -c p.cxx", "directory": "x", "file": "p.cxx"},
            {"command": "c++ -include b/cmake_pch.hxx -o t.o -c t_test.cpp", "directory": "y", "file": "t_test.cpp"},
        ]
        self.assertEqual(
            command_for_headers(commands),
            (["c++", "-include", "b/cmake_pch.hxx", "-fsyntax-only", "-x", "c++"], "y"))
        self.assertIsNone(command_for_headers(commands[:2]))

    def test_header_that_needs_another(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "needs.h").write_text("inline Missing f();\n")
            (path / "whole.h").write_text("#include <string>\ninline std::string g() { return {}; }\n")
            command = ["c++", "-fsyntax-only", "-x", "c++"]
            headers = [path / "needs.h", path / "whole.h"]
            complaints = check(headers, command, folder, 1)
            self.assertEqual(len(complaints), 1)
            self.assertIn("needs.h", complaints[0])


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        unittest.main(argv=sys.argv[:1])
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(),
                  int(sys.argv[2]) if len(sys.argv) > 2 else os.cpu_count()))
