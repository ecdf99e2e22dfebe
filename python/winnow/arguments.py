"""Arguments of llama-cpp-python's that have another meaning here, or no effect."""

from __future__ import annotations

import operator
import reprlib
import warnings
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

from .errors import InvalidArgument, Unsupported

# Arguments that have no effect, with llama-cpp-python's defaults. Most are for devices and memory that winnow does not
# have; attention is always computed without a matrix of scores (flash_attn). n_gpu_layers has one on a GPU.
_WITHOUT_EFFECT: Dict[str, Any] = {
    "n_gpu_layers": 0,
    "split_mode": 1,
    "main_gpu": 0,
    "tensor_split": None,
    "vocab_only": False,
    "use_mlock": False,
    "n_ubatch": 512,
    "n_threads_batch": None,
    "offload_kqv": True,
    "flash_attn": False,
    "op_offload": None,
    "swa_full": None,
    "no_perf": False,
    "numa": False,
    "attention_type": -1,
    "lora_base": None,
    "lora_scale": 1.0,
}
# Arguments that are refused, since their effect would be missed: the default, and what to do instead.
_REFUSED: Dict[str, Tuple[Any, str]] = {
    "lora_path": (None, "merge the adapter into the model file"),
    "draft_model": (None, "answers are the same without it"),
    "chat_handler": (None, "give a template as Jinja in chat_template"),
}
# Arguments of calls that have no effect, with their defaults; llama.cpp has dropped these samplers, too.
_OF_CALLS: Dict[str, Any] = {"tfs_z": 1.0, "penalize_nl": True}


def _warn(names: List[str], level: int) -> None:
    if not names:
        return
    verbs = ("has", "was") if len(names) == 1 else ("have", "were")
    warnings.warn(f"{', '.join(names)} {verbs[0]} no effect here and {verbs[1]} left out", stacklevel=level + 1)


def check_unused(others: Mapping[str, Any]) -> None:
    """Warns once of all arguments of Llama that have no effect and are not the default.

    Raises Unsupported for an argument whose effect would be missed, and TypeError for an unknown one.
    """
    for name, value in others.items():
        if name in _REFUSED:
            otherwise, advice = _REFUSED[name]
            if value is not otherwise:
                raise Unsupported(f"{name} is not supported: {advice}")
        elif name not in _WITHOUT_EFFECT:
            raise TypeError(f"Llama has no argument '{name}'")
    if others.get("attention_type", -1) == 1:
        raise Unsupported("attention_type=1 (every token sees those after it) is not supported")
    _warn([name for name, value in others.items() if name in _WITHOUT_EFFECT and value != _WITHOUT_EFFECT[name]], 3)


def take_device_layers(device: str, others: Dict[str, Any]) -> int:
    """Takes n_gpu_layers out of the arguments if there may be a GPU, and returns the layers whose weights stay on it.

    -1: as many as fit. So is 0, llama-cpp-python's default: the device says whether there is a GPU.
    """
    return -1 if device == "cpu" else others.pop("n_gpu_layers", 0) or -1


def without_unused(others: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns a call's arguments without those that have no effect, and warns of these."""
    _warn([name for name, value in others.items() if name in _OF_CALLS and value != _OF_CALLS[name]], 3)
    return {name: value for name, value in others.items() if name not in _OF_CALLS}


_LOWEST, _HIGHEST = -(1 << 31), (1 << 31) - 1  # of the library's numbers


def whole_number(name: str, value: Any, low: int = _LOWEST) -> int:
    """Returns a whole number. Raises InvalidArgument for another type, or a number that is out of range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is a whole number, not {reprlib.repr(value)}") from None
    if not low <= number <= _HIGHEST:
        raise InvalidArgument(f"{name} is {number}: give {low} to {_HIGHEST}")
    return number


def token_list(tokens: Iterable[Any]) -> List[int]:
    """Returns tokens as a list. Raises InvalidArgument for what is none; the library knows which ones the model has."""
    try:
        made = [operator.index(token) for token in tokens]
    except TypeError:
        raise InvalidArgument(f"a prompt is one text or a list of tokens, not {reprlib.repr(tokens)}") from None
    for token in made:
        if not _LOWEST <= token <= _HIGHEST:
            raise InvalidArgument(f"token {token} is outside the vocabulary")
    return made


# Types of cache entries by ggml's numbers.
_ENTRY_TYPES = {0: "f32", 1: "f16", 2: "q4_0", 8: "q8_0", 30: "bf16"}


def entry_type(given: Union[str, int, None]) -> str:
    """Returns the name of a type of cache entries that is given by name, by ggml's number, or as None for f16."""
    if given is None:
        return "f16"
    if isinstance(given, str):
        return given
    if given not in _ENTRY_TYPES:
        known = ", ".join(f"{number} ({name})" for number, name in _ENTRY_TYPES.items())
        raise InvalidArgument(f"keys and values cannot be stored as ggml's type {given}: give {known}, or a name")
    return _ENTRY_TYPES[given]


_SCALINGS = {0: "none", 1: "linear", 2: "yarn", 3: "longrope"}


def metadata_of(
    kv_overrides: Optional[Mapping[str, Any]],
    *,
    rope_scaling_type: Optional[int],
    rope_freq_base: float,
    rope_freq_scale: float,
    yarn_ext_factor: float,
    yarn_attn_factor: float,
    yarn_beta_fast: float,
    yarn_beta_slow: float,
    yarn_orig_ctx: int,
) -> List[Tuple[str, Any]]:
    """Returns the metadata that replaces the model file's. llama-cpp-python's defaults change nothing."""
    changes: List[Tuple[str, Any]] = list((kv_overrides or {}).items())
    for name, value in changes:
        if not isinstance(value, (bool, int, float, str)):
            raise InvalidArgument(f"kv_overrides[{name!r}] must be a truth value, a number or a text, not {value!r}")
    if rope_scaling_type not in (None, -1):
        if rope_scaling_type not in _SCALINGS:
            known = ", ".join(f"{number} ({name})" for number, name in _SCALINGS.items())
            raise InvalidArgument(f"rope_scaling_type is -1 (the model's) or one of {known}, not {rope_scaling_type}")
        changes.append((".rope.scaling.type", _SCALINGS[rope_scaling_type]))
    if rope_freq_base != 0:
        changes.append((".rope.freq_base", float(rope_freq_base)))
    if rope_freq_scale != 0:
        changes.append((".rope.scaling.factor", 1.0 / rope_freq_scale))
    if yarn_orig_ctx != 0:
        changes.append((".rope.scaling.original_context_length", int(yarn_orig_ctx)))
    if yarn_ext_factor >= 0:
        changes.append((".rope.scaling.yarn_ext_factor", float(yarn_ext_factor)))
    for name, value, otherwise, key in (
        ("yarn_attn_factor", yarn_attn_factor, 1.0, ".rope.scaling.attn_factor"),
        ("yarn_beta_fast", yarn_beta_fast, 32.0, ".rope.scaling.yarn_beta_fast"),
        ("yarn_beta_slow", yarn_beta_slow, 1.0, ".rope.scaling.yarn_beta_slow"),
    ):
        if value not in (otherwise, -1):
            changes.append((key, float(value)))
    return changes
