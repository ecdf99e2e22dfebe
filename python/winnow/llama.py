"""A model, with the surface that users of llama-cpp-python know."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, Generator, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _core
from .answer import Completion, Piece, Stop, pieces, stop_list, token_limit
from .arguments import check_unused, entry_type, metadata_of, without_unused
from .chat import ChatCompletion, messages_of, options_of, tools_of_functions
from .chat_formats import stops_of, template_of
from .context import Context, split
from .embedding import pooling_name, response
from .errors import InvalidArgument
from .grammar import Grammar, gbnf_of
from .hub import download
from .methods import Budget, budget_text
from .processors import hook
from .progress import progress
from .sampling import Sampling

Prompt = Union[str, Sequence[int]]


class LlamaState:
    """What a model has read: its tokens and their cache. Saving one copies nothing; pages are shared until written."""

    def __init__(self, session: Any):
        self._session = session

    @property
    def n_tokens(self) -> int:
        """Tokens that were read, those whose entries were dropped included."""
        return self._session.n_tokens

    @property
    def llama_state_size(self) -> int:
        """Bytes of its pages, those that it shares with others included."""
        return self._session.statistics["bytes_in_pages"]

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes it to a checksummed file; `Llama.load_state` takes its path."""
        self._session.save(os.fspath(path))


