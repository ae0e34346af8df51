#!/usr/bin/env python3
"""Checks that includes go downwards only.

A file in src/<folder>/ may include its own folder, folders of a lower layer, public headers, and
whatever the standard library and LibTorch offer. A public header never includes src/. Only the folders
that talk to LibTorch's dispatcher may register kernels there.

    check_layers.py [root]       check a source tree (default: the one this script is in)
    check_layers.py --self-test  check the checker
"""

import pathlib
import re
import sys
import tempfile
import unittest

LAYERS = {
    "base": 0,
    "memory": 1,
    "tensors": 1,
    "ir": 1,
    "tree": 2,
    "ops": 2,
    "random": 2,
    "trace": 3,
    "interpreter": 3,
    "effects": 3,
    "passes": 3,
    "partition": 3,
    "native": 3,
    "runtime": 4,
    "subclass": 4,
    "observe": 5,
    "plan": 5,
    "export": 5,
    "checkpoint": 6,
    "optim": 6,
    "derivative": 7,
    "engine": 8,
    "compile": 9,
}
DISPATCHER_FOLDERS = {"random", "effects", "trace", "observe", "engine"}

INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
REGISTRATION = re.compile(r"\b(TORCH_LIBRARY(_IMPL|_FRAGMENT)?|registerFallback|registerImpl)\b")
COMMENT = re.compile(r"//.*")
SUFFIXES = {".h", ".cpp"}


def folder_of(included, src):
    """Returns the folder of src/ that an include names, or None if it names something else."""
    folder, slash, _ = included.partition("/")
    if slash and (folder in LAYERS or (src / included).exists()):
        return folder
    return None


def complaint_about_include(folder, included, src):
    """Says what is wrong with an include in src/<folder>/ (None: in a public header), or None."""
    if ".." in included.split("/"):
        return "use a path from src/ or include/, without '..'"
    target = folder_of(included, src)
    if target is None:
        return None
    if folder is None:
        return "a public header must not include src/"
    if target not in LAYERS:
        return f"src/{target}/ has no layer; add it to the table"
    if target == folder or LAYERS[target] < LAYERS[folder]:
        return None
    way = "sideways" if LAYERS[target] == LAYERS[folder] else "upwards"
    return f"{way}: {folder} ({LAYERS[folder]}) must not include {target} ({LAYERS[target]})"


def check_file(path, folder, src):
    """Yields (line number, complaint) for one file; folder is None for a public header."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        include = INCLUDE.match(line)
        if include:
            complaint = complaint_about_include(folder, include[1], src)
            if complaint:
                yield number, f'#include "{include[1]}": {complaint}'
        registration = REGISTRATION.search(COMMENT.sub("", line))
        if registration and folder not in DISPATCHER_FOLDERS:
            allowed = " and ".join(f"src/{name}/" for name in sorted(DISPATCHER_FOLDERS))
            yield number, f"{registration[0]}: only {allowed} may register with the dispatcher"


def source_files(root):
    return sorted(path for path in root.rglob("*") if path.suffix in SUFFIXES)


def check_tree(root):
    """Returns all complaints about a source tree, as lines of text."""
    src, complaints = root / "src", []

    def collect(path, folder):
        for number, complaint in check_file(path, folder, src):
            complaints.append(f"{path.relative_to(root)}:{number}: {complaint}")

    for path in source_files(root / "include"):
        collect(path, None)
    for path in source_files(src):
        parts = path.relative_to(src).parts
        if len(parts) < 2 or parts[0] not in LAYERS:
            complaints.append(f"{path.relative_to(root)}: its folder has no layer; add it to the table")
        else:
            collect(path, parts[0])
    return complaints


class SelfTest(unittest.TestCase):
    def complaints(self, **files):
        """Checks a tree of files; "src__ir__graph_h" stands for src/ir/graph.h."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / re.sub(r"_(h|cpp)$", r".\1", name.replace("__", "/"))
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_tree(root)

    def assert_one(self, complaints, text):
        self.assertEqual(len(complaints), 1, complaints)
        self.assertIn(text, complaints[0])

    def test_downwards_and_own_folder_are_fine(self):
        self.assertEqual(
            self.complaints(
                src__ir__graph_h='#include "base/errors.h"\n#include "ir/node.h"\n#include <vector>\n',
                src__compile__pipeline_cpp='#include "joint/joint.h"\n#include "ahead/compile.h"\n',
                include__ahead__compile_h='#include "ahead/options.h"\n#include <ATen/core/Tensor.h>\n',
            ),
            [],
        )

    def test_upwards(self):
        self.assert_one(self.complaints(src__ir__a_h='#include "trace/b.h"'), "src/ir/a.h:1: ")
        self.assert_one(self.complaints(src__ir__a_h='\n#include <trace/b.h>'), "upwards")

    def test_sideways(self):
        self.assert_one(self.complaints(src__passes__a_cpp='#include "partition/cost.h"'), "sideways")

    def test_public_header_includes_source(self):
        self.assert_one(self.complaints(include__ahead__a_h='#include "ir/graph.h"'), "public header")

    def test_relative_path(self):
        self.assert_one(self.complaints(src__ir__a_h='#include "../base/b.h"'), "'..'")

    def test_library_headers_are_fine(self):
        self.assertEqual(self.complaints(src__ir__a_h="#include <torch/library.h>"), [])

    def test_folder_without_layer(self):
        self.assert_one(self.complaints(src__misc__a_h=""), "no layer")
        self.assert_one(self.complaints(src__a_h=""), "no layer")

    def test_registration(self):
        text = "TORCH_LIBRARY_IMPL(_, Functionalize, m) {}"
        self.assertEqual(self.complaints(src__trace__a_cpp=text, src__engine__b_cpp=text), [])
        self.assert_one(self.complaints(src__passes__a_cpp=text), "may register")
        self.assertEqual(self.complaints(src__passes__a_cpp="// unlike TORCH_LIBRARY_IMPL"), [])


def main(arguments):
    if arguments == ["--self-test"]:
        return unittest.main(argv=[sys.argv[0]])
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    complaints = check_tree(root)
    print("\n".join(complaints) if complaints else "Layers: every include goes downwards.")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
