"""How the next token is chosen."""

from __future__ import annotations

import dataclasses
from typing import Any, Sequence

from . import _core
from .errors import InvalidArgument

RANDOM_SEED = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Names and defaults as llama-cpp-python's."""

    temperature: float = 0.8  # 0: always the likeliest token
    top_k: int = 40  # 0 or -1: all
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_last_n: int = 64  # tokens that the penalties look at
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int = RANDOM_SEED

    def sampler(self, model: Any, tokens: Sequence[int], **grammar: Any) -> Any:
        """For an answer behind these tokens."""
        if not 0 <= self.seed <= RANDOM_SEED:
            raise InvalidArgument(f"a seed is a number from 0 to {RANDOM_SEED}, not {self.seed}")
        sampler = _core.Sampler(model, **dataclasses.asdict(self), **grammar)
        if self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0:
            for token in tokens[max(len(tokens) - self.repeat_last_n, 0) :]:
                sampler.accept(token)
        return sampler
