#!/usr/bin/env python3
"""Sends thousands of mixed requests to `winnow serve`: no leaks, every page returned, no 5xx except 503.

usage: soak.py WINNOW -m MODEL [--requests 2000] [--clients 8] [--seed 1] [-- FLAGS OF THE SERVER]

Sizes, policies, contexts, growing chats, tools, embeddings, the routes of Anthropic, ollama, llama-server and OpenAI's
responses, cancellations, broken bodies and slow readers are drawn from the seed. After each tenth of the requests it
waits until all pages are returned and prints the resident memory without them, which must not grow from 1,000 requests
on. Exits with 1 if a check failed.
"""
import argparse
import collections
import json
import random
import re
import socket
import sys
import tempfile
import threading
import time

from server_process import Server

MOST_GROWTH = 8 << 20
WORDS = "the a hat cat moor hound fog night letter baronet footprints sir London train dog stone path light".split()


def text(random_, n_words):
    return " ".join(random_.choice(WORDS) for _ in range(n_words))


def tool(name, **properties):
    return {"name": name, "description": "d", "parameters": {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}


TOOLS = [tool("weather", city={"enum": ["Oslo", "Rome"]}), tool("dice", sides={"type": "integer", "minimum": 2, "maximum": 20})]
FUNCTIONS = [{"type": "function", "function": function} for function in TOOLS]
# A template with tools, whatever the model's own has; given as the server's --chat-template-file.
TEMPLATE = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one as <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content or "" }}{% for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def other_request(random_, contexts):
    """Returns the (path, body) of a request other than a plain chat."""
    user = [{"role": "user", "content": text(random_, random_.randint(1, 60))}]
    draw = random_.randrange(8)
    if draw == 0:
        turns = user + [{"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}]},
            {"role": "tool", "tool_call_id": "c", "content": "rain"}] * random_.randint(0, 1)
        return "/v1/chat/completions", {"messages": turns, "tools": FUNCTIONS, "max_tokens": 60,
                                        "tool_choice": random_.choice(["auto", "required", "none"]),
                                        "parallel_tool_calls": random_.random() < 0.5, "stream": random_.random() < 0.5}
    if draw == 1:
        return "/v1/messages", {"max_tokens": 30, "messages": user, "stream": random_.random() < 0.5, "tools": [
            {"name": one["name"], "input_schema": one["parameters"]} for one in TOOLS], "tool_choice": {"type": "any"}}
    if draw == 2:
        return "/v1/responses", {"input": text(random_, 30), "max_output_tokens": 20, "stream": random_.random() < 0.5}
    if draw == 3:
        return "/api/chat", {"messages": user, "stream": random_.random() < 0.5, "options": {"num_predict": 20}}
    if draw == 4:
        return "/completion", {"prompt": text(random_, random_.randint(1, 200)), "n_predict": 20, "n_probs": 3}
    if draw == 5:
        # A beginning that other requests share, followed by a few turns.
        system = [{"role": "system", "content": contexts[random_.randrange(2)]}]
        turns = [{"role": role, "content": text(random_, 5)} for role in ["user", "assistant"] * random_.randint(0, 3)]
        return "/v1/chat/completions", {"messages": system + turns + user, "max_tokens": 12}
    inputs = [text(random_, random_.randint(1, 200)) for _ in range(random_.randint(1, 12))]
    if draw == 6:
        return "/v1/embeddings", {"input": inputs, "encoding_format": random_.choice(["float", "base64"])}
    return "/api/embed", {"input": inputs}


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
    """Sends bytes and returns the result of `after`, which is called with the socket."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=120) as connection:
        connection.sendall(payload)
        return after(connection)


def packed(body, path="/v1/chat/completions"):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return (b"POST " + path.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
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
    """Returns (kind, status); the status is 0 if the client left."""
    if random_.random() < 0.4:
        path, body = other_request(random_, contexts)
        draw = random_.random()
        if draw < 0.1:
            wait = random_.random() * 0.3
            raw_request(server, packed(body, path), lambda connection: time.sleep(wait))
            return path + " left", 0
        if draw < 0.2:
            data = json.dumps(body).encode()
            at = random_.randrange(len(data))
            return path + " bad", raw_request(server, packed(data[:at] + b"\xff" + data[at:], path), status_line)
        return path, raw_request(server, packed(body, path), status_line)
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
    """Returns the allocator's bytes that are "used" or "free"."""
    return int(float(re.search(f'winnow_heap_bytes{{kind="{kind}"}} (\\S+)', server.get("/metrics"))[1]))


def idle_memory(server, seconds=30):
    """Returns (resident bytes without KV pages, an error or None) once no request is in progress."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        kv = server.get("/v1/kv")
        if kv["bytes_in_use"] == kv["bytes_contexts"] and not kv["requests"]:
            time.sleep(2)  # the last connections end, and free memory is given back
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

    template = tempfile.NamedTemporaryFile("w", suffix=".jinja")
    template.write(TEMPLATE)
    template.flush()
    server = Server(arguments.tool, "-m", arguments.model, "--chat-template-file", template.name, "--kv-limit", "256MiB", "--kv-contexts", "16MiB", "--queue", "4",
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
                if status >= 500 and status != 503 or (
                        (kind == "whole" or kind.startswith("/") and " " not in kind) and status not in (200, 503)):
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
        print(f"{kind:24} {status or '-':>4} {n:6}")
    # After a third of the requests everything has been used once.
    grown = max(rows[7:]) - max(rows[1:4])
    print(f"the highest of the last three tenths is {grown / 2**20:+.1f} MiB above that of the second to fourth")
    if grown > MOST_GROWTH and arguments.requests >= 1000:
        problems.append("the resident memory grows")
    if server.stop() != 0:
        problems.append("the server did not end well")
    print("held" if not problems else "DID NOT HOLD: " + "; ".join(sorted(set(problems))[:10]))
    raise SystemExit(bool(problems))


if __name__ == "__main__":
    main()
