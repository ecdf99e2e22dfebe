"""Chat templates under llama-cpp-python's names, for models whose files have none."""

from __future__ import annotations

import dataclasses
import json
from typing import Dict, List, Optional, Tuple

from .errors import InvalidArgument, Unsupported

# Llama 2's template, with the system message before the first question.
_LLAMA_2 = (
    "{% set system = '' %}"
    "{% if messages[0]['role'] == 'system' %}"
    "{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}{% set messages = messages[1:] %}"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}"
    "{% else %}{{ ' ' + message['content'] + ' ' + eos_token }}{% endif %}"
    "{% endfor %}"
)
# ChatML with tools, in the form that Hermes and Qwen 2.5 were trained on.
_CHATML_TOOLS = (
    "{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else '' %}"
    "{% if system or tools %}{{ '<|im_start|>system\n' + system }}"
    "{% if tools %}{{ '\n\nYou may call one or more of these functions:\n<tools>' }}"
    "{% for tool in tools %}{{ '\n' + (tool | tojson) }}{% endfor %}"
    "{{ '\n</tools>\n\nFor each call return a JSON object with the name and the arguments:\n"
    "<tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}\n</tool_call>' }}{% endif %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}"
    "{% if message['role'] == 'tool' %}"
    "{{ '<|im_start|>user\n<tool_response>\n' + message['content'] + '\n</tool_response><|im_end|>\n' }}"
    "{% elif message['role'] != 'system' or not loop.first %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + (message['content'] or '') }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ '\n<tool_call>\n{\"name\": \"' + call['function']['name'] + '\", \"arguments\": ' }}"
    "{{ call['function']['arguments'] | tojson }}{{ '}\n</tool_call>' }}"
    "{% endfor %}{{ '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclasses.dataclass(frozen=True)
class _Turns:
    """A chat format as a sequence of turns, in which ~ stands for the text of the message."""

    system: str  # used if there is a system message
    user: str
    assistant: str
    header: str  # beginning of the answer
    default: str = ""  # system message of a chat that has none
    is_system_in_user: bool = False  # the system message stands within the first user turn, before its text
    stops: Tuple[str, ...] = ()

    def template(self) -> str:
        def around(turn: str) -> Tuple[str, str]:
            before, after = turn.split("~")
            return json.dumps(before), json.dumps(after)

        system, user, assistant = around(self.system), around(self.user), around(self.assistant)
        told = f"({system[0]} + system + {system[1]} if system else '')"
        return (
            f"{{% set system = messages[0]['content'] if messages[0]['role'] == 'system' else {json.dumps(self.default)} %}}"
            "{% set first = 1 if messages[0]['role'] == 'system' else 0 %}"
            + ("" if self.is_system_in_user else f"{{{{ {told} }}}}")
            + "{% for message in messages %}{% if message['role'] == 'assistant' %}"
            f"{{{{ {assistant[0]} + message['content'] + {assistant[1]} }}}}"
            "{% elif loop.index0 >= first %}"
            f"{{{{ {user[0]} }}}}"
            + (f"{{% if loop.index0 == first %}}{{{{ {told} }}}}{{% endif %}}" if self.is_system_in_user else "")
            + f"{{{{ message['content'] + {user[1]} }}}}"
            "{% endif %}{% endfor %}"
            f"{{% if add_generation_prompt %}}{{{{ {json.dumps(self.header)} }}}}{{% endif %}}"
        )


_OPENBUDDY = (
    "You are a helpful, respectful and honest INTP-T AI Assistant named Buddy. You are talking to a human User.\n"
    "Always answer as helpfully and logically as possible, while being safe. Your answers should not include any harmful, "
    "political, religious, unethical, racist, sexist, toxic, dangerous, or illegal content. Please ensure that your responses "
    "are socially unbiased and positive in nature.\n"
    "If a question does not make any sense, or is not factually coherent, explain why instead of answering something not "
    "correct. If you don't know the answer to a question, please don't share false information.\n"
    "You can speak fluently in many languages, for example: English, Chinese.\n"
    "You cannot access the internet, but you have vast knowledge, cutoff: 2021-09.\n"
    "You are trained by OpenBuddy team, (https://openbuddy.ai, https://github.com/OpenBuddy/OpenBuddy), you are based on "
    "LLaMA and Falcon transformers model, not related to GPT or OpenAI.\n\n"
)
_OPEN_ORCA = (
    "You are a helpful assistant. Please answer truthfully and write out your thinking step by step to be sure you get the "
    "right answer. If you make a mistake or encounter an error in your thinking, say so out loud and attempt to correct it. "
    "If you don't know or aren't sure about something, say so clearly. You will act as a professional logician, "
    "mathematician, and physicist. You will also act as the most appropriate type of expert to answer any particular "
    "question or solve the relevant problem; state which expert type your are, if so. Also think of any particular named "
    "expert that would be ideal to answer the relevant question or solve the relevant problem; name and act as them, if "
    "appropriate."
)
_SNOOZY = (
    "The prompt below is a question to answer, a task to complete, or a conversation to respond to; decide which and write an "
    "appropriate response."
)
_VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives helpful, detailed, and "
    "polite answers to the user's questions."
)

