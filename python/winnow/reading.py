"""Reading of prompts, with reuse of what was read before."""

from __future__ import annotations

import collections
import os
from typing import Any, Deque, Dict, List, Sequence, Tuple, Union

import numpy as np

from .answer import Piece
from .arguments import token_list
from .caches import LlamaDiskCache, PromptTokens
from .errors import BadFile, InvalidArgument, NotFound
from .loaded_model import LoadedModel
from .progress import progress
from .state import LlamaState


class Reading(LoadedModel):
    """The part of `Llama` that reads prompts, and reuses the prefix of a prompt that was read last or is cached."""

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the prompt and answer that were read last."""
        with self._lock:
            return self._session.n_tokens

    @property
    def statistics(self) -> Dict[str, Any]:
        """Tokens, entries and bytes of what was read last, in the full cache (f16) and in the kept one, and seconds."""
        with self._lock:
            return self._session.statistics

    @property
    def eval_tokens(self) -> List[int]:
        """The tokens of the prompt and answer that were read last."""
        with self._lock:
            return self._session.tokens

    @property
    def input_ids(self) -> np.ndarray:
        """The same as int32 [n_tokens]."""
        return np.array(self.eval_tokens, np.intc)

    @property
    def scores(self) -> np.ndarray:
        """The logits after every token of the prompt and answer that were read last: float32 [n_tokens][n_vocab].

        Raises InvalidArgument unless the model was loaded with logits_all=True and keeps the whole cache. The tokens
        are read once more for this, one by one, except those that an earlier access has read.
        """
        if not self._logits_all:
            raise InvalidArgument("the logits of all tokens need Llama(..., logits_all=True)")
        with self._lock:
            if self._session.evicts:
                raise InvalidArgument("the logits of all tokens need the full cache: leave kv_evict and kv_budget out")
            return self._scores.of(self._session.tokens, self.verbose)

    @property
    def eval_logits(self) -> Deque[List[float]]:
        """The rows of `scores` as lists."""
        return collections.deque(self.scores.tolist(), maxlen=self.n_ctx())

    @staticmethod
    def logits_to_logprobs(logits: Any, axis: int = -1) -> np.ndarray:
        """Returns the natural logarithms of the probabilities that logits stand for, float32."""
        rows = np.asarray(logits, np.single)
        rows = rows - rows.max(axis=axis, keepdims=True)
        return rows - np.log(np.exp(rows).sum(axis=axis, keepdims=True))

    @staticmethod
    def longest_token_prefix(a: Sequence[int], b: Sequence[int]) -> int:
        """Returns the number of tokens with which both begin."""
        return next((i for i, (one, other) in enumerate(zip(a, b)) if one != other), min(len(a), len(b)))

    def set_seed(self, seed: int) -> None:
        self._seed = seed

    def set_cache(self, cache: Any) -> None:
        """Sets the cache in which completions store what they read and look up prefixes of prompts; None: none.

        cache: a `LlamaRAMCache`, a `LlamaDiskCache`, or an object with their methods. The tokens that it is given have
        an attribute `settings`, a text: a session of another model or of other settings is not for them.
        """
        self.cache = cache

    def reset(self) -> None:
        """Forgets all tokens that were read."""
        with self._lock:
            self._session = self._engine.open(**self._options)
            self._is_continued = not self._session.evicts

    def eval(self, tokens: Sequence[int]) -> None:
        """Reads tokens after those read before. The first are cut to the budget, those of later calls kept whole."""
        with self._lock:
            session = self._session.fork()
        self._feed(session, token_list(tokens))
        with self._lock:
            self._session = session
            self._is_continued = True

    def save_state(self) -> LlamaState:
        """Returns the state of what was read last, for load_state()."""
        with self._lock:
            return LlamaState(self._session.fork())

    def load_state(self, state: Union[LlamaState, str, os.PathLike[str]]) -> None:
        """Loads a state of this model, or the file of one. Prompts that begin with its tokens continue it.

        Entries that a method evicted stay evicted, and tokens that follow are kept whole.
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

    def _read(self, tokens: List[int], question_aware: bool = False) -> Any:
        """Returns a session that has read these tokens, continuing what was read last or a cached prefix if it can.

        question_aware: they end with what is to be answered, as chats do.
        """
        with self._lock:
            n_read = self._session.n_tokens
            if self._is_continued and 0 < n_read <= len(tokens) and self._session.tokens == tokens[:n_read]:
                session = self._session.fork()
            else:
                n_read = 0
                session = self._engine.open(**self._options, question_aware=question_aware)
        settings = self._settings_of(session)
        if self.cache is not None:
            kept = self._from_cache(tokens, settings)
            if kept is not None and kept.n_tokens > n_read:
                session = kept
                n_read = kept.n_tokens
        if n_read < len(tokens) or n_read == 0:
            self._feed(session, tokens[n_read:])
            if self.cache is not None:
                self.cache[PromptTokens(tokens, settings)] = LlamaState(session.fork())
        return session

    def _read_scored(self, tokens: List[int], n_logprobs: int) -> Tuple[Any, List[Piece]]:
        """Returns a session that has read all of these tokens anew, and the tokens with their probabilities."""
        session = self._engine.open(**self._options)
        with progress(f"prefill {len(tokens):,} tokens", self.verbose) as update:
            scores = session.prefill_scored(tokens, n_logprobs, update)
        return session, [Piece("", tokens[0])] + [
            Piece("", token, logprob, top) for token, (logprob, top) in zip(tokens[1:], scores)
        ]

    def _settings_of(self, session: Any) -> str:
        """Returns what a session's entries depend on besides its tokens, by which caches tell sessions apart."""
        statistics = session.statistics
        given = [self._options[name] for name in ("key_type", "value_type", "prefill_chunk")]
        return repr((self._model_name, session.n_ctx, statistics["method"], statistics["budget"], *given))

    def _from_cache(self, tokens: List[int], settings: str) -> Any:
        """Returns a cached session of these settings whose tokens begin these, or None.

        One that evicts must be of all these tokens. A file that cannot be read is one that is not there.
        """
        try:
            state = self.cache[PromptTokens(tokens, settings)]
        except KeyError:
            return None
        if isinstance(state, LlamaState):
            session = state._session.fork()
        else:
            try:
                session = self._engine.load_session(os.fspath(state))
            except (BadFile, NotFound, OSError):
                if isinstance(self.cache, LlamaDiskCache):
                    self.cache.discard(state)
                return None
        if self._settings_of(session) != settings or session.tokens != tokens[: session.n_tokens]:
            return None
        return session if session.n_tokens == len(tokens) or not session.evicts else None

    def _keep(self, session: Any, into_cache: bool = False) -> None:
        """Makes the session what was read last, and stores it in the cache if into_cache."""
        with self._lock:
            self._session = session
            self._is_continued = not session.evicts
        if into_cache and self.cache is not None:
            self.cache[PromptTokens(session.tokens, self._settings_of(session))] = LlamaState(session.fork())
