#!/usr/bin/env python3
"""Tests that scripts/docs_check.py finds each kind of error on a page, and none on a correct page."""
import pathlib
import sys
import tempfile

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import docs_check  # noqa: E402

RULES = docs_check.read("docs/prose.json")

DOCS = "docs"  # separate, because check_paths.sh requires quoted paths to exist


class Tool:
    methods = {"snapkv", "full"}

    def flags(self, command):
        return {"-f", "--kv-evict", "--methods", "--help"} if command in ("run", "eval") else None


def problems(name, text):
    """Returns the errors of a page with that name and text in a folder with other.md, which has headings."""
    with tempfile.TemporaryDirectory() as folder:
        docs_check.ROOT = pathlib.Path(folder)
        docs_check.read.cache_clear()
        docs_check.anchors.cache_clear()
        (docs_check.ROOT / DOCS / "lab").mkdir(parents=True)
        (docs_check.ROOT / DOCS / "other.md").write_text("# Other\n\n## What it `is`, twice\n\n## What it is, twice\n")
        (docs_check.ROOT / name).write_text(text)
        return [*docs_check.check_links(name), *docs_check.check_lengths(name), *docs_check.check_commands(name, Tool())]


def sh(text):
    return f"# Page\n\n```sh\n{text}\n```\n"


RIGHT = [
    (f"{DOCS}/page.md", "[a](other.md) [b](other.md#what-it-is-twice) [c](other.md#what-it-is-twice-1) [d](https://example.org/x#y)\n"),
    (f"{DOCS}/page.md", sh("cat a | build/bin/winnow run -f - --kv-evict snapkv:window=16 > out; winnow run --help   # winnow fly -x")),
    (f"{DOCS}/page.md", sh("winnow eval --methods 'full;snapkv:window=16,pool=none' \\\n    -f $(winnow_like --odd)")),
    (f"{DOCS}/page.md", "```\nwinnow fly, [x](nowhere.md)\n```\n"),
    (f"{DOCS}/lab/note.md", "word " * 200),
    (f"{DOCS}/page.md", "- " + "word " * 100 + "\n- " + "word " * 100 + "\n\n| " + "word " * 200 + "|\n"),
]
WRONG = [
    (f"{DOCS}/page.md", "\n[a](nowhere.md)\n", f"{DOCS}/page.md:2: there is no {DOCS}/nowhere.md"),
    (f"{DOCS}/page.md", "[a](other.md#nothing)\n", f"{DOCS}/page.md:1: {DOCS}/other.md has no heading for #nothing"),
    (f"{DOCS}/page.md", sh("winnow run \\\n  -f a --odd"), f"{DOCS}/page.md:4: `winnow run` has no flag --odd"),
    (f"{DOCS}/page.md", sh("ls\nx && winnow fly"), f"{DOCS}/page.md:5: there is no `winnow fly`"),
    (f"{DOCS}/page.md", sh("winnow run --kv-evict snapkw:window=16"), f"{DOCS}/page.md:4: there is no method snapkw"),
    (f"{DOCS}/page.md", sh("winnow eval --methods full,snapkw,pool=none"), f"{DOCS}/page.md:4: there is no method snapkw"),
    (f"{DOCS}/page.md", "a\n\n" + "word\n" * 121, f"{DOCS}/page.md:3: a paragraph of 121 words"),
    ("README.md", "a\n\n" * 51, "README.md: 102 lines"),
    (f"{DOCS}/faq.md", "word\n\n" * 1500, f"{DOCS}/faq.md: 1500 words"),
]


PROSE = [  # with the number of findings
    ("The cache is small.\n\n| a very very small | table |\n\n```\nvery very\n```\n", 0),
    ("`x` `x` and `very very`, 8 8 or 8, 8 [a](very-very.md)\n\n# The cache\n\nThe cache is small.\n", 0),
    ("It is \"quoted\" ... from 2 to 3 pm\n", 0),
    ("The cache is is small.\n", 1),
    ("Firstly.\n\nIt is a very large cache.\n", 1),
]


def prose_problems(text):
    with tempfile.TemporaryDirectory() as folder:
        docs_check.ROOT = pathlib.Path(folder)
        docs_check.read.cache_clear()
        (docs_check.ROOT / DOCS).mkdir()
        (docs_check.ROOT / DOCS / "prose.json").write_text(RULES)
        (docs_check.ROOT / DOCS / "page.md").write_text(text)
        return list(docs_check.check_prose([f"{DOCS}/page.md"], None))


class HelpfulTool:
    def commands(self):
        return ["run"]

    def output(self, *_):
        return "usage: winnow run\n\n  -n N   the number of of tokens\n"


def program_problems():
    with tempfile.TemporaryDirectory() as folder:
        docs_check.ROOT = pathlib.Path(folder)
        docs_check.read.cache_clear()
        for name in (DOCS, "src"):
            (docs_check.ROOT / name).mkdir()
        (docs_check.ROOT / DOCS / "prose.json").write_text(RULES)
        (docs_check.ROOT / "src" / "code.cc").write_text(
            'f("the file is is not there");  // it is is "a comment of of this"\ng("<div><div>", "is there", " there is no model");\n')
        return list(docs_check.check_prose([], HelpfulTool()))


def main():
    for text, n in PROSE if docs_check.PROSELINT.exists() else []:
        found = prose_problems(text)
        assert len(found) == n and all(line.startswith(f"{DOCS}/page.md:") for line in found), (text, found)
    if docs_check.PROSELINT.exists():
        found = program_problems()
        assert [line.split(":")[0] for line in found] == ["/".join(("src", "code.cc.md")), "winnow-run-help.md"], found
    for name, text in RIGHT:
        assert problems(name, text) == [], (text, problems(name, text))
    for name, text, expected in WRONG:
        found = problems(name, text)
        assert len(found) == 1 and found[0].startswith(expected), (expected, found)
    print(f"passed: {len(RIGHT)} right pages, {len(WRONG)} wrong ones, " +
          (f"{len(PROSE)} of prose" if docs_check.PROSELINT.exists() else "no prose: there is no proselint"))


if __name__ == "__main__":
    main()
