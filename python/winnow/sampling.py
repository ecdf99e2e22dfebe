"""Settings of the sampler, which chooses the next token."""

from __future__ import annotations

import dataclasses
import difflib
from typing import Any, List, Mapping, Optional, Sequence, Tuple

from . import _core
from .errors import InvalidArgument

RANDOM_SEED = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True)
class Sampling:
    """Settings of a sampler. Names and defaults are llama-cpp-python's, or llama.cpp's for fields that it lacks.

    A field that is set but has no effect because of another is refused (InvalidArgument).
    """

    temperature: float = 0.8  # 0: greedy
    top_k: int = 40  # 0 or -1: all
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_last_n: int = 64  # last tokens to which the penalties apply
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    typical_p: float = 1.0  # 1: all
    top_n_sigma: float = -1.0  # 0 or less: all
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    dry_multiplier: float = 0.0  # 0: no penalty of repeated sequences
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = -1  # -1: the context
    dry_sequence_breakers: Sequence[str] = ("\n", ":", '"', "*")
    mirostat_mode: int = 0  # 1 or 2: that version of Mirostat
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    logit_bias: Optional[Mapping[int, float]] = None  # numbers to add to the logits of tokens
    samplers: Optional[Sequence[str]] = None  # names in their order; None: all, in llama.cpp's order
    seed: Optional[int] = None  # None or -1: a random one

    @classmethod
    def of(cls, **fields: Any) -> "Sampling":
        """Returns the settings of a call's arguments. Raises TypeError for an unknown name."""
        known = [field.name for field in dataclasses.fields(cls)]
        for name in fields:
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise TypeError(f"there is no argument '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""))
        return cls(**fields)

    def _options(self) -> Any:
        options = _core.SamplingOptions()
        for name, value in vars(self).items():
            if name == "logit_bias":
                value = _biases(value)
            elif name == "seed":
                value = RANDOM_SEED if value is None or value == -1 else value
                if not 0 <= value <= RANDOM_SEED:
                    raise InvalidArgument(f"a seed is a number from 0 to {RANDOM_SEED}, or -1, not {value}")
            elif name in ("samplers", "dry_sequence_breakers"):
                value = None if value is None else list(value)
            if value is not None:
                setattr(options, name, value)
        return options

    def sampler(self, model: Any, tokens: Sequence[int], grammar: str = "", grammar_start: Any = None) -> Any:
        """Returns a sampler for an answer after these tokens, the last of which are in the state of its penalties."""
        options = self._options()
        options.grammar = grammar
        if grammar_start is not None:
            options.grammar_start = grammar_start
        sampler = _core.Sampler(model, options)
        for token in tokens[len(tokens) - options.n_looked_back(len(tokens)) :]:
            sampler.accept(token)
        return sampler


def _biases(given: Optional[Mapping[int, float]]) -> List[Tuple[int, float]]:
    return [(int(token), float(bias)) for token, bias in (given or {}).items()]
