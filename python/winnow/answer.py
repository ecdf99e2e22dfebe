"""Answers while they are generated, and the responses of OpenAI's completions API."""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

from . import _core
from .arguments import whole_number

Stop = Union[str, Sequence[str], None]


@dataclasses.dataclass
class Piece:
    """One step of an answer: a token, and the text that can be shown after it."""

    text: str  # whole characters that can be shown now, possibly none
    token: Optional[int] = None  # None in the last piece
    logprob: Optional[float] = None  # of the token: natural logarithm in the model's own distribution
    top: List[Tuple[int, float]] = dataclasses.field(default_factory=list)  # likeliest tokens with logprob, descending
    finish_reason: Optional[str] = None  # in the last piece: "stop" or "length"


def stop_list(stop: Stop) -> List[str]:
    if stop is None:
        return []
    return [stop] if isinstance(stop, str) else list(stop)


def token_limit(max_tokens: Optional[int]) -> int:
    return -1 if max_tokens is None else max(whole_number("max_tokens", max_tokens), 0) or -1


def pieces(session: Any, sampler: Any, *, n_logprobs: Optional[int] = None, **options: Any) -> Iterator[Piece]:
    """Yields the answer to the tokens that were fed to the session, token by token. Its last token is not fed."""
    generator = _core.Generator(session, sampler, feed_last=False, **options)
    while True:
        token, text, reason = generator.next()
        if reason is not None:
            stopped = reason in ("end-of-text", "stop-text", "stopped")
            yield Piece(text, finish_reason="stop" if stopped else "length")
            return
        piece = Piece(text, token)
        if n_logprobs is not None:
            piece.logprob, piece.top = _core.log_probabilities(session, token, n_logprobs)
        yield piece


def head(kind: str, object_name: str, model: str) -> Dict[str, Any]:
    """Returns the fields with which every response begins."""
    return {"id": f"{kind}-{uuid.uuid4()}", "object": object_name, "created": int(time.time()), "model": model}


def usage(n_prompt: int, n_answer: int) -> Dict[str, int]:
    return {"prompt_tokens": n_prompt, "completion_tokens": n_answer, "total_tokens": n_prompt + n_answer}


def _joined(first: Optional[Dict[str, List[Any]]], second: Dict[str, List[Any]]) -> Dict[str, List[Any]]:
    if first is None:
        return second
    for name, values in second.items():
        first[name] += values
    return first


class Completion:
    """A builder of a text completion's response, whole or in chunks."""

    def __init__(self, model: Any, model_name: str, n_prompt: int, echoed: str, scored: Sequence[Piece] = ()):
        """scored: the prompt's tokens with their probabilities, if the response contains them."""
        self._model = model
        self._head = head("cmpl", "text_completion", model_name)
        self._n_prompt = n_prompt
        self._echoed = echoed
        self._scored = scored

    def _text(self, token: int) -> str:
        return self._model.token_text(token, True).decode("utf-8", "replace")

    def _logprobs(self, piece: Piece, offset: int) -> Optional[Dict[str, List[Any]]]:
        if piece.token is None or piece.logprob is None:
            return None
        return self._entry(piece, offset)

    def _entry(self, piece: Piece, offset: int) -> Dict[str, List[Any]]:
        top = None if piece.logprob is None else {self._text(token): logprob for token, logprob in piece.top}
        return {
            "tokens": [self._text(piece.token)],
            "text_offset": [offset],
            "token_logprobs": [piece.logprob],
            "top_logprobs": [top],
        }

    def _prompt_logprobs(self) -> Optional[Dict[str, List[Any]]]:
        """Returns the entries of the prompt's tokens, or None if there are none. The first token has no probability."""
        logprobs: Optional[Dict[str, List[Any]]] = None
        rest, offset = self._echoed, 0
        for piece in self._scored:
            logprobs = _joined(logprobs, self._entry(piece, offset))
            text = self._text(piece.token)
            for form in (text, text[1:] if text.startswith(" ") else ""):  # the tokenizer may add a space
                if form and rest.startswith(form):
                    rest, offset = rest[len(form) :], offset + len(form)
                    break
        return logprobs

    def _choice(self, text: str, logprobs: Any = None, finish_reason: Optional[str] = None) -> Dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": logprobs, "finish_reason": finish_reason}
        return {**self._head, "choices": [choice]}

    def chunks(self, answer: Iterator[Piece]) -> Iterator[Dict[str, Any]]:
        if self._echoed or self._scored:
            yield self._choice(self._echoed, self._prompt_logprobs())
        offset = len(self._echoed)
        for piece in answer:
            yield self._choice(piece.text, self._logprobs(piece, offset), piece.finish_reason)
            offset += len(piece.text)

    def whole(self, answer: Iterator[Piece]) -> Dict[str, Any]:
        text = self._echoed
        logprobs = self._prompt_logprobs()
        n_tokens = 0
        finish_reason = None
        for piece in answer:
            part = self._logprobs(piece, len(text))
            if part is not None:
                logprobs = _joined(logprobs, part)
            text += piece.text
            n_tokens += piece.token is not None
            finish_reason = piece.finish_reason
        response = self._choice(text, logprobs, finish_reason)
        response["usage"] = usage(self._n_prompt, n_tokens)
        return response
