#!/usr/bin/env python3
"""Kills an evaluation at random moments and compares its final results with an undisturbed run's.

    python3 bench/eval/kill_test.py [--kills 20] [--seed 1] [--winnow build/bin/winnow] -- EVAL-ARGUMENTS

Runs `winnow eval EVAL-ARGUMENTS` once undisturbed. Then, for every kill, it starts it in a new folder, sends SIGKILL
after a random part of the time of the undisturbed run, runs it to its end, and compares every answer (without times)
and the report's tables with those of the undisturbed run. The exit code is 1 if any differs.
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

TIMES = ("prefill_s", "evict_s", "decode_s")


def table_of(folder):
    """Returns every answer of a folder, in a fixed order, without the fields that differ between any two runs."""
    lines = []
    for path in sorted(folder.glob("answers-*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            answer = json.loads(line)
            for name in TIMES:
                answer.pop(name, None)
            lines.append(json.dumps(answer, sort_keys=True))
    if len(set(lines)) != len(lines):
        sys.exit(f"{folder}: an answer is there twice")
    return sorted(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--winnow", default="build/bin/winnow")
    parser.add_argument("arguments", nargs="+")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)

        def start(folder):
            # The bounds are fixed, so that runs do not differ because other processes took memory or time.
            command = [options.winnow, "eval", *options.arguments, "--out", str(folder), "--kv-memory", "1GiB",
                       "--batch-tokens", "20000"]
            return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def finish(folder):
            process = start(folder)
            out, err = process.communicate()
            if process.returncode != 0:
                sys.exit(f"winnow eval ended with {process.returncode}: {err}")
            return out.replace(str(folder), "FOLDER")

        begun = time.monotonic()
        expected_text = finish(root / "whole")
        seconds = time.monotonic() - begun
        expected = table_of(root / "whole")
        print(f"undisturbed: {len(expected)} answers in {seconds:.1f} s", flush=True)
        n_different = 0
        for kill in range(options.kills):
            folder = root / f"killed-{kill}"
            process = start(folder)
            time.sleep(draw.uniform(0, seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            there = sum(len(path.read_bytes().splitlines()) for path in folder.glob("answers-*.jsonl"))
            text = finish(folder)
            same = table_of(folder) == expected and text == expected_text
            n_different += not same
            print(f"kill {kill + 1}: {there} lines were there, the end is {'the same' if same else 'DIFFERENT'}", flush=True)
        print(f"{options.kills - n_different} of {options.kills} ended with the same answers and tables")
        sys.exit(n_different > 0)


if __name__ == "__main__":
    main()
