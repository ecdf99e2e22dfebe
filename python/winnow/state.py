"""Saved states of a model, from which it can continue later."""

from __future__ import annotations

import os
from typing import Any, Union


class LlamaState:
    """Tokens that a model has read, and their KV cache. Making one copies nothing: pages are shared until written."""

    def __init__(self, session: Any):
        self._session = session

    @property
    def n_tokens(self) -> int:
        """The number of tokens that were read, including those whose entries were evicted."""
        return self._session.n_tokens

    @property
    def llama_state_size(self) -> int:
        """The bytes of its pages, including those that it shares with others."""
        return self._session.statistics["bytes_in_pages"]

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the state to a checksummed file; `Llama.load_state` takes its path."""
        self._session.save(os.fspath(path))
