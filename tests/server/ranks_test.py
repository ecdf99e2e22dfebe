#!/usr/bin/env python3
"""Tests a server whose model two processes share: one process's answers, concurrent requests, contexts that are saved
and restored, shutdown, and the end of the server if one of the two dies.

usage: ranks_test.py WINNOW

Prints a line that begins with "skipped: " and exits with 0 if mpirun or the model (WINNOW_TEST_MODEL) is missing.
"""
import concurrent.futures
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench/server"
sys.path.insert(0, str(BENCH))
from server_process import Server  # noqa: E402

WORDS = "the hound of the moor walks at night and a letter comes from London with a stone path ".split()


def launcher(n_ranks):
    return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "odls_base_sigkill_timeout", "4",
            "--mca", "btl_vader_single_copy_mechanism", "none", "-np", str(n_ranks)]


def rank_process(server, rank):
    """Returns the id of the process that mpirun has started as this rank."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent == server.process.pid and f"OMPI_COMM_WORLD_RANK={rank}".encode() in (path / "environ").read_bytes().split(b"\0"):
                return int(path.name)
        except OSError:  # the process has ended
            pass
    raise AssertionError(f"there is no rank {rank}")


def ask(server, system, question, **fields):
    status, answer = server.post("/v1/chat/completions", {
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": question}],
        "temperature": 0, "max_tokens": 12, **fields})
    assert status == 200, answer
    usage = answer["usage"]
    return (answer["choices"][0]["message"]["content"], usage["prompt_tokens"], usage["completion_tokens"],
            usage["prompt_tokens_details"]["cached_tokens"])


def conversation(server):
    """Returns a server's answers to consecutive requests."""
    system = " ".join(WORDS * 12)
    said = [ask(server, system, "Who comes?"), ask(server, system, "Who walks?")]
    said.append(ask(server, system, "Who comes?", kv={"evict": "full"}))
    status, embedding = server.post("/v1/embeddings", {"input": "the hound of the moor"})
    assert status == 200, embedding
    return said + [embedding["data"][0]["embedding"]]


def at_once(server):
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        return list(pool.map(lambda i: ask(server, " ".join(WORDS[i % 5:] * 8), f"Who is number {i}?")[2], range(12)))


def main():
    tool, model = sys.argv[1], os.environ.get("WINNOW_TEST_MODEL")
    if not model:
        return print("skipped: WINNOW_TEST_MODEL names no model")
    if not shutil.which("mpirun"):
        return print("skipped: there is no mpirun")
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sessions:
        os.environ["OMPI_MCA_orte_tmpdir_base"] = sessions  # as in tests/cli/ranks_test.cc
        small = folder + "/small.gguf"
        subprocess.run([sys.executable, BENCH / "short_model.py", model, small, "--layers", "3"], check=True)
        flags = ["-m", small, "-t", "1", "--kv-evict", "snapkv", "--kv-budget", "50%", "--kv-min", "0", "--kv-limit", "256MiB"]
        alone = Server(tool, *flags)
        expected = conversation(alone)
        assert alone.stop() == 0

        cached = ["--cache-dir", folder + "/contexts"]
        shared = Server(tool, *flags, *cached, launcher=launcher(2))
        said = conversation(shared)
        assert said == expected, (said, expected)
        assert at_once(shared) == [12] * 12
        os.kill(rank_process(shared, 0), signal.SIGTERM)
        assert shared.process.wait(60) == 0, shared.events
        assert shared.events[-1]["event"] == "stopped", shared.events

        # Ranks restore the context, and a signal to the launcher ends the server.
        again = Server(tool, *flags, *cached, launcher=launcher(3))
        restored = ask(again, " ".join(WORDS * 12), "Who walks?")
        assert restored[:3] == expected[1][:3] and restored[3] > 100, (restored, expected[1])
        again.process.send_signal(signal.SIGTERM)
        again.process.wait(60)
        assert any(event["event"] == "stopped" for event in again.events), again.events

        # A client that waits for an answer is not left waiting.
        broken = Server(tool, *flags, launcher=launcher(2))
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(broken.post, "/v1/completions", {"prompt": " ".join(WORDS), "max_tokens": 100000})
            time.sleep(0.3)
            os.kill(rank_process(broken, 1), signal.SIGKILL)
            try:
                status = waiting.result(60)[0]
            except OSError:
                status = 0
        assert status != 200
        assert broken.process.wait(60) != 0


if __name__ == "__main__":
    main()
