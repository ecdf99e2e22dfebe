"""Caches of states: what they keep, whom they give it to, and in threads."""

import sys
import threading

import pytest

import winnow

PROMPT = "The capital of France is"


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_caches(model_path, text, tmp_path, kind):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, verbose=False)
    cache = winnow.LlamaCache() if kind == "memory" else winnow.LlamaDiskCache(tmp_path / "cache")
    llm.set_cache(cache)
    first = llm(text, max_tokens=4, temperature=0)["choices"][0]["text"]
    tokens = llm.tokenize(text, special=True)
    assert tokens in cache and cache.cache_size > 0 and [1, 2, 3] not in cache
    llm(PROMPT, max_tokens=2)
    llm.reset()
    assert llm(text, max_tokens=4, temperature=0)["choices"][0]["text"] == first
    read = []
    feed = llm._feed
    llm._feed = lambda session, given: (read.append(len(given)), feed(session, given))
    llm.reset()
    llm(text, max_tokens=4, temperature=0)
    llm.reset()
    llm(tokens + llm.tokenize(" The", add_bos=False), max_tokens=2, temperature=0)
    assert read == [1]  # only the last token of the second prompt is read
    llm.set_cache(None)
    llm.reset()
    llm(text, max_tokens=1)
    assert read == [1, len(tokens)]


def test_caches_have_bounds(model_path, text, tmp_path):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, verbose=False)
    for cache in (winnow.LlamaRAMCache(1 << 20), winnow.LlamaDiskCache(tmp_path / "cache", 1 << 20)):
        llm.set_cache(cache)
        llm(text, max_tokens=1)
        assert cache.cache_size <= 1 << 20


def test_a_cut_context_comes_back_for_its_own_prompt_alone(model_path, text):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, kv_evict="snapkv", kv_budget=0.25, verbose=False)
    llm.set_cache(winnow.LlamaCache())
    read = []
    feed = llm._feed
    llm._feed = lambda session, given: (read.append(len(given)), feed(session, given))
    tokens = llm.tokenize(text, special=True)
    first = llm(tokens, max_tokens=4, temperature=0)["choices"][0]["text"]
    assert llm(tokens, max_tokens=4, temperature=0)["choices"][0]["text"] == first
    llm(tokens + tokens[:1], max_tokens=1)
    assert read == [len(tokens), len(tokens) + 1]


def cache_of(kind, folder):
    return winnow.LlamaCache() if kind == "memory" else winnow.LlamaDiskCache(folder)


def watch_reading(llm):
    """Returns a list that receives the number of tokens of every later prefill."""
    read = []
    feed = llm._feed
    llm._feed = lambda session, given: (read.append(len(given)), feed(session, given))
    return read


@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_a_cache_tells_settings_apart(model_path, text, tmp_path, kind):
    cache = cache_of(kind, tmp_path)
    prompt = text[:1400]
    cut = dict(kv_evict="snapkv", kv_budget=20)
    chunked = {**cut, "prefill_chunk": 200}
    many = [{}, cut, chunked, dict(n_ctx=1024), dict(type_k="q4_0"), dict(rope_freq_base=2e4), dict(kv_budget="kl=0.5")]
    models = [winnow.Llama(model_path, n_threads=2, verbose=False, **{"n_ctx": 2048, **options}) for options in many]
    reads = [watch_reading(llm) for llm in models]
    alone = []
    for llm in models:
        llm(prompt, max_tokens=1, temperature=0)
        alone.append((llm.n_ctx(), llm.statistics["method"], llm.statistics["budget"], llm.statistics["bytes_kept"]))
        llm.set_cache(cache)
        llm.reset()
    for _ in range(2):
        for llm, own in zip(models, alone):
            llm(prompt, max_tokens=1, temperature=0)
            statistics = llm.statistics
            assert (llm.n_ctx(), statistics["method"], statistics["budget"], statistics["bytes_kept"]) == own
            llm.reset()
    # Each has read the prompt without the cache and once with it: what it stored came back to it.
    assert [len(read) for read in reads] == [2] * len(models)


def test_a_cut_with_the_question_in_sight_is_for_chats_alone(model_path, text):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, kv_budget=40, verbose=False)
    llm.set_cache(winnow.LlamaCache())
    read = watch_reading(llm)
    tokens = llm.tokenize(text, special=True)
    for is_question_aware in (True, False, True, False):
        llm._read(tokens, question_aware=is_question_aware)
    assert read == [len(tokens)] * 2


