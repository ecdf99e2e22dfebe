#!/usr/bin/env python3
"""Measures a growing chat: the time to the first token at each turn, and how much of the prompt was read again.

usage: turns.py WINNOW -m MODEL [-t THREADS] [-f FILE] [--system 3000] [--turns 12] [--answer 40] [--rounds 3] [--without-exact]
                [--server NAME=URL ...]

The system message has --system tokens of FILE. One run measures the full cache, an evicted one that continues (kv.reuse
continue), an evicted one that is compressed as if read at once (exact), and any other OpenAI-compatible servers that
are already running.
"""
import argparse
import os
import pathlib
import statistics

from server_process import Server, stream_chat

QUESTIONS = ["Who is Dr. Mortimer?", "Where does it happen?", "What is the weather like?", "Who tells the story?"]


def converse(url, system, arguments, kv, round_):
    """Returns for each turn (seconds to the first token, tokens of the prompt, cached ones among them)."""
    # The process id makes chats differ between runs, since a running server may know those of an earlier run.
    messages = [{"role": "system", "content": f"Copy {os.getpid()}-{round_}. " + system}]
    turns = []
    for turn in range(arguments.turns):
        messages.append({"role": "user", "content": QUESTIONS[turn % len(QUESTIONS)]})
        body = {"messages": messages, "max_tokens": arguments.answer, "temperature": 0}
        answer = stream_chat(url, {**body, "kv": kv} if kv else body)
        cached = (answer.usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        turns.append((answer.first_s, answer.usage["prompt_tokens"], cached))
        messages.append({"role": "assistant", "content": answer.text})
    return turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-t", "--threads", help="of winnow; as it chooses itself")
    parser.add_argument("-f", "--file",
                        default=str(pathlib.Path(__file__).parents[2] / "tests/data/hound-of-the-baskervilles.txt"))
    parser.add_argument("--system", type=int, default=3000)
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--answer", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--without-exact", action="store_true", help="it reads everything at every turn")
    parser.add_argument("--server", action="append", default=[])
    arguments = parser.parse_args()

    server = Server(arguments.tool, "-m", arguments.model, *(["-t", arguments.threads] if arguments.threads else []))
    url = f"http://127.0.0.1:{server.port}"
    system = server.beginning_of(arguments.file, arguments.system)
    cut = {"evict": "snapkv", "budget": "20%"}
    servers = [("winnow, full", url, {"evict": "full"}), ("winnow, 20 %", url, cut)]
    if not arguments.without_exact:
        servers.append(("winnow, 20 %, exact", url, {**cut, "reuse": "exact"}))
    servers += [(*other.split("=", 1), None) for other in arguments.server]
    rounds = {name: [] for name, _, _ in servers}
    for round_ in range(arguments.rounds):
        for name, address, kv in servers:
            rounds[name].append(converse(address, system, arguments, kv, round_))
    last = arguments.turns - 1
    print(f"| a chat behind {arguments.system} tokens | turn 1, ms | turn 2, ms | turn {last + 1}, ms | share of turn 1 | "
          "read at the last turn |")
    print("|---|---:|---:|---:|---:|---:|")
    for name, of in rounds.items():
        first, second, end = (statistics.median(turns[i][0] * 1e3 for turns in of) for i in (0, 1, last))
        _, n, cached = of[-1][last]
        print(f"| {name} | {first:.0f} | {second:.0f} | {end:.0f} | {100 * end / first:.1f} % | {n - cached} of {n} |")
    kept = server.get("/v1/kv")["bytes_contexts"]
    print(f"\nwinnow keeps {kept / 2**20:.0f} MiB of all these chats")
    server.stop()


if __name__ == "__main__":
    main()
