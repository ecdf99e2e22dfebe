"""Benchmarks from Python: the same figures as the tool's, Python scorers, and errors and interrupts that end a run."""

import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import winnow

METHODS = ["full", "snapkv", "streaming-llm"]
SMALL = {"lengths": [300], "limit": 1, "n_threads": 2, "verbose": False}
TOOL_COLUMNS = ["benchmark", "question", "by", "part", "method", "budget", "mean", "low", "high", "samples", "nll"]
TOOL_COLUMNS += ["top1", "perplexity_ratio", "kept_share", "bytes_kept", "bytes_full"]


@winnow.scorer("last-first")
def last_first(layer):
    """keeps what came last"""
    return [range(n) for n in layer.n_prefix]


def records(frame):
    return frame if isinstance(frame, list) else frame.to_dict("records")


def test_figures_are_the_tools(short_llm, tool, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", out=tmp_path / "mine", **SMALL)
    command = [tool, "eval", "fidelity", "-m", short_llm.model_path, "--methods", ",".join(METHODS), "--budgets", "20%"]
    command += ["--lengths", "300", "--limit", "1", "-t", "2", "--out", str(tmp_path / "tools")]
    subprocess.run(command, capture_output=True, check=True)
    subprocess.run([tool, "report", str(tmp_path / "tools"), "--out", str(tmp_path / "report")], capture_output=True, check=True)
    theirs = pandas.read_csv(tmp_path / "report" / "results.csv", keep_default_na=False)
    assert len(theirs) == len(frame) >= len(METHODS)
    for column in TOOL_COLUMNS:
        ours = frame[column].fillna("").astype(str).tolist()
        assert ours == theirs[column].astype(str).tolist(), column
    # Either continues a run in the other's folder.
    again = winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", out=tmp_path / "tools", **SMALL)
    assert again["mean"].tolist() == frame["mean"].tolist()
    assert winnow.read_results(tmp_path / "mine")["mean"].tolist() == frame["mean"].tolist()


def test_shards_make_a_whole(short_llm, tmp_path):
    whole = records(winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", **{**SMALL, "limit": 2}))
    for shard in ("2/2", "1/2"):
        options = {**SMALL, "limit": 2, "out": tmp_path / "run", "shard": shard}
        assert winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", **options) is None
    parts = records(winnow.read_results(tmp_path / "run"))
    assert [row["mean"] for row in parts] == [row["mean"] for row in whole]
    with pytest.raises(winnow.InvalidArgument, match="needs out"):
        winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", shard="1/2", **SMALL)
    with pytest.raises(winnow.InvalidArgument, match="i/n"):
        winnow.evaluate(short_llm, METHODS, ["20%"], "fidelity", shard="3/2", out=tmp_path / "other", **SMALL)


def test_a_scorer_in_python_is_compared(short_llm):
    frame = records(winnow.evaluate(short_llm, ["last-first", "streaming-llm"], [0.2], **{**SMALL, "limit": 3}))
    rows = {row["method"]: row for row in frame if row["by"] == "all"}
    assert set(rows) == {"last-first", "streaming-llm"} and rows["last-first"]["budget"] == "20%"
    assert rows["last-first"]["mean"] > rows["streaming-llm"]["mean"] > 0  # no sinks
    assert abs(rows["last-first"]["kept_share"] - 0.2) < 0.01
    assert rows["last-first"]["low"] <= rows["last-first"]["mean"] <= rows["last-first"]["high"]


def test_without_pandas(short_llm, monkeypatch, tmp_path):
    winnow.evaluate(short_llm, ["streaming-llm"], "20%", out=tmp_path / "run", **SMALL)
    frame = records(winnow.read_results(tmp_path / "run"))
    monkeypatch.setitem(sys.modules, "pandas", None)
    rows = winnow.read_results(tmp_path / "run")
    assert isinstance(rows, list) and len(rows) == len(frame)
    for row, other in zip(rows, frame):
        assert row["mean"] == other["mean"] and row["samples"] == other["samples"] and row["part"] == other["part"]


def test_what_raises_ends_it(llm):
    @winnow.scorer("raises")
    def raises(layer):
        raise ZeroDivisionError("in the scorer")

    with pytest.raises(ZeroDivisionError, match="in the scorer"):
        winnow.evaluate(llm, ["full", "raises"], ["20%"], **SMALL)
    for arguments, words in (
        ({"methods": ["snapkv"]}, "budget"),
        ({"methods": ["snapkvv"], "budgets": ["20%"]}, "snapkv"),
        ({"budgets": ["20%"], "tasks": "ruller"}, "ruler"),
        ({"budgets": ["20%"], "tasks": ["ruler", "ruler/vt"]}, "as a whole"),
        ({"budgets": ["20%"], "depths": [10]}, "no effect"),
        ({"budgets": [2.0]}, "share"),
    ):
        with pytest.raises(winnow.Error, match=words):
            winnow.evaluate(llm, **arguments, **SMALL)


def test_an_interrupt_ends_it_and_it_goes_on(llm, tmp_path):
    calls = []

    @winnow.scorer("interrupted")
    def interrupted(layer):
        calls.append(layer.layer)
        if len(calls) == 20:
            threading.Thread(target=signal.raise_signal, args=[signal.SIGINT]).start()
        return [range(n) for n in layer.n_prefix]

    with pytest.raises(KeyboardInterrupt):
        winnow.evaluate(llm, ["interrupted"], ["20%"], out=tmp_path / "run", lengths=[600], limit=2, n_threads=2)
    frame = records(
        winnow.evaluate(llm, ["interrupted"], ["20%"], out=tmp_path / "run", lengths=[600], limit=2, n_threads=2)
    )
    assert frame[0]["samples"] == 2 and frame[0]["failed"] == 0


def test_tasks_and_benchmarks(short_llm):
    names = {row["name"]: row["tasks"] for row in winnow.benchmarks()}
    assert "vt" in names["ruler"] and "fidelity" in names
    frame = records(winnow.evaluate(short_llm, ["streaming-llm"], ["50%"], "ruler/niah_single_1", **{**SMALL, "lengths": [512]}))
    assert {row["benchmark"] for row in frame} == {"ruler"} and frame[0]["measure"] == "score"
    # One value needs no list, and may be NumPy's.
    one = records(winnow.evaluate(short_llm, "streaming-llm", np.float32(0.5), "ruler/niah_single_1", **{**SMALL, "lengths": np.int64(512)}))
    assert [row["mean"] for row in one] == [row["mean"] for row in frame]
    with pytest.raises(winnow.InvalidArgument, match="a length is a whole number, not 0.5"):
        winnow.evaluate(short_llm, "streaming-llm", "50%", "ruler/niah_single_1", **{**SMALL, "lengths": 0.5})
