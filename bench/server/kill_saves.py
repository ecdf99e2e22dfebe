#!/usr/bin/env python3
"""kill -9 while contexts are saved: the restarted server has every context completely or not at all.

usage: kill_saves.py WINNOW -m MODEL [--rounds 50] [--seed 1]

Every round asks about new documents, kills the server at a random moment within its saves, starts it again on the same
folder, and compares the answers from restored contexts with those from before. Exits with 1 where one differs or a warning
tells of a damaged file.
"""
import argparse
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
        for round_ in range(arguments.rounds):
            server = Server(arguments.tool, *flags)
            problems += [event["message"] for event in server.events if event["event"] == "warning"]
            for document, before in said.items():
                answer, cached = ask(server, document)
                restored += cached > 0
                lost += cached == 0
                if answer != before:
                    problems.append(f"round {round_}: another answer ({'restored' if cached else 'read anew'})")
            said = {}
            documents = [text(random_, random_.randint(300, 900)) for _ in range(3)]

            def work():
                try:
                    for document in documents:
                        said[document] = ask(server, document)[0]
                except OSError:
                    pass  # the server is gone
            thread = threading.Thread(target=work)
            thread.start()
            # The saves come when the server has nothing else to do: right after the answers.
            while thread.is_alive() and not said:
                time.sleep(0.001)
            time.sleep(random_.random() * 0.6)
            server.kill()
            thread.join()
    print(f"{arguments.rounds} rounds: {restored} contexts restored, {lost} not saved in time")
    print("held" if not problems else "DID NOT HOLD: " + "; ".join(sorted(set(problems))[:10]))
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
