"""Runs language models on long prompts with a KV cache that keeps only the entries that attention will need.

    from winnow import Llama

    llm = Llama("model.gguf", kv_evict="snapkv", kv_budget="20%")
    print(llm("The capital of France is", max_tokens=16)["choices"][0]["text"])
"""

from ._core import __version__
from .caches import LlamaCache, LlamaDiskCache, LlamaRAMCache
from .context import Context
from .errors import (
    BadFile,
    Cancelled,
    ContextFull,
    Error,
    InternalError,
    InvalidArgument,
    IoError,
    MissingPackage,
    NotFound,
    OutOfMemory,
    Unsupported,
)
from .evaluation import benchmarks, evaluate, read_results
from .grammar import LlamaGrammar
from .llama import Llama
from .methods import methods
from .processors import LogitsProcessorList, MinTokensLogitsProcessor, StoppingCriteriaList
from .sampling import Sampling
from .scorers import Choice, Integer, LayerEvidence, Number, scorer
from .state import LlamaState
from .tokenizer import LlamaTokenizer

__all__ = [
    "BadFile",
    "Cancelled",
    "Choice",
    "Context",
    "ContextFull",
    "Error",
    "Integer",
    "InternalError",
    "InvalidArgument",
    "IoError",
    "LayerEvidence",
    "Llama",
    "LlamaCache",
    "LlamaDiskCache",
    "LlamaGrammar",
    "LlamaRAMCache",
    "LlamaState",
    "LlamaTokenizer",
    "LogitsProcessorList",
    "MinTokensLogitsProcessor",
    "MissingPackage",
    "NotFound",
    "Number",
    "OutOfMemory",
    "Sampling",
    "StoppingCriteriaList",
    "Unsupported",
    "__version__",
    "benchmarks",
    "evaluate",
    "methods",
    "read_results",
    "scorer",
]
