"""llama-cpp-python's interface besides completions: arguments, logits processors, tokens one by one."""

import contextlib
import pathlib
import pickle
import struct
import warnings

import numpy as np
import pytest

import winnow

PROMPT = "The capital of France is"

# All arguments of llama-cpp-python 0.3.36's Llama, with values for a machine with a GPU.
EVERYTHING = dict(
    n_gpu_layers=-1, split_mode=1, main_gpu=0, tensor_split=[0.5, 0.5], vocab_only=False, use_mmap=True, use_mlock=True,
    kv_overrides=None, seed=-1, n_ctx=512, n_batch=512, n_ubatch=256, n_threads=2, n_threads_batch=2, rope_scaling_type=-1,
    pooling_type=-1, attention_type=-1, rope_freq_base=0.0, rope_freq_scale=0.0, yarn_ext_factor=-1.0, yarn_attn_factor=1.0,
    yarn_beta_fast=32.0, yarn_beta_slow=1.0, yarn_orig_ctx=0, logits_all=True, embedding=False, offload_kqv=True,
    flash_attn=True, op_offload=None, swa_full=None, no_perf=False, last_n_tokens_size=32, lora_base=None, lora_scale=1.0,
    lora_path=None, numa=False, chat_format=None, chat_handler=None, draft_model=None, tokenizer=None, type_k=1, type_v=8,
    spm_infill=False, verbose=False,
)  # fmt: skip


