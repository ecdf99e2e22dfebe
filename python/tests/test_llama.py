"""Loading, tokens, completions and states, in llama-cpp-python's terms."""

import dataclasses
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import winnow
from winnow.methods import budget_text

PROMPT = "The capital of France is"


def test_errors_are_pythons_own(model_path, tmp_path):
    with pytest.raises(winnow.NotFound, match="cannot open|no such|not found|there is no"):
        winnow.Llama(tmp_path / "none.gguf")
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(winnow.BadFile):
        winnow.Llama(tmp_path / "bad.gguf")
    with pytest.raises(ValueError, match="snapkv"):
        winnow.Llama(model_path, kv_evict="snapkvv", kv_budget="20%")
    with pytest.raises(winnow.InvalidArgument, match="how much to keep"):
        winnow.Llama(model_path, kv_evict="snapkv")
    with pytest.raises(winnow.InvalidArgument, match="no effect"):
        winnow.Llama(model_path, kv_evict="full", kv_budget="20%")
    for budget in (0.0, 1.5, True, "lots"):
        with pytest.raises(winnow.InvalidArgument):
            winnow.Llama(model_path, kv_budget=budget)
    for error in (winnow.InvalidArgument, winnow.NotFound, winnow.BadFile, winnow.ContextFull):
        assert issubclass(error, winnow.Error) and issubclass(error, ValueError)
    assert issubclass(winnow.InternalError, RuntimeError) and issubclass(winnow.OutOfMemory, MemoryError)


def test_tokens_there_and_back(llm):
    text = "Grüße, 世界 <|im_start|>!"
    assert llm.detokenize(llm.tokenize(text, add_bos=False)) == text.encode()
    assert llm.tokenize(text.encode(), add_bos=False) == llm.tokenize(text, add_bos=False)
    special = llm.tokenize("<|im_start|>", add_bos=False, special=True)
    assert len(special) == 1
    assert llm.detokenize(special) == b""
    assert llm.detokenize(special, special=True) == b"<|im_start|>"
    with pytest.raises(winnow.InvalidArgument):
        llm.tokenize(b"\xff\xfe")
    assert llm.n_ctx() == 2048 and llm.n_vocab() == 49152 and llm.n_embd() == 576
    assert len(llm.info["layers"]) == 30 and llm.info["layers"][0]["n_kv_head"] == 3


def test_a_completion(llm):
    answer = llm(PROMPT, max_tokens=6, temperature=0, echo=True)
    assert answer["object"] == "text_completion" and answer["model"] == llm.model_path
    (choice,) = answer["choices"]
    assert choice["text"].startswith(PROMPT + " Paris.")
    assert choice["finish_reason"] == "length" and choice["logprobs"] is None
    n_prompt = len(llm.tokenize(PROMPT))
    assert answer["usage"] == {"prompt_tokens": n_prompt, "completion_tokens": 6, "total_tokens": n_prompt + 6}
    by_tokens = llm(llm.tokenize(PROMPT, special=True), max_tokens=6, temperature=0, echo=True)
    assert by_tokens["choices"][0]["text"] == choice["text"]


def test_a_stream_is_the_whole_in_pieces(llm):
    whole = llm(PROMPT, max_tokens=8, temperature=0)["choices"][0]
    chunks = list(llm(PROMPT, max_tokens=8, temperature=0, stream=True))
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 8 + ["length"]
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_stop_texts_end_an_answer(llm):
    whole = llm(PROMPT, max_tokens=8, temperature=0)["choices"][0]["text"]
    for stop in (".", [".", "zzz"]):
        choice = llm(PROMPT, max_tokens=8, temperature=0, stop=stop)["choices"][0]
        assert choice["text"] == whole[: whole.index(".")] and choice["finish_reason"] == "stop"
    with pytest.raises(winnow.InvalidArgument):
        llm(PROMPT, stop="")


