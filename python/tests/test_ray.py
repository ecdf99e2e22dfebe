"""Evaluations that lose an actor and servers that lose a replica, on a Ray cluster of three nodes on this machine.

Part of `make test-heavy` (tests/python/heavy_ray_test.py), since Ray is large and slow to start. Skipped without Ray.
"""

import importlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest

import winnow

METHODS = ["full", "streaming-llm", "snapkv"]
MATRIX = {"methods": METHODS, "budgets": ["20%", "50%"], "tasks": "fidelity", "lengths": [200], "limit": 4}
ROOT = pathlib.Path(__file__).parents[2]


def test_without_ray(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "winnow.ray", raising=False)
    with pytest.raises(winnow.MissingPackage, match=r"pip install 'ray\[serve\]>=2.60'"):
        importlib.import_module("winnow.ray")


def start_nodes(n):
    from ray.cluster_utils import Cluster

    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    for _ in range(n - 1):
        cluster.add_node(**small)
    return cluster


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    # The nodes' processes inherit this environment.
    os.environ["RAY_SERVE_SESSION_ID_HEADER_KEY"] = "X-Winnow-Context"
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    try:
        cluster = start_nodes(3)
    except Exception:  # a busy machine may exceed Ray's limit of 30 seconds once
        cluster = start_nodes(3)
    ray.init(address=cluster.address, log_to_driver=False)
    yield ray
    ray.shutdown()
    cluster.shutdown()


def means(frame):
    rows = frame if isinstance(frame, list) else frame.to_dict("records")
    return [(row["method"], row["budget"], row["part"], row["mean"], row["samples"]) for row in rows]


def answers(folder):
    """Returns the keys of all answers, one for every line."""
    lines = [json.loads(line) for path in folder.glob("answers-*.jsonl") for line in path.read_text().splitlines()]
    return sorted((line["id"], line["method"], line["budget"]) for line in lines)


def test_an_actor_that_is_killed_goes_on(cluster, model_path, tmp_path):
    import winnow.ray

    marker = tmp_path / "killed"

    def setup():
        """Registers a scorer that kills its process once, in the middle of the second sample of a shard."""
        samples = []

        @winnow.scorer("deadly")
        def deadly(layer):
            """keeps what came last"""
            if layer.layer == 20:
                samples.append(layer)
                if len(samples) == 2 and not marker.exists():
                    marker.write_text(str(len(answers(marker.parent / "run"))))
                    os.kill(os.getpid(), signal.SIGKILL)
            return [range(n) for n in layer.n_prefix]

    # With this size a batch is one sample.
    matrix = {**MATRIX, "methods": ["full", "streaming-llm", "deadly"], "budgets": ["20%"], "batch": 3}
    pool = {"out": tmp_path / "run", "actors": 2, "shards": 2, "setup": setup}
    frame = winnow.ray.evaluate(model_path, **matrix, **pool, verbose=False)
    assert 3 <= int(marker.read_text()) < 12  # finished answers were kept
    keys = answers(tmp_path / "run")
    assert len(keys) == 12 and len(set(keys)) == 12  # no answer is there twice
    setup()
    alone = winnow.evaluate(model_path, **matrix, n_threads=1, verbose=False)
    assert means(frame) == means(alone)


def test_either_finishes_what_the_other_began(cluster, model_path, tool, tmp_path):
    import winnow.ray

    command = [tool, "eval", "fidelity", "-m", model_path, "--methods", ",".join(METHODS), "--budgets", "20%,50%"]
    command += ["--lengths", "200", "--limit", "4", "-t", "1", "--out", str(tmp_path / "run")]
    subprocess.run([*command, "--shard", "3/8"], capture_output=True, check=True)
    first = (tmp_path / "run" / "answers-3-of-8.jsonl").read_text()
    frame = winnow.ray.evaluate(model_path, **MATRIX, out=tmp_path / "run", actors=2, verbose=False)
    files = sorted(path.name for path in (tmp_path / "run").glob("answers-*"))
    assert files == [f"answers-{i}-of-8.jsonl" for i in (1, 2, 3, 4)]  # it keeps eight shards, for four samples
    assert (tmp_path / "run" / "answers-3-of-8.jsonl").read_text() == first
    keys = answers(tmp_path / "run")
    assert len(keys) == len(set(keys)) == 4 * 5
    subprocess.run(command, capture_output=True, check=True)  # all answers are there already
    assert answers(tmp_path / "run") == keys
    assert means(frame) == means(winnow.read_results(tmp_path / "run"))