def test_every_argument_is_known(whole_path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        llm = winnow.Llama(whole_path, **EVERYTHING)
    assert len(caught) == 1 and caught[0].filename == __file__
    message = str(caught[0].message)
    for name in ("n_gpu_layers", "tensor_split", "use_mlock", "n_ubatch", "n_threads_batch", "flash_attn"):
        assert name in message
    # The warning names neither arguments that have an effect nor those at their defaults.
    for name in ("logits_all", "offload_kqv", "split_mode", "numa", "lora_scale"):
        assert name not in message
    assert "no effect" in message and llm.last_n_tokens_size == 32
    assert llm(PROMPT, max_tokens=2, temperature=0)["choices"][0]["text"].startswith(" Paris")


def test_defaults_warn_of_nothing(model_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        defaults = dict(n_gpu_layers=0, flash_attn=False, logits_all=False, offload_kqv=True, n_ubatch=512)
        llm = winnow.Llama(model_path, n_ctx=256, **defaults)
        llm(PROMPT, max_tokens=1, tfs_z=1.0)
    with pytest.warns(UserWarning, match="tfs_z has no effect"):
        llm(PROMPT, max_tokens=1, tfs_z=0.5)


def test_layers_on_a_gpu(model_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in (-1, 0, 99):  # without a GPU, "auto" is the processor
            llm = winnow.Llama(model_path, n_ctx=256, device="auto", n_gpu_layers=n)
    assert pickle.loads(pickle.dumps(llm))(PROMPT, max_tokens=1, temperature=0)
    with pytest.raises(winnow.InvalidArgument, match="0 or more"):
        winnow.Llama(model_path, n_ctx=256, device="auto", n_gpu_layers=-2)


def test_what_would_be_missed_is_refused(model_path):
    for name in ("lora_path", "draft_model", "chat_handler"):
        with pytest.raises(winnow.Unsupported, match=name):
            winnow.Llama(model_path, **{name: "something"})
    with pytest.raises(winnow.Unsupported, match="attention_type"):
        winnow.Llama(model_path, attention_type=1)
    with pytest.raises(TypeError, match="n_gpu_layer"):
        winnow.Llama(model_path, n_gpu_layer=1)


def test_types_of_entries_by_number(model_path, text):
    def bytes_kept(**options):
        llm = winnow.Llama(model_path, n_ctx=2048, n_threads=2, verbose=False, **options)
        llm.eval(llm.tokenize(text))
        return llm.statistics["bytes_kept"]

    assert bytes_kept(type_k=8, type_v=8) == bytes_kept(type_k="q8_0", type_v="q8_0") < bytes_kept()
    assert bytes_kept(type_k=None, type_v=1) == bytes_kept()
    with pytest.raises(winnow.InvalidArgument, match=r"ggml's type 20: give 0 \(f32\)"):
        bytes_kept(type_k=20)


def test_rope_and_metadata_instead_of_the_files(model_path):
    def logprob(**options):
        llm = winnow.Llama(model_path, n_ctx=256, verbose=False, **options)
        return llm(PROMPT, max_tokens=1, temperature=0, logprobs=1)["choices"][0]["logprobs"]["token_logprobs"][0]

    plain = logprob()
    base = float(winnow.Llama(model_path, n_ctx=8).metadata["llama.rope.freq_base"])
    assert logprob(rope_freq_base=base) == plain == logprob(rope_freq_scale=1.0)
    assert len({plain, logprob(rope_freq_base=base / 8), logprob(rope_freq_scale=0.5)}) == 3
    assert logprob(rope_freq_scale=0.5) == logprob(kv_overrides={"llama.rope.scaling.factor": 2.0})
    assert logprob(rope_freq_scale=0.5, rope_scaling_type=0) == plain  # no scaling
    assert logprob(rope_freq_scale=0.25, rope_scaling_type=2) != logprob(rope_freq_scale=0.25)  # YaRN
    with pytest.raises(winnow.InvalidArgument, match="rope_scaling_type"):
        logprob(rope_scaling_type=9)
    with pytest.raises(winnow.InvalidArgument, match="general.name"):
        logprob(kv_overrides={"general.name": "other"})
    with pytest.raises(winnow.InvalidArgument, match="kv_overrides"):
        logprob(kv_overrides={"llama.rope.freq_base": [1]})
    with pytest.raises(winnow.InvalidArgument, match="given for llama.context_length is -5"):
        logprob(kv_overrides={"llama.context_length": -5})


def test_special_tokens_and_metadata(llm):
    assert llm.detokenize([llm.token_bos()], special=True) == b"<|im_start|>"
    assert llm.detokenize([llm.token_eos()], special=True) == b"<|im_end|>"
    assert llm.detokenize([llm.token_nl()]) == b"\n"
    assert llm.metadata["general.architecture"] == "llama" and llm.metadata["llama.block_count"] == "30"
    assert "tokenizer.chat_template" in llm.metadata and "tokenizer.ggml.tokens" not in llm.metadata
    tokenizer = llm.tokenizer()
    tokens = tokenizer.encode("Grüße, 世界", add_bos=False)
    assert tokens == llm.tokenize("Grüße, 世界".encode(), add_bos=False)
    assert tokenizer.decode(tokens) == "Grüße, 世界"
    assert llm.detokenize(tokens, prev_tokens=[1, 2]) == "Grüße, 世界".encode()


def test_a_tokenizer_of_ones_own(model_path):
    class Upper:
        def __init__(self, inner):
            self.inner = inner

        def tokenize(self, text, add_bos=True, special=False):
            return self.inner.tokenize(text.upper(), add_bos, special)

        def detokenize(self, tokens, prev_tokens=None, special=False):
            return self.inner.detokenize(tokens, prev_tokens, special)

    inner = winnow.Llama(model_path, n_ctx=64).tokenizer()
    llm = winnow.Llama(model_path, n_ctx=64, tokenizer=Upper(inner))
    assert llm.detokenize(llm.tokenize("paris", add_bos=False)) == b"PARIS"


def test_closing(model_path):
    with winnow.Llama(model_path, n_ctx=256, verbose=False) as llm:
        assert llm(PROMPT, max_tokens=1)["choices"]
        context, asked = llm.compress(PROMPT), llm.compress(PROMPT, question="Where?")
    calls = [lambda: llm(PROMPT), lambda: llm.tokenize("a"), llm.n_ctx, llm.save_state, llm.token_eos, llm.reset]
    calls += [lambda: context.ask("Where?"), asked.ask, lambda: llm.compress(PROMPT, chat=True)]
    for call in calls:
        with pytest.raises(winnow.InvalidArgument, match="was closed"):
            call()
    llm.close()  # a second call does no harm
    with contextlib.closing(winnow.Llama(model_path, n_ctx=256, verbose=False)) as other:
        assert other.n_vocab() == 49152


def test_random_seeds(model_path):
    llm = winnow.Llama(model_path, n_ctx=256, seed=-1, verbose=False)
    assert len({llm(PROMPT, max_tokens=8, temperature=2)["choices"][0]["text"] for _ in range(4)}) > 1
    assert len({llm(PROMPT, max_tokens=8, temperature=2, seed=-1)["choices"][0]["text"] for _ in range(4)}) > 1
    llm.set_seed(3)
    assert len({llm(PROMPT, max_tokens=8, temperature=2)["choices"][0]["text"] for _ in range(3)}) == 1


def test_penalties_look_at_as_many_tokens_as_the_model_was_told(model_path):
    def text(size, **options):
        llm = winnow.Llama(model_path, n_ctx=256, last_n_tokens_size=size, verbose=False)
        return llm("a b a b a b a b", max_tokens=12, temperature=0, **options)["choices"][0]["text"]

    assert text(64, repeat_penalty=1.8) != text(64)
    assert text(64, repeat_penalty=1.8, repeat_last_n=1) == text(1, repeat_penalty=1.8)


def test_the_response_bears_the_models_name(llm):
    assert llm(PROMPT, max_tokens=1, model="mine")["model"] == "mine"
    chat = llm.create_chat_completion([{"role": "user", "content": "Hi"}], max_tokens=1, model="mine")
    assert chat["model"] == "mine"


def test_arguments_by_their_places(llm):
    """Positional arguments are in llama-cpp-python's order."""
    # prompt, suffix, max_tokens, temperature, top_p, min_p, typical_p, logprobs, echo, stop
    choice = llm(PROMPT, None, 6, 0.0, 0.95, 0.05, 1.0, 1, True, ["."])["choices"][0]
    assert choice["text"] == PROMPT + " Paris" and choice["logprobs"]["tokens"][-1] == "."
    messages = [{"role": "user", "content": "Say: yes"}]
    # messages, functions, function_call, tools, tool_choice, temperature, top_p, top_k, min_p, typical_p, stream
    chunks = llm.create_chat_completion(messages, None, None, None, None, 0.0, 0.95, 40, 0.05, 1.0, True)
    assert next(chunks)["object"] == "chat.completion.chunk"
    # top_k, top_p, min_p, typical_p, temp, repeat_penalty
    llm.eval(llm.tokenize(PROMPT))
    assert llm.sample(40, 0.95, 0.05, 1.0, 0.0, 1.0) == llm.sample(temp=0)


def test_functions_are_tools(model_path):
    llm = winnow.Llama(model_path, chat_format="chatml-function-calling", n_ctx=1024, verbose=False)
    function = {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"]}}
    messages = [{"role": "user", "content": "What is the weather in Oslo?"}]
    choice = llm.create_chat_completion(messages, functions=[function], function_call={"name": "weather"}, temperature=0)["choices"][0]
    assert choice["message"]["function_call"] == {"name": "weather", "arguments": choice["message"]["tool_calls"][0]["function"]["arguments"]}
    assert "Oslo" in choice["message"]["function_call"]["arguments"]
    with pytest.raises(winnow.InvalidArgument, match="functions and tools"):
        llm.create_chat_completion(messages, functions=[function], tools=[{"type": "function", "function": function}])


# --- Processors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["function", "list", "LogitsProcessorList"])
def test_logits_processors(llm, given):
    [rome] = llm.tokenize(" Rome", add_bos=False)
    seen = []

    def only_rome(input_ids, scores):
        seen.append((list(input_ids), scores.dtype, scores.shape))
        made = np.full_like(scores, -np.inf)
        made[rome] = 0
        return made

    processor = {"function": only_rome, "list": [only_rome]}.get(given, winnow.LogitsProcessorList([only_rome]))
    choice = llm(PROMPT, max_tokens=3, logits_processor=processor, logprobs=1)["choices"][0]
    assert choice["text"] == " Rome Rome Rome"
    prompt = llm.tokenize(PROMPT, special=True)
    assert [tokens for tokens, *_ in seen] == [prompt, prompt + [rome], prompt + [rome] * 2]
    assert {(dtype, shape) for _, dtype, shape in seen} == {(np.dtype(np.float32), (49152,))}
    assert max(choice["logprobs"]["token_logprobs"]) < 0  # of the model's own distribution
    chat = llm.create_chat_completion(
        [{"role": "user", "content": "Hi"}], max_tokens=2, logits_processor=processor, temperature=0
    )
    assert chat["choices"][0]["message"]["content"] == " Rome Rome"


def test_a_processor_in_place(llm):
    [paris] = llm.tokenize(" Paris", add_bos=False)

    def without_paris(input_ids, scores):
        scores[paris] = -np.inf
        return scores

    assert not llm(PROMPT, max_tokens=4, temperature=0, logits_processor=without_paris)["choices"][0]["text"].startswith(" Paris")
    end = winnow.MinTokensLogitsProcessor(5, llm.token_eos())
    chat = dict(messages=[{"role": "user", "content": "Say: yes"}], temperature=0, max_tokens=12)
    n = llm.create_chat_completion(**chat, logits_processor=end)["usage"]["completion_tokens"]
    assert n >= 5


def test_processors_that_fail(llm):
    def fails(input_ids, scores):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        llm(PROMPT, logits_processor=fails)
    for made, match in (
        (np.zeros(3), "shape"),
        (np.full(49152, np.nan), "allow no token"),
        (np.full(49152, -np.inf), "allow no token"),
    ):
        with pytest.raises(winnow.InvalidArgument, match=match):
            llm(PROMPT, logits_processor=lambda input_ids, scores: made)
    assert llm(PROMPT, max_tokens=2, temperature=0)["choices"][0]["text"].startswith(" Paris")


def test_stopping_criteria(llm):
    n_prompt = len(llm.tokenize(PROMPT, special=True))

    def after_three(input_ids, logits):
        assert logits.shape == (49152,)
        return len(input_ids) >= n_prompt + 3

    for criteria in (after_three, [after_three], winnow.StoppingCriteriaList([after_three, lambda *_: False])):
        answer = llm(PROMPT, max_tokens=20, temperature=0, stopping_criteria=criteria)
        assert answer["usage"]["completion_tokens"] == 3 and answer["choices"][0]["finish_reason"] == "stop"
    assert llm(PROMPT, max_tokens=3, temperature=0)["choices"][0]["text"] == answer["choices"][0]["text"]


# --- Token by token -----------------------------------------------------------------------------------------------------


def test_generate(llm):
    text = llm(PROMPT, max_tokens=6, temperature=0)["choices"][0]["text"]
    tokens = llm.tokenize(PROMPT, special=True)
    made = []
    for token in llm.generate(tokens, temp=0):
        made.append(token)
        if len(made) == 6:
            break
    assert llm.detokenize(made).decode() == text
    assert llm.eval_tokens == tokens + made[:5] and llm.n_tokens == len(tokens) + 5
    criteria = lambda input_ids, _: len(input_ids) >= len(tokens) + 2  # noqa: E731
    assert list(llm.generate(tokens, temp=0, stopping_criteria=criteria)) == made[:2]
    # It continues after what was read, and reads the tokens that are sent.
    llm.reset()
    llm.eval(tokens)
    generator = llm.generate([], temp=0, reset=False)
    assert next(generator) == made[0]
    more = llm.tokenize(" Rome", add_bos=False)
    generator.send(more)
    assert llm.eval_tokens == tokens + made[:1] + more
    with pytest.raises(winnow.InvalidArgument):
        next(llm.generate([]))


def test_sample(llm):
    with pytest.raises(winnow.InvalidArgument, match="nothing was read"):
        llm.sample()
    tokens = llm.tokenize(PROMPT, special=True)
    made = []
    llm.eval(tokens)
    for _ in range(4):
        made.append(llm.sample(temp=0))
        llm.eval(made[-1:])
    assert llm.detokenize(made).decode() == llm(PROMPT, max_tokens=4, temperature=0)["choices"][0]["text"]
    assert llm.sample(top_k=1, idx=llm.n_tokens - 1) == llm.sample(temp=0)
    grammar = winnow.LlamaGrammar.from_string('root ::= " Rome"')
    assert b" Rome".startswith(llm.detokenize([llm.sample(grammar=grammar)]))
    with pytest.raises(winnow.InvalidArgument, match="idx"):
        llm.sample(idx=0)


# --- Caches ---------------------------------------------------------------------------------------------------------------


def test_a_suffix_needs_a_model_for_it(llm):
    marks = [llm._special(getattr(winnow._core.SpecialToken, f"infill_{name}")) for name in ("prefix", "suffix", "middle")]
    if -1 in marks:
        with pytest.raises(winnow.InvalidArgument, match="suffix needs a model"):
            llm("def f(", suffix="    return 1")


def test_a_suffix_stands_behind_the_answer(model_path, monkeypatch):
    llm = winnow.Llama(model_path, n_ctx=256, verbose=False)
    read = []
    feed = llm._feed
    monkeypatch.setattr(llm, "_feed", lambda session, given: (read.append(given), feed(session, given)))
    marks = {"infill_prefix": 4, "infill_suffix": 5, "infill_middle": 6}
    monkeypatch.setattr(llm, "_special", lambda which: marks[which.name])
    before, after = llm.tokenize("def f(", False), llm.tokenize(")\n", False)
    assert llm("def f(", suffix=")\n", max_tokens=1)["choices"]
    llm.spm_infill = True
    llm.reset()
    llm("def f(", suffix=")\n", max_tokens=1)
    start = llm.tokenize("")
    assert read == [start + [4, *before, 5, *after, 6], start + [5, *after, 4, *before, 6]]


# --- Models in several files ----------------------------------------------------------------------------------------------


def split_model(path, folder, n_parts):
    """Writes the model's tensors in parts, as llama.cpp's splitter does."""
    data = path.read_bytes()
    at = 0

    def take(form):
        nonlocal at
        values = struct.unpack_from("<" + form, data, at)
        at += struct.calcsize("<" + form)
        return values[0]

    def skip_text():
        nonlocal at
        n = take("Q")
        at += n

    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def skip_value(kind):
        nonlocal at
        if kind == 8:
            skip_text()
        elif kind == 9:
            of, n = take("I"), take("Q")
            if of == 8:
                for _ in range(n):
                    skip_text()
            else:
                at += sizes[of] * n
        else:
            at += sizes[kind]

    assert data[:4] == b"GGUF"
    at = 8
    n_tensors, n_values = take("Q"), take("Q")
    begin = at
    for _ in range(n_values):
        skip_text()
        skip_value(take("I"))
    values = data[begin:at]
    tensors = []
    for _ in range(n_tensors):
        start = at
        skip_text()
        n_dims = take("I")
        at += 8 * n_dims + 4
        tensors.append((data[start:at], take("Q")))
    base = (at + 31) // 32 * 32
    ends = [offset for _, offset in tensors[1:]] + [len(data) - base]

    def entry(key, kind, form, value):
        return struct.pack("<Q", len(key)) + key + struct.pack("<I" + form, kind, value)

    paths = []
    for no in range(n_parts):
        own = [(info, offset, end) for (info, offset), end in zip(tensors, ends)][
            n_tensors * no // n_parts : n_tensors * (no + 1) // n_parts
        ]
        split = entry(b"split.no", 2, "H", no) + entry(b"split.count", 2, "H", n_parts)
        split += entry(b"split.tensors.count", 5, "i", n_tensors)
        header = b"GGUF" + struct.pack("<IQQ", 3, len(own), 3 + (n_values if no == 0 else 0))
        header += (values if no == 0 else b"") + split
        body = b""
        for info, offset, end in own:
            header += info + struct.pack("<Q", len(body))
            body += data[base + offset : base + end]
        paths.append(folder / f"small-{no + 1:05}-of-{n_parts:05}.gguf")
        paths[-1].write_bytes(header + bytes(-len(header) % 32) + body)
    return paths


def test_a_model_in_several_files(llm, whole_path, tmp_path):
    paths = split_model(pathlib.Path(whole_path), tmp_path, 3)
    whole = llm(PROMPT, max_tokens=8, temperature=0)["choices"][0]["text"]
    for path in paths:
        split = winnow.Llama(path, n_ctx=256, n_threads=2, verbose=False)
        assert split(PROMPT, max_tokens=8, temperature=0)["choices"][0]["text"] == whole
        assert split.metadata["general.architecture"] == "llama" and split.info == llm.info
    paths[1].unlink()
    with pytest.raises(winnow.NotFound, match=paths[1].name):
        winnow.Llama(paths[0])


def test_logits_of_all_tokens(model_path):
    llm = winnow.Llama(model_path, n_ctx=256, n_threads=2, logits_all=True, verbose=False)
    assert llm.scores.shape == (0, llm.n_vocab()) and len(llm.eval_logits) == 0
    n_prompt = len(llm.tokenize(PROMPT))
    answer = llm(PROMPT, max_tokens=4, temperature=0, logprobs=1, echo=True)["choices"][0]
    rows = llm.scores
    assert rows.shape == (llm.n_tokens, llm.n_vocab()) and rows.dtype == np.single
    logprobs = llm.logits_to_logprobs(rows)
    assert logprobs == pytest.approx(rows - np.log(np.exp(rows).sum(axis=1, keepdims=True)), abs=1e-4)
    given = answer["logprobs"]["token_logprobs"]
    for at, token in enumerate(llm.eval_tokens[1:n_prompt]):
        assert logprobs[at, token] == pytest.approx(given[at + 1], abs=1e-4), at
    # New tokens are read after those that are there, whose rows do not change.
    before = rows.copy()
    llm.eval(llm.tokenize(b" and", False))
    assert llm.scores.shape[0] == len(before) + 1 and np.array_equal(llm.scores[:-1], before)
    assert np.array_equal(llm.eval_logits[-1], llm.scores[llm.n_tokens - 1])
    llm.reset()
    llm.eval(llm.tokenize(b"Another text", False))
    assert llm.scores.shape[0] == llm.n_tokens < len(before) and np.array_equal(rows, before)
    with pytest.raises(winnow.InvalidArgument, match="logits_all=True"):
        winnow.Llama(model_path, n_ctx=256, verbose=False).scores
    cut = winnow.Llama(model_path, n_ctx=256, kv_evict="snapkv", kv_budget="50%", logits_all=True, verbose=False)
    with pytest.raises(winnow.InvalidArgument, match="kv_evict"):
        cut.eval_logits


def test_helpers_of_llama_cpp_python(short_llm):
    assert winnow.Llama.logits_to_logprobs([0, 0]).tolist() == pytest.approx([np.log(0.5)] * 2)
    columns = winnow.Llama.logits_to_logprobs([[1e4, -np.inf], [1e4, 0]], axis=0)
    assert columns.dtype == np.single and columns[:, 0].tolist() == pytest.approx([np.log(0.5)] * 2)
    assert columns[:, 1].tolist() == [-np.inf, 0]
    for a, b, n in (([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([5], [6], 0), ([], [1], 0)):
        assert winnow.Llama.longest_token_prefix(a, b) == n
    short_llm.eval([1, 2, 3])
    assert short_llm.input_ids.tolist() == short_llm.eval_tokens == [1, 2, 3] and short_llm.input_ids.dtype == np.intc


def test_a_pickled_model_is_loaded_again(model_path):
    given = dict(n_ctx=300, n_threads=1, kv_evict="snapkv", kv_budget="50%", type_k=8, chat_format="chatml", use_mlock=False)
    llm = winnow.Llama(pathlib.Path(model_path), **given, verbose=False)
    llm.set_seed(7)
    llm.last_n_tokens_size = 5
    llm.eval(llm.tokenize(b"something to read first"))
    state = llm.__getstate__()
    assert state["model_path"] == str(model_path) and state["seed"] == 7 and given.items() <= state.items()
    copy = pickle.loads(pickle.dumps(llm))
    assert copy.n_tokens == 0 and copy.n_ctx() == 300 and copy.last_n_tokens_size == 5 and not copy.verbose
    answers = [one(PROMPT, max_tokens=6, temperature=0.9)["choices"][0]["text"] for one in (llm, copy)]
    assert answers[0] == answers[1] and copy.statistics["method"] == llm.statistics["method"]
