#!/usr/bin/env python3
"""Checks that `winnow serve` ends on SIGTERM at any time: right after "listening", and at random moments of starting.

usage: stop_test.py WINNOW [--rounds 8] [--random 8] [--limit 20] [--seed 1]

--rounds  stops right after "listening"; the exit code must be 0
--random  stops at random moments; before "listening" the process may also die of the signal
--limit   seconds that the end may take

Prints a line that begins with "skipped: " and exits with 0 if the model (WINNOW_TEST_MODEL) is missing.
"""
import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time


class Start:
    """A server that is starting."""

    def __init__(self, tool, model):
        self.process = subprocess.Popen([tool, "serve", "-m", model, "--port", "0", "-t", "1"], stderr=subprocess.PIPE,
                                        text=True)
        self.is_listening = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            if line.startswith("{") and json.loads(line)["event"] == "listening":
                self.is_listening.set()

    def end(self, limit):
        """Stops the server and returns its exit code, or None if it hangs."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--random", type=int, default=8)
    parser.add_argument("--limit", type=float, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    model = os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    random_ = random.Random(arguments.seed)
    wrong, slowest = [], 0
    for i in range(arguments.rounds + arguments.random):
        start = Start(arguments.tool, model)
        if i < arguments.rounds:
            assert start.is_listening.wait(60), "the server does not listen"
        else:
            time.sleep(random_.uniform(0, 0.5))
        was_listening = start.is_listening.is_set()
        begin = time.monotonic()
        code = start.end(arguments.limit)
        slowest = max(slowest, time.monotonic() - begin)
        if code != 0 and (was_listening or code != -signal.SIGTERM):
            wrong.append(f"round {i}: " + ("it hangs" if code is None else f"exit code {code}"))
    print(f"{len(wrong)} of {arguments.rounds} + {arguments.random} ends went wrong, the slowest took {slowest:.2f} s")
    if wrong:
        sys.exit("failed: " + "; ".join(wrong))


if __name__ == "__main__":
    main()
