"""The conversion of texts to tokens and back."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union


class LlamaTokenizer:
    """A model's tokenizer by itself."""

    def __init__(self, llama: Any):
        self._model = llama._model

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = True) -> List[int]:
        """Returns the tokens of a text. special: texts such as <|im_start|> become the tokens they name."""
        return self._model.tokenize(text.encode() if isinstance(text, str) else bytes(text), add_bos, special)

    def detokenize(
        self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None, special: bool = False
    ) -> bytes:
        """Returns the bytes of tokens. special: includes those of special tokens. prev_tokens has no effect."""
        return b"".join(self._model.token_text(token, special) for token in tokens)

    def encode(self, text: str, add_bos: bool = True, special: bool = True) -> List[int]:
        """Returns what tokenize() returns."""
        return self.tokenize(text, add_bos, special)

    def decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; bytes that are not UTF-8 become U+FFFD."""
        return self.detokenize(tokens).decode("utf-8", "replace")