# The formats that models were trained on. llama-cpp-python's own differ from these where they lose text: the answer's
# header (alpaca), all messages (open-orca), answers (saiga), the system message (vicuna, phind, open-orca, openbuddy,
# gemma, mistral-instruct); intel's has a placeholder in place of the system message.
_FORMATS: Dict[str, _Turns] = {
    "llama-3": _Turns(
        system="<|start_header_id|>system<|end_header_id|>\n\n~<|eot_id|>",
        user="<|start_header_id|>user<|end_header_id|>\n\n~<|eot_id|>",
        assistant="<|start_header_id|>assistant<|end_header_id|>\n\n~<|eot_id|>",
        header="<|start_header_id|>assistant<|end_header_id|>\n\n",
        stops=("<|eot_id|>",),
    ),
    "alpaca": _Turns("~\n\n", "### Instruction: ~\n\n", "### Response: ~</s>", "### Response:"),
    "qwen": _Turns(
        system="<|im_start|>system\n~<|im_end|>\n",
        user="<|im_start|>user\n~<|im_end|>\n",
        assistant="<|im_start|>assistant\n~<|im_end|>\n",
        header="<|im_start|>assistant\n",
        default="You are a helpful assistant.",
        stops=("<|endoftext|>",),
    ),
    "vicuna": _Turns("~ ", "USER: ~ ", "ASSISTANT: ~</s>", "ASSISTANT:", default=_VICUNA),
    "oasst_llama": _Turns(
        system="[INST] <<SYS>>\n~\n<</SYS>>\n\n",
        user="<|prompter|>~</s>",
        assistant="<|assistant|>~</s>",
        header="<|assistant|>",
    ),
    "baichuan-2": _Turns("~", "<reserved_106>~", "<reserved_107>~", "<reserved_107>"),
    "baichuan": _Turns("~", "<reserved_102>~", "<reserved_103>~", "<reserved_103>"),
    "openbuddy": _Turns("~\n", "User: ~\n", "Assistant: ~\n", "Assistant:", default=_OPENBUDDY),
    "redpajama-incite": _Turns("~\n", "<human>: ~\n", "<bot>: ~\n", "<bot>:", stops=("<human>",)),
    "snoozy": _Turns("~\n", "### Prompt: ~\n", "### Response: ~\n", "### Response:", default=_SNOOZY, stops=("###",)),
    "phind": _Turns(
        system="### System Prompt\n~\n\n",
        user="### User Message: ~\n\n",
        assistant="### Assistant: ~\n\n",
        header="### Assistant:",
        default="You are an intelligent programming assistant.",
    ),
    "intel": _Turns("### System:\n~\n", "### User: ~\n", "### Assistant: ~\n", "### Assistant:"),
    "open-orca": _Turns(
        system="~<|end_of_turn|>\n",
        user="User: ~<|end_of_turn|>\n",
        assistant="Assistant: ~<|end_of_turn|>\n",
        header="Assistant: ",
        default=_OPEN_ORCA,
        stops=("User",),
    ),
    "mistrallite": _Turns("<|system|>~</s>", "<|prompter|>~ ", "</s>\n<|assistant|>~ ", "</s>\n<|assistant|>"),
    "zephyr": _Turns(
        system="<|system|>\n~</s>\n",
        user="<|user|>\n\n~</s>\n",
        assistant="<|assistant|>\n\n~</s>\n",
        header="<|assistant|>\n\n",
        stops=("</s>",),
    ),
    "pygmalion": _Turns("<|system|>~\n\n", "<|user|>\n~\n\n", "<|model|>\n~\n\n", "<|model|>\n", stops=("\n",)),
    "mistral-instruct": _Turns(
        "~\n\n", "[INST] ~", " [/INST]~</s>", " [/INST]", is_system_in_user=True, stops=("</s>",)
    ),
    "chatglm3": _Turns(
        "<|system|>\n~", "<|user|>\n ~", "<|assistant|>\n ~", "<|assistant|>", stops=("</s>",)
    ),
    "openchat": _Turns(
        system="~<|end_of_turn|><|end_of_turn|>\n",
        user="GPT4 Correct User: \n~<|end_of_turn|>\n",
        assistant="<|end_of_turn|>GPT4 Correct Assistant: \n~<|end_of_turn|>\n",
        header="<|end_of_turn|>GPT4 Correct Assistant: \n",
        stops=("<|end_of_turn|>",),
    ),
    "saiga": _Turns("<s>system\n~</s>", "<s>user\n~</s>", "<s>bot\n~</s>", "<s>bot"),
    "gemma": _Turns(
        system="~\n\n",
        user="<start_of_turn>user\n~<end_of_turn>\n",
        assistant="<start_of_turn>model\n~<end_of_turn>\n",
        header="<start_of_turn>model\n",
        is_system_in_user=True,
        stops=("<end_of_turn>",),
    ),
}
_TEMPLATES = {"chatml": "chatml", "chatml-function-calling": _CHATML_TOOLS, "llama-2": _LLAMA_2}  # "chatml": built in
_OF_THE_FILE = "chat_template.default"  # llama-cpp-python's name for the file's template
_WITH_CALLS = ("functionary", "functionary-v1", "functionary-v2")

CHAT_FORMATS = (*_TEMPLATES, *_FORMATS)


def template_of(chat_format: Optional[str], chat_template: Optional[str]) -> str:
    """Returns the Jinja template of whichever is given, "" for neither."""
    if chat_format is None or chat_format == _OF_THE_FILE:
        return chat_template or ""
    if chat_template is not None:
        raise InvalidArgument("chat_format and chat_template exclude each other: leave one out")
    if chat_format in _WITH_CALLS:
        raise Unsupported(
            f"chat_format {chat_format!r} has tool calls in a form of its own, which is read by the template in the model "
            "file: leave chat_format out, or give the template as Jinja in chat_template"
        )
    if chat_format in _FORMATS:
        return _FORMATS[chat_format].template()
    if chat_format not in _TEMPLATES:
        raise InvalidArgument(
            f"there is no chat_format {chat_format!r}, only {', '.join(CHAT_FORMATS)}: leave it out for the template in "
            "the model file, or give another one as Jinja in chat_template"
        )
    return _TEMPLATES[chat_format]


def stops_of(chat_format: Optional[str]) -> List[str]:
    """Returns the texts that end an answer in this format."""
    return list(_FORMATS[chat_format].stops) if chat_format in _FORMATS else []
