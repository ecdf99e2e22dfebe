#!/usr/bin/env python3
"""Short runs of what bench/server does for hours: mixed requests, and kills while contexts are saved.

usage: hard_use_test.py WINNOW

Prints a line that begins with "skipped: " and exits with 0 where the model (WINNOW_TEST_MODEL) is missing.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/server"


def main():
    model = os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    with tempfile.TemporaryDirectory() as folder:
        small = folder + "/small.gguf"
        subprocess.run([sys.executable, BENCH / "short_model.py", model, small], check=True)
        for script, *flags in (("soak.py", "--requests", "100", "--", "-t", "1"), ("kill_saves.py", "--rounds", "4")):
            command = [sys.executable, BENCH / script, sys.argv[1], "-m", small, *flags]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
            print(ran.stdout[-3000:])
            if ran.returncode != 0:
                sys.exit(f"failed: {script} ended with {ran.returncode}\n{ran.stderr[-3000:]}")


if __name__ == "__main__":
    main()
