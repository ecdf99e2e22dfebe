#!/usr/bin/env python3
"""Kills servers with SIGKILL while contexts are saved: a restarted server has every context completely or not at all.

usage: kill_saves.py WINNOW -m MODEL [--rounds 50] [--seed 1]

Every round asks two servers with one folder about new documents (some of them both), kills one or both at a random
moment during their saves, restarts those, and compares the answers from restored contexts with those from before. Exits
with 1 if one differs or if a warning reports a damaged file.
"""
import argparse
import http.client
import random
import tempfile
import threading
import time

from server_process import Server
from soak import text


def ask(server, document):
    status, answer = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "What is it about?"}], "temperature": 0, "max_tokens": 6,
        "kv": {"context": document, "evict": "snapkv", "budget": "50%"}})
    if status != 200:
        raise RuntimeError(f"{status}: {answer}")
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random_ = random.Random(arguments.seed)
    restored = lost = 0
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        flags = ("-m", arguments.model, "--cache-dir", folder, "--kv-contexts", "256MiB", "-c", "4096")
        said = {}
        servers = [None, None]
        for round_ in range(arguments.rounds):
            for i in range(2):
                servers[i] = servers[i] or Server(arguments.tool, *flags)
            for document, before in said.items():
                answer, cached = ask(random_.choice(servers), document)
                restored += cached > 0
                lost += cached == 0
                if answer != before:
                    problems.append(f"round {round_}: another answer ({'restored' if cached else 'read anew'})")
            said = {}
            documents = [text(random_, random_.randint(300, 900)) for _ in range(3)]

            def work(server, documents):
                try:
                    for document in documents:
                        said[document] = ask(server, document)[0]
                except (OSError, http.client.HTTPException):
                    pass  # the server is gone
            # Both servers read and save the middle document.
            threads = [threading.Thread(target=work, args=(servers[0], documents[:2])),
                       threading.Thread(target=work, args=(servers[1], documents[1:]))]
            for thread in threads:
                thread.start()
            # A server saves when it is otherwise idle, right after the answers.
            while any(thread.is_alive() for thread in threads) and not said:
                time.sleep(0.001)
            time.sleep(random_.random() * 0.6)
            killed = random_.choice([[0], [1], [0, 1]])
            for i in killed:
                servers[i].kill()
            for thread in threads:
                thread.join()
            for i in range(2):
                problems += [event["message"] for event in servers[i].events if event["event"] == "warning"]
                servers[i].events.clear()
                if i in killed:
                    servers[i] = None
        for server in filter(None, servers):
            if server.stop() != 0:
                problems.append("a server did not end well")
    print(f"{arguments.rounds} rounds: {restored} contexts restored, {lost} not saved in time")
    print("held" if not problems else "DID NOT HOLD: " + "; ".join(sorted(set(problems))[:10]))
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
