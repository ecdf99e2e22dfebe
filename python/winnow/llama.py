"""A model, with the surface that users of llama-cpp-python know."""

from __future__ import annotations

import os
from typing import Any, Dict, Generator, List, Optional, Sequence, Union

from .arguments import without_unused
from .completions import Completions
from .context import Context
from .document_prompt import split
from .embedding import response
from .errors import InvalidArgument
from .grammar import Grammar, gbnf_of
from .methods import Budget, budget_text
from .processors import hook
from .progress import progress


class Llama(Completions):
    """A model from a GGUF file, its threads and the cache of what it read last.

    model_path: a GGUF file, or any part of a model in several.
    n_ctx: most tokens of prompt and answer; 0: as many as the model was trained on.
    n_threads: None: the machine's physical cores.
    n_batch: tokens of a prompt that pass a layer together; 0: 512, on a GPU 2,048.
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
    device: what computes: "cpu"; "cuda:0", an NVIDIA GPU (`make cuda`); "auto", a GPU if there is one to be used.
    chat_format: None for the template in the model file, or one of llama-cpp-python's names: "chatml", "llama-3", ...
    chat_template: Jinja, instead of the model file's.
    last_n_tokens_size: tokens that the penalties of repetition look at, where a call does not say it (repeat_last_n).
    rope_scaling_type, rope_freq_base, rope_freq_scale, yarn_...: as llama-cpp-python's, instead of what the model file says.
    kv_overrides: metadata to use instead of the file's: of the architecture, and which special tokens there are.
    spm_infill: a suffix is shown to the model before the prompt.
    tokenizer: an object with tokenize(text, add_bos, special) and detokenize(tokens) instead of the model's own.
    logits_all: scores and eval_logits, the logits of all tokens, may be asked for. Probabilities do not need it.
    others: further arguments of llama-cpp-python's. Those that have no effect here (n_gpu_layers, flash_attn, use_mlock,
        ...) are left out with one warning.
    verbose: how far long prompts are: a bar where tqdm is installed and the standard error is a terminal, else lines.

    Calls from several threads wait for each other inside the library, token by token. What is computed is computed
    without Python's lock, and Ctrl-C ends it after the present step: the model is then as before the call.
    """

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
        sampler = self._sampler(
            session.tokens,
            gbnf_of(grammar),
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            **without_unused(others),
        )
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
        sampler = self._sampler(
            session.tokens,
            gbnf_of(grammar),
            temperature=temp,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            repeat_penalty=repeat_penalty,
            **without_unused(others),
        )
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
