"""A prompt of a document and a question about it."""

from __future__ import annotations

from typing import Any

from . import _core


def split(model: Any, document: str, question: str, chat: bool, system: str = "") -> tuple[str, str]:
    """Returns the prompt in two pieces: the part before the question, and the rest up to the answer."""
    if not chat:
        return document, "\n\n" + question
    return _core.split_chat(model, system, document, "\n\n" + question)
