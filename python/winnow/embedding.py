"""Embeddings: names of poolings, and OpenAI's response."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Union

from .errors import InvalidArgument

NUMBERS = {1: "mean", 2: "cls", 3: "last"}


def pooling_name(pooling: Union[int, str]) -> Optional[str]:
    """Returns the name of a pooling that is given by name or llama.cpp's number; None for -1, the model's own."""
    if pooling == -1:
        return None
    name = pooling if isinstance(pooling, str) else NUMBERS.get(pooling)
    if name not in NUMBERS.values():
        raise InvalidArgument(f"embeddings are pooled by mean (1), cls (2) or last (3), not {pooling!r}")
    return name


def texts_of(given: Union[str, bytes, Iterable[Union[str, bytes]]]) -> List[Union[str, bytes]]:
    """Returns one or more texts as a list. Raises InvalidArgument for what is neither."""
    if isinstance(given, (str, bytes)):
        return [given]
    if not isinstance(given, Iterable):
        raise InvalidArgument(f"embeddings are those of a text or a list of texts, not of {given!r}")
    return list(given)


def response(vectors: List[List[float]], model: str, n_tokens: int) -> Dict[str, Any]:
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "embedding": vector, "index": i} for i, vector in enumerate(vectors)
        ],
        "model": model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
    }
