"""Logits processors and stopping criteria, functions that a caller supplies in llama-cpp-python's form."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional, Union

import numpy as np

from .errors import InvalidArgument

# A function of the tokens that were read (int32 [n]) and the logits after them (float32 [n_vocab]). It returns the
# logits to choose from.
LogitsProcessor = Callable[[Any, Any], Any]
# A function of the same arguments. It returns whether the answer ends here.
StoppingCriteria = Callable[[Any, Any], bool]


class LogitsProcessorList(List[LogitsProcessor]):
    """A list of processors that are applied one after the other."""

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        for processor in self:
            scores = processor(input_ids, scores)
        return scores


class StoppingCriteriaList(List[StoppingCriteria]):
    """A list of criteria. The answer ends if any of them is true; all of them are called."""

    def __call__(self, input_ids: Any, logits: Any) -> bool:
        return any([criterion(input_ids, logits) for criterion in self])


class MinTokensLogitsProcessor:
    """A processor that bans the end token from the first min_tokens tokens of an answer."""

    def __init__(self, min_tokens: int, token_eos: int):
        self.min_tokens = min_tokens
        self.token_eos = token_eos
        self.prompt_tokens: Optional[int] = None

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        if self.prompt_tokens is None:
            self.prompt_tokens = len(input_ids)
        if len(input_ids) - self.prompt_tokens < self.min_tokens:
            scores[self.token_eos] = -np.inf
        return scores


def _one(given: Any, collection: Any) -> Any:
    """Returns one function for a function or for several of them, which become a `collection`; None for none."""
    if given is None or callable(given):
        return given
    return collection(given) if given else None


def hook(
    session: Any,
    logits_processor: Union[LogitsProcessor, Iterable[LogitsProcessor], None],
    stopping_criteria: Union[StoppingCriteria, Iterable[StoppingCriteria], None],
) -> Optional[Callable[[Any], Any]]:
    """Returns both as one function of the logits, which returns None if the answer ends; None if neither is given."""
    process = _one(logits_processor, LogitsProcessorList)
    ends = _one(stopping_criteria, StoppingCriteriaList)
    if process is None and ends is None:
        return None

    def before_choice(logits: Any) -> Any:
        tokens = np.array(session.tokens, dtype=np.intc)
        if ends is not None and ends(tokens, logits.copy()):
            return None
        if process is None:
            return logits
        made = np.ascontiguousarray(process(tokens, logits), dtype=np.single)
        if made.shape != logits.shape:
            raise InvalidArgument(f"logits_processor returned an array of shape {made.shape}, expected {logits.shape}")
        if np.isnan(made).any() or np.isposinf(made).any() or np.isneginf(made).all():
            raise InvalidArgument("logits_processor returned logits that are NaN or +infinity, or that allow no token")
        return made

    return before_choice
