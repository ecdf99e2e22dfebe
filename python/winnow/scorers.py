"""Scorers in Python, which score the entries of a layer for eviction."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np

from . import _core
from .errors import InvalidArgument

LayerEvidence = _core.LayerEvidence


@dataclasses.dataclass(frozen=True)
class Number:
    """An option of a scorer: a number from low to high."""

    default: float
    low: float = -1e9
    high: float = 1e9
    help: str = ""

    def _declare(self, name: str) -> Any:
        return _core.number_option(name, self.low, self.high, self.default, self.help)

    def _read(self, text: str) -> float:
        return float(text)


@dataclasses.dataclass(frozen=True)
class Integer:
    """An option of a scorer: a whole number from low to high."""

    default: int
    low: int = 0
    high: int = 1 << 30
    help: str = ""

    def _declare(self, name: str) -> Any:
        return _core.integer_option(name, self.low, self.high, self.default, self.help)

    def _read(self, text: str) -> int:
        return int(text)


@dataclasses.dataclass(frozen=True)
class Choice:
    """An option of a scorer: one of several words."""

    default: str
    choices: Tuple[str, ...]
    help: str = ""

    def _declare(self, name: str) -> Any:
        return _core.choice_option(name, list(self.choices), self.default, self.help)

    def _read(self, text: str) -> str:
        return text


Option = Union[Number, Integer, Choice]
Score = Callable[..., Union[np.ndarray, Sequence[np.ndarray]]]


@dataclasses.dataclass
class _Registered:
    function: Score
    options: Dict[str, Option]
    preset: str


_REGISTERED: Dict[str, _Registered] = {}


def scorer(
    name: str,
    *,
    needs: Sequence[str] = (),
    options: Optional[Mapping[str, Option]] = None,
    preset: Optional[str] = None,
    is_attention: bool = False,
    is_non_negative: bool = False,
) -> Callable[[Score], Score]:
    """Returns a decorator that registers a function as a scorer and as a method of that name.

    The function takes a `LayerEvidence` and its options by name (hyphens as underscores), and returns a score for every
    entry, higher for entries to keep: an array [n_kv_head][n_prefix], or one for each KV head if they differ in length.
    Scores of the window's entries may follow; the window is kept whatever they are.

    name: lower-case letters, digits and hyphens.
    needs: names of the evidence that has to be saved while the layer runs: window_queries, window_mean, window_m2,
        window_max, window_last, window_entropy, query_moments, all_queries, log_sum_exp, reference_queries,
        output_projection.
    options: the scorer's options by name: Number, Integer, Choice. They are set as those of any method: "mine:power=2".
    preset: text form of the method; "snapkv:scorer=NAME" by default.
    is_attention: scores are attention weights, which `selector=critical` needs.
    is_non_negative: scores are never negative, which allocators that take their entropy need.

    A function that is registered under the same name again replaces the first; options and preset must be the same. It
    must not be registered during a computation.
    """

    def register(function: Score) -> Score:
        table = dict(options or {})
        text = preset or f"snapkv:scorer={name}"
        known = _REGISTERED.get(name)
        if known is not None and (known.options != table or known.preset != text):
            raise InvalidArgument(
                f"the scorer '{name}' already exists with other options or another preset: choose another name"
            )
        for option_name, option in table.items():
            if not isinstance(option, (Number, Integer, Choice)):
                raise InvalidArgument(
                    f"the option '{option_name}' of the scorer '{name}' is a winnow.Number, Integer or Choice, not "
                    f"{option!r}"
                )
        summary = (function.__doc__ or "a scorer in Python").strip().splitlines()[0]
        declared = [option._declare(option_name) for option_name, option in table.items()]
        _core.describe_scorer(name, list(needs), declared, is_attention, is_non_negative, text, summary)
        _REGISTERED[name] = _Registered(function, table, text)
        return function

    return register


def _score(name: str, layer: Any) -> List[np.ndarray]:
    """Returns a scorer's scores of a layer, float32 [n_prefix] for every KV head. The library calls it."""
    registered = _REGISTERED[name]
    texts = layer.options
    options = {
        option_name.replace("-", "_"): option._read(texts[option_name])
        for option_name, option in registered.options.items()
    }
    made = registered.function(layer, **options)
    if made is None or len(made) != layer.n_kv_head:
        got = "nothing" if made is None else f"{len(made)}"
        raise InvalidArgument(
            f"the scorer '{name}' must return scores for each of the {layer.n_kv_head} KV heads of a layer, not {got}"
        )
    rows = []
    for head, (row, n_prefix, n_entries) in enumerate(zip(made, layer.n_prefix, layer.n_entries)):
        scores = np.ascontiguousarray(row, dtype=np.float32)
        if scores.ndim != 1 or len(scores) not in (n_prefix, n_entries):
            raise InvalidArgument(
                f"the scorer '{name}' must return {n_prefix} scores for KV head {head} of layer {layer.layer} (or "
                f"{n_entries}, those of the window included), not an array of shape {list(scores.shape)}"
            )
        rows.append(scores[:n_prefix])
    return rows
