"""Chats, tools and forms of answers; the examples of llama-cpp-python's README with the import changed."""

import json

import pytest

import winnow
from winnow import Llama, chat_formats
from winnow.chat import messages_of, options_of

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
USER_DETAIL = {
    "type": "function",
    "function": {
        "name": "UserDetail",
        "parameters": {
            "type": "object",
            "title": "UserDetail",
            "properties": {
                "name": {"title": "Name", "type": "string"},
                "age": {"title": "Age", "type": "integer"},
            },
            "required": ["name", "age"],
        },
    },
}


def test_a_chat(llm):
    answer = llm.create_chat_completion(QUESTION, max_tokens=12, temperature=0)
    assert answer["object"] == "chat.completion"
    (choice,) = answer["choices"]
    assert choice["message"]["role"] == "assistant" and "Paris" in choice["message"]["content"]
    assert choice["finish_reason"] in ("stop", "length")
    assert answer["usage"]["prompt_tokens"] > 20 and answer["usage"]["completion_tokens"] <= 12

    chunks = list(llm.create_chat_completion(QUESTION, max_tokens=12, temperature=0, stream=True))
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant"}
    text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert text == choice["message"]["content"]
    assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]


def test_log_probabilities_of_a_chat(llm):
    def ask(**options):
        return llm.create_chat_completion(QUESTION, max_tokens=4, temperature=0, logprobs=True, **options)

    content = ask(top_logprobs=3)["choices"][0]["logprobs"]["content"]
    assert len(content) == 4
    for entry in content:
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"] and len(entry["top_logprobs"]) == 3
        assert bytes(entry["bytes"]).decode() == entry["token"]
    assert [entry["top_logprobs"] for entry in ask()["choices"][0]["logprobs"]["content"]] == [[]] * 4
    streamed = []
    for chunk in ask(top_logprobs=3, stream=True):
        streamed += (chunk["choices"][0]["logprobs"] or {"content": []})["content"]
    assert streamed == content


def test_an_answer_goes_on_with_what_is_said(llm):
    begun = QUESTION + [{"role": "assistant", "content": "The capital of France is"}]
    answer = llm.create_chat_completion(begun, max_tokens=8, temperature=0)["choices"][0]["message"]["content"]
    assert answer.lstrip().startswith("Paris")


def test_parts_and_turns(llm):
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "You are "}, {"type": "text", "text": "brief."}]},
        {"role": "user", "content": "Call me Ishmael."},
        {"role": "assistant", "content": "Yes, Ishmael."},
        {"role": "user", "content": "What is my name?"},
    ]
    answer = llm.create_chat_completion(messages, max_tokens=12, temperature=0)
    assert "Ishma" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"messages": []}, "empty"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "role"),
        ({"messages": [{"role": "user"}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "parts of type 'text'"),
        ({"top_logprobs": 2}, "logprobs=True"),
        ({"tool_choice": "required"}, "no tools"),
        ({"tool_choice": "sometimes"}, "auto, none"),
        ({"tools": [{}]}, "function"),
        ({"tools": [USER_DETAIL], "tool_choice": {"function": {"name": "Other"}}}, "Other"),
        ({"tools": [USER_DETAIL], "grammar": 'root ::= "a"'}, "exclude"),
        ({"response_format": {"type": "xml"}}, "xml"),
        ({"response_format": {"type": "json_schema"}}, "schema"),
        ({"response_format": {"type": "json_object", "schema": {"type": "object", "not": {}}}}, "not"),
        ({"response_format": {"type": "json_object"}, "grammar": 'root ::= "a"'}, "exclude"),
    ],
)
def test_wrong_requests_are_refused(llm, options, words):
    with pytest.raises(winnow.InvalidArgument, match=words):
        llm.create_chat_completion(**{"messages": QUESTION, **options})


# --- llama-cpp-python's README ---


def test_readme_completion(whole_path):
    llm = Llama(model_path=whole_path, seed=1337, n_ctx=2048)
    output = llm(
        "Q: Name the planets in the solar system? A: ",
        max_tokens=32,
        stop=["Q:", "\n"],
        echo=True,
    )
    assert output["choices"][0]["text"].startswith("Q: Name the planets in the solar system? A: ")


