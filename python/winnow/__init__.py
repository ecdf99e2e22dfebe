"""Language models on long prompts with a KV cache that keeps only what attention will need.

    from winnow import Llama

    llm = Llama("model.gguf", kv_evict="snapkv", kv_budget="20%")
    print(llm("The capital of France is", max_tokens=16)["choices"][0]["text"])
"""

from ._core import __version__
from .context import Context
from .errors import (
    BadFile,
    Cancelled,
    ContextFull,
    Error,
    InternalError,
    InvalidArgument,
    IoError,
    NotFound,
    OutOfMemory,
    Unsupported,
)
from .grammar import LlamaGrammar
from .llama import Llama, LlamaState
from .methods import methods

__all__ = [
    "BadFile",
    "Cancelled",
    "Context",
    "ContextFull",
    "Error",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "Llama",
    "LlamaGrammar",
    "LlamaState",
    "NotFound",
    "OutOfMemory",
    "Unsupported",
    "__version__",
    "methods",
]
