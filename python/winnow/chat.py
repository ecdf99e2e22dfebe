"""Chats in OpenAI's format: requests with messages and tools, and responses."""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _core
from .answer import Piece, head, usage
from .errors import InvalidArgument

ROLES = ("system", "developer", "user", "assistant", "tool")


# --- Requests ---------------------------------------------------------------------------------------------------------


def _text(content: Any, place: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    parts = list(content) if isinstance(content, Sequence) else [None]
    if not all(isinstance(part, Mapping) and part.get("type") == "text" for part in parts):
        raise InvalidArgument(f"{place}.content must be a text or a list of parts of type 'text'")
    return "".join(part["text"] for part in parts)


def _calls(message: Mapping[str, Any], place: str) -> List[Any]:
    calls = []
    for call in message.get("tool_calls") or ():
        try:
            function = call["function"]
            arguments = function.get("arguments", "{}")
            text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            calls.append(_core.ChatToolCall(call.get("id", ""), function["name"], text))
        except (KeyError, TypeError, AttributeError):
            raise InvalidArgument(f"{place}.tool_calls must be a list of dicts with 'id' and 'function'") from None
    return calls


def messages_of(messages: Sequence[Mapping[str, Any]]) -> List[Any]:
    """Checks messages and returns them in the library's form. Raises InvalidArgument for a malformed one."""
    made = []
    names: Dict[str, str] = {}  # of calls, by id: a tool message has only the id, and many templates need the name
    for i, message in enumerate(messages):
        place = f"messages[{i}]"
        if not isinstance(message, Mapping) or message.get("role") not in ROLES:
            raise InvalidArgument(f"{place} must be a dict whose 'role' is one of {', '.join(ROLES)}")
        if "content" not in message and message["role"] != "assistant":
            raise InvalidArgument(f"{place} has no 'content'")
        calls = _calls(message, place)
        names.update((call.id, call.name) for call in calls)
        call_id = message.get("tool_call_id") or ""
        made.append(
            _core.ChatMessage(
                message["role"],
                _text(message.get("content"), place),
                message.get("reasoning_content") or "",
                calls,
                call_id,
                message.get("name") or names.get(call_id, ""),
            )
        )
    return made


def _tools_of(tools: Sequence[Mapping[str, Any]]) -> List[Any]:
    made = []
    for i, tool in enumerate(tools):
        try:
            function = tool["function"]
            parameters = function.get("parameters")
            schema = "" if parameters is None else json.dumps(parameters)
            made.append(_core.ChatTool(function["name"], function.get("description") or "", schema))
        except (KeyError, TypeError, AttributeError):
            raise InvalidArgument(f"tools[{i}] must be a dict with a 'function' that has a 'name'") from None
    return made


Tools = Optional[Sequence[Mapping[str, Any]]]
ToolChoice = Union[str, Mapping[str, Any], None]


def tools_of_functions(
    functions: Sequence[Mapping[str, Any]], function_call: ToolChoice, tools: Tools, tool_choice: ToolChoice
) -> Tuple[Tools, ToolChoice]:
    """Returns functions and function_call, OpenAI's older form, as tools and tool_choice."""
    if tools is not None or tool_choice is not None:
        raise InvalidArgument("functions and tools exclude each other: leave functions out")
    choice = {"type": "function", "function": function_call} if isinstance(function_call, Mapping) else function_call
    return [{"type": "function", "function": function} for function in functions], choice


def options_of(
    messages: Sequence[Mapping[str, Any]],
    tools: Tools,
    tool_choice: ToolChoice,
    has_grammar: bool,
) -> Any:
    options = _core.ChatOptions()
    last = messages[-1]
    says = last.get("content") or last.get("reasoning_content")
    options.continues_last = bool(last["role"] == "assistant" and says and not last.get("tool_calls"))
    options.enable_thinking = not has_grammar  # a grammar leaves no room for thinking before the answer
    offered = _tools_of(tools or ())
    if offered and has_grammar:
        raise InvalidArgument("tools exclude grammar and response_format: calls have a form of their own")
    if isinstance(tool_choice, Mapping):
        name = (tool_choice.get("function") or {}).get("name")
        offered = [tool for tool in offered if tool.name == name]
        if not offered:
            raise InvalidArgument(f"tool_choice names the function {name!r}, which is not among the tools")
        tool_choice = "required"
        options.parallel_tool_calls = False
    if tool_choice not in (None, "auto", "none", "required"):
        raise InvalidArgument(f"tool_choice is auto, none, required or a function, not {tool_choice!r}")
    if tool_choice == "required" and not offered:
        raise InvalidArgument("tool_choice is required, but there are no tools")
    options.tools = offered
    options.tool_choice = getattr(_core.ToolChoice, tool_choice or "auto")
    return options


# --- Responses --------------------------------------------------------------------------------------------------------


def _delta_dict(delta: Any) -> Dict[str, Any]:
    made: Dict[str, Any] = {}
    if delta.reasoning:
        made["reasoning_content"] = delta.reasoning
    if delta.content:
        made["content"] = delta.content
    if delta.tool_call >= 0:
        call: Dict[str, Any] = {"index": delta.tool_call, "function": {"arguments": delta.arguments}}
        if delta.name:
            call.update(id=delta.id, type="function", function={"name": delta.name, "arguments": delta.arguments})
        made["tool_calls"] = [call]
    return made


def _message_dict(message: Any, tells_function_call: bool) -> Dict[str, Any]:
    made: Dict[str, Any] = {"role": "assistant", "content": message.content}
    if message.reasoning:
        made["reasoning_content"] = message.reasoning
    if message.tool_calls:
        made["content"] = message.content or None
        made["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
    if message.tool_calls and tells_function_call:
        made["function_call"] = made["tool_calls"][0]["function"]
    return made


class ChatCompletion:
    """A builder of a chat completion's response, whole or in chunks."""

    def __init__(self, model: Any, model_name: str, prompt: Any, n_prompt: int, tells_function_call: bool = False):
        """tells_function_call: a whole response gives its first call also in OpenAI's older form."""
        self._model = model
        self._model_name = model_name
        self._reader = prompt.reader()
        self._n_prompt = n_prompt
        self._tells_function_call = tells_function_call

    def _logprob(self, token: int, logprob: float) -> Dict[str, Any]:
        data = self._model.token_text(token, True)
        return {"token": data.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(data)}

    def _logprobs(self, piece: Piece) -> List[Dict[str, Any]]:
        if piece.token is None or piece.logprob is None:
            return []
        top = [self._logprob(token, logprob) for token, logprob in piece.top]
        return [{**self._logprob(piece.token, piece.logprob), "top_logprobs": top}]

    def _reason(self, piece: Piece) -> Optional[str]:
        has_calls = piece.finish_reason == "stop" and self._reader.message.tool_calls
        return "tool_calls" if has_calls else piece.finish_reason

    def chunks(self, answer: Iterator[Piece]) -> Iterator[Dict[str, Any]]:
        start = head("chatcmpl", "chat.completion.chunk", self._model_name)

        def chunk(delta: Dict[str, Any], logprobs: Any = None, reason: Optional[str] = None) -> Dict[str, Any]:
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            return {**start, "choices": [choice]}

        yield chunk({"role": "assistant"})
        waiting: List[Dict[str, Any]] = []  # probabilities of tokens whose text could not be shown yet
        for piece in answer:
            waiting += self._logprobs(piece)
            deltas = self._reader.add(piece.text)
            if piece.finish_reason is not None:
                deltas = list(deltas) + list(self._reader.finish())
            for delta in deltas:
                yield chunk(_delta_dict(delta), {"content": waiting, "refusal": None} if waiting else None)
                waiting = []
            if piece.finish_reason is not None:
                rest = {"content": waiting, "refusal": None} if waiting else None
                yield chunk({}, rest, self._reason(piece))

    def whole(self, answer: Iterator[Piece]) -> Dict[str, Any]:
        text = ""
        n_tokens = 0
        logprobs: List[Dict[str, Any]] = []
        last = Piece("")
        for piece in answer:
            logprobs += self._logprobs(piece)
            text += piece.text
            n_tokens += piece.token is not None
            last = piece
        self._reader.add(text)
        self._reader.finish()
        choice = {
            "index": 0,
            "message": _message_dict(self._reader.message, self._tells_function_call),
            "logprobs": {"content": logprobs, "refusal": None} if logprobs else None,
            "finish_reason": self._reason(last),
        }
        response = head("chatcmpl", "chat.completion", self._model_name)
        return {**response, "choices": [choice], "usage": usage(self._n_prompt, n_tokens)}