def test_a_cache_of_ones_own_may_confuse_settings(model_path, text):
    class ByTokens(dict):
        def __getitem__(self, tokens):
            return super().__getitem__(tuple(tokens))

        def __setitem__(self, tokens, state):
            super().__setitem__(tuple(tokens), state)

    cache = ByTokens()
    for options in (dict(kv_evict="snapkv", kv_budget=20), {}, dict(n_ctx=1024)):
        llm = winnow.Llama(model_path, n_threads=2, verbose=False, **{"n_ctx": 2048, **options})
        llm.set_cache(cache)
        llm(text, max_tokens=1)
        assert llm.statistics["method"] == options.get("kv_evict", "full") and llm.n_ctx() == options.get("n_ctx", 2048)


@pytest.mark.parametrize("damage", ["truncated", "missing", "older", "tokens"])
def test_a_damaged_file_of_a_cache_is_as_good_as_none(model_path, text, tmp_path, damage):
    llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, verbose=False)
    llm.set_cache(winnow.LlamaDiskCache(tmp_path))
    read = watch_reading(llm)
    first = llm(text, max_tokens=1, temperature=0)["choices"][0]["text"]
    whole = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path, data in whole.items():
        if damage == "tokens":
            if path.suffix == ".json":
                path.write_bytes(data[:10])
        elif path.suffix == ".session":
            if damage == "missing":
                path.unlink()
            else:
                path.write_bytes(data[: len(data) // 2] if damage == "truncated" else data[:8] + b"\0" + data[9:])
    for n_reads in (2, 2):  # the second time the files are whole again
        llm.reset()
        assert llm(text, max_tokens=1, temperature=0)["choices"][0]["text"] == first
        assert len(read) == n_reads
    assert set(tmp_path.iterdir()) == set(whole)
    # A damaged prefix is removed, though the prompt is stored under its own tokens.
    damaged = min(tmp_path.glob("*.json"), key=lambda path: len(path.read_bytes())).with_suffix(".session")
    damaged.write_bytes(b"")
    llm.reset()
    tokens = llm.tokenize(text, special=True)
    llm(tokens + tokens[:1], max_tokens=1)
    assert read[2:] == [len(tokens) + 1] and not damaged.exists()


def in_threads(work):
    """Calls work(0) to work(3) in four threads that change places often, and returns their errors."""
    errors = []

    def run(number):
        try:
            work(number)
        except Exception as error:
            errors.append(repr(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    return errors


@pytest.mark.parametrize("capacity", [1 << 20, 2 << 30])
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_threads_share_a_cache(model_path, tmp_path, kind, capacity):
    llm = winnow.Llama(model_path, n_ctx=512, n_threads=1, verbose=False)
    prompts = [f"Number {i}: the house by the river" for i in range(5)]
    answers = [llm(prompt, max_tokens=3, temperature=0)["choices"][0]["text"] for prompt in prompts]
    cache = cache_of(kind, tmp_path)
    cache.capacity_bytes = capacity
    llm.set_cache(cache)

    def complete(first):
        for i in range(10):
            n = (first + i) % len(prompts)
            assert llm(prompts[n], max_tokens=3, temperature=0)["choices"][0]["text"] == answers[n]

    assert in_threads(complete) == []


def test_threads_change_a_cache(short_llm):
    short_llm.eval([1, 2, 3])
    state = short_llm.save_state()
    cache = winnow.LlamaRAMCache(20 * state.llama_state_size)

    def store(number):
        for i in range(200):
            cache[[1, 2, 3, number, i]] = state
            assert [1, 2, 3, number, i] in cache or cache.cache_size <= cache.capacity_bytes

    assert in_threads(store) == []


def test_a_conversation_is_stored_under_its_own_tokens(model_path):
    llm = winnow.Llama(model_path, n_ctx=512, n_threads=1, verbose=False)
    other = llm._engine.open(None, None, 512)
    other.prefill([5, 6, 7])

    class Lock:
        """After every use, another thread's prompt is what was read last."""

        def __enter__(self):
            pass

        def __exit__(self, *_):
            llm._session = other.fork()

    class Cache(dict):
        def __getitem__(self, tokens):
            raise KeyError

        def __setitem__(self, tokens, state):
            super().__setitem__(tuple(tokens), state)

    llm._lock = Lock()
    llm.set_cache(Cache())
    llm(PROMPT, max_tokens=2, temperature=0)
    assert len(llm.cache) == 2
    assert all(tuple(state._session.tokens) == tokens for tokens, state in llm.cache.items())


# --- A suffix -------------------------------------------------------------------------------------------------------------
