#!/usr/bin/env python3
"""Runs the shell commands of README.md and of the guides as a reader would, but over a small model and few tokens.

usage: guides_test.py WINNOW [PAGE...]

All pages share one folder, which has what their commands name: a book, a few documents, models, a sample of LongBench.
There `winnow` is this script. It makes a command's numbers small, gives `chat` a question, and lets `serve` end once it
is ready. `make` does nothing, since CI builds and tests by itself, and machines that a page makes up are not asked.

The model is WINNOW_SHORT_TEST_MODEL, else WINNOW_TEST_MODEL. Without one, it prints a line that begins with "skipped: " and
exits with 0.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench" / "server"))
from server_process import Server  # noqa: E402

# In an order in which every result that a page reads is there.
PAGES = ["README", "docs/quickstart", "docs/choosing-a-method", "docs/tuning", "docs/faq", "docs/glossary",
         "docs/coming-from-llama.cpp", "docs/coming-from-kvpress", "docs/cookbook"]
SMALL = {"--limit": "1", "-n": "4", "-p": "64", "-d": "0,256", "--lengths": "1024", "--tokens": "600"}
SMALL_OF = {"bench": {**SMALL, "-n": "2"}, "run": {**SMALL, "-p": None}}  # None: as it is
FEWER = {"run": ["-n", "4"], "chat": ["-n", "4"], "bench": ["-r", "1"], "eval": ["--limit", "1"]}


def small(words):
    """Returns the arguments of winnow with small numbers."""
    less = SMALL_OF.get(words[0], SMALL)
    out = [less.get(flag) or word for flag, word in zip(["", *words], words)]
    if words[0] == "eval":  # one budget, one task
        out = [word.split(",")[0] if flag == "--budgets" else word for flag, word in zip(["", *out], out)]
        if words[1:2] == ["ruler"] and "--tasks" not in out:
            out += ["--tasks", "niah_single_1"]
    more = FEWER.get(words[0], [])
    return out + ([] if "--help" in out or more[:1] and more[0] in out else more)


def winnow(tool, words):
    words = small(words)
    if words[0] == "serve":
        return Server(tool, *words[1:]).stop()
    ran = subprocess.run([tool, *words], input="What is this about?\n" if words[0] == "chat" else None, text=True)
    return ran.returncode


def make_folder(folder, tool, model):
    """Puts there what the commands of the pages name."""
    for name in ("build/bin", "models", "documents", "programs", "LongBench/data"):
        (folder / name).mkdir(parents=True)
    own = f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" --as-winnow "{tool}" "$@"\n'
    # Two processes on this machine are asked for; others are of the page's making.
    ranks = '#!/bin/sh\ncase " $* " in *" --host one,two,three "*) exit 0 ;; esac\nexec "$WINNOW_MPIRUN" "$@"\n'
    for path, text in {"build/bin/winnow": own, "programs/winnow": own, "programs/make": "#!/bin/sh\n",
                       "programs/mpirun": ranks if shutil.which("mpirun") else "#!/bin/sh\n"}.items():
        (folder / path).write_text(text)
        (folder / path).chmod(0o755)
    names = re.findall(r"\bmodels/[\w.-]+\.gguf", "".join((ROOT / f"{page}.md").read_text() for page in PAGES))
    for name in {"model.gguf", *names}:
        (folder / name).symlink_to(model)
    (folder / "demo").symlink_to(ROOT / "demo")
    (folder / "book.txt").symlink_to(ROOT / "demo/document.txt")
    text = (ROOT / "demo/document.txt").read_text()
    for name, size in {"one": 500, "two": 700}.items():
        (folder / f"documents/{name}.txt").write_text(text[:size])
    sample = {"input": "Who is Dr. Mortimer?", "context": text[:2000], "answers": ["a country practitioner"], "length": 300,
              "dataset": "qasper", "language": "en", "all_classes": None, "_id": "1"}
    (folder / "LongBench/data/qasper.jsonl").write_text(json.dumps(sample) + "\n")


def main():
    model = os.environ.get("WINNOW_SHORT_TEST_MODEL") or os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    tool, pages = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:] or PAGES
    n_blocks = 0
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory() as sessions:
        folder = pathlib.Path(name)
        make_folder(folder, tool, pathlib.Path(model).resolve())
        environment = {**os.environ, "PATH": f"{folder / 'programs'}:{os.environ['PATH']}", "WINNOW_MODEL": "model.gguf",
                       "WINNOW_MPIRUN": shutil.which("mpirun") or "", "OMPI_ALLOW_RUN_AS_ROOT": "1",
                       "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
                       "OMPI_MCA_orte_tmpdir_base": sessions}  # as in tests/cli/ranks_test.cc
        for page in pages:
            for block in re.findall(r"^```sh\n(.*?)^```", (ROOT / f"{page}.md").read_text(), re.S | re.M):
                n_blocks += 1
                start = time.monotonic()
                ran = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder, env=environment, timeout=300,
                                     stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                if ran.returncode:
                    sys.exit(f"failed: {page}.md, with exit code {ran.returncode}:\n{block}\n{ran.stdout[-3000:]}")
                print(f"{time.monotonic() - start:6.1f} s  {page}.md: {block.splitlines()[0]}", flush=True)
    if n_blocks < len(pages):
        sys.exit(f"failed: only {n_blocks} blocks of commands were found")
    print(f"passed: {n_blocks} blocks of commands")


if __name__ == "__main__":
    sys.exit(winnow(sys.argv[2], sys.argv[3:]) if sys.argv[1] == "--as-winnow" else main())
