#!/usr/bin/env python3
"""What a long prompt costs an answer that is under way: the gaps between its tokens while the prompt is read.

usage: gaps.py WINNOW -m MODEL [--tokens 32768] [--method snapkv --budget 20%] [-- FLAGS OF THE SERVER]

One client streams an answer; after a while another sends a prompt of --tokens tokens. Prints the gaps before it came and
while it was read.
"""
import argparse
import http.client
import json
import random
import sys
import threading
import time

from server_process import Server


def stream(port, stamps, wants_more):
    """Notes when each piece of an answer comes, for as long as it is wanted."""
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--method", default="snapkv")
    parser.add_argument("--budget", default="20%")
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, flags = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1:]
    server = Server(arguments.tool, "-m", arguments.model, "-c", str(arguments.tokens + 8192), *flags)
    random_ = random.Random(1)
    prompt = [random_.randrange(100, 10000) for _ in range(arguments.tokens)]
    stamps, is_over = [], threading.Event()
    thread = threading.Thread(target=stream, args=(server.port, stamps, lambda: not is_over.is_set()))
    thread.start()
    time.sleep(3)
    start = time.perf_counter()
    status, answer = server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": 1, "kv": {"evict": arguments.method, "budget": arguments.budget}})
    end = time.perf_counter()
    is_over.set()
    thread.join()
    if status != 200:
        raise SystemExit(f"failed: {status}: {answer}")
    gaps = [(a, b - a) for a, b in zip(stamps, stamps[1:])]
    print("| gaps between tokens, ms | tokens | median | 95 % | 99 % | longest |")
    print("|---|---:|---:|---:|---:|---:|")
    row("alone", [gap for at, gap in gaps[1:] if at + gap < start])
    row(f"while {arguments.tokens:,} tokens are read", [gap for at, gap in gaps if at >= start and at + gap < end])
    print(f"\nthey were read in {end - start:.1f} s")
    server.stop()


if __name__ == "__main__":
    main()
