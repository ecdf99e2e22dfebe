"""A prompt of a document and a question about it."""

from __future__ import annotations

from typing import Any

from . import _core


def split(model: Any, document: str, question: str, chat: bool, system: str = "") -> tuple[str, str]:
    """The prompt in two pieces: what is known before the question, and the rest up to where the answer begins."""
    if not chat:
        return document, "\n\n" + question
    return _core.split_chat(model, system, document, "\n\n" + question)