def test_log_probabilities(llm):
    choice = llm(PROMPT, max_tokens=3, temperature=0, logprobs=4)["choices"][0]
    logprobs = choice["logprobs"]
    assert "".join(logprobs["tokens"]) == choice["text"]
    assert logprobs["text_offset"] == [0, len(logprobs["tokens"][0]), len("".join(logprobs["tokens"][:2]))]
    for token, logprob, top in zip(logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"]):
        assert len(top) == 4 and logprob <= 0
        assert top[token] == logprob == max(top.values())  # greedy


def test_log_probabilities_of_a_prompt(whole_path):
    llm = winnow.Llama(whole_path, n_ctx=256, n_threads=2, prefill_weights="float", verbose=False)
    answer = llm(PROMPT, max_tokens=3, temperature=0, logprobs=2)["choices"][0]
    whole = PROMPT + answer["text"]
    echoed = llm(whole, max_tokens=1, temperature=0, logprobs=2, echo=True)["choices"][0]
    logprobs = echoed["logprobs"]
    assert {len(values) for values in logprobs.values()} == {len(llm.tokenize(whole, special=True)) + 1}
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["token_logprobs"][-4:-1] == pytest.approx(answer["logprobs"]["token_logprobs"], abs=0.15)
    assert logprobs["tokens"][-4:-1] == answer["logprobs"]["tokens"]
    assert "".join(logprobs["tokens"]) == echoed["text"]
    offsets = logprobs["text_offset"]
    assert [echoed["text"][a:b] for a, b in zip(offsets, offsets[1:])] == logprobs["tokens"][:-1]
    assert llm(PROMPT, max_tokens=3, temperature=0)["choices"][0]["text"] == answer["text"]
    first, *_ = llm(whole, max_tokens=1, temperature=0, logprobs=2, echo=True, stream=True)
    assert first["choices"][0]["text"] == whole
    assert first["choices"][0]["logprobs"]["tokens"] == logprobs["tokens"][:-1]


def test_seeds_and_grammars(llm):
    def sample(seed):
        return llm(PROMPT, max_tokens=12, temperature=1.5, seed=seed)["choices"][0]["text"]

    assert sample(1) == sample(1)
    assert len({sample(seed) for seed in range(4)}) > 1
    choice = llm(PROMPT, max_tokens=8, grammar='root ::= " Rome" | " Oslo"')["choices"][0]
    assert choice["text"] in (" Rome", " Oslo") and choice["finish_reason"] == "stop"
    with pytest.raises(winnow.InvalidArgument):
        llm(PROMPT, grammar="root ::= (")
    with pytest.raises(winnow.InvalidArgument, match="temperature"):
        llm(PROMPT, temperature=-1)


def test_samplers(llm):
    def first(**options):
        return llm(PROMPT, max_tokens=1, **options)["choices"][0]["text"]

    likeliest = first(temperature=0)
    [token] = llm.tokenize(likeliest, add_bos=False)
    assert first(temperature=0, logit_bias={token: -100}) != likeliest
    assert first(temperature=5, logit_bias={token: 100}, samplers=["temperature"], seed=1) == likeliest
    # Each of these settings leaves one token.
    for options in ({"typical_p": 0.0}, {"top_n_sigma": 0.001}, {"top_k": 1}, {"samplers": ["top_k"], "top_k": 1}):
        assert len({first(temperature=3, seed=seed, **options) for seed in range(6)}) == 1, options
    assert len({first(temperature=3, seed=seed, mirostat_mode=2) for seed in range(6)}) > 1
    with pytest.raises(TypeError, match="did you mean 'typical_p'"):
        first(typicalp=0.5)
    with pytest.raises(winnow.InvalidArgument, match="top-k"):
        first(top_k=1, samplers=["temperature"])  # top_k has no effect
    with pytest.raises(winnow.InvalidArgument, match="4294967296"):
        first(seed=2**32)


def test_sampling_fields_are_the_engines():
    options = winnow._core.SamplingOptions()
    for field in dataclasses.fields(winnow.Sampling):
        default = getattr(options, field.name)
        if field.default is not None:
            assert list(default) == list(field.default) if isinstance(default, list) else default == pytest.approx(field.default)


def test_a_prompt_that_goes_on_is_not_read_again(llm, text):
    llm(text, max_tokens=4, temperature=0)
    assert llm.statistics["prompt_tokens"] > 500
    n_read = llm.statistics["prompt_tokens"]
    tokens = llm.tokenize(text, special=True)
    more = tokens + llm.tokenize(" The", add_bos=False)
    llm.reset()
    llm.eval(tokens)
    state = llm.save_state()
    assert state.n_tokens == len(tokens)
    first = llm(more, max_tokens=6, temperature=0)["choices"][0]["text"]
    assert llm.statistics["prompt_tokens"] == n_read + 1
    assert llm(PROMPT, max_tokens=6, temperature=0)["choices"][0]["text"].startswith(" Paris")
    llm.load_state(state)
    assert llm(more, max_tokens=6, temperature=0)["choices"][0]["text"] == first


def test_states_in_files(llm, text, tmp_path):
    llm.eval(llm.tokenize(text, special=True))
    llm.save_state().save(tmp_path / "state")
    first = llm(text, max_tokens=6, temperature=0)["choices"][0]["text"]
    llm.reset()
    llm.load_state(tmp_path / "state")
    assert llm(text, max_tokens=6, temperature=0)["choices"][0]["text"] == first
    with pytest.raises(winnow.Error):
        llm.load_state(tmp_path / "none")


def test_a_budget_is_kept(whole_path, text):
    llm = winnow.Llama(whole_path, n_ctx=2048, n_threads=2, kv_evict="snapkv", kv_budget=0.25)
    tokens = llm.tokenize(text, special=True)
    llm.eval(tokens)
    statistics = llm.statistics
    assert statistics["method"] == "snapkv" and statistics["budget"] == "25%"
    assert statistics["entries_full"] == 90 * len(tokens)
    assert abs(statistics["entries_kept"] - statistics["entries_full"] / 4) <= 1
    # The state is a compressed prompt: tokens that follow it are kept whole.
    state = llm.save_state()
    more = tokens + llm.tokenize(" The key is in", add_bos=False)
    llm.load_state(state)
    llm(more, max_tokens=2, temperature=0)
    assert llm.statistics["entries_kept"] == statistics["entries_kept"] + 90 * (len(more) - len(tokens) + 1)
    # Without the state every prompt is cut for itself.
    llm(more, max_tokens=2, temperature=0)
    assert llm.statistics["entries_kept"] < statistics["entries_kept"] + 90 * 5


def test_the_context_has_an_end(llm, text):
    with pytest.raises(winnow.ContextFull):
        llm(text * 4)
    assert llm(PROMPT, max_tokens=2, temperature=0)["choices"][0]["text"].startswith(" Paris")
    with pytest.raises(winnow.InvalidArgument):
        llm([], max_tokens=2)
    with pytest.raises(winnow.InvalidArgument):
        llm([10**6], max_tokens=2)


def test_other_threads_run_while_it_computes(llm, text):
    count = 0
    is_done = False

    def work():
        nonlocal count
        while not is_done:
            count += 1
            time.sleep(0.001)

    thread = threading.Thread(target=work)
    thread.start()
    tokens = llm.tokenize(text, special=True)
    before = count
    llm.eval(tokens)
    counted = count - before
    is_done = True
    thread.join()
    assert counted > 10


def test_an_interrupt_ends_a_prefill_and_loses_nothing(llm, text):
    llm.eval(llm.tokenize(PROMPT, special=True))
    tokens = llm.tokenize(text, special=True)
    timer = threading.Timer(0.05, lambda: signal.raise_signal(signal.SIGINT))
    before = llm.save_state()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(200):  # until the signal comes
            llm.load_state(before)
            llm.eval(tokens)
    timer.join()
    llm.load_state(before)
    assert llm.n_tokens == before.n_tokens
    assert llm(PROMPT, max_tokens=2, temperature=0)["choices"][0]["text"].startswith(" Paris")


def test_progress_that_raises_ends_a_prefill(llm, text):
    session = llm._engine.open(None, None, 2048)
    calls = []

    def stop(done, total):
        calls.append((done, total))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        session.prefill(llm.tokenize(text), stop)
    assert len(calls) == 1 and 0 < calls[0][0] <= calls[0][1]
    assert session.n_tokens == 0


def test_budgets_may_be_numpys(short_llm, text):
    for budget, form in ((np.int64(64), "64"), (64, "64"), (np.float32(0.2), "20%"), (0.2, "20%"), (np.float64(1 / 8), "12.5%")):
        assert budget_text(budget) == form
    for wrong in (True, np.bool_(True), np.float32(1.5), 0.0, b"20%", [64]):
        with pytest.raises(winnow.InvalidArgument):
            budget_text(wrong)
    assert short_llm.compress(text, "snapkv", budget=np.int64(64)).statistics["budget"] == "64"


def test_wrong_types_are_said(llm):
    chat = [{"role": "user", "content": "Hi"}]
    for call, words in (
        (lambda: llm(["a", "b"]), "one text or a list of tokens"),
        (lambda: llm(97), "one text or a list of tokens"),
        (lambda: llm([10**12]), "token 1000000000000 is outside the vocabulary"),
        (lambda: llm.eval(["a"]), "one text or a list of tokens"),
        (lambda: next(llm.generate([0.5])), "one text or a list of tokens"),
        (lambda: llm(PROMPT, logprobs=-1), "logprobs is -1: give 0 to"),
        (lambda: llm(PROMPT, max_tokens=1.5), "max_tokens is a whole number, not 1.5"),
        (lambda: llm.create_chat_completion(chat, logprobs=True, top_logprobs=-1), "top_logprobs is -1"),
        (lambda: winnow.Llama(llm.model_path, n_ctx=1e3), "n_ctx is a whole number, not 1000.0"),
        (lambda: llm.tokenize(97), "a text is a str or bytes, not 97"),
        (lambda: llm.tokenizer().encode(None), "a text is a str or bytes, not None"),
    ):
        with pytest.raises(winnow.InvalidArgument, match=words):
            call()
    tokens = llm.tokenize(PROMPT)
    assert llm.tokenize(bytearray(PROMPT.encode())) == tokens
    answers = [llm(given, max_tokens=2, temperature=0)["choices"][0]["text"] for given in (tokens, np.array(tokens))]
    assert answers[0] == answers[1]


def test_methods_are_listed():
    table = {row["name"]: row for row in winnow.methods()}
    assert table["snapkv"]["scorer"] == "snapkv" and table["full"]["summary"]


def test_it_ends_quietly(model_path):
    code = f"import winnow; llm = winnow.Llama({model_path!r}, n_ctx=256); print(llm('a', max_tokens=1)['object'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "text_completion\n", "")
