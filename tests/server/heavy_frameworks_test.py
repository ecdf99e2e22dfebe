#!/usr/bin/env python3
"""Tests instructor, LiteLLM and LlamaIndex against `winnow serve` with the default model, like openai_client_test.py.

usage: heavy_frameworks_test.py WINNOW VENV, or `make test-heavy`

They are not part of `make test`: they take hundreds of megabytes and seconds to import, and need a version of openai's
package that conflicts with that of the others.
"""
import json
import typing
import unittest

from client_support import ensure_packages, start_with_tools

PACKAGES = ["instructor==1.17.0", "litellm==1.106.2", "mcp==2.3.0",
            "llama-index-llms-openai-like==0.8.1",
            "llama-index-embeddings-openai-like==0.4.0"]
QUESTION = "What is the capital of Japan?"
WEATHER = "How is the weather in Oslo?"


def setUpModule():
    global server, url
    server = start_with_tools("-n", "300")
    url = server.url + "/v1"


def tearDownModule():
    code = server.stop()
    assert code == 0, "".join(server.lines)


class InstructorTest(unittest.TestCase):
    def test_objects_by_tool_by_schema_and_in_parts(self):
        plain = openai.OpenAI(base_url=url, api_key="the-key", max_retries=0)
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            client = instructor.from_openai(plain, mode=mode)
            ask = {"model": "any", "messages": [{"role": "user", "content": "Where is the Colosseum?"}], "max_retries": 0}
            self.assertIn(client.chat.completions.create(response_model=City, **ask).name, ("Oslo", "Rome"))
            parts = list(client.chat.completions.create_partial(response_model=City, **ask))
            self.assertIn(parts[-1].name, ("Oslo", "Rome"))
            self.assertIsInstance(parts[-1].is_capital, bool)


class LiteLlmTest(unittest.TestCase):
    def ask(self, messages, **more):
        return litellm.completion(model="openai/any", api_base=url, api_key="the-key", messages=messages, temperature=0,
                                  **more)

    def test_a_chat_with_tools_and_a_schema(self):
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
        whole = self.ask(messages, max_tokens=24)
        self.assertIn("Tokyo", whole.choices[0].message.content)
        self.assertGreater(whole.usage.prompt_tokens, 0)
        pieces = [piece.choices[0].delta.content or "" for piece in self.ask(messages, max_tokens=24, stream=True)]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), whole.choices[0].message.content)
        formatted = self.ask([{"role": "user", "content": "Where is the Colosseum?"}], response_format=City)
        self.assertIn(json.loads(formatted.choices[0].message.content)["name"], ("Oslo", "Rome"))
        tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.",
                                                   "parameters": City.model_json_schema()}}]
        messages = [{"role": "user", "content": WEATHER}]
        for _ in range(2):  # several turns
            asked = self.ask(messages, tools=tools, tool_choice="required", parallel_tool_calls=False).choices[0].message
            (call,) = asked.tool_calls
            self.assertIn(json.loads(call.function.arguments)["name"], ("Oslo", "Rome"))
            messages += [asked.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]

    def test_embeddings(self):
        made = litellm.embedding(model="openai/any", api_base=url, api_key="the-key", input=["one", "two"])
        self.assertEqual(len(made.data), 2)


class LlamaIndexTest(unittest.TestCase):
    def test_a_chat_with_tools_and_a_schema(self):
        model = OpenAILike(model="any", api_base=url, api_key="the-key", is_chat_model=True, temperature=0, max_tokens=60,
                           is_function_calling_model=True, context_window=4096)
        messages = [ChatMessage(role="system", content="Be brief."), ChatMessage(role="user", content=QUESTION)]
        whole = model.chat(messages).message.content
        self.assertIn("Tokyo", whole)
        pieces = [piece.delta or "" for piece in model.stream_chat(messages)]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), whole)
        city = model.as_structured_llm(City).chat([ChatMessage(role="user", content="Where is the Colosseum?")])
        self.assertIn(city.raw.name, ("Oslo", "Rome"))

        def get_weather(city: typing.Literal["Oslo", "Rome"]) -> str:
            """The weather of a city."""
            return "rain in " + city

        tool = FunctionTool.from_defaults(get_weather)
        history = []
        for _ in range(2):  # several turns
            asked = model.chat_with_tools([tool], user_msg=WEATHER, chat_history=history, tool_required=True)
            call = model.get_tool_calls_from_response(asked)[0]
            self.assertIn(call.tool_kwargs["city"], ("Oslo", "Rome"))
            history += [ChatMessage(role="user", content=WEATHER), asked.message,
                        ChatMessage(role="tool", content="rain", additional_kwargs={"tool_call_id": call.tool_id})]

    def test_embeddings(self):
        made = OpenAILikeEmbedding(model_name="any", api_base=url, api_key="the-key")
        self.assertEqual(len(made.get_text_embedding_batch(["one", "two"])), 2)


if __name__ == "__main__":
    ensure_packages(__file__, PACKAGES)
    import sys

    import instructor
    import litellm
    import openai
    import pydantic
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    from llama_index.llms.openai_like import OpenAILike

    class City(pydantic.BaseModel):
        """A city."""

        name: typing.Literal["Oslo", "Rome"]
        is_capital: bool

    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
