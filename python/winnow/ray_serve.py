"""A Ray Serve application of `winnow serve`: requests about the same context go to the same replica."""

from __future__ import annotations

import collections
import json
import logging
import shutil
import subprocess
import threading
import urllib.parse
from typing import Any, Dict, List, Mapping

from .errors import Error, InvalidArgument, NotFound

# A router of Ray 2.60, which finds the replica of a request by its session id's place on a ring of replicas.
_ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"

# Runs a command. If the standard input ends, its owner is gone, for whatever reason, and the command gets SIGTERM.
_UNTIL_INPUT_ENDS = """
exec 3<&0
"$@" </dev/null 3<&- & child=$!
{ read -r _ <&3; kill "$child"; } 2>/dev/null & watcher=$!
wait "$child"; status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""

# The server's own limits: running answers get 30 s to end, and 15 s later it ends without those that do not.
_SECONDS_TO_END = 50

# Headers of a connection, which are not passed on with a request or a response.
_CONNECTION_HEADERS = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}


class Replica:
    """A replica that runs `winnow serve` on a free port of the loopback address and passes all requests on to it.

    command: the tool and its flags.
    """

    def __init__(self, command: List[str]):
        tool = shutil.which(command[0])
        if tool is None:
            raise NotFound(f"this node has no '{command[0]}': install winnow there (make deb), or give its path as tool")
        self._client: Any = None
        self._port = 0
        self._is_ready = False
        self._last = collections.deque(maxlen=10)  # last lines of the log
        self._process = subprocess.Popen(
            ["sh", "-c", _UNTIL_INPUT_ENDS, "sh", tool, *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        is_known = threading.Event()
        threading.Thread(target=self._read_log, args=(is_known,), daemon=True).start()
        is_known.wait()
        if not self._is_ready:
            raise Error("winnow serve has ended: " + " ".join(self._last))

    def _read_log(self, is_known: threading.Event) -> None:
        log = logging.getLogger("ray.serve")
        try:
            for line in self._process.stderr:
                line = line.rstrip("\n")
                self._last.append(line)
                log.info(line)
                event = json.loads(line) if line.startswith("{") else {}
                self._port = event.get("port", self._port)
                if event.get("event") == "ready":
                    self._is_ready = True
                    is_known.set()
        finally:
            is_known.set()

    async def _request(self, method: str, path: str, headers: Mapping[str, str], body: Any) -> Any:
        """Sends a request to the server and returns the aiohttp.ClientResponse, whose body is still unread."""
        import aiohttp

        if self._client is None:  # a session belongs to the event loop in which it is made
            # Only the client's own headers are sent, and the body is passed on in the encoding that it asked for.
            self._client = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            )
        return await self._client.request(
            method, f"http://127.0.0.1:{self._port}{path}", headers=headers, data=body, allow_redirects=False
        )

    async def check_health(self) -> None:
        """Raises Error if the server has ended or is unhealthy. Ray Serve replaces the replica after three failures."""
        if self._process.poll() is not None:
            raise Error(f"winnow serve has ended with exit code {self._process.returncode}: " + " ".join(self._last))
        async with await self._request("GET", "/health", {}, None) as answer:
            if answer.status != 200:
                raise Error(f"winnow serve answered /health with {answer.status}")

    async def __call__(self, request: Any) -> Any:
        """Passes on an HTTP request (starlette's), and streams the response as it comes."""
        import aiohttp
        from ray import serve
        from starlette.responses import JSONResponse, StreamingResponse

        path = urllib.parse.quote(request.scope["path"].removeprefix(request.scope.get("root_path", "")) or "/")
        if request.url.query:
            path += "?" + request.url.query
        skipped = _CONNECTION_HEADERS | {"host"}
        headers = {name: value for name, value in request.headers.items() if name not in skipped}
        # The body is passed on in pieces, since the server limits its size.
        has_body = "content-length" in request.headers or "transfer-encoding" in request.headers
        who = {"X-Winnow-Replica": serve.get_replica_context().replica_id.unique_id}
        try:
            answer = await self._request(request.method, path, headers, request.stream() if has_body else None)
        except aiohttp.ClientError as error:
            # The server may have received the request, so only the client can decide whether to repeat it.
            message = {"error": {"code": 502, "message": f"the server did not answer: {error}", "type": "server_error"}}
            return JSONResponse(message, 502, who)

        async def pieces() -> Any:
            try:
                async for piece in answer.content.iter_any():
                    yield piece
            finally:  # a client that disconnects ends its answer
                answer.close()

        kept = {name: value for name, value in answer.headers.items() if name.lower() not in _CONNECTION_HEADERS}
        return StreamingResponse(pieces(), answer.status, {**kept, **who})

    async def post(self, path: str, body: Mapping[str, Any]) -> Dict[str, Any]:
        """Posts a JSON body and returns the response, or raises Error for a status from 400 on.

        It is for handles: handle.options(session_id=context).post.remote("/v1/chat/completions", {...}).
        """
        headers = {"Content-Type": "application/json"}
        async with await self._request("POST", path, headers, json.dumps(body).encode()) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise Error(f"winnow serve says {answer.status}: {text}")
        return json.loads(text)

    def __del__(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None and process.poll() is None:
            process.stdin.close()
            try:
                process.wait(_SECONDS_TO_END)  # the server saves its contexts
            except subprocess.TimeoutExpired:
                process.kill()


def _flags(options: Mapping[str, Any]) -> List[str]:
    flags = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            flags.append(flag)
        else:
            flags += [part for one in (value if isinstance(value, (list, tuple)) else [value]) for part in (flag, str(one))]
    return flags


def application(arguments: Mapping[str, Any]) -> Any:
    """Returns a Ray Serve application of `winnow serve` replicas, each with the contexts of its part of the requests.

    serve.run(application({"model": "/models/model.gguf", "replicas": 3, "cache-dir": "/shared/contexts"})), or

        serve run winnow.ray:application model=/models/model.gguf replicas=3 cache-dir=/shared/contexts

    model: a path that is the same on every node. replicas: their number, or "auto". cpus: CPUs and threads of each (1).
    ongoing: most requests that a replica has at a time (32); others go to the next on the ring. tool: the path of
    `winnow`. Everything else is a flag of `winnow serve` by its long name: True for one without a value, a list for one
    that is repeated.

    A request names its context in a header, or with a handle in its session_id. The header is the one that
    RAY_SERVE_SESSION_ID_HEADER_KEY names where the cluster is started (X-Session-Id by default).
    """
    from ray import serve

    options = dict(arguments)
    if "model" not in options:
        raise InvalidArgument("name the model: {'model': PATH}")
    for name in ("host", "port", "threads"):
        if name in options:
            raise InvalidArgument(f"'{name}' belongs to the replica: " + ("use cpus" if name == "threads" else "leave it out"))
    tool, replicas = str(options.pop("tool", "winnow")), options.pop("replicas", 1)
    cpus, ongoing = int(options.pop("cpus", 1)), int(options.pop("ongoing", 32))
    command = [tool, "serve", "--host", "127.0.0.1", "--port", "0", "--threads", str(cpus), *_flags(options)]
    return serve.deployment(
        Replica,
        name="winnow",
        num_replicas=replicas if replicas == "auto" else int(replicas),
        ray_actor_options={"num_cpus": cpus},
        max_ongoing_requests=ongoing,
        max_constructor_retry_count=3,
        graceful_shutdown_timeout_s=_SECONDS_TO_END + 10,
        request_router_config={"request_router_class": _ROUTER},
    ).bind(command)
