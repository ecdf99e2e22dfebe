"""A loaded model file and its tokenizer."""

from __future__ import annotations

import os
import threading
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Union

from . import _core
from .arguments import check_unused, entry_type, metadata_of, take_device_layers, whole_number
from .chat_formats import template_of
from .embedding import pooling_name
from .errors import InvalidArgument
from .hub import download
from .methods import Budget, budget_text
from .scores import Scores
from .tokenizer import LlamaTokenizer, bytes_of


def _refuse_closed() -> NoReturn:
    raise InvalidArgument("the model was closed: load it again with Llama(...)")


class _Closed:
    """A placeholder for what close() freed. Every use raises InvalidArgument."""

    def __getattr__(self, name: str) -> Any:
        _refuse_closed()


class LoadedModel:
    """The objects made from the arguments of `winnow.Llama`: model, tokenizer, threads and an empty cache."""

    def __init__(
        self,
        model_path: Union[str, os.PathLike[str]],
        *,
        n_ctx: int = 0,
        n_threads: Optional[int] = None,
        n_batch: int = 0,
        seed: Optional[int] = None,
        kv_evict: Optional[str] = None,
        kv_budget: Optional[Budget] = None,
        type_k: Union[str, int, None] = "f16",
        type_v: Union[str, int, None] = "f16",
        prefill_chunk: int = 0,
        kv_bytes_limit: int = 0,
        embedding: bool = False,
        pooling_type: Union[int, str] = -1,
        prefill_weights: str = "auto",
        device: str = "cpu",
        chat_format: Optional[str] = None,
        chat_template: Optional[str] = None,
        use_mmap: bool = True,
        last_n_tokens_size: int = 64,
        rope_scaling_type: Optional[int] = -1,
        rope_freq_base: float = 0.0,
        rope_freq_scale: float = 0.0,
        yarn_ext_factor: float = -1.0,
        yarn_attn_factor: float = 1.0,
        yarn_beta_fast: float = 32.0,
        yarn_beta_slow: float = 1.0,
        yarn_orig_ctx: int = 0,
        kv_overrides: Optional[Mapping[str, Union[bool, int, float, str]]] = None,
        spm_infill: bool = False,
        tokenizer: Any = None,
        logits_all: bool = False,
        verbose: bool = True,
        **others: Any,
    ):
        self._arguments = {name: value for name, value in locals().items() if name not in ("self", "others")} | others
        device_layers = take_device_layers(device, others)
        check_unused(others)
        metadata = metadata_of(
            kv_overrides,
            rope_scaling_type=rope_scaling_type,
            rope_freq_base=rope_freq_base,
            rope_freq_scale=rope_freq_scale,
            yarn_ext_factor=yarn_ext_factor,
            yarn_attn_factor=yarn_attn_factor,
            yarn_beta_fast=yarn_beta_fast,
            yarn_beta_slow=yarn_beta_slow,
            yarn_orig_ctx=yarn_orig_ctx,
        )
        self.model_path = os.fspath(model_path)
        self.verbose = verbose
        self.chat_format = chat_format
        self.last_n_tokens_size = last_n_tokens_size
        self.spm_infill = spm_infill
        self.cache: Any = None
        self._seed = seed
        self._logits_all = logits_all
        self._model: Any = _core.Model.load(self.model_path, use_mmap, template_of(chat_format, chat_template), metadata)
        self._model_name = (os.path.abspath(self.model_path), metadata)  # for caches that several models share
        self._tokenizer: Any = tokenizer or LlamaTokenizer(self)
        self.metadata: Dict[str, str] = self._model.metadata
        self._engine: Any = _core.Engine.create(
            self._model, n_threads or 0, kv_bytes_limit, n_batch, prefill_weights, device, device_layers
        )
        self._options = {
            "evict": kv_evict,
            "budget": budget_text(kv_budget),
            "n_ctx": whole_number("n_ctx", n_ctx),
            "key_type": entry_type(type_k),
            "value_type": entry_type(type_v),
            "prefill_chunk": prefill_chunk,
        }
        self._pooling = pooling_name(pooling_type)
        self._lock = threading.Lock()
        self._session: Any = self._engine.open(**self._options)  # has what was read last; forked or fed within the lock
        self._scores = Scores(lambda: self._engine.open(**self._options), self._model.info["n_vocab"])
        self._is_continued = not self._session.evicts  # true: a prompt that begins with it continues it

    @classmethod
    def from_pretrained(
        cls,
        repo_id: str,
        filename: str,
        additional_files: Optional[Sequence[str]] = None,
        local_dir: Union[str, os.PathLike[str], None] = None,
        local_dir_use_symlinks: Union[bool, str] = "auto",
        cache_dir: Union[str, os.PathLike[str], None] = None,
        **others: Any,
    ) -> "Llama":
        """Loads a model from a repository of Hugging Face's hub; needs huggingface_hub (`pip install huggingface_hub`).

        filename: a file of the repository, or a pattern that one of them matches ("*Q4_K_M.gguf"); if it is a part of a
        model, all parts are fetched. additional_files: names or patterns of other files to fetch. local_dir: a folder
        for the files instead of the hub's cache; cache_dir: that cache. local_dir_use_symlinks: for versions of
        huggingface_hub that know it. Further arguments are those of `Llama`. Errors of the download are
        huggingface_hub's own.
        """
        path = download(repo_id, filename, additional_files or (), local_dir, local_dir_use_symlinks, cache_dir)
        return cls(path, **others)

    def __getstate__(self) -> Dict[str, Any]:
        """Returns the arguments, as in llama-cpp-python: a copy loads the same file, and has read no tokens."""
        names = ("model_path", "chat_format", "last_n_tokens_size", "spm_infill", "verbose")  # their present values
        return {**self._arguments, **{name: getattr(self, name) for name in names}, "seed": self._seed}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def close(self) -> None:
        """Frees the model and its caches. Using the model afterwards raises InvalidArgument."""
        with self._lock:
            self.cache = None
            self._session = self._engine = self._model = self._tokenizer = self._scores = _Closed()

    def _check_open(self) -> None:
        """Raises InvalidArgument after close(), for callers that only hand the model on."""
        if isinstance(self._model, _Closed):
            _refuse_closed()

    def __enter__(self) -> "Llama":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    @property
    def info(self) -> Dict[str, Any]:
        """The model's dimensions, with a dict for each layer."""
        return self._model.info

    def n_ctx(self) -> int:
        """Returns the most tokens of a sequence."""
        return self._session.n_ctx

    def n_embd(self) -> int:
        """Returns the width of hidden states and embeddings."""
        return self.info["n_embd"]

    def n_vocab(self) -> int:
        """Returns the number of tokens that the model knows."""
        return self.info["n_vocab"]

    def token_bos(self) -> int:
        """Returns the token that begins a text, or -1 if the model has none."""
        return self._special(_core.SpecialToken.begin)

    def token_eos(self) -> int:
        """Returns the token that ends a text, or -1 if the model has none."""
        return self._special(_core.SpecialToken.end)

    def token_nl(self) -> int:
        """Returns the token of a line's end, or -1 if the model has none."""
        return self._special(_core.SpecialToken.newline)

    def _special(self, which: Any) -> int:
        token = self._model.special_token(which)
        return -1 if token is None else token

    def tokenizer(self) -> LlamaTokenizer:
        """Returns the model's tokenizer by itself."""
        return LlamaTokenizer(self)

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = False) -> List[int]:
        """Returns the tokens of a text. special: texts such as <|im_start|> become the tokens they name."""
        return self._tokenizer.tokenize(bytes_of(text), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False
    ) -> bytes:
        """Returns the bytes of tokens. special: includes those of special tokens. prev_tokens has no effect."""
        return self._tokenizer.detokenize(tokens, prev_tokens=prev_tokens, special=special)
