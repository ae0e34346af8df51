#!/usr/bin/env python3
"""Checks what the documentation says about the repository.

Relative links in Markdown files lead to files and headings that exist, the paths named in
docs/layout.md exist, and the `make` targets named in README.md and CONTRIBUTING.md are in the Makefile.

    check_docs.py [root]       check a repository (default: the one this script is in)
    check_docs.py --self-test  check the checker
"""

import collections
import pathlib
import re
import sys
import tempfile
import unittest
import urllib.parse

SKIPPED_FOLDERS = re.compile(r"^(build.*|out|\..*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)")
REFERENCE = re.compile(r"^\s*\[[^\]^]+\]:\s*<?(\S+?)>?(?:\s|$)")
EXTERNAL = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)
FENCE = re.compile(r"^\s*(```|~~~)")
INLINE_CODE = re.compile(r"`([^`]+)`")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*$")
MAKE_COMMAND = re.compile(r"^\s*(?:\$ )?(?:\w+=\S+ )*make((?: [\w.-]+(?:=\S*)?)+)")
MAKE_RULE = re.compile(r"^([a-z][\w-]*(?: [a-z][\w-]*)*)\s*:(?!=)", re.MULTILINE)
# A path in docs/layout.md: inline code that has a slash or a file suffix, and no blanks or patterns.
PATH = re.compile(r"^\.?[\w.+-]+(/[\w.+-]+)*/?$")


def markdown_files(root):
    for path in sorted(root.rglob("*.md")):
        if not any(SKIPPED_FOLDERS.match(part) for part in path.relative_to(root).parts[:-1]):
            yield path


def numbered_lines(path):
    """Yields (line number, line, inside a code block?) of a Markdown file."""
    inside = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = FENCE.match(line)
        if not fence:
            yield number, line, inside
        inside ^= bool(fence)


def anchors(path):
    """Returns the names under which the headings of a Markdown file can be linked to."""
    names, seen = set(), collections.Counter()
    for _, line, inside in numbered_lines(path):
        heading = HEADING.match(line)
        if heading and not inside:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            names.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
    return names


def complaint_about_link(link, page, root):
    if EXTERNAL.match(link):
        return None
    place, _, anchor = urllib.parse.unquote(link).partition("#")
    target = page if not place else (root / place[1:] if place.startswith("/") else page.parent / place)
    if not target.exists():
        return f"the link {link} leads nowhere"
    if anchor and target.suffix == ".md" and anchor.lower() not in anchors(target):
        return f"the link {link} names no heading of {target.name}"
    return None


def check_links(root):
    for page in markdown_files(root):
        for number, line, inside in numbered_lines(page):
            if inside:
                continue
            text = INLINE_CODE.sub("", line)
            for link in LINK.findall(text) + REFERENCE.findall(text):
                complaint = complaint_about_link(link, page, root)
                if complaint:
                    yield page, number, complaint


def check_layout(root):
    page = root / "docs" / "layout.md"
    if not page.exists():
        return
    for number, line, inside in numbered_lines(page):
        # In a code block, a path is the first word of the line.
        words = line.split()[:1] if inside else INLINE_CODE.findall(line)
        for word in words:
            looks_like_path = PATH.match(word) and ("/" in word or re.search(r"\w\.\w+$", word))
            if looks_like_path and not (root / word).exists():
                yield page, number, f"{word} does not exist"


def make_targets(root):
    makefile = root / "Makefile"
    text = makefile.read_text(encoding="utf-8") if makefile.exists() else ""
    return {target for rule in MAKE_RULE.findall(text) for target in rule.split()}


def check_make_targets(root):
    targets = make_targets(root)
    for page in (root / "README.md", root / "CONTRIBUTING.md"):
        if not page.exists():
            continue
        for number, line, inside in numbered_lines(page):
            for code in [line.split("#")[0]] if inside else INLINE_CODE.findall(line):
                command = MAKE_COMMAND.match(code)
                for word in command[1].split() if command else []:
                    if "=" not in word and not word.startswith("-") and word not in targets:
                        yield page, number, f"`make {word}` is not in the Makefile"


def check_tree(root):
    """Returns all complaints about a repository, as lines of text."""
    checks = (check_links, check_layout, check_make_targets)
    return [
        f"{page.relative_to(root)}:{number}: {complaint}"
        for check in checks
        for page, number, complaint in check(root)
    ]


class SelfTest(unittest.TestCase):
    def complaints(self, files):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            return check_tree(root)

    def test_links_that_resolve(self):
        readme = (
            "# One Two!\n## One Two!\n[a](docs/a.md) ![b](/docs/a.md 'title') [c](https://example.org/x)\n"
            "[d](#one-two) [d](#one-two-1) [e](docs/) [f](docs/a.md#why-it-works)\n[r]: docs/a.md\n"
            "`[](no/such)`\n```\n[](no/such)\n# not-a-heading\n```\n"
        )
        self.assertEqual(self.complaints({"README.md": readme, "docs/a.md": "## Why `it` works"}), [])

    def test_links_that_do_not(self):
        for link in ("[a](gone.md)", "[a]: gone.md", "[a](#gone)", "![a](docs/gone.png)"):
            self.assertEqual(len(self.complaints({"README.md": "\n" + link})), 1, link)
        self.assertEqual(
            self.complaints({"docs/x/a.md": "[a](b.md)"}), ["docs/x/a.md:1: the link b.md leads nowhere"]
        )

    def test_built_files_are_skipped(self):
        self.assertEqual(self.complaints({"build-asan/a.md": "[a](b)", ".venv/a.md": "[a](b)"}), [])

    def test_layout(self):
        layout = "`src/ir/` and `tools/a.py`, `Graph`, `a b/c`\n```\nsrc/ir/   the graph\n```\n"
        files = {"docs/layout.md": layout, "src/ir/graph.h": "", "tools/a.py": ""}
        self.assertEqual(self.complaints(files), [])
        del files["tools/a.py"]
        self.assertEqual(self.complaints(files), ["docs/layout.md:1: tools/a.py does not exist"])
        files = {"docs/layout.md": "```\nsrc/ir/   the graph\n```\n"}
        self.assertEqual(self.complaints(files), ["docs/layout.md:2: src/ir/ does not exist"])

    def test_make_targets(self):
        files = {
            "Makefile": "X := 1\ntest: build\nbuild docs-check:\n",
            "README.md": "`make test X=1`, make sure\n```\nmake build docs-check  # make no noise\n```\n",
        }
        self.assertEqual(self.complaints(files), [])
        files["README.md"] = "`make demo`\n"
        self.assertEqual(self.complaints(files), ["README.md:1: `make demo` is not in the Makefile"])


def main(arguments):
    if arguments == ["--self-test"]:
        return unittest.main(argv=[sys.argv[0]])
    root = pathlib.Path(arguments[0]) if arguments else pathlib.Path(__file__).resolve().parent.parent
    complaints = check_tree(root)
    print("\n".join(complaints) if complaints else "Documentation: everything it names exists.")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
