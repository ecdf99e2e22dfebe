"""Compressed contexts: kept entries, answers, files and plots."""

import gc
import json
import subprocess

import numpy as np
import pytest

import winnow

QUESTIONS = ["What is the best thing to eat in Ferring?", "When do the boats leave?"]


def test_what_is_kept(llm, text):
    full = llm.compress(text, "full")
    context = llm.compress(text, "snapkv", budget="20%")
    assert context.n_tokens == full.n_tokens == len(context.tokens)
    assert context.kept.shape == (30, 3) and context.kept.dtype == np.int32
    assert (full.kept == full.n_tokens).all()
    statistics = context.statistics
    assert context.kept.sum() == statistics["entries_kept"] == round(0.2 * statistics["entries_full"])
    assert statistics["bytes_kept"] < statistics["bytes_full"] and statistics["method"] == "snapkv"
    json.dumps(statistics)
    for layer, head in ((0, 0), (29, 2)):
        positions = context.positions(layer, head)
        assert len(positions) == context.kept[layer, head] and (np.diff(positions) > 0).all()
        assert positions[-1] == context.n_tokens - 1
        for kept, all_of_them in (
            (context.keys(layer, head), full.keys(layer, head)),
            (context.values(layer, head), full.values(layer, head)),
        ):
            assert kept.shape == (len(positions), 64) and kept.dtype == np.float32
            # Eviction does not change the entries that it keeps.
            np.testing.assert_array_equal(kept, all_of_them[positions])
    for layer, head in ((30, 0), (0, 3), (-1, 0)):
        with pytest.raises(winnow.InvalidArgument):
            context.positions(layer, head)
        with pytest.raises(winnow.InvalidArgument):
            context.keys(layer, head)


def test_arrays_outlive_everything(model_path, text):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2)
    context = llm.compress(text, "snapkv", budget=64)
    arrays = [context.keys(3, 1), context.positions(3, 1), context.kept]
    copies = [array.copy() for array in arrays]
    del llm, context
    gc.collect()
    np.ones(1 << 20).sum()  # takes memory that was freed
    for array, copy in zip(arrays, copies):
        np.testing.assert_array_equal(array, copy)


def test_a_loss_is_a_budget(short_llm, text):
    context = short_llm.compress(text, budget="kl=0.5")
    promise = context.statistics["promise"]
    assert promise["expected"] <= promise["asked"] == 0.5
    assert promise["tried"][-1] == (promise["budget"], pytest.approx(promise["tried"][-1][1]))
    assert context.statistics["entries_kept"] < context.statistics["entries_full"]
    with pytest.raises(winnow.InvalidArgument, match="allow more"):
        short_llm.compress(text, budget="kl=0.0001")


def test_questions_leave_it_as_it_is(llm, text):
    context = llm.compress(text, budget="30%")  # auto
    kept = context.kept
    answers = context.ask(QUESTIONS, max_tokens=24)
    assert len(answers) == 2 and "smoked eel" in answers[0]
    assert context.ask(QUESTIONS[1], max_tokens=24) == answers[1]
    assert (context.kept == kept).all()
    stopped = context.ask(QUESTIONS[0], max_tokens=24, stop=" eel")
    assert answers[0].startswith(stopped + " eel")
    with pytest.raises(winnow.InvalidArgument, match="needs a question"):
        context.ask()
    assert "auto" in repr(context)


def test_a_context_that_knows_its_question(llm, text):
    context = llm.compress(text, "snapkv", budget="20%", question=QUESTIONS[0])
    assert "smoked eel" in context.ask(max_tokens=24)
    with pytest.raises(winnow.InvalidArgument, match="without one"):
        context.ask(QUESTIONS[0])


def test_a_question_in_sight_weighs(llm, text):
    for question, method in ((None, "auto-fast"), (QUESTIONS[0], "auto-fast:question=last")):
        context = llm.compress(text, "auto-fast", budget="20%", question=question)
        assert context.statistics["method"] == method


@pytest.mark.parametrize("chat", [True, False])
def test_files(short_llm, text, tmp_path, chat):
    context = short_llm.compress(text, "snapkv", budget="50%", chat=chat)
    context.save(tmp_path / "context")
    loaded = short_llm.load_context(tmp_path / "context")
    assert (loaded.kept == context.kept).all() and loaded.tokens == context.tokens
    assert loaded.ask(QUESTIONS[0], max_tokens=16) == context.ask(QUESTIONS[0], max_tokens=16)
    (tmp_path / "context").write_bytes((tmp_path / "context").read_bytes()[:-7])
    with pytest.raises(winnow.BadFile):
        short_llm.load_context(tmp_path / "context")


def test_the_tool_says_the_same(llm, text, tmp_path, tool):
    (tmp_path / "text").write_text(text)
    command = [tool, "run", "-m", llm.model_path, "-f", tmp_path / "text", "-q", QUESTIONS[0], "-t", "2"]
    command += ["--temp", "0", "-n", "24", "--kv-evict", "snapkv", "--kv-budget", "30%", "--json", "-"]
    command += ["--kv-positions", tmp_path / "positions"]
    report = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)
    context = llm.compress(text, "snapkv", budget="30%")
    assert context.ask(QUESTIONS[0], max_tokens=24) == report["text"]
    positions = json.loads((tmp_path / "positions").read_text())["positions"]
    kept = context.positions(7, 1).tolist()
    assert positions[7][1][: len(kept)] == kept


def test_wrong_contexts_are_refused(llm, text):
    with pytest.raises(winnow.InvalidArgument, match="how much to keep"):
        llm.compress(text, "snapkv")
    with pytest.raises(winnow.NotFound):
        llm.compress(text, "snapkvv", budget="20%")
    with pytest.raises(winnow.InvalidArgument, match="system"):
        llm.compress(text, "snapkv", budget="20%", chat=False, system="Be brief.")
    with pytest.raises(winnow.ContextFull):
        llm.compress(text * 8, "snapkv", budget="20%")


def test_the_map_is_drawn(llm, text):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    context = llm.compress(text, "streaming-llm", budget="20%")
    ax = context.plot()
    shares = ax.images[0].get_array()
    assert shares.shape == (90, 256) and shares.min() == 0 and shares.max() == 1
    assert abs(shares.mean() - 0.2) < 0.01
    assert "streaming-llm" in ax.get_title()
    matplotlib.pyplot.close(ax.figure)
