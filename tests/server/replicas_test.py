#!/usr/bin/env python3
"""Tests three servers with haproxy or nginx in front (examples/replicas). A context stays with its server. If that is
killed under load, only its current answers fail, and another server takes over its contexts from the common folder. A
server that is stopped loses nothing.

usage: replicas_test.py WINNOW [haproxy|nginx]

Prints a line that begins with "skipped: " and exits with 0 if the proxy or the model (WINNOW_TEST_MODEL) is missing.
"""
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = ("one", "two", "three")
WORDS = "the a hat cat moor hound fog night letter baronet footprints sir London train dog stone path light".split()


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("it takes too long until " + what)
        time.sleep(0.02)


def get(port, path, headers=None):
    """Returns (status, headers); the status is 0 if nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path, headers=headers or {})
        response = connection.getresponse()
        response.read()
        return response.status, response.headers
    except (OSError, http.client.HTTPException):
        return 0, {}
    finally:
        connection.close()


class Answer(typing.NamedTuple):
    status: int  # 0: the connection broke
    server: str
    cached: int
    n_prompt: int
    start: float
    text: str


class Replicas:
    """The processes that start.sh starts."""

    def __init__(self, tool, model, folder, proxy):
        self.port, *ports = free_ports(4)
        environment = {**os.environ, "WINNOW": tool, "CACHE_DIR": str(folder), "OMP_WAIT_POLICY": "passive",
                       "PROXY": proxy, "PORT": str(self.port), **{f"PORT_{i + 1}": str(port) for i, port in enumerate(ports)}}
        self.ports = dict(zip(NAMES, ports))
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [ROOT / "examples/replicas/start.sh", "-m", model, "-t", "1", "-c", "4096", "--kv-limit", "256MiB",
             "--grace", "120"],  # other tests may run at the same time
            env=environment, stdout=subprocess.PIPE, stderr=self.log, text=True)
        lines = [self.process.stdout.readline() for _ in NAMES]
        self.processes = {name: int(line.split("process ")[1].split(",")[0]) for name, line in zip(NAMES, lines)}

    def is_there(self, name):
        return get(self.ports[name], "/health")[0] != 0

    def home(self, context):
        """Returns the server to which a context belongs at present, or None if the proxy has none for it."""
        status, headers = get(self.port, "/health", {"X-Winnow-Context": context})
        return headers["X-Winnow-Replica"] if status == 200 else None

    def ask(self, context, document, question, n_tokens=8):
        start = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps({
                "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": n_tokens,
                "ignore_eos": True, "kv": {"context": document, "evict": "snapkv", "budget": "50%"}}),
                {"Content-Type": "application/json", "X-Winnow-Context": context})
            response = connection.getresponse()
            text = response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return Answer(0, "", 0, 0, start, str(error))
        finally:
            connection.close()
        if response.status != 200:
            return Answer(response.status, "", 0, 0, start, text)
        usage = json.loads(text)["usage"]
        return Answer(200, response.headers["X-Winnow-Replica"], usage["prompt_tokens_details"]["cached_tokens"],
                      usage["prompt_tokens"], start, text)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def end(self):
        """Ends the processes that still run."""
        if self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()


class Load:
    """A client for each context that asks different questions again and again."""

    def __init__(self, replicas, documents):
        self.answers = {context: [] for context in documents}
        self.is_over = threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(replicas, *item), daemon=True) for item in documents.items()]
        for thread in self.threads:
            thread.start()

    def work(self, replicas, context, document):
        random_ = random.Random(context)
        while not self.is_over.is_set():
            question = " ".join(random_.choice(WORDS) for _ in range(4))
            self.answers[context].append(replicas.ask(context, document, question))

    def stop(self):
        self.is_over.set()
        for thread in self.threads:
            thread.join()


def contexts_of(replicas, n_each):
    """Returns {name: text} with n_each contexts for each server."""
    found = collections.defaultdict(list)
    for i in range(1000):
        server = replicas.home(f"document {i}")
        if server and len(found[server]) < n_each:
            found[server].append(f"document {i}")
        if sum(map(len, found.values())) == n_each * len(NAMES):
            break
    assert sorted(map(len, found.values())) == [n_each] * len(NAMES), found
    random_ = random.Random(1)
    return {name: name + " " + " ".join(random_.choice(WORDS) for _ in range(600))
            for names in found.values() for name in names}


def check_affinity(replicas, documents):
    """Returns {context: (server, tokens of the context)}."""
    places = {}
    for context, document in documents.items():
        first = replicas.ask(context, document, "Who")
        second = replicas.ask(context, document, "Where is it?")
        assert first.status == second.status == 200, (first, second)
        assert first.server == second.server, (first, second)
        assert first.cached == 0 and 500 < second.cached < second.n_prompt, (first, second)
        places[context] = (first.server, second.cached)
    return places


def check_kill(replicas, documents, places):
    victim = places[next(iter(documents))][0]
    load = Load(replicas, documents)
    time.sleep(1)
    os.kill(replicas.processes[victim], signal.SIGKILL)
    # Until its memory is freed, the killed server's socket still accepts requests, which then break off.
    wait_until(lambda: not replicas.is_there(victim), "a killed server is gone", 3)
    gone = time.monotonic()
    time.sleep(2.5)
    load.stop()
    n_failed = 0
    for context, answers in load.answers.items():
        home, n_context = places[context]
        assert len(answers) > 4, (context, answers)
        for answer in answers:
            if answer.status == 200:
                # The context was not read again, not even by a server that took it over.
                assert answer.cached >= n_context, (context, answer)
                assert answer.server == home or (home == victim and answer.server in NAMES), (context, answer)
            else:
                assert home == victim and answer.start < gone, (context, answer)
                n_failed += 1
        later = [answer.server for answer in answers if answer.status == 200 and answer.start > gone]
        assert later and (home != victim or victim not in later), (context, later)
    return victim, n_failed


def check_end(replicas, documents, places, killed):
    """On SIGTERM a server informs the proxy, accepts requests that still arrive, and finishes those in progress."""
    context = next(context for context, (home, _) in places.items() if home != killed)
    home, n_context = places[context]
    connection = http.client.HTTPConnection("127.0.0.1", replicas.port, timeout=60)
    connection.request("POST", "/v1/chat/completions", json.dumps({
        "messages": [{"role": "user", "content": "Tell"}], "max_tokens": 1000, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True}, "kv": {"evict": "full"}}),
        {"Content-Type": "application/json", "X-Winnow-Context": context})
    response = connection.getresponse()
    assert response.headers["X-Winnow-Replica"] == home
    response.readline()
    load = Load(replicas, {context: documents[context]})
    os.kill(replicas.processes[home], signal.SIGTERM)
    wait_until(lambda: get(replicas.ports[home], "/health")[0] == 503, "/health says that it ends")
    stream = response.read().decode()
    connection.close()
    assert stream.endswith("data: [DONE]\n\n") and '"completion_tokens":1000' in stream, stream[-500:]
    wait_until(lambda: not replicas.is_there(home), "it has ended")
    gone = time.monotonic()
    wait_until(lambda: any(answer.start > gone for answer in list(load.answers[context])), "another goes on")
    load.stop()
    answers = load.answers[context]
    assert all(answer.status == 200 and answer.cached >= n_context for answer in answers), answers
    assert answers[0].server == home and answers[-1].server not in (home, killed), answers


def main():
    proxy = sys.argv[2] if len(sys.argv) > 2 else "haproxy"
    model = os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    if not shutil.which(proxy, path=os.environ.get("PATH", "") + ":/usr/sbin"):
        return print(f"skipped: there is no {proxy}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        small = folder / "small.gguf"
        subprocess.run([sys.executable, ROOT / "bench/server/short_model.py", model, small, "--layers", "2"], check=True)
        replicas = Replicas(sys.argv[1], small, folder / "contexts", proxy)
        try:
            wait_until(lambda: all(get(port, "/health")[0] == 200 for port in replicas.ports.values()), "all are there")
            wait_until(lambda: {replicas.home(str(i)) for i in range(24)} == set(NAMES), "the proxy knows them")
            documents = contexts_of(replicas, 2)
            places = check_affinity(replicas, documents)
            wait_until(lambda: len(list((folder / "contexts").glob("*.context"))) >= len(documents), "all are saved")
            killed, n_failed = check_kill(replicas, documents, places)
            check_end(replicas, documents, places, killed)
            code = replicas.stop()
            assert code == 0, f"start.sh ended with {code}"
        except BaseException:
            replicas.end()
            replicas.log.seek(0)
            print(replicas.log.read()[-6000:])
            raise
    print(f"passed: behind {proxy} a context stays with its server, {n_failed} requests failed with the killed one")


if __name__ == "__main__":
    main()
