"""The logits after every token. A prefill computes only those after the last token."""

from __future__ import annotations

from typing import Any, Callable, List, Sequence

import numpy as np

from .progress import progress


class Scores:
    """The logits after all tokens of one text at a time, computed on request by reading it token by token."""

    def __init__(self, open_session: Callable[[], Any], n_vocab: int):
        self._open = open_session
        self._n_vocab = n_vocab
        self._forget()

    def _forget(self) -> None:
        self._session: Any = None
        self._tokens: List[int] = []
        self._rows = np.empty((0, self._n_vocab), np.single)  # may have more rows than there are tokens

    def of(self, tokens: Sequence[int], verbose: bool) -> np.ndarray:
        """Returns float32 [n_tokens][n_vocab]. If the tokens continue the last call's, only the new ones are read."""
        n_known = min(len(self._tokens), len(tokens))
        if self._tokens[:n_known] != list(tokens[:n_known]):
            self._forget()
            n_known = 0
        if len(tokens) > len(self._rows):
            rows = np.empty((max(len(tokens), 2 * len(self._rows)), self._n_vocab), np.single)
            rows[:n_known] = self._rows[:n_known]
            self._rows = rows
        with progress(f"logits of {len(tokens) - n_known:,} tokens", verbose) as update:
            for token in tokens[n_known:]:
                if self._session is None:
                    session = self._open()
                    session.prefill([token])
                    self._session = session
                else:
                    self._session.append([token])  # computed as a prefill, not as a decoding step
                self._rows[len(self._tokens)] = self._session.logits()
                self._tokens.append(token)
                if update is not None:
                    update(len(self._tokens) - n_known, len(tokens) - n_known)
        return self._rows[: len(tokens)]
