#!/usr/bin/env python3
"""Writes the tool's own output into the documentation, and draws its figures; with --check only says which files would change.

  docs/refresh.py [--check] [build/bin/winnow]

A line <!-- winnow ARGUMENTS --> is followed by a block with that command's output, <!-- methods --> by the table of
methods, <!-- models --> by that of architectures (winnow_model_table, beside the tool), <!-- named models --> by that of
scripts/models.txt, <!-- file PATH --> by a file of the repository, <!-- script PATH ARGUMENTS --> by what a Python script of the
repository prints. Figures are plots of `winnow report` over answers that lie in docs/runs; results.md has the commands that gave
these. Run it after a change of flags, methods, architectures, charts or that table.
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"<!-- (winnow [^>]*?|methods|models|named models|file [^>]*?|script [^>]*?) -->\n(.*?)<!-- end -->\n", re.S)

# A figure, the arguments of `winnow report` and the name of the plot.
FIGURES = {"images/kl-over-bytes.svg": (["runs/qwen2.5-coder-1.5b-fidelity", "--by", "bytes"], "fidelity-agnostic-by-bytes.svg")}


def output(tool, arguments):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WINNOW_")}
    return subprocess.run([tool, *arguments], check=True, capture_output=True, text=True, env=environment).stdout


def methods_table(tool):
    methods = json.loads(output(tool, ["methods", "--json", "-"]))
    values = {}  # of each option, over the methods that have it
    for m in methods:
        for name, value in m["options"].items():
            values.setdefault(name, []).append(value)
    usual = {name: collections.Counter(found).most_common(1)[0][0] for name, found in values.items()}
    rows = ["| method | scorer | layers | heads | selector | unusual defaults | what it keeps | paper |",
            "|---|---|---|---|---|---|---|---|"]
    for m in methods:
        parts = [m["scorer"], m["layers"], m["heads"], m["selector"]]
        unusual = ", ".join(f"{name}={value}" for name, value in m["options"].items() if value != usual[name])
        rows.append(f"| `{m['name']}` | " + " | ".join([*parts, unusual or "-", m["summary"], m["paper"] or "-"]) + " |")
    return "\n".join(rows) + "\n"


def unless_rounding(old, fresh):
    """Returns the fresh table, or the old one if they differ in powers of ten alone and by one at most, as between processors."""
    power = re.compile(r"1e(-?\d+)")
    is_same = power.sub("", old) == power.sub("", fresh)
    is_near = all(abs(int(a) - int(b)) <= 1 for a, b in zip(power.findall(old), power.findall(fresh)))
    return old if is_same and is_near else fresh


def named_models_table():
    table = pathlib.Path(__file__).parent.parent / "scripts/models.txt"
    rows = ["| name | file | MB | licence |", "|---|---|---:|---|"]
    for line in table.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            name, file, size, _, licence, text, _ = line.split()
            rows.append(f"| `{name}` | `{file}` | {round(int(size) / 1e6):,} | [{licence}]({text}) |")
    return "\n".join(rows) + "\n"


def figure(tool, arguments, plot):
    folder, *options = arguments
    with tempfile.TemporaryDirectory() as out:
        output(tool, ["report", str(pathlib.Path(__file__).parent / folder), *options, "--out", out])
        return (pathlib.Path(out) / "figures" / plot).read_text(encoding="utf-8")


def main():
    arguments = sys.argv[1:]
    check = "--check" in arguments
    names = [a for a in arguments if a != "--check"]
    tool = os.path.abspath(names[0] if names else "build/bin/winnow")
    status = 0

    def write(path, fresh):
        nonlocal status
        if not path.exists() or path.read_text(encoding="utf-8") != fresh:
            status = 1 if check else status
            print(("out of date: " if check else "updated: ") + path.name)
            if not check:
                path.write_text(fresh, encoding="utf-8")

    for name, (arguments, plot) in FIGURES.items():
        write(pathlib.Path(__file__).parent / name, figure(tool, arguments, plot))
    docs = pathlib.Path(__file__).parent
    for path in sorted([*docs.glob("*.md"), *docs.glob("internals/*.md")]):
        def block(match):
            name = match.group(1)
            if name == "methods":
                body = methods_table(tool)
            elif name == "named models":
                body = named_models_table()
            elif name == "models":
                fresh = output(os.path.join(os.path.dirname(tool), "winnow_model_table"), [])
                body = unless_rounding(match.group(2), fresh)
            elif name.startswith("script "):
                script, *options = name.split()[1:]
                body = output(sys.executable, [str(pathlib.Path(__file__).parent.parent / script), *options])
            elif name.startswith("file "):
                source = pathlib.Path(__file__).parent.parent / name.split()[1]
                body = "```cpp\n" + source.read_text(encoding="utf-8") + "```\n"
            else:
                body = "```\n" + output(tool, name.split()[1:]) + "```\n"
            return f"<!-- {name} -->\n{body}<!-- end -->\n"

        write(path, BLOCK.sub(block, path.read_text(encoding="utf-8")))
    return status


if __name__ == "__main__":
    sys.exit(main())