def test_what_goes_wrong_is_said(cluster, model_path, tmp_path):
    import winnow.ray

    def run(model=model_path, **changes):
        return winnow.ray.evaluate(model, **{**MATRIX, "out": tmp_path / "run", "verbose": False, **changes})

    for changes, error, words in (
        ({"actors": 4}, winnow.InvalidArgument, "CPUs for 3, but not for 4 actors of 1"),
        ({"actors": 0}, winnow.InvalidArgument, "actors is 0: give a whole number"),
        ({"shard": "1/2"}, winnow.InvalidArgument, "use shards"),
        ({"n_threads": 2}, winnow.InvalidArgument, "use cpus"),
        ({"depht": [1]}, TypeError, "depht"),
        ({"methods": ["snapkvv"], "actors": 1}, winnow.NotFound, "snapkv"),
        ({"model": str(tmp_path / "none.gguf"), "actors": 1}, winnow.Error, "none.gguf"),
    ):
        with pytest.raises(error, match=words):
            run(**changes)
    assert not (tmp_path / "run").exists()

    def setup():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(winnow.Error, match="an actor died 2 times"):
        run(actors=1, setup=setup, restarts=1)


def ask(port, context, document, question, **more):
    """Returns (replica, cached tokens, all tokens of the prompt), or the text of a stream."""
    body = {"messages": [{"role": "user", "content": question}], "max_tokens": 4, "temperature": 0,
            "kv": {"context": document, "evict": "snapkv", "budget": "50%"}, **more}
    headers = {"Content-Type": "application/json", "X-Winnow-Context": context}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        text = response.read().decode()
        if more.get("stream"):
            return text
        usage = json.loads(text)["usage"]
        return response.headers["X-Winnow-Replica"], usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def processes_with(argument):
    """Returns the ids of all running processes with this argument."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            pass  # the process has ended
    return found


def wait_until(condition, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it takes too long until " + what
        time.sleep(0.1)


def test_a_context_stays_with_its_replica(cluster, model_path, tool, tmp_path, text):
    from ray import serve

    import winnow.ray

    small = tmp_path / "small.gguf"
    made = [sys.executable, str(ROOT / "bench/server/short_model.py"), model_path, str(small), "--layers", "2"]
    subprocess.run(made, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    for wrong, words in (({}, "name the model"), ({"model": "x", "port": 1}, "belongs to the replica")):
        with pytest.raises(winnow.InvalidArgument, match=words):
            winnow.ray.application(wrong)
    handle = serve.run(winnow.ray.application({
        "model": str(small), "replicas": 2, "cpus": 1, "tool": tool, "cache_dir": str(tmp_path / "contexts"),
        "kv-limit": "256MiB", "ctx-size": 4096}))
    try:
        documents = {f"document {i}": f"{i} {text}" for i in range(6)}
        places = {}
        for context, document in documents.items():
            replica, cached, _ = ask(port, context, document, "Who?")
            again, cached_again, n_prompt = ask(port, context, document, "Where is it?")
            assert replica == again and cached == 0 and 300 < cached_again < n_prompt
            places[context] = (replica, cached_again)
        assert len({replica for replica, _ in places.values()}) == 2, places
        stream = ask(port, "document 0", documents["document 0"], "When?", stream=True)
        assert stream.endswith("data: [DONE]\n\n") and stream.count("data: ") > 4
        # A handle reaches the same context.
        body = {"messages": [{"role": "user", "content": "How?"}], "max_tokens": 4,
                "kv": {"context": documents["document 3"], "evict": "snapkv", "budget": "50%"}}
        answer = handle.options(session_id="document 3").post.remote("/v1/chat/completions", body).result()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] >= places["document 3"][1]
        with pytest.raises(Exception, match="winnow serve says 404"):
            handle.post.remote("/v1/nothing", {}).result()

        wait_until(lambda: len(list((tmp_path / "contexts").glob("*.context"))) == 6, "all contexts are saved")
        victim = places["document 0"][0]
        name, = (actor["name"] for actor in cluster.util.list_named_actors(all_namespaces=True) if victim in actor["name"])
        before = set(processes_with(str(small)))
        cluster.kill(cluster.get_actor(name, namespace="serve"), no_restart=True)
        # Other replicas load its contexts from the folder and read none again; the other contexts stay where they are.
        for context, (home, n_context) in places.items():
            replica, cached, _ = ask(port, context, documents[context], "Which one?")
            assert cached >= n_context, (context, cached, n_context)
            assert replica != victim and (home == victim or replica == home), (context, home, replica)
        # The replica's server does not outlive it.
        wait_until(lambda: not before <= set(processes_with(str(small))), "the killed replica's server has ended")
    finally:
        serve.shutdown()
    wait_until(lambda: not processes_with(str(small)), "all servers have ended")
