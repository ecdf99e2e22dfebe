#!/usr/bin/env python3
"""Thousands of mixed requests against `winnow serve`: no leak, every page returned, no 5xx but 503.

usage: soak.py WINNOW -m MODEL [--requests 2000] [--clients 8] [--seed 1] [-- FLAGS OF THE SERVER]

Sizes, policies, contexts, cancellations, broken bodies and slow readers are drawn from the seed. After each tenth of the
requests it waits until all pages are returned and prints the resident memory beside them. Exits with 1 where something did
not hold.
"""
import argparse
import collections
import json
import random
import re
import socket
import sys
import threading
import time

from server_process import Server

MOST_GROWTH = 8 << 20
WORDS = "the a hat cat moor hound fog night letter baronet footprints sir London train dog stone path light".split()


def text(random_, n_words):
    return " ".join(random_.choice(WORDS) for _ in range(n_words))


def body_of(random_, contexts):
    body = {"messages": [{"role": "user", "content": text(random_, random_.randint(1, 300))}],
            "max_tokens": random_.randint(1, 24), "seed": random_.randint(0, 1000), "stream": random_.random() < 0.5}
    if random_.random() < 0.2:
        body["n"] = random_.randint(1, 3)
    if random_.random() < 0.2:
        body["logprobs"], body["top_logprobs"] = True, 5
    if random_.random() < 0.1:
        body["response_format"] = {"type": "json_object"}
    if random_.random() < 0.5:
        body["kv"] = {"evict": random_.choice(["snapkv", "lava", "streaming-llm", "tova", "keydiff"]),
                      "budget": random_.choice(["50%", "30%", "64"])}
        if random_.random() < 0.5:
            body["kv"]["context"] = random_.choice(contexts)
        else:
            body["messages"][0]["content"] = text(random_, random_.randint(200, 900))
    return body


def raw_request(server, payload, after):
    """Sends bytes, lets `after` do something with the socket, returns the first line of the answer."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(payload)
        return after(connection)


def packed(body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Connection: close\r\nContent-Length: " + str(len(data)).encode() + b"\r\n\r\n" + data)


def status_line(connection):
    answer = b""
    while chunk := connection.recv(65536):
        answer += chunk
    return int(answer.split(b" ", 2)[1]) if answer else 0


def slow_status(connection):
    answer = b""
    while chunk := connection.recv(256):
        answer += chunk
        time.sleep(0.002)
    return int(answer.split(b" ", 2)[1]) if answer else 0


def one_request(server, random_, contexts):
    """(kind, status); status 0 where the client left."""
    body = body_of(random_, contexts)
    draw = random_.random()
    if draw < 0.12:
        wait = random_.random() * 0.5
        raw_request(server, packed({**body, "max_tokens": 500, "ignore_eos": True}), lambda connection: time.sleep(wait))
        return "cancelled", 0
    if draw < 0.2:
        data = json.dumps(body).encode()
        broken = random_.choice([data[:len(data) // 2], b"\xff" + data, b"[" * 500, data.replace(b"messages", b"massages"),
                                 b'{"messages": [{"role": "user", "content": 7}]}', b""])
        return "bad", raw_request(server, packed(broken), status_line)
    if draw < 0.24:
        raw_request(server, packed(body)[:random_.randint(1, 300)], lambda connection: time.sleep(0.01))
        return "half", 0
    if draw < 0.28:
        return "slow", raw_request(server, packed({**body, "stream": True}), slow_status)
    return "whole", raw_request(server, packed(body), status_line)


def heap_bytes(server, kind):
    """Of the allocator: "used" or "free"."""
    return int(float(re.search(f'winnow_heap_bytes{{kind="{kind}"}} (\\S+)', server.get("/metrics"))[1]))


def idle_memory(server, seconds=30):
    """(resident bytes without KV pages, what is wrong or None) once nothing is under way."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        kv = server.get("/v1/kv")
        if kv["bytes_in_use"] == kv["bytes_contexts"] and not kv["requests"]:
            time.sleep(0.3)  # the last connections end
            return server.rss_bytes() - server.get("/v1/kv")["bytes_resident"], None
        time.sleep(0.1)
    return server.rss_bytes() - kv["bytes_resident"], (
        f"pages are missing: {kv['bytes_in_use']} bytes in use, {kv['bytes_contexts']} in contexts")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    arguments, flags = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1:]

    server = Server(arguments.tool, "-m", arguments.model, "--kv-limit", "256MiB", "--kv-contexts", "16MiB", "--queue", "4",
                    "-c", "4096", *flags)
    random_ = random.Random(arguments.seed)
    contexts = [text(random_, 400 + 100 * i) for i in range(8)]
    seeds = [random_.random() for _ in range(arguments.requests)]
    outcomes = collections.Counter()
    problems = []
    lock = threading.Lock()
    rows = []
    start = time.time()

    def work(n_left):
        while True:
            with lock:
                if len(seeds) <= n_left:
                    return
                seed = seeds.pop()
            try:
                kind, status = one_request(server, random.Random(seed), contexts)
            except OSError as error:
                kind, status = "connection", 0
                problems.append(f"{type(error).__name__}: {error}")
            with lock:
                outcomes[(kind, status)] += 1
                if status >= 500 and status != 503 or (kind == "whole" and status not in (200, 503)):
                    problems.append(f"{kind}: {status}")

    for tenth in range(1, 11):
        n_left = arguments.requests * (10 - tenth) // 10
        threads = [threading.Thread(target=work, args=(n_left,)) for _ in range(arguments.clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        resident, problem = idle_memory(server)
        problems += [problem] if problem else []
        rows.append(resident)
        print(f"{arguments.requests - n_left:6} requests  {time.time() - start:7.1f} s  idle, without KV pages: "
              f"{resident / 2**20:7.1f} MiB, heap {heap_bytes(server, 'used') / 2**20:6.1f} used, "
              f"{heap_bytes(server, 'free') / 2**20:6.1f} free, {len(server.get('/v1/kv')['contexts'])} contexts", flush=True)
    for (kind, status), n in sorted(outcomes.items()):
        print(f"{kind:12} {status or '-':>4} {n:6}")
    # After a third of it everything has been used once.
    grown = max(rows[7:]) - max(rows[1:4])
    print(f"the highest of the last three tenths is {grown / 2**20:+.1f} MiB above that of the second to fourth")
    if grown > MOST_GROWTH:
        problems.append("the resident memory grows")
    if server.stop() != 0:
        problems.append("the server did not end well")
    print("held" if not problems else "DID NOT HOLD: " + "; ".join(sorted(set(problems))[:10]))
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
