"""Completions of prompts, and answers to chat messages."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _core
from .answer import Completion, Piece, Stop, pieces, stop_list, token_limit
from .arguments import token_list, whole_number, without_unused
from .chat import ChatCompletion, messages_of, options_of, tools_of_functions
from .chat_formats import stops_of
from .errors import InvalidArgument
from .grammar import Grammar, gbnf_of
from .processors import hook
from .reading import Reading
from .sampling import Sampling

Prompt = Union[str, Sequence[int]]


class Completions(Reading):
    """The part of `Llama` that generates answers, whole or in chunks."""

    def _answer(self, session: Any, sampler: Any, **options: Any) -> Iterator[Piece]:
        """Yields an answer, after which the session is what was read last and goes into the cache."""
        yield from pieces(session, sampler, **options)
        self._keep(session, into_cache=True)

    def _sampler(
        self, tokens: Sequence[int], grammar: str, grammar_start: Any = None, /, *, seed: Optional[int] = None, **fields: Any
    ) -> Any:
        """Returns a sampler for the text after these tokens. `Llama`'s seed and last_n_tokens_size are the defaults."""
        fields.setdefault("repeat_last_n", self.last_n_tokens_size)
        sampling = Sampling.of(seed=self._seed if seed is None else seed, **fields)
        return sampling.sampler(self._model, tokens, grammar, grammar_start)

    def _infill_tokens(self, prompt: Prompt, suffix: str) -> List[int]:
        """Returns a prompt for the text between the two. Raises InvalidArgument if the model has no tokens for it."""
        names = ("infill_prefix", "infill_suffix", "infill_middle")
        marks = [self._special(getattr(_core.SpecialToken, name)) for name in names]
        if -1 in marks:
            raise InvalidArgument("suffix needs a model that was trained to fill in the middle, and this one has no tokens for it")
        is_text = isinstance(prompt, (str, bytes))
        before = [marks[0], *(self.tokenize(prompt, False, False) if is_text else token_list(prompt))]
        after = [marks[1], *self.tokenize(suffix, False, False)]
        start = self.tokenize("", True) if is_text else []
        return start + (after + before if self.spm_infill else before + after) + [marks[2]]

    def create_completion(
        self,
        prompt: Prompt,
        suffix: Optional[str] = None,
        max_tokens: Optional[int] = 16,
        temperature: float = 0.8,
        top_p: float = 0.95,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        logprobs: Optional[int] = None,
        echo: bool = False,
        stop: Stop = None,
        frequency_penalty: float = 0.0,
        presence_penalty: float = 0.0,
        repeat_penalty: float = 1.0,
        top_k: int = 40,
        stream: bool = False,
        seed: Optional[int] = None,
        *,
        grammar: Grammar = None,
        model: Optional[str] = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        **others: Any,
    ) -> Any:
        """Returns the text after a prompt (a text, or tokens), as a response of OpenAI's completions API.

        max_tokens: None, 0 or less: as many as the context has room for. logprobs: the number of likeliest tokens to
        give for every token, with natural logarithms in the model's own distribution; with echo also for the tokens of
        the prompt, all of which is then read anew. stop: texts that end the answer and do not belong to it. grammar:
        GBNF that the answer must follow. stream: returns an iterator of chunks instead of one response. suffix: the
        text after the answer, for models that were trained to fill in the middle. model: a name for the response.
        stopping_criteria, logits_processor: functions, or lists of them, that are called before every choice with the
        tokens that were read (int32 [n]) and the logits after them (float32 [n_vocab], a copy of their own); they
        return whether the answer ends, and the logits to choose from. Further arguments are those of `winnow.Sampling`:
        mirostat_mode, logit_bias, dry_multiplier, ...
        """
        if logprobs is not None:
            logprobs = whole_number("logprobs", logprobs, 0)
        is_text = isinstance(prompt, (str, bytes))
        if suffix is not None:
            tokens = self._infill_tokens(prompt, suffix)
        else:
            tokens = self.tokenize(prompt, True, True) if is_text else token_list(prompt)
        echoed = ""
        if echo:
            echoed = prompt if isinstance(prompt, str) else self.detokenize(tokens).decode("utf-8", "replace")
        sampler = self._sampler(
            tokens,
            gbnf_of(grammar),
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            frequency_penalty=frequency_penalty,
            presence_penalty=presence_penalty,
            repeat_penalty=repeat_penalty,
            seed=seed,
            **without_unused(others),
        )
        scored: List[Piece] = []
        if echo and logprobs is not None:
            session, scored = self._read_scored(tokens, logprobs)
        else:
            session = self._read(tokens)
        answer = self._answer(
            session,
            sampler,
            n_logprobs=logprobs,
            max_tokens=token_limit(max_tokens),
            stops=stop_list(stop),
            before_choice=hook(session, logits_processor, stopping_criteria),
        )
        completion = Completion(self._model, model or self.model_path, len(tokens), echoed, scored)
        return completion.chunks(answer) if stream else completion.whole(answer)

    __call__ = create_completion

    def create_chat_completion(
        self,
        messages: Sequence[Mapping[str, Any]],
        functions: Optional[Sequence[Mapping[str, Any]]] = None,
        function_call: Union[str, Mapping[str, Any], None] = None,
        tools: Optional[Sequence[Mapping[str, Any]]] = None,
        tool_choice: Union[str, Mapping[str, Any], None] = None,
        temperature: float = 0.2,
        top_p: float = 0.95,
        top_k: int = 40,
        min_p: float = 0.05,
        typical_p: float = 1.0,
        stream: bool = False,
        stop: Stop = None,
        seed: Optional[int] = None,
        response_format: Optional[Dict[str, Any]] = None,
        max_tokens: Optional[int] = None,
        *,
        grammar: Grammar = None,
        logprobs: Optional[bool] = False,
        top_logprobs: Optional[int] = None,
        model: Optional[str] = None,
        stopping_criteria: Any = None,
        logits_processor: Any = None,
        **others: Any,
    ) -> Any:
        """Returns the answer to messages, as a response of OpenAI's chat completions API.

        messages: dicts with 'role' and 'content'; if the last is an assistant's, the answer continues it. tools,
        tool_choice: functions that the model may, must or must not call; functions and function_call are OpenAI's older
        form of them, with which a whole response gives its first call as function_call, too. response_format:
        {"type": "json_object"} for any JSON object, with a "schema" for one that follows it, or OpenAI's
        {"type": "json_schema", ...}. logprobs, top_logprobs: natural logarithms in the model's own distribution.
        stream: returns an iterator of chunks. model, stopping_criteria, logits_processor: as in create_completion.
        Further arguments are those of `winnow.Sampling`.
        """
        if not messages:
            raise InvalidArgument("messages is empty: a chat needs at least one")
        if top_logprobs is not None and not logprobs:
            raise InvalidArgument("top_logprobs has no effect without logprobs=True")
        n_logprobs = whole_number("top_logprobs", top_logprobs or 0, 0) if logprobs else None
        if functions is not None:
            tools, tool_choice = tools_of_functions(functions, function_call, tools, tool_choice)
        gbnf = gbnf_of(grammar, response_format)
        made = messages_of(messages)
        prompt = _core.apply_chat_template(
            self._model, made, options_of(messages, tools, tool_choice, bool(gbnf))
        )
        tokens = self.tokenize(prompt.text, True, True)
        sampler = self._sampler(
            tokens,
            gbnf or prompt.grammar,
            None if gbnf else prompt.grammar_start,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            min_p=min_p,
            typical_p=typical_p,
            seed=seed,
            **without_unused(others),
        )
        shown = (self.tokenize(text, False, True) for text in prompt.shown_tokens)
        session = self._read(tokens, question_aware=True)
        answer = self._answer(
            session,
            sampler,
            n_logprobs=n_logprobs,
            max_tokens=token_limit(max_tokens),
            stops=stop_list(stop) + prompt.stops + stops_of(self.chat_format),
            shown_tokens=[tokens[0] for tokens in shown if len(tokens) == 1],
            before_choice=hook(session, logits_processor, stopping_criteria),
        )
        completion = ChatCompletion(self._model, model or self.model_path, prompt, len(tokens), functions is not None)
        return completion.chunks(answer) if stream else completion.whole(answer)