# The prompts that llama-cpp-python 0.3.36 makes of TALK, or where those lose text, what the models were trained on
# (chat_formats.py).
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": "Hi."},
    {"role": "user", "content": "Who are you?"},
]
PROMPTS = {
    "alpaca": "Be brief.\n\n### Instruction: Hello!\n\n### Response: Hi.</s>### Instruction: Who are you?\n\n### Response:",
    "baichuan": "Be brief.<reserved_102>Hello!<reserved_103>Hi.<reserved_102>Who are you?<reserved_103>",
    "baichuan-2": "Be brief.<reserved_106>Hello!<reserved_107>Hi.<reserved_106>Who are you?<reserved_107>",
    "chatglm3": "<|system|>\nBe brief.<|user|>\n Hello!<|assistant|>\n Hi.<|user|>\n Who are you?<|assistant|>",
    "gemma": "<start_of_turn>user\nBe brief.\n\nHello!<end_of_turn>\n<start_of_turn>model\nHi.<end_of_turn>\n"
    "<start_of_turn>user\nWho are you?<end_of_turn>\n<start_of_turn>model\n",
    "intel": "### System:\nBe brief.\n### User: Hello!\n### Assistant: Hi.\n### User: Who are you?\n### Assistant:",
    "llama-3": "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
    "Hello!<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi.<|eot_id|><|start_header_id|>user<|end_header_id|>"
    "\n\nWho are you?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    "mistral-instruct": "[INST] Be brief.\n\nHello! [/INST]Hi.</s>[INST] Who are you? [/INST]",
    "mistrallite": "<|system|>Be brief.</s><|prompter|>Hello! </s>\n<|assistant|>Hi. <|prompter|>Who are you? </s>\n<|assistant|>",
    "oasst_llama": "[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\n<|prompter|>Hello!</s><|assistant|>Hi.</s>"
    "<|prompter|>Who are you?</s><|assistant|>",
    "open-orca": "Be brief.<|end_of_turn|>\nUser: Hello!<|end_of_turn|>\nAssistant: Hi.<|end_of_turn|>\n"
    "User: Who are you?<|end_of_turn|>\nAssistant: ",
    "openbuddy": "Be brief.\nUser: Hello!\nAssistant: Hi.\nUser: Who are you?\nAssistant:",
    "openchat": "Be brief.<|end_of_turn|><|end_of_turn|>\nGPT4 Correct User: \nHello!<|end_of_turn|>\n<|end_of_turn|>"
    "GPT4 Correct Assistant: \nHi.<|end_of_turn|>\nGPT4 Correct User: \nWho are you?<|end_of_turn|>\n<|end_of_turn|>"
    "GPT4 Correct Assistant: \n",
    "phind": "### System Prompt\nBe brief.\n\n### User Message: Hello!\n\n### Assistant: Hi.\n\n### User Message: Who are you?"
    "\n\n### Assistant:",
    "pygmalion": "<|system|>Be brief.\n\n<|user|>\nHello!\n\n<|model|>\nHi.\n\n<|user|>\nWho are you?\n\n<|model|>\n",
    "qwen": "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>\n"
    "<|im_start|>user\nWho are you?<|im_end|>\n<|im_start|>assistant\n",
    "redpajama-incite": "Be brief.\n<human>: Hello!\n<bot>: Hi.\n<human>: Who are you?\n<bot>:",
    "saiga": "<s>system\nBe brief.</s><s>user\nHello!</s><s>bot\nHi.</s><s>user\nWho are you?</s><s>bot",
    "snoozy": "Be brief.\n### Prompt: Hello!\n### Response: Hi.\n### Prompt: Who are you?\n### Response:",
    "vicuna": "Be brief. USER: Hello! ASSISTANT: Hi.</s>USER: Who are you? ASSISTANT:",
    "zephyr": "<|system|>\nBe brief.</s>\n<|user|>\n\nHello!</s>\n<|assistant|>\n\nHi.</s>\n<|user|>\n\nWho are you?</s>\n"
    "<|assistant|>\n\n",
}


def prompt_of(llm, messages):
    return winnow._core.apply_chat_template(llm._model, messages_of(messages), options_of(messages, None, None, False)).text


@pytest.mark.parametrize("name", PROMPTS)
def test_chat_formats(model_path, name):
    llm = Llama(model_path, chat_format=name, n_ctx=512, verbose=False)
    assert prompt_of(llm, TALK) == PROMPTS[name]
    assert prompt_of(llm, TALK[1:2]).endswith(chat_formats._FORMATS[name].header)
    assert llm.create_chat_completion(TALK, max_tokens=2)["choices"][0]["message"]["role"] == "assistant"


def test_chat_formats_all_have_a_prompt(model_path):
    assert set(chat_formats.CHAT_FORMATS) == {*PROMPTS, "chatml", "chatml-function-calling", "llama-2"}
    for name in ("functionary", "functionary-v1", "functionary-v2"):
        with pytest.raises(winnow.Unsupported, match="leave chat_format out"):
            Llama(model_path, chat_format=name)
    plain = Llama(model_path, n_ctx=512, verbose=False)
    assert prompt_of(Llama(model_path, chat_format="chat_template.default", n_ctx=512), TALK) == prompt_of(plain, TALK)
    vicuna = Llama(model_path, chat_format="vicuna", n_ctx=512, verbose=False)
    assert prompt_of(vicuna, TALK[1:2]).startswith("A chat between a curious user")


