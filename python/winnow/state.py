"""What a model has read, to go on from there later."""

from __future__ import annotations

import os
from typing import Any, Union


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
