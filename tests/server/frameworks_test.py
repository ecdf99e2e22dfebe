#!/usr/bin/env python3
"""Tests LangChain and Pydantic AI against `winnow serve` with the default model, like openai_client_test.py.

usage: frameworks_test.py WINNOW VENV
"""
import asyncio
import pathlib
import re
import subprocess
import sys
import typing
import unittest

from client_support import ensure_packages, start_with_tools

QUESTION = "What is the capital of Japan?"


def setUpModule():
    global server, url
    server = start_with_tools("-n", "60")
    url = server.url + "/v1"


def tearDownModule():
    code = server.stop()
    assert code == 0, "".join(server.lines)


class LangChainTest(unittest.TestCase):
    def test_a_chat_with_tools_and_a_schema(self):
        model = langchain_openai.ChatOpenAI(base_url=url, api_key="the-key", model="any", temperature=0, max_tokens=24)
        first = model.invoke([("system", "Be brief."), ("human", QUESTION)])
        self.assertIn("Tokyo", first.content)
        self.assertGreater(first.usage_metadata["input_tokens"], 0)
        pieces = [piece.content for piece in model.stream([("system", "Be brief."), ("human", QUESTION)])]
        self.assertGreater(len(pieces), 2)
        self.assertEqual("".join(pieces), first.content)
        city = model.with_structured_output(City).invoke("Where is the Colosseum?")
        self.assertIn(city.name, ("Oslo", "Rome"))

        def get_weather(city: typing.Literal["Oslo", "Rome"]) -> str:
            """The weather of a city."""
            return "rain in " + city

        with_tools = model.bind_tools([get_weather], tool_choice="any", parallel_tool_calls=False)
        messages = [messages_of.HumanMessage("How is the weather in Oslo?")]
        for _ in range(2):  # several turns
            asked = None
            for piece in with_tools.stream(messages):
                asked = piece if asked is None else asked + piece
            (call,) = asked.tool_calls
            self.assertEqual(call["name"], "get_weather")
            messages += [asked, messages_of.ToolMessage(get_weather(**call["args"]), tool_call_id=call["id"])]
        self.assertEqual(model.invoke(messages).type, "ai")

    def test_embeddings(self):
        # The length check would need another model's tokenizer.
        made = langchain_openai.OpenAIEmbeddings(base_url=url, api_key="the-key", model="any",
                                                 check_embedding_ctx_length=False)
        self.assertEqual(len(made.embed_documents(["one", "two"])), 2)
        self.assertAlmostEqual(sum(x * x for x in made.embed_query("one")), 1, places=4)


class RetrievalTest(unittest.TestCase):
    def test_passages_are_read_once(self):
        """Runs examples/server/rag.py unchanged: questions that lead to the same passage hit its cache."""
        root = pathlib.Path(__file__).resolve().parents[2]
        ran = subprocess.run(
            [sys.executable, root / "examples/server/rag.py", root / "demo/document.txt", "--url", url, "--key", "the-key",
             "-q", "Who is Dr. Mortimer?", "-q", "Who is Dr. Mortimer, the doctor?", "-q", "Who is Dr. Mortimer?"],
            capture_output=True, text=True, timeout=300)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        found = re.findall(r"passage (\d+) of (\d+); (\d+) of (\d+) tokens", ran.stdout)
        self.assertEqual(len(found), 3, ran.stdout)
        seen = set()
        for passage, n_passages, cached, n_tokens in (map(int, row) for row in found):
            self.assertGreater(n_passages, 4)
            self.assertGreater(n_tokens, 300)
            if passage in seen:
                self.assertGreater(cached, n_tokens - 60)  # everything except the question
            else:
                self.assertLess(cached, 100)  # the beginning of the template
            seen.add(passage)
        self.assertLess(len(seen), 3)


class PydanticAiTest(unittest.TestCase):
    def test_an_agent(self):
        provider = pydantic_ai.providers.openai.OpenAIProvider(base_url=url, api_key="the-key")
        model = pydantic_ai.models.openai.OpenAIChatModel("any", provider=provider)
        settings = {"temperature": 0, "max_tokens": 60}
        by_tool = pydantic_ai.Agent(model, output_type=City, model_settings=settings)
        first = by_tool.run_sync("Where is the Colosseum?")
        self.assertIn(first.output.name, ("Oslo", "Rome"))
        again = by_tool.run_sync("And the opera?", message_history=first.all_messages())
        self.assertIn(again.output.name, ("Oslo", "Rome"))
        self.assertGreater(len(again.all_messages()), 4)
        by_schema = pydantic_ai.Agent(model, output_type=pydantic_ai.NativeOutput(City), model_settings=settings)
        self.assertIn(by_schema.run_sync("Where is the Colosseum?").output.name, ("Oslo", "Rome"))

        async def stream():
            plain = pydantic_ai.Agent(model, instructions="Be brief.", model_settings=settings)
            async with plain.run_stream(QUESTION) as answer:
                return [piece async for piece in answer.stream_text(delta=True, debounce_by=None)]

        pieces = asyncio.run(stream())
        self.assertGreater(len(pieces), 2)
        self.assertIn("Tokyo", "".join(pieces))


if __name__ == "__main__":
    ensure_packages(__file__)

    import langchain_core.messages as messages_of
    import langchain_openai
    import pydantic
    import pydantic_ai
    import pydantic_ai.models.openai
    import pydantic_ai.providers.openai

    class City(pydantic.BaseModel):
        """A city."""

        name: typing.Literal["Oslo", "Rome"]
        is_capital: bool

    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
