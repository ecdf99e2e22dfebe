"""A `winnow serve` process for the scripts in this folder, with requests by the standard library."""
import http.client
import json
import os
import pathlib
import signal
import subprocess
import threading
import time
import typing
import urllib.parse


class Answer(typing.NamedTuple):
    first_s: float  # time to the first token
    all_s: float
    text: str
    usage: dict


def stream_chat(url, body):
    """Returns the answer of any OpenAI-compatible server to a chat, which is streamed."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=900)
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    start = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise RuntimeError(response.read().decode())
    first, text, usage = None, "", {}
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        chunk = json.loads(line[6:])
        part = chunk["choices"][0]["delta"].get("content") if chunk.get("choices") else None
        if part:
            first = first or time.perf_counter() - start
            text += part
        usage = chunk.get("usage") or usage
    connection.close()
    seconds = time.perf_counter() - start
    return Answer(first or seconds, seconds, text, usage)


class Server:
    def __init__(self, tool, *flags, launcher=(), log=None):
        self.process = subprocess.Popen([*launcher, tool, "serve", "--port", "0", *flags], stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")})
        self.port = None
        self.events = []
        self._ready = threading.Event()
        threading.Thread(target=self._read, args=(log,), daemon=True).start()
        if not self._ready.wait(300) or self.process.poll() is not None:
            raise RuntimeError("the server did not start: " + json.dumps(self.events))

    def _read(self, log):
        for line in self.process.stderr:
            if log:
                log.write(line)
            event = json.loads(line) if line.startswith("{") else {"event": "text", "message": line}
            if event["event"] not in ("request", "answer"):
                self.events.append(event)
            self.port = event.get("port", self.port)
            if event["event"] == "ready":
                self._ready.set()
        self._ready.set()

    def request(self, method, path, body=None, timeout=600):
        """Returns (status, JSON or text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        try:
            return response.status, json.loads(text)
        except json.JSONDecodeError:
            return response.status, text

    def get(self, path):
        return self.request("GET", path)[1]

    def post(self, path, body):
        return self.request("POST", path, body)

    def beginning_of(self, path, n_tokens):
        """Returns the first n_tokens tokens of a text file, repeated as often as needed, as text."""
        tokens = self.post("/tokenize", {"content": pathlib.Path(path).read_text()})[1]["tokens"]
        while len(tokens) < n_tokens:
            tokens += tokens
        return self.post("/detokenize", {"tokens": tokens[:n_tokens]})[1]["content"]

    def rss_bytes(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def kill(self):
        self.process.kill()
        self.process.wait()
