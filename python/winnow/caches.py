"""Caches of states for `Llama.set_cache`, under llama-cpp-python's names."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import os
import pathlib
import threading
import uuid
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .state import LlamaState

Key = Tuple[str, Tuple[int, ...]]  # settings ("": any) and tokens


class PromptTokens(tuple):
    """The tokens by which a cache keeps or finds a session, with the settings that its entries depend on, as a text."""

    settings: str

    def __new__(cls, tokens: Iterable[int], settings: str) -> "PromptTokens":
        made = super().__new__(cls, tokens)
        made.settings = settings
        return made


def _key(tokens: Sequence[int]) -> Key:
    return getattr(tokens, "settings", ""), tuple(tokens)


def _beginnings(keys: Iterable[Key], wanted: Sequence[int]) -> Iterator[Key]:
    """Yields the keys with which the wanted tokens begin, unless both have settings, and different ones."""
    settings, tokens = _key(wanted)
    for key in keys:
        if key[1] and tokens[: len(key[1])] == key[1] and (not settings or key[0] in ("", settings)):
            yield key


def _longest(keys: Iterable[Key], wanted: Sequence[int]) -> Key:
    """Returns the longest key with which the wanted tokens begin. Raises KeyError if there is none."""
    found = max(_beginnings(keys, wanted), key=lambda key: len(key[1]), default=None)
    if found is None:
        raise KeyError("no kept state begins these tokens")
    return found


def _has(keys: Iterable[Key], wanted: Sequence[int]) -> bool:
    return next(_beginnings(keys, wanted), None) is not None


class LlamaRAMCache:
    """A cache of states in memory, by their tokens, least recently used first out. Pages are shared, not copied.

    Several models and threads may share it: `Llama` finds only states of its own model and settings.
    """

    def __init__(self, capacity_bytes: int = 2 << 30):
        self.capacity_bytes = capacity_bytes
        self._lock = threading.RLock()
        self._states: collections.OrderedDict[Key, LlamaState] = collections.OrderedDict()

    @property
    def cache_size(self) -> int:
        """Bytes of the states' pages; a page that states share counts for each of them."""
        with self._lock:
            return sum(state.llama_state_size for state in self._states.values())

    def __getitem__(self, key: Sequence[int]) -> LlamaState:
        with self._lock:
            found = _longest(self._states, key)
            self._states.move_to_end(found)
            return self._states[found]

    def __contains__(self, key: Sequence[int]) -> bool:
        with self._lock:
            return _has(self._states, key)

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        with self._lock:
            self._states.pop(_key(key), None)
            self._states[_key(key)] = value
            while self._states and self.cache_size > self.capacity_bytes:
                self._states.popitem(last=False)


LlamaCache = LlamaRAMCache


class LlamaDiskCache:
    """A cache of states in checksummed files of a folder, made if it is missing; least recently used first out.

    Several models, threads and programs may share it: `Llama` finds only states of its own model and settings.
    """

    _lock = threading.RLock()  # one for all, since several caches may have one folder

    def __init__(self, cache_dir: Union[str, os.PathLike[str]] = ".cache/llama_cache", capacity_bytes: int = 2 << 30):
        self.capacity_bytes = capacity_bytes
        self._folder = pathlib.Path(cache_dir)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _entries(self) -> Iterator[Tuple[pathlib.Path, Key]]:
        for path in self._folder.glob("*.json"):
            try:
                entry = json.loads(path.read_text())
                key = (entry["settings"], tuple(entry["tokens"]))
            except (OSError, ValueError, LookupError, TypeError):
                continue  # another program has removed it, or it is damaged or of an older form
            yield path.with_suffix(".session"), key

    def _files(self) -> List[Tuple[pathlib.Path, os.stat_result]]:
        """Returns the folder's files, but those that another program removes meanwhile."""
        files = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                files.append((path, path.stat()))
        return files

    @property
    def cache_size(self) -> int:
        """Bytes of the folder's files."""
        with self._lock:
            return sum(status.st_size for _, status in self._files())

    def __getitem__(self, key: Sequence[int]) -> str:
        with self._lock:
            paths = {kept: path for path, kept in self._entries()}
            while True:
                path = paths.pop(_longest(paths, key))
                try:
                    os.utime(path)
                    return str(path)
                except FileNotFoundError:
                    self.discard(path)

    def __contains__(self, key: Sequence[int]) -> bool:
        with self._lock:
            return _has((kept for _, kept in self._entries()), key)

    def __setitem__(self, key: Sequence[int], value: LlamaState) -> None:
        settings, tokens = _key(key)
        text = json.dumps({"settings": settings, "tokens": tokens})
        path = self._folder / (hashlib.sha256(text.encode()).hexdigest() + ".session")
        part = self._folder / (uuid.uuid4().hex + ".part")
        with self._lock:
            value.save(path)
            # The tokens are written last and put in place by a rename, so a killed program leaves no broken entry.
            part.write_text(text)
            part.replace(path.with_suffix(".json"))
            while self.cache_size > self.capacity_bytes and (oldest := self._oldest()) is not None:
                self.discard(oldest)

    def discard(self, path: Union[str, os.PathLike[str]]) -> None:
        """Removes an entry by the path of its state, for one that cannot be loaded."""
        state = pathlib.Path(path)
        with self._lock:
            state.with_suffix(".json").unlink(missing_ok=True)
            state.unlink(missing_ok=True)

    def _oldest(self) -> Optional[pathlib.Path]:
        states = [(status.st_mtime, path) for path, status in self._files() if path.suffix == ".session"]
        return min(states, default=(0, None))[1]
