"""The class `Llama`, with the interface that users of llama-cpp-python know."""

from __future__ import annotations

import os
from typing import Any, Dict, Generator, List, Optional, Sequence, Union

from .arguments import token_list, without_unused
from .completions import Completions
from .context import Context
from .document_prompt import split
from .embedding import response, texts_of
from .errors import InvalidArgument
from .grammar import Grammar, gbnf_of
from .methods import Budget, budget_text
from .processors import hook
from .progress import progress


class Llama(Completions):
    """A model from a GGUF file, its threads and the KV cache of what it read last.

    model_path: a GGUF file, or any part of a model in several.
    n_ctx: most tokens of prompt and answer; 0: as many as the model was trained on.
    n_threads: None: the machine's physical cores.
    n_batch: tokens of a prompt that pass a layer together; 0: 512, on a GPU 2,048.
    seed: seed of every sampler; None or -1: a random one each time.
    kv_evict, kv_budget: the method that cuts a prompt's cache, and how much it keeps; see `winnow.methods()`:
        "snapkv:window=16" and "20%" (of the prompt), "5%bytes", "64MiB", 512 (tokens a head) or 0.2. A budget alone
        means the method "auto"; without either the cache is full.
    type_k, type_v: the types in which keys and values are stored: "f32", "f16", "bf16", "q8_0", "q4_0", "r4", "r3", or
        ggml's number for one; None: "f16".
    prefill_chunk: prompts longer than this are read and cut in chunks of so many tokens; 0: layer by layer.
    kv_bytes_limit: hard limit of the caches of this model, in bytes; 0: none.
    embedding: accepted as in llama-cpp-python, and ignored: embeddings need no mode of their own.
    pooling_type: pooling of embeddings: "mean", "cls", "last", or llama.cpp's number for one; -1: as the model file
        says, else the mean.
    prefill_weights: number format in which prompts are multiplied with the weights: "auto", "as-is", "int8", "float",
        "bf16", "f32".
    device: device that computes: "cpu"; "cuda:0", an NVIDIA GPU (`make cuda`); "auto", a GPU if one can be used.
    n_gpu_layers: on a GPU, layers whose weights stay in its memory; those of the others are copied there whenever they
        are used. 0, -1: as many as fit.
    chat_format: None for the template in the model file, or one of llama-cpp-python's names: "chatml", "llama-3", ...
    chat_template: Jinja template in place of the model file's.
    last_n_tokens_size: last tokens to which the repetition penalties apply, if a call does not set repeat_last_n.
    rope_scaling_type, rope_freq_base, rope_freq_scale, yarn_...: as in llama-cpp-python, in place of the model file's.
    kv_overrides: metadata in place of the file's: of the architecture, and of which special tokens there are.
    spm_infill: puts the suffix before the prompt when the model fills in the middle.
    tokenizer: an object with tokenize(text, add_bos, special) and detokenize(tokens, prev_tokens, special) in place of
        the model's own.
    logits_all: allows `scores` and `eval_logits`, the logits after all tokens. `logprobs` does not need it.
    others: further arguments of llama-cpp-python's. Those that have no effect here (flash_attn, use_mlock, on the
        processor n_gpu_layers, ...) are ignored with one warning.
    verbose: shows the progress of long prompts: a bar if tqdm is installed and the standard error is a terminal, else
        lines.

    Calls from several threads wait for each other inside the library, token by token. The library computes without the
    GIL, and Ctrl-C ends a computation after the present step: the model is then as before the call.
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
        """Yields the tokens that follow a prompt, one by one, until the caller stops: an end token does not end it.

        reset: the tokens are the whole prompt; False: they follow what was read last. Tokens that are sent into the
        generator are read after the token that it yielded last. Further arguments are those of create_completion.
        """
        given = token_list(tokens)
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
            with self._lock:  # calls in other threads look at what was read last
                session.decode(token)
                if sent:
                    session.append(list(sent))
            for one in sent or ():
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
        """Returns a token to follow what was read last, without reading it.

        idx: index of the token to follow, which must be the last one, since logits after others are not kept. Further
        arguments are those of create_completion.
        """
        with self._lock:
            session = self._session.fork()
        if session.n_tokens == 0:
            raise InvalidArgument("nothing was read yet: eval() tokens first")
        if idx not in (None, -1, session.n_tokens - 1):
            raise InvalidArgument(f"idx is {idx}, but only the last token has logits: give {session.n_tokens - 1}")
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
        input: Union[str, bytes, List[Union[str, bytes]]],
        normalize: bool = False,
        truncate: bool = True,
        return_count: bool = False,
    ) -> Any:
        """Returns the pooled hidden states of a text, a list of n_embd numbers; for a list of texts a list of these.

        normalize: scales embeddings to length 1. truncate: cuts a text that is longer than the context; False: that is
        an error. return_count: returns a pair of this and the number of tokens. What was read last stays as it is.
        """
        vectors, n_tokens = [], 0
        for text in texts_of(input):
            tokens = self.tokenize(text, True, True)
            if truncate:
                tokens = tokens[: self.n_ctx()]
            n_tokens += len(tokens)
            with progress(f"embedding {len(tokens):,} tokens", self.verbose) as update:
                vectors.append(self._engine.embed(tokens, self._pooling, normalize, self.n_ctx(), update))
        made = vectors[0] if isinstance(input, (str, bytes)) else vectors
        return (made, n_tokens) if return_count else made

    def create_embedding(
        self, input: Union[str, bytes, List[Union[str, bytes]]], model: Optional[str] = None
    ) -> Dict[str, Any]:
        """Returns the embeddings of one or more texts as OpenAI's response, not normalised, as in llama-cpp-python."""
        vectors, n_tokens = self.embed(texts_of(input), return_count=True)
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
        """Reads a document, cuts its KV cache by a method, and returns the context, which answers questions.

        method, budget: as kv_evict and kv_budget, which are the default if both are left out. question: is read and cut
        with the document, since some methods choose better if they know it; the context answers that one alone. chat:
        document and questions are a user's message in the model's chat template; None: if it has one. system: that
        chat's system message.
        """
        self._check_open()
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
            # The question is tokenised apart, as in Context.ask, so that only what the method sees differs.
            tokens += self.tokenize(after, False, True)
        session = self._engine.open(**options, question_aware=question is not None)
        self._feed(session, tokens)
        return Context(self, session, chat, question is not None)

    def load_context(self, path: Union[str, os.PathLike[str]], chat: Optional[bool] = None) -> Context:
        """Returns a context that `Context.save` wrote for this model.

        chat: as in compress; None: if the context begins with the first tokens of the chat template.
        """
        session = self._engine.load_session(os.fspath(path))
        if chat is None:
            chat = self._model.has_chat_template()
            if chat:
                before, _ = split(self._model, "document", "question", True)
                chat = session.tokens[:2] == self.tokenize(before, True, True)[:2]
        return Context(self, session, chat)
