"""Caches of states for `Llama.set_cache`, under llama-cpp-python's names."""

from __future__ import annotations

import collections
import hashlib
import json
import os
import pathlib
from typing import Iterable, Optional, Sequence, Tuple, Union

from .state import LlamaState

Key = Tuple[int, ...]


def _longest(keys: Iterable[Key], wanted: Sequence[int]) -> Key:
    """Returns the longest key with which the wanted tokens begin. Raises KeyError if there is none."""
    tokens = tuple(wanted)
    found = max((key for key in keys if key and tokens[: len(key)] == key), key=len, default=None)
    if found is None:
        raise KeyError("no kept state begins these tokens")
    return found


def _has(keys: Iterable[Key], wanted: Sequence[int]) -> bool:
    tokens = tuple(wanted)
    return any(key and tokens[: len(key)] == key for key in keys)


class LlamaRAMCache:
    """A cache of states in memory, by their tokens, least recently used first out. Pages are shared, not copied."""

    def __init__(self, capacity_bytes: int = 2 << 30):
        self.capacity_bytes = capacity_bytes
        self._states: collections.OrderedDict[Key, LlamaState] = collections.OrderedDict()

    @property
    def cache_size(self) -> int:
        """Bytes of the states' pages; a page that states share counts for each of them."""
        return sum(state.llama_state_size for state in self._states.values())

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        found = _longest(self._states, key)
        self._states.move_to_end(found)
        return self._states[found]

    def __contains__(self, key: Sequence[int]) -> bool:
        return _has(self._states, key)

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        self._states.pop(tuple(key), None)
        self._states[tuple(key)] = value
        while self._states and self.cache_size > self.capacity_bytes:
            self._states.popitem(last=False)


LlamaCache = LlamaRAMCache


class LlamaDiskCache:
    """A cache of states in checksummed files of a folder, made if it is missing; least recently used first out.

    A file belongs to one model: use one folder for each.
    """

    def __init__(self, cache_dir: Union[str, os.PathLike[str]] = ".cache/llama_cache", capacity_bytes: int = 2 << 30):
        self.capacity_bytes = capacity_bytes
        self._folder = pathlib.Path(cache_dir)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _tokens(self) -> Iterable[Tuple[pathlib.Path, Key]]:
        for path in self._folder.glob("*.json"):
            yield path.with_suffix(".session"), tuple(json.loads(path.read_text()))

    @property
    def cache_size(self) -> int:
        """Bytes of the folder's files."""
        return sum(path.stat().st_size for path in self._folder.iterdir())

    def __getitem__(self, key: Sequence[int]) -> str:
        paths = {tokens: path for path, tokens in self._tokens()}
        path = paths[_longest(paths, key)]
        os.utime(path)
        return str(path)

    def __contains__(self, key: Sequence[int]) -> bool:
        return _has((tokens for _, tokens in self._tokens()), key)

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        text = json.dumps(list(key))
        path = self._folder / (hashlib.sha256(text.encode()).hexdigest() + ".session")
        value.save(path)
        # The tokens are written last and put in place by a rename, so a killed program leaves no broken entry.
        path.with_suffix(".part").write_text(text)
        path.with_suffix(".part").replace(path.with_suffix(".json"))
        while self.cache_size > self.capacity_bytes and (oldest := self._oldest()) is not None:
            oldest.with_suffix(".json").unlink(missing_ok=True)
            oldest.unlink(missing_ok=True)

    def _oldest(self) -> Optional[pathlib.Path]:
        return min(self._folder.glob("*.session"), key=lambda path: path.stat().st_mtime, default=None)
