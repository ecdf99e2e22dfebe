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
import time

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


def resident_heaps(pid):
    """Bytes of the C library's heaps that are in memory."""
    n, counts = 0, False
    with open(f"/proc/{pid}/smaps") as lines:
        for line in lines:
            fields = line.split()
            if "-" in fields[0]:
                at = int(fields[0].split("-")[0], 16)
                counts = fields[-1] == "[heap]" or len(fields) == 5 and at % (64 << 20) == 0
            elif counts and fields[0] == "Rss:":
                n += int(fields[1]) << 10
    return n


def at_once(server, n, path, body):
    clients = [threading.Thread(target=server.post, args=(path, body)) for _ in range(n)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def check_heaps(tool, model):
    """Connections have threads, and not a heap for each; what is free in heaps is given back when nobody is served."""
    server = Server(tool, "-m", model, "-t", "1")
    before = resident_heaps(server.process.pid)
    completion = {"prompt": "the moor", "max_tokens": 20, "ignore_eos": True}
    at_once(server, 12, "/v1/completions", completion)
    n = n_heaps_of_threads(server.process.pid)
    turns = [{"role": ("user", "assistant")[i % 2], "content": f"turn {i}"} for i in range(4001)]
    at_once(server, 4, "/apply-template", {"messages": turns})
    at_once(server, 1, "/v1/completions", completion)
    until = time.time() + 20
    while (grown := resident_heaps(server.process.pid) - before) > 1 << 20 and time.time() < until:
        time.sleep(0.2)
    server.kill()
    if n > 1:
        sys.exit(f"failed: {n} heaps beside the first, of 12 connections")
    if grown > 1 << 20:
        sys.exit(f"failed: heaps hold {grown} bytes more in memory than before, while nobody is served")


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
