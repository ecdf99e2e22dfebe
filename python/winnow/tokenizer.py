"""The conversion of texts to tokens and back."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence, Union

from .errors import InvalidArgument


def bytes_of(text: Union[bytes, str]) -> bytes:
    """Returns a text's bytes. Raises InvalidArgument for what is none: bytes() makes zeros of a number."""
    if isinstance(text, str):
        return text.encode()
    if not isinstance(text, (bytes, bytearray, memoryview)):
        raise InvalidArgument(f"a text is a str or bytes, not {text!r}")
    return bytes(text)


class LlamaTokenizer:
    """A model's tokenizer by itself."""

    def __init__(self, llama: Any):
        self._model = llama._model

    def tokenize(self, text: Union[bytes, str], add_bos: bool = True, special: bool = True) -> List[int]:
        """Returns the tokens of a text. special: texts such as <|im_start|> become the tokens they name."""
        return self._model.tokenize(bytes_of(text), add_bos, special)

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