class LlamaTokenizer:
    """A model's tokenizer by itself."""

    def __init__(self, llama: "Llama"):
        self._model = llama._model

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = True) -> List[int]:
        return self._model.tokenize(text.encode() if isinstance(text, str) else bytes(text), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False
    ) -> bytes:
        return b"".join(self._model.token_text(token, special) for token in tokens)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> List[int]:
        return self.tokenize(text, add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", "replace")


class _Closed:
    """In the place of what close() gave back."""

    def __getattr__(self, name: str) -> Any:
        raise InvalidArgument("the model was closed: load it again with Llama(...)")


class Llama:
    """A model from a GGUF file, its threads and the cache of what it read last.

    model_path: a GGUF file, or any part of a model in several.
    n_ctx: most tokens of prompt and answer; 0: as many as the model was trained on.
    n_threads: None: the machine's physical cores.
    n_batch: tokens of a prompt that pass a layer together.
    seed: of every sampler; None or -1: a random one each time.
    kv_evict, kv_budget: what of a prompt's cache is kept, see `winnow.methods()`: "snapkv:window=16" and "20%" (of the
        prompt), "5%bytes", "64MiB", 512 (tokens a head) or 0.2. A budget alone means the method "auto"; without either
        the cache is full.
    type_k, type_v: how keys and values are stored: "f32", "f16", "bf16", "q8_0", "q4_0", "r4", "r3", or ggml's number for
        one; None: "f16".
    prefill_chunk: prompts longer than this are read and cut in chunks of so many tokens; 0: layer by layer.
    kv_bytes_limit: hard limit of the caches of this model, in bytes; 0: none.
    embedding: accepted as llama-cpp-python has it; embeddings need no mode of their own.
    pooling_type: of embeddings: "mean", "cls", "last", or llama.cpp's number for one; -1: as the model file says, else the
        mean.
    prefill_weights: the numbers that prompts are multiplied in: "auto", "as-is", "int8", "float", "bf16", "f32".
    chat_format: None for the template in the model file, or one of llama-cpp-python's names: "chatml", "llama-3", ...
    chat_template: Jinja, instead of the model file's.
    last_n_tokens_size: tokens that the penalties of repetition look at, where a call does not say it (repeat_last_n).
    rope_scaling_type, rope_freq_base, rope_freq_scale, yarn_...: as llama-cpp-python's, instead of what the model file says.
    kv_overrides: metadata to use instead of the file's: of the architecture, and which special tokens there are.
    spm_infill: a suffix is shown to the model before the prompt.
    tokenizer: an object with tokenize(text, add_bos, special) and detokenize(tokens) instead of the model's own.
    others: further arguments of llama-cpp-python's. Those that have no effect here (n_gpu_layers, flash_attn, logits_all,
        use_mlock, ...) are left out with one warning.
    verbose: how far long prompts are: a bar where tqdm is installed and the standard error is a terminal, else lines.

    Calls from several threads wait for each other inside the library, token by token. What is computed is computed
    without Python's lock, and Ctrl-C ends it after the present step: the model is then as before the call.
    """

    def __init__(
        self,
        model_path: Union[str, os.PathLike[str]],
        *,
        n_ctx: int = 0,
        n_threads: Optional[int] = None,
        n_batch: int = 512,
        seed: Optional[int] = None,
        kv_evict: Optional[str] = None,
        kv_budget: Optional[Budget] = None,
        type_k: Union[str, int, None] = "f16",
        type_v: Union[str, int, None] = "f16",
        prefill_chunk: int = 0,
        kv_bytes_limit: int = 0,
        embedding: bool = False,
        pooling_type: Union[int, str] = -1,
        prefill_weights: str = "auto",
        chat_format: Optional[str] = None,
        chat_template: Optional[str] = None,
        use_mmap: bool = True,
        last_n_tokens_size: int = 64,
        rope_scaling_type: Optional[int] = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        kv_overrides: Optional[Mapping[str, Union[bool, int, float, str]]] = None,
        spm_infill: bool = False,
        tokenizer: Any = None,
        verbose: bool = True,
        **others: Any,
    ):
        check_unused(others)
        metadata = metadata_of(
            kv_overrides,
            rope_scaling_type=rope_scaling_type,
            rope_freq_base=rope_freq_base,
            rope_freq_scale=rope_freq_scale,
            yarn_ext_factor=yarn_ext_factor,
            yarn_attn_factor=yarn_attn_factor,
            yarn_beta_fast=yarn_beta_fast,
            yarn_beta_slow=yarn_beta_slow,
            yarn_orig_ctx=yarn_orig_ctx,
        )
        self.model_path = os.fspath(model_path)
        self.verbose = verbose
        self.chat_format = chat_format
        self.last_n_tokens_size = last_n_tokens_size
        self.spm_infill = spm_infill
        self.cache: Any = None
        self._seed = seed
        self._model: Any = _core.Model.load(self.model_path, use_mmap, template_of(chat_format, chat_template), metadata)
        self._tokenizer: Any = tokenizer or LlamaTokenizer(self)
        self.metadata: Dict[str, str] = self._model.metadata
        self._engine: Any = _core.Engine.create(self._model, n_threads or 0, kv_bytes_limit, n_batch, prefill_weights)
        self._options = {
            "evict": kv_evict,
            "budget": budget_text(kv_budget),
            "n_ctx": n_ctx,
            "key_type": entry_type(type_k),
            "value_type": entry_type(type_v),
            "prefill_chunk": prefill_chunk,
        }
        self._pooling = pooling_name(pooling_type)
        self._lock = threading.Lock()
        self._session: Any = self._engine.open(**self._options)  # of what was read last; never fed, only forked
        self._is_continued = not self._session.evicts  # whether a prompt that begins with it goes on from there

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str,
        additional_files: Optional[Sequence[str]] = None,
        local_dir: Union[str, os.PathLike[str], None] = None,
        local_dir_use_symlinks: Union[bool, str] = "auto",
        cache_dir: Union[str, os.PathLike[str], None] = None,
        **others: Any,
    ) -> "Llama":
        """A model from a repository of Hugging Face's hub; needs huggingface_hub (`pip install winnow-llm[hub]`).

        filename: a file of the repository, or a pattern that one of them matches ("*Q4_K_M.gguf"); where it is a part of a
        model, all parts are fetched. additional_files: names or patterns of others that are to lie beside it. local_dir: a folder for them instead of the hub's cache;
        cache_dir: that cache. local_dir_use_symlinks: for versions of huggingface_hub that know it. Further arguments are
        those of `Llama`. What goes wrong with the download is huggingface_hub's own error.
        """
        path = download(repo_id, filename, additional_files or (), local_dir, local_dir_use_symlinks, cache_dir)
        return cls(path, **others)

    def close(self) -> None:
        """Gives the model and its caches back. What is asked of it afterwards is an error."""
        with self._lock:
            self.cache = None
            self._session = self._engine = self._model = self._tokenizer = _Closed()

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --- The model ---------------------------------------------------------------------------------------------------

    @property
    def info(self) -> Dict[str, Any]:
        """The model's dimensions, with a row for each layer."""
        return self._model.info

    def n_ctx(self) -> int:
        return self._session.n_ctx

    def n_embd(self) -> int:
        return self.info["n_embd"]

    def n_vocab(self) -> int:
        return self.info["n_vocab"]

    def token_bos(self) -> int:
        """The token that begins a text; -1 where the model has none."""
        return self._special(_core.SpecialToken.begin)

    def token_eos(self) -> int:
        """The token that ends a text; -1 where the model has none."""
        return self._special(_core.SpecialToken.end)

    def token_nl(self) -> int:
        """The token of a line's end; -1 where the model has none."""
        return self._special(_core.SpecialToken.newline)

    def _special(self, which: Any) -> int:
        token = self._model.special_token(which)
        return -1 if token is None else token

    def tokenizer(self) -> LlamaTokenizer:
        return LlamaTokenizer(self)

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = False) -> List[int]:
        """Tokens of a text; special: texts such as <|im_start|> become the tokens they name."""
        data = text.encode() if isinstance(text, str) else bytes(text)
        return self._tokenizer.tokenize(data, add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False
    ) -> bytes:
        """The tokens' bytes; those of special tokens only where they are asked for. prev_tokens change nothing."""
        return self._tokenizer.detokenize(tokens, prev_tokens=prev_tokens, special=special)

    # --- What was read -----------------------------------------------------------------------------------------------

    @property
    def n_tokens(self) -> int:
        """Tokens of the prompt and answer that were read last."""
        return self._session.n_tokens

    @property
    def statistics(self) -> Dict[str, Any]:
        """Of what was read last: tokens, entries and bytes of the full cache (in f16) and of what is kept, seconds."""
        return self._session.statistics

    @property
    def eval_tokens(self) -> List[int]:
        """The tokens of the prompt and answer that were read last."""
        return self._session.tokens

    def set_seed(self, seed: int) -> None:
        self._seed = seed

    def set_cache(self, cache: Any) -> None:
        """Where completions keep what they read, and look for what a prompt begins with; None: nowhere.

        cache: a `LlamaRAMCache`, a `LlamaDiskCache`, or what has their methods.
        """
        self.cache = cache

    def reset(self) -> None:
        """Forgets what was read."""
        with self._lock:
            self._session = self._engine.open(**self._options)
            self._is_continued = not self._session.evicts

    def eval(self, tokens: Sequence[int]) -> None:
        """Reads tokens behind what was read before. The first of them are cut to the budget, the others kept whole."""
        with self._lock:
            session = self._session.fork()
        self._feed(session, list(tokens))
        with self._lock:
            self._session = session
            self._is_continued = True

    def save_state(self) -> LlamaState:
        """What was read last, to go on from there later."""
        with self._lock:
            return LlamaState(self._session.fork())

    def load_state(self, state: Union[LlamaState, str, os.PathLike[str]]) -> None:
        """A state of this model, or the file of one: prompts that begin with its tokens go on from there.

        What a method dropped of it stays dropped, and what follows it is kept whole.
        """
        if isinstance(state, LlamaState):
            session = state._session.fork()
        else:
            session = self._engine.load_session(os.fspath(state))
        with self._lock:
            self._session = session
            self._is_continued = True

    def _feed(self, session: Any, tokens: List[int]) -> None:
        with progress(f"prefill {len(tokens):,} tokens", self.verbose) as update:
            if session.n_tokens == 0:
                session.prefill(tokens, update)
            else:
                session.append(tokens, update)

    def _read(self, tokens: List[int]) -> Any:
        """A session behind these tokens."""
        with self._lock:
            n_read = self._session.n_tokens
            if self._is_continued and 0 < n_read <= len(tokens) and self._session.tokens == tokens[:n_read]:
                session = self._session.fork()
            else:
                n_read = 0
                session = self._engine.open(**self._options)
        if self.cache is not None:
            kept = self._from_cache(tokens)
            if kept is not None and kept.n_tokens > n_read:
                session = kept
                n_read = kept.n_tokens
        if n_read < len(tokens) or n_read == 0:
            self._feed(session, tokens[n_read:])
            if self.cache is not None:
                self.cache[tokens] = LlamaState(session.fork())
        return session

    def _read_scored(self, tokens: List[int], n_logprobs: int) -> Tuple[Any, List[Piece]]:
        """A session behind these tokens, all of them read, and the tokens with their probabilities."""
        session = self._engine.open(**self._options)
        with progress(f"prefill {len(tokens):,} tokens", self.verbose) as update:
            scores = session.prefill_scored(tokens, n_logprobs, update)
        return session, [Piece("", tokens[0])] + [
            Piece("", token, logprob, top) for token, (logprob, top) in zip(tokens[1:], scores)
        ]

    def _from_cache(self, tokens: List[int]) -> Any:
        """A session that these tokens begin with; None where there is none. A cut one has to be of all of them."""
        try:
            state = self.cache[tokens]
        except KeyError:
            return None
        session = state._session.fork() if isinstance(state, LlamaState) else self._engine.load_session(os.fspath(state))
        is_beginning = session.tokens == tokens[: session.n_tokens]
        return session if is_beginning and (session.n_tokens == len(tokens) or not session.evicts) else None

    def _keep(self, session: Any, into_cache: bool = False) -> None:
        """Makes it what was read last."""
        with self._lock:
            self._session = session
            self._is_continued = not session.evicts
        if into_cache and self.cache is not None:
            self.cache[session.tokens] = self.save_state()

    # --- Completions -------------------------------------------------------------------------------------------------

    def _answer(self, session: Any, sampler: Any, **options: Any) -> Iterator[Piece]:
        """An answer whose end is what was read last."""
        yield from pieces(session, sampler, **options)
        self._keep(session, into_cache=True)

    def _sampling(self, seed: Optional[int] = None, **fields: Any) -> Sampling:
        """With what the model was loaded with for what the call leaves out."""
        fields.setdefault("repeat_last_n", self.last_n_tokens_size)
        return Sampling.of(seed=self._seed if seed is None else seed, **fields)

    def _infill_tokens(self, prompt: Prompt, suffix: str) -> List[int]:
        """A prompt for what stands between the two."""
        names = ("infill_prefix", "infill_suffix", "infill_middle")
        marks = [self._special(getattr(_core.SpecialToken, name)) for name in names]
        if -1 in marks:
            raise InvalidArgument("suffix needs a model that was trained to fill in the middle, and this one has no tokens for it")
        is_text = isinstance(prompt, (str, bytes))
        before = [marks[0], *(self.tokenize(prompt, False, False) if is_text else prompt)]
        after = [marks[1], *self.tokenize(suffix, False, False)]
        start = self.tokenize("", True) if is_text else []
        return start + (after + before if self.spm_infill else before + after) + [marks[2]]

    def create_completion(
        self,
        prompt: Prompt,
        suffix: Optional[str] = None,
        max_tokens: Optional[int] = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: Optional[int] = None,
        echo: bool = False,
        stop: Stop = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: Optional[int] = None,
        *,
        grammar: Grammar = None,
        model: Optional[str] = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        **others: Any,
    ) -> Any:
        """The text after a prompt (a text, or tokens), as OpenAI's completions.

        max_tokens: None, 0 or less: as many as the context has room for. logprobs: beside every token so many of the
        likeliest, natural logarithms in the model's own distribution; with echo beside those of the prompt, too, all of
        which is then read. stop: texts that end the answer and do not belong to it. grammar: GBNF that it must follow.
        stream: an iterator of chunks instead of one response. suffix: what stands behind the answer, for models that were
        trained to fill in the middle. model: a name for the response. stopping_criteria, logits_processor: functions, or
        lists of them, that are called before every choice with the tokens that were read (int32 [n]) and the logits behind
        them (float32 [n_vocab], their own copy): whether the answer ends, and the logits to choose from. Further arguments
        are those of `winnow.Sampling`: mirostat_mode, logit_bias, dry_multiplier, ...
        """
        is_text = isinstance(prompt, (str, bytes))
        if suffix is not None:
            tokens = self._infill_tokens(prompt, suffix)
        else:
            tokens = self.tokenize(prompt, True, True) if is_text else list(prompt)
        echoed = ""
        if echo:
            echoed = prompt if isinstance(prompt, str) else self.detokenize(tokens).decode("utf-8", "replace")
        sampling = self._sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty,
            seed=seed,
            **without_unused(others),
        )
        sampler = sampling.sampler(self._model, tokens, grammar=gbnf_of(grammar))
        scored: List[Piece] = []
        if echo and logprobs is not None:
            session, scored = self._read_scored(tokens, logprobs)
        else:
            session = self._read(tokens)
        answer = self._answer(
            session,
            sampler,
            n_logprobs=logprobs,
            max_tokens=token_limit(max_tokens),
            stops=stop_list(stop),
            before_choice=hook(session, logits_processor, stopping_criteria),
        )
        completion = Completion(self._model, model or self.model_path, len(tokens), echoed, scored)
        return completion.chunks(answer) if stream else completion.whole(answer)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Optional[Sequence[Mapping[str, Any]]] = None,
        function_call: Union[str, Mapping[str, Any], None] = None,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        tool_choice: Union[str, Mapping[str, Any], None] = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: Stop = None,
        seed: Optional[int] = None,
        response_format: Optional[Dict[str, Any]] = None,
        max_tokens: Optional[int] = None,
        *,
        grammar: Grammar = None,
        logprobs: Optional[bool] = False,
        top_logprobs: Optional[int] = None,
        model: Optional[str] = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        **others: Any,
    ) -> Any:
        """The answer to messages, as OpenAI's chat completions.

        messages: dicts with 'role' and 'content'; where the last is an assistant's, the answer goes on with it. tools,
        tool_choice: functions that the model may, must or must not call; functions and function_call are OpenAI's older
        form of them, and calls then come as function_call, too. response_format: {"type": "json_object"} for
        any JSON object, with "schema" for one that follows it ({"type": "json_schema", ...} as OpenAI's, too).
        logprobs, top_logprobs: natural logarithms in the model's own distribution. stream: an iterator of chunks. model,
        stopping_criteria, logits_processor: as create_completion's. Further arguments are those of `winnow.Sampling`.
        """
        if not messages:
            raise InvalidArgument("messages are empty: a chat needs one at least")
        if top_logprobs is not None and not logprobs:
            raise InvalidArgument("top_logprobs has no effect without logprobs=True")
        if functions is not None:
            tools, tool_choice = tools_of_functions(functions, function_call, tools, tool_choice)
        gbnf = gbnf_of(grammar, response_format)
        made = messages_of(messages)
        prompt = _core.apply_chat_template(
            self._model, made, options_of(messages, tools, tool_choice, bool(gbnf))
        )
        tokens = self.tokenize(prompt.text, True, True)
        sampling = self._sampling(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            seed=seed,
            **without_unused(others),
        )
        if gbnf:
            sampler = sampling.sampler(self._model, tokens, grammar=gbnf)
        else:
            sampler = sampling.sampler(
                self._model, tokens, grammar=prompt.grammar, grammar_start=prompt.grammar_start
            )
        shown = (self.tokenize(text, False, True) for text in prompt.shown_tokens)
        session = self._read(tokens)
        answer = self._answer(
            session,
            sampler,
            n_logprobs=(top_logprobs or 0) if logprobs else None,
            max_tokens=token_limit(max_tokens),
            stops=stop_list(stop) + prompt.stops + stops_of(self.chat_format),
            shown_tokens=[tokens[0] for tokens in shown if len(tokens) == 1],
            before_choice=hook(session, logits_processor, stopping_criteria),
        )
        completion = ChatCompletion(self._model, model or self.model_path, prompt, len(tokens), functions is not None)
        return completion.chunks(answer) if stream else completion.whole(answer)

    # --- Token by token ----------------------------------------------------------------------------------------------

    def generate(
        self,
        tokens: Sequence[int],
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        reset: bool = True,
        *,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        grammar: Grammar = None,
        **others: Any,
    ) -> Generator[int, Optional[Sequence[int]], None]:
        """The tokens that follow a prompt's, one after the other, until nobody asks for more: an end token ends nothing.

        reset: the tokens are the whole prompt; False: they follow what was read last. What is sent into the generator is
        read behind the token that it gave last. Further arguments are those of create_completion.
        """
        given = list(tokens)
        if reset:
            session = self._read(given)
        else:
            with self._lock:
                session = self._session.fork()
            if given or session.n_tokens == 0:
                self._feed(session, given)
        sampling = self._sampling(
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            **without_unused(others),
        )
        sampler = sampling.sampler(self._model, session.tokens, grammar=gbnf_of(grammar))
        before_choice = hook(session, logits_processor, stopping_criteria)
        with self._lock:
            self._session = session
            self._is_continued = True
        while True:
            logits = session.logits()
            if before_choice is not None:
                logits = before_choice(logits)
                if logits is None:
                    return
            token = sampler.sample(logits)
            sent = yield token
            session.decode(token)
            if sent:
                session.append(list(sent))
                for one in sent:
                    sampler.accept(one)

    def sample(
        self,
        top_k: int = 40,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        temp: float = 0.8,
        repeat_penalty: float = 1.0,
        *,
        logits_processor: Any = None,
        grammar: Grammar = None,
        idx: Optional[int] = None,
        **others: Any,
    ) -> int:
        """A token to follow what was read last; it is not read.

        idx: of the token whose follower is wanted, which has to be the last one: logits of others are not kept. Further
        arguments are those of create_completion.
        """
        with self._lock:
            session = self._session.fork()
        if session.n_tokens == 0:
            raise InvalidArgument("nothing was read yet: eval() tokens first")
        if idx not in (None, -1, session.n_tokens - 1):
            raise InvalidArgument(f"idx is {session.n_tokens - 1}, the last token's: logits of others are not kept")
        sampling = self._sampling(
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            **without_unused(others),
        )
        sampler = sampling.sampler(self._model, session.tokens, grammar=gbnf_of(grammar))
        before_choice = hook(session, logits_processor, None)
        logits = session.logits()
        return sampler.sample(logits if before_choice is None else before_choice(logits))

    # --- Embeddings --------------------------------------------------------------------------------------------------

    def embed(
        self,
        input: Union[str, List[str]],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """The pooled hidden states of a text, as a list of n_embd numbers; of a list of texts, a list of these.

        normalize: to the length 1. truncate: a text that is longer than the context is cut to it; else that is an error.
        return_count: a pair of that and the number of tokens. What was read last stays as it is.
        """
        texts = [input] if isinstance(input, str) else list(input)
        vectors, n_tokens = [], 0
        for text in texts:
            tokens = self.tokenize(text, True, True)
            if truncate:
                tokens = tokens[: self.n_ctx()]
            n_tokens += len(tokens)
            with progress(f"embedding {len(tokens):,} tokens", self.verbose) as update:
                vectors.append(self._engine.embed(tokens, self._pooling, normalize, self.n_ctx(), update))
        made = vectors[0] if isinstance(input, str) else vectors
        return (made, n_tokens) if return_count else made

    def create_embedding(self, input: Union[str, List[str]], model: Optional[str] = None) -> Dict[str, Any]:
        """The embeddings of a text or several, as OpenAI's response; not normalised, as llama-cpp-python's."""
        texts = [input] if isinstance(input, str) else list(input)
        vectors, n_tokens = self.embed(texts, return_count=True)
        return response(vectors, model or self.model_path, n_tokens)

    # --- Compressed contexts -----------------------------------------------------------------------------------------

    def compress(
        self,
        text: str,
        method: Optional[str] = None,
        budget: Optional[Budget] = None,
        *,
        question: Optional[str] = None,
        chat: Optional[bool] = None,
        system: str = "",
    ) -> Context:
        """Reads a document and keeps of its cache what the method chooses, for `Context.ask`.

        method, budget: as kv_evict and kv_budget, whose values they have where both are left out. question: a part of
        what is read and cut, for methods that find more where they know it; the context answers that one alone. chat:
        document and questions are a user's message in the model's chat template; None: where it has one. system: that
        chat's system message.
        """
        if chat is None:
            chat = self._model.has_chat_template()
        if system and not chat:
            raise InvalidArgument("system has no effect without the chat template")
        options = dict(self._options)
        if method is not None or budget is not None:
            options.update(evict=method, budget=budget_text(budget))
        before, after = split(self._model, text, question or "", chat, system)
        tokens = self.tokenize(before, True, True)
        if question is not None:
            # Tokenised apart, as ever: the two ways differ in nothing but what the method sees.
            tokens += self.tokenize(after, False, True)
        session = self._engine.open(**options)
        self._feed(session, tokens)
        return Context(self, session, chat, question is not None)

    def load_context(self, path: Union[str, os.PathLike[str]], chat: Optional[bool] = None) -> Context:
        """A context that `Context.save` wrote for this model. chat: None: what its first tokens say."""
        session = self._engine.load_session(os.fspath(path))
        if chat is None:
            chat = self._model.has_chat_template()
            if chat:
                before, _ = split(self._model, "document", "question", True)
                chat = session.tokens[:2] == self.tokenize(before, True, True)[:2]
        return Context(self, session, chat)
