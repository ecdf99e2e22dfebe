"""Grammars that an answer must follow."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, Optional, Union

from . import _core
from .errors import InvalidArgument


class LlamaGrammar:
    """A grammar in GBNF with the root rule `root`, under llama-cpp-python's name. Its text can be used instead."""

    def __init__(self, gbnf: str):
        self.gbnf = gbnf

    @classmethod
    def from_string(cls, grammar: str, verbose: bool = True) -> LlamaGrammar:
        """Returns the grammar of a GBNF text, which is parsed when it is first used."""
        return cls(grammar)

    @classmethod
    def from_file(cls, file: Union[str, os.PathLike[str]], verbose: bool = True) -> LlamaGrammar:
        """Returns the grammar of a GBNF file."""
        with open(file, encoding="utf-8") as text:
            return cls(text.read())

    @classmethod
    def from_json_schema(cls, json_schema: str, verbose: bool = True) -> LlamaGrammar:
        """Returns the grammar of a JSON Schema. Raises InvalidArgument for a schema that it cannot enforce."""
        return cls(_core.json_schema_grammar(json_schema))


Grammar = Union[str, LlamaGrammar, None]


def gbnf_of(grammar: Grammar, response_format: Optional[Dict[str, Any]] = None) -> str:
    """Returns the GBNF of whichever is given, "" for neither. Raises InvalidArgument if both are given."""
    text = grammar.gbnf if isinstance(grammar, LlamaGrammar) else grammar or ""
    if response_format is None:
        return text
    if text:
        raise InvalidArgument("grammar and response_format exclude each other: leave one out")
    kind = response_format.get("type")
    if kind == "text":
        return ""
    if kind == "json_object":
        schema = response_format.get("schema")
        return _core.json_object_grammar() if schema is None else _core.json_schema_grammar(json.dumps(schema))
    if kind == "json_schema":
        try:
            schema = response_format["json_schema"]["schema"]
        except (KeyError, TypeError):
            raise InvalidArgument("response_format's json_schema must be a dict with a 'schema'") from None
        return _core.json_schema_grammar(json.dumps(schema))
    raise InvalidArgument(f"response_format's type is text, json_object or json_schema, not {kind!r}")
