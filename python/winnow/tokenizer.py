"""Texts to tokens and back."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union


class LlamaTokenizer:
    """A model's tokenizer by itself."""

    def __init__(self, llama: Any):
        self._model = llama._model

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = True) -> List[int]:
        return self._model.tokenize(text.encode() if isinstance(text, str) else bytes(text), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False
    ) -> bytes:
        return b"".join(self._model.token_text(token, special) for token in tokens)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> List[int]:
        return self.tokenize(text, add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        return self.detokenize(tokens).decode("utf-8", "replace")
