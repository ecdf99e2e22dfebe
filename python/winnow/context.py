"""A document that was read and compressed once, for any number of questions."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Union

import numpy as np

from .answer import Stop, pieces, stop_list, token_limit
from .document_prompt import split
from .errors import InvalidArgument, MissingPackage
from .reading import Reading
from .sampling import Sampling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_BINS = 256  # columns of the map


class Context:
    """The entries that a method kept of a document's cache. Made by `Llama.compress` and `Llama.load_context`.

    Questions do not change it: each is answered by a fork, which shares the pages until it writes.
    """

    def __init__(self, llm: Reading, session: Any, chat: bool, is_asked: bool = False):
        self._llm = llm
        self._session = session  # never fed
        self._chat = chat
        self._is_asked = is_asked  # the question was read with the document
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        statistics = self.statistics
        return (
            f"<winnow.Context of {self.n_tokens:,} tokens: {statistics['method']}, "
            f"{statistics['entries_kept']:,} of {statistics['entries_full']:,} entries>"
        )

    # --- Questions ---------------------------------------------------------------------------------------------------

    def ask(
        self,
        question: Union[str, Sequence[str], None] = None,
        *,
        max_tokens: Optional[int] = 128,
        stop: Stop = None,
        temperature: float = 0.0,
        seed: Optional[int] = None,
        **others: Any,
    ) -> Any:
        """Returns the answer to a question, or a list of answers to a list of questions, each as if it were the first.

        Without a question it answers the one that the document was read with.
        """
        self._llm._check_open()
        if (question is None) != self._is_asked:
            raise InvalidArgument(
                "the context was read with its question: call ask() without one"
                if self._is_asked
                else "ask() needs a question, unless compress() had one"
            )
        sampling = Sampling.of(
            temperature=temperature, seed=self._llm._seed if seed is None else seed, **others
        )
        options = {"max_tokens": token_limit(max_tokens), "stops": stop_list(stop)}
        if question is None or isinstance(question, str):
            return self._answer(question, sampling, options)
        return [self._answer(one, sampling, options) for one in question]

    def _answer(self, question: Optional[str], sampling: Sampling, options: Dict[str, Any]) -> str:
        with self._lock:
            session = self._session.fork()
        if question is not None:
            # The prompt after the document does not depend on the document.
            _, after = split(self._llm._model, "document", question, self._chat)
            self._llm._feed(session, self._llm.tokenize(after, False, True))
        sampler = sampling.sampler(self._llm._model, session.tokens)
        return "".join(piece.text for piece in pieces(session, sampler, **options))

    # --- Kept entries ------------------------------------------------------------------------------------------------

    @property
    def n_tokens(self) -> int:
        """The number of tokens that were read."""
        return self._session.n_tokens

    @property
    def tokens(self) -> List[int]:
        """The tokens that were read, [n_tokens]."""
        return self._session.tokens

    @property
    def statistics(self) -> Dict[str, Any]:
        """Method and budget, tokens, entries and bytes of the full cache (in f16) and of the kept one, seconds."""
        return self._session.statistics

    @property
    def kept(self) -> np.ndarray:
        """Numbers of entries that KV heads hold: int32 [n_layer][n_kv_head], 0 for heads that a layer does not have."""
        rows = self._session.kept
        table = np.zeros((len(rows), max(map(len, rows), default=0)), np.int32)
        for row, heads in zip(table, rows):
            row[: len(heads)] = heads
        return table

    def positions(self, layer: int, head: int) -> np.ndarray:
        """Returns the positions of the tokens whose entries a KV head holds, ascending: int32 [n_entries]."""
        return self._session.positions(layer, head)

    def keys(self, layer: int, head: int) -> np.ndarray:
        """Returns the keys that a KV head holds, rotated by their positions: float32 [n_entries][key_dim], a copy."""
        with self._lock:
            return self._session.keys(layer, head)

    def values(self, layer: int, head: int) -> np.ndarray:
        """Returns the values that a KV head holds: float32 [n_entries][value_dim], a copy."""
        with self._lock:
            return self._session.values(layer, head)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Writes the context to a checksummed file, first under a temporary name, for `Llama.load_context`."""
        self._session.save(os.fspath(path))

    def plot(self, ax: Optional[Axes] = None) -> Axes:
        """Draws which positions are kept: a row for every KV head of every layer, the first layer at the top."""
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise MissingPackage("plot() needs matplotlib: pip install matplotlib") from None
        heads = [(layer, head) for layer, row in enumerate(self._session.kept) for head in range(len(row))]
        edges = np.linspace(0, self.n_tokens, min(_N_BINS, self.n_tokens) + 1)
        counts = np.stack([np.histogram(self.positions(*head), edges)[0] for head in heads])
        shares = counts / np.histogram(np.arange(self.n_tokens), edges)[0]
        if ax is None:
            _, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
        image = ax.imshow(
            shares, aspect="auto", interpolation="nearest", vmin=0, vmax=1, extent=(0, self.n_tokens, len(heads), 0)
        )
        statistics = self.statistics
        share = statistics["entries_kept"] / statistics["entries_full"]
        ax.set(
            xlabel="position",
            ylabel="KV head, layer by layer",
            title=f"{statistics['method']}, {share:.1%} of {self.n_tokens:,} tokens",
        )
        ax.figure.colorbar(image, ax=ax, label="share kept")
        return ax
