#!/usr/bin/env python3
"""Compares the times to the first token when a document is read and when another server restores it from a saved
context.

usage: restore.py WINNOW -m MODEL [-f FILE] [--tokens 4000] [--rounds 3] [-- FLAGS OF THE SERVERS]

Two servers share a folder. The first reads a document (as kv.context); the second, which has never seen it, is asked
about the same document. Both the full cache and 5 % of its bytes are measured.
"""
import argparse
import os
import pathlib
import statistics
import sys
import tempfile
import time

from server_process import Server, stream_chat

WAYS = [("full", {"evict": "full"}), ("auto-fast, 5 % of the bytes", {"evict": "auto-fast", "budget": "5%bytes"}),
        ("auto, 5 % of the bytes", {"evict": "auto", "budget": "5%bytes"})]


def ask(server, document, kv):
    body = {"messages": [{"role": "user", "content": "Who is Dr. Mortimer?"}], "max_tokens": 1, "temperature": 0,
            "kv": {**kv, "context": document}}
    return stream_chat(f"http://127.0.0.1:{server.port}", body)


def saved_bytes(folder, n_files):
    """Waits for n_files files and returns the size of the newest."""
    for _ in range(3000):
        files = sorted(pathlib.Path(folder).glob("*.context"), key=os.path.getmtime)
        if len(files) >= n_files:
            return files[-1].stat().st_size
        time.sleep(0.02)
    raise SystemExit("the context is not saved")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file",
                        default=str(pathlib.Path(__file__).parents[2] / "tests/data/hound-of-the-baskervilles.txt"))
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, flags = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1:]
    with tempfile.TemporaryDirectory() as folder:
        first, second = (Server(arguments.tool, "-m", arguments.model, "--cache-dir", folder, *flags) for _ in range(2))
        text = first.beginning_of(arguments.file, arguments.tokens)
        print("| a document of " + f"{arguments.tokens:,} tokens | its cache, MiB | its file, MiB | read, ms | restored, ms | share |")
        print("|---|---:|---:|---:|---:|---:|")
        n_files = 0
        for name, kv in WAYS:
            rows = []
            for round_ in range(arguments.rounds):
                document = f"Copy {round_}. " + text  # new to every cache
                read = ask(first, document, kv)
                n_files += 1
                file_bytes = saved_bytes(folder, n_files)
                restored = ask(second, document, kv)
                if restored.usage["prompt_tokens_details"]["cached_tokens"] < arguments.tokens // 2:
                    raise SystemExit("it was read again: " + str(restored))
                context = [c for c in first.get("/v1/kv")["contexts"] if c["kind"] == "context"][-1]
                rows.append((context["bytes_in_pages"], file_bytes, read.first_s * 1e3, restored.first_s * 1e3))
            kept, file_bytes, read_ms, restored_ms = (statistics.median(column) for column in zip(*rows))
            print(f"| {name} | {kept / 2**20:.1f} | {file_bytes / 2**20:.1f} | {read_ms:.0f} | {restored_ms:.0f} | "
                  f"{100 * restored_ms / read_ms:.1f} % |", flush=True)
        for server in (first, second):
            server.stop()


if __name__ == "__main__":
    main()
