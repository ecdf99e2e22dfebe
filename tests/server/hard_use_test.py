#!/usr/bin/env python3
"""Short runs of what bench/server does for hours: mixed requests, and kills while contexts are saved; heaps of threads.

usage: hard_use_test.py WINNOW

Prints a line that begins with "skipped: " and exits with 0 where the model (WINNOW_TEST_MODEL) is missing.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/server"
sys.path.insert(0, str(BENCH))

from server_process import Server  # noqa: E402


def n_heaps_of_threads(pid):
    """Of the C library, beside its first: they begin at multiples of 64 MiB."""
    n = 0
    with open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            addresses, rights, *rest = line.split()
            is_anonymous = len(rest) == 3  # no path
            n += is_anonymous and rights == "rw-p" and int(addresses.split("-")[0], 16) % (64 << 20) == 0
    return n


def check_heaps(tool, model):
    """Connections have threads, and not a heap for each."""
    server = Server(tool, "-m", model, "-t", "1")
    body = {"prompt": "the moor", "max_tokens": 20, "ignore_eos": True}
    clients = [threading.Thread(target=server.post, args=("/v1/completions", body)) for _ in range(12)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    n = n_heaps_of_threads(server.process.pid)
    server.kill()
    if n > 1:
        sys.exit(f"failed: {n} heaps beside the first, of 12 connections")


def main():
    model = os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    with tempfile.TemporaryDirectory() as folder:
        small = folder + "/small.gguf"
        subprocess.run([sys.executable, BENCH / "short_model.py", model, small], check=True)
        check_heaps(sys.argv[1], small)
        for script, *flags in (("soak.py", "--requests", "100", "--", "-t", "1"), ("kill_saves.py", "--rounds", "4")):
            command = [sys.executable, BENCH / script, sys.argv[1], "-m", small, *flags]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=200)
            print(ran.stdout[-3000:])
            if ran.returncode != 0:
                sys.exit(f"failed: {script} ended with {ran.returncode}\n{ran.stderr[-3000:]}")


if __name__ == "__main__":
    main()
