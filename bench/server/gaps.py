#!/usr/bin/env python3
"""Measures how a long prompt delays an answer in progress: the gaps between its tokens while the prompt is read.

usage: gaps.py WINNOW -m MODEL [--tokens 32768] [--method snapkv --budget 20%] [--saved] [-- FLAGS OF THE SERVER]

One client streams an answer; after a while another sends a prompt of --tokens tokens. Prints the gaps before the prompt
arrived and while it was read. With --saved the prompt is a context that another server has saved in a common folder
(with --method full its whole cache) and that is loaded from there; another context is then read and saved.
"""
import argparse
import http.client
import json
import pathlib
import random
import sys
import tempfile
import threading
import time

from server_process import Server

NOVEL = pathlib.Path(__file__).parents[2] / "tests/data/hound-of-the-baskervilles.txt"


def stream(port, stamps, wants_more):
    """Records when each piece of an answer arrives, while more are wanted."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=900)
    connection.request("POST", "/v1/completions", json.dumps({
        "prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "temperature": 0, "stream": True,
        "kv": {"evict": "full"}}), {"Content-Type": "application/json"})
    for line in connection.getresponse():
        if line.startswith(b"data: {"):
            stamps.append(time.perf_counter())
        if not wants_more():
            break
    connection.close()


def row(name, gaps):
    gaps = sorted(gap * 1e3 for gap in gaps)
    at = lambda part: gaps[min(len(gaps) - 1, int(part * len(gaps)))]  # noqa: E731
    print(f"| {name} | {len(gaps)} | {at(0.5):.1f} | {at(0.95):.1f} | {at(0.99):.1f} | {gaps[-1]:.1f} |")


class Stream:
    """An answer in progress, whose gaps are measured between two moments."""

    def __init__(self, port):
        self.stamps, self.is_over = [], threading.Event()
        self.thread = threading.Thread(target=stream, args=(port, self.stamps, lambda: not self.is_over.is_set()))
        self.thread.start()
        time.sleep(3)

    def gaps(self, start, end):
        return [b - a for a, b in zip(self.stamps[1:], self.stamps[2:]) if b >= start and a <= end]

    def stop(self):
        self.is_over.set()
        self.thread.join()


def ask(server, prompt, kv):
    status, answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, "kv": kv})
    if status != 200:
        raise SystemExit(f"failed: {status}: {answer}")
    return answer["usage"]


def measure_read(server, n_tokens, kv):
    """Returns [(name, gaps in seconds, seconds)] for a prompt that is read."""
    random_ = random.Random(1)
    prompt = [random_.randrange(100, 10000) for _ in range(n_tokens)]
    answer = Stream(server.port)
    start = time.perf_counter()
    ask(server, prompt, kv)
    end = time.perf_counter()
    answer.stop()
    return [("alone", answer.gaps(0, start - 0.5), 0),
            (f"while {n_tokens:,} tokens are read", answer.gaps(start, end), end - start)]


def wait_for_files(folder, n):
    for _ in range(6000):
        if len(list(pathlib.Path(folder).glob("*.context"))) >= n:
            return
        time.sleep(0.01)
    raise SystemExit("a context is not saved")


def measure_saved(tool, flags, server, n_tokens, kv, folder):
    """Returns [(name, gaps in seconds, seconds)] for a context that is loaded and one that is saved."""
    text = server.beginning_of(NOVEL, n_tokens)
    contexts = [f"Copy {i}. " + text for i in range(2)]
    other = Server(tool, *flags)
    ask(other, "?", {**kv, "context": contexts[0]})
    wait_for_files(folder, 1)
    other.kill()
    size = next(pathlib.Path(folder).glob("*.context")).stat().st_size
    answer = Stream(server.port)
    start = time.perf_counter()
    usage = ask(server, "?", {**kv, "context": contexts[0]})
    loaded = time.perf_counter()
    if usage["prompt_tokens_details"]["cached_tokens"] < n_tokens // 2:
        raise SystemExit(f"it was read again: {usage}")
    ask(server, "?", {**kv, "context": contexts[1]})
    wait_for_files(folder, 2)
    saved = time.perf_counter()
    answer.stop()
    return [("alone", answer.gaps(0, start - 0.5), 0),
            (f"while {size / 2**20:.0f} MiB are loaded", answer.gaps(start, loaded), loaded - start),
            ("while as much is read and saved", answer.gaps(loaded, saved), saved - loaded)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--method", default="snapkv")
    parser.add_argument("--budget", default="20%")
    parser.add_argument("--saved", action="store_true")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, flags = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1:]
    with tempfile.TemporaryDirectory() as folder:
        flags = ["-m", arguments.model, "-c", str(arguments.tokens + (1024 if arguments.saved else 8192)), *flags]
        flags += ["--cache-dir", folder] if arguments.saved else []
        server = Server(arguments.tool, *flags)
        kv = {"evict": arguments.method}
        if arguments.method != "full":
            kv["budget"] = arguments.budget
        if arguments.saved:
            rows = measure_saved(arguments.tool, flags, server, arguments.tokens, kv, folder)
        else:
            rows = measure_read(server, arguments.tokens, kv)
        server.stop()
    print("| gaps between tokens, ms | tokens | median | 95 % | 99 % | longest |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, gaps, _ in rows:
        row(name, gaps)
    print()
    for name, _, seconds in rows[1:]:
        print(f"{name}: {seconds:.2f} s")


if __name__ == "__main__":
    main()