def test_a_chat_formats_stop_ends_the_answer(model_path):
    llm = Llama(model_path, chat_format="pygmalion", n_ctx=512, verbose=False)
    text = llm.create_chat_completion(TALK, max_tokens=64, temperature=0)["choices"][0]["message"]["content"]
    assert "\n" not in text


def test_readme_chat_format(model_path):
    llm = Llama(model_path=model_path, chat_format="llama-2", n_ctx=2048)
    answer = llm.create_chat_completion(
        messages=[
            {"role": "system", "content": "You are an assistant who perfectly describes images."},
            {"role": "user", "content": "Describe this image in detail please."},
        ],
        max_tokens=2,
    )
    assert answer["choices"][0]["message"]["role"] == "assistant"
    text = llm.detokenize(llm._session.tokens, special=True).decode()
    assert "[INST] <<SYS>>\nYou are an assistant who perfectly describes images.\n<</SYS>>\n\nDescribe" in text
    assert "please. [/INST]" in text
    with pytest.raises(winnow.InvalidArgument, match="there is no chat_format 'alpacca', only .*alpaca"):
        Llama(model_path, chat_format="alpacca")
    with pytest.raises(winnow.InvalidArgument, match="exclude"):
        Llama(model_path, chat_format="chatml", chat_template="x")


def test_readme_json(whole_path):
    llm = Llama(model_path=whole_path, chat_format="chatml", n_ctx=2048)
    messages = [
        {"role": "system", "content": "You are a helpful assistant that outputs in JSON."},
        {"role": "user", "content": "Who won the world series in 2020"},
    ]
    answer = llm.create_chat_completion(
        messages=messages, response_format={"type": "json_object"}, temperature=0.7, seed=1, max_tokens=200
    )["choices"][0]
    if answer["finish_reason"] == "stop":
        assert isinstance(json.loads(answer["message"]["content"]), dict)
    assert answer["message"]["content"].startswith("{")
    schema = {"type": "object", "properties": {"team_name": {"type": "string"}}, "required": ["team_name"]}
    for response_format in (
        {"type": "json_object", "schema": schema},
        {"type": "json_schema", "json_schema": {"schema": schema}},
    ):
        answer = llm.create_chat_completion(messages=messages, response_format=response_format, temperature=0.7, seed=1)
        assert list(json.loads(answer["choices"][0]["message"]["content"])) == ["team_name"]


def test_readme_function_calling(whole_path):
    llm = Llama(model_path=whole_path, chat_format="chatml-function-calling", n_ctx=2048)
    request = {
        "messages": [
            {
                "role": "system",
                "content": "A chat between a curious user and an artificial intelligence assistant. The assistant calls "
                "functions with appropriate input when necessary",
            },
            {"role": "user", "content": "Extract Jason is 25 years old"},
        ],
        "tools": [USER_DETAIL],
        "tool_choice": {"type": "function", "function": {"name": "UserDetail"}},
        "temperature": 0,
        "max_tokens": 200,
    }
    choice = llm.create_chat_completion(**request)["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert call["type"] == "function" and call["function"]["name"] == "UserDetail"
    arguments = json.loads(call["function"]["arguments"])
    assert set(arguments) == {"name", "age"} and isinstance(arguments["age"], int)

    deltas = [chunk["choices"][0] for chunk in llm.create_chat_completion(**request, stream=True)]
    parts = [part for delta in deltas for part in delta["delta"].get("tool_calls", [])]
    assert parts[0]["function"]["name"] == "UserDetail"
    assert json.loads("".join(part["function"]["arguments"] for part in parts)) == arguments
    assert deltas[-1]["finish_reason"] == "tool_calls"

    # The model answers with the result of the tool.
    request["messages"] += [choice["message"], {"role": "tool", "tool_call_id": call["id"], "content": "stored"}]
    request["tool_choice"] = "none"
    answer = llm.create_chat_completion(**request)["choices"][0]
    assert answer["message"]["content"] and "tool_calls" not in answer["message"]


def test_grammars_under_their_old_name(llm, tmp_path):
    (tmp_path / "yes.gbnf").write_text('root ::= "yes" | "no"')
    for grammar in (
        winnow.LlamaGrammar.from_string('root ::= "yes" | "no"'),
        winnow.LlamaGrammar.from_file(tmp_path / "yes.gbnf"),
        winnow.LlamaGrammar.from_json_schema('{"enum": ["yes", "no"]}'),
    ):
        answer = llm.create_chat_completion(QUESTION, grammar=grammar)["choices"][0]["message"]["content"]
        assert answer.strip('"') in ("yes", "no")
