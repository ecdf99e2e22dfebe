#!/usr/bin/env python3
"""Measures clients that ask about one shared document: the tokens per second of all together, and the time to the first
token of a first and of a second question.

usage: shared_document.py WINNOW -m MODEL [-f FILE] [--tokens 4096] [--clients 8] [--answer 64] [--rounds 3]
                          [--server NAME=URL ...]

Compares the full cache with a budget of 10 % in one run, alternating, and any other OpenAI-compatible servers that are
already running (--server llama=http://127.0.0.1:8081), which get the document at the beginning of the message.
"""
import argparse
import pathlib
import statistics
import threading
import time

from server_process import Server, stream_chat

QUESTIONS = ["Who is Dr. Mortimer?", "Where does it happen?", "What is the weather like?", "Who tells the story?",
             "What is on the moor?", "Which animals are named?", "What time is it?", "Who is afraid?"]


def ask(url, question, document, n_tokens, kv):
    """Returns (seconds to the first token, seconds in all, tokens)."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": n_tokens, "temperature": 0,
            "ignore_eos": True}
    if kv:
        body["kv"] = {**kv, "context": document}
    else:
        body["messages"][0]["content"] = document + "\n\n" + question
    answer = stream_chat(url, body)
    return answer.first_s, answer.all_s, answer.usage["completion_tokens"]


def measure(url, document, arguments, kv, round_):
    document = f"Copy {round_}. " + document  # not in any cache yet
    cold = ask(url, QUESTIONS[0], document, 1, kv)[0]
    warm = statistics.median(ask(url, question, document, 1, kv)[0] for question in QUESTIONS[1:4])
    results = []
    start = time.perf_counter()
    threads = [threading.Thread(target=lambda q=QUESTIONS[i % 8]: results.append(
        ask(url, q, document, arguments.answer, kv))) for i in range(arguments.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - start
    return {"tokens_per_second": sum(r[2] for r in results) / seconds, "first_ms": cold * 1e3, "second_ms": warm * 1e3}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-f", "--file", default=str(pathlib.Path(__file__).parents[2] / "tests/data/hound-of-the-baskervilles.txt"))
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--answer", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--server", action="append", default=[])
    arguments = parser.parse_args()

    server = Server(arguments.tool, "-m", arguments.model, "--parallel", str(arguments.clients))
    url = f"http://127.0.0.1:{server.port}"
    document = server.beginning_of(arguments.file, arguments.tokens - 8)
    servers = [("winnow, full", url, {"evict": "full"}), ("winnow, 10 %", url, {"evict": "snapkv", "budget": "10%"})]
    servers += [(*other.split("=", 1), None) for other in arguments.server]
    rows = {name: [] for name, _, _ in servers}
    for round_ in range(arguments.rounds):
        for name, address, kv in servers:
            rows[name].append(measure(address, document, arguments, kv, round_))
    print(f"| {arguments.clients} clients, {arguments.tokens} tokens | tokens a second | ratio | first question, ms | second, ms | share |")
    print("|---|---:|---:|---:|---:|---:|")
    median = {name: {key: statistics.median(row[key] for row in of) for key in of[0]} for name, of in rows.items()}
    full = median["winnow, full"]["tokens_per_second"]
    for name, of in median.items():
        print(f"| {name} | {of['tokens_per_second']:.1f} | {of['tokens_per_second'] / full:.2f} | {of['first_ms']:.0f} | "
              f"{of['second_ms']:.0f} | {100 * of['second_ms'] / of['first_ms']:.1f} % |")
    server.stop()


if __name__ == "__main__":
    main()
